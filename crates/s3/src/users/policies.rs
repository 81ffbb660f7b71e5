//! Policies by name, for users and groups: the canned ones, and those that an administrator makes.

use larder_rows::limits::IAM_POLICIES_MAX;
use larder_store::Stopped;

use super::transaction::{GROUP, POLICY, UsersTransaction, decode_json};
use super::{ATTEMPTS_MAX, PAGE_ROWS, Users, busy, invalid};
use crate::Result;
use crate::rules::UserGroup;
use crate::rules::policy::IdentityPolicy;
use crate::rules::policy::canned::{canned_document, canned_names, check_new_policy_name, check_offered};

/// Policies in a page: each may be 20 KiB.
const PAGE_POLICIES: usize = 50;

/// A policy for users and groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPolicy {
    /// Its name.
    pub name: String,
    /// Its JSON document.
    pub document: String,
    /// Whether every store has it.
    pub is_canned: bool,
}

impl NamedPolicy {
    fn canned(name: &str) -> Option<Self> {
        let document = canned_document(name)?.to_owned();
        Some(Self { name: name.to_owned(), document, is_canned: true })
    }
}

impl Users {
    /// Creates a policy, or replaces the one of this name: the requests of its users obey it at once here, and within two seconds
    /// on other gateways.
    ///
    /// # Errors
    /// `InvalidUser` for a name that cannot be one, and for more policies than a store may have; `MalformedPolicy`.
    pub async fn put_policy(&self, name: &str, document: &str) -> Result<()> {
        check_new_policy_name(name).map_err(|error| invalid(&error.message))?;
        IdentityPolicy::parse_new(document).map_err(|error| crate::Error::MalformedPolicy(error.message))?;
        for _ in 0..ATTEMPTS_MAX {
            let mut transaction = UsersTransaction::begin(self).await?;
            if self.named_row(POLICY, name).await?.is_none() && self.own_policies().await?.len() >= IAM_POLICIES_MAX {
                return Err(invalid(&format!("There are {IAM_POLICIES_MAX} policies already: delete one.")));
            }
            // A string is always JSON.
            transaction.put_row(POLICY, name, &serde_json::to_vec(document).unwrap_or_default());
            if transaction.commit().await? {
                return Ok(());
            }
        }
        Err(busy())
    }

    /// Removes a policy that is attached to nothing.
    ///
    /// # Errors
    /// `InvalidUser` for a canned policy, one that is not there, and one that is attached.
    pub async fn delete_policy(&self, name: &str) -> Result<()> {
        if canned_document(name).is_some() {
            return Err(invalid(&format!("The policy {name} is built in: it stays.")));
        }
        for _ in 0..ATTEMPTS_MAX {
            let mut transaction = UsersTransaction::begin(self).await?;
            if self.named_row(POLICY, name).await?.is_none() {
                return Err(no_such_policy(name));
            }
            // Read within the transaction: what is attached meanwhile changes the head.
            if let Some(holder) = self.holder_of_policy(name).await? {
                return Err(invalid(&format!("The policy {name} is attached to {holder}: detach it before.")));
            }
            transaction.remove_row(POLICY, name);
            if transaction.commit().await? {
                return Ok(());
            }
        }
        Err(busy())
    }

    /// The policy of this name.
    ///
    /// # Errors
    /// `InvalidUser` when there is none.
    pub async fn policy(&self, name: &str) -> Result<NamedPolicy> {
        check_offered(name).map_err(|error| invalid(&error.message))?;
        if let Some(canned) = NamedPolicy::canned(name) {
            return Ok(canned);
        }
        let row = self.named_row(POLICY, name).await?.ok_or_else(|| no_such_policy(name))?;
        let document = decode_json(&row.value, "policy")?;
        Ok(NamedPolicy { name: name.to_owned(), document, is_canned: false })
    }

    /// All policies, by name.
    ///
    /// # Errors
    /// Any error of the store.
    pub async fn policies(&self) -> Result<Vec<NamedPolicy>> {
        let mut policies = self.own_policies().await?;
        policies.extend(canned_names().filter_map(NamedPolicy::canned));
        policies.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(policies)
    }

    async fn own_policies(&self) -> Result<Vec<NamedPolicy>> {
        let mut policies: Vec<NamedPolicy> = Vec::new();
        loop {
            let after = policies.last().map_or(String::new(), |policy| policy.name.clone());
            let page = self.page(POLICY, &after, PAGE_POLICIES).await?;
            for row in &page.rows {
                let name = String::from_utf8_lossy(&row.name[1..]).into_owned();
                let document = decode_json(&row.value, "policy")?;
                policies.push(NamedPolicy { name, document, is_canned: false });
            }
            if page.stopped == Stopped::End || page.rows.is_empty() {
                return Ok(policies);
            }
        }
    }

    /// A user or a group that has the policy, as a text for an administrator.
    async fn holder_of_policy(&self, name: &str) -> Result<Option<String>> {
        let has = |policies: &[String]| policies.iter().any(|policy| policy == name);
        if let Some(group) = self.groups().await?.iter().find(|group| has(&group.policies)) {
            return Ok(Some(format!("the group {}", group.name)));
        }
        let user = self.find_user(|user| has(&user.policies)).await?;
        Ok(user.map(|user| format!("the user {}", user.key_id)))
    }

    /// All groups, by name.
    ///
    /// # Errors
    /// Any error of the store.
    pub async fn groups(&self) -> Result<Vec<UserGroup>> {
        let mut groups: Vec<UserGroup> = Vec::new();
        loop {
            let after = groups.last().map_or(String::new(), |group| group.name.clone());
            let page = self.page(GROUP, &after, PAGE_ROWS).await?;
            for row in &page.rows {
                groups.push(decode_json(&row.value, "group")?);
            }
            if page.stopped == Stopped::End || page.rows.is_empty() {
                return Ok(groups);
            }
        }
    }
}

pub(super) fn no_such_policy(name: &str) -> crate::Error {
    invalid(&format!("There is no policy {name}."))
}
