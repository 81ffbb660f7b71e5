//! How the engine is asked: patiently. Every call can be made again as it is.

use std::time::Duration;

use larder_store::{Durability, Error as Failed, Kind, Level, Options, Page, Partition, ReadQuery};
use tokio::time::{Instant, sleep, timeout};

use crate::{Ends, Error, Result};

/// How long one call may take.
const CALL: Duration = Duration::from_secs(30);
/// How often a call is made that meets an engine with too much to do or too few nodes.
const ATTEMPTS: u32 = 6;
/// Pause behind the first attempt; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(250);

/// Makes a call until it succeeds, or fails for good.
///
/// # Errors
/// What the store answers at last.
pub(crate) async fn patiently<T, F>(what: &'static str, call: impl Fn(Options) -> F) -> Result<T>
where
    F: Future<Output = larder_store::Result<T>>,
{
    patiently_at(Durability::Buffered, what, call).await
}

/// As [`patiently`], answered when it is on disk.
///
/// # Errors
/// What the store answers at last.
pub(crate) async fn patiently_on_disk<T, F>(what: &'static str, call: impl Fn(Options) -> F) -> Result<T>
where
    F: Future<Output = larder_store::Result<T>>,
{
    patiently_at(Durability::Disk, what, call).await
}

async fn patiently_at<T, F>(durability: Durability, what: &'static str, call: impl Fn(Options) -> F) -> Result<T>
where
    F: Future<Output = larder_store::Result<T>>,
{
    let (mut pause, mut attempts) = (PAUSE, 1);
    loop {
        let options = Options::new(Level::Quorum, Instant::now() + CALL, durability);
        match bounded(call(options)).await {
            Ok(done) => return Ok(done),
            Err(error) if passes(error.kind) && attempts < ATTEMPTS => tracing::warn!(%error, what, "tried again"),
            Err(source) => return Err(Error::Store { what, source }),
        }
        sleep(pause).await;
        pause *= 2;
        attempts += 1;
    }
}

/// A call that has no deadline of its own, or does not keep it.
pub(crate) async fn bounded<T>(call: impl Future<Output = larder_store::Result<T>>) -> larder_store::Result<T> {
    let late = |_| Failed::new(Kind::TimedOut, "the engine did not answer");
    timeout(CALL + CALL / 2, call).await.map_err(late)?
}

/// Whether waiting may help.
fn passes(kind: Kind) -> bool {
    matches!(kind, Kind::TimedOut | Kind::Unavailable { .. })
}

/// What a task answers.
///
/// # Errors
/// Its own; a task that panicked.
pub(crate) fn landed<T>(
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
/// What the store answers.
pub(crate) async fn read(ends: &Ends, partition: &Partition, query: &ReadQuery) -> Result<Page> {
    patiently("reading rows", |options| async move { ends.store.read(partition, query, &options).await }).await
}
