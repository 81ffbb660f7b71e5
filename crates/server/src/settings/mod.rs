//! What the server is told: one table, from which flags, environment, file, `--help` and the manual are made.
//!
//! ```text
//! table ──▶ cli (clap) ──▶ raw: texts with their sources ──▶ Settings: typed, checked
//!   └─────▶ manual                flag > environment > file > default
//! ```

use std::path::PathBuf;
use std::time::Duration;

use larder_gateway::DeleteMode;

pub mod cassandra;
pub mod cli;
pub mod manual;
pub mod raw;
pub mod table;
mod text;

pub use cassandra::Cassandra;
pub use tracing::level_filters::LevelFilter as LogLevel;

use raw::Raw;
use table::Kind;

/// Where a protocol is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listener {
    /// Nowhere.
    Off,
    /// On this host and port; port 0 takes a free one.
    At(String),
}

/// What keeps the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// The embedded engine.
    Local,
    /// Memory: everything is forgotten at the end.
    Memory,
    /// A cluster of Cassandra or ScyllaDB.
    Cassandra,
}

impl Engine {
    /// Its word in the settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Memory => "memory",
            Self::Cassandra => "cassandra",
        }
    }

    /// Whether one process alone has the data.
    #[must_use]
    pub fn is_of_one(self) -> bool {
        match self {
            Self::Local | Self::Memory => true,
            Self::Cassandra => false,
        }
    }
}

/// When a write is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Once it is on disk.
    Disk,
    /// Once readers see it.
    Buffered,
}

impl Durability {
    /// Its word in the settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Buffered => "buffered",
        }
    }
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Human,
    /// For programs.
    Json,
}

/// All settings, checked. Fields are named as in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table has a sentence on each")]
pub struct Settings {
    pub data_dir: PathBuf,
    pub http: Listener,
    pub pb: Listener,
    pub s3: Listener,
    pub s3_hosts: Vec<String>,
    pub s3_region: String,
    /// Access key and secret of the S3 admin, if they were given.
    pub s3_admin: Option<(String, String)>,
    pub s3_buckets_max: usize,
    pub s3_lifecycle_interval: Duration,
    pub admin_socket: PathBuf,
    pub engine: Engine,
    /// The cluster, with that engine.
    pub cassandra: Option<Cassandra>,
    pub durability: Durability,
    /// `None`: it is made from the names of machine and port.
    pub node_name: Option<String>,
    /// `None`: a part of the machine's.
    pub memory: Option<u64>,
    pub cache_bytes: u64,
    pub object_bytes_max: u64,
    pub siblings_max: usize,
    pub delete_mode: DeleteMode,
    pub request_timeout: Duration,
    pub connections_max: usize,
    pub sweep_interval: Duration,
    /// 0: as many as there are cores.
    pub threads: usize,
    pub log_level: LogLevel,
    pub log_format: LogFormat,
    pub accept_damaged_journal: bool,
    pub drain_timeout: Duration,
}

/// A setting that does not hold: one line that names it and where it came from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SettingError {
    /// The line.
    pub message: String,
    /// The exit code: 2 for the command line, 1 otherwise.
    pub exit: u8,
}

impl SettingError {
    fn new(message: String) -> Self {
        Self { message, exit: 1 }
    }

    fn usage(message: String) -> Self {
        Self { message, exit: 2 }
    }
}

impl Settings {
    /// Reads every text.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn resolve(raw: &Raw) -> Result<Self, SettingError> {
        let data_dir = raw.value(&table::DATA_DIR, text::path)?;
        let engine = raw.value(&table::ENGINE, text::engine)?;
        let named = engine != Engine::Cassandra || raw.is_given(&table::NODE_NAME);
        Ok(Self {
            http: raw.value(&table::HTTP, text::listener)?,
            pb: raw.value(&table::PB, text::listener)?,
            s3: raw.value(&table::S3, text::listener)?,
            s3_hosts: raw.value(&table::S3_HOST, text::hosts)?,
            s3_region: raw.value(&table::S3_REGION, text::name)?,
            s3_admin: s3_admin(raw)?,
            s3_buckets_max: count(raw, &table::S3_BUCKETS_MAX)?,
            s3_lifecycle_interval: raw.value(&table::S3_LIFECYCLE_INTERVAL, text::time)?,
            admin_socket: if raw.is_given(&table::ADMIN_SOCKET) {
                raw.value(&table::ADMIN_SOCKET, text::path)?
            } else {
                data_dir.join(table::ADMIN_SOCKET_NAME)
            },
            data_dir,
            engine,
            cassandra: Cassandra::resolve(raw, engine)?,
            durability: raw.value(&table::DURABILITY, text::durability)?,
            node_name: Some(raw.value(&table::NODE_NAME, text::name)?).filter(|_| named),
            memory: raw.value(&table::MEMORY, text::memory)?,
            cache_bytes: raw.value(&table::CACHE_SIZE, text::size)?,
            object_bytes_max: raw.value(&table::OBJECT_SIZE_MAX, text::size)?,
            siblings_max: count(raw, &table::SIBLINGS_MAX)?,
            delete_mode: raw.value(&table::DELETE_MODE, text::delete_mode)?,
            request_timeout: raw.value(&table::REQUEST_TIMEOUT, text::time)?,
            connections_max: count(raw, &table::CONNECTIONS_MAX)?,
            sweep_interval: raw.value(&table::SWEEP_INTERVAL, text::time)?,
            threads: count(raw, &table::THREADS)?,
            log_level: raw.value(&table::LOG_LEVEL, text::log_level)?,
            log_format: raw.value(&table::LOG_FORMAT, text::log_format)?,
            accept_damaged_journal: raw.value(&table::ACCEPT_DAMAGED_JOURNAL, text::switch)?,
            drain_timeout: raw.value(&table::DRAIN_TIMEOUT, text::time)?,
        })
    }
}

/// The key makes no sense without its secret, nor the other way round.
fn s3_admin(raw: &Raw) -> Result<Option<(String, String)>, SettingError> {
    let (key, secret) = (&table::S3_ADMIN_KEY, &table::S3_ADMIN_SECRET);
    match (raw.value(key, text::key)?, raw.value(secret, text::key)?) {
        (Some(key), Some(secret)) => Ok(Some((key, secret))),
        (None, None) => Ok(None),
        _ => Err(SettingError::new(format!("{} and {} go together: one is missing", key.name, secret.name))),
    }
}

fn count(raw: &Raw, setting: &table::Setting) -> Result<usize, SettingError> {
    let (least, most) = match setting.kind {
        Kind::Count(least, most) => (least, most),
        _ => (0, u64::MAX),
    };
    raw.value(setting, |text| text::count(text, least, most))
}

#[cfg(test)]
mod packaging_tests;
#[cfg(test)]
mod tests;
