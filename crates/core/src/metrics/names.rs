//! Operations, outcomes and events that are counted: each is one table of names and help texts.

use crate::rules::props::Datatype;

/// Defines an enum and its table: variant, name, help.
macro_rules! table {
    ($(#[$meta:meta])* $table:ident { $($variant:ident = $name:literal, $help:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $table {
            $(#[doc = $help] $variant,)+
        }

        impl $table {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its name in metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Its meaning, as one sentence.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)+ }
            }
        }
    };
}

table! {
    /// An operation of a key-value client.
    KvOp {
        Get = "get", "Read of an object.";
        Put = "put", "Write of an object.";
        Delete = "delete", "Delete of an object.";
        ListKeys = "list_keys", "Listing of a bucket's keys.";
        ListBuckets = "list_buckets", "Listing of a type's buckets.";
        ListPage = "list_page", "Later page of a listing that was counted when it began.";
        Index = "index", "Query of a secondary index.";
        IndexPage = "index_page", "Later page of a query that was counted when it began.";
        Props = "props", "Read or change of a bucket's properties.";
        Types = "types", "Read or change of bucket types.";
        DatatypeGet = "datatype_get", "Read of a data type, refused before its type was known.";
        DatatypeUpdate = "datatype_update", "Update of a data type, refused before its type was known.";
        CounterGet = "counter_get", "Read of a counter.";
        CounterUpdate = "counter_update", "Update of a counter.";
        SetGet = "set_get", "Read of a set.";
        SetUpdate = "set_update", "Update of a set.";
        GsetGet = "gset_get", "Read of a grow-only set.";
        GsetUpdate = "gset_update", "Update of a grow-only set.";
        MapGet = "map_get", "Read of a map.";
        MapUpdate = "map_update", "Update of a map.";
        HllGet = "hll_get", "Read of a HyperLogLog.";
        HllUpdate = "hll_update", "Update of a HyperLogLog.";
    }
}

impl KvOp {
    /// The read of a data type.
    pub const fn get_of(datatype: Datatype) -> Self {
        match datatype {
            Datatype::Counter => Self::CounterGet,
            Datatype::Set => Self::SetGet,
            Datatype::Gset => Self::GsetGet,
            Datatype::Map => Self::MapGet,
            Datatype::Hll => Self::HllGet,
        }
    }

    /// The update of a data type.
    pub const fn update_of(datatype: Datatype) -> Self {
        match datatype {
            Datatype::Counter => Self::CounterUpdate,
            Datatype::Set => Self::SetUpdate,
            Datatype::Gset => Self::GsetUpdate,
            Datatype::Map => Self::MapUpdate,
            Datatype::Hll => Self::HllUpdate,
        }
    }
}

table! {
    /// Outcome of an operation.
    RequestOutcome {
        Ok = "ok", "Done.";
        NotFound = "not_found", "Nothing is there.";
        Refused = "refused", "Refused, for a fault or a condition of the client.";
        Failed = "failed", "Failed, for no fault of the client.";
    }
}

table! {
    /// An event that an operator may have to know. The name is the full name of its counter.
    Event {
        SiblingsRefused = "larder_siblings_refused_total", "Writes refused as their key has too many siblings.";
        ReadDowngraded = "larder_reads_downgraded_total", "Reads asked of fewer replicas again, as others were down.";
        WriteDowngraded = "larder_writes_downgraded_total", "Writes sent to fewer replicas again, as others were down.";
        WriteAtAny = "larder_writes_at_any_total", "Writes of which no replica was up: one node keeps them until one is.";
        ContextRefused = "larder_context_refused_total", "Writes refused for a causal context that is not ours.";
        BlobWritten = "larder_blob_written_total", "Large bodies written.";
        BlobRemoved = "larder_blob_removed_total", "Large bodies removed as their object went.";
        BlobSwept = "larder_blob_swept_total", "Large bodies without an owner, removed by the sweeper.";
        CatalogueRefreshed = "larder_catalogue_refreshed_total", "Newer catalogues of types and properties taken over.";
        EpochOpened = "larder_epochs_opened_total", "Epochs with more shards opened for the indexes of large buckets.";
        HeartbeatMissed = "larder_heartbeat_missed_total", "Heartbeats of this member that could not be written.";
        ClockSkew = "larder_clock_skew_total", "Times seen from elsewhere that were too far ahead of the own clock.";
        S3DamagedRead = "larder_s3_damaged_reads_total", "Reads of S3 objects that met damaged or missing bytes.";
        PrecommitFailed = "larder_precommit_failed_total", "Writes refused by a precommit hook, or as one could not be run.";
        PostcommitFailed = "larder_postcommit_failed_total", "Postcommit hooks that failed or were skipped; the object is written.";
        WebhookDelivered = "larder_webhooks_delivered_total", "Webhook notices that their receivers took.";
        WebhookRetried = "larder_webhooks_retried_total", "Deliveries of webhook notices that failed and are tried again.";
        WebhookGivenUp = "larder_webhooks_given_up_total", "Webhook notices that no receiver took within 24 hours.";
        Panicked = "larder_panicked_total", "Requests and tasks that ended in a panic.";
    }
}
