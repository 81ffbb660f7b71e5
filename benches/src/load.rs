//! A bounded number of buffered writes: filling a server, and overwriting one key.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;

use crate::cells::Subject;
use crate::driver::{Driver, Wait};
use crate::keys::key;
use crate::limits::LOAD_WAIT_MAX;
use crate::worker::expect;

/// Connections that load a server.
const LOAD_CONNECTIONS: u64 = 64;

/// Connections that overwrite one key.
const OVERWRITE_CONNECTIONS: u64 = 16;

/// Kind of the keys that are loaded and read.
pub(crate) const READ: &str = "read";

/// Kind of the key that is overwritten.
pub(crate) const OVERWRITTEN: &str = "over";

/// Kind of the key it is held against: written once, right after the overwriting.
pub(crate) const FRESH: &str = "once";

/// Writes the `count` keys that the reads choose from, the last write durable, and says how long that took.
///
/// # Errors
///
/// Any answer but 204, broken transport, or too much time.
pub(crate) async fn fill(subject: &Subject, count: u64) -> Result<Duration> {
    let started = Instant::now();
    write(subject, LOAD_CONNECTIONS, count, |number| key(READ, number)).await?;
    put(subject, &key(READ, 0), Wait::Disk).await?;
    Ok(started.elapsed())
}

/// Writes one key `count` times, then the fresh one it is held against, and says how long the overwriting took.
///
/// # Errors
///
/// As [`fill`].
pub(crate) async fn overwrite(subject: &Subject, count: u64) -> Result<Duration> {
    let started = Instant::now();
    write(subject, OVERWRITE_CONNECTIONS, count, |_| key(OVERWRITTEN, 0)).await?;
    let elapsed = started.elapsed();
    put(subject, &key(FRESH, 0), Wait::Disk).await?;
    Ok(elapsed)
}

async fn write(
    subject: &Subject,
    connections: u64,
    count: u64,
    name: fn(u64) -> [u8; crate::keys::KEY_BYTES],
) -> Result<()> {
    let mut tasks = JoinSet::new();
    for first in 0..connections.min(count) {
        let mut driver = Driver::connect(&subject.place, subject.values.clone(), first).await?;
        tasks.spawn(async move {
            let mut number = first;
            while number < count {
                let reply = driver.put(&name(number), Wait::Memory).await?;
                if let Some(surprise) = expect(204, Some(0), reply) {
                    bail!("a buffered PUT was answered by {surprise}");
                }
                number += connections;
            }
            Ok(())
        });
    }
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    };
    tokio::time::timeout(LOAD_WAIT_MAX, all).await.context("the writes took too long")?
}

async fn put(subject: &Subject, name: &[u8], wait: Wait) -> Result<()> {
    let mut driver = Driver::connect(&subject.place, subject.values.clone(), 0).await?;
    match expect(204, Some(0), driver.put(name, wait).await?) {
        None => Ok(()),
        Some(surprise) => bail!("a PUT was answered by {surprise}"),
    }
}
