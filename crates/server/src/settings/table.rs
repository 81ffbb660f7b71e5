//! The table of settings: each has one entry here.

/// The form of a setting's value, for the parsers, `--help` and the manual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingKind {
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
    /// A time, or `off`.
    TimeOrOff,
    /// `keep`, `immediate` or a time.
    Delete,
    /// One of these words, written `one|other`.
    Choice(&'static str),
    /// `true` or `false`; the flag alone means `true`.
    Switch,
    /// Host names with commas between them.
    Hosts,
    /// Hosts with or without ports, with commas between them; may be empty.
    Nodes,
    /// Names with commas between them; may be empty.
    Names,
    /// Host names with commas between them, or `*` for all; may be empty.
    OtherHosts,
    /// Origins of pages with commas between them, or `*` for all; may be empty.
    Origins,
    /// Addresses and networks with commas between them; may be empty.
    Networks,
    /// Names of buckets with commas between them, `:public` behind some; may be empty.
    Buckets,
    /// `http://HOST:PORT` or with `https`; may be empty.
    Url,
    /// A key or a secret; an empty one is generated.
    Key,
}

impl SettingKind {
    /// The placeholder of the value in `--help`.
    #[must_use]
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Name => "NAME",
            Self::Path => "PATH",
            Self::Listener => "HOST:PORT|off",
            Self::Size => "BYTES",
            Self::Count(..) => "NUMBER",
            Self::Time => "TIME",
            Self::TimeOrOff => "TIME|off",
            Self::Delete => "keep|immediate|TIME",
            Self::Choice(words) => words,
            Self::Switch => "=true|false",
            Self::Hosts => "HOST,...",
            Self::Nodes => "HOST:PORT,...",
            Self::Names => "NAME,...",
            Self::OtherHosts => "HOST,...",
            Self::Origins => "ORIGIN,...",
            Self::Networks => "CIDR,...",
            Self::Buckets => "NAME[:public],...",
            Self::Url => "URL",
            Self::Key => "KEY",
        }
    }
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name: the flag without its dashes, and the key in the file.
    pub name: &'static str,
    /// The form of its value.
    pub kind: SettingKind,
    /// Its value when no source gives one.
    pub default: &'static str,
    /// Its description: a sentence or two.
    pub help: &'static str,
}

impl Setting {
    /// The flag, such as `--data-dir`.
    #[must_use]
    pub fn flag(&self) -> String {
        format!("--{}", self.name)
    }

    /// The default for people to read; `None`: there is none.
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

/// The prefix of this server's environment variables: an unknown one with it is an error.
pub const VARIABLE_PREFIX: &str = "LARDER_";

/// The variable that names the settings file, as `--config` does.
pub const CONFIG_VARIABLE: &str = "LARDER_CONFIG";

/// The port at which MinIO listens when no address is given, and so does `larder server`.
pub const MINIO_PORT: u16 = 9000;

/// Name of the admin socket inside the data directory.
pub const ADMIN_SOCKET_NAME: &str = "admin.sock";

macro_rules! settings {
    ($($id:ident = $name:literal, $kind:expr, $default:literal, $help:literal;)+) => {
        $(#[doc = $help] pub static $id: Setting = Setting { name: $name, kind: $kind, default: $default, help: $help };)+

        /// All settings, in the order of the manual.
        pub static SETTINGS: &[&Setting] = &[$(&$id),+];
    };
}

settings! {
    DATA_DIR = "data-dir", SettingKind::Path, "./data",
        "Where everything is kept; with the engine cassandra only the admin socket. Created when missing; one server at a time.";
    HTTP = "http", SettingKind::Listener, "127.0.0.1:8098",
        "Where Riak's HTTP interface listens.";
    HTTP_ORIGINS = "http-origins", SettingKind::Origins, "",
        "Origins whose pages may use Riak's HTTP interface from a browser, such as https://app.example.com; * allows all. Pages of other origins are refused with 403.";
    HTTP_HOSTS = "http-hosts", SettingKind::OtherHosts, "",
        "Hosts that a request may name while Riak's HTTP interface listens on loopback, beside localhost, loopback addresses and the host of --http; * allows all. Others are refused with 403.";
    PB = "pb", SettingKind::Listener, "127.0.0.1:8087",
        "Where Riak's protocol buffers interface listens.";
    S3 = "s3", SettingKind::Listener, "127.0.0.1:8080",
        "Where the S3 interface listens.";
    HTTPS = "https", SettingKind::Listener, "off",
        "Where Riak's HTTP interface listens with TLS.";
    PB_TLS = "pb-tls", SettingKind::Listener, "off",
        "Where Riak's protocol buffers interface listens with TLS from the first byte.";
    S3_HTTPS = "s3-https", SettingKind::Listener, "off",
        "Where the S3 interface listens with TLS.";
    TLS_CERT = "tls-cert", SettingKind::Path, "",
        "The certificate (PEM, with its chain) of the listeners with TLS. It is read again when the file changes, and at SIGHUP.";
    TLS_KEY = "tls-key", SettingKind::Path, "",
        "The key of that certificate (PEM).";
    TLS_CLIENT_CA = "tls-client-ca", SettingKind::Path, "",
        "Certificates (PEM) of authorities; when given, clients of the listeners with TLS need a certificate of one of them.";
    TLS_CLIENT_CRL = "tls-client-crl", SettingKind::Path, "",
        "Revocation lists (PEM) of those authorities, one for each that signs a client's chain; clients with a revoked certificate are refused, and all while a list is missing or too old. Read again as the certificate is.";
    TLS_MIN = "tls-min", SettingKind::Choice("1.2|1.3"), "1.2",
        "The oldest version of TLS that clients may speak.";
    CONSOLE = "console", SettingKind::Listener, "127.0.0.1:8099",
        "Where the web console listens. A link with a one-time token signs in; the server prints it on a terminal, and kv-admin console link makes others.";
    CONSOLE_HOSTS = "console-hosts", SettingKind::OtherHosts, "",
        "Hosts that a request may name while the console listens on loopback, beside localhost, loopback addresses and the host of --console; * allows all. Others are refused with 403.";
    CONSOLE_READ_ONLY = "console-read-only", SettingKind::Switch, "false",
        "The console shows everything and changes nothing.";
    METRICS = "metrics", SettingKind::Listener, "127.0.0.1:8097",
        "Where /metrics is also served, in every mode and without a user.";
    S3_HOST = "s3-host", SettingKind::Hosts, "s3.localhost,localhost,s3.amazonaws.com",
        "Hosts of the S3 interface: in front of one, a bucket may be named. The host that it listens on is always one.";
    S3_REGION = "s3-region", SettingKind::Name, "us-east-1",
        "The region that S3 clients see, such as auto; they may sign for any.";
    S3_ADMIN_KEY = "s3-admin-key", SettingKind::Key, "",
        "Access key of the S3 admin; made at the first start when not given. Better in the environment than as a flag.";
    S3_ADMIN_SECRET = "s3-admin-secret", SettingKind::Key, "",
        "Secret of the S3 admin's access key; given with it.";
    S3_BUCKETS = "s3-buckets", SettingKind::Buckets, "",
        "Buckets of the S3 admin that the start makes where they are missing; a start that cannot make them fails. With :public behind its name, a bucket without a policy gets one that lets everyone list and read it.";
    S3_PUBLIC_URL = "s3-public-url", SettingKind::Url, "",
        "The address at which clients reach the S3 interface where it is another than this server's, such as https://s3.example.com: signatures made for its host hold behind a proxy that changes the host, and answers name it.";
    S3_BUCKETS_MAX = "s3-buckets-max", SettingKind::Count(1, 1_000_000), "100",
        "Most S3 buckets of a user; the admin may have any number.";
    S3_LIFECYCLE_INTERVAL = "s3-lifecycle-interval", SettingKind::Time, "1h",
        "How often the lifecycle rules of each bucket are applied to its objects and uploads.";
    ADMIN_SOCKET = "admin-socket", SettingKind::Path, "<data-dir>/admin.sock",
        "The Unix socket that kv-admin talks to; only the server's own user may open it.";
    ENGINE = "engine", SettingKind::Choice("local|memory|cassandra"), "local",
        "The engine that stores the data: local is embedded, memory loses everything at the end, cassandra is a cluster.";
    CASSANDRA = "cassandra", SettingKind::Nodes, "",
        "Nodes of the Cassandra or ScyllaDB cluster to ask first, port 9042 unless said; the others are found through them.";
    CASSANDRA_KEYSPACE = "cassandra-keyspace", SettingKind::Name, "larder",
        "Beginning of the names of the keyspaces there; _n and the number of copies follow it.";
    CASSANDRA_DATACENTER = "cassandra-datacenter", SettingKind::Name, "",
        "The datacenter this gateway is in, where the cluster has several.";
    CASSANDRA_DATACENTERS = "cassandra-datacenters", SettingKind::Names, "",
        "All datacenters that keep copies, n_val in each; the local one alone when not given.";
    CASSANDRA_USER = "cassandra-user", SettingKind::Name, "",
        "The user of this gateway, where the cluster asks for one.";
    CASSANDRA_PASSWORD_FILE = "cassandra-password-file", SettingKind::Path, "",
        "The file with this user's password, on its first line.";
    CASSANDRA_TLS_CA = "cassandra-tls-ca", SettingKind::Path, "",
        "Certificates (PEM) of the authorities that sign the nodes' certificates; connections are encrypted when given.";
    CASSANDRA_TLS_CERT = "cassandra-tls-cert", SettingKind::Path, "",
        "This gateway's certificate (PEM), where the cluster asks for one.";
    CASSANDRA_TLS_KEY = "cassandra-tls-key", SettingKind::Path, "",
        "The key of that certificate (PEM).";
    DURABILITY = "durability", SettingKind::Choice("disk|buffered"), "disk",
        "When a write is answered: once it is on disk, or once readers see it (a power cut may then lose the last moments). On Cassandra its commitlog_sync decides.";
    NODE_NAME = "node-name", SettingKind::Name, "larder@127.0.0.1",
        "The name shown as claimant, in /stats and in status. Each gateway on Cassandra has its own: larder@, the machine's name and the port when not given.";
    MEMORY = "memory", SettingKind::Size, "",
        "Most memory for caches, tables in memory and what clients' requests hold; a quarter of the machine's or the container's when not given. When it is used up, requests wait for some seconds and are refused with 503 then.";
    CACHE_SIZE = "cache-size", SettingKind::Size, "256MiB",
        "Most memory the engine's cache takes, a quarter of memory at most; it grows as data is read.";
    OBJECT_SIZE_MAX = "object-size-max", SettingKind::Size, "50MiB",
        "Largest object body; a larger one is refused with 413.";
    SIBLINGS_MAX = "siblings-max", SettingKind::Count(1, larder_rows::limits::SIBLINGS_MAX as u64), "100",
        "Most siblings of a key; a write that would make one more is refused with 409.";
    INDEX_SHARD_ROWS = "index-shard-rows", SettingKind::Count(0, 1_000_000_000), "",
        "Rows of a shard of an index above which its bucket gets four times the shards, 255 at most; 0 is never. When not given, 1000000 with the engine cassandra, and never with the others, whose indexes are one tree.";
    DELETE_MODE = "delete-mode", SettingKind::Delete, "3s",
        "The remains of a deleted object: its tombstone for ever (keep), nothing (immediate), or its tombstone for this time.";
    REQUEST_TIMEOUT = "request-timeout", SettingKind::Time, "60s",
        "When a request that names no timeout gives up.";
    CONNECTIONS_MAX = "connections-max", SettingKind::Count(1, 1_000_000), "10000",
        "Most connections at a time, of all listeners together; one listener has three quarters of them at most, one address half. One more is answered 503 and closed. Fewer where the limit of open files (ulimit -Hn) leaves room for fewer.";
    PROXY = "proxy", SettingKind::Networks, "",
        "Addresses and networks of trusted proxies: their PROXY headers, X-Forwarded-For and X-Forwarded-Proto name the client of a connection or request, and X-Forwarded-Host the host that it asked S3 for.";
    JS_DIR = "js-dir", SettingKind::Path, "",
        "The folder of JavaScript modules for commit hooks and MapReduce: its files that end in .js. They are loaded again when one changes, and by `kv-admin js-reload`.";
    JS_WORKERS = "js-workers", SettingKind::Count(1, 64), "2",
        "Most processes that run functions of these modules, and as many again that run functions sent by clients. One bucket, user or address has one fewer at a time.";
    JS_TIMEOUT = "js-timeout", SettingKind::Time, "5s",
        "When a call of a script is ended, with its process.";
    JS_MEMORY = "js-memory", SettingKind::Size, "128MiB",
        "Most memory of the values of one script.";
    WEBHOOK_HOSTS = "webhook-hosts", SettingKind::Nodes, "",
        "The hosts that webhooks may name, port 80 unless said; none when not given, so that no client makes the server call another machine.";
    SWEEP_INTERVAL = "sweep-interval", SettingKind::Time, "15m",
        "How often the remains of failures are removed; the first time a minute after the start at the latest.";
    THREADS = "threads", SettingKind::Count(0, 1024), "0",
        "Threads that serve requests; 0 takes as many as there are cores, and four at least with an engine of its own. Fewer where a node of the cluster shares the machine.";
    LOG_LEVEL = "log-level", SettingKind::Choice("error|warn|info|debug|trace"), "info",
        "How much is logged to standard error.";
    LOG_FORMAT = "log-format", SettingKind::Choice("human|json"), "human",
        "How a log line looks.";
    SLOW_LOG = "slow-log", SettingKind::TimeOrOff, "1s",
        "Requests that take longer get a line in the log; off logs none.";
    AUDIT_LOG = "audit-log", SettingKind::Path, "",
        "The file of the audit log, or stderr: a line of JSON for each change of users, keys, grants, policies and types, and for each refused request.";
    ACCEPT_DAMAGED_JOURNAL = "accept-damaged-journal", SettingKind::Switch, "false",
        "Start although the journal is damaged, and lose the writes after the damage.";
    DRAIN_TIMEOUT = "drain-timeout", SettingKind::Time, "30s",
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
