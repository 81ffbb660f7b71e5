//! Memory while many large bodies arrive at once.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::task::JoinSet;

use super::bucket::{Subject, made};
use crate::limits::LOAD_WAIT_MAX;
use crate::procfs;
use crate::worker::expect;

/// How often resident memory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What the server's memory was.
#[derive(Debug)]
pub(crate) struct Held {
    /// Before the first upload.
    pub(crate) before: u64,
    /// The most that was seen while they ran.
    pub(crate) seen: u64,
    /// The most the process ever had, as the kernel counts it; it counts late, so never less than what was seen.
    pub(crate) peak: u64,
    /// How long the uploads took.
    pub(crate) elapsed: Duration,
}

/// PUTs `count` values at once, one per connection, and watches the memory of process `pid`.
///
/// # Errors
///
/// When an upload is refused, or they take too long.
pub(crate) async fn run(subject: &Subject, pid: u32, count: u64, value_bytes: usize) -> Result<Held> {
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
    let mut seen = before;
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                Some(ended) => ended??,
                None => break,
            },
            () = tokio::time::sleep(LOOK_EVERY) => seen = seen.max(procfs::resident_bytes(pid)?),
            () = tokio::time::sleep_until(started + LOAD_WAIT_MAX) => bail!("the uploads took too long"),
        }
    }
    let peak = procfs::peak_bytes(pid)?.max(seen);
    Ok(Held { before, seen, peak, elapsed: started.elapsed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_peak_is_never_less_than_what_was_seen() {
        let subject = crate::s3::fake::start().await;
        let pid = std::process::id();
        let refused = run(&subject, pid, 2, 100_000).await.unwrap_err();
        assert!(refused.to_string().contains("an upload was answered by status 404: NoSuchBucket"), "{refused}");
        subject.make().await.unwrap();
        let held = run(&subject, pid, 3, 100_000).await.unwrap();
        assert!(held.before > 0 && held.seen >= held.before && held.peak >= held.seen, "{held:?}");
    }
}
