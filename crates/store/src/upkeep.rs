//! What an operator has to run on the nodes of an engine, and what the nodes say of it.

use std::time::Duration;

use larder_rows::Timestamp;

/// The state of an engine's nodes, as far as an operator has to act on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeUpkeep {
    /// The tables that have to be repaired, by name.
    pub tables: Vec<RepairedTable>,
    /// Hints that wait.
    pub hints: Vec<WaitingHints>,
    /// The largest partition of each table on each node, where it is a burden.
    pub wide: Vec<WidePartition>,
    /// What could not be read, a line each.
    pub unknown: Vec<String>,
}

/// A table that every node repairs within the time that its tombstones stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairedTable {
    /// Its keyspace.
    pub keyspace: String,
    /// Its name.
    pub table: String,
    /// How long its tombstones stay: after that a replica that missed one brings the old row back.
    pub within: Duration,
    /// When the oldest of the repairs began that together covered all of it; `None`: they did not.
    pub repaired: Option<Timestamp>,
}

/// Hints on a node for another one, which get there once that one is back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingHints {
    /// The node that has them.
    pub node: String,
    /// The node that they are for.
    pub target: String,
    /// Their files.
    pub files: u32,
    /// The oldest of them.
    pub oldest: Option<Timestamp>,
}

/// A partition above the size up to which a node works well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WidePartition {
    /// The node.
    pub node: String,
    /// Its keyspace and table.
    pub table: String,
    /// Its size in MiB.
    pub mebibytes: u64,
}

impl RepairedTable {
    /// Whether a repair is due: seven tenths of the time have passed, or nobody knows of one.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        let since = |repaired: Timestamp| Duration::from_micros(now.0.saturating_sub(repaired.0));
        self.repaired.is_none_or(|repaired| since(repaired) > self.within.mul_f64(0.7))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_is_due_before_its_tombstones_go() {
        let day = 86_400_000_000;
        let table = |repaired: Option<u64>| RepairedTable {
            keyspace: "k".into(),
            table: "t".into(),
            within: Duration::from_secs(864_000),
            repaired: repaired.map(Timestamp),
        };
        let now = Timestamp(20 * day);
        assert!(table(None).is_due(now) && table(Some(12 * day)).is_due(now));
        assert!(!table(Some(14 * day)).is_due(now) && !table(Some(21 * day)).is_due(now));
    }
}
