//! Groups of users: their members have their policies.

use std::sync::Arc;

use larder_rows::limits::{GROUPS_PER_USER_MAX, IAM_GROUPS_MAX};

use super::transaction::{GROUP, KEY, UsersTransaction, decode_json};
use super::{ATTEMPTS_MAX, AttachmentChange, PAGE_ROWS, Users, busy, invalid, user_with_key};
use crate::rules::policy::canned::{invalid_name, is_valid_iam_name};
use crate::rules::{User, UserGroup};
use crate::{Error, Result};

impl Users {
    /// Creates a group without policies and members.
    ///
    /// # Errors
    /// `InvalidUser` for a name that is taken or cannot be one, and for more groups than a store may have.
    pub async fn create_group(&self, name: &str) -> Result<()> {
        if !is_valid_iam_name(name) {
            return Err(invalid(&invalid_name("a group")));
        }
        for _ in 0..ATTEMPTS_MAX {
            let mut transaction = UsersTransaction::begin(self).await?;
            if self.find_group(name).await?.is_some() {
                return Err(invalid(&format!("There is a group {name} already.")));
            }
            if self.groups().await?.len() >= IAM_GROUPS_MAX {
                return Err(invalid(&format!("There are {IAM_GROUPS_MAX} groups already: delete one.")));
            }
            let group = UserGroup { name: name.to_owned(), created: self.context.now(), policies: Vec::new() };
            transaction.put_group(&group);
            if transaction.commit().await? {
                return Ok(());
            }
        }
        Err(busy())
    }

    /// Removes a group without members.
    ///
    /// # Errors
    /// `InvalidUser` for a group that is not there, and one that has members.
    pub async fn delete_group(&self, name: &str) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let mut transaction = UsersTransaction::begin(self).await?;
            self.group(name).await?;
            // Read within the transaction: a member that is added meanwhile changes the head.
            if let Some(member) = self.find_user(|user| is_member(user, name)).await? {
                let key_id = &member.key_id;
                return Err(invalid(&format!("The group {name} has the member {key_id}: remove its members before.")));
            }
            transaction.remove_row(GROUP, name);
            if transaction.commit().await? {
                return Ok(());
            }
        }
        Err(busy())
    }

    /// The group of this name.
    ///
    /// # Errors
    /// `InvalidUser` when there is none.
    pub async fn group(&self, name: &str) -> Result<UserGroup> {
        self.find_group(name).await?.ok_or_else(|| invalid(&format!("There is no group {name}.")))
    }

    /// The members of a group.
    ///
    /// # Errors
    /// Any error of the store.
    pub async fn members(&self, group: &str) -> Result<Vec<Arc<User>>> {
        let mut members = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.list(&after, PAGE_ROWS).await?;
            let Some(last) = page.last() else { return Ok(members) };
            after.clone_from(&last.id);
            members.extend(page.into_iter().filter(|user| is_member(user, group)));
        }
    }

    /// Adds the users of these keys to a group, or removes them, all or none.
    ///
    /// # Errors
    /// `UnknownKey`; `InvalidUser` for a group that is not there, an administrator, a user in as many groups as one may be, and the
    /// removal of a user who is no member.
    pub async fn change_members(&self, group: &str, key_ids: &[String], change: AttachmentChange) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let mut transaction = UsersTransaction::begin(self).await?;
            self.group(group).await?;
            for key_id in key_ids {
                let before = user_with_key(self.find(KEY, key_id).await?, key_id)?;
                transaction.put_user(Some(&before), &changed_member(&before, group, change)?);
            }
            if transaction.commit().await? {
                return Ok(());
            }
        }
        Err(busy())
    }

    /// The first user, by canonical id, for whom this holds.
    pub(super) async fn find_user(&self, holds: impl Fn(&User) -> bool) -> Result<Option<Arc<User>>> {
        let mut after = String::new();
        loop {
            let page = self.list(&after, PAGE_ROWS).await?;
            let Some(last) = page.last() else { return Ok(None) };
            after.clone_from(&last.id);
            if let Some(found) = page.into_iter().find(|user| holds(user)) {
                return Ok(Some(found));
            }
        }
    }

    pub(super) async fn find_group(&self, name: &str) -> Result<Option<UserGroup>> {
        self.named_row(GROUP, name).await?.map(|row| decode_json(&row.value, "group")).transpose()
    }
}

impl UsersTransaction<'_> {
    /// Writes a group.
    pub(super) fn put_group(&mut self, group: &UserGroup) {
        // JSON can represent every field.
        self.put_row(GROUP, &group.name, &serde_json::to_vec(group).unwrap_or_default());
    }
}

fn is_member(user: &User, group: &str) -> bool {
    user.groups.iter().any(|name| name == group)
}

fn changed_member(before: &User, group: &str, change: AttachmentChange) -> Result<User> {
    let mut user = before.clone();
    match change {
        AttachmentChange::Attach => {
            refuse_admin(before)?;
            if !is_member(before, group) {
                user.groups.push(group.to_owned());
            }
            if user.groups.len() > GROUPS_PER_USER_MAX {
                let key_id = &user.key_id;
                return Err(invalid(&format!("A user is in at most {GROUPS_PER_USER_MAX} groups, as {key_id} is.")));
            }
        }
        AttachmentChange::Detach if !is_member(before, group) => {
            return Err(invalid(&format!("{} is no member of the group {group}.", before.key_id)));
        }
        AttachmentChange::Detach => user.groups.retain(|name| name != group),
    }
    Ok(user)
}

/// Refuses an administrator, whom no policy would bind.
pub(super) fn refuse_admin(user: &User) -> std::result::Result<(), Error> {
    if user.admin {
        let key_id = &user.key_id;
        return Err(invalid(&format!(
            "{key_id} is an administrator, who may do anything: no policy would change that."
        )));
    }
    Ok(())
}
