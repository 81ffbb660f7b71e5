//! Overwrites one key through two gateways in turn, and measures reads of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::driver::KvDriver;
use crate::keys::{ValuePool, key};
use crate::kv_location::KvLocation;
use crate::load::{FRESH, OVERWRITTEN};
use crate::wire::WriteWait;
use crate::worker::expect;

/// The reads of a median.
pub(super) const READS: usize = 501;

/// Reads the key through one gateway and writes it back with its context, then through the other, `count` times in all; then
/// writes the fresh key. Returns the time of the overwrites.
///
/// # Errors
///
/// An answer that was not expected: a lost write or a sibling is one.
pub(super) async fn overwrite(places: &[KvLocation; 2], values: &Arc<ValuePool>, count: u64) -> Result<Duration> {
    let name = key(OVERWRITTEN, 0);
    let mut drivers = [connect(&places[0], values).await?, connect(&places[1], values).await?];
    let started = Instant::now();
    drivers[0].put(&name, WriteWait::Disk).await?;
    for turn in 0..count {
        let driver = &mut drivers[(turn % 2) as usize];
        let read = driver.get(&name).await?;
        if let Some(unexpected) = expect(200, Some(driver.value_bytes() as u64), read) {
            bail!("reading the overwritten key, turn {turn}: {unexpected}");
        }
        let written = driver.put_with_context(&name, WriteWait::Disk).await?;
        if let Some(unexpected) = expect(204, Some(0), written) {
            bail!("overwriting the key, turn {turn}: {unexpected}");
        }
    }
    let spent = started.elapsed();
    drivers[0].put(&key(FRESH, 0), WriteWait::Disk).await?;
    Ok(spent)
}

/// The median time of a read of the key of this kind.
///
/// # Errors
///
/// An unexpected answer.
pub(super) async fn read(place: &KvLocation, values: &Arc<ValuePool>, kind: &str) -> Result<Duration> {
    let name = key(kind, 0);
    let mut driver = connect(place, values).await?;
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        let started = Instant::now();
        let reply = driver.get(&name).await?;
        times.push(started.elapsed());
        if let Some(unexpected) = expect(200, Some(driver.value_bytes() as u64), reply) {
            bail!("reading {kind}: {unexpected}");
        }
    }
    times.sort_unstable();
    Ok(times[READS / 2])
}

async fn connect(place: &KvLocation, values: &Arc<ValuePool>) -> Result<KvDriver> {
    KvDriver::connect(place, values.clone(), 0).await
}
