//! Bodies. A request body is a stream that is decoded and verified as it arrives; a response body is sent whole or in
//! pieces. At most one piece of a large body is in memory.

mod payload_digest;
mod request;
mod response;

pub(crate) use request::DOCUMENT_TIME_MAX;
pub use request::{RequestBody, RequestBodyFailure};
pub use response::{S3Body, S3BodyStream};
