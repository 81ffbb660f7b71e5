//! Calls to the engine, with retries. Every call of a transfer is idempotent.

use std::time::Duration;

use larder_store::{CallOptions, ConsistencyLevel, Durability, Error as Failed, Kind, Partition, ReadQuery, RowPage};
use tokio::time::{Instant, sleep, timeout};

use crate::{Error, Result, StorePair};

/// How long one call may take.
const CALL: Duration = Duration::from_secs(30);
/// Most attempts of a call that meets an overloaded engine or too few nodes.
const ATTEMPTS: u32 = 6;
/// The pause after the first attempt; each later one is twice as long.
const PAUSE: Duration = Duration::from_millis(250);

/// Retries a call until it succeeds or fails for good.
///
/// # Errors
/// The store's last error.
pub(crate) async fn with_retries<T, F>(what: &'static str, call: impl Fn(CallOptions) -> F) -> Result<T>
where
    F: Future<Output = larder_store::Result<T>>,
{
    retry_at(Durability::Buffered, what, call).await
}

/// As [`with_retries`], with writes on disk when it returns.
///
/// # Errors
/// The store's last error.
pub(crate) async fn with_durable_retries<T, F>(what: &'static str, call: impl Fn(CallOptions) -> F) -> Result<T>
where
    F: Future<Output = larder_store::Result<T>>,
{
    retry_at(Durability::Disk, what, call).await
}

async fn retry_at<T, F>(durability: Durability, what: &'static str, call: impl Fn(CallOptions) -> F) -> Result<T>
where
    F: Future<Output = larder_store::Result<T>>,
{
    let (mut pause, mut attempts) = (PAUSE, 1);
    loop {
        let options = CallOptions::new(ConsistencyLevel::Quorum, Instant::now() + CALL, durability);
        match with_timeout(call(options)).await {
            Ok(done) => return Ok(done),
            Err(error) if is_transient(error.kind) && attempts < ATTEMPTS => {
                tracing::warn!(%error, what, "call of a transfer failed: it is tried again");
            }
            Err(source) => return Err(Error::Store { what, source }),
        }
        sleep(pause).await;
        pause *= 2;
        attempts += 1;
    }
}

/// Bounds a call that has no deadline of its own, or misses it.
pub(crate) async fn with_timeout<T>(call: impl Future<Output = larder_store::Result<T>>) -> larder_store::Result<T> {
    let late = |_| Failed::new(Kind::TimedOut, "the engine did not answer");
    // The store bounds a call by its deadline; the longer timeout is for engines that miss it.
    timeout(CALL + CALL / 2, call).await.map_err(late)?
}

/// Whether a retry may succeed.
pub(crate) fn is_transient(kind: Kind) -> bool {
    matches!(kind, Kind::TimedOut | Kind::Unavailable { .. })
}

/// The result of a task.
///
/// # Errors
/// The task's own error, or its panic.
pub(crate) fn join_result<T>(
    what: &'static str,
    joined: std::result::Result<Result<T>, tokio::task::JoinError>,
) -> Result<T> {
    joined.unwrap_or_else(|error| {
        let source = Failed::caused(Kind::Io, "a task of the transfer broke", error);
        Err(Error::Store { what, source })
    })
}

/// Reads a page of a partition.
///
/// # Errors
/// The store's last error.
pub(crate) async fn read(stores: &StorePair, partition: &Partition, query: &ReadQuery) -> Result<RowPage> {
    with_retries("reading rows", |options| async move { stores.store.read(partition, query, &options).await }).await
}
