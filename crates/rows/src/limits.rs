//! The bounds of the product; an engine's or an edge's own bounds stand beside their code. Decoders read their bounds here or
//! take them as arguments.

/// Longest name of a bucket type, in bytes.
pub const TYPE_BYTES_MAX: usize = 1024;
/// Longest name of a bucket, in bytes.
pub const BUCKET_BYTES_MAX: usize = 12 * 1024;
/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 12 * 1024;
/// Most siblings of a key: a write of one more is refused, and a read shows no more.
pub const SIBLINGS_MAX: usize = 100;
/// Most entries in the version vector of a row or a context.
pub const VECTOR_ENTRIES_MAX: usize = 16;
/// Most own slots, counted with their keys, that a gateway remembers for reuse: about 10 MiB.
pub const SLOTS_REMEMBERED_MAX: usize = 200_000;
/// Longest encoded context of an object, in bytes, before base64.
pub const CONTEXT_BYTES_MAX: usize = 4096;
/// Most microseconds that a clock in a context may be ahead of the server's clock.
pub const CONTEXT_AHEAD_MICROS_MAX: u64 = 1_000_000;
/// Most bytes of metadata (header values, links, index terms, two for each entry) of one object.
pub const METADATA_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of index that the terms of one object take: field and value of each, or a third of its row where that is more.
pub const INDEX_BYTES_MAX: usize = 10 * 1024;
/// Bytes of an index row beside field, value and key, as a batch counts them.
pub const INDEX_ROW_BYTES: usize = 100;
/// Rows that a query reads from a shard at a time.
pub const INDEX_PAGE_ROWS: usize = 500;
/// Largest object body by default, in bytes.
pub const OBJECT_BYTES_MAX: u64 = 50 * 1024 * 1024;
/// Largest batch that an engine takes, in bytes of names and values.
pub const BATCH_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Shards of a key view in its first epoch.
pub const KEY_VIEW_SHARDS: u8 = 4;
/// Shards of the moved keys of a bucket. It is part of the format.
pub const MOVED_SHARDS: u8 = 16;
/// A new epoch of a bucket has this many times the shards of the one before it.
pub const EPOCH_GROWTH: u8 = 4;
/// Rows of a shard of an index or a key view above which its bucket opens an epoch, where large partitions are a burden.
pub const SHARD_ROWS_MAX: u64 = 1_000_000;
/// Bytes of a row of such a shard, with [`SHARD_ROW_OVERHEAD`], up to which the rows count; above it the bytes do.
pub const SHARD_ROW_BYTES: u64 = 64;
/// Bytes that an engine keeps with a row beside its name: stamp, lengths, flags.
pub const SHARD_ROW_OVERHEAD: u64 = 24;
/// Keys that a listing reads from the store at a time.
pub const LISTING_PAGE_ROWS: usize = 1000;

/// Rows that a listing reads from each shard of a view for a page of `max` lines. Keys spread evenly: a share of the page plus a margin is
/// nearly always enough.
#[must_use]
pub const fn shard_page_rows(max: usize) -> usize {
    let share = max.div_ceil(KEY_VIEW_SHARDS as usize);
    share + share / 8 + 16
}

/// Longest element of a set and longest name of a field, in bytes.
pub const DATATYPE_NAME_BYTES_MAX: usize = 8 * 1024;
/// Longest stored name of an element with the fields around it, in bytes.
pub const DATATYPE_ROW_NAME_BYTES_MAX: usize = 36 * 1024;
/// Largest value of a register, in bytes.
pub const REGISTER_BYTES_MAX: usize = 1024 * 1024;
/// Most maps around a value.
pub const DATATYPE_DEPTH_MAX: usize = 64;
/// Most edits in one update of a data type: elements, fields and removals at all depths.
pub const DATATYPE_EDITS_MAX: usize = 20_000;
/// Rows of a data type that a read takes from the store at a time.
pub const DATATYPE_PAGE_ROWS: usize = 1000;
/// Most rows in a page of a map, and in one read of a writer: each may be a register of the largest size.
pub const DATATYPE_MAP_PAGE_ROWS: usize = 64;
/// Rows that a removal takes one by one; a larger part is removed by a marker.
pub const DATATYPE_REMOVAL_ROWS_MAX: usize = 10_000;
/// Most bytes of row names that the removals of one batch name; further parts are hidden by a marker.
pub const DATATYPE_REMOVAL_BYTES_MAX: usize = 512 * 1024;
/// Most actors in the context of a data type, the newest clocks: over Cassandra each start of a gateway that wrote the key is one.
pub const DATATYPE_ACTORS_MAX: usize = 500;
/// Age at which a row of a data type is at a quorum or was never acknowledged, in microseconds.
pub const DATATYPE_SETTLED_MICROS: u64 = 2 * 24 * 60 * 60 * 1_000_000;
/// Longest encoded context of a data type, in bytes, before base64.
pub const DATATYPE_CONTEXT_BYTES_MAX: usize = 12 * 1024;
/// Most rows that the context of a data type names beyond its clocks.
pub const DATATYPE_DOTS_MAX: usize = 100;
/// Longest id of an increment that is counted once, in bytes.
pub const REQUEST_ID_BYTES_MAX: usize = 256;
/// Time in which a repeated request id is recognised, in microseconds.
pub const REQUEST_ID_MICROS: u64 = 24 * 60 * 60 * 1_000_000;
/// Most bytes of addresses that a step of a link walk reaches, and that its answer shows.
pub const LINK_WALK_BYTES_MAX: usize = 1024 * 1024;
/// Most steps of a link walk.
pub const LINK_STEPS_MAX: usize = 100;
/// Longest document of a MapReduce job, in bytes.
pub const JOB_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Most phases of a MapReduce job.
pub const JOB_PHASES_MAX: usize = 64;
/// Most bytes of values that the phases of a job hold at a time, and that a whole answer collects.
pub const JOB_HELD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of values that a map phase hands on at a time; one object may exceed it.
pub const JOB_CHUNK_BYTES: usize = 1024 * 1024;
/// Inputs of one call of a script.
pub const JOB_CHUNK_INPUTS: usize = 256;
/// Most MapReduce jobs of a gateway at a time.
pub const JOBS_MAX: usize = 64;
/// Most key filters of a job, counted at all depths.
pub const KEY_FILTERS_MAX: usize = 1000;
/// Most regular expressions among the key filters of a job.
pub const KEY_REGEXES_MAX: usize = 20;
/// Longest regular expression of a key filter or an index query, in bytes.
pub const REGEX_TEXT_MAX: usize = 4 * 1024;
/// Most bytes of memory of one compiled regular expression of a key filter, and of its cache.
pub const KEY_REGEX_BYTES_MAX: usize = 256 * 1024;
/// Most users and groups of Riak's security.
pub const ROLES_MAX: usize = 10_000;
/// Most groups, options, sources or grants of one of them.
pub const ROLE_LIST_MAX: usize = 1000;
/// Longest name of one of them, in bytes.
pub const ROLE_NAME_BYTES_MAX: usize = 256;
/// Longest option of one of them, and longest password, in bytes.
pub const ROLE_OPTION_BYTES_MAX: usize = 1024;
/// Longest key of an S3 object, in bytes.
pub const S3_KEY_BYTES_MAX: usize = 1024;
/// Most bytes of user metadata of an S3 object: names after the prefix, and values.
pub const S3_META_BYTES_MAX: usize = 2 * 1024;
/// Largest S3 object put in one piece, and largest part, in bytes.
pub const PART_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;
/// Smallest part of an upload except its last, in bytes.
pub const PART_BYTES_MIN: u64 = 5 * 1024 * 1024;
/// Most entries in one page of any S3 listing.
pub const S3_PAGE_MAX: usize = 1000;
/// Most objects in one request to delete several.
pub const DELETE_OBJECTS_MAX: usize = 1000;
/// Longest XML document of an S3 request, in bytes. Ten thousand parts with their checksums take 1.5 MiB.
pub const S3_DOCUMENT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest bucket policy, in bytes.
pub const POLICY_BYTES_MAX: usize = 20 * 1024;
/// Most policies for users and groups, beside the canned ones.
pub const IAM_POLICIES_MAX: usize = 1000;
/// Most groups of S3 users.
pub const IAM_GROUPS_MAX: usize = 1000;
/// Most policies attached to one S3 user or one group, as in IAM.
pub const ATTACHED_POLICIES_MAX: usize = 10;
/// Most groups of one S3 user, as in IAM.
pub const GROUPS_PER_USER_MAX: usize = 10;
/// Longest policy of a session, in bytes, as in STS.
pub const SESSION_POLICY_BYTES_MAX: usize = 2048;
/// Shortest and longest session, in seconds: a quarter of an hour, and a week as for links.
pub const SESSION_SECONDS_MIN: u64 = 900;
/// See [`SESSION_SECONDS_MIN`].
pub const SESSION_SECONDS_MAX: u64 = 7 * 24 * 60 * 60;
/// Most grants in an access control list.
pub const ACL_GRANTS_MAX: usize = 100;
/// Most CORS rules of a bucket.
pub const CORS_RULES_MAX: usize = 100;
/// Most lifecycle rules of a bucket.
pub const LIFECYCLE_RULES_MAX: usize = 1000;
/// Most tags of an object.
pub const OBJECT_TAGS_MAX: usize = 10;
/// Most tags of a bucket.
pub const BUCKET_TAGS_MAX: usize = 50;
/// Longest key of a tag, in characters.
pub const TAG_KEY_CHARS_MAX: usize = 128;
/// Longest value of a tag, in characters.
pub const TAG_VALUE_CHARS_MAX: usize = 256;
/// Lifetime of a head without a live value, in microseconds: its stamp orders the writes that follow.
pub const DELETED_HEAD_MICROS: u64 = 24 * 60 * 60 * 1_000_000;

// An engine key is a table byte, a length-prefixed partition and a row name; a view row escapes the key (at worst doubled).
const _: () = assert!(
    TYPE_BYTES_MAX + BUCKET_BYTES_MAX + 3 * KEY_BYTES_MAX + 256 < u16::MAX as usize,
    "the longest address must fit an engine key of 64 KiB"
);
const _: () = assert!(
    TYPE_BYTES_MAX + BUCKET_BYTES_MAX + KEY_BYTES_MAX + DATATYPE_ROW_NAME_BYTES_MAX + 64 < u16::MAX as usize,
    "the longest row name of a data type must fit an engine key of 64 KiB"
);
const _: () = assert!(
    TYPE_BYTES_MAX + BUCKET_BYTES_MAX + 2 * INDEX_BYTES_MAX + 2 * KEY_BYTES_MAX + 256 < u16::MAX as usize,
    "the longest index row must fit an engine key of 64 KiB"
);
