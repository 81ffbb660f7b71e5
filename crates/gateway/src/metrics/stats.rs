//! `/stats`: the rows of the table, computed.

use std::time::Duration;

use serde_json::{Value, json};

use super::names::Series;
use super::table::{How, RING_PARTITIONS, Spread, table};
use super::track::Recent;
use super::{About, Event, Metrics, Op, Outcome};

/// What rows are computed from, gathered once.
pub(super) struct Snapshot {
    /// Times of reads.
    pub(super) gets: Recent,
    /// Times of writes and deletes: Riak writes a tombstone to delete.
    pub(super) puts: Recent,
    /// Times of the first pages of listings of keys and buckets.
    pub(super) lists: Recent,
    /// Times of all pages of listings.
    pub(super) list_pages: Recent,
    get_siblings: Recent,
    get_bytes: Recent,
    nothing: Recent,
    worked: [u64; Op::ALL.len()],
    failed: [u64; Op::ALL.len()],
    active: [u64; Op::ALL.len()],
    events: Vec<u64>,
}

/// Operations that Riak calls puts.
pub(super) const PUTS: [Op; 2] = [Op::Put, Op::Delete];
/// Operations that Riak's list machine does.
pub(super) const LISTS: [Op; 2] = [Op::ListKeys, Op::ListBuckets];
/// All of a listing's pages: any may fail, and one is being worked on.
pub(super) const LIST_PAGES: [Op; 3] = [Op::ListKeys, Op::ListBuckets, Op::ListPage];

/// All rows of the table, in its order: by name.
pub(super) fn stats(metrics: &Metrics, about: &About<'_>, now: Duration) -> Vec<(&'static str, Value)> {
    let snapshot = Snapshot::take(metrics, now);
    table().iter().map(|stat| (stat.name, snapshot.value(stat.how, about))).collect()
}

impl Snapshot {
    fn take(metrics: &Metrics, now: Duration) -> Self {
        let each = |count: &dyn Fn(Op) -> u64| std::array::from_fn(|index| count(Op::ALL[index]));
        let failed = |op| metrics.ended(op, Outcome::Failed);
        Self {
            gets: metrics.recent(&[Series::Time(Op::Get)], now),
            puts: metrics.recent(&PUTS.map(Series::Time), now),
            lists: metrics.recent(&LISTS.map(Series::Time), now),
            list_pages: metrics.recent(&LIST_PAGES.map(Series::Time), now),
            get_siblings: metrics.recent(&[Series::ReadSiblings], now),
            get_bytes: metrics.recent(&[Series::ReadBytes], now),
            nothing: Recent::default(),
            worked: each(&|op| metrics.ended(op, Outcome::Ok) + metrics.ended(op, Outcome::NotFound) + failed(op)),
            failed: each(&failed),
            active: each(&|op| metrics.active(op)),
            events: Event::ALL.iter().map(|event| metrics.happened(*event)).collect(),
        }
    }

    /// Operations since the start that were not refused.
    pub(super) fn worked(&self, ops: &[Op]) -> Value {
        ops.iter().map(|op| self.worked[*op as usize]).sum::<u64>().into()
    }

    /// Operations since the start that failed.
    pub(super) fn failed(&self, ops: &[Op]) -> Value {
        ops.iter().map(|op| self.failed[*op as usize]).sum::<u64>().into()
    }

    /// Operations being worked on.
    pub(super) fn active(&self, ops: &[Op]) -> Value {
        ops.iter().map(|op| self.active[*op as usize]).sum::<u64>().into()
    }

    fn value(&self, how: How, about: &About<'_>) -> Value {
        match how {
            How::NotBuilt => 0.into(),
            How::Text(text) => text.into(),
            How::Of(value) => value(self, about),
            How::At(spread, point) => self.spread(spread).point(point).into(),
            How::Event(event) => self.events[event as usize].into(),
        }
    }

    fn spread(&self, spread: Spread) -> &Recent {
        match spread {
            Spread::GetTime => &self.gets,
            Spread::GetSiblings => &self.get_siblings,
            Spread::GetBytes => &self.get_bytes,
            Spread::PutTime => &self.puts,
            Spread::NotBuilt => &self.nothing,
        }
    }
}

impl About<'_> {
    /// All members, this node among them whether it is listed or not, by name.
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

    /// An Erlang list of members and their even shares of a ring there is none of.
    pub(super) fn ring_ownership(&self) -> String {
        let members = self.ring_members();
        let (each, more) = (RING_PARTITIONS / members.len() as u64, RING_PARTITIONS % members.len() as u64);
        let shares =
            members.iter().zip(0..).map(|(member, at)| format!("{{'{member}',{}}}", each + u64::from(at < more)));
        format!("[{}]", shares.collect::<Vec<_>>().join(",\n "))
    }

    /// Riak's list of disks.
    pub(super) fn disks(&self) -> Value {
        let disk = |disk: &super::Disk<'_>| json!({"id": disk.id, "size": disk.size_kib, "used": disk.used_percent});
        self.engine.disks.iter().map(disk).collect()
    }
}
