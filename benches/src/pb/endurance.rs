//! One server under a large load: its disk and memory after it, then the latency of writes while tables are compacted.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::run::PbRun;
use crate::cells::{self, CellResult, KvOperation, KvSubject};
use crate::load;
use crate::metrics;
use crate::procfs;
use crate::report::{latency, megabytes, per_second, thousands};
use crate::server::{ServerConfig, ServerProcess};
use crate::targets::{self, BenchTarget};
use crate::turns::{BARE_CONNECTIONS, BARE_VALUE_BYTES};

/// The pause between two listings of the tables.
const LISTING_INTERVAL: Duration = Duration::from_millis(500);

impl PbRun {
    /// Loads a fresh server, and measures it.
    ///
    /// # Errors
    ///
    /// When the server refuses a write of the load, or a folder cannot be read.
    pub(super) async fn endurance(&mut self, config: ServerConfig) -> Result<()> {
        let (data, is_persistent) = (config.data.clone(), config.is_persistent());
        let mut server = ServerProcess::start(config)?;
        let subject = self.subject(&server, BARE_VALUE_BYTES, self.plan.puts);
        eprintln!("{} puts of 1 KB, then a pause of {} s", thousands(self.plan.puts as f64), self.plan.idle.as_secs());
        let seconds = load::fill(&subject, self.plan.puts).await?.as_secs_f64();
        let count = thousands(self.plan.puts as f64);
        let rate = per_second(self.plan.puts as f64 / seconds);
        self.report.fact(format!("{count} puts of 1 KB over PB, `dw=0`"), format!("{seconds:.1} s, {rate}/s"));
        let mut disk = vec![("right after loading", procfs::disk_bytes(&data)?)];
        tokio::time::sleep(self.plan.idle).await;
        disk.push(("after the pause", procfs::disk_bytes(&data)?));
        self.memory(&server).await?;
        if is_persistent {
            server = server.restart()?;
            disk.push(("after a restart", procfs::disk_bytes(&data)?));
            self.disk(&disk);
        }
        let subject = self.subject(&server, BARE_VALUE_BYTES, self.plan.puts);
        // The keys of the load are other ones, so these are new.
        self.tail(&subject, &data).await?;
        server.stop()
    }

    fn disk(&mut self, sizes: &[(&str, u64)]) {
        let stored = self.plan.puts * BARE_VALUE_BYTES as u64;
        let shown = sizes.iter().map(|(when, bytes)| {
            let ratio = *bytes as f64 / stored as f64;
            format!("{ratio:.2} {when} ({:.0} MB)", megabytes(*bytes))
        });
        let text = format!("{} for {:.0} MB of values", shown.collect::<Vec<_>>().join(", "), megabytes(stored));
        self.report.fact("bytes on disk per byte stored, values of 1 KB", text);
    }

    async fn memory(&mut self, server: &ServerProcess) -> Result<()> {
        let resident = procfs::resident_bytes(server.pid())?;
        let peak = procfs::peak_bytes(server.pid())?;
        let samples = metrics::memory(&metrics::fetch(&server.endpoint).await?);
        let cache = metrics::cache_bytes(&samples);
        let shown: Vec<String> =
            samples.iter().map(|(name, value)| format!("`{name}` {}", thousands(*value))).collect();
        let detail = format!(
            "VmRSS {:.0} MB {} s after {} puts of 1 KB (its peak {:.0} MB), of it cache in use {}; `/metrics`: {}",
            megabytes(resident),
            self.plan.idle.as_secs(),
            thousands(self.plan.puts as f64),
            megabytes(peak),
            cache.map_or("unknown, counted as 0".to_owned(), |cache| format!("{:.0} MB", megabytes(cache))),
            shown.join(", ")
        );
        let measured = megabytes(resident.saturating_sub(cache.unwrap_or(0)));
        self.report.targets.push(BenchTarget::new(targets::LOADED_MEMORY, Some(measured), detail));
        Ok(())
    }

    /// Measures the latency of durable PUTs of new keys while tables are merged.
    async fn tail(&mut self, subject: &KvSubject, data: &Path) -> Result<()> {
        let seconds = self.plan.tail.as_secs();
        eprintln!("durable PUT over PB for {seconds} s while tables are compacted");
        let mut merged = MergedTables::default();
        let measured = tokio::select! {
            measured = cells::run(subject, KvOperation::PutDurable, BARE_CONNECTIONS, self.plan.tail) => measured?,
            error = merged.watch(data) => return Err(error),
        };
        self.tail_targets(&measured, merged.count);
        Ok(())
    }

    fn tail_targets(&mut self, measured: &CellResult, merged: usize) {
        let tally = &measured.tally;
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| tally.latencies_us.value_at_quantile(quantile));
        let longest = tally.latencies_us.max();
        let mut detail = format!(
            "{}/s over {:.0} s: p50 {}, p99 {}, p99.9 {}, longest {}; {merged} tables merged away in that time",
            per_second(measured.rate()),
            measured.seconds,
            latency(p50),
            latency(p99),
            latency(p999),
            latency(longest),
        );
        if !measured.is_sound() {
            detail += &format!(", FAILED: {}", measured.faults());
        }
        let counts = measured.is_sound() && merged > 0;
        let ratio = counts.then(|| p99 as f64 / p50.max(1) as f64);
        self.report.targets.push(BenchTarget::new(targets::PUT_TAIL, ratio, detail));
        let silence = latency(tally.longest_silence.as_micros() as u64);
        let detail = format!("of any of the 64 connections; the longest time in which none got an answer: {silence}");
        let pause = counts.then_some(longest as f64 / 1e3);
        self.report.targets.push(BenchTarget::new(targets::PUT_PAUSE, pause, detail));
    }
}

/// Files of tables that were there and are gone: a compaction merged each into another.
#[derive(Debug, Default)]
struct MergedTables {
    tables: HashSet<PathBuf>,
    count: usize,
}

impl MergedTables {
    /// Lists the tables until it is dropped; returns only with an error.
    async fn watch(&mut self, data: &Path) -> anyhow::Error {
        loop {
            if let Err(error) = self.list(data) {
                return error;
            }
            tokio::time::sleep(LISTING_INTERVAL).await;
        }
    }

    fn list(&mut self, data: &Path) -> Result<()> {
        let mut found = HashSet::new();
        procfs::files(data, |path, _| {
            if path.parent().is_some_and(|parent| parent.ends_with("tables")) {
                found.insert(path.to_owned());
            }
        })?;
        self.count += self.tables.difference(&found).count();
        self.tables = found;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_are_gone_are_counted_once() {
        let data = tempfile::tempdir().unwrap();
        let tables = data.path().join("objects/tables");
        std::fs::create_dir_all(&tables).unwrap();
        let mut merged = MergedTables::default();
        for name in ["1", "2", "3"] {
            std::fs::write(tables.join(name), "").unwrap();
        }
        merged.list(data.path()).unwrap();
        std::fs::remove_file(tables.join("1")).unwrap();
        std::fs::write(data.path().join("journal"), "").unwrap();
        merged.list(data.path()).unwrap();
        std::fs::remove_file(data.path().join("journal")).unwrap();
        merged.list(data.path()).unwrap();
        assert_eq!(merged.count, 1);
    }
}
