//! Operations, outcomes and events that are counted: each is one table of names and help texts.

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
        Props = "props", "Read or change of a bucket's properties.";
        Types = "types", "Read or change of bucket types.";
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
        HeartbeatMissed = "larder_heartbeat_missed_total", "Heartbeats of this member that could not be written.";
        ClockSkew = "larder_clock_skew_total", "Times seen from elsewhere that were too far ahead of the own clock.";
        S3DamagedRead = "larder_s3_damaged_reads_total", "Reads of S3 objects that met damaged or missing bytes.";
        Panicked = "larder_panicked_total", "Requests and tasks that ended in a panic.";
    }
}
