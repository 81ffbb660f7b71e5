//! The commands of `kv-admin` and their answers.
//!
//! ```text
//! kv-admin ──request─▶ socket ──▶ connection ──▶ COMMANDS ──▶ gateway
//!          ◀─answer── (larder-kv-admin)   (one table: usage, help, handler)
//! ```
//! The server owns every text: `kv-admin` prints the answer and exits with its code. Answers go to standard output; usage and
//! failures to standard error.

mod backup;
mod bucket_type;
mod cluster;
pub(crate) mod command;
mod connection;
mod console;
mod console_table;
mod erlang;
mod help;
mod index;
mod mapreduce;
mod moving;
mod repair_advice;
mod s3_encryption;
mod s3_events;
mod s3_group;
mod s3_identity_policy;
mod s3_key;
mod s3_policy;
mod s3_quota;
mod s3_user;
mod s3_user_import;
mod security;
mod self_test;
mod services;
pub(crate) mod socket;
mod stats;
mod table;
mod transfer;
mod unsupported;
mod webhooks;

#[cfg(test)]
mod tests;

pub(crate) use backup::BackupSource;
pub(crate) use transfer::is_running as is_transferring;
