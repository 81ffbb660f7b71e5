//! The changes that operators make: each checks its arguments against the rules, and gives the rows that change.

use larder_rows::limits::{ROLE_LIST_MAX, ROLES_MAX};
use serde_json::{Value, json};

use super::SecurityRefusal as Refusal;
use super::permission::PermissionSet;
use super::record::{
    ALL, GrantTarget, RoleGrant, RoleOptions, RoleRecord, SecurityKey, SecuritySettings, folded, list, parse_name,
};
use super::rules::{AccessRules, AccessSource, RoleEntry, RoleKind, SourceMethod, parse_network};

/// The rows that change: `None` removes one.
pub type SecurityEdit = Vec<(SecurityKey, Option<Value>)>;

/// Whether permissions are given or taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantChange {
    /// Given.
    Grant,
    /// Taken.
    Revoke,
}

impl AccessRules {
    /// Adds a user or group; `hashed`: the stored form of the password in its options.
    ///
    /// # Errors
    /// The name is taken or no name, a group does not exist, or there are too many.
    pub fn add_role(
        &self,
        kind: RoleKind,
        name: &str,
        options: RoleOptions,
        hashed: Option<String>,
    ) -> Result<SecurityEdit, Refusal> {
        let name = parse_name(name)?;
        if self.role(kind, &name).is_some() {
            return Err(Refusal::NameInUse);
        }
        if self.users().len() + self.groups().len() >= ROLES_MAX {
            return Err(Refusal::TooMany { things: "users and groups", max: ROLES_MAX });
        }
        let record = self.with_options(kind, RoleRecord::default(), options, hashed)?;
        Ok(vec![(key(kind, name), Some(value(&record)))])
    }

    /// Changes options of a user or group. Given groups replace the ones it had.
    ///
    /// # Errors
    /// It does not exist, or a group does not.
    pub fn alter_role(
        &self,
        kind: RoleKind,
        name: &str,
        options: RoleOptions,
        hashed: Option<String>,
    ) -> Result<SecurityEdit, Refusal> {
        let (name, entry) = self.existing(kind, name)?;
        let record = self.with_options(kind, (*entry.record).clone(), options, hashed)?;
        Ok(vec![(key(kind, name), Some(value(&record)))])
    }

    /// Removes a user or group with its grants and sources. No role is in a removed group any more.
    ///
    /// # Errors
    /// It does not exist.
    pub fn delete_role(&self, kind: RoleKind, name: &str) -> Result<SecurityEdit, Refusal> {
        let (name, _) = self.existing(kind, name)?;
        let mut edit = Vec::new();
        if kind == RoleKind::Group {
            // A later group of this name must not have the members of this one.
            let users = self.users().iter().map(|(user, entry)| (SecurityKey::User(user.clone()), entry));
            let groups = self.groups().iter().filter(|(group, _)| **group != name);
            let roles = users.chain(groups.map(|(group, entry)| (SecurityKey::Group(group.clone()), entry)));
            for (key, entry) in roles.filter(|(_, entry)| entry.record.groups.contains(&name)) {
                let mut record = (*entry.record).clone();
                record.groups.retain(|group| *group != name);
                edit.push((key, Some(value(&record))));
            }
        }
        edit.push((key(kind, name), None));
        Ok(edit)
    }

    /// Adds a source of users, or of all; one of the same network is replaced.
    ///
    /// # Errors
    /// A user does not exist, or network, method or option is none.
    pub fn add_source(&self, users: &str, cidr: &str, method: &str, options: &[&str]) -> Result<SecurityEdit, Refusal> {
        let (network, method) = (parse_network(cidr)?, SourceMethod::parse(method)?);
        let options = RoleOptions::parse(options)?;
        let given = options.others.into_iter().map(|(key, value)| (key, Value::String(value)));
        let source = AccessSource { network, method, options: given.collect() };
        self.for_sources(users, |record| {
            record.sources.retain(|known| known.network != network);
            record.sources.push(source.clone());
            bounded("sources", record.sources.len())
        })
    }

    /// Removes the sources of this network of users, or of all; there may be none.
    ///
    /// # Errors
    /// A user does not exist, or the network is none.
    pub fn delete_source(&self, users: &str, cidr: &str) -> Result<SecurityEdit, Refusal> {
        let network = parse_network(cidr)?;
        self.for_sources(users, |record| {
            record.sources.retain(|source| source.network != network);
            Ok(())
        })
    }

    /// Gives or takes permissions of roles: names with commas, each with `user/` or `group/` before it where both exist.
    ///
    /// # Errors
    /// A permission or a role does not exist, or a name means two roles.
    pub fn change_grants(
        &self,
        change: GrantChange,
        permissions: &str,
        target: &GrantTarget,
        roles: &str,
    ) -> Result<SecurityEdit, Refusal> {
        let set = PermissionSet::parse(permissions.split(',').filter(|name| !name.is_empty()))?;
        let mut edit = Vec::new();
        for key in self.resolve_roles(roles)? {
            let mut record = self.record(&key);
            change_grant(&mut record.grants, change, target, set);
            bounded("grants of a role", record.grants.len())?;
            edit.push((key, Some(value(&record))));
        }
        Ok(edit)
    }

    /// Switches security on or off.
    #[must_use]
    pub fn set_enabled(&self, enabled: bool) -> SecurityEdit {
        self.with_settings(SecuritySettings { enabled, ..self.settings().clone() })
    }

    /// Sets the list of ciphers.
    #[must_use]
    pub fn set_ciphers(&self, ciphers: &str) -> SecurityEdit {
        self.with_settings(SecuritySettings { ciphers: Some(ciphers.to_owned()), ..self.settings().clone() })
    }

    /// The one role that a text names: `u`, `user/u`, `group/g` or `all`.
    ///
    /// # Errors
    /// [`Refusal::UnknownName`], [`Refusal::AmbiguousNames`].
    pub fn resolve_role(&self, text: &str) -> Result<SecurityKey, Refusal> {
        let name = folded(text);
        match self.meanings(&name).as_slice() {
            [] => Err(Refusal::UnknownName(name)),
            [key] => Ok(key.clone()),
            _ => Err(Refusal::AmbiguousNames(name)),
        }
    }

    /// The record of a role that exists; an empty one otherwise.
    #[must_use]
    pub fn record(&self, key: &SecurityKey) -> RoleRecord {
        match key {
            SecurityKey::User(name) => self.users().get(name).map(|entry| (*entry.record).clone()).unwrap_or_default(),
            SecurityKey::Group(name) => {
                self.groups().get(name).map(|entry| (*entry.record).clone()).unwrap_or_default()
            }
            SecurityKey::All => (*self.all()).clone(),
            SecurityKey::Settings => RoleRecord::default(),
        }
    }

    /// A user or group.
    #[must_use]
    pub fn role(&self, kind: RoleKind, name: &str) -> Option<&RoleEntry> {
        match kind {
            RoleKind::User => self.users().get(name),
            RoleKind::Group => self.groups().get(name),
        }
    }

    /// The name in lower case and the entry of a user or group that exists.
    ///
    /// # Errors
    /// [`Refusal::UnknownUser`], [`Refusal::UnknownGroup`].
    pub fn existing(&self, kind: RoleKind, name: &str) -> Result<(String, &RoleEntry), Refusal> {
        let name = folded(name);
        match (self.role(kind, &name), kind) {
            (Some(entry), _) => Ok((name, entry)),
            (None, RoleKind::User) => Err(Refusal::UnknownUser(name)),
            (None, RoleKind::Group) => Err(Refusal::UnknownGroup(name)),
        }
    }

    fn with_options(
        &self,
        kind: RoleKind,
        mut record: RoleRecord,
        options: RoleOptions,
        hashed: Option<String>,
    ) -> Result<RoleRecord, Refusal> {
        if let Some(groups) = options.groups {
            let unknown: Vec<&str> =
                groups.iter().map(String::as_str).filter(|g| !self.groups().contains_key(*g)).collect();
            if !unknown.is_empty() {
                return Err(Refusal::UnknownGroups(unknown.join(",")));
            }
            bounded("groups of a role", groups.len())?;
            record.groups = groups;
        }
        if kind == RoleKind::User {
            record.password = hashed.or(record.password);
        }
        record.options.extend(options.others.into_iter().map(|(key, value)| (key, Value::String(value))));
        bounded("options", record.options.len())?;
        Ok(record)
    }

    fn for_sources(
        &self,
        users: &str,
        change: impl Fn(&mut RoleRecord) -> Result<(), Refusal>,
    ) -> Result<SecurityEdit, Refusal> {
        let names = list(users);
        let keys: Vec<SecurityKey> = if names.iter().any(|name| name == ALL) {
            vec![SecurityKey::All]
        } else {
            let unknown: Vec<&str> =
                names.iter().map(String::as_str).filter(|u| !self.users().contains_key(*u)).collect();
            if !unknown.is_empty() || names.is_empty() {
                return Err(Refusal::UnknownUsers(unknown.join(",")));
            }
            names.into_iter().map(SecurityKey::User).collect()
        };
        let changed = keys.into_iter().map(|key| {
            let mut record = self.record(&key);
            change(&mut record)?;
            Ok((key, Some(value(&record))))
        });
        changed.collect()
    }

    /// The roles that a list names.
    fn resolve_roles(&self, roles: &str) -> Result<Vec<SecurityKey>, Refusal> {
        let (mut keys, mut unknown, mut ambiguous) = (Vec::new(), Vec::new(), Vec::new());
        for name in list(roles) {
            match self.meanings(&name).as_slice() {
                [] => unknown.push(name),
                [key] if keys.contains(key) => {}
                [key] => keys.push(key.clone()),
                _ => ambiguous.push(name),
            }
        }
        if !unknown.is_empty() || (keys.is_empty() && ambiguous.is_empty()) {
            return Err(Refusal::UnknownNames(unknown.join(",")));
        }
        if ambiguous.is_empty() { Ok(keys) } else { Err(Refusal::AmbiguousNames(ambiguous.join(","))) }
    }

    fn meanings(&self, name: &str) -> Vec<SecurityKey> {
        let user = |name: &str| self.users().contains_key(name).then(|| SecurityKey::User(name.to_owned()));
        let group = |name: &str| self.groups().contains_key(name).then(|| SecurityKey::Group(name.to_owned()));
        if name == ALL {
            return vec![SecurityKey::All];
        }
        let prefixed =
            name.strip_prefix("user/").and_then(user).or_else(|| name.strip_prefix("group/").and_then(group));
        prefixed.map_or_else(|| user(name).into_iter().chain(group(name)).collect(), |key| vec![key])
    }

    fn with_settings(&self, settings: SecuritySettings) -> SecurityEdit {
        vec![(SecurityKey::Settings, Some(json!(settings)))]
    }
}

fn change_grant(grants: &mut Vec<RoleGrant>, change: GrantChange, target: &GrantTarget, set: PermissionSet) {
    let before = grants.iter().position(|grant| grant.target == *target);
    let held = before.map(|at| grants.remove(at).permissions).unwrap_or_default();
    let permissions = match change {
        GrantChange::Grant => held.with(set),
        GrantChange::Revoke => held.without(set),
    };
    if !permissions.is_empty() {
        grants.push(RoleGrant { target: target.clone(), permissions });
        grants.sort_by(|a, b| a.target.cmp(&b.target));
    }
}

fn bounded(things: &'static str, count: usize) -> Result<(), Refusal> {
    if count > ROLE_LIST_MAX { Err(Refusal::TooMany { things, max: ROLE_LIST_MAX }) } else { Ok(()) }
}

fn key(kind: RoleKind, name: String) -> SecurityKey {
    match kind {
        RoleKind::User => SecurityKey::User(name),
        RoleKind::Group => SecurityKey::Group(name),
    }
}

fn value(record: &RoleRecord) -> Value {
    json!(record)
}

/// The reason why a command about users, groups, sources or grants is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecurityRefusal {
    /// A user or group of this name exists.
    #[error("This name is already in use")]
    NameInUse,
    /// The name is a word of the commands.
    #[error("This name is reserved for system use")]
    ReservedName,
    /// The name is empty, too long, or has a character that names must not have.
    #[error("Illegal character(s) in name")]
    IllegalName,
    /// An argument is no option.
    #[error("Invalid option \"{0}\", options are of the form key=value")]
    BadOption(String),
    /// Groups that do not exist.
    #[error("Group(s) not recognized: {0}")]
    UnknownGroups(String),
    /// A user that does not exist.
    #[error("User not recognized: {0}")]
    UnknownUser(String),
    /// Users that do not exist.
    #[error("User(s) not recognized: {0}")]
    UnknownUsers(String),
    /// A group that does not exist.
    #[error("Group not recognized: {0}")]
    UnknownGroup(String),
    /// A user or group that does not exist.
    #[error("Name not recognized: {0}")]
    UnknownName(String),
    /// Users or groups that do not exist.
    #[error("Name(s) not recognized: {0}")]
    UnknownNames(String),
    /// Names that both a user and a group have.
    #[error("Ambiguous names need to be prefixed with 'user/' or 'group/': {0}")]
    AmbiguousNames(String),
    /// A permission that does not exist.
    #[error("Permission not recognized: {0}")]
    UnknownPermission(String),
    /// Authentication by PAM, which there is none of.
    #[error("The source pam is not supported: sources are trust, password and certificate")]
    PamSource,
    /// A source that does not exist.
    #[error("Invalid source {0}: sources are trust, password and certificate")]
    UnknownSource(String),
    /// A text that is no network.
    #[error("Invalid CIDR {0}: a network is an address and a number of bits, such as 127.0.0.1/32")]
    BadNetwork(String),
    /// The users, groups, grants, sources or options would be more than this.
    #[error("There may be at most {max} {things}")]
    TooMany {
        /// Their name.
        things: &'static str,
        /// The bound.
        max: usize,
    },
    /// A text is longer than this many bytes.
    #[error("The {0} is longer than {1} bytes")]
    TooLong(&'static str, usize),
    /// No cipher of a list exists here.
    #[error("No known or supported ciphers in list.")]
    NoCipher,
}
