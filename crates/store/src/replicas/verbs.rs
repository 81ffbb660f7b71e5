//! The cluster as a [`Store`].

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use larder_model::limits::BATCH_BYTES_MAX;

use super::paxos::Ask;
use super::reads::{in_time, until};
use super::{Replicas, Setup};
use crate::halving::Halving;
use crate::{
    Batch, Change, EngineLimits, Error, Head, Kind, Level, Micros, Options, Page, Partition, PartitionPage, ReadQuery,
    Result, Stamp, Store, Swap, Table, contract,
};

#[async_trait]
impl Store for Replicas {
    async fn read(&self, partition: &Partition, query: &ReadQuery, options: &Options) -> Result<Page> {
        in_time(options)?;
        contract::limit(query.limit)?;
        if !self.state.lock().setup.halves {
            return self.page(partition, query, options).await;
        }
        let mut halving = Halving::of(query);
        while let Some(piece) = halving.next() {
            match self.page(partition, &piece, options).await {
                Ok(page) => halving.answered(page),
                Err(error) if error.kind == Kind::Io => halving.gave_up(&piece, error)?,
                Err(error) => return Err(error),
            }
        }
        Ok(halving.page())
    }

    async fn apply(&self, batch: Batch, options: &Options) -> Result<()> {
        in_time(options)?;
        contract::batch(&batch, self.limits().batch_max)?;
        self.fits(&batch)?;
        self.refuse_too_many_rows(&batch, options).await?;
        let (waits, logged) = self.send(&batch, options.level)?;
        self.await_answers(&waits, options).await?;
        if let Some(logged) = logged {
            self.now_state().strike_out(logged);
        }
        Ok(())
    }

    async fn apply_if(
        &self,
        partition: &Partition,
        expected: Option<Stamp>,
        head: Head,
        mut changes: Vec<Change>,
        options: &Options,
    ) -> Result<Swap> {
        in_time(options)?;
        if head.shadow.is_some() {
            return Err(Error::new(Kind::Misuse, "this engine keeps no shadows"));
        }
        changes.push(Change::Put(head.row.clone()));
        contract::swap(partition, expected, &head, &changes, self.limits().batch_max)?;
        changes.pop();
        let (there, back) = {
            let mut state = self.now_state();
            (Instant::now() + state.delay(), state.delay())
        };
        until(there.min(options.deadline)).await;
        in_time(options)?;
        let ask = Ask { partition, expected, head: head.row, changes };
        let answer = self.now_state().swap(self.side, ask, self.clock.now());
        match answer {
            Err(error) if error.kind == Kind::TimedOut => Err(self.unanswered(options).await),
            answer => {
                until((Instant::now() + back).min(options.deadline)).await;
                in_time(options)?;
                answer
            }
        }
    }

    async fn partitions(
        &self,
        table: Table,
        after: Option<Bytes>,
        limit: usize,
        options: &Options,
    ) -> Result<PartitionPage> {
        in_time(options)?;
        contract::limit(limit)?;
        let after = after.map(|cursor| crate::memory::of_cursor(table, &cursor)).transpose()?;
        let (mut partitions, mut last) = (Vec::new(), after);
        while partitions.len() <= limit {
            let Some(next) = self.now_state().next_partition(self.side, table, last.as_ref()) else { break };
            if !self.read(&next, &ReadQuery::all(1), options).await?.rows.is_empty() {
                partitions.push(next.clone());
            }
            last = Some(next);
        }
        let more = partitions.len() > limit;
        partitions.truncate(limit);
        let next = partitions.last().filter(|_| more).map(crate::memory::cursor_of);
        Ok(PartitionPage { partitions, next })
    }

    async fn now(&self, options: &Options) -> Result<Micros> {
        in_time(options)?;
        let mut state = self.now_state();
        let all: Vec<usize> = (0..state.nodes.len()).collect();
        state.coordinate(self.side, &all, Level::One)?;
        Ok(self.clock.now())
    }

    fn limits(&self) -> EngineLimits {
        let state = self.state.lock();
        let Setup { nodes, inline_max, mutation_max, syncs, .. } = state.setup;
        EngineLimits {
            inline_max,
            batch_max: mutation_max.min(BATCH_BYTES_MAX),
            nodes: nodes as u32,
            replicated: true,
            syncs,
            keeps_tombstones: true,
        }
    }

    fn is_ready(&self) -> bool {
        true
    }
}
