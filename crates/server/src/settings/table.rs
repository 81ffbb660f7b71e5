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
    /// Ids with a URL each; may be empty.
    Targets,
    /// Ids with a secret each; may be empty.
    Tokens,
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
            Self::Targets => "ID=URL,...",
            Self::Tokens => "ID=TOKEN,...",
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
        "Directory for all data. Created if missing; one server at a time. With the engine cassandra it holds only the admin socket.";
    HTTP = "http", SettingKind::Listener, "127.0.0.1:8098",
        "Address of Riak's HTTP interface.";
    HTTP_ORIGINS = "http-origins", SettingKind::Origins, "",
        "Web origins whose pages may call Riak's HTTP interface from a browser, such as https://app.example.com; * allows all. Others get 403.";
    HTTP_HOSTS = "http-hosts", SettingKind::OtherHosts, "",
        "Host names that requests may use while Riak's HTTP interface listens on loopback, besides localhost, loopback addresses and the host of --http; * allows all. Others get 403.";
    PB = "pb", SettingKind::Listener, "127.0.0.1:8087",
        "Address of Riak's protocol buffers interface.";
    S3 = "s3", SettingKind::Listener, "127.0.0.1:8080",
        "Address of the S3 interface.";
    HTTPS = "https", SettingKind::Listener, "off",
        "Address of Riak's HTTP interface over TLS.";
    PB_TLS = "pb-tls", SettingKind::Listener, "off",
        "Address of Riak's protocol buffers interface over TLS from the first byte.";
    S3_HTTPS = "s3-https", SettingKind::Listener, "off",
        "Address of the S3 interface over TLS.";
    TLS_CERT = "tls-cert", SettingKind::Path, "",
        "Certificate for the TLS listeners (PEM, with its chain). Reloaded when the file changes, and at SIGHUP.";
    TLS_KEY = "tls-key", SettingKind::Path, "",
        "Private key of that certificate (PEM).";
    TLS_CLIENT_CA = "tls-client-ca", SettingKind::Path, "",
        "Certificate authorities (PEM). If set, clients of the TLS listeners must present a certificate that one of them signed.";
    TLS_CLIENT_CRL = "tls-client-crl", SettingKind::Path, "",
        "Revocation lists (PEM), one for each authority that signs a client's chain. Clients with a revoked certificate are refused, and all clients while a list is missing or expired. Reloaded like the certificate.";
    TLS_MIN = "tls-min", SettingKind::Choice("1.2|1.3"), "1.2",
        "Oldest TLS version that clients may use.";
    CONSOLE = "console", SettingKind::Listener, "127.0.0.1:8099",
        "Address of the web console. You sign in with a one-time link: the server prints one on a terminal, and kv-admin console link prints more.";
    CONSOLE_HOSTS = "console-hosts", SettingKind::OtherHosts, "",
        "Host names that requests may use while the console listens on loopback, besides localhost, loopback addresses and the host of --console; * allows all. Others get 403.";
    CONSOLE_READ_ONLY = "console-read-only", SettingKind::Switch, "false",
        "Make the console read-only.";
    METRICS = "metrics", SettingKind::Listener, "127.0.0.1:8097",
        "Address that serves /metrics, in every mode and without a log-in.";
    S3_HOST = "s3-host", SettingKind::Hosts, "s3.localhost,localhost,s3.amazonaws.com",
        "Host names of the S3 interface. A bucket name may stand in front of one (bucket.s3.localhost). The host of --s3 always counts.";
    S3_WEBSITE_HOST = "s3-website-host", SettingKind::Hosts, "s3-website.localhost",
        "Host names of the websites of S3 buckets. A bucket name may stand in front of one (bucket.s3-website.localhost); the host itself is the website of the bucket of its name.";
    S3_REGION = "s3-region", SettingKind::Name, "us-east-1",
        "Region shown to S3 clients, such as auto. Clients may sign for any region.";
    S3_ADMIN_KEY = "s3-admin-key", SettingKind::Key, "",
        "Access key of the S3 admin; created at the first start if not set. Prefer the environment variable to the flag.";
    S3_ADMIN_SECRET = "s3-admin-secret", SettingKind::Key, "",
        "Secret key of the S3 admin; set it together with --s3-admin-key.";
    S3_BUCKETS = "s3-buckets", SettingKind::Buckets, "",
        "Buckets to create at startup, owned by the S3 admin; startup fails if one cannot be created. NAME:public also lets everyone list and read the bucket, unless it has a policy.";
    S3_PUBLIC_URL = "s3-public-url", SettingKind::Url, "",
        "URL at which clients reach the S3 interface, if it is not this server's own, such as https://s3.example.com. Requests signed for this host verify even if a proxy rewrites Host; responses use this URL.";
    S3_METRICS = "s3-metrics", SettingKind::Choice("token|public"), "token",
        "Who may read /minio/v2/metrics/cluster on the S3 port: token needs the bearer token of MinIO's scrapers, signed with the admin's secret; public lets everyone read it.";
    S3_EVENT_TARGETS = "s3-event-targets", SettingKind::Targets, "",
        "Webhooks that S3 buckets may send their events to, such as PRIMARY=https://hooks.example.com/s3; the ARN of this one is arn:minio:sqs::PRIMARY:webhook. A comma in a URL is %2C.";
    S3_EVENT_TOKENS = "s3-event-tokens", SettingKind::Tokens, "",
        "Tokens that requests to these webhooks have in Authorization: a word after Bearer, or two words as they are. Prefer the environment variable to the flag.";
    S3_BUCKETS_MAX = "s3-buckets-max", SettingKind::Count(1, 1_000_000), "100",
        "Maximum S3 buckets per user; the admin has no limit.";
    S3_LIFECYCLE_INTERVAL = "s3-lifecycle-interval", SettingKind::Time, "1h",
        "How often the lifecycle rules of buckets run.";
    S3_SSEC_PLAIN = "s3-ssec-plain", SettingKind::Switch, "false",
        "Take customers' encryption keys over plain HTTP, too: for a network that nobody reads, or TLS that ends before this server.";
    ENCRYPTION_KEYS = "encryption-keys", SettingKind::Path, "",
        "File of master keys for encrypted data, one a line, 32 bytes in base64; the last one encrypts. If not set, the first encrypted write makes <data-dir>/encryption-keys; gateways of a cluster need the same file on each machine.";
    ENCRYPT_AT_REST = "encrypt-at-rest", SettingKind::Switch, "false",
        "Encrypt the values of all new rows and all new bodies under the master keys; names of buckets, keys, index terms and elements stay readable. Older data stays as it is and is read either way. On every gateway of a cluster alike, with --encryption-keys.";
    ADMIN_SOCKET = "admin-socket", SettingKind::Path, "<data-dir>/admin.sock",
        "Unix socket for kv-admin. Only the server's own user may open it.";
    ENGINE = "engine", SettingKind::Choice("local|memory|cassandra"), "local",
        "Where data is stored: local is an embedded engine, memory loses everything at exit, cassandra is a cluster of Cassandra or ScyllaDB.";
    CASSANDRA = "cassandra", SettingKind::Nodes, "",
        "Nodes of the cluster to contact first (port 9042 by default); the others are discovered from them.";
    CASSANDRA_KEYSPACE = "cassandra-keyspace", SettingKind::Name, "larder",
        "Prefix of the keyspaces in the cluster; _n and the number of copies follow it.";
    CASSANDRA_DATACENTER = "cassandra-datacenter", SettingKind::Name, "",
        "Datacenter of this gateway, if the cluster has several.";
    CASSANDRA_DATACENTERS = "cassandra-datacenters", SettingKind::Names, "",
        "All datacenters that keep copies, n_val in each. Only the local one if not set.";
    CASSANDRA_USER = "cassandra-user", SettingKind::Name, "",
        "User name for the cluster, if it requires one.";
    CASSANDRA_PASSWORD_FILE = "cassandra-password-file", SettingKind::Path, "",
        "File with this user's password on its first line.";
    CASSANDRA_TLS_CA = "cassandra-tls-ca", SettingKind::Path, "",
        "Certificate authorities (PEM) of the nodes. If set, connections to the cluster are encrypted.";
    CASSANDRA_TLS_CERT = "cassandra-tls-cert", SettingKind::Path, "",
        "Client certificate (PEM) of this gateway, if the cluster requires one.";
    CASSANDRA_TLS_KEY = "cassandra-tls-key", SettingKind::Path, "",
        "Private key of that certificate (PEM).";
    DURABILITY = "durability", SettingKind::Choice("disk|buffered"), "disk",
        "When a write is acknowledged: disk waits until it is on disk; buffered does not, so a power cut may lose the last moments. On Cassandra its commitlog_sync decides.";
    NODE_NAME = "node-name", SettingKind::Name, "larder@127.0.0.1",
        "Name of this node in /stats, status and as claimant. With cassandra the default is larder@, the machine's name and the port, so that each gateway has its own.";
    MEMORY = "memory", SettingKind::Size, "",
        "Memory limit for caches, memtables and request buffers; a quarter of the machine's or container's memory if not set. When it is used up, requests wait a few seconds and then get 503.";
    CACHE_SIZE = "cache-size", SettingKind::Size, "256MiB",
        "Maximum size of the engine's cache, at most a quarter of --memory. It grows as data is read.";
    OBJECT_SIZE_MAX = "object-size-max", SettingKind::Size, "50MiB",
        "Maximum size of an object's body; larger ones get 413.";
    SIBLINGS_MAX = "siblings-max", SettingKind::Count(1, larder_rows::limits::SIBLINGS_MAX as u64), "100",
        "Maximum siblings per key; a write that would add one more gets 409.";
    INDEX_SHARD_ROWS = "index-shard-rows", SettingKind::Count(0, 1_000_000_000), "",
        "When an index shard exceeds this many rows, the bucket's shard count quadruples (up to 255). 0 disables. If not set: 1000000 with cassandra, 0 with the other engines, whose indexes are one tree.";
    DELETE_MODE = "delete-mode", SettingKind::Delete, "3s",
        "How long a deleted object's tombstone is kept: keep (forever), immediate, or a duration.";
    REQUEST_TIMEOUT = "request-timeout", SettingKind::Time, "60s",
        "Timeout of requests that name none themselves.";
    CONNECTIONS_MAX = "connections-max", SettingKind::Count(1, 1_000_000), "10000",
        "Maximum open connections across all listeners; one listener may use three quarters of them, one client address half. Further ones get 503 and are closed. A lower limit of open files (ulimit -Hn) lowers it.";
    PROXY = "proxy", SettingKind::Networks, "",
        "Addresses and networks of trusted proxies. Their PROXY headers, X-Forwarded-For and X-Forwarded-Proto identify the client, and X-Forwarded-Host the host that it asked S3 for.";
    JS_DIR = "js-dir", SettingKind::Path, "",
        "Directory of JavaScript modules (*.js) for commit hooks and MapReduce. Reloaded when a file changes, and by `kv-admin js-reload`.";
    JS_WORKERS = "js-workers", SettingKind::Count(1, 64), "2",
        "Maximum processes that run functions of these modules, and as many again for functions sent by clients. One bucket, user or address may use all but one of them.";
    JS_TIMEOUT = "js-timeout", SettingKind::Time, "5s",
        "Time limit of a script call; its process is killed then.";
    JS_MEMORY = "js-memory", SettingKind::Size, "128MiB",
        "Memory limit of one script.";
    WEBHOOK_HOSTS = "webhook-hosts", SettingKind::Nodes, "",
        "Hosts that webhooks may call (port 80 by default; name the port of https, too). None if not set, so that no client can make the server call another machine.";
    WEBHOOK_CA = "webhook-ca", SettingKind::Path, "",
        "Certificate authorities (PEM) of webhooks, event targets and sources of moves with https; those of the system if not set.";
    SWEEP_INTERVAL = "sweep-interval", SettingKind::Time, "15m",
        "How often leftovers of failed operations are removed; the first run is at most a minute after startup.";
    THREADS = "threads", SettingKind::Count(0, 1024), "0",
        "Number of threads that serve requests. 0 uses one per core, and at least four with an embedded engine.";
    LOG_LEVEL = "log-level", SettingKind::Choice("error|warn|info|debug|trace"), "info",
        "Log level on standard error.";
    LOG_FORMAT = "log-format", SettingKind::Choice("human|json"), "human",
        "Log format.";
    SLOW_LOG = "slow-log", SettingKind::TimeOrOff, "1s",
        "Log requests that take longer than this; off logs none.";
    AUDIT_LOG = "audit-log", SettingKind::Path, "",
        "File of the audit log, or stderr: one line of JSON per change of users, keys, grants, policies and types, and per refused request.";
    ACCEPT_DAMAGED_JOURNAL = "accept-damaged-journal", SettingKind::Switch, "false",
        "Start even though the journal is damaged, and lose the writes after the damage.";
    DRAIN_TIMEOUT = "drain-timeout", SettingKind::Time, "30s",
        "How long running requests may take to finish at shutdown.";
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
