//! How many replicas a level asks for, in Cassandra's words.
//!
//! ```text
//! level            one datacenter          several, plain table                    several, guarded table
//! any              ANY to write, ONE       ANY to write, LOCAL_ONE                 QUORUM
//! one              ONE                     LOCAL_ONE                               QUORUM
//! two, three       TWO, THREE              LOCAL_QUORUM where that is as many,     QUORUM where that is as many, else TWO, THREE
//!                                          else ALL: there is nothing between
//! quorum           QUORUM                  LOCAL_QUORUM                            QUORUM
//! all              ALL                     ALL                                     ALL
//! ```
//! A level never asks for more copies than there are: where a keyspace has fewer than its n_val, two of one copy are one. Guarded
//! tables go below a majority of all copies never, since there are as many truths as there are groups that agree on their own.
//!
//! A conditional write asks a quorum whatever its level: one that asked for all copies would fail over a missing one after the
//! others had agreed on it.

use scylla::statement::Consistency;

use larder_store::Level;

/// Copies of a keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copies {
    /// In the datacenter of this gateway.
    pub(crate) local: usize,
    /// In all datacenters.
    pub(crate) everywhere: usize,
    /// Whether the copies are in several datacenters.
    pub(crate) apart: bool,
}

/// What is done at a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Reading a plain table.
    Read,
    /// Writing a plain table.
    Write,
    /// Either of a guarded table.
    Guarded,
}

/// The consistency that `level` means for copies like these.
pub(crate) fn consistency(level: Level, deed: Deed, copies: Copies) -> Consistency {
    let all = if deed == Deed::Guarded { copies.everywhere } else { copies.local }.max(1);
    let majority = all / 2 + 1;
    let asked = match level {
        Level::Any | Level::One => 1,
        Level::Two => 2,
        Level::Three => 3,
        Level::Quorum => majority,
        Level::All => return Consistency::All,
    };
    let asked = asked.min(all);
    match deed {
        Deed::Guarded if asked <= majority => Consistency::Quorum,
        Deed::Write if level == Level::Any => Consistency::Any,
        Deed::Read | Deed::Write if copies.apart => match asked {
            1 if level != Level::Quorum => Consistency::LocalOne,
            asked if asked <= majority => Consistency::LocalQuorum,
            _ => Consistency::All,
        },
        _ if level == Level::Quorum => Consistency::Quorum,
        _ => match asked {
            1 => Consistency::One,
            2 => Consistency::Two,
            _ => Consistency::Three,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: [Level; 6] = [Level::Any, Level::One, Level::Two, Level::Three, Level::Quorum, Level::All];

    fn each(deed: Deed, local: usize, datacenters: usize) -> [Consistency; 6] {
        let copies = Copies { local, everywhere: local * datacenters, apart: datacenters > 1 };
        LEVELS.map(|level| consistency(level, deed, copies))
    }

    #[test]
    fn one_datacenter_says_what_the_level_says() {
        use Consistency::{All, Any, One, Quorum, Three, Two};
        assert_eq!(each(Deed::Read, 3, 1), [One, One, Two, Three, Quorum, All]);
        assert_eq!(each(Deed::Write, 3, 1), [Any, One, Two, Three, Quorum, All]);
        assert_eq!(each(Deed::Write, 5, 1), [Any, One, Two, Three, Quorum, All]);
    }

    #[test]
    fn no_level_asks_for_more_copies_than_there_are() {
        use Consistency::{All, Any, One, Quorum, Two};
        assert_eq!(each(Deed::Read, 1, 1), [One, One, One, One, Quorum, All]);
        assert_eq!(each(Deed::Write, 2, 1), [Any, One, Two, Two, Quorum, All]);
        assert_eq!(each(Deed::Guarded, 1, 1), [Quorum, Quorum, Quorum, Quorum, Quorum, All]);
    }

    #[test]
    fn plain_tables_stay_in_their_datacenter() {
        use Consistency::{All, Any, LocalOne, LocalQuorum};
        assert_eq!(each(Deed::Read, 3, 2), [LocalOne, LocalOne, LocalQuorum, All, LocalQuorum, All]);
        assert_eq!(each(Deed::Write, 5, 2), [Any, LocalOne, LocalQuorum, LocalQuorum, LocalQuorum, All]);
        assert_eq!(each(Deed::Read, 1, 2), [LocalOne, LocalOne, LocalOne, LocalOne, LocalQuorum, All]);
    }

    #[test]
    fn guarded_tables_never_go_below_a_majority_of_all() {
        use Consistency::{All, Quorum, Three};
        assert_eq!(each(Deed::Guarded, 3, 1), [Quorum, Quorum, Quorum, Three, Quorum, All]);
        assert_eq!(each(Deed::Guarded, 3, 2), [Quorum, Quorum, Quorum, Quorum, Quorum, All]);
    }
}
