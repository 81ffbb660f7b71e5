//! Bodies: requests come in as a stream that is decoded and checked on its way, answers go out whole or in pieces. Never more
//! than a piece of a large one is held.

mod outgoing;
mod request;
mod sum;

pub use outgoing::{Body, Pieces};
pub(crate) use request::DOCUMENT_TIME_MAX;
pub use request::{RequestBody, Verdict};
