//! The S3 API of Larder.
//!
//! ```text
//! server ── a connection ──> pipeline: host and path ─> operation ─> signature ─> body ─> ops/<operation> ─> gateway
//!                            target             route      auth          body            xml errors response
//! ```
//! `operations` is the table of S3 operations: routing, access control, usage reports and the manual read it. Decoders
//! accept any bytes. A panic in a request is answered 500 and logged; it never ends the server.

pub mod admin;
pub mod auth;
mod background;
pub mod body;
pub mod call;
mod cors;
pub mod errors;
mod health;
pub mod operations;
mod ops;
mod pipeline;
mod request_head;
pub mod response;
pub mod route;
mod scraped_metrics;
mod server;
mod settings;
pub mod target;
mod unsupported_config;
mod website;
mod write_terms;
pub mod xml;

pub use ops::source_store::{BucketChange, BucketDocument, source_checksum, source_metadata};
pub use pipeline::S3Service;
pub use server::serve;
pub use settings::S3Settings;
pub use target::PublicUrl;
