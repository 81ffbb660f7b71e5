//! An engine at rest: flushes and compactions of a load have ended.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::procfs;

/// The pause between two looks at the data folder.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Waits until a data folder keeps its size for the first time of the two, at most for the second; returns the wait, or `None`
/// when the folder still changed at its end.
///
/// # Errors
///
/// When the folder cannot be read.
pub(super) async fn wait(data: &Path, (quiet, longest): (Duration, Duration)) -> Result<Option<Duration>> {
    let started = Instant::now();
    let (mut bytes, mut since) = (procfs::disk_bytes(data)?, started);
    while started.elapsed() < longest {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let now = procfs::disk_bytes(data)?;
        // Heartbeats write a few rows in any case.
        if now.abs_diff(bytes) > bytes / 100 {
            (bytes, since) = (now, Instant::now());
        }
        if since.elapsed() >= quiet {
            return Ok(Some(started.elapsed()));
        }
    }
    Ok(None)
}
