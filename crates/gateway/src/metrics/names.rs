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
        ReadDowngraded = "larder_reads_stepped_down_total", "Reads asked of fewer replicas again, as others were down.";
        WriteDowngraded = "larder_writes_stepped_down_total", "Writes sent to fewer replicas again, as others were down.";
        WriteAtAny = "larder_writes_at_any_total", "Writes of which no replica was up: one node keeps them until one is.";
        ContextRefused = "larder_context_refused_total", "Writes refused for a causal context that is not ours.";
        BlobWritten = "larder_blob_written_total", "Large bodies written.";
        BlobRemoved = "larder_blob_removed_total", "Large bodies removed as their object went.";
        BlobSwept = "larder_blob_swept_total", "Large bodies without an owner, removed by the sweeper.";
        CatalogueRefreshed = "larder_catalogue_refreshed_total", "Newer catalogues of types and properties taken over.";
        HeartbeatMissed = "larder_heartbeat_missed_total", "Heartbeats of this member that could not be written.";
        ClockSkew = "larder_clock_skew_total", "Times seen from elsewhere that were too far ahead of the own clock.";
        DamageMet = "larder_s3_damaged_reads_total", "Reads of S3 objects that met damaged or missing bytes.";
        Panicked = "larder_panicked_total", "Requests and tasks that ended in a panic.";
    }
}

/// A measured quantity with a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Series {
    /// Microseconds an operation took.
    Time(KvOp),
    /// Bytes of an object read.
    ReadBytes,
    /// Siblings of an object read.
    ReadSiblings,
    /// Bytes of an object written.
    WriteBytes,
    /// Siblings of an object after a write.
    WriteSiblings,
}

impl Series {
    /// Its index among all.
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Time(op) => op as usize,
            Self::ReadBytes => KvOp::ALL.len(),
            Self::ReadSiblings => KvOp::ALL.len() + 1,
            Self::WriteBytes => KvOp::ALL.len() + 2,
            Self::WriteSiblings => KvOp::ALL.len() + 3,
        }
    }

    /// All series, each at its index.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let objects = [Self::ReadBytes, Self::ReadSiblings, Self::WriteBytes, Self::WriteSiblings];
        KvOp::ALL.iter().map(|op| Self::Time(*op)).chain(objects)
    }

    /// Upper bounds of its buckets, in its own unit; one more bucket is above the last.
    pub(super) const fn bounds(self) -> &'static [u64] {
        match self {
            Self::Time(_) => TIME_US_BOUNDS,
            Self::ReadBytes | Self::WriteBytes => BYTES_BOUNDS,
            Self::ReadSiblings | Self::WriteSiblings => SIBLINGS_BOUNDS,
        }
    }
}

/// Upper bounds of times in microseconds.
pub(super) const TIME_US_BOUNDS: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];
const BYTES_BOUNDS: &[u64] =
    &[64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30];
const SIBLINGS_BOUNDS: &[u64] = &[1, 2, 3, 5, 10, 25, 50, 100];

/// Most buckets of a series, the open one included.
pub(super) const BUCKETS_MAX: usize = 19;
const _: () = assert!(TIME_US_BOUNDS.len() < BUCKETS_MAX, "one more bucket for values above the last bound");
const _: () = assert!(BYTES_BOUNDS.len() < BUCKETS_MAX, "one more bucket for values above the last bound");
