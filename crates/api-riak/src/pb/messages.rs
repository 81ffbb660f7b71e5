//! The messages of Riak's clients and server, with Riak's names and field numbers (Riak KV protocol buffers reference §4, §5).
//!
//! Every field is optional here, also those that Riak requires: a message without one gets an answer that names it. Byte fields
//! share the memory of their frame.

use bytes::Bytes;
use prost::Message;

/// Code 0.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbErrorResp {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub(super) errmsg: Bytes,
    /// Riak's server always sends 0.
    #[prost(uint32, required, tag = "2")]
    pub(super) errcode: u32,
}

/// Codes 4 (response) and 5 (request).
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbClientId {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) client_id: Option<Bytes>,
}

/// Code 8.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbGetServerInfoResp {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) node: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) server_version: Option<Bytes>,
}

/// A name and a value.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbPair {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) key: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) value: Option<Bytes>,
}

/// A link to another object.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbLink {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) bucket: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) key: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) tag: Option<Bytes>,
}

/// One value with its metadata.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbContent {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) value: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) content_type: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) charset: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub(super) content_encoding: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub(super) vtag: Option<Bytes>,
    #[prost(message, repeated, tag = "6")]
    pub(super) links: Vec<RpbLink>,
    #[prost(uint32, optional, tag = "7")]
    pub(super) last_mod: Option<u32>,
    #[prost(uint32, optional, tag = "8")]
    pub(super) last_mod_usecs: Option<u32>,
    #[prost(message, repeated, tag = "9")]
    pub(super) usermeta: Vec<RpbPair>,
    #[prost(message, repeated, tag = "10")]
    pub(super) indexes: Vec<RpbPair>,
    #[prost(bool, optional, tag = "11")]
    pub(super) deleted: Option<bool>,
}

/// Makes the client a user.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbAuthReq {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) user: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) password: Option<Bytes>,
}

/// Code 9.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbGetReq {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) bucket: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) key: Option<Bytes>,
    #[prost(uint32, optional, tag = "3")]
    pub(super) r: Option<u32>,
    #[prost(uint32, optional, tag = "4")]
    pub(super) pr: Option<u32>,
    #[prost(bool, optional, tag = "5")]
    pub(super) basic_quorum: Option<bool>,
    #[prost(bool, optional, tag = "6")]
    pub(super) notfound_ok: Option<bool>,
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub(super) if_modified: Option<Bytes>,
    #[prost(bool, optional, tag = "8")]
    pub(super) head: Option<bool>,
    #[prost(bool, optional, tag = "9")]
    pub(super) deletedvclock: Option<bool>,
    #[prost(uint32, optional, tag = "10")]
    pub(super) timeout: Option<u32>,
    #[prost(bool, optional, tag = "11")]
    pub(super) sloppy_quorum: Option<bool>,
    #[prost(uint32, optional, tag = "12")]
    pub(super) n_val: Option<u32>,
    #[prost(bytes = "bytes", optional, tag = "13")]
    pub(super) r#type: Option<Bytes>,
    #[prost(uint32, optional, tag = "14")]
    pub(super) node_confirms: Option<u32>,
}

/// Code 10, of a get whose context is current.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbUnchangedResp {
    #[prost(bool, optional, tag = "3")]
    pub(super) unchanged: Option<bool>,
}

/// Code 11.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbPutReq {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) bucket: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) key: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) vclock: Option<Bytes>,
    #[prost(message, optional, tag = "4")]
    pub(super) content: Option<RpbContent>,
    #[prost(uint32, optional, tag = "5")]
    pub(super) w: Option<u32>,
    #[prost(uint32, optional, tag = "6")]
    pub(super) dw: Option<u32>,
    #[prost(bool, optional, tag = "7")]
    pub(super) return_body: Option<bool>,
    #[prost(uint32, optional, tag = "8")]
    pub(super) pw: Option<u32>,
    #[prost(bool, optional, tag = "9")]
    pub(super) if_not_modified: Option<bool>,
    #[prost(bool, optional, tag = "10")]
    pub(super) if_none_match: Option<bool>,
    #[prost(bool, optional, tag = "11")]
    pub(super) return_head: Option<bool>,
    #[prost(uint32, optional, tag = "12")]
    pub(super) timeout: Option<u32>,
    #[prost(bool, optional, tag = "13")]
    pub(super) asis: Option<bool>,
    #[prost(bool, optional, tag = "14")]
    pub(super) sloppy_quorum: Option<bool>,
    #[prost(uint32, optional, tag = "15")]
    pub(super) n_val: Option<u32>,
    #[prost(bytes = "bytes", optional, tag = "16")]
    pub(super) r#type: Option<Bytes>,
    #[prost(uint32, optional, tag = "17")]
    pub(super) node_confirms: Option<u32>,
}

/// Code 13.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbDelReq {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) bucket: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) key: Option<Bytes>,
    #[prost(uint32, optional, tag = "3")]
    pub(super) rw: Option<u32>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub(super) vclock: Option<Bytes>,
    #[prost(uint32, optional, tag = "5")]
    pub(super) r: Option<u32>,
    #[prost(uint32, optional, tag = "6")]
    pub(super) w: Option<u32>,
    #[prost(uint32, optional, tag = "7")]
    pub(super) pr: Option<u32>,
    #[prost(uint32, optional, tag = "8")]
    pub(super) pw: Option<u32>,
    #[prost(uint32, optional, tag = "9")]
    pub(super) dw: Option<u32>,
    #[prost(uint32, optional, tag = "10")]
    pub(super) timeout: Option<u32>,
    #[prost(bool, optional, tag = "11")]
    pub(super) sloppy_quorum: Option<bool>,
    #[prost(uint32, optional, tag = "12")]
    pub(super) n_val: Option<u32>,
    #[prost(bytes = "bytes", optional, tag = "13")]
    pub(super) r#type: Option<Bytes>,
}

/// Code 15.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbListBucketsReq {
    #[prost(uint32, optional, tag = "1")]
    pub(super) timeout: Option<u32>,
    #[prost(bool, optional, tag = "2")]
    pub(super) stream: Option<bool>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) r#type: Option<Bytes>,
}

/// Code 17.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbListKeysReq {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) bucket: Option<Bytes>,
    #[prost(uint32, optional, tag = "2")]
    pub(super) timeout: Option<u32>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) r#type: Option<Bytes>,
}

/// Code 23.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbMapRedReq {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) request: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) content_type: Option<Bytes>,
}

/// Code 24.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbMapRedResp {
    #[prost(uint32, optional, tag = "1")]
    pub(super) phase: Option<u32>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) response: Option<Bytes>,
    #[prost(bool, optional, tag = "3")]
    pub(super) done: Option<bool>,
}

/// Codes 16 (buckets) and 18 (keys), which have one form.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbListResp {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) names: Vec<Bytes>,
    #[prost(bool, optional, tag = "2")]
    pub(super) done: Option<bool>,
}

/// Code 25.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbIndexReq {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) bucket: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) index: Option<Bytes>,
    /// 0: one value; 1: a range.
    #[prost(int32, optional, tag = "3")]
    pub(super) qtype: Option<i32>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub(super) key: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub(super) range_min: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub(super) range_max: Option<Bytes>,
    #[prost(bool, optional, tag = "7")]
    pub(super) return_terms: Option<bool>,
    #[prost(bool, optional, tag = "8")]
    pub(super) stream: Option<bool>,
    #[prost(uint32, optional, tag = "9")]
    pub(super) max_results: Option<u32>,
    #[prost(bytes = "bytes", optional, tag = "10")]
    pub(super) continuation: Option<Bytes>,
    #[prost(uint32, optional, tag = "11")]
    pub(super) timeout: Option<u32>,
    #[prost(bytes = "bytes", optional, tag = "12")]
    pub(super) r#type: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "13")]
    pub(super) term_regex: Option<Bytes>,
    /// Results are always sorted.
    #[prost(bool, optional, tag = "14")]
    pub(super) pagination_sort: Option<bool>,
}

/// Code 40.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbCSBucketReq {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) bucket: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) start_key: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) end_key: Option<Bytes>,
    /// Whether the first key is part of the range; so it is where nothing is said.
    #[prost(bool, optional, tag = "4")]
    pub(super) start_incl: Option<bool>,
    /// Whether the last key is.
    #[prost(bool, optional, tag = "5")]
    pub(super) end_incl: Option<bool>,
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub(super) continuation: Option<Bytes>,
    #[prost(uint32, optional, tag = "7")]
    pub(super) max_results: Option<u32>,
    #[prost(uint32, optional, tag = "8")]
    pub(super) timeout: Option<u32>,
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub(super) r#type: Option<Bytes>,
}

/// Code 41 without objects, which are written field by field.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbCSBucketEnd {
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) continuation: Option<Bytes>,
    #[prost(bool, optional, tag = "3")]
    pub(super) done: Option<bool>,
}

/// Code 26.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbIndexResp {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) keys: Vec<Bytes>,
    /// Terms as keys, and keys of objects as values.
    #[prost(message, repeated, tag = "2")]
    pub(super) results: Vec<RpbPair>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) continuation: Option<Bytes>,
    #[prost(bool, optional, tag = "4")]
    pub(super) done: Option<bool>,
}

/// Codes 19 (get) and 29 (reset), which have one form.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbBucketReq {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) bucket: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) r#type: Option<Bytes>,
}

/// Code 20.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbGetBucketResp {
    #[prost(message, optional, tag = "1")]
    pub(super) props: Option<RpbBucketProps>,
}

/// Code 21.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbSetBucketReq {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) bucket: Option<Bytes>,
    #[prost(message, optional, tag = "2")]
    pub(super) props: Option<RpbBucketProps>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) r#type: Option<Bytes>,
}

/// Code 31.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbGetBucketTypeReq {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) r#type: Option<Bytes>,
}

/// Code 32.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbSetBucketTypeReq {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) r#type: Option<Bytes>,
    #[prost(message, optional, tag = "2")]
    pub(super) props: Option<RpbBucketProps>,
}

/// An Erlang function.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbModFun {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) module: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) function: Option<Bytes>,
}

/// A commit hook: an Erlang function or the name of a JavaScript one.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbCommitHook {
    #[prost(message, optional, tag = "1")]
    pub(super) modfun: Option<RpbModFun>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) name: Option<Bytes>,
}

/// Properties of a bucket or a type.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbBucketProps {
    #[prost(uint32, optional, tag = "1")]
    pub(super) n_val: Option<u32>,
    #[prost(bool, optional, tag = "2")]
    pub(super) allow_mult: Option<bool>,
    #[prost(bool, optional, tag = "3")]
    pub(super) last_write_wins: Option<bool>,
    #[prost(message, repeated, tag = "4")]
    pub(super) precommit: Vec<RpbCommitHook>,
    /// Whether `precommit` counts: only so an empty list can be set.
    #[prost(bool, optional, tag = "5")]
    pub(super) has_precommit: Option<bool>,
    #[prost(message, repeated, tag = "6")]
    pub(super) postcommit: Vec<RpbCommitHook>,
    #[prost(bool, optional, tag = "7")]
    pub(super) has_postcommit: Option<bool>,
    #[prost(message, optional, tag = "8")]
    pub(super) chash_keyfun: Option<RpbModFun>,
    #[prost(message, optional, tag = "9")]
    pub(super) linkfun: Option<RpbModFun>,
    #[prost(uint32, optional, tag = "10")]
    pub(super) old_vclock: Option<u32>,
    #[prost(uint32, optional, tag = "11")]
    pub(super) young_vclock: Option<u32>,
    #[prost(uint32, optional, tag = "12")]
    pub(super) big_vclock: Option<u32>,
    #[prost(uint32, optional, tag = "13")]
    pub(super) small_vclock: Option<u32>,
    #[prost(uint32, optional, tag = "14")]
    pub(super) pr: Option<u32>,
    #[prost(uint32, optional, tag = "15")]
    pub(super) r: Option<u32>,
    #[prost(uint32, optional, tag = "16")]
    pub(super) w: Option<u32>,
    #[prost(uint32, optional, tag = "17")]
    pub(super) pw: Option<u32>,
    #[prost(uint32, optional, tag = "18")]
    pub(super) dw: Option<u32>,
    #[prost(uint32, optional, tag = "19")]
    pub(super) rw: Option<u32>,
    #[prost(bool, optional, tag = "20")]
    pub(super) basic_quorum: Option<bool>,
    #[prost(bool, optional, tag = "21")]
    pub(super) notfound_ok: Option<bool>,
    #[prost(bytes = "bytes", optional, tag = "22")]
    pub(super) backend: Option<Bytes>,
    #[prost(bool, optional, tag = "23")]
    pub(super) search: Option<bool>,
    /// 0 false, 1 realtime, 2 fullsync, 3 true.
    #[prost(uint32, optional, tag = "24")]
    pub(super) repl: Option<u32>,
    #[prost(bytes = "bytes", optional, tag = "25")]
    pub(super) search_index: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "26")]
    pub(super) datatype: Option<Bytes>,
    #[prost(bool, optional, tag = "27")]
    pub(super) consistent: Option<bool>,
    #[prost(bool, optional, tag = "28")]
    pub(super) write_once: Option<bool>,
    #[prost(uint32, optional, tag = "29")]
    pub(super) hll_precision: Option<u32>,
}

/// Code 33.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbGetBucketKeyPreflistReq {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) bucket: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) key: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) r#type: Option<Bytes>,
}

/// Code 34.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbGetBucketKeyPreflistResp {
    #[prost(message, repeated, tag = "1")]
    pub(super) preflist: Vec<RpbBucketKeyPreflistItem>,
}

/// One replica of a key.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpbBucketKeyPreflistItem {
    #[prost(int64, required, tag = "1")]
    pub(super) partition: i64,
    #[prost(bytes = "bytes", required, tag = "2")]
    pub(super) node: Bytes,
    #[prost(bool, required, tag = "3")]
    pub(super) primary: bool,
}
