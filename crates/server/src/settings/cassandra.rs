//! Where the cluster is, and who this gateway is there.

use std::path::PathBuf;

use super::raw::Raw;
use super::table::{self, Setting};
use super::{Engine, SettingError, text};

/// The settings of the engine `cassandra`, checked against each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cassandra {
    /// Nodes to ask first, each `host:port`; at least one.
    pub nodes: Vec<String>,
    /// Beginning of the keyspaces' names.
    pub keyspace: String,
    /// Datacenters, where they are named.
    pub datacenters: Option<Datacenters>,
    /// A user's name, and the file with the password.
    pub login: Option<(String, PathBuf)>,
    /// Encryption.
    pub tls: Option<Tls>,
}

/// Which datacenters keep copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datacenters {
    /// The one this gateway is in.
    pub local: String,
    /// All, the local one among them.
    pub all: Vec<String>,
}

/// Whom to trust, and how to prove who this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Certificates of those who sign.
    pub ca: PathBuf,
    /// Own certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// What means something with this engine alone.
static OWN: [&Setting; 9] = [
    &table::CASSANDRA,
    &table::CASSANDRA_KEYSPACE,
    &table::CASSANDRA_DATACENTER,
    &table::CASSANDRA_DATACENTERS,
    &table::CASSANDRA_USER,
    &table::CASSANDRA_PASSWORD_FILE,
    &table::CASSANDRA_TLS_CA,
    &table::CASSANDRA_TLS_CERT,
    &table::CASSANDRA_TLS_KEY,
];

impl Cassandra {
    /// Reads them; `None` with another engine.
    ///
    /// # Errors
    /// One that does not hold, is missing, or is given although another engine is.
    pub(super) fn resolve(raw: &Raw, engine: Engine) -> Result<Option<Self>, SettingError> {
        if engine != Engine::Cassandra {
            return match OWN.iter().find_map(|setting| raw.given_as(setting)) {
                None => Ok(None),
                Some(given) => Err(SettingError::new(format!(
                    "{given} is given, but the engine is {}: it goes with {} cassandra",
                    engine.name(),
                    table::ENGINE.flag()
                ))),
            };
        }
        let nodes = raw.value(&table::CASSANDRA, text::nodes)?;
        if nodes.is_empty() {
            return Err(SettingError::new(format!(
                "the engine is cassandra, but nobody says where the cluster is: give a node or more, such as {} 127.0.0.1:9042",
                table::CASSANDRA.flag()
            )));
        }
        Ok(Some(Self {
            nodes,
            keyspace: raw.value(&table::CASSANDRA_KEYSPACE, text::keyspace)?,
            datacenters: datacenters(raw)?,
            login: login(raw)?,
            tls: tls(raw)?,
        }))
    }
}

fn datacenters(raw: &Raw) -> Result<Option<Datacenters>, SettingError> {
    let (own, every) = (&table::CASSANDRA_DATACENTER, &table::CASSANDRA_DATACENTERS);
    let local = raw.value(own, text::optional_name)?;
    let mut all = raw.value(every, text::names)?;
    let Some(local) = local else {
        return if all.is_empty() { Ok(None) } else { Err(missing(every, own)) };
    };
    if all.is_empty() {
        all.push(local.clone());
    }
    if !all.contains(&local) {
        return Err(SettingError::new(format!("{} is {local:?}, which is not among {}", own.name, every.name)));
    }
    Ok(Some(Datacenters { local, all }))
}

fn login(raw: &Raw) -> Result<Option<(String, PathBuf)>, SettingError> {
    let (user, password) = (&table::CASSANDRA_USER, &table::CASSANDRA_PASSWORD_FILE);
    match (raw.value(user, text::optional_name)?, raw.value(password, text::optional_path)?) {
        (Some(name), Some(file)) => Ok(Some((name, file))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(missing(user, password)),
        (None, Some(_)) => Err(missing(password, user)),
    }
}

fn tls(raw: &Raw) -> Result<Option<Tls>, SettingError> {
    let (ca, cert, key) = (&table::CASSANDRA_TLS_CA, &table::CASSANDRA_TLS_CERT, &table::CASSANDRA_TLS_KEY);
    let path = |setting| raw.value(setting, text::optional_path);
    let identity = match (path(cert)?, path(key)?) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) => return Err(missing(cert, key)),
        (None, Some(_)) => return Err(missing(key, cert)),
    };
    match path(ca)? {
        Some(ca) => Ok(Some(Tls { ca, identity })),
        None if identity.is_none() => Ok(None),
        None => Err(missing(cert, ca)),
    }
}

fn missing(given: &Setting, needed: &Setting) -> SettingError {
    SettingError::new(format!("{} needs {}, which is missing", given.name, needed.name))
}
