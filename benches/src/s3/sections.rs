//! The measurements of a server: the cells of one size.

use anyhow::Result;

use super::bucket::{BucketJob, S3Subject};
use super::cells::{self, CreatedKeys, S3BenchOperation, VALUE_BYTES, cell, connections};
use super::limits;
use super::report_style::size;
use super::run::S3Run;
use crate::report::{per_second, thousands};

/// The connections of the comparison with the bare server; the target is about the last.
const BARE_CONNECTIONS: [u64; 2] = [1, limits::LARGE_CONNECTIONS];

impl S3Run {
    /// Measures the cells of one size on a server with an empty bucket.
    ///
    /// # Errors
    ///
    /// When the server refuses a request, or breaks a connection outside of a cell.
    pub(super) async fn measure(&mut self, subject: &S3Subject, value_bytes: usize) -> Result<()> {
        let count = self.plan.loaded(value_bytes);
        eprintln!("loading {count} keys of {}", size(value_bytes));
        let seconds = subject.work(BucketJob::Load(value_bytes), count).await?.as_secs_f64();
        let name = format!("loading {} keys of {}, 64 connections", thousands(count as f64), size(value_bytes));
        self.report.fact(name, format!("{seconds:.1} s, {}/s", per_second(count as f64 / seconds)));
        if value_bytes == VALUE_BYTES[2] {
            let rounds = self.plan.rounds;
            limits::large_gets(&mut self.report, subject, count, &self.scratch, rounds, &BARE_CONNECTIONS).await?;
        }
        if value_bytes == VALUE_BYTES[0] && subject.kv.is_some() {
            limits::small_gets(&mut self.report, subject, count, self.plan.rounds).await?;
        }
        let made = CreatedKeys::default();
        for operation in S3BenchOperation::IN_TURN.into_iter().filter(|operation| operation.is_run_with(value_bytes)) {
            if operation == S3BenchOperation::Delete {
                made.fill_up(subject, value_bytes, self.plan.deleted_min(value_bytes)).await?;
            }
            for connections in connections(value_bytes) {
                self.cell(subject, operation, value_bytes, connections, &made).await?;
            }
            // Later cells do not need these keys, and they take space.
            if matches!(operation, S3BenchOperation::Delete | S3BenchOperation::Multipart) {
                made.delete(subject).await?;
            }
        }
        Ok(())
    }

    async fn cell(
        &mut self,
        subject: &S3Subject,
        operation: S3BenchOperation,
        value_bytes: usize,
        connections: u64,
        made: &CreatedKeys,
    ) -> Result<()> {
        let (loaded, length) = (self.plan.loaded(value_bytes), self.plan.length(value_bytes));
        let cell = cell(operation, value_bytes, connections);
        let measured = cells::run(subject, cell, operation, loaded, made, length).await?;
        let (name, rate) = (operation.label().name, per_second(measured.rate()));
        eprintln!("{name}, {}, {connections} connections: {rate}/s {}", size(value_bytes), measured.faults());
        self.report.cells.push(measured);
        Ok(())
    }
}
