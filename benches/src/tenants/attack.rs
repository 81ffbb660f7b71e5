//! The attacks of the hostile tenant.

use crate::targets::{self, TargetPromise};

/// The work of the hostile tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum TenantAttack {
    /// Puts into a bucket whose eight webhooks are dead.
    Webhooks,
    /// MapReduce jobs that never end.
    Jobs,
    /// Puts into a bucket whose precommit hook never ends.
    Hooks,
    /// Anonymous deletes of many keys against costly wildcards of a bucket policy.
    Policies,
    /// Wrong passwords for a user.
    LogIns,
    /// Whole backups to another disk, one after the other: the operator's own work.
    Backups,
}

impl TenantAttack {
    /// All attacks, in the order of the run.
    pub(super) const ALL: [Self; 6] =
        [Self::Webhooks, Self::Jobs, Self::Hooks, Self::Policies, Self::LogIns, Self::Backups];

    /// Connections of the hostile tenant.
    pub(super) fn connections(self) -> u64 {
        match self {
            Self::Webhooks => 4,
            Self::Jobs | Self::Hooks => 12,
            Self::Policies => 2,
            Self::LogIns => 16,
            Self::Backups => 1,
        }
    }

    /// The statuses that its requests may get.
    pub(super) fn statuses(self) -> &'static [u16] {
        match self {
            Self::Webhooks => &[204, 503],
            Self::Jobs => &[500, 503],
            Self::Hooks => &[403, 500, 503],
            Self::Policies => &[200, 403, 503],
            Self::LogIns => &[401, 503],
            Self::Backups => &[200],
        }
    }

    /// The calm request beside it, and the bound of its latency.
    pub(super) fn target(self) -> TargetPromise {
        match self {
            Self::Webhooks => targets::TENANT_WEBHOOKS,
            Self::Jobs => targets::TENANT_JOBS,
            Self::Hooks => targets::TENANT_HOOKS,
            Self::Policies => targets::TENANT_POLICIES,
            Self::LogIns => targets::TENANT_LOG_INS,
            Self::Backups => targets::TENANT_BACKUPS,
        }
    }
}
