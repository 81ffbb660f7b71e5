//! Rows: what a store keeps, as all its users name it.
//!
//! Everything here is pure: no IO, no async, no clock, no randomness. No product's rule is here, so that an engine does not
//! depend on one.
//!
//! ```text
//! address   type / bucket / key           keyspace   every table and partition
//! row       a row, and changes of rows    codec      fields, one after another
//! content   one key-value value with its metadata    ids   of buckets, versions, uploads
//! *_row, epochs   one versioned form per table        limits   bounds of the product
//! hash text timestamp
//! ```

pub mod address;
mod bucket_row;
pub mod codec;
pub mod content;
mod data_key_row;
mod epochs;
pub mod hash;
pub mod ids;
pub mod ip_network;
pub mod keyspace;
pub mod limits;
mod mark_row;
mod member_row;
mod move_order;
mod moved_row;
mod notice_row;
mod object_event;
mod row;
pub mod text;
mod timestamp;

pub use bucket_row::BucketRow;
pub use data_key_row::DataKeyRow;
pub use epochs::{BucketEpochs, EpochShard, EpochStage};
pub use mark_row::{LastingActorRow, MarkRow};
pub use member_row::MemberRow;
pub use move_order::{MOVE_QUEUE_DEFAULT, MoveOrder, MoveWish, S3MoveTerms};
pub use moved_row::{MovedRow, MovedState};
pub use notice_row::{KvWrite, NoticeContent, NoticeEvent, NoticeRow};
pub use object_event::{EventName, EventObject, ObjectEvent};
pub use row::{Batch, Change, PartitionChanges, Row, SEAL_BYTES, SEALED_VERSION, changes_bytes};
pub use timestamp::{ActorId, Timestamp};
