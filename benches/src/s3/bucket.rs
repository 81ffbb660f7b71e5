//! A bucket and what is done to it by many connections at once: filling, emptying.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;

use super::driver::{Driver, Place};
use super::xml;
use crate::keys::{Values, key};
use crate::limits::{LOAD_WAIT_MAX, PAGES_MAX};
use crate::worker::expect;

/// Connections that fill and empty a bucket.
const CONNECTIONS: u64 = 64;

/// Kind of the keys that are loaded, read and listed.
const READ: &str = "read";

/// Kind of the keys that cells make.
const MADE: &str = "made";

/// The server under test, a bucket of it, and what of it can be seen.
#[derive(Clone)]
pub(crate) struct Subject {
    /// The bucket.
    pub(crate) place: Place,
    /// Bytes for the writes.
    pub(crate) values: Arc<Values>,
    /// Its process, where that is ours to look at.
    pub(crate) pid: Option<u32>,
    /// The first number that no cell has used for a new key.
    pub(crate) new_keys: Arc<AtomicU64>,
}

/// One of many requests of the same kind.
#[derive(Clone)]
pub(crate) enum Job {
    /// Load key number `n` with a value of this size.
    Load(usize),
    /// Make key number `n` with a value of this size.
    Make(usize),
    /// Delete the `n`th of these.
    Delete(Arc<Vec<String>>),
    /// Send part `n` + 1 of an upload, of this size.
    Part(Arc<(String, String)>, usize),
}

/// The name of the loaded key with this number.
pub(crate) fn loaded(number: u64) -> String {
    name(READ, number)
}

/// The name of the key with this number that a cell made.
pub(crate) fn made(number: u64) -> String {
    name(MADE, number)
}

/// A key before which lies less than half of the loaded ones; `position` is any number.
pub(crate) fn before_half(position: u64) -> String {
    format!("{READ}{:012x}", position >> 17)
}

fn name(kind: &str, number: u64) -> String {
    String::from_utf8_lossy(&key(kind, number)).into_owned()
}

impl Subject {
    /// Connection number `seed`.
    ///
    /// # Errors
    ///
    /// When nothing answers.
    pub(crate) async fn connect(&self, seed: u64) -> Result<Driver> {
        Driver::connect(&self.place, self.values.clone(), seed).await
    }

    /// The same server, another bucket.
    pub(crate) fn with_bucket(&self, bucket: String) -> Self {
        Self { place: Place { bucket, ..self.place.clone() }, ..self.clone() }
    }

    /// Makes the bucket.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub(crate) async fn make(&self) -> Result<()> {
        self.connect(0).await?.make_bucket().await
    }

    /// Does a job `count` times, and says how long that took.
    ///
    /// # Errors
    ///
    /// Any answer but the expected one, broken transport, or too much time.
    pub(crate) async fn work(&self, job: Job, count: u64) -> Result<Duration> {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for first in 0..CONNECTIONS.min(count) {
            let (mut driver, job) = (self.connect(first).await?, job.clone());
            tasks.spawn(async move {
                let mut number = first;
                while number < count {
                    job.once(&mut driver, number).await?;
                    number += CONNECTIONS;
                }
                anyhow::Ok(())
            });
        }
        let all = async {
            while let Some(ended) = tasks.join_next().await {
                ended??;
            }
            Ok(started.elapsed())
        };
        tokio::time::timeout(LOAD_WAIT_MAX, all).await.context("it took too long")?
    }

    /// Deletes every key of the bucket, then the bucket.
    ///
    /// # Errors
    ///
    /// As [`Subject::work`].
    pub(crate) async fn remove(&self) -> Result<()> {
        let mut driver = self.connect(0).await?;
        for _ in 0..PAGES_MAX {
            let reply = driver.list(None, "").await?;
            if reply.status != 200 {
                return Err(driver.refusal("listing a bucket", reply));
            }
            let keys = xml::texts(driver.page(), "Key");
            if keys.is_empty() {
                return driver.remove_bucket().await;
            }
            let count = keys.len() as u64;
            self.work(Job::Delete(Arc::new(keys)), count).await?;
        }
        bail!("the bucket {} does not become empty", self.place.bucket)
    }
}

impl Job {
    async fn once(&self, driver: &mut Driver, number: u64) -> Result<()> {
        let (status, reply) = match self {
            Self::Load(bytes) => (200, driver.put(&loaded(number), *bytes).await?),
            Self::Make(bytes) => (200, driver.put(&made(number), *bytes).await?),
            Self::Delete(keys) => match keys.get(usize::try_from(number)?) {
                Some(key) => (204, driver.delete(key).await?),
                None => return Ok(()),
            },
            Self::Part(upload, bytes) => {
                return driver.part(&upload.0, &upload.1, number + 1, *bytes).await.map(drop);
            }
        };
        match expect(status, None, reply) {
            None => Ok(()),
            Some(_) => Err(driver.refusal(self.name(), reply)),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Load(_) | Self::Make(_) => "a PUT",
            Self::Delete(_) => "a DELETE",
            Self::Part(..) => "a part",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_start_in_the_first_half_of_the_loaded_keys() {
        assert_eq!(before_half(0), "read000000000000");
        assert_eq!(before_half(u64::MAX), "read7fffffffffff");
        let after = (0..4_000).filter(|number| loaded(*number) > before_half(u64::MAX)).count();
        assert!(after >= 1_000, "{after}");
        assert!(made(1) < before_half(0));
    }
}
