//! Writes to plain tables.
//!
//! ```text
//! one partition                           one statement, or one unlogged batch: a single mutation, which is atomic
//! several, which add elsewhere            each as above, all at once
//! several, which remove elsewhere         one logged batch: once the cluster has it, all of it will be done
//! the last, but too large for that        additions elsewhere first; then the others, each partition whole, in logged batches
//! the same, below a majority              the first partition, then the others at once: a log needs two nodes that are up
//! ```
//! "Elsewhere" is outside the first partition, which is the object's own. The cluster refuses logged batches above 50 KiB; a batch
//! that is one mutation has no such limit. Every statement carries its stamp, so that sending it again is the same write.

use futures_util::future::try_join_all;
use larder_model::rows::changes_bytes;
use scylla::statement::Consistency;
use scylla::statement::batch::BatchType;

use larder_store::{Batch, Change, Error, Kind, Level, Options, Partition, Result};

use crate::cluster::{Bound, Cluster, Failure, in_time};
use crate::encoding::{Value, timestamp, ttl_seconds};
use crate::figures::count;
use crate::statements::Statement;

/// Bytes of a logged batch, by [`weight`].
const LOGGED_BYTES_MAX: usize = 40 * 1024;

/// Statements that the protocol takes in one batch.
const STATEMENTS_MAX: usize = u16::MAX as usize;

/// Changes to one partition, by all the parts of a batch that name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share<'a> {
    pub(crate) partition: &'a Partition,
    pub(crate) changes: Vec<&'a Change>,
}

/// What goes out in one request. Several partitions: logged.
type Request<'a> = Vec<Share<'a>>;

impl Cluster {
    /// Writes a batch whose contract has been checked.
    pub(crate) async fn write(&self, batch: &Batch, options: &Options) -> Result<()> {
        in_time(options, "a batch")?;
        for one in &batch.partitions {
            self.ensure(&one.partition, options.deadline).await?;
        }
        let shares = shares(batch);
        self.refuse_too_many_rows(batch, &shares, options).await?;
        let stages = stages(shares, options.level >= Level::Quorum);
        if stages.len() > 1 {
            count(&self.counters.batches_split);
        }
        for stage in stages {
            try_join_all(stage.iter().map(|request| self.send(request, options))).await?;
        }
        Ok(())
    }

    async fn send(&self, request: &Request<'_>, options: &Options) -> Result<()> {
        let now = self.clock.now();
        let mut bounds = Vec::with_capacity(request.iter().map(|share| share.changes.len()).sum());
        for share in request {
            for change in &share.changes {
                bounds.push(bound(share.partition, change, now)?);
            }
        }
        if bounds.len() > STATEMENTS_MAX {
            let text = format!("a batch of {} changes; {STATEMENTS_MAX} at most", bounds.len());
            return Err(Error::new(Kind::TooLarge, text));
        }
        let consistency = self.consistency_of(request, options.level);
        let sent: std::result::Result<_, Failure> = match &bounds[..] {
            [one] => self.execute(one, consistency, options.deadline).await,
            several => {
                let kind = if request.len() > 1 { BatchType::Logged } else { BatchType::Unlogged };
                self.batch(kind, several, consistency, options.deadline).await
            }
        };
        Ok(sent.map(drop)?)
    }

    /// One consistency for all partitions: where they differ, that which every keyspace understands.
    fn consistency_of(&self, request: &Request<'_>, level: Level) -> Consistency {
        let mut all = request.iter().map(|share| self.consistency(share.partition, level, true));
        let first = all.next().unwrap_or(Consistency::Quorum);
        if all.all(|other| other == first) {
            return first;
        }
        request.first().map_or(first, |share| self.consistency(share.partition, Level::Quorum, true))
    }
}

fn bound<'a>(partition: &'a Partition, change: &'a Change, now: u64) -> Result<Bound<'a>> {
    let key = Value::Blob(&partition.key);
    let (statement, values) = match change {
        Change::Put(row) => {
            let stamp = Value::BigInt(timestamp(row.stamp)?);
            let ttl = Value::Int(ttl_seconds(row.expires, now));
            let value = Value::Stored(&row.value, row.expires);
            (Statement::Put, vec![stamp, ttl, value, key, Value::Blob(&row.name)])
        }
        Change::Remove { name, stamp } => {
            (Statement::Remove, vec![Value::BigInt(timestamp(*stamp)?), key, Value::Blob(name)])
        }
        Change::Clear { stamp } => (Statement::Clear, vec![Value::BigInt(timestamp(*stamp)?), key]),
    };
    Ok(Bound { statement, partition, values })
}

/// The changes of a batch by partition, in order; partitions that nothing changes are left out.
fn shares(batch: &Batch) -> Vec<Share<'_>> {
    let mut shares: Vec<Share<'_>> = Vec::with_capacity(batch.partitions.len());
    for one in &batch.partitions {
        match shares.iter_mut().find(|share| *share.partition == one.partition) {
            Some(share) => share.changes.extend(&one.changes),
            None => shares.push(Share { partition: &one.partition, changes: one.changes.iter().collect() }),
        }
    }
    shares
}

/// What is sent one after the other, and at once within; `logs` if there is a log for what removes in several places.
fn stages(mut shares: Vec<Share<'_>>, logs: bool) -> Vec<Vec<Request<'_>>> {
    let removes_elsewhere = shares.iter().skip(1).any(removes);
    shares.retain(|share| !share.changes.is_empty());
    if shares.is_empty() {
        return Vec::new();
    }
    if !removes_elsewhere {
        return vec![each_alone(shares)];
    }
    if !logs {
        let others = shares.split_off(1);
        return [shares, others].map(each_alone).into_iter().filter(|stage| !stage.is_empty()).collect();
    }
    if shares.iter().map(weight).sum::<usize>() <= LOGGED_BYTES_MAX {
        return vec![vec![shares]];
    }
    let first = shares.remove(0);
    let (others, additions): (Vec<_>, Vec<_>) = shares.into_iter().partition(removes);
    let mut stages: Vec<Vec<Request<'_>>> = Vec::new();
    if !additions.is_empty() {
        stages.push(each_alone(additions));
    }
    let mut request = Vec::new();
    for share in std::iter::once(first).chain(others) {
        let bytes: usize = request.iter().chain([&share]).map(weight).sum();
        if bytes > LOGGED_BYTES_MAX && !request.is_empty() {
            stages.push(vec![std::mem::take(&mut request)]);
        }
        request.push(share);
    }
    stages.push(vec![request]);
    stages
}

/// Each in a request of its own.
fn each_alone(shares: Vec<Share<'_>>) -> Vec<Request<'_>> {
    shares.into_iter().map(|share| vec![share]).collect()
}

fn removes(share: &Share<'_>) -> bool {
    share.changes.iter().any(|change| !matches!(change, Change::Put(_)))
}

/// Bytes that the cluster may count for a share: names, values and what it adds to each.
fn weight(share: &Share<'_>) -> usize {
    let changes: usize = share.changes.iter().map(|change| changes_bytes(std::slice::from_ref(*change)) + 48).sum();
    share.partition.key.len() + changes + 128
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use larder_store::{Row, Table};

    fn put(bytes: usize) -> Change {
        Change::Put(Row { name: "n".into(), value: vec![7; bytes].into(), stamp: 2, expires: None })
    }

    fn remove(bytes: usize) -> Change {
        Change::Remove { name: vec![7; bytes].into(), stamp: 1 }
    }

    #[track_caller]
    fn check(changes: &[&[Change]], expected: &[&[&[usize]]]) {
        check_sent(true, changes, expected);
    }

    /// Partitions of the requests of each stage, by number.
    #[track_caller]
    fn check_sent(logs: bool, changes: &[&[Change]], expected: &[&[&[usize]]]) {
        let mut batch = Batch::default();
        for (number, changes) in changes.iter().enumerate() {
            let partition = Partition::own(Table::Keys, Bytes::from(vec![number as u8]));
            batch.partitions.extend(Batch::of(partition, changes.to_vec()).partitions);
        }
        let stages = stages(shares(&batch), logs);
        let numbers = |request: &Request<'_>| request.iter().map(|share| usize::from(share.partition.key[0])).collect();
        let found: Vec<Vec<Vec<usize>>> = stages.iter().map(|stage| stage.iter().map(numbers).collect()).collect();
        assert_eq!(
            found,
            expected.iter().map(|stage| stage.iter().map(|r| r.to_vec()).collect()).collect::<Vec<Vec<_>>>()
        );
        let changes: usize = changes.iter().map(|changes| changes.len()).sum();
        let sent: usize = stages.iter().flatten().flatten().map(|share| share.changes.len()).sum();
        assert_eq!(sent, changes, "every change is sent once");
    }

    #[test]
    fn one_partition_is_one_request() {
        check(&[], &[]);
        check(&[&[]], &[]);
        check(&[&[put(1 << 20), remove(9)]], &[&[&[0]]]);
    }

    #[test]
    fn additions_elsewhere_go_out_at_once() {
        check(&[&[put(9), remove(9)], &[put(9)], &[put(1 << 20)]], &[&[&[0], &[1], &[2]]]);
    }

    #[test]
    fn removals_elsewhere_are_logged_together() {
        check(&[&[put(9)], &[put(9), remove(9)], &[put(9)]], &[&[&[0, 1, 2]]]);
        check(&[&[put(16 << 10)], &[remove(9)]], &[&[&[0, 1]]]);
        check(&[&[], &[remove(9)]], &[&[&[1]]]);
    }

    #[test]
    fn what_is_too_large_for_a_log_is_split_between_partitions() {
        check(&[&[put(30 << 10)], &[put(20 << 10)], &[remove(9)]], &[&[&[1]], &[&[0, 2]]]);
        check(&[&[put(60 << 10)], &[remove(9)], &[put(9), remove(9)]], &[&[&[0]], &[&[1, 2]]]);
        check(&[&[remove(9)], &[remove(30 << 10)], &[remove(30 << 10)]], &[&[&[0, 1]], &[&[2]]]);
    }

    #[test]
    fn without_a_log_the_first_partition_goes_first() {
        check_sent(false, &[&[put(9)], &[put(9), remove(9)], &[put(9)]], &[&[&[0]], &[&[1], &[2]]]);
        check_sent(false, &[&[remove(9)], &[put(9)]], &[&[&[0], &[1]]]);
        check_sent(false, &[&[], &[remove(9)]], &[&[&[1]]]);
    }

    #[test]
    fn a_partition_named_twice_changes_once() {
        let partition = Partition::own(Table::Keys, "p");
        let mut batch = Batch::of(partition.clone(), vec![put(1)]);
        batch.add(partition, vec![remove(9)]);
        let shares = shares(&batch);
        assert_eq!((shares.len(), shares[0].changes.len()), (1, 2));
    }
}
