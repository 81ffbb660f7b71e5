//! The S3 face of Larder.
//!
//! ```text
//! server ── a connection ──> pipeline: host and path ─> operation ─> signature ─> body ─> ops/<operation> ─> gateway
//!                            host path query    route      auth          body            xml errors reply
//! ```
//! `operations` is the one table of what S3 can ask for: routing, access, usage and the manual read it. Decoders take any bytes
//! and answer. No request ends the server: a panic is an answer 500 and a line in the log.

pub mod admin;
pub mod auth;
mod background;
pub mod body;
pub mod call;
mod cors;
pub mod dates;
pub mod errors;
mod forwarded;
pub mod host;
mod identity;
pub mod operations;
mod ops;
pub mod path;
mod pipeline;
mod probe;
pub mod query;
pub mod reply;
pub mod route;
mod server;
mod tally;
pub mod xml;

pub use pipeline::S3Service;
pub use server::{S3Settings, serve};
