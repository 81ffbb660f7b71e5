//! The forms of a Riak source, decoded without IO.
//!
//! ```text
//! queue element ──> Riak object ──> siblings: value, metadata, dot        X-Riak-Vclock ──> vector clock
//!   CRC, zlib         clock            └──> body of a data type                              (base64, raw deflate, term)
//!                       └──────────────────────┴──> Erlang terms
//! ```
//! All of it comes from another machine: each count and length is compared with the bytes that are there before anything is
//! allocated for it, and compressed bytes are inflated up to a bound.

mod element_object;
mod erlang_term;
mod json_documents;
mod key_clocks;
mod moved_object;
mod multipart_parts;
mod queue_element;
mod queue_state;
mod queue_step;
mod queue_watch;
mod riak_bytes;
mod riak_datatype;
mod riak_object;
mod riak_state;
mod source_address;
mod source_headers;
mod source_order;
mod source_props;
mod source_users;
mod source_value;
mod vector_clock;

pub use erlang_term::ErlangTerm;
pub(crate) use json_documents::ESCAPED;
pub use json_documents::{JsonDocuments, ListingError, listed_name};
pub use key_clocks::KeyClocks;
pub use moved_object::{MovedObject, SourceVersionName};
pub(crate) use queue_element::HandedOut;
pub use queue_element::{ElementKey, QueueAnswer, QueueElement, ReplicatedChange};
pub use queue_state::{QueueTotals, members_up, parse_queue_name, queue_length};
pub use queue_step::QueueStep;
pub use queue_watch::{QueueLoss, QueueWatch};
pub use riak_bytes::RiakFormError;
pub use riak_datatype::{
    RiakClock, RiakDatatype, RiakField, RiakFieldKind, RiakFlag, RiakMap, RiakMapCounter, RiakPnCounter, RiakRegister,
    RiakSet,
};
pub use riak_object::{RiakObject, RiakSibling};
pub use source_address::{RiakAddress, S3Address, SourceAddress};
pub use source_headers::{SourceHeaders, ValueError};
pub use source_order::SourceOrder;
pub use source_props::{MovedProps, PropsNote};
pub use source_users::{SourceGroup, SourceKey, SourceUser, SourceUsers};
pub use source_value::{SourceObject, SourceValue};
pub use vector_clock::{ClockOrder, VectorClock, VectorClockEntry};
