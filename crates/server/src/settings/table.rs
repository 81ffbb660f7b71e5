//! The settings: each is one entry here and nowhere else.

/// What a setting's text may be; what `--help` and the manual show for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text without blanks.
    Name,
    /// A path.
    Path,
    /// `HOST:PORT` or `off`.
    Listener,
    /// Bytes, such as `256MiB`.
    Size,
    /// A whole number in this range.
    Count(u64, u64),
    /// A time, such as `60s`.
    Time,
    /// `keep`, `immediate` or a time.
    Delete,
    /// One of these words, written `one|other`.
    Choice(&'static str),
    /// `true` or `false`; the flag alone means `true`.
    Switch,
    /// Host names with commas between them.
    Hosts,
    /// Hosts with or without ports, with commas between them; nothing: none.
    Nodes,
    /// Names with commas between them; nothing: none.
    Names,
    /// A key or a secret; nothing: one is made.
    Key,
}

impl Kind {
    /// What stands for the value in `--help`.
    #[must_use]
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Name => "NAME",
            Self::Path => "PATH",
            Self::Listener => "HOST:PORT|off",
            Self::Size => "BYTES",
            Self::Count(..) => "NUMBER",
            Self::Time => "TIME",
            Self::Delete => "keep|immediate|TIME",
            Self::Choice(words) => words,
            Self::Switch => "=true|false",
            Self::Hosts => "HOST,...",
            Self::Nodes => "HOST:PORT,...",
            Self::Names => "NAME,...",
            Self::Key => "KEY",
        }
    }
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name: the flag without its dashes, and the key in the file.
    pub name: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// What it is when nobody says.
    pub default: &'static str,
    /// What it does: a sentence or two.
    pub help: &'static str,
}

impl Setting {
    /// The flag, such as `--data-dir`.
    #[must_use]
    pub fn flag(&self) -> String {
        format!("--{}", self.name)
    }

    /// The default as people are shown it; `None`: there is none.
    #[must_use]
    pub fn shown_default(&self) -> Option<&'static str> {
        Some(self.default).filter(|default| !default.is_empty())
    }

    /// The environment variable, such as `LARDER_DATA_DIR`.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("{VARIABLE_PREFIX}{}", self.name.replace('-', "_").to_ascii_uppercase())
    }
}

/// Every environment variable that begins like this is ours: an unknown one is a mistake.
pub const VARIABLE_PREFIX: &str = "LARDER_";

/// The variable that names the settings file, as `--config` does.
pub const CONFIG_VARIABLE: &str = "LARDER_CONFIG";

/// Name of the admin socket inside the data directory.
pub const ADMIN_SOCKET_NAME: &str = "admin.sock";

macro_rules! settings {
    ($($id:ident = $name:literal, $kind:expr, $default:literal, $help:literal;)+) => {
        $(#[doc = $help] pub static $id: Setting = Setting { name: $name, kind: $kind, default: $default, help: $help };)+

        /// All settings, in the order they are shown.
        pub static SETTINGS: &[&Setting] = &[$(&$id),+];
    };
}

settings! {
    DATA_DIR = "data-dir", Kind::Path, "./data",
        "Where everything is kept; with the engine cassandra only the admin socket. Created when missing; one server at a time.";
    HTTP = "http", Kind::Listener, "127.0.0.1:8098",
        "Where Riak's HTTP interface listens.";
    PB = "pb", Kind::Listener, "127.0.0.1:8087",
        "Where Riak's protocol buffers interface will listen: not built yet, so nothing does.";
    S3 = "s3", Kind::Listener, "127.0.0.1:8080",
        "Where the S3 interface listens.";
    S3_HOST = "s3-host", Kind::Hosts, "s3.localhost,localhost,s3.amazonaws.com",
        "Hosts of the S3 interface: in front of one, a bucket may be named. Where it listens is always one.";
    S3_REGION = "s3-region", Kind::Name, "us-east-1",
        "The region S3 clients are told; they may sign for any.";
    S3_ADMIN_KEY = "s3-admin-key", Kind::Key, "",
        "Access key of the S3 admin; made at the first start when not given. Better in the environment than as a flag.";
    S3_ADMIN_SECRET = "s3-admin-secret", Kind::Key, "",
        "Secret of the S3 admin's access key; given with it.";
    S3_BUCKETS_MAX = "s3-buckets-max", Kind::Count(1, 1_000_000), "100",
        "Most S3 buckets of a user; the admin may have any number.";
    S3_LIFECYCLE_INTERVAL = "s3-lifecycle-interval", Kind::Time, "1h",
        "How often objects and uploads are looked through for what the lifecycle rules of their bucket remove.";
    ADMIN_SOCKET = "admin-socket", Kind::Path, "<data-dir>/admin.sock",
        "The Unix socket that kv-admin talks to; only the server's own user may open it.";
    ENGINE = "engine", Kind::Choice("local|memory|cassandra"), "local",
        "What keeps the data: local is the embedded engine, memory forgets everything at the end, cassandra is a cluster.";
    CASSANDRA = "cassandra", Kind::Nodes, "",
        "Nodes of the Cassandra or ScyllaDB cluster to ask first, port 9042 unless said; the others are found through them.";
    CASSANDRA_KEYSPACE = "cassandra-keyspace", Kind::Name, "larder",
        "Beginning of the names of the keyspaces there; behind it stands _n and the number of copies.";
    CASSANDRA_DATACENTER = "cassandra-datacenter", Kind::Name, "",
        "The datacenter this gateway is in, where the cluster has several.";
    CASSANDRA_DATACENTERS = "cassandra-datacenters", Kind::Names, "",
        "All datacenters that keep copies, n_val in each; the local one alone when not given.";
    CASSANDRA_USER = "cassandra-user", Kind::Name, "",
        "Who this gateway is to the cluster, where it asks.";
    CASSANDRA_PASSWORD_FILE = "cassandra-password-file", Kind::Path, "",
        "The file with this user's password, on its first line.";
    CASSANDRA_TLS_CA = "cassandra-tls-ca", Kind::Path, "",
        "Certificates (PEM) of those who sign the nodes' certificates; connections are encrypted when given.";
    CASSANDRA_TLS_CERT = "cassandra-tls-cert", Kind::Path, "",
        "This gateway's certificate (PEM), where the cluster asks for one.";
    CASSANDRA_TLS_KEY = "cassandra-tls-key", Kind::Path, "",
        "The key of that certificate (PEM).";
    DURABILITY = "durability", Kind::Choice("disk|buffered"), "disk",
        "When a write is answered: once it is on disk, or once readers see it (a power cut may then lose the last moments). On Cassandra its commitlog_sync decides.";
    NODE_NAME = "node-name", Kind::Name, "larder@127.0.0.1",
        "The name shown as claimant, in /stats and in status. Each gateway on Cassandra has its own: larder@, the machine's name and the port when not given.";
    MEMORY = "memory", Kind::Size, "",
        "Most memory for caches, tables in memory and what clients' requests hold; a quarter of the machine's or the container's when not given. Spent, requests wait for some seconds and are refused with 503 then.";
    CACHE_SIZE = "cache-size", Kind::Size, "256MiB",
        "Most memory the engine's cache takes, a quarter of memory at most; it grows as data is read.";
    OBJECT_SIZE_MAX = "object-size-max", Kind::Size, "50MiB",
        "Largest object body; a larger one is refused with 413.";
    SIBLINGS_MAX = "siblings-max", Kind::Count(1, larder_model::limits::SIBLINGS_MAX as u64), "100",
        "Most siblings of a key; a write that would make one more is refused with 409.";
    DELETE_MODE = "delete-mode", Kind::Delete, "3s",
        "What remains of a deleted object: its tombstone for ever (keep), nothing (immediate), or its tombstone for this time.";
    REQUEST_TIMEOUT = "request-timeout", Kind::Time, "60s",
        "When a request that names no timeout gives up.";
    CONNECTIONS_MAX = "connections-max", Kind::Count(1, 1_000_000), "10000",
        "Most connections at a time, of all listeners together; one listener has three quarters of them at most, one address half. One more is answered 503 and closed. Fewer where the limit of open files (ulimit -Hn) leaves room for fewer.";
    SWEEP_INTERVAL = "sweep-interval", Kind::Time, "15m",
        "How often what failures left behind is looked for; the first time a minute after the start at the latest.";
    THREADS = "threads", Kind::Count(0, 1024), "0",
        "Threads that serve requests; 0 takes as many as there are cores, and four at least with an engine of its own. Fewer where a node of the cluster shares the machine.";
    LOG_LEVEL = "log-level", Kind::Choice("error|warn|info|debug|trace"), "info",
        "How much is logged to standard error.";
    LOG_FORMAT = "log-format", Kind::Choice("human|json"), "human",
        "How a log line looks.";
    ACCEPT_DAMAGED_JOURNAL = "accept-damaged-journal", Kind::Switch, "false",
        "Start although the journal is damaged, and lose what stands behind the damage.";
    DRAIN_TIMEOUT = "drain-timeout", Kind::Time, "30s",
        "How long running requests may take to end when the server is stopped.";
}

/// The setting of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().copied().find(|setting| setting.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_lead_to_flag_variable_and_key() {
        let names: BTreeSet<_> = SETTINGS.iter().map(|setting| setting.name).collect();
        assert_eq!(names.len(), SETTINGS.len());
        assert_eq!(DATA_DIR.flag(), "--data-dir");
        assert_eq!(DATA_DIR.variable(), "LARDER_DATA_DIR");
        assert!(named("data-dir").is_some_and(|setting| std::ptr::eq(setting, &raw const DATA_DIR)));
        assert!(SETTINGS.iter().all(|setting| setting.variable() != CONFIG_VARIABLE));
    }

    #[test]
    fn every_help_is_a_sentence() {
        for setting in SETTINGS {
            assert!(setting.help.ends_with('.') && !setting.help.contains('|'), "{}", setting.name);
        }
    }
}
