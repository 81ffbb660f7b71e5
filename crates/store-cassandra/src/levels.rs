//! Cassandra's consistency for a level of the store.
//!
//! ```text
//! level            one datacenter          several, plain table                    several, guarded table
//! any              ANY to write, ONE       ANY to write, LOCAL_ONE                 QUORUM
//! one              ONE                     LOCAL_ONE                               QUORUM
//! two, three       TWO, THREE              LOCAL_QUORUM where that is as many,     QUORUM if as many, else TWO, THREE
//!                                          else ALL: nothing is between
//! quorum           QUORUM                  LOCAL_QUORUM                            QUORUM
//! all              ALL                     ALL                                     ALL
//! ```
//! A level never requires more copies than there are: in a keyspace with fewer copies than its n_val, `two` of one copy
//! is one. Guarded tables never go below a majority of all copies: two groups that agree on their own could decide two
//! different heads.
//!
//! A conditional write uses a quorum whatever its level: at ALL it would fail over a missing copy after the others had
//! agreed.

use scylla::statement::Consistency;

use larder_store::ConsistencyLevel;

/// Replicas of a keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplicaCounts {
    /// In the datacenter of this gateway.
    pub(crate) local: usize,
    /// In all datacenters.
    pub(crate) everywhere: usize,
    /// Whether the copies are in several datacenters.
    pub(crate) multi_dc: bool,
}

/// The kind of access to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableAccess {
    /// A read of a plain table.
    Read,
    /// A write to a plain table.
    Write,
    /// A read or write of a guarded table.
    Guarded,
}

/// The consistency of `level` for this access and these replicas.
pub(crate) fn consistency(level: ConsistencyLevel, access: TableAccess, copies: ReplicaCounts) -> Consistency {
    let all = if access == TableAccess::Guarded { copies.everywhere } else { copies.local }.max(1);
    let majority = all / 2 + 1;
    let required = match level {
        ConsistencyLevel::Any | ConsistencyLevel::One => 1,
        ConsistencyLevel::Two => 2,
        ConsistencyLevel::Three => 3,
        ConsistencyLevel::Quorum => majority,
        ConsistencyLevel::All => return Consistency::All,
    };
    let required = required.min(all);
    match access {
        // Race: majorities of two datacenters that are cut off would change one head twice [invariant 22].
        TableAccess::Guarded if required <= majority => Consistency::Quorum,
        TableAccess::Write if level == ConsistencyLevel::Any => Consistency::Any,
        TableAccess::Read | TableAccess::Write if copies.multi_dc => match required {
            1 if level != ConsistencyLevel::Quorum => Consistency::LocalOne,
            required if required <= majority => Consistency::LocalQuorum,
            // Cassandra has no local TWO: the next stronger level keeps the promise.
            _ => Consistency::All,
        },
        _ if level == ConsistencyLevel::Quorum => Consistency::Quorum,
        _ => match required {
            1 => Consistency::One,
            2 => Consistency::Two,
            _ => Consistency::Three,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: [ConsistencyLevel; 6] = [
        ConsistencyLevel::Any,
        ConsistencyLevel::One,
        ConsistencyLevel::Two,
        ConsistencyLevel::Three,
        ConsistencyLevel::Quorum,
        ConsistencyLevel::All,
    ];

    fn each(access: TableAccess, local: usize, datacenters: usize) -> [Consistency; 6] {
        let copies = ReplicaCounts { local, everywhere: local * datacenters, multi_dc: datacenters > 1 };
        LEVELS.map(|level| consistency(level, access, copies))
    }

    #[test]
    fn one_datacenter_uses_the_level_as_it_is() {
        use Consistency::{All, Any, One, Quorum, Three, Two};
        assert_eq!(each(TableAccess::Read, 3, 1), [One, One, Two, Three, Quorum, All]);
        assert_eq!(each(TableAccess::Write, 3, 1), [Any, One, Two, Three, Quorum, All]);
        assert_eq!(each(TableAccess::Write, 5, 1), [Any, One, Two, Three, Quorum, All]);
    }

    #[test]
    fn no_level_requires_more_copies_than_there_are() {
        use Consistency::{All, Any, One, Quorum, Two};
        assert_eq!(each(TableAccess::Read, 1, 1), [One, One, One, One, Quorum, All]);
        assert_eq!(each(TableAccess::Write, 2, 1), [Any, One, Two, Two, Quorum, All]);
        assert_eq!(each(TableAccess::Guarded, 1, 1), [Quorum, Quorum, Quorum, Quorum, Quorum, All]);
    }

    #[test]
    fn plain_tables_stay_in_their_datacenter() {
        use Consistency::{All, Any, LocalOne, LocalQuorum};
        assert_eq!(each(TableAccess::Read, 3, 2), [LocalOne, LocalOne, LocalQuorum, All, LocalQuorum, All]);
        assert_eq!(each(TableAccess::Write, 5, 2), [Any, LocalOne, LocalQuorum, LocalQuorum, LocalQuorum, All]);
        assert_eq!(each(TableAccess::Read, 1, 2), [LocalOne, LocalOne, LocalOne, LocalOne, LocalQuorum, All]);
    }

    #[test]
    fn guarded_tables_never_go_below_a_majority_of_all() {
        use Consistency::{All, Quorum, Three};
        assert_eq!(each(TableAccess::Guarded, 3, 1), [Quorum, Quorum, Quorum, Three, Quorum, All]);
        assert_eq!(each(TableAccess::Guarded, 3, 2), [Quorum, Quorum, Quorum, Quorum, Quorum, All]);
    }
}
