//! The rules of requests: who may come from where, and may do what. They are made from the stored rows, and change whole.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use larder_rows::Timestamp;
use larder_rows::codec::DecodeError;
use larder_rows::ip_network::IpNetwork;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::SecurityRefusal;
use super::permission::{AccessScope, GrantLookup, KvPermission};
use super::record::{RoleRecord, SecurityKey, SecuritySettings};

/// Whether a role is a user or a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleKind {
    /// A user.
    User,
    /// A group.
    Group,
}

/// A user or group, with the number of the change that last wrote it.
#[derive(Debug, Clone)]
pub struct RoleEntry {
    /// Its record.
    pub record: Arc<RoleRecord>,
    /// The number.
    pub number: Timestamp,
}

/// The rules of requests.
#[derive(Debug, Default)]
pub struct AccessRules {
    settings: (Timestamp, SecuritySettings),
    all: Option<RoleEntry>,
    users: BTreeMap<String, RoleEntry>,
    groups: BTreeMap<String, RoleEntry>,
    lookups: HashMap<String, UserLookups>,
}

/// The lookups of a user: of its own grants, of its groups' and of `all`.
type UserLookups = Vec<Arc<GrantLookup>>;

impl AccessRules {
    /// The rules in these rows, each with the number of the change that wrote it.
    ///
    /// # Errors
    /// [`DecodeError`] for a row that does not hold what it should.
    pub fn from_rows(rows: Vec<(SecurityKey, Timestamp, Value)>) -> Result<Self, DecodeError> {
        let mut rules = Self::default();
        for (key, number, json) in rows {
            rules.put(key, number, json)?;
        }
        rules.lookups = rules.make_lookups();
        Ok(rules)
    }

    /// The rules after a change of this number.
    ///
    /// # Errors
    /// As [`Self::from_rows`].
    pub fn changed(
        &self,
        number: Timestamp,
        edits: impl IntoIterator<Item = (SecurityKey, Option<Value>)>,
    ) -> Result<Self, DecodeError> {
        let mut rules = Self {
            settings: self.settings.clone(),
            all: self.all.clone(),
            users: self.users.clone(),
            groups: self.groups.clone(),
            lookups: HashMap::new(),
        };
        for (key, json) in edits {
            match (key, json) {
                (key, Some(json)) => rules.put(key, number, json)?,
                (SecurityKey::Settings, None) => rules.settings = Default::default(),
                (SecurityKey::All, None) => rules.all = None,
                (SecurityKey::User(name), None) => drop(rules.users.remove(&name)),
                (SecurityKey::Group(name), None) => drop(rules.groups.remove(&name)),
            }
        }
        rules.lookups = rules.make_lookups();
        Ok(rules)
    }

    /// Whether these rows, by key and number, are the ones that the rules were made of.
    #[must_use]
    pub fn rows_hold<'a>(&self, rows: impl ExactSizeIterator<Item = (&'a SecurityKey, Timestamp)>) -> bool {
        let (number, settings) = &self.settings;
        let single_rows = usize::from(*number != Timestamp::ZERO) + usize::from(self.all.is_some());
        let of = |entry: Option<&RoleEntry>| entry.map(|entry| entry.number);
        debug_assert!(*number != Timestamp::ZERO || *settings == SecuritySettings::default());
        single_rows + self.users.len() + self.groups.len() == rows.len()
            && rows.into_iter().all(|(key, stamp)| {
                Some(stamp)
                    == match key {
                        SecurityKey::Settings => Some(*number),
                        SecurityKey::All => of(self.all.as_ref()),
                        SecurityKey::User(name) => of(self.users.get(name)),
                        SecurityKey::Group(name) => of(self.groups.get(name)),
                    }
            })
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &SecuritySettings {
        &self.settings.1
    }

    /// The grants and sources of every user.
    #[must_use]
    pub fn all(&self) -> Arc<RoleRecord> {
        self.all.as_ref().map(|entry| Arc::clone(&entry.record)).unwrap_or_default()
    }

    /// The users by name, in order.
    #[must_use]
    pub fn users(&self) -> &BTreeMap<String, RoleEntry> {
        &self.users
    }

    /// The groups by name, in order.
    #[must_use]
    pub fn groups(&self) -> &BTreeMap<String, RoleEntry> {
        &self.groups
    }

    /// The source that decides about a user who comes from this address: of the longest mask, and a user's own before that of
    /// all. `None`: the user may not come from there.
    #[must_use]
    pub fn user_source(&self, user: &RoleEntry, address: IpAddr) -> Option<AccessSource> {
        let all = self.all.as_ref().map(|entry| entry.record.sources.as_slice()).unwrap_or_default();
        let user_sources = user.record.sources.iter().map(|source| (source, true));
        let sources = user_sources.chain(all.iter().map(|source| (source, false)));
        let here = sources.filter(|(source, _)| source.network.contains(address));
        here.max_by_key(|(source, is_own)| (source.network.bits(), *is_own)).map(|(source, _)| source.clone())
    }

    /// Whether a user has the permission on this scope. A user that does not exist has none.
    #[must_use]
    pub fn is_permitted(&self, user: &str, permission: KvPermission, scope: AccessScope<'_>) -> bool {
        self.lookups.get(user).is_some_and(|lookups| lookups.iter().any(|lookup| lookup.has(permission, scope)))
    }

    /// The groups that a role is in, also through other groups, in the order in which they are found.
    #[must_use]
    pub fn effective_groups(&self, record: &RoleRecord) -> Vec<&str> {
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        let mut next: Vec<&String> = record.groups.iter().rev().collect();
        while let Some(name) = next.pop() {
            // A group that is in itself through others ends here.
            if let Some((name, group)) = self.groups.get_key_value(name)
                && seen.insert(name.as_str())
            {
                names.push(name.as_str());
                next.extend(group.record.groups.iter().rev());
            }
        }
        names
    }

    fn put(&mut self, key: SecurityKey, number: Timestamp, json: Value) -> Result<(), DecodeError> {
        let record = |json| serde_json::from_value(json).map_err(|_| DecodeError::Invalid("security row"));
        let entry = |json| Ok(RoleEntry { record: Arc::new(record(json)?), number });
        match key {
            SecurityKey::Settings => {
                let settings = serde_json::from_value(json).map_err(|_| DecodeError::Invalid("security settings"))?;
                self.settings = (number, settings);
            }
            SecurityKey::All => self.all = Some(entry(json)?),
            SecurityKey::User(name) => drop(self.users.insert(name, entry(json)?)),
            SecurityKey::Group(name) => drop(self.groups.insert(name, entry(json)?)),
        }
        Ok(())
    }

    fn make_lookups(&self) -> HashMap<String, UserLookups> {
        let of = |entry: &RoleEntry| Arc::new(GrantLookup::new(&entry.record.grants));
        let groups: HashMap<&str, Arc<GrantLookup>> =
            self.groups.iter().map(|(name, group)| (&**name, of(group))).collect();
        let all = self.all.as_ref().map(of);
        let of_user = |(name, user): (&String, &RoleEntry)| {
            let inherited =
                self.effective_groups(&user.record).into_iter().filter_map(|group| groups.get(group).cloned());
            (name.clone(), std::iter::once(of(user)).chain(inherited).chain(all.clone()).collect())
        };
        self.users.iter().map(of_user).collect()
    }
}

/// How a user proves to be it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceMethod {
    /// By its address alone.
    Trust,
    /// By its password.
    Password,
    /// By a certificate whose common name is its name.
    Certificate,
}

impl SourceMethod {
    const ALL: [Self; 3] = [Self::Trust, Self::Password, Self::Certificate];

    /// Its word in the commands.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Trust => "trust",
            Self::Password => "password",
            Self::Certificate => "certificate",
        }
    }

    /// The method of this word.
    ///
    /// # Errors
    /// [`SecurityRefusal::PamSource`], [`SecurityRefusal::UnknownSource`].
    pub fn parse(word: &str) -> Result<Self, SecurityRefusal> {
        match Self::ALL.into_iter().find(|method| method.word() == word) {
            Some(method) => Ok(method),
            None if word == "pam" => Err(SecurityRefusal::PamSource),
            None => Err(SecurityRefusal::UnknownSource(word.to_owned())),
        }
    }
}

/// A network, and the method of those who come from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredSource", into = "StoredSource")]
pub struct AccessSource {
    /// The network.
    pub network: IpNetwork,
    /// The method.
    pub method: SourceMethod,
    /// Options that an operator wrote; they have no effect.
    pub options: Map<String, Value>,
}

/// The stored form.
#[derive(Serialize, Deserialize)]
struct StoredSource {
    cidr: String,
    source: String,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    options: Map<String, Value>,
}

impl TryFrom<StoredSource> for AccessSource {
    type Error = SecurityRefusal;

    fn try_from(stored: StoredSource) -> Result<Self, SecurityRefusal> {
        let network = parse_network(&stored.cidr)?;
        Ok(Self { network, method: SourceMethod::parse(&stored.source)?, options: stored.options })
    }
}

impl From<AccessSource> for StoredSource {
    fn from(source: AccessSource) -> Self {
        Self { cidr: source.network.to_string(), source: source.method.word().to_owned(), options: source.options }
    }
}

/// The network in an argument.
///
/// # Errors
/// [`SecurityRefusal::BadNetwork`].
pub(super) fn parse_network(text: &str) -> Result<IpNetwork, SecurityRefusal> {
    IpNetwork::parse(text).ok_or_else(|| SecurityRefusal::BadNetwork(text.to_owned()))
}

#[cfg(test)]
mod tests;
