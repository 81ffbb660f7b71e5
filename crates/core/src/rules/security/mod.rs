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
mod grants;
mod name;
mod options;
mod permission;
mod record;
mod refusal;
mod rules;
mod source;

pub use edit::{GrantChange, SecurityEdit};
pub use grants::AccessScope;
pub use name::{ALL, folded, parse_name};
pub use options::RoleOptions;
pub use permission::{KvPermission, PermissionSet};
pub use record::{GrantTarget, RoleGrant, RoleRecord, SecurityKey, SecuritySettings};
pub use refusal::SecurityRefusal;
pub use rules::{AccessRules, RoleEntry, RoleKind};
pub use source::{AccessSource, SourceMethod};
