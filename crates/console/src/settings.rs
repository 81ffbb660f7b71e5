//! The settings of the console.

use std::sync::Arc;

use larder_net::{BrowserRules, ConnectionSettings};

use crate::access::ConsoleAccess;
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
    /// The commands of `kv-admin` that run.
    pub commands: RunningCommands,
}
