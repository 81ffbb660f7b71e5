//! Bounded numbers of buffered writes: loads, and overwrites of one key.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;

use crate::cells::KvSubject;
use crate::driver::KvDriver;
use crate::keys::key;
use crate::limits::LOAD_WAIT_MAX;
use crate::wire::WriteWait;
use crate::worker::expect;

/// Connections that load a server.
const LOAD_CONNECTIONS: u64 = 64;

/// Connections that overwrite one key.
const OVERWRITE_CONNECTIONS: u64 = 16;

/// The kind of the keys that are loaded and read.
pub(crate) const READ: &str = "read";

/// The kind of the overwritten key.
pub(crate) const OVERWRITTEN: &str = "over";

/// The kind of the fresh key: written once, right after the overwrites.
pub(crate) const FRESH: &str = "once";

/// Writes the `count` keys that the reads choose from, the last write durable; returns the time.
///
/// # Errors
///
/// Any answer but 204, a broken connection, or a timeout.
pub(crate) async fn fill(subject: &KvSubject, count: u64) -> Result<Duration> {
    let started = Instant::now();
    write(subject, LOAD_CONNECTIONS, count, |number| key(READ, number)).await?;
    put(subject, &key(READ, 0), WriteWait::Disk).await?;
    Ok(started.elapsed())
}

/// Writes one key `count` times, then the fresh key; returns the time of the overwrites.
///
/// # Errors
///
/// As [`fill`].
pub(crate) async fn overwrite(subject: &KvSubject, count: u64) -> Result<Duration> {
    let started = Instant::now();
    write(subject, OVERWRITE_CONNECTIONS, count, |_| key(OVERWRITTEN, 0)).await?;
    let elapsed = started.elapsed();
    put(subject, &key(FRESH, 0), WriteWait::Disk).await?;
    Ok(elapsed)
}

async fn write(
    subject: &KvSubject,
    connections: u64,
    count: u64,
    name: fn(u64) -> [u8; crate::keys::KEY_BYTES],
) -> Result<()> {
    let mut tasks = JoinSet::new();
    for first in 0..connections.min(count) {
        let mut driver = KvDriver::connect(&subject.place, subject.values.clone(), first).await?;
        tasks.spawn(async move {
            let mut number = first;
            while number < count {
                let reply = driver.put(&name(number), WriteWait::Memory).await?;
                if let Some(unexpected) = expect(204, Some(0), reply) {
                    bail!("a buffered PUT was answered by {unexpected}");
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

async fn put(subject: &KvSubject, name: &[u8], wait: WriteWait) -> Result<()> {
    let mut driver = KvDriver::connect(&subject.place, subject.values.clone(), 0).await?;
    match expect(204, Some(0), driver.put(name, wait).await?) {
        None => Ok(()),
        Some(unexpected) => bail!("a PUT was answered by {unexpected}"),
    }
}
