//! A bucket, filled and emptied over many connections.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;

use super::driver::{BucketLocation, S3Driver};
use super::xml;
use crate::endpoint::Endpoint;
use crate::keys::{ValuePool, key};
use crate::limits::{LOAD_WAIT_MAX, PAGES_MAX};
use crate::worker::expect;

/// The connections that fill and empty a bucket.
const CONNECTIONS: u64 = 64;

/// The kind of the keys that are loaded, read and listed.
const READ: &str = "read";

/// The kind of the keys that cells make.
const MADE: &str = "made";

/// The server under test: a bucket of it, its keys, its process.
#[derive(Clone)]
pub(crate) struct S3Subject {
    /// The bucket.
    pub(crate) place: BucketLocation,
    /// Riak's HTTP of the same process, when this program has started it.
    pub(crate) kv: Option<Endpoint>,
    /// The bytes of the writes.
    pub(crate) values: Arc<ValuePool>,
    /// The id of its process, when this program has started it.
    pub(crate) pid: Option<u32>,
    /// The first number of new keys that no cell has used.
    pub(crate) new_keys: Arc<AtomicU64>,
}

/// One of many requests of the same kind.
#[derive(Clone)]
pub(crate) enum BucketJob {
    /// Load key number `n` with a value of this size.
    Load(usize),
    /// Make key number `n` with a value of this size.
    Make(usize),
    /// Delete the `n`th of these.
    Delete(Arc<Vec<String>>),
}

/// The name of the loaded key with this number.
pub(crate) fn loaded(number: u64) -> String {
    name(READ, number)
}

/// The name of the key with this number that a cell made.
pub(crate) fn made(number: u64) -> String {
    name(MADE, number)
}

/// A random key name in the first half of the loaded ones; `position` is any number.
pub(crate) fn before_half(position: u64) -> String {
    format!("{READ}{:012x}", position >> 17)
}

fn name(kind: &str, number: u64) -> String {
    String::from_utf8_lossy(&key(kind, number)).into_owned()
}

impl S3Subject {
    /// Opens connection number `seed`.
    ///
    /// # Errors
    ///
    /// When no server answers.
    pub(crate) async fn connect(&self, seed: u64) -> Result<S3Driver> {
        S3Driver::connect(&self.place, self.values.clone(), seed).await
    }

    /// The same server with another bucket.
    pub(crate) fn with_bucket(&self, bucket: String) -> Self {
        Self { place: BucketLocation { bucket, ..self.place.clone() }, ..self.clone() }
    }

    /// Makes the bucket.
    ///
    /// # Errors
    ///
    /// When the server refuses.
    pub(crate) async fn make(&self) -> Result<()> {
        self.connect(0).await?.make_bucket().await
    }

    /// Does a job `count` times; returns the time.
    ///
    /// # Errors
    ///
    /// Any answer but the expected one, a broken connection, or a timeout.
    pub(crate) async fn work(&self, job: BucketJob, count: u64) -> Result<Duration> {
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
    /// As [`S3Subject::work`].
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
            self.work(BucketJob::Delete(Arc::new(keys)), count).await?;
        }
        bail!("the bucket {} does not become empty", self.place.bucket)
    }
}

impl BucketJob {
    async fn once(&self, driver: &mut S3Driver, number: u64) -> Result<()> {
        let (status, reply) = match self {
            Self::Load(bytes) => (200, driver.put(&loaded(number), *bytes).await?),
            Self::Make(bytes) => (200, driver.put(&made(number), *bytes).await?),
            Self::Delete(keys) => match keys.get(usize::try_from(number)?) {
                Some(key) => (204, driver.delete(key).await?),
                None => return Ok(()),
            },
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
