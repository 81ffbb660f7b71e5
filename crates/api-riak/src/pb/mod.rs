//! Riak's protocol buffers.
//!
//! ```text
//! server ── a connection ──> connection: frames, one after the other ──> service: code, message, handler ──> gateway
//!            operations: the table of codes      messages: their fields         fault: errors      content: values
//! ```
//! Frames hold arbitrary bytes. The answers of a connection stand in the order of its requests, which clients may pipeline.

mod access;
mod bucket_scan;
mod connection;
mod content;
mod datatypes;
mod fault;
mod fields;
mod frame;
mod index;
mod info;
mod listing;
mod mapred;
mod messages;
mod metadata;
mod object;
mod operations;
mod props;
mod put_scan;
mod reply;
mod reply_piece;
mod server;
mod service;
mod session;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod testing;

pub use server::{PbSettings, serve};
