//! Request bodies: a stream that is decoded and verified as it arrives. At most one piece of a large body is in memory.

mod request;

pub(crate) use request::DOCUMENT_TIME_MAX;
pub use request::{RequestBody, RequestBodyFailure};
