//! Overwrites of random keys: the bytes on the disk while they run, and the bytes that each costs the device.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

use super::run::PbRun;
use crate::cells::KvSubject;
use crate::driver::KvDriver;
use crate::keys::key;
use crate::load;
use crate::procfs;
use crate::report::{megabytes, per_second, size, thousands};
use crate::server::{ServerConfig, ServerProcess};
use crate::targets::{self, BenchTarget, TargetPromise};
use crate::turns::BARE_CONNECTIONS;
use crate::wire::WriteWait;
use crate::worker::expect;

/// The part of the keys that is overwritten in a second while the disk is watched.
const OVERWRITTEN_A_SECOND: f64 = 0.05;

/// A size of values, and what is promised for it.
struct ChurnedValues {
    /// The bytes of a value.
    value_bytes: usize,
    /// The bytes of all values: a server on two cores takes 5 % of them a second.
    bytes: u64,
    disk: TargetPromise,
    written: TargetPromise,
}

/// A value in its row, and one beside the rows.
const CHURNED: [ChurnedValues; 2] = [
    ChurnedValues {
        value_bytes: 4_096,
        bytes: 1_024_000_000,
        disk: targets::CHURNED_DISK,
        written: targets::WRITE_AMPLIFICATION,
    },
    ChurnedValues {
        value_bytes: 102_400,
        bytes: 2_048_000_000,
        disk: targets::LARGE_CHURNED_DISK,
        written: targets::LARGE_WRITE_AMPLIFICATION,
    },
];

/// The pause between two looks at the disk.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl PbRun {
    /// Loads a fresh server, overwrites a part of the keys each second, then as many as it takes.
    ///
    /// # Errors
    ///
    /// When the server refuses a write, or the kernel does not count its bytes.
    pub(super) async fn churn(&mut self, config: ServerConfig) -> Result<()> {
        for churned in &CHURNED {
            let data = config.data.join(size(churned.value_bytes));
            self.churn_values(ServerConfig { data, ..config.clone() }, churned).await?;
        }
        Ok(())
    }

    async fn churn_values(&mut self, config: ServerConfig, churned: &ChurnedValues) -> Result<()> {
        let (data, length) = (config.data.clone(), self.plan.churn);
        std::fs::create_dir_all(&data)?;
        let server = ServerProcess::start(config)?;
        let keys = churned.bytes / self.plan.churn_part / churned.value_bytes as u64;
        let subject = self.subject(&server, churned.value_bytes, keys);
        load::fill(&subject, keys).await?;
        let paced = Overwrites { each_second: Some(keys as f64 * OVERWRITTEN_A_SECOND), length };
        let shown = format!("{} values of {}", thousands(keys as f64), size(churned.value_bytes));
        eprintln!("overwriting 5 % of {shown} a second for {} s", length.as_secs());
        let mut disk = DiskUse { data: data.clone(), bytes: Vec::new() };
        let puts = tokio::select! {
            puts = paced.run(&subject) => puts?,
            error = disk.watch() => return Err(error),
        };
        self.disk_use(churned, keys, &disk, puts);
        let unpaced = Overwrites { each_second: None, length };
        eprintln!("overwriting them without a pause for {} s", length.as_secs());
        let before = procfs::written_bytes(server.pid())?;
        let puts = unpaced.run(&subject).await?;
        self.write_amplification(churned, procfs::written_bytes(server.pid())? - before, puts);
        server.stop()?;
        Ok(std::fs::remove_dir_all(data)?)
    }

    fn disk_use(&mut self, churned: &ChurnedValues, keys: u64, disk: &DiskUse, puts: u64) {
        let live = (keys * churned.value_bytes as u64) as f64;
        let worst = disk.bytes.iter().copied().max().unwrap_or_default() as f64 / live;
        let mean = disk.bytes.iter().sum::<u64>() as f64 / disk.bytes.len().max(1) as f64 / live;
        let detail = format!(
            "the mean of {} looks, one a second, worst {worst:.2}, for {:.0} MB of values; {} durable overwrites/s",
            disk.bytes.len(),
            live / 1e6,
            self.churn_rate(puts)
        );
        self.report.targets.push(BenchTarget::new(churned.disk, Some(mean), detail));
    }

    fn write_amplification(&mut self, churned: &ChurnedValues, written: u64, puts: u64) {
        let values = puts * churned.value_bytes as u64;
        let detail = format!(
            "`write_bytes` of `/proc`: {:.0} MB for {:.0} MB of values, 64 connections, {} overwrites/s over {} s",
            megabytes(written),
            megabytes(values),
            self.churn_rate(puts),
            self.plan.churn.as_secs()
        );
        let ratio = written as f64 / values.max(1) as f64;
        self.report.targets.push(BenchTarget::new(churned.written, Some(ratio), detail));
    }

    fn churn_rate(&self, puts: u64) -> String {
        per_second(puts as f64 / self.plan.churn.as_secs_f64())
    }
}

/// Durable overwrites of random keys.
#[derive(Debug, Clone, Copy)]
struct Overwrites {
    /// How many a second, all connections together; `None` for as many as the server takes.
    each_second: Option<f64>,
    length: Duration,
}

impl Overwrites {
    /// Runs them; returns how many were acknowledged.
    async fn run(self, subject: &KvSubject) -> Result<u64> {
        let mut tasks = JoinSet::new();
        for seed in 0..BARE_CONNECTIONS as u64 {
            let driver = KvDriver::connect(&subject.place, subject.values.clone(), seed).await?;
            tasks.spawn(self.connection(driver, subject.read_keys));
        }
        let mut puts = 0;
        while let Some(ended) = tasks.join_next().await {
            puts += ended??;
        }
        Ok(puts)
    }

    async fn connection(self, mut driver: KvDriver, (kind, keys): (&'static str, u64)) -> Result<u64> {
        let begun = Instant::now();
        let each_second = self.each_second.map(|all| all / BARE_CONNECTIONS as f64);
        let mut puts = 0;
        while begun.elapsed() < self.length {
            if let Some(each_second) = each_second {
                let due = begun + Duration::from_secs_f64(puts as f64 / each_second);
                sleep(due.saturating_duration_since(Instant::now())).await;
            }
            let number = driver.random().below(keys);
            if let Some(unexpected) = expect(204, Some(0), driver.put(&key(kind, number), WriteWait::Disk).await?) {
                bail!("an overwrite was answered by {unexpected}");
            }
            puts += 1;
        }
        Ok(puts)
    }
}

/// The bytes of the data directory, look by look.
struct DiskUse {
    data: PathBuf,
    bytes: Vec<u64>,
}

impl DiskUse {
    /// Looks until it is dropped; returns only with an error.
    async fn watch(&mut self) -> anyhow::Error {
        let mut looks = interval(LOOK_INTERVAL);
        loop {
            looks.tick().await;
            match procfs::disk_bytes(&self.data) {
                Ok(bytes) => self.bytes.push(bytes),
                Err(error) => return error,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::keys::ValuePool;
    use crate::kv_location::{KvLocation, KvProtocol};

    #[tokio::test]
    async fn paced_overwrites_keep_their_rate() {
        let endpoint = crate::bare_pb::on_loopback(1_024).await.unwrap();
        let subject = KvSubject {
            place: KvLocation { endpoint, protocol: KvProtocol::PB, value_bytes: 1_024 },
            values: Arc::new(ValuePool::new(1_024)),
            pid: None,
            read_keys: (load::READ, 100),
            new_keys: Arc::default(),
        };
        let paced = Overwrites { each_second: Some(640.0), length: Duration::from_millis(500) };
        let puts = paced.run(&subject).await.unwrap();
        // Each of the 64 connections writes at 0, 100, 200, 300 and 400 ms; a slow machine leaves some out.
        assert!((64..=320 + 64).contains(&puts), "{puts}");
        let unpaced = Overwrites { each_second: None, ..paced };
        assert!(unpaced.run(&subject).await.unwrap() > puts);
    }
}
