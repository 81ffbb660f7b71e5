//! Operations, outcomes and events that are counted: each is one table of names and help texts.
//!
//! The table of metrics: each family that `/metrics` can show has one row here, whoever measures it.
//!
//! Names follow Prometheus: base units, `_total` for counters, `_seconds` and `_bytes` for units. `/metrics` takes type and help
//! from the table, and so do the dashboard, the alerts and the manual.

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
    pub const fn get_operation(datatype: Datatype) -> Self {
        match datatype {
            Datatype::Counter => Self::CounterGet,
            Datatype::Set => Self::SetGet,
            Datatype::Gset => Self::GsetGet,
            Datatype::Map => Self::MapGet,
            Datatype::Hll => Self::HllGet,
        }
    }

    /// The update of a data type.
    pub const fn update_operation(datatype: Datatype) -> Self {
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
        WebhookRefused = "larder_webhooks_refused_total", "Writes refused because the outbox, their bucket or a receiver has no room for more notices.";
        WebhookRetried = "larder_webhooks_retried_total", "Deliveries of webhook notices that failed and are tried again.";
        WebhookGivenUp = "larder_webhooks_given_up_total", "Webhook notices that no receiver took within 24 hours.";
        Panicked = "larder_panicked_total", "Requests and tasks that ended in a panic.";
    }
}

/// The kind of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows, until the process ends.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// Counts of values in buckets.
    Histogram,
}

impl MetricKind {
    /// The word of the exposition format.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The unit of a family's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricUnit {
    /// A number of things.
    Count,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// 1 or 0.
    Truth,
}

impl MetricUnit {
    /// Its name in the manual.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
            Self::Truth => "0 or 1",
        }
    }
}

/// One family of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricFamily {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// The unit of its values.
    pub unit: MetricUnit,
    /// Names of the labels of its samples; a histogram has `le`, too.
    pub labels: &'static [&'static str],
    /// Its meaning, as one sentence.
    pub help: &'static str,
}

macro_rules! families {
    ($($id:ident = $name:literal, $kind:ident, $unit:ident, [$($label:literal),*], $help:literal;)+) => {
        $(#[doc = $help] pub(super) static $id: MetricFamily = MetricFamily {
            name: $name, kind: MetricKind::$kind, unit: MetricUnit::$unit, labels: &[$($label),*], help: $help,
        };)+

        static FAMILIES: &[&MetricFamily] = &[$(&$id),+];
    };
}

families! {
    INFO = "larder_info", Gauge, Truth, ["node", "version", "engine"], "The node, its version and its engine: always 1.";
    READY = "larder_ready", Gauge, Truth, [], "Whether requests are served.";
    MEMBERS = "larder_members", Gauge, Count, [], "Members that live, this one included.";
    CATALOGUE_VERSION = "larder_catalogue_version", Gauge, Count, [], "Version of the catalogue in use.";
    WEBHOOKS_WAITING = "larder_webhooks_waiting", Gauge, Count, [], "Webhook notices of this gateway that are not delivered yet.";
    WEBHOOKS_WAITING_MOST = "larder_webhooks_waiting_most", Gauge, Count, [], "Of these, the notices of the bucket that has the most.";
    REQUESTS = "larder_requests_total", Counter, Count, ["op", "outcome"], "Requests that ended, by operation and outcome.";
    REQUESTS_ACTIVE = "larder_requests_active", Gauge, Count, ["op"], "Requests being worked on.";
    REQUEST_SECONDS = "larder_request_seconds", Histogram, Seconds, ["op"], "Time of requests that were not refused.";
    REQUEST_RECENT_SECONDS = "larder_request_recent_seconds", Gauge, Seconds, ["op", "percentile"], "Percentiles of the time of requests over the last minute.";
    OBJECT_BYTES = "larder_object_bytes", Histogram, Bytes, ["way"], "Sizes of objects read, with all siblings, and of bodies written.";
    OBJECT_SIBLINGS = "larder_object_siblings", Histogram, Count, ["way"], "Siblings of objects read, and versions that a write replaced.";
    S3_REQUESTS = "larder_s3_requests_total", Counter, Count, ["op", "outcome"], "S3 requests that were answered, by operation and outcome.";
    S3_REQUESTS_ACTIVE = "larder_s3_requests_active", Gauge, Count, ["op"], "S3 requests under way, sending of answers included.";
    S3_REQUEST_SECONDS = "larder_s3_request_seconds", Histogram, Seconds, ["op"], "Time until the answer began, of S3 requests not refused.";
    S3_RECEIVED_BYTES = "larder_s3_received_bytes_total", Counter, Bytes, ["op"], "Bytes of bodies of S3 requests.";
    S3_SENT_BYTES = "larder_s3_sent_bytes_total", Counter, Bytes, ["op"], "Bytes of bodies of answers to S3 requests.";
    PROCESS_MEMORY = "larder_process_resident_memory_bytes", Gauge, Bytes, [], "Resident memory.";
    PROCESS_CPU = "larder_process_cpu_seconds_total", Counter, Seconds, [], "Processor time used.";
    PROCESS_UPTIME = "larder_process_uptime_seconds", Gauge, Seconds, [], "Time since the start.";
    PROCESS_THREADS = "larder_process_threads", Gauge, Count, [], "Threads.";
    PROCESS_OPEN_FDS = "larder_process_open_fds", Gauge, Count, [], "Open file descriptors.";
    PROCESS_MAX_FDS = "larder_process_max_fds", Gauge, Count, [], "Most file descriptors allowed.";
    ENGINE_GROUPS = "larder_engine_groups_total", Counter, Count, [], "Groups of writes committed since the start.";
    ENGINE_BATCHES = "larder_engine_batches_total", Counter, Count, [], "Writes in these groups.";
    ENGINE_SYNCS = "larder_engine_syncs_total", Counter, Count, [], "Syncs of the journal since the start.";
    ENGINE_QUEUED = "larder_engine_queued", Gauge, Count, [], "Writes waiting for the committer.";
    ENGINE_DISK_BYTES = "larder_engine_disk_bytes", Gauge, Bytes, [], "Bytes of tables and journals on disk.";
    ENGINE_LIVE_BYTES = "larder_engine_live_bytes", Gauge, Bytes, [], "Of these, bytes of rows that a read may answer, at least.";
    ENGINE_DEAD_BYTES = "larder_engine_dead_bytes", Gauge, Bytes, [], "Of these, bytes of removed and replaced rows, at most; they come back while the server rests.";
    ENGINE_WRITABLE = "larder_engine_writable", Gauge, Truth, [], "Whether writes are taken.";
    DISK_FREE_BYTES = "larder_disk_free_bytes", Gauge, Bytes, [], "Bytes free on the disk of the data directory.";
    DISK_HELD_BYTES = "larder_disk_held_bytes", Gauge, Bytes, [], "Free bytes promised to writes under way.";
    DISK_FLOOR_BYTES = "larder_disk_floor_bytes", Gauge, Bytes, ["purpose"], "Bytes that a write for this purpose leaves free.";
    DISK_REFUSED = "larder_disk_refused_total", Counter, Count, ["purpose"], "Writes refused since the start because the disk is full.";
    ENGINE_MEMTABLE_BYTES = "larder_engine_memtable_bytes", Gauge, Bytes, [], "Memory of rows that are in no table yet.";
    ENGINE_RETIRED_BYTES = "larder_engine_retired_bytes", Gauge, Bytes, [], "Memory of flushed rows that a reader may still use.";
    ENGINE_TABLE_INDEX_BYTES = "larder_engine_table_index_bytes", Gauge, Bytes, [], "Memory of indexes and filters of tables.";
    ENGINE_CACHE_BYTES = "larder_engine_cache_bytes", Gauge, Bytes, ["of"], "Memory of the engine's caches.";
    CASSANDRA_NODES_UP = "larder_cassandra_nodes_up", Gauge, Count, [], "Nodes of the local datacenter that are connected and answer.";
    CASSANDRA_SYNC = "larder_cassandra_sync_before_answer", Gauge, Truth, [], "Whether nodes sync their commit log before they answer.";
    CASSANDRA_REQUESTS = "larder_cassandra_requests_total", Counter, Count, [], "Requests sent to nodes.";
    CASSANDRA_RETRIES = "larder_cassandra_retries_total", Counter, Count, [], "Requests sent because another node had not answered them.";
    CASSANDRA_CAS_IN_DOUBT = "larder_cassandra_cas_in_doubt_total", Counter, Count, [], "Compare-and-sets whose outcome was looked up.";
    CASSANDRA_CAS_FOUND = "larder_cassandra_cas_found_applied_total", Counter, Count, [], "Compare-and-sets in doubt that had been applied.";
    CASSANDRA_CAS_REPEATED = "larder_cassandra_cas_repeated_total", Counter, Count, [], "Compare-and-sets in doubt that were sent again.";
    CASSANDRA_HEADS = "larder_cassandra_heads_looked_up_total", Counter, Count, [], "Heads read before a compare-and-set.";
    CASSANDRA_BISECTED = "larder_cassandra_ranges_bisected_total", Counter, Count, [], "Reads bisected because replicas gave up.";
    CASSANDRA_SPLIT = "larder_cassandra_batches_split_total", Counter, Count, [], "Batches split: a logged one is small.";
    CASSANDRA_DAMAGED = "larder_cassandra_damaged_blocks_total", Counter, Count, [], "Blocks of bodies missing or damaged when read.";
    STORE_CALLS = "larder_store_calls_total", Counter, Count, ["verb"], "Calls to the store begun since the start.";
    STORE_ERRORS = "larder_store_errors_total", Counter, Count, ["verb"], "Calls to the store that were answered with an error.";
    STORE_SECONDS = "larder_store_seconds_total", Counter, Seconds, ["verb"], "Time that answered calls to the store took; of reads at once one in 16 is measured, for all.";
    MEMORY_HELD_BYTES = "larder_memory_held_bytes", Gauge, Bytes, ["draws"], "Bytes of memory that clients' connections and requests hold, by size of what was drawn.";
    MEMORY_MAX_BYTES = "larder_memory_max_bytes", Gauge, Bytes, ["draws"], "Bytes of memory that they may hold.";
    MEMORY_WAITING = "larder_memory_waiting", Gauge, Count, [], "Requests that wait for memory.";
    MEMORY_REFUSED = "larder_memory_refused_total", Counter, Count, [], "Requests and connections refused for want of memory.";
    TLS_CERTIFICATE_ENDS = "larder_tls_certificate_ends_seconds", Gauge, Seconds, [], "When the first certificate of the listeners ends, in seconds since 1970.";
    MOVE_PHASE = "larder_move_phase", Gauge, Truth, ["phase"], "Whether the move that this server carries out is in this phase; without a move none is shown.";
    MOVE_KEYS = "larder_move_keys_total", Counter, Count, ["fate"], "Keys and versions of the move by their fate: looked at, copied, deleted here, kept as clients here wrote them, concurrent, older, brought as a request asked for them, fetched and taken over by the Riak of the way back.";
    MOVE_COPIED_BYTES = "larder_move_copied_bytes_total", Counter, Bytes, [], "Bytes of the values that the move copied.";
    MOVE_REQUESTS = "larder_move_requests_total", Counter, Count, [], "Requests of the move to its source.";
    MOVE_LAG_SECONDS = "larder_move_lag_seconds", Gauge, Seconds, [], "Every change at the source of the move that is older is here; none is shown during the first pass.";
    MOVE_PROGRESSED_SECONDS = "larder_move_progressed_seconds", Gauge, Seconds, [], "When the move last got on, in seconds since 1970.";
    MOVE_WAITS = "larder_move_waits", Gauge, Truth, [], "Whether the move waits after a failure, to try again.";
    MOVE_SET_ASIDE = "larder_move_set_aside", Gauge, Count, [], "Keys that the move could not copy.";
    MOVE_DIFFERS = "larder_move_differs", Gauge, Count, [], "Keys that differed at the last verification of the move.";
    MOVE_GAPS_OPEN = "larder_move_gaps_open", Gauge, Count, [], "Losses of a replication queue of the source that no pass closed yet.";
    AUDIT_LOST = "larder_audit_lost_total", Counter, Count, [], "Events that the audit log could not take since the start.";
}

/// All families: the table, then the events.
pub fn metric_families() -> impl Iterator<Item = MetricFamily> {
    FAMILIES.iter().map(|family| **family).chain(Event::ALL.iter().map(|event| event_family(*event)))
}

/// The family of an event.
pub(super) const fn event_family(event: Event) -> MetricFamily {
    let (kind, unit) = (MetricKind::Counter, MetricUnit::Count);
    MetricFamily { name: event.name(), kind, unit, labels: &[], help: event.help() }
}

/// The family of a sample, whose name may carry labels.
#[must_use]
pub fn sample_family(sample: &str) -> Option<MetricFamily> {
    let name = sample.split('{').next().unwrap_or_default();
    metric_families().find(|family| family.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_follow_the_conventions_of_prometheus() {
        let mut names = BTreeSet::new();
        for family in metric_families() {
            let name = family.name;
            assert!(names.insert(name), "{name} has two rows");
            assert!(
                name.starts_with("larder_")
                    && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'),
                "{name}"
            );
            assert_eq!(name.ends_with("_total"), family.kind == MetricKind::Counter, "{name}");
            let bare = name.trim_end_matches("_total");
            assert_eq!(bare.ends_with("_seconds"), family.unit == MetricUnit::Seconds, "{name}");
            assert_eq!(bare.ends_with("_bytes"), family.unit == MetricUnit::Bytes, "{name}");
            for reserved in ["_count", "_sum", "_bucket", "_milliseconds", "_ms", "_kb"] {
                assert!(!bare.ends_with(reserved), "{name}");
            }
            assert!(family.help.ends_with('.') && !family.help.contains(['\n', '\\', '|']), "{name}");
            assert!(!family.labels.contains(&"le"), "{name}");
        }
    }
}
