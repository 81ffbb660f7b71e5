//! Riak's security in a running gateway: the rules that requests are checked against, log-ins, and the changes of operators.
//!
//! ```text
//! request ──> is_enabled: one atomic load ──no──> served as ever
//!                  │ yes
//!             rules: the catalogue's, checked within five seconds ──> log_in (login.rs) ──> check: a permission on a scope
//! ```
//! Users, groups and grants are rows of the catalogue: a change is answered when every running gateway serves with it, and a
//! start reads them before it serves.

mod login;

use std::net::IpAddr;
use std::sync::Arc;

use larder_admission::{FairTurns, TurnLimits};

use crate::members::Members;
use crate::node_context::NodeContext;
use crate::rules::security::{
    AccessRules, AccessScope, GrantChange, GrantTarget, KvPermission, RoleKind, RoleOptions, SecurityEdit,
    SecurityRefusal,
};
use crate::types::{CatalogueCopy, CatalogueEdit};
use crate::{Error, Result};
use login::{FailedLogins, VerifiedPasswords, hashes_at_once};

pub use login::{LoggedIn, Login, LoginError};

/// Most passwords of an address that wait to be hashed.
const LOGINS_WAITING_MAX: usize = 64;

/// Riak's security.
pub struct Security {
    context: Arc<NodeContext>,
    catalogue: Arc<CatalogueCopy>,
    members: Arc<Members>,
    verified: VerifiedPasswords,
    failed: Arc<FailedLogins>,
    /// A turn for each password that is hashed.
    hashes: FairTurns<IpAddr>,
}

/// A change of an operator that was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SecurityError {
    /// Its arguments are refused.
    #[error("{0}")]
    Refused(#[from] SecurityRefusal),
    /// The gateway's error. After a time-out the change may be carried out.
    #[error("{0}")]
    Gateway(#[from] Error),
}

/// The refusal of a request whose user lacks a permission. Its text is Riak's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Permission denied: User '{user}' does not have '{permission}' on {scope}")]
pub struct PermissionDenied {
    user: String,
    permission: &'static str,
    scope: String,
}

impl Security {
    /// The security of this gateway's catalogue.
    pub(crate) fn new(context: Arc<NodeContext>, catalogue: Arc<CatalogueCopy>, members: Arc<Members>) -> Self {
        let verified = VerifiedPasswords::new(context.ports.random);
        let at_once = hashes_at_once();
        let hashes = FairTurns::new(TurnLimits { at_once, per_source: at_once - 1, waiting: LOGINS_WAITING_MAX });
        Self { context, catalogue, members, verified, failed: Arc::default(), hashes }
    }

    /// Whether requests of Riak's protocols need a user, by the catalogue as last read.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.catalogue.has_security()
    }

    /// Whether requests need no user for certain: security is off in a catalogue that is fresh, or that no other gateway changes.
    #[must_use]
    pub fn is_surely_off(&self) -> bool {
        // The check first: a switch that was read before it could be older than the check that makes it fresh.
        let is_fresh = self.context.config.single_process || self.catalogue.is_fresh(self.context.monotonic());
        is_fresh && !self.is_enabled()
    }

    /// The rules to serve from.
    ///
    /// # Errors
    /// [`Error::NotReady`] when the catalogue cannot be checked now.
    pub async fn rules(&self) -> Result<Arc<AccessRules>> {
        Ok(Arc::clone(self.catalogue.fresh().await?.security()))
    }

    /// The rules with every change that was answered before the call.
    ///
    /// # Errors
    /// The store's.
    pub async fn refreshed_rules(&self) -> Result<Arc<AccessRules>> {
        Ok(Arc::clone(self.catalogue.refreshed().await?.security()))
    }

    /// Adds a user or group. It returns after every running gateway knows it, as all changes here do.
    ///
    /// # Errors
    /// [`SecurityError`].
    pub async fn add_role(
        &self,
        kind: RoleKind,
        name: &str,
        options: RoleOptions,
    ) -> std::result::Result<(), SecurityError> {
        let hashed = self.hash(kind, &options).await?;
        self.change(|rules| rules.add_role(kind, name, options.clone(), hashed.clone())).await
    }

    /// Changes options of a user or group.
    ///
    /// # Errors
    /// [`SecurityError`].
    pub async fn alter_role(
        &self,
        kind: RoleKind,
        name: &str,
        options: RoleOptions,
    ) -> std::result::Result<(), SecurityError> {
        let hashed = self.hash(kind, &options).await?;
        self.change(|rules| rules.alter_role(kind, name, options.clone(), hashed.clone())).await
    }

    /// Removes a user or group, with its grants and sources.
    ///
    /// # Errors
    /// [`SecurityError`].
    pub async fn delete_role(&self, kind: RoleKind, name: &str) -> std::result::Result<(), SecurityError> {
        self.change(|rules| rules.delete_role(kind, name)).await
    }

    /// Adds a source of users.
    ///
    /// # Errors
    /// [`SecurityError`].
    pub async fn add_source(
        &self,
        users: &str,
        cidr: &str,
        method: &str,
        options: &[&str],
    ) -> std::result::Result<(), SecurityError> {
        self.change(|rules| rules.add_source(users, cidr, method, options)).await
    }

    /// Removes a source of users.
    ///
    /// # Errors
    /// [`SecurityError`].
    pub async fn delete_source(&self, users: &str, cidr: &str) -> std::result::Result<(), SecurityError> {
        self.change(|rules| rules.delete_source(users, cidr)).await
    }

    /// Gives or takes permissions.
    ///
    /// # Errors
    /// [`SecurityError`].
    pub async fn change_grants(
        &self,
        change: GrantChange,
        permissions: &str,
        target: &GrantTarget,
        roles: &str,
    ) -> std::result::Result<(), SecurityError> {
        self.change(|rules| rules.change_grants(change, permissions, target, roles)).await
    }

    /// Switches security on or off, on every running gateway.
    ///
    /// # Errors
    /// [`SecurityError`].
    pub async fn set_enabled(&self, enabled: bool) -> std::result::Result<(), SecurityError> {
        self.change(|rules| Ok(rules.set_enabled(enabled))).await
    }

    /// Keeps a list of ciphers.
    ///
    /// # Errors
    /// [`SecurityError`].
    pub async fn set_ciphers(&self, ciphers: &str) -> std::result::Result<(), SecurityError> {
        self.change(|rules| Ok(rules.set_ciphers(ciphers))).await
    }

    async fn change(
        &self,
        edit: impl Fn(&AccessRules) -> std::result::Result<SecurityEdit, SecurityRefusal>,
    ) -> std::result::Result<(), SecurityError> {
        let edit = |catalogue: &crate::types::Catalogue| {
            Ok::<_, SecurityError>(CatalogueEdit::Security(edit(catalogue.security())?))
        };
        let number = self.catalogue.change(edit).await?;
        Ok(self.members.await_propagation(number).await?)
    }
}

/// Checks that a user has a permission.
///
/// # Errors
/// [`PermissionDenied`].
pub fn check_permission(
    rules: &AccessRules,
    user: &str,
    permission: KvPermission,
    scope: AccessScope<'_>,
) -> std::result::Result<(), PermissionDenied> {
    if rules.is_permitted(user, permission, scope) {
        return Ok(());
    }
    Err(PermissionDenied { user: user.to_owned(), permission: permission.name(), scope: scope.to_string() })
}
