//! Making the users of another S3 store here, with their keys, policies and groups.
//!
//! A user is made disabled, and takes requests once everything that limits it is here: no moment and no failure gives it more rights
//! than it had.

use std::collections::{BTreeMap, BTreeSet};

use larder_s3::users::{AttachmentChange, NewKey, NewUser, PolicyHolder, UserChange, Users};
use larder_s3::{Error, Result};
use larder_s3_rules::KeyLimits;
use larder_s3_rules::user::parse_expiry;
use serde_json::Value;

use crate::rules::{SourceGroup, SourceKey, SourceUser, SourceUsers};

/// What an import of users made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserImportReport {
    /// Users that are here now.
    pub users: usize,
    /// Policies that are here now.
    pub policies: usize,
    /// Groups that are here now.
    pub groups: usize,
    /// Further keys that are here now.
    pub keys: usize,
    /// What was left out, with the reason, each on one line.
    pub notes: Vec<String>,
}

/// An import under way.
struct UserImport<'a> {
    users: &'a Users,
    report: UserImportReport,
    /// Policies that are here with another document.
    others: BTreeSet<String>,
    /// The first keys of users that are here as at the source.
    made: BTreeSet<String>,
    /// Groups that have all their policies; `true`: at least one.
    whole_groups: BTreeMap<String, bool>,
}

/// Makes the users of a store, with their policies, groups and further keys. What is here already stays as it is, so an import that
/// was cut off is made again.
///
/// # Errors
/// Those of the store.
pub async fn import_users(users: &Users, source: SourceUsers) -> Result<UserImportReport> {
    let notes = source.left_out;
    let report = UserImportReport { notes, ..UserImportReport::default() };
    let mut import =
        UserImport { users, report, others: BTreeSet::new(), made: BTreeSet::new(), whole_groups: BTreeMap::new() };
    for (name, document) in &source.policies {
        import.policy(name, document).await?;
    }
    for group in &source.groups {
        import.group(group).await?;
    }
    for user in &source.users {
        let groups = source.groups.iter().filter(|group| group.members.contains(&user.key_id));
        import.user(user, &groups.collect::<Vec<_>>()).await?;
    }
    for key in source.keys {
        import.key(key).await?;
    }
    Ok(import.report)
}

impl UserImport<'_> {
    /// The value, or a note that says why there is none.
    fn noted<T>(&mut self, what: &str, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Error::Gateway(error)) => Err(error.into()),
            Err(error) => {
                self.report.notes.push(format!("{what}: {error}"));
                Ok(None)
            }
        }
    }

    async fn policy(&mut self, name: &str, document: &str) -> Result<()> {
        let what = format!("policy {name}");
        let is_here = match self.users.policy(name).await {
            Ok(found) if is_same(&found.document, document) => true,
            // It may allow more, so nobody gets it by this import.
            Ok(_) => {
                self.report.notes.push(format!("{what}: there is another one of this name, which stays"));
                self.others.insert(name.to_owned());
                false
            }
            Err(Error::Gateway(error)) => return Err(error.into()),
            Err(_) => {
                let made = self.users.put_policy(name, document).await;
                self.noted(&what, made)?.is_some()
            }
        };
        self.report.policies += usize::from(is_here);
        Ok(())
    }

    async fn group(&mut self, group: &SourceGroup) -> Result<()> {
        let what = format!("group {}", group.name);
        let policies = match self.users.group(&group.name).await {
            Ok(found) => found.policies,
            Err(Error::Gateway(error)) => return Err(error.into()),
            Err(_) => {
                let made = self.users.create_group(&group.name).await;
                if self.noted(&what, made)?.is_none() {
                    return Ok(());
                }
                Vec::new()
            }
        };
        if policies.iter().any(|name| !group.policies.contains(name)) {
            // It may allow more, so nobody comes into it by this import.
            self.report.notes.push(format!("{what}: there is one with other policies, which stays"));
            return Ok(());
        }
        self.report.groups += 1;
        if self.attach(&what, PolicyHolder::Group(&group.name), &group.policies, &policies).await? {
            self.whole_groups.insert(group.name.clone(), !group.policies.is_empty());
        }
        Ok(())
    }

    /// Attaches policies; whether the holder has all of them now.
    async fn attach(&mut self, what: &str, holder: PolicyHolder<'_>, names: &[String], has: &[String]) -> Result<bool> {
        if let Some(other) = names.iter().find(|name| self.others.contains(*name)) {
            self.report.notes.push(format!("{what}: its policy {other} is another one here"));
            return Ok(false);
        }
        let missing: Vec<&str> = names.iter().filter(|name| !has.contains(name)).map(String::as_str).collect();
        if missing.is_empty() {
            return Ok(true);
        }
        let attached = self.users.change_policies(holder, &missing, AttachmentChange::Attach).await;
        Ok(self.noted(what, attached)?.is_some())
    }

    async fn user(&mut self, user: &SourceUser, groups: &[&SourceGroup]) -> Result<()> {
        let what = format!("user {}", user.key_id);
        match self.users.find_by_key(&user.key_id).await {
            Ok(found) if found.secret == user.secret && found.key_id == user.key_id => {}
            Ok(_) => {
                self.report.notes.push(format!("{what}: its key is another one's here"));
                return Ok(());
            }
            Err(Error::Gateway(error)) => return Err(error.into()),
            Err(_) => {
                let made = self.users.create_user(new_user(user)).await;
                if self.noted(&what, made)?.is_none() {
                    return Ok(());
                }
            }
        }
        self.report.users += 1;
        self.made.insert(user.key_id.clone());
        let is_limited = self.limit(&what, user, groups).await?;
        if user.enabled && is_limited {
            let change = UserChange { enabled: Some(true), ..UserChange::default() };
            let enabled = self.users.update(&user.key_id, change).await;
            self.noted(&what, enabled)?;
        }
        Ok(())
    }

    /// Gives a user its policies and groups; whether it has all that limit it.
    async fn limit(&mut self, what: &str, user: &SourceUser, groups: &[&SourceGroup]) -> Result<bool> {
        let Some(policies) = &user.policies else { return Ok(true) };
        let here = self.users.find_by_key(&user.key_id).await?;
        let mut is_whole = self.attach(what, PolicyHolder::User(&user.key_id), policies, &here.policies).await?;
        let mut has_any = !policies.is_empty();
        for group in groups {
            let Some(has_policies) = self.whole_groups.get(&group.name).copied() else {
                is_whole = false;
                continue;
            };
            has_any |= has_policies;
            if here.groups.contains(&group.name) {
                continue;
            }
            let key_id = [user.key_id.clone()];
            let added = self.users.change_members(&group.name, &key_id, AttachmentChange::Attach).await;
            is_whole &= self.noted(what, added)?.is_some();
        }
        if !is_whole {
            self.report.notes.push(format!("{what}: it stays disabled, since not all of its policies are here"));
        } else if !has_any {
            self.report.notes.push(format!("{what}: it stays disabled, since no policy allows it anything"));
        }
        Ok(is_whole && has_any)
    }

    async fn key(&mut self, key: SourceKey) -> Result<()> {
        let what = format!("key {}", key.key_id);
        if !self.made.contains(&key.parent) {
            self.report.notes.push(format!("{what}: its user {} is not here", key.parent));
            return Ok(());
        }
        let user = self.users.find_by_key(&key.parent).await?;
        if user.further_keys.iter().any(|found| found.id == key.key_id && found.secret == key.secret) {
            self.report.keys += 1;
            return Ok(());
        }
        let expires = match key.expires.as_deref().map(|text| (text, parse_expiry(text))) {
            None => None,
            Some((_, Some(time))) => Some(time),
            Some((text, None)) => {
                self.report.notes.push(format!("{what}: its end {text} is no time"));
                return Ok(());
            }
        };
        let limits = KeyLimits { expires, ..KeyLimits::default() };
        let new = NewKey { id: Some(key.key_id), secret: Some(key.secret), limits };
        let added = self.users.add_key(&key.parent, new).await;
        self.report.keys += usize::from(self.noted(&what, added)?.is_some());
        Ok(())
    }
}

fn new_user(user: &SourceUser) -> NewUser {
    NewUser {
        email: user.email.clone(),
        name: user.name.clone(),
        key: Some((user.key_id.clone(), user.secret.clone())),
        id: user.id.clone(),
        disabled: true,
        ..NewUser::default()
    }
}

/// Whether two documents of policies allow the same in S3. What a document says of MinIO's administration does not count here.
fn is_same(here: &str, there: &str) -> bool {
    let (here, there) = (serde_json::from_str::<Value>(here), serde_json::from_str::<Value>(there));
    matches!((here, there), (Ok(here), Ok(there)) if statements(&here) == statements(&there))
}

/// The statements of a document about S3, each with its actions in order.
fn statements(document: &Value) -> Vec<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    let is_foreign = |action: &Value| action.as_str().is_some_and(|name| !name.starts_with("s3:") && name != "*");
    let mut found = Vec::new();
    for mut statement in list(&document["Statement"]) {
        let mut actions = statement.get("Action").map(list).unwrap_or_default();
        if !actions.is_empty() && actions.iter().all(is_foreign) {
            continue;
        }
        actions.sort_by_key(Value::to_string);
        if let Some(members) = statement.as_object_mut().filter(|_| !actions.is_empty()) {
            members.insert("Action".to_owned(), actions.into());
        }
        found.push(statement);
    }
    found
}
