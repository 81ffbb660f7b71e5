//! A move from a store that speaks S3: MinIO, Riak CS, Ceph, AWS, or another Larder.
//!
//! ```text
//! bucket_move   which buckets move, and their configuration
//! bucket_pass   the listing of a bucket beside the rows of its moved keys
//! read_through  keys that requests ask for before their turn
//! acl_move      grants of buckets and objects
//! object_move   one key: its versions are fetched, and imported by crate s3
//! s3_source ── signature ──> SourceCalls ──> the source ── an answer ──> documents
//!   buckets, versions, objects, tags     paths in path style            XML, decoded within bounds
//! user_import   users, policies and groups, by an order of their own
//! ```

mod acl_move;
mod bucket_move;
mod bucket_pass;
mod documents;
mod fetched_body;
mod object_move;
mod read_through;
mod s3_source;
mod signature;
mod user_import;

use documents::{SourceVersion, SourceVersionMarker};
pub(crate) use read_through::BroughtKeys;
use s3_source::S3Fetched;
pub(crate) use s3_source::S3Source;
pub use user_import::{UserImportReport, import_users};
