//! Writes to plain tables.
//!
//! ```text
//! one partition                           one statement, or one unlogged batch: a single mutation, which is atomic
//! several, additions elsewhere            one unlogged batch: a gateway that dies has sent all of it or nothing
//! several, removals elsewhere             one logged batch: once the cluster has it, it applies all of it
//! the same, too large or of other copies  additions elsewhere first, then the first partition
//! too large for one logged batch          additions elsewhere first; then the other partitions, each whole, in logged batches
//! removals without the batch log          the additions as above, with the first partition; then the removals elsewhere
//! ```
//! The batch log needs two live nodes, which the coordinator chooses. So a write below a majority does without it, and every
//! write while a node is silent: the coordinator may choose that one, and waits.
//!
//! "Elsewhere" is outside the first partition, which is the object's own. The cluster refuses batches of several partitions
//! above 50 KiB; a batch that is one mutation has no such limit. Every statement carries its stamp, so sending it again is
//! the same write.

use futures_util::future::join_all;
use larder_rows::changes_bytes;
use larder_store::{Batch, CallOptions, Change, ConsistencyLevel, Error, Kind, Partition, Result, Timestamp};
use scylla::statement::Consistency;
use scylla::statement::batch::BatchType;

use crate::client::{BoundStatement, ClusterClient, RequestFailure, check_deadline};
use crate::encoding::{BoundValue, timestamp, ttl_seconds};
use crate::hedge::{CallEnd, CallLimits, hedged};
use crate::metrics::count;
use crate::statements::RowStatement;

/// Most bytes of a batch over several partitions, by [`batch_bytes`].
const BATCH_BYTES_MAX: usize = 40 * 1024;

/// Most statements that the protocol allows in one batch.
const STATEMENTS_MAX: usize = u16::MAX as usize;

/// Changes to one partition, merged from all parts of a batch that name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionShare<'a> {
    pub(crate) partition: &'a Partition,
    pub(crate) changes: Vec<&'a Change>,
}

/// The partitions of one request.
type WriteRequest<'a> = Vec<PartitionShare<'a>>;

impl ClusterClient {
    /// Writes a batch; the caller has checked the contract.
    pub(crate) async fn write(&self, batch: &Batch, options: &CallOptions) -> Result<()> {
        check_deadline(options, "a batch")?;
        for part in &batch.partitions {
            self.ensure(&part.partition, options.deadline).await?;
        }
        let shares = group_by_partition(batch);
        // Counted before anything is sent: a refused batch writes nothing.
        self.check_row_count(batch, &shares, options).await?;
        if !removes_elsewhere(&shares) {
            return self.send_stages(plan_stages(shares, false), false, options).await;
        }
        if options.level < ConsistencyLevel::Quorum {
            return self.send_stages(plan_without_log(shares), false, options).await;
        }
        let logged = || self.send_stages(plan_stages(shares.clone(), true), true, options);
        let limits = CallLimits { deadline: options.deadline, may_repeat: false };
        match hedged(logged, limits, |_| false, || self.check_log()).await {
            Ok((answer, _)) => answer,
            Err(CallEnd::Unsent(_)) => self.send_stages(plan_without_log(shares), false, options).await,
            // The same stamps again are the same write; but a refusal would deny what the log may still carry out.
            Err(CallEnd::GivenUp(_) | CallEnd::DeadlinePassed) => {
                let again = self.send_stages(plan_without_log(shares), false, options).await;
                again.map_err(|error| Error { kind: Kind::TimedOut, ..error })
            }
        }
    }

    /// Refuses the batch log while a node is silent: the coordinator may choose that one, and waits for it.
    fn check_log(&self) -> Result<()> {
        match self.session.has_silent_node() {
            true => Err(Error::new(Kind::TimedOut, "the batch log may wait for a node that does not answer")),
            false => Ok(()),
        }
    }

    /// Sends the stages of a batch, one after the other. A crash between two stages leaves additions without the removals, or the
    /// first partition without the others.
    async fn send_stages(
        &self,
        stages: Vec<Vec<WriteRequest<'_>>>,
        is_logged: bool,
        options: &CallOptions,
    ) -> Result<()> {
        if stages.len() > 1 {
            count(&self.counters.batches_split);
        }
        for (at, stage) in stages.iter().enumerate() {
            // The requests of a stage are concurrent; the next stage starts after all of them are answered.
            let answers = join_all(stage.iter().map(|request| self.send(request, is_logged, options))).await;
            judge_stage(at == 0, answers)?;
        }
        Ok(())
    }

    async fn send(&self, request: &WriteRequest<'_>, is_logged: bool, options: &CallOptions) -> Result<()> {
        let now = self.clock.now();
        let mut bounds = Vec::with_capacity(request.iter().map(|share| share.changes.len()).sum());
        for share in request {
            for change in &share.changes {
                bounds.push(bind(share.partition, change, now.0)?);
            }
        }
        if bounds.len() > STATEMENTS_MAX {
            let text = format!("a batch of {} changes; {STATEMENTS_MAX} at most", bounds.len());
            return Err(Error::new(Kind::TooLarge, text));
        }
        let consistency = self.write_consistency(request, options.level);
        let sent: std::result::Result<_, RequestFailure> = match &bounds[..] {
            [statement] => self.execute(statement, consistency, options.deadline).await,
            several => self.batch(batch_type(request, is_logged), several, consistency, options.deadline).await,
        };
        let sent = sent.map(drop).map_err(Error::from);
        sent.map_err(|error| if request.len() > 1 && !is_logged { in_doubt_unless_unsent(error) } else { error })
    }

    /// One consistency for all partitions. Where they differ, a quorum, which is valid for every keyspace.
    fn write_consistency(&self, request: &WriteRequest<'_>, level: ConsistencyLevel) -> Consistency {
        let mut all = request.iter().map(|share| self.consistency(share.partition, level, true));
        let first = all.next().unwrap_or(Consistency::Quorum);
        if all.all(|other| other == first) {
            return first;
        }
        request.first().map_or(first, |share| self.consistency(share.partition, ConsistencyLevel::Quorum, true))
    }
}

/// The result of the requests of a stage. A refusal is one only if nothing of the batch was sent.
fn judge_stage(is_first: bool, answers: Vec<Result<()>>) -> Result<()> {
    let is_refusal = |answer: &Result<()>| matches!(answer, Err(error) if is_unavailable(error));
    let is_refused = is_first && answers.iter().all(is_refusal);
    let failed = answers.into_iter().find_map(Result::err);
    // Race: a part of the batch is stored; called refused, the caller would remove the body that its row names [invariant 163].
    failed.map_or(Ok(()), |error| Err(if is_refused { error } else { in_doubt(error) }))
}

/// The error of an unlogged batch over several partitions: its coordinator may have sent some when it finds others unavailable.
fn in_doubt_unless_unsent(error: Error) -> Error {
    // The gateway's own refusal has no cause: nothing was sent.
    if error.source.is_some() { in_doubt(error) } else { error }
}

fn in_doubt(error: Error) -> Error {
    if is_unavailable(&error) { Error { kind: Kind::TimedOut, ..error } } else { error }
}

fn is_unavailable(error: &Error) -> bool {
    matches!(error.kind, Kind::Unavailable { .. })
}

fn bind<'a>(partition: &'a Partition, change: &'a Change, now: u64) -> Result<BoundStatement<'a>> {
    let key = BoundValue::Blob(&partition.key);
    let (statement, values) = match change {
        Change::Put(row) => {
            let stamp = BoundValue::BigInt(timestamp(row.stamp)?);
            let ttl = BoundValue::Int(ttl_seconds(row.expires, Timestamp(now)));
            let value = BoundValue::Stored(&row.value, row.expires);
            (RowStatement::Put, vec![stamp, ttl, value, key, BoundValue::Blob(&row.name)])
        }
        Change::Remove { name, stamp } => {
            (RowStatement::Remove, vec![BoundValue::BigInt(timestamp(*stamp)?), key, BoundValue::Blob(name)])
        }
        Change::Clear { stamp } => (RowStatement::Clear, vec![BoundValue::BigInt(timestamp(*stamp)?), key]),
    };
    Ok(BoundStatement { statement, partition, values })
}

/// The changes of a batch by partition, in order, without partitions that have no changes.
fn group_by_partition(batch: &Batch) -> Vec<PartitionShare<'_>> {
    let mut shares: Vec<PartitionShare<'_>> = Vec::with_capacity(batch.partitions.len());
    // One partition, one share: its statements must reach the cluster as one mutation, which is atomic.
    for part in &batch.partitions {
        match shares.iter_mut().find(|share| *share.partition == part.partition) {
            Some(share) => share.changes.extend(&part.changes),
            None => shares.push(PartitionShare { partition: &part.partition, changes: part.changes.iter().collect() }),
        }
    }
    shares
}

/// Stages of a batch: sent one after the other, the requests of a stage concurrently. `removes`: it removes outside its first
/// partition.
fn plan_stages(mut shares: Vec<PartitionShare<'_>>, removes: bool) -> Vec<Vec<WriteRequest<'_>>> {
    shares.retain(|share| !share.changes.is_empty());
    if shares.is_empty() {
        return Vec::new();
    }
    let fits = shares.iter().map(batch_bytes).sum::<usize>() <= BATCH_BYTES_MAX;
    if !removes && fits && have_equal_copies(&shares) {
        // Crash: one request reaches the coordinator whole or not at all, so no object lacks its entry.
        return vec![vec![shares]];
    }
    if !removes {
        // The object last: a crash in between leaves entries that readers check, never an object without an entry.
        let entries = shares.split_off(1);
        return one_after_the_other(entries, shares);
    }
    // The largest row fits one logged batch with its entries; only batches of many rows are split below [invariant 19].
    if fits {
        return vec![vec![shares]];
    }
    // Additions first, for the same reason.
    let first = shares.remove(0);
    let (others, additions): (Vec<_>, Vec<_>) = shares.into_iter().partition(has_removals);
    let mut stages: Vec<Vec<WriteRequest<'_>>> = Vec::new();
    if !additions.is_empty() {
        stages.push(one_request_each(additions));
    }
    let mut request = Vec::new();
    for share in std::iter::once(first).chain(others) {
        // Each partition stays in one request: split, it would lose its atomicity.
        let bytes: usize = request.iter().chain([&share]).map(batch_bytes).sum();
        if bytes > BATCH_BYTES_MAX && !request.is_empty() {
            stages.push(vec![std::mem::take(&mut request)]);
        }
        request.push(share);
    }
    stages.push(vec![request]);
    stages
}

/// The stages of a batch that removes outside its first partition, where no batch log finishes it after a crash.
fn plan_without_log(mut shares: Vec<PartitionShare<'_>>) -> Vec<Vec<WriteRequest<'_>>> {
    let mut removals = Vec::new();
    for PartitionShare { partition, changes } in shares.iter_mut().skip(1) {
        let (added, removed): (Vec<_>, Vec<_>) = changes.drain(..).partition(|change| matches!(change, Change::Put(_)));
        *changes = added;
        removals.push(PartitionShare { partition, changes: removed });
    }
    removals.retain(|share| !share.changes.is_empty());
    let mut stages = plan_stages(shares, false);
    // Crash: removals that were never sent leave entries that readers check; sent first, they would hide the object [invariant 158].
    stages.push(one_request_each(removals));
    stages
}

/// A stage for each list, unless it is empty.
fn one_after_the_other<'a>(
    first: Vec<PartitionShare<'a>>,
    second: Vec<PartitionShare<'a>>,
) -> Vec<Vec<WriteRequest<'a>>> {
    [first, second].map(one_request_each).into_iter().filter(|stage| !stage.is_empty()).collect()
}

/// The batch log finishes a request over several partitions, if the batch `is_logged`; a crash may cut the others short.
fn batch_type(request: &WriteRequest<'_>, is_logged: bool) -> BatchType {
    if request.len() > 1 && is_logged { BatchType::Logged } else { BatchType::Unlogged }
}

/// A request for each share.
fn one_request_each(shares: Vec<PartitionShare<'_>>) -> Vec<WriteRequest<'_>> {
    shares.into_iter().map(|share| vec![share]).collect()
}

/// Whether anything is removed outside the first partition.
fn removes_elsewhere(shares: &[PartitionShare<'_>]) -> bool {
    shares.iter().skip(1).any(has_removals)
}

/// Whether one consistency means the same for all partitions.
fn have_equal_copies(shares: &[PartitionShare<'_>]) -> bool {
    shares.iter().all(|share| share.partition.copies == shares[0].partition.copies)
}

fn has_removals(share: &PartitionShare<'_>) -> bool {
    share.changes.iter().any(|change| !matches!(change, Change::Put(_)))
}

/// Bytes that the cluster may count for a share: names, values and overhead.
fn batch_bytes(share: &PartitionShare<'_>) -> usize {
    let changes: usize = share.changes.iter().map(|change| changes_bytes(std::slice::from_ref(*change)) + 48).sum();
    share.partition.key.len() + changes + 128
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use larder_store::{Row, Table};

    fn put(bytes: usize) -> Change {
        Change::Put(Row { name: "n".into(), value: vec![7; bytes].into(), stamp: Timestamp(2), expires: None })
    }

    fn remove(bytes: usize) -> Change {
        Change::Remove { name: vec![7; bytes].into(), stamp: Timestamp(1) }
    }

    #[track_caller]
    fn check(changes: &[&[Change]], expected: &[&[&[usize]]]) {
        check_sent(true, changes, expected);
    }

    /// Checks the partitions of the requests of each stage, by number.
    #[track_caller]
    fn check_sent(has_log: bool, changes: &[&[Change]], expected: &[&[&[usize]]]) {
        let mut batch = Batch::default();
        for (number, changes) in changes.iter().enumerate() {
            let partition = Partition::new(Table::Keys, Bytes::from(vec![number as u8]));
            batch.partitions.extend(Batch::single(partition, changes.to_vec()).partitions);
        }
        let shares = group_by_partition(&batch);
        let removes = removes_elsewhere(&shares);
        let stages = if has_log { plan_stages(shares, removes) } else { plan_without_log(shares) };
        let numbers =
            |request: &WriteRequest<'_>| request.iter().map(|share| usize::from(share.partition.key[0])).collect();
        let plan: Vec<Vec<Vec<usize>>> = stages.iter().map(|stage| stage.iter().map(numbers).collect()).collect();
        assert_eq!(
            plan,
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
    fn a_gateway_that_died_once_had_sent_an_object_and_not_its_entry() {
        check(&[&[put(9), remove(9)], &[put(9)], &[put(9)]], &[&[&[0, 1, 2]]]);
        // Too large for one batch: the entries go first.
        check(&[&[put(60 << 10)], &[put(9)], &[put(9)]], &[&[&[1], &[2]], &[&[0]]]);
    }

    #[test]
    fn additions_to_other_copies_go_out_before_the_object() {
        let partition =
            |n_val: u8| Partition { copies: n_val, ..Partition::new(Table::Keys, Bytes::from(vec![n_val])) };
        let mut batch = Batch::single(partition(1), vec![put(9)]);
        batch.add(partition(3), vec![put(9)]);
        let stages = plan_stages(group_by_partition(&batch), false);
        let copies: Vec<u8> = stages.iter().map(|stage| stage[0][0].partition.copies).collect();
        assert_eq!(copies, [3, 1]);
    }

    #[test]
    fn removals_elsewhere_are_logged_together() {
        check(&[&[put(9)], &[put(9), remove(9)], &[put(9)]], &[&[&[0, 1, 2]]]);
        check(&[&[put(16 << 10)], &[remove(9)]], &[&[&[0, 1]]]);
        check(&[&[], &[remove(9)]], &[&[&[1]]]);
    }

    #[test]
    fn a_removal_behind_an_empty_first_partition_is_logged() {
        let partition = |key: &'static str| Partition::new(Table::Keys, key);
        let mut batch = Batch::single(partition("own"), Vec::new());
        batch.add(partition("a"), vec![remove(9)]);
        batch.add(partition("b"), vec![put(9)]);
        let shares = group_by_partition(&batch);
        let removes = removes_elsewhere(&shares);
        let stages = plan_stages(shares, removes);
        assert!(matches!(batch_type(&stages[0][0], removes), BatchType::Logged));
    }

    #[test]
    fn a_batch_too_large_for_the_log_is_split_between_partitions() {
        check(&[&[put(30 << 10)], &[put(20 << 10)], &[remove(9)]], &[&[&[1]], &[&[0, 2]]]);
        check(&[&[put(60 << 10)], &[remove(9)], &[put(9), remove(9)]], &[&[&[0]], &[&[1, 2]]]);
        check(&[&[remove(9)], &[remove(30 << 10)], &[remove(30 << 10)]], &[&[&[0, 1]], &[&[2]]]);
    }

    #[test]
    fn a_gateway_that_died_without_a_log_once_had_removed_entries_of_an_object_that_stood() {
        check_sent(false, &[&[put(9)], &[put(9), remove(9)], &[put(9)]], &[&[&[0, 1, 2]], &[&[1]]]);
        check_sent(false, &[&[remove(9)], &[remove(9)], &[remove(9)]], &[&[&[0]], &[&[1], &[2]]]);
        check_sent(false, &[&[], &[remove(9)]], &[&[&[1]]]);
        // Too large for one batch: the entries go first, as with the log.
        let large = [&[put(60 << 10)][..], &[put(9), remove(9)], &[put(9)]];
        check_sent(false, &large, &[&[&[1], &[2]], &[&[0]], &[&[1]]]);
    }

    #[test]
    fn a_batch_of_which_a_part_was_sent_was_once_called_refused() {
        let refused = || Err(Error::new(Kind::Unavailable { alive: 1, required: 2 }, "keys: 1 of 2 replicas answer"));
        let kind = |is_first, answers| judge_stage(is_first, answers).map_err(|error| error.kind);
        let unavailable = Err(Kind::Unavailable { alive: 1, required: 2 });
        assert_eq!(kind(true, vec![Ok(()), Ok(())]), Ok(()));
        assert_eq!(kind(true, vec![refused(), refused()]), unavailable);
        assert_eq!(kind(true, vec![refused(), Ok(())]), Err(Kind::TimedOut));
        assert_eq!(kind(false, vec![refused(), refused()]), Err(Kind::TimedOut));
        // The coordinator's refusal of a batch over several partitions may come after it has sent some.
        let own = Error::new(Kind::Unavailable { alive: 1, required: 2 }, "");
        let nodes = Error::caused(Kind::Unavailable { alive: 1, required: 2 }, format_args!(""), std::fmt::Error);
        assert_eq!(in_doubt_unless_unsent(own).kind, Kind::Unavailable { alive: 1, required: 2 });
        assert_eq!(in_doubt_unless_unsent(nodes).kind, Kind::TimedOut);
    }

    #[test]
    fn a_partition_named_twice_is_one_share() {
        let partition = Partition::new(Table::Keys, "p");
        let mut batch = Batch::single(partition.clone(), vec![put(1)]);
        batch.add(partition, vec![remove(9)]);
        let shares = group_by_partition(&batch);
        assert_eq!((shares.len(), shares[0].changes.len()), (1, 2));
    }
}
