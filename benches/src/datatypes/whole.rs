//! One large set: its bytes on disk after compaction, and a fetch of all of it, its rate and its memory.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::operation::ValueOperation;
use super::run::{DatatypesRun, TYPES};
use super::sets::{load_sets, path};
use super::settled;
use crate::bucket_types;
use crate::metrics;
use crate::numbered_work::{self, ExpectedBody, NumberedWork, ValueServer};
use crate::procfs;
use crate::report::{megabytes, thousands};
use crate::server::{ServerConfig, ServerProcess};
use crate::targets::{self, BenchTarget};
use crate::turns::{Rounds, median};
use crate::value_requests::ValueDriver;

impl DatatypesRun {
    /// Loads the largest set into a fresh server, and measures it.
    ///
    /// # Errors
    ///
    /// When the server refuses a part of the load, or does not restart.
    pub(super) async fn whole(&mut self, config: ServerConfig) -> Result<()> {
        let data = config.data.clone();
        let mut server = ServerProcess::start(config)?;
        bucket_types::make(&data.join("admin.sock"), &TYPES)?;
        let size = self.plan.set_sizes[3];
        let empty = procfs::disk_bytes(&data)?;
        eprintln!("loading a set of {} elements", thousands(size as f64));
        load_sets(&server.endpoint, size, 1).await?;
        let loaded = procfs::disk_bytes(&data)?;
        let waited = settled::wait(&data, self.plan.settled).await?;
        self.disk(size, &data, [("with no data", empty), ("right after loading", loaded)], waited)?;
        // A fresh process: the memory of the load is gone.
        server = server.restart()?;
        self.fetch(&server, size).await?;
        server.stop()
    }

    fn disk(&mut self, size: usize, data: &Path, before: [(&str, u64); 2], waited: Option<Duration>) -> Result<()> {
        let bytes = procfs::disk_bytes(data)?;
        let journal = procfs::disk_bytes(&data.join("journal")).unwrap_or(0);
        let rows = procfs::disk_bytes(&data.join("rows")).unwrap_or(0);
        let each = |bytes: u64| bytes as f64 / size as f64;
        let settled = match waited {
            Some(time) => format!("it kept its size {:.0} s after the load", time.as_secs_f64()),
            None => "it still changed".to_owned(),
        };
        let before = before.map(|(when, bytes)| format!("{when} {:.1} MB", megabytes(bytes))).join(", ");
        let text = format!(
            "{:.1} B: the data folder {:.1} MB, of it tables {:.1} MB ({:.1} B) and the journal {:.1} MB; {settled}; {before}",
            each(bytes),
            megabytes(bytes),
            megabytes(rows),
            each(rows),
            megabytes(journal),
        );
        let name = format!("bytes on disk per element of 16 B, one set of {} elements", thousands(size as f64));
        self.report.fact(name, text);
        Ok(())
    }

    async fn fetch(&mut self, server: &ServerProcess, size: usize) -> Result<()> {
        let target = ValueServer { endpoint: server.endpoint.clone(), pid: server.pid() };
        tokio::time::sleep(self.plan.idle).await;
        procfs::reset_peak(server.pid())?;
        let idle = procfs::resident_bytes(server.pid())?;
        // The first fetch is part of the measured memory, and shows the length of all.
        let mut driver = ValueDriver::connect(&server.endpoint).await?;
        driver.request.get(format_args!("{}", path(size, 0)));
        let body_bytes = driver.send().await?.body_bytes;
        let first = procfs::peak_bytes(server.pid())?;
        let work = NumberedWork::new(ValueOperation::SetFetch, size, move |_, request| {
            request.get(format_args!("{}", path(size, 0)));
        });
        let work = NumberedWork { connections: 1, bound: Some(1), body: ExpectedBody::Length(body_bytes), ..work };
        let rounds = Rounds { count: self.plan.fetches, ..self.plan.rounds };
        let [side] = numbered_work::measure(&mut self.report, &target, &[work], rounds).await?;
        let peak = procfs::peak_bytes(server.pid())?;
        let samples = metrics::memory(&metrics::fetch(&server.endpoint).await?);
        let cache = metrics::cache_bytes(&samples).unwrap_or(0);
        let count = thousands(size as f64);
        let rate = median(&side.rates).unwrap_or(0.0) * megabytes(body_bytes);
        let text = format!("{rate:.1} MB/s; {:.1} MB each; {}", megabytes(body_bytes), side.describe());
        self.report.fact(format!("whole fetch of {count} elements over HTTP, 1 connection"), text);
        let detail = format!(
            "{count} elements; idle {:.0} MB after a restart, peak {:.0} MB after the first fetch and {:.0} MB after {}, of it \
             caches {:.0} MB",
            megabytes(idle),
            megabytes(first),
            megabytes(peak),
            self.plan.fetches + 1,
            megabytes(cache),
        );
        let above = megabytes(peak.saturating_sub(idle));
        self.report.targets.push(BenchTarget::new(targets::FETCH_MEMORY, Some(above), detail));
        Ok(())
    }
}
