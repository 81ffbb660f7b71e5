//! The settings of the console.

use std::sync::Arc;

use larder_moving::Mover;
use larder_net::{BrowserRules, ConnectionSettings};
use larder_rows::Timestamp;
use larder_s3_rules::User;

use crate::access::ConsoleAccess;
use crate::recent_lines::RecentLines;
use crate::running_commands::RunningCommands;

/// Settings of the console.
#[derive(Clone)]
pub struct ConsoleSettings {
    /// The settings that every listener has.
    pub connection: ConnectionSettings,
    /// The pages whose requests are refused.
    pub browsers: BrowserRules,
    /// Links and sessions.
    pub access: Arc<ConsoleAccess>,
    /// The port of the listener: browsers share cookies between the ports of a host, so the cookie's name has it.
    pub port: u16,
    /// Whether nothing can be changed.
    pub read_only: bool,
    /// The move from another store, if one is under way.
    pub mover: Arc<Mover>,
    /// The commands of `kv-admin` that run.
    pub commands: RunningCommands,
    /// The last warnings and errors of the log, slow requests among them.
    pub log: Arc<RecentLines>,
    /// The last changes that the audit log has, whether or not it is kept.
    pub changes: Arc<RecentLines>,
    /// The last refused requests: lines of their own, so that strangers cannot push the changes out.
    pub refusals: Arc<RecentLines>,
    /// Makes links that share S3 objects; `None` where no S3 listener is.
    pub share: Option<ShareLink>,
}

/// An object for anyone who has a link to it.
#[derive(Debug, Clone, Copy)]
pub struct SharedObject<'a> {
    /// Its bucket.
    pub bucket: &'a str,
    /// Its key.
    pub key: &'a [u8],
    /// The version, where the link is about one.
    pub version: Option<&'a str>,
    /// For how long the link is valid, in seconds.
    pub seconds: u64,
    /// The time from which on it is valid.
    pub now: Timestamp,
}

/// Makes a link to an object, signed by a user.
pub type ShareLink = Arc<dyn Fn(&User, &SharedObject<'_>) -> String + Send + Sync>;
