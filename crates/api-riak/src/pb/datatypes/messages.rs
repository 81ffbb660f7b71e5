//! The messages of data types and of the counters of Riak 1.4, with Riak's names and field numbers (Riak KV protocol buffers
//! reference §5, §6). Answers with values are written piece by piece, by [`super::pb_value`].

use bytes::Bytes;
use prost::Message;

/// The name of a field of a map.
#[derive(Clone, PartialEq, Message)]
pub(in crate::pb) struct MapField {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) name: Option<Bytes>,
    /// 1 counter, 2 set, 3 register, 4 flag, 5 map.
    #[prost(int32, optional, tag = "2")]
    pub(super) r#type: Option<i32>,
}

/// Code 80.
#[derive(Clone, PartialEq, Message)]
pub(in crate::pb) struct DtFetchReq {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) bucket: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) key: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) r#type: Option<Bytes>,
    #[prost(uint32, optional, tag = "4")]
    pub(super) r: Option<u32>,
    #[prost(uint32, optional, tag = "5")]
    pub(super) pr: Option<u32>,
    #[prost(bool, optional, tag = "6")]
    pub(super) basic_quorum: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    pub(super) notfound_ok: Option<bool>,
    #[prost(uint32, optional, tag = "8")]
    pub(super) timeout: Option<u32>,
    #[prost(bool, optional, tag = "9")]
    pub(super) sloppy_quorum: Option<bool>,
    #[prost(uint32, optional, tag = "10")]
    pub(super) n_val: Option<u32>,
    /// Absent is true.
    #[prost(bool, optional, tag = "11")]
    pub(super) include_context: Option<bool>,
    #[prost(uint32, optional, tag = "12")]
    pub(super) node_confirms: Option<u32>,
}

/// The update of a counter.
#[derive(Clone, PartialEq, Message)]
pub(in crate::pb) struct CounterOp {
    /// Absent is 1.
    #[prost(sint64, optional, tag = "1")]
    pub(super) increment: Option<i64>,
}

/// The update of a set: the additions first.
#[derive(Clone, PartialEq, Message)]
pub(in crate::pb) struct SetOp {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) adds: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) removes: Vec<Bytes>,
}

/// The update of a set that only grows.
#[derive(Clone, PartialEq, Message)]
pub(in crate::pb) struct GSetOp {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) adds: Vec<Bytes>,
}

/// The update of a HyperLogLog.
#[derive(Clone, PartialEq, Message)]
pub(in crate::pb) struct HllOp {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) adds: Vec<Bytes>,
}

/// The update of a map: the removals first.
#[derive(Clone, PartialEq, Message)]
pub(in crate::pb) struct MapOp {
    #[prost(message, repeated, tag = "1")]
    pub(super) removes: Vec<MapField>,
    #[prost(message, repeated, tag = "2")]
    pub(super) updates: Vec<MapUpdate>,
}

/// The update of a field: its type says which operation must be there.
#[derive(Clone, PartialEq, Message)]
pub(in crate::pb) struct MapUpdate {
    #[prost(message, optional, tag = "1")]
    pub(super) field: Option<MapField>,
    #[prost(message, optional, tag = "2")]
    pub(super) counter_op: Option<CounterOp>,
    #[prost(message, optional, tag = "3")]
    pub(super) set_op: Option<SetOp>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub(super) register_op: Option<Bytes>,
    /// 1 enables, 2 disables.
    #[prost(int32, optional, tag = "5")]
    pub(super) flag_op: Option<i32>,
    #[prost(message, optional, tag = "6")]
    pub(super) map_op: Option<MapOp>,
}

/// The operation of an update.
#[derive(Clone, PartialEq, Message)]
pub(in crate::pb) struct DtOp {
    #[prost(message, optional, tag = "1")]
    pub(super) counter_op: Option<CounterOp>,
    #[prost(message, optional, tag = "2")]
    pub(super) set_op: Option<SetOp>,
    #[prost(message, optional, tag = "3")]
    pub(super) map_op: Option<MapOp>,
    #[prost(message, optional, tag = "4")]
    pub(super) hll_op: Option<HllOp>,
    #[prost(message, optional, tag = "5")]
    pub(super) gset_op: Option<GSetOp>,
}

/// Code 82.
#[derive(Clone, PartialEq, Message)]
pub(in crate::pb) struct DtUpdateReq {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) bucket: Option<Bytes>,
    /// Absent: the server makes one.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) key: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) r#type: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub(super) context: Option<Bytes>,
    #[prost(message, optional, tag = "5")]
    pub(super) op: Option<DtOp>,
    #[prost(uint32, optional, tag = "6")]
    pub(super) w: Option<u32>,
    #[prost(uint32, optional, tag = "7")]
    pub(super) dw: Option<u32>,
    #[prost(uint32, optional, tag = "8")]
    pub(super) pw: Option<u32>,
    #[prost(bool, optional, tag = "9")]
    pub(super) return_body: Option<bool>,
    #[prost(uint32, optional, tag = "10")]
    pub(super) timeout: Option<u32>,
    #[prost(bool, optional, tag = "11")]
    pub(super) sloppy_quorum: Option<bool>,
    #[prost(uint32, optional, tag = "12")]
    pub(super) n_val: Option<u32>,
    /// Absent is true.
    #[prost(bool, optional, tag = "13")]
    pub(super) include_context: Option<bool>,
    #[prost(uint32, optional, tag = "14")]
    pub(super) node_confirms: Option<u32>,
    /// Outside of Riak's numbers: an increment with an id is counted once, however often it is sent.
    #[prost(bytes = "bytes", optional, tag = "1000")]
    pub(super) request_id: Option<Bytes>,
}

/// Code 50.
#[derive(Clone, PartialEq, Message)]
pub(in crate::pb) struct RpbCounterUpdateReq {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) bucket: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) key: Option<Bytes>,
    #[prost(sint64, optional, tag = "3")]
    pub(super) amount: Option<i64>,
    #[prost(uint32, optional, tag = "4")]
    pub(super) w: Option<u32>,
    #[prost(uint32, optional, tag = "5")]
    pub(super) dw: Option<u32>,
    #[prost(uint32, optional, tag = "6")]
    pub(super) pw: Option<u32>,
    #[prost(bool, optional, tag = "7")]
    pub(super) returnvalue: Option<bool>,
    #[prost(uint32, optional, tag = "8")]
    pub(super) node_confirms: Option<u32>,
    /// Outside of Riak's numbers: an increment with an id is counted once, however often it is sent.
    #[prost(bytes = "bytes", optional, tag = "1000")]
    pub(super) request_id: Option<Bytes>,
}

/// Code 52.
#[derive(Clone, PartialEq, Message)]
pub(in crate::pb) struct RpbCounterGetReq {
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
    #[prost(uint32, optional, tag = "7")]
    pub(super) node_confirms: Option<u32>,
}

/// Codes 51 and 53.
#[derive(Clone, PartialEq, Message)]
pub(in crate::pb) struct RpbCounterValueResp {
    #[prost(sint64, optional, tag = "1")]
    pub(super) value: Option<i64>,
}
