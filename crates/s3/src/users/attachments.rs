//! Attaching policies to users and groups.

use larder_rows::limits::ATTACHED_POLICIES_MAX;

use super::groups::refuse_admin;
use super::transaction::{KEY, UsersTransaction};
use super::{ATTEMPTS_MAX, Users, busy, invalid, user_with_key};
use crate::Result;

/// A user or a group, to which policies are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyHolder<'a> {
    /// The user with this access key.
    User(&'a str),
    /// The group of this name.
    Group(&'a str),
}

/// Whether a policy is attached or detached, or a member added or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachmentChange {
    /// It is attached, or added.
    Attach,
    /// It is detached, or removed.
    Detach,
}

impl Users {
    /// Attaches policies or detaches them, all or none, and returns those that the holder has then. Requests obey at once here, and
    /// within two seconds on other gateways.
    ///
    /// # Errors
    /// `UnknownKey`; `InvalidUser` for a group or a policy that is not there, an administrator, more policies than one may have, and a
    /// detached policy that is not attached.
    pub async fn change_policies(
        &self,
        holder: PolicyHolder<'_>,
        names: &[&str],
        change: AttachmentChange,
    ) -> Result<Vec<String>> {
        for _ in 0..ATTEMPTS_MAX {
            let mut transaction = UsersTransaction::begin(self).await?;
            if change == AttachmentChange::Attach {
                for name in names {
                    self.policy(name).await?;
                }
            }
            let policies = match holder {
                PolicyHolder::User(key_id) => {
                    let before = user_with_key(self.find(KEY, key_id).await?, key_id)?;
                    if change == AttachmentChange::Attach {
                        refuse_admin(&before)?;
                    }
                    let mut user = before.clone();
                    change_names(&mut user.policies, names, change)?;
                    transaction.put_user(Some(&before), &user);
                    user.policies
                }
                PolicyHolder::Group(name) => {
                    let mut group = self.group(name).await?;
                    change_names(&mut group.policies, names, change)?;
                    transaction.put_group(&group);
                    group.policies
                }
            };
            if transaction.commit().await? {
                return Ok(policies);
            }
        }
        Err(busy())
    }
}

fn change_names(policies: &mut Vec<String>, names: &[&str], change: AttachmentChange) -> Result<()> {
    for name in names {
        let is_attached = policies.iter().any(|policy| policy == name);
        match change {
            AttachmentChange::Attach if !is_attached => policies.push((*name).to_owned()),
            AttachmentChange::Attach => {}
            AttachmentChange::Detach if !is_attached => {
                return Err(invalid(&format!("The policy {name} is not attached.")));
            }
            AttachmentChange::Detach => policies.retain(|policy| policy != name),
        }
    }
    if policies.len() > ATTACHED_POLICIES_MAX {
        return Err(invalid(&format!("At most {ATTACHED_POLICIES_MAX} policies are attached to one user or group.")));
    }
    Ok(())
}
