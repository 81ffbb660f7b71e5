//! [`Store`] for the simulated cluster.

use async_trait::async_trait;
use bytes::Bytes;
use larder_rows::limits::BATCH_BYTES_MAX;
use larder_store::range_bisect::RangeBisect;
use larder_store::{
    Batch, CallOptions, CasResult, Change, ConsistencyLevel, EngineLimits, Error, HeadWrite, Kind, Partition,
    PartitionPage, ReadQuery, Result, RowPage, Store, Table, Timestamp, contract,
};
use tokio::time::Instant;

use super::paxos::CasArgs;
use super::reads::{check_deadline, wait_until};
use super::writes::{is_logged, stages_without_log};
use super::{ClusterSetup, Replicas};

#[async_trait]
impl Store for Replicas {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &CallOptions) -> Result<RowPage> {
        check_deadline(options)?;
        contract::check_limit(query.limit)?;
        if !self.state.lock().setup.bisects_ranges {
            return self.page(partition, query, options).await;
        }
        let mut bisect = RangeBisect::new(query);
        while let Some(piece) = bisect.next_piece() {
            match self.page(partition, &piece, options).await {
                Ok(page) => bisect.add_page(page),
                Err(error) if error.kind == Kind::Io => bisect.split(&piece, error)?,
                Err(error) => return Err(error),
            }
        }
        Ok(bisect.into_page())
    }

    async fn apply(&self, batch: Batch, options: &CallOptions) -> Result<()> {
        check_deadline(options)?;
        contract::check_batch(&batch, self.limits().batch_max)?;
        self.check_batch_size(&batch)?;
        self.check_row_count(&batch, options).await?;
        let has_log = options.level >= ConsistencyLevel::Quorum && !self.current_state().is_any_down();
        let stages = if has_log || !is_logged(&batch) { vec![batch] } else { stages_without_log(batch) };
        for (at, stage) in stages.into_iter().enumerate() {
            let sent = self.send_batch(&stage, options.level, has_log);
            // A part of the batch was sent: the rest cannot be called refused.
            let in_doubt = |error: Error| if at > 0 { Error { kind: Kind::TimedOut, ..error } } else { error };
            let (waits, logged) = sent.map_err(in_doubt)?;
            self.await_answers(&waits, options).await?;
            if let Some(logged) = logged {
                // Only after enough acknowledgements; until then a crash replays the batch.
                self.current_state().remove_logged(logged);
            }
        }
        Ok(())
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Timestamp>,
        head: HeadWrite,
        changes: Vec<Change>,
        options: &CallOptions,
    ) -> Result<CasResult> {
        check_deadline(options)?;
        if head.derived.is_some() || head.beside.is_some() {
            return Err(Error::new(Kind::Misuse, "this engine keeps no derived rows, and none beside a head"));
        }
        contract::check_compare_and_set(partition, expected, &head, &changes, self.limits().batch_max)?;
        // Both delays are drawn now: a simulation with one seed draws the same numbers, whatever other calls do
        // between.
        let (there, back) = {
            let mut state = self.current_state();
            (Instant::now() + state.delay(), state.delay())
        };
        wait_until(there.min(options.deadline)).await;
        check_deadline(options)?;
        let args = CasArgs { partition, expected, head: head.row, changes };
        let answer = self.current_state().compare_and_set(self.side, args, self.clock.now());
        match answer {
            Err(error) if error.kind == Kind::TimedOut => Err(self.timeout_error(options).await),
            answer => {
                wait_until((Instant::now() + back).min(options.deadline)).await;
                check_deadline(options)?;
                answer
            }
        }
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &CallOptions,
    ) -> Result<PartitionPage> {
        check_deadline(options)?;
        contract::check_limit(limit)?;
        let after = after.map(|cursor| decode_cursor(table, &cursor)).transpose()?;
        let (mut partitions, mut last) = (Vec::new(), after);
        while partitions.len() <= limit {
            let Some(next) = self.current_state().next_partition(self.side, table, last.as_ref()) else { break };
            if !self.read(&next, &ReadQuery::all(1), options).await?.rows.is_empty() {
                partitions.push(next.clone());
            }
            last = Some(next);
        }
        let more = partitions.len() > limit;
        partitions.truncate(limit);
        let next = partitions.last().filter(|_| more).map(encode_cursor);
        Ok(PartitionPage { partitions, next })
    }

    async fn now(&self, options: &CallOptions) -> Result<Timestamp> {
        check_deadline(options)?;
        let mut state = self.current_state();
        let all: Vec<usize> = (0..state.nodes.len()).collect();
        state.choose_coordinator(self.side, &all, ConsistencyLevel::One)?;
        Ok(self.clock.now())
    }

    fn limits(&self) -> EngineLimits {
        let state = self.state.lock();
        let ClusterSetup { nodes, inline_max, mutation_max, syncs, .. } = state.setup;
        EngineLimits {
            inline_max,
            batch_max: mutation_max.min(BATCH_BYTES_MAX),
            nodes: nodes as u32,
            replicated: true,
            syncs,
            tombstones_slow_reads: true,
            large_partitions_burden: true,
        }
    }

    fn is_ready(&self) -> bool {
        true
    }
}

/// The cursor of a listing after a partition.
fn encode_cursor(partition: &Partition) -> Bytes {
    [&[partition.copies], &partition.key[..]].concat().into()
}

fn decode_cursor(table: Table, cursor: &Bytes) -> Result<Partition> {
    let copies = *cursor.first().ok_or_else(|| Error::new(Kind::Misuse, "an empty cursor"))?;
    Ok(Partition { table, copies, key: cursor.slice(1..) })
}
