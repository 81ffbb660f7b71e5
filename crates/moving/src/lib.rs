//! Moving house: brings the data of a Riak cluster, or of another Larder, into this one.
//!
//! ```text
//! kv-admin ──order──> Mover ──> MoveRun ── source_check   reaches the source, makes types
//!                                 │     ── sweep          lists buckets and keys
//!                                 │          └─ moved_key   reads one, and imports it (`Kv::import`)
//!                                 │               └─ moved_datatype   merges a data type (`Kv::import_datatype`)
//!                                 │     ── queue_follow   drains the replication queue of each node meanwhile
//!                                 │          └─ queue_key   brings one element to its key
//!                                 │     ── way_back       hands changes back to a Riak, through back_queue
//!                                 ├── source ──> source_calls ──> SourceHttp   the port to the source
//!                                 └── move_store            the rows about the move
//! kv-admin, console <── move_report    its lines and its JSON
//! ```
//! [`rules`] has the forms that a source speaks, without IO: its answers over HTTP, terms of Erlang, objects, elements of a
//! replication queue, clocks and the bodies of data types.

mod back_queue;
mod key_turns;
mod move_report;
mod move_run;
mod move_samples;
mod move_store;
mod moved_datatype;
mod moved_key;
mod mover;
mod pass_folds;
mod progress;
mod queue_calls;
mod queue_follow;
mod queue_key;
mod queue_progress;
mod queue_source;
pub mod rules;
mod s3;
mod source;
mod source_calls;
mod source_check;
mod source_folds;
mod source_http;
mod sweep;
mod way_back;

pub use move_report::MoveReportLine;
pub use mover::{MOVE_RATE_DEFAULT, MoveRefusal, MoveStatus, Mover, NewMove};
pub use progress::{MoveCount, MoveCounts, MovePhase, MoveProgress, MoveVerification, SweepProgress};
pub use queue_progress::QueueProgress;
pub use s3::{UserImportReport, import_users};
pub use source_http::{CallHeaders, SourceAnswer, SourceCall, SourceHttp, SourceRequest};
