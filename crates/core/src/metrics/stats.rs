//! Computes the rows of `/stats`.

use std::time::Duration;

use serde_json::{Value, json};

use super::distribution::{LastMinute, Series};
use super::node_info::NodeInfo;
use super::table::{RING_PARTITIONS, StatDistribution, StatSource, table};
use super::{Event, KvOp, Metrics, RequestOutcome};

/// The data of all rows, collected once.
pub(super) struct Snapshot {
    /// Times of each operation.
    times: Vec<LastMinute>,
    /// Times of writes and deletes: Riak writes a tombstone to delete.
    pub(super) puts: LastMinute,
    /// Times of the first pages of listings of keys and buckets.
    pub(super) lists: LastMinute,
    /// Times of all pages of listings.
    pub(super) list_pages: LastMinute,
    /// Connections of protocol buffers that were opened.
    pub(super) pb_connects: LastMinute,
    /// The same, since the start.
    pub(super) pb_connects_total: u64,
    /// Connections of protocol buffers that are open.
    pub(super) pb_open: u64,
    get_siblings: LastMinute,
    get_bytes: LastMinute,
    nothing: LastMinute,
    ended: [u64; KvOp::ALL.len()],
    failed: [u64; KvOp::ALL.len()],
    active: [u64; KvOp::ALL.len()],
    events: Vec<u64>,
}

/// Operations that Riak calls puts.
pub(super) const PUTS: [KvOp; 2] = [KvOp::Put, KvOp::Delete];
/// Operations of Riak's list FSM.
pub(super) const LISTS: [KvOp; 2] = [KvOp::ListKeys, KvOp::ListBuckets];
/// All pages of a listing: any may fail or be active.
pub(super) const LIST_PAGES: [KvOp; 3] = [KvOp::ListKeys, KvOp::ListBuckets, KvOp::ListPage];
/// All pages of a query of an index.
pub(super) const INDEX_PAGES: [KvOp; 2] = [KvOp::Index, KvOp::IndexPage];

impl Metrics {
    /// All of `/stats`, sorted by name: see [`table`]. Copies distributions, about 100 µs: not for every request.
    #[must_use]
    pub fn stats(&self, info: &NodeInfo<'_>, now: Duration) -> Vec<(&'static str, Value)> {
        let snapshot = Snapshot::take(self, now);
        table().iter().map(|stat| (stat.name, snapshot.value(stat.source, info))).collect()
    }
}

impl Snapshot {
    fn take(metrics: &Metrics, now: Duration) -> Self {
        let each = |count: &dyn Fn(KvOp) -> u64| std::array::from_fn(|index| count(KvOp::ALL[index]));
        let failed = |op| metrics.request_count(op, RequestOutcome::Failed);
        Self {
            times: KvOp::ALL.iter().map(|op| metrics.last_minute(&[Series::Time(*op)], now)).collect(),
            puts: metrics.last_minute(&PUTS.map(Series::Time), now),
            lists: metrics.last_minute(&LISTS.map(Series::Time), now),
            list_pages: metrics.last_minute(&LIST_PAGES.map(Series::Time), now),
            pb_connects: metrics.last_minute(&[Series::PbConnections], now),
            pb_connects_total: metrics.since_start(Series::PbConnections).count,
            pb_open: metrics.open_pb_connections(),
            get_siblings: metrics.last_minute(&[Series::ReadSiblings], now),
            get_bytes: metrics.last_minute(&[Series::ReadBytes], now),
            nothing: LastMinute::default(),
            ended: each(&|op| {
                metrics.request_count(op, RequestOutcome::Ok)
                    + metrics.request_count(op, RequestOutcome::NotFound)
                    + failed(op)
            }),
            failed: each(&failed),
            active: each(&|op| metrics.active_count(op)),
            events: Event::ALL.iter().map(|event| metrics.event_count(*event)).collect(),
        }
    }

    /// An operation in the last minute.
    pub(super) fn last_minute(&self, op: KvOp) -> &LastMinute {
        &self.times[op as usize]
    }

    /// Operations since the start that were not refused.
    pub(super) fn ended(&self, ops: &[KvOp]) -> Value {
        ops.iter().map(|op| self.ended[*op as usize]).sum::<u64>().into()
    }

    /// Operations since the start that failed.
    pub(super) fn failed(&self, ops: &[KvOp]) -> Value {
        ops.iter().map(|op| self.failed[*op as usize]).sum::<u64>().into()
    }

    /// Active operations.
    pub(super) fn active(&self, ops: &[KvOp]) -> Value {
        ops.iter().map(|op| self.active[*op as usize]).sum::<u64>().into()
    }

    fn value(&self, source: StatSource, info: &NodeInfo<'_>) -> Value {
        match source {
            StatSource::NotBuilt => 0.into(),
            StatSource::Text(text) => text.into(),
            StatSource::LastMinute(op) => self.last_minute(op).count.into(),
            StatSource::SinceStart(op) => self.ended(&[op]),
            StatSource::Computed(value) => value(self, info),
            StatSource::Statistic(spread, point) => self.spread(spread).statistic(point).into(),
            StatSource::Event(event) => self.events[event as usize].into(),
        }
    }

    fn spread(&self, spread: StatDistribution) -> &LastMinute {
        match spread {
            StatDistribution::Time(op) => self.last_minute(op),
            StatDistribution::GetSiblings => &self.get_siblings,
            StatDistribution::GetBytes => &self.get_bytes,
            StatDistribution::PutTime => &self.puts,
            StatDistribution::NotBuilt => &self.nothing,
        }
    }
}

impl NodeInfo<'_> {
    /// All members by name, always with this node.
    pub(super) fn ring_members(&self) -> Vec<&str> {
        let mut members: Vec<&str> = self.members.iter().map(String::as_str).chain([self.node]).collect();
        members.sort_unstable();
        members.dedup();
        members
    }

    /// All members but this node, by name.
    pub(super) fn connected_nodes(&self) -> Vec<&str> {
        self.ring_members().into_iter().filter(|member| *member != self.node).collect()
    }

    /// An Erlang list of members with even shares of the nominal ring.
    pub(super) fn ring_ownership(&self) -> String {
        let members = self.ring_members();
        let (each, more) = (RING_PARTITIONS / members.len() as u64, RING_PARTITIONS % members.len() as u64);
        let shares =
            members.iter().zip(0..).map(|(member, at)| format!("{{'{member}',{}}}", each + u64::from(at < more)));
        format!("[{}]", shares.collect::<Vec<_>>().join(",\n "))
    }

    /// Riak's list of disks.
    pub(super) fn disks(&self) -> Value {
        self.disk.iter().map(|(id, size_kib, used)| json!({"id": id, "size": size_kib, "used": used})).collect()
    }
}
