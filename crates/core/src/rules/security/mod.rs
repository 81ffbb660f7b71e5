//! Riak's security: users, groups, the sources that they may come from, and the permissions that they have. Pure: an edit of an
//! operator gives the rows that change, and the rows give the rules of requests.
//!
//! ```text
//! kv-admin security …  ──> edit: the rows that change ──> catalogue ──> AccessRules, a copy in every gateway
//!                                                                          │
//! a request: user, address ──> source: how the user proves to be it        │
//!            permission, bucket ──> grants of the user, its groups, `all` <┘
//! ```

mod edit;
mod permission;
mod record;
mod rules;

pub use edit::{GrantChange, SecurityEdit, SecurityRefusal};
pub use permission::{AccessScope, KvPermission, PermissionSet};
pub use record::{
    ALL, GrantTarget, RoleGrant, RoleOptions, RoleRecord, SecurityKey, SecuritySettings, folded, parse_name,
};
pub use rules::{AccessRules, AccessSource, RoleEntry, RoleKind, SourceMethod};
