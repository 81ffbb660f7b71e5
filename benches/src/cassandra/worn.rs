//! One key overwritten through two gateways in turn, and how long a read of it takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::driver::{Driver, Place, Wait};
use crate::keys::{Values, key};
use crate::load::{FRESH, OVERWRITTEN};
use crate::worker::expect;

/// Reads that a median is taken of.
pub(super) const READS: usize = 501;

/// Reads the key through one gateway and writes it back with its context, then through the other, `count` times in all; then
/// writes the fresh key. Answers how long the overwriting took.
///
/// # Errors
///
/// An answer that was not expected: a lost write or a sibling is one.
pub(super) async fn overwrite(places: &[Place; 2], values: &Arc<Values>, count: u64) -> Result<Duration> {
    let name = key(OVERWRITTEN, 0);
    let mut drivers = [connect(&places[0], values).await?, connect(&places[1], values).await?];
    let started = Instant::now();
    drivers[0].put(&name, Wait::Disk).await?;
    for turn in 0..count {
        let driver = &mut drivers[(turn % 2) as usize];
        let read = driver.get(&name).await?;
        if let Some(surprise) = expect(200, Some(driver.value_bytes() as u64), read) {
            bail!("reading the overwritten key, turn {turn}: {surprise}");
        }
        let written = driver.put_with_context(&name, Wait::Disk).await?;
        if let Some(surprise) = expect(204, Some(0), written) {
            bail!("overwriting the key, turn {turn}: {surprise}");
        }
    }
    let spent = started.elapsed();
    drivers[0].put(&key(FRESH, 0), Wait::Disk).await?;
    Ok(spent)
}

/// The median time of a read of the key of this kind.
///
/// # Errors
///
/// An answer that was not expected.
pub(super) async fn read(place: &Place, values: &Arc<Values>, kind: &str) -> Result<Duration> {
    let name = key(kind, 0);
    let mut driver = connect(place, values).await?;
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        let started = Instant::now();
        let reply = driver.get(&name).await?;
        times.push(started.elapsed());
        if let Some(surprise) = expect(200, Some(driver.value_bytes() as u64), reply) {
            bail!("reading {kind}: {surprise}");
        }
    }
    times.sort_unstable();
    Ok(times[READS / 2])
}

async fn connect(place: &Place, values: &Arc<Values>) -> Result<Driver> {
    Driver::connect(place, values.clone(), 0).await
}
