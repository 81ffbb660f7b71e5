//! The settings: one table, from which flags, environment, file, `--help` and the manual are made.
//!
//! ```text
//! table ──▶ cli (clap) ──▶ raw: texts with their sources ──▶ ServerSettings: typed, checked
//!   └─────▶ manual                flag > environment > file > default
//! ```

pub mod cassandra;
pub mod cli;
mod events;
pub mod manual;
pub mod minio;
mod parse;
pub mod raw;
pub mod table;
mod tls;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use larder_api_s3::PublicUrl;
use larder_core::DeleteMode;
use larder_core::rules::event_target::EventTarget;
use larder_core::rules::props::WebhookHost;
use larder_net::AllowedOrigins;
use larder_rows::ip_network::IpNetwork;

use raw::RawSettings;
use table::SettingKind;

pub use cassandra::CassandraSettings;
pub(crate) use parse::size as parse_size;
pub use tls::TlsSettings;
pub use tracing::level_filters::LevelFilter as LogLevel;

/// The address of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listener {
    /// The listener is off.
    Off,
    /// This host and port; port 0 takes a free one.
    At(String),
}

/// The kind of engine that stores the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineKind {
    /// The embedded engine.
    Local,
    /// Memory: a restart loses everything.
    Memory,
    /// A cluster of Cassandra or ScyllaDB.
    Cassandra,
}

impl EngineKind {
    /// Whether the data belongs to one process.
    #[must_use]
    pub fn is_single_process(self) -> bool {
        match self {
            Self::Local | Self::Memory => true,
            Self::Cassandra => false,
        }
    }
}

/// The moment at which a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DurabilitySetting {
    /// After it is on disk.
    Disk,
    /// After readers see it.
    Buffered,
}

/// Who may read the metrics on the S3 port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScrapeAccess {
    /// The holder of a token, which MinIO calls `jwt`.
    #[value(alias = "jwt")]
    Token,
    /// Everyone.
    Public,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Human,
    /// For programs.
    Json,
}

/// The place of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditTarget {
    /// Standard error.
    StandardError,
    /// This file.
    File(PathBuf),
}

/// All settings, checked. A field is named as its setting in the table; most sizes end in `bytes`, a list is in the plural.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table has a sentence on each")]
pub struct ServerSettings {
    pub data_dir: PathBuf,
    pub http: Listener,
    pub http_origins: AllowedOrigins,
    /// `None`: any.
    pub http_hosts: Option<Vec<String>>,
    pub pb: Listener,
    pub s3: Listener,
    pub console: Listener,
    /// `None`: any.
    pub console_hosts: Option<Vec<String>>,
    pub console_read_only: bool,
    pub metrics: Listener,
    /// The encrypted listeners; `None`: there are none.
    pub tls: Option<TlsSettings>,
    pub s3_hosts: Vec<String>,
    /// Hosts of websites of buckets.
    pub s3_website_hosts: Vec<String>,
    pub s3_region: String,
    /// Access key and secret of the S3 admin, if they were given.
    pub s3_admin: Option<(String, String)>,
    /// Buckets that the start makes.
    pub s3_buckets: Vec<StartBucket>,
    /// `None`: the hosts of the listeners.
    pub s3_public_url: Option<PublicUrl>,
    pub s3_metrics: ScrapeAccess,
    /// The targets of events of S3 objects.
    pub s3_event_targets: Vec<EventTarget>,
    pub s3_buckets_max: usize,
    pub s3_lifecycle_interval: Duration,
    pub s3_ssec_plain: bool,
    /// `None`: in the data directory, with an engine that has one.
    pub encryption_keys: Option<PathBuf>,
    /// Whether new rows and bodies are encrypted.
    pub encrypt_at_rest: bool,
    pub admin_socket: PathBuf,
    pub engine: EngineKind,
    /// The cluster, with that engine.
    pub cassandra: Option<CassandraSettings>,
    pub durability: DurabilitySetting,
    /// `None`: made from the machine's name and the port.
    pub node_name: Option<String>,
    /// `None`: a part of the machine's memory.
    pub memory: Option<u64>,
    pub cache_bytes: u64,
    pub object_bytes_max: u64,
    pub siblings_max: usize,
    /// `None`: as the engine needs it.
    pub index_shard_rows: Option<u64>,
    pub delete_mode: DeleteMode,
    pub request_timeout: Duration,
    pub connections_max: usize,
    pub proxies: Vec<IpNetwork>,
    /// `None`: no modules.
    pub js_dir: Option<PathBuf>,
    pub js_workers: usize,
    pub js_timeout: Duration,
    pub js_memory: u64,
    pub webhook_hosts: Vec<WebhookHost>,
    /// `None`: those of the system.
    pub webhook_ca: Option<PathBuf>,
    pub sweep_interval: Duration,
    /// 0: one for each core, and four at least with an engine of its own.
    pub threads: usize,
    pub log_level: LogLevel,
    pub log_format: LogFormat,
    /// `None`: off.
    pub slow_log: Option<Duration>,
    /// `None`: no audit log.
    pub audit_log: Option<AuditTarget>,
    pub accept_damaged_journal: bool,
    pub drain_timeout: Duration,
    /// Whether the command is MinIO's `server DIR`; no setting.
    pub is_minio_server: bool,
}

/// A bucket that the start makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartBucket {
    /// Its name.
    pub name: String,
    /// Whether everyone may list and read it.
    pub is_public: bool,
}

/// An invalid setting: one line with its name and its source.
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

impl ServerSettings {
    /// Parses every setting.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn resolve(raw: &RawSettings) -> Result<Self, SettingError> {
        let data_dir = raw.value(&table::DATA_DIR, parse::path)?;
        let engine: EngineKind = raw.value(&table::ENGINE, parse::choice)?;
        let named = engine != EngineKind::Cassandra || raw.is_given(&table::NODE_NAME);
        Ok(Self {
            http: raw.value(&table::HTTP, parse::listener)?,
            http_origins: raw.value(&table::HTTP_ORIGINS, parse::origins)?,
            http_hosts: raw.value(&table::HTTP_HOSTS, parse::other_hosts)?,
            pb: raw.value(&table::PB, parse::listener)?,
            s3: raw.value(&table::S3, parse::listener)?,
            console: raw.value(&table::CONSOLE, parse::listener)?,
            console_hosts: raw.value(&table::CONSOLE_HOSTS, parse::other_hosts)?,
            console_read_only: raw.value(&table::CONSOLE_READ_ONLY, parse::switch)?,
            metrics: raw.value(&table::METRICS, parse::listener)?,
            tls: TlsSettings::resolve(raw)?,
            s3_hosts: raw.value(&table::S3_HOST, parse::hosts)?,
            s3_website_hosts: raw.value(&table::S3_WEBSITE_HOST, parse::hosts)?,
            s3_region: raw.value(&table::S3_REGION, parse::name)?,
            s3_admin: s3_admin(raw)?,
            s3_buckets: raw.value(&table::S3_BUCKETS, parse::start_buckets)?,
            s3_public_url: raw.value(&table::S3_PUBLIC_URL, parse::public_url)?,
            s3_metrics: raw.value(&table::S3_METRICS, parse::choice)?,
            s3_event_targets: event_targets(raw)?,
            s3_buckets_max: count(raw, &table::S3_BUCKETS_MAX)?,
            s3_lifecycle_interval: raw.value(&table::S3_LIFECYCLE_INTERVAL, parse::time)?,
            s3_ssec_plain: raw.value(&table::S3_SSEC_PLAIN, parse::switch)?,
            encryption_keys: raw.value(&table::ENCRYPTION_KEYS, parse::optional_path)?,
            encrypt_at_rest: raw.value(&table::ENCRYPT_AT_REST, parse::switch)?,
            admin_socket: if raw.is_given(&table::ADMIN_SOCKET) {
                raw.value(&table::ADMIN_SOCKET, parse::path)?
            } else {
                data_dir.join(table::ADMIN_SOCKET_NAME)
            },
            data_dir,
            engine,
            cassandra: CassandraSettings::resolve(raw, engine)?,
            durability: raw.value(&table::DURABILITY, parse::choice)?,
            node_name: Some(raw.value(&table::NODE_NAME, parse::name)?).filter(|_| named),
            memory: raw.value(&table::MEMORY, parse::memory)?,
            cache_bytes: raw.value(&table::CACHE_SIZE, parse::size)?,
            object_bytes_max: raw.value(&table::OBJECT_SIZE_MAX, parse::size)?,
            siblings_max: count(raw, &table::SIBLINGS_MAX)?,
            index_shard_rows: match raw.is_given(&table::INDEX_SHARD_ROWS) {
                true => Some(count(raw, &table::INDEX_SHARD_ROWS)? as u64),
                false => None,
            },
            delete_mode: raw.value(&table::DELETE_MODE, parse::delete_mode)?,
            request_timeout: raw.value(&table::REQUEST_TIMEOUT, parse::time)?,
            connections_max: count(raw, &table::CONNECTIONS_MAX)?,
            proxies: raw.value(&table::PROXY, parse::networks)?,
            js_dir: raw.value(&table::JS_DIR, parse::optional_path)?,
            js_workers: count(raw, &table::JS_WORKERS)?,
            js_timeout: raw.value(&table::JS_TIMEOUT, parse::time)?,
            js_memory: raw.value(&table::JS_MEMORY, parse::size)?,
            webhook_hosts: raw.value(&table::WEBHOOK_HOSTS, parse::webhook_hosts)?,
            webhook_ca: raw.value(&table::WEBHOOK_CA, parse::optional_path)?,
            sweep_interval: raw.value(&table::SWEEP_INTERVAL, parse::time)?,
            threads: count(raw, &table::THREADS)?,
            log_level: raw.value(&table::LOG_LEVEL, parse::log_level)?,
            log_format: raw.value(&table::LOG_FORMAT, parse::choice)?,
            slow_log: raw.value(&table::SLOW_LOG, parse::time_or_off)?,
            audit_log: raw.value(&table::AUDIT_LOG, parse::audit_target)?,
            accept_damaged_journal: raw.value(&table::ACCEPT_DAMAGED_JOURNAL, parse::switch)?,
            drain_timeout: raw.value(&table::DRAIN_TIMEOUT, parse::time)?,
            is_minio_server: false,
        })
    }

    /// Whether any S3 listener is on.
    pub(crate) fn serves_s3(&self) -> bool {
        let encrypted = self.tls.as_ref().map(|tls| &tls.s3_https);
        std::iter::once(&self.s3).chain(encrypted).any(|listener| *listener != Listener::Off)
    }
}

/// The word of a choice in the settings.
pub(crate) fn choice_word(choice: &impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The targets of events, with their tokens. No error shows a token.
fn event_targets(raw: &RawSettings) -> Result<Vec<EventTarget>, SettingError> {
    let wrong = |setting: &table::Setting, fault: String| {
        SettingError::new(format!("{}: {fault}", raw.given_as(setting).unwrap_or_else(|| setting.flag())))
    };
    let text = |setting| raw.value(setting, |text| Ok(text.to_owned()));
    let (targets, tokens) = (&table::S3_EVENT_TARGETS, &table::S3_EVENT_TOKENS);
    let named = events::targets(&text(targets)?).map_err(|fault| wrong(targets, fault))?;
    events::with_tokens(named, &text(tokens)?).map_err(|fault| wrong(tokens, fault))
}

/// The S3 admin's key and secret: both or neither.
fn s3_admin(raw: &RawSettings) -> Result<Option<(String, String)>, SettingError> {
    let (key, secret) = (&table::S3_ADMIN_KEY, &table::S3_ADMIN_SECRET);
    match (raw.value(key, parse::key)?, raw.value(secret, parse::key)?) {
        (Some(key), Some(secret)) => Ok(Some((key, secret))),
        (None, None) => Ok(None),
        _ => Err(SettingError::new(format!("{} and {} go together: one is missing", key.name, secret.name))),
    }
}

fn count(raw: &RawSettings, setting: &table::Setting) -> Result<usize, SettingError> {
    let (least, most) = match setting.kind {
        SettingKind::Count(least, most) => (least, most),
        _ => (0, u64::MAX),
    };
    raw.value(setting, |text| parse::count(text, least, most))
}

#[cfg(test)]
mod packaging_tests;
#[cfg(test)]
mod tests;
