//! The measurements of each server: the cells of one size, or one target.

use anyhow::Result;

use super::bucket::{BucketJob, S3Subject};
use super::cells::{self, CreatedKeys, S3BenchOperation, VALUE_BYTES, cell, connections};
use super::report_style::size;
use super::run::S3Run;
use super::{limits, listing, paging, uploads};
use crate::procfs;
use crate::report::{megabytes, per_second, thousands};
use crate::targets::{self, BenchTarget};

/// The connections of the comparison with the bare server; the target is about the last.
const BARE_CONNECTIONS: [u64; 2] = [1, limits::LARGE_CONNECTIONS];

/// A measurement on one server.
#[derive(Debug, Clone, Copy)]
pub(super) enum BenchSection {
    /// The operations with values of this size.
    Cells(usize),
    /// List Parts.
    Paging,
    /// The listing of very many keys.
    Listing,
    /// Memory during uploads.
    Uploads,
}

impl BenchSection {
    /// All sections, in the order of the run.
    pub(super) const ALL: [Self; 6] = [
        Self::Cells(VALUE_BYTES[0]),
        Self::Cells(VALUE_BYTES[1]),
        Self::Cells(VALUE_BYTES[2]),
        Self::Paging,
        Self::Listing,
        Self::Uploads,
    ];

    /// Its name in the bucket and the directories.
    pub(super) fn name(self) -> String {
        match self {
            Self::Cells(bytes) => size(bytes).replace(' ', "").to_ascii_lowercase(),
            Self::Paging => "parts".to_owned(),
            Self::Listing => "keys".to_owned(),
            Self::Uploads => "uploads".to_owned(),
        }
    }
}

impl S3Run {
    /// Measures one section on a server with an empty bucket.
    ///
    /// # Errors
    ///
    /// When the server refuses a request, or breaks a connection outside of a cell.
    pub(super) async fn section(&mut self, subject: &S3Subject, section: BenchSection) -> Result<()> {
        match section {
            BenchSection::Cells(value_bytes) => self.measure(subject, value_bytes).await,
            BenchSection::Paging => self.paging(subject).await,
            BenchSection::Listing => self.listing(subject).await,
            BenchSection::Uploads => self.uploads(subject).await,
        }
    }

    /// Measures the cells of one size.
    async fn measure(&mut self, subject: &S3Subject, value_bytes: usize) -> Result<()> {
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

    async fn paging(&mut self, subject: &S3Subject) -> Result<()> {
        let (parts, pages) = (self.plan.parts, self.plan.pages);
        eprintln!("listing parts of uploads of {parts:?} parts");
        let paged = paging::run(subject, &parts, pages).await?;
        let (small, large) = (paged[0].median_us(), paged[parts.len() - 1].median_us());
        let ratio = large.zip(small).map(|(large, small)| large / small);
        let medians: Vec<String> = paged.iter().map(paging::PagedUpload::describe).collect();
        let each = thousands(pages as f64);
        let detail = format!("medians of {each} pages each from random places, in turns: {}", medians.join(", "));
        self.report.targets.push(BenchTarget::new(targets::S3_PARTS, ratio, detail));
        let most = &paged[parts.len() - 1];
        let name = format!("sending {} parts of 16 B, 64 connections", thousands(most.parts as f64));
        self.report.fact(name, most.loading());
        Ok(())
    }

    async fn listing(&mut self, subject: &S3Subject) -> Result<()> {
        let keys = self.plan.keys;
        eprintln!("loading {keys} empty keys, and listing them");
        let listed = listing::run(subject, keys).await?;
        let seconds = listed.listed_in.as_secs_f64();
        let (count, rate) = (thousands(keys as f64), thousands(keys as f64 / seconds));
        let mut detail = format!("{count} keys in {} pages, one connection, {rate} keys/s", listed.pages);
        if let Some(pid) = subject.pid {
            let resident = megabytes(procfs::resident_bytes(pid)?);
            detail += &format!("; resident memory then {resident:.0} MB");
        }
        self.report.targets.push(BenchTarget::new(targets::S3_LIST, Some(seconds), detail));
        let loading = listed.loaded_in.as_secs_f64();
        let rate = thousands(keys as f64 / loading);
        self.report.fact(format!("loading {count} empty keys, 64 connections"), format!("{loading:.1} s, {rate}/s"));
        Ok(())
    }

    async fn uploads(&mut self, subject: &S3Subject) -> Result<()> {
        let Some(pid) = subject.pid else {
            self.report.targets.push(BenchTarget::new(targets::S3_MEMORY, None, "needs the server's own process"));
            return Ok(());
        };
        let (count, value_bytes) = (self.plan.uploads, VALUE_BYTES[2]);
        eprintln!("{count} uploads at once");
        let memory = uploads::run(subject, pid, count, value_bytes).await?;
        let (before, sampled) = (megabytes(memory.before), megabytes(memory.sampled));
        let seconds = memory.elapsed.as_secs_f64();
        let moved = megabytes(count * value_bytes as u64) / seconds;
        let detail = format!(
            "peak resident memory of a fresh server, {count} PUTs of {} at once in {seconds:.1} s ({moved:.0} MB/s); \
             {before:.0} MB before, {sampled:.0} MB the largest of samples every 20 ms",
            size(value_bytes)
        );
        self.report.targets.push(BenchTarget::new(targets::S3_MEMORY, Some(megabytes(memory.peak)), detail));
        Ok(())
    }
}
