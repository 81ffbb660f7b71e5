//! The memory of a server while many large bodies arrive at once.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::task::JoinSet;

use super::bucket::{S3Subject, made};
use crate::limits::LOAD_WAIT_MAX;
use crate::procfs;
use crate::worker::expect;

/// The pause between two samples of resident memory.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// The server's memory during the uploads.
#[derive(Debug)]
pub(crate) struct UploadMemory {
    /// Before the first upload.
    pub(crate) before: u64,
    /// The largest sample during the uploads.
    pub(crate) sampled: u64,
    /// The peak of the process. The kernel counts it late, so it is at least the largest sample.
    pub(crate) peak: u64,
    /// The time of the uploads.
    pub(crate) elapsed: Duration,
}

/// PUTs `count` values at once, one per connection, and samples the memory of process `pid`.
///
/// # Errors
///
/// When an upload is refused, or they take too long.
pub(crate) async fn run(subject: &S3Subject, pid: u32, count: u64, value_bytes: usize) -> Result<UploadMemory> {
    let mut drivers = Vec::new();
    for number in 0..count {
        drivers.push(subject.connect(number).await?);
    }
    let before = procfs::resident_bytes(pid)?;
    let started = tokio::time::Instant::now();
    let mut tasks = JoinSet::new();
    for (number, mut driver) in (0..).zip(drivers) {
        tasks.spawn(async move {
            let reply = driver.put(&made(number), value_bytes).await?;
            match expect(200, None, reply) {
                None => Ok(()),
                Some(_) => Err(driver.refusal("an upload", reply)),
            }
        });
    }
    let mut sampled = before;
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                Some(ended) => ended??,
                None => break,
            },
            () = tokio::time::sleep(SAMPLE_INTERVAL) => sampled = sampled.max(procfs::resident_bytes(pid)?),
            () = tokio::time::sleep_until(started + LOAD_WAIT_MAX) => bail!("the uploads took too long"),
        }
    }
    let peak = procfs::peak_bytes(pid)?.max(sampled);
    Ok(UploadMemory { before, sampled, peak, elapsed: started.elapsed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_peak_is_at_least_the_largest_sample() {
        let subject = crate::s3::fake::start().await;
        let pid = std::process::id();
        let refused = run(&subject, pid, 2, 100_000).await.unwrap_err();
        assert!(refused.to_string().contains("an upload was answered by status 404: NoSuchBucket"), "{refused}");
        subject.make().await.unwrap();
        let memory = run(&subject, pid, 3, 100_000).await.unwrap();
        assert!(memory.before > 0 && memory.sampled >= memory.before && memory.peak >= memory.sampled, "{memory:?}");
    }
}
