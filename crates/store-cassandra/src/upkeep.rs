//! What an operator has to run on the nodes: repairs, by the cluster's own history of them; and what the nodes say of hints and of
//! wide partitions, which each node tells of itself alone.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use larder_store::upkeep::{NodeUpkeep, RepairedTable, WaitingHints, WidePartition};
use larder_store::{Error, Kind, Result, Timestamp};
use scylla::client::session::Session;
use scylla::cluster::Node;
use scylla::deserialize::row::DeserializeRow;
use scylla::response::query_result::QueryResult;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement as Text;
use scylla::value::CqlTimestamp;
use tokio::time::{Instant, timeout_at};

use crate::client::ClusterClient;
use crate::errors;
use crate::session::statement_to;
use crate::statements::{self, HINTS, PARTITIONS, REPAIRS, REPAIRS_MAX, TABLE_OPTIONS};

/// How long everything may take.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// The size of a partition from which Cassandra's documentation calls it wide.
const WIDE_MEBIBYTES: i64 = 100;

/// A repair, as the cluster wrote it down: its begin, its keyspace, its tables, and the ranges that it finished.
type RepairRow = (Option<CqlTimestamp>, Option<String>, Option<Vec<String>>, Option<Vec<String>>);

impl ClusterClient {
    /// Asks the nodes.
    pub(crate) async fn upkeep(&self) -> NodeUpkeep {
        let deadline = Instant::now() + WAIT_MAX;
        let mut upkeep = NodeUpkeep::default();
        match self.repaired_tables(deadline).await {
            Ok(tables) => upkeep.tables = tables,
            Err(error) => upkeep.unknown.push(format!("when tables were repaired: {error}")),
        }
        let state = self.session.driver().get_cluster_state();
        // All at once: a node that hangs takes no other node's time.
        let told = join_all(state.get_nodes_info().iter().map(|node| self.upkeep_of(node, deadline))).await;
        for mut node in told {
            upkeep.hints.append(&mut node.hints);
            upkeep.wide.append(&mut node.wide);
            upkeep.unknown.append(&mut node.unknown);
        }
        upkeep
    }

    /// What a node tells of itself.
    async fn upkeep_of(&self, node: &Arc<Node>, deadline: Instant) -> NodeUpkeep {
        let (session, address) = (self.session.driver(), node.address.to_string());
        let mut upkeep = NodeUpkeep::default();
        match rows::<(IpAddr, i32, Option<CqlTimestamp>)>(session, statement_to(HINTS, node), deadline).await {
            Ok(hints) => upkeep.hints.extend(hints.into_iter().map(|(target, files, oldest)| WaitingHints {
                node: address.clone(),
                target: target.to_string(),
                files: u32::try_from(files).unwrap_or(0),
                oldest: oldest.map(from_millis),
            })),
            Err(error) => upkeep.unknown.push(format!("hints on {address}: {error}")),
        }
        match rows::<(String, String, i64)>(session, statement_to(PARTITIONS, node), deadline).await {
            Ok(partitions) => upkeep.wide.extend(partitions.into_iter().filter_map(|(keyspace, table, size)| {
                let wide = self.is_ours(&keyspace) && size >= WIDE_MEBIBYTES;
                let (table, mebibytes) = (format!("{keyspace}.{table}"), u64::try_from(size).unwrap_or(0));
                wide.then(|| WidePartition { node: address.clone(), table, mebibytes })
            })),
            Err(error) => upkeep.unknown.push(format!("partitions on {address}: {error}")),
        }
        upkeep
    }

    /// The tables with several copies, and their repairs.
    async fn repaired_tables(&self, deadline: Instant) -> Result<Vec<RepairedTable>> {
        let session = self.session.driver();
        let tables = rows::<(String, String, i32)>(session, Text::new(TABLE_OPTIONS), deadline).await?;
        let runs = rows::<RepairRow>(session, Text::new(REPAIRS), deadline).await?;
        // Bound: a scheduler that repairs by small ranges writes a row for each.
        if runs.len() >= REPAIRS_MAX {
            return Err(Error::new(Kind::TooLarge, format!("the history has {REPAIRS_MAX} repairs and more")));
        }
        let mut repairs: BTreeMap<(String, String), Vec<RepairRun>> = BTreeMap::new();
        for (begun, keyspace, tables, ranges) in runs {
            let (Some(begun), Some(keyspace)) = (begun, keyspace) else { continue };
            let ranges: Arc<[TokenRange]> =
                ranges.unwrap_or_default().iter().filter_map(|range| TokenRange::parse(range)).collect();
            for table in tables.unwrap_or_default() {
                let run = RepairRun { begun: begun.0, ranges: Arc::clone(&ranges) };
                repairs.entry((keyspace.clone(), table)).or_default().push(run);
            }
        }
        // A single copy has no other one to be compared with.
        let has_copies = |keyspace: &str| {
            let n_val = statements::n_val_of_keyspace(&self.prefix, keyspace);
            n_val.is_some_and(|n_val| self.copies(n_val).everywhere > 1)
        };
        let ours = tables.into_iter().filter(|(keyspace, ..)| has_copies(keyspace));
        Ok(ours
            .map(|(keyspace, table, gc_grace)| {
                let runs = repairs.remove(&(keyspace.clone(), table.clone())).unwrap_or_default();
                let within = Duration::from_secs(u64::try_from(gc_grace).unwrap_or(0));
                RepairedTable { keyspace, table, within, repaired: covered_since(runs).map(from_millis) }
            })
            .collect())
    }

    fn is_ours(&self, keyspace: &str) -> bool {
        statements::n_val_of_keyspace(&self.prefix, keyspace).is_some()
    }
}

/// The rows of a statement.
async fn rows<R>(session: &Session, mut text: Text, deadline: Instant) -> Result<Vec<R>>
where
    R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
{
    let what = "the nodes' own tables";
    text.set_consistency(Consistency::One);
    text.set_is_idempotent(true);
    let answer = timeout_at(deadline, session.query_unpaged(text, ())).await;
    let answer: QueryResult =
        answer.map_err(|_| errors::deadline_passed(what))?.map_err(|error| errors::from_driver(what, error))?;
    let answer = answer.into_rows_result().map_err(|error| errors::unreadable(what, error))?;
    let unreadable = |error: scylla::errors::DeserializationError| -> Error { errors::unreadable(what, error) };
    let rows = answer.rows::<R>().map_err(|error| errors::unreadable(what, error))?;
    rows.map(|row| row.map_err(unreadable)).collect()
}

fn from_millis(CqlTimestamp(millis): CqlTimestamp) -> Timestamp {
    Timestamp(u64::try_from(millis).unwrap_or(0).saturating_mul(1000))
}

/// A repair that finished these ranges.
#[derive(Debug, Clone)]
struct RepairRun {
    /// Milliseconds since 1970.
    begun: i64,
    ranges: Arc<[TokenRange]>,
}

/// Tokens after `after`, up to `until`; around the end of the ring where that is not greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TokenRange {
    after: i64,
    until: i64,
}

impl TokenRange {
    /// A range as Cassandra writes it: `(-5,7]`.
    fn parse(text: &str) -> Option<Self> {
        let (after, until) = text.strip_prefix('(')?.strip_suffix(']')?.split_once(',')?;
        Some(Self { after: after.trim().parse().ok()?, until: until.trim().parse().ok()? })
    }

    /// Its parts, from the least token to the greatest, each from one that it lacks to one that it has.
    fn parts(self) -> Vec<(i64, i64)> {
        match self.after < self.until {
            true => vec![(self.after, self.until)],
            false => vec![(self.after, i64::MAX), (i64::MIN, self.until)],
        }
    }
}

/// The begin of the oldest repair that is needed to cover the whole ring, with all newer ones; `None`: they leave gaps.
fn covered_since(mut runs: Vec<RepairRun>) -> Option<CqlTimestamp> {
    runs.sort_unstable_by_key(|run| std::cmp::Reverse(run.begun));
    let mut covered: Vec<(i64, i64)> = Vec::new();
    for run in runs {
        covered.extend(run.ranges.iter().flat_map(|range| range.parts()));
        join_parts(&mut covered);
        // The least token belongs to no key.
        if covered == [(i64::MIN, i64::MAX)] {
            return Some(CqlTimestamp(run.begun));
        }
    }
    None
}

/// Sorts parts, and joins those that touch.
fn join_parts(parts: &mut Vec<(i64, i64)>) {
    parts.sort_unstable();
    parts.dedup_by(|next, last| {
        let touches = next.0 <= last.1;
        if touches {
            last.1 = last.1.max(next.1);
        }
        touches
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(begun: i64, ranges: &[(i64, i64)]) -> RepairRun {
        let ranges = ranges.iter().map(|(after, until)| TokenRange { after: *after, until: *until }).collect();
        RepairRun { begun, ranges }
    }

    fn since(runs: &[RepairRun]) -> Option<i64> {
        covered_since(runs.to_vec()).map(|CqlTimestamp(millis)| millis)
    }

    #[test]
    fn ranges_are_read_as_cassandra_writes_them() {
        assert_eq!(TokenRange::parse("(-5,7]"), Some(TokenRange { after: -5, until: 7 }));
        for text in ["", "(,]", "(1,2)", "[1,2]", "(a,b]", "(1]"] {
            assert_eq!(TokenRange::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_table_is_repaired_since_the_oldest_part_of_it_was() {
        let one = run(10, &[(0, 100), (500, i64::MAX)]);
        let other = run(20, &[(i64::MAX, 0), (100, 500)]);
        assert_eq!(since(&[one.clone(), other.clone()]), Some(10));
        assert_eq!(since(&[other.clone(), one.clone()]), Some(10));
        assert_eq!(since(std::slice::from_ref(&one)), None);
        assert_eq!(since(&[]), None);
        let newer = run(30, &[(0, 100), (500, i64::MAX)]);
        assert_eq!(since(&[one, other, newer]), Some(20));
    }

    #[test]
    fn a_history_that_may_have_been_cut_is_told_from_a_whole_one() {
        assert!(REPAIRS.ends_with(&format!(" LIMIT {REPAIRS_MAX}")));
    }

    #[test]
    fn a_range_around_the_end_of_the_ring_covers_both_ends() {
        assert_eq!(since(&[run(1, &[(9, 9)])]), Some(1), "a ring of one token");
        assert_eq!(since(&[run(1, &[(100, -100), (-100, 100)])]), Some(1));
        assert_eq!(since(&[run(1, &[(100, -100), (-100, 99)])]), None);
    }
}
