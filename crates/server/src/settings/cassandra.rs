//! The settings of the cluster: its nodes, and this gateway's identity there.

use std::path::PathBuf;

use larder_store_cassandra::{Replication, TlsOptions};

use super::raw::RawSettings;
use super::table::{self, Setting};
use super::{EngineKind, SettingError, choice_word, parse};

/// The settings of the engine `cassandra`, checked against each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CassandraSettings {
    /// Contact points, each `host:port`; at least one.
    pub nodes: Vec<String>,
    /// The prefix of the keyspaces' names.
    pub keyspace: String,
    /// The placement of the copies.
    pub replication: Replication,
    /// A user's name, and the file with the password.
    pub login: Option<(String, PathBuf)>,
    /// Encryption.
    pub tls: Option<TlsOptions>,
}

/// The settings of this engine alone.
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

impl CassandraSettings {
    /// Resolves the settings; `None` with another engine.
    ///
    /// # Errors
    /// A setting is invalid, missing, or given with another engine.
    pub(super) fn resolve(raw: &RawSettings, engine: EngineKind) -> Result<Option<Self>, SettingError> {
        if engine != EngineKind::Cassandra {
            return match OWN.iter().find_map(|setting| raw.given_as(setting)) {
                None => Ok(None),
                Some(given) => Err(SettingError::new(format!(
                    "{given} is given, but the engine is {}: it goes with {} cassandra",
                    choice_word(&engine),
                    table::ENGINE.flag()
                ))),
            };
        }
        let nodes = raw.value(&table::CASSANDRA, parse::nodes)?;
        if nodes.is_empty() {
            return Err(SettingError::new(format!(
                "the engine is cassandra, but nobody says where the cluster is: give a node or more, such as {} 127.0.0.1:9042",
                table::CASSANDRA.flag()
            )));
        }
        Ok(Some(Self {
            nodes,
            keyspace: raw.value(&table::CASSANDRA_KEYSPACE, parse::keyspace)?,
            replication: replication(raw)?,
            login: login(raw)?,
            tls: tls(raw)?,
        }))
    }
}

fn replication(raw: &RawSettings) -> Result<Replication, SettingError> {
    let (local_setting, every) = (&table::CASSANDRA_DATACENTER, &table::CASSANDRA_DATACENTERS);
    let local = raw.value(local_setting, parse::optional_name)?;
    let mut all = raw.value(every, parse::names)?;
    let Some(local) = local else {
        return if all.is_empty() { Ok(Replication::Simple) } else { Err(missing(every, local_setting)) };
    };
    if all.is_empty() {
        all.push(local.clone());
    }
    if !all.contains(&local) {
        return Err(SettingError::new(format!(
            "{} is {local:?}, which is not among {}",
            local_setting.name, every.name
        )));
    }
    Ok(Replication::Datacenters { local, all })
}

fn login(raw: &RawSettings) -> Result<Option<(String, PathBuf)>, SettingError> {
    let (user, password) = (&table::CASSANDRA_USER, &table::CASSANDRA_PASSWORD_FILE);
    match (raw.value(user, parse::optional_name)?, raw.value(password, parse::optional_path)?) {
        (Some(name), Some(file)) => Ok(Some((name, file))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(missing(user, password)),
        (None, Some(_)) => Err(missing(password, user)),
    }
}

fn tls(raw: &RawSettings) -> Result<Option<TlsOptions>, SettingError> {
    let (ca, cert, key) = (&table::CASSANDRA_TLS_CA, &table::CASSANDRA_TLS_CERT, &table::CASSANDRA_TLS_KEY);
    let path = |setting| raw.value(setting, parse::optional_path);
    let identity = match (path(cert)?, path(key)?) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) => return Err(missing(cert, key)),
        (None, Some(_)) => return Err(missing(key, cert)),
    };
    match path(ca)? {
        Some(ca) => Ok(Some(TlsOptions { ca, identity })),
        None if identity.is_none() => Ok(None),
        None => Err(missing(cert, ca)),
    }
}

fn missing(given: &Setting, needed: &Setting) -> SettingError {
    SettingError::new(format!("{} needs {}, which is missing", given.name, needed.name))
}
