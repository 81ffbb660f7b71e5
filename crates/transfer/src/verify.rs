//! Whether a store keeps what a folder says.

use std::path::Path;

use crate::cursor::Cursor;
use crate::export::disk;
use crate::folder::{Complete, Folder};
use crate::progress::{Phase, Progress, Tell};
use crate::scan::{Scan, Step};
use crate::totals::Totals;
use crate::{Ends, Error, Result};

/// Reads everything `ends` keeps and compares counts and checksums with those of the export in `dir`. Answers what there is.
///
/// # Errors
/// [`Error::Differs`], and whatever else goes wrong.
pub async fn verify(ends: &Ends, dir: &Path, tell: impl Fn(Progress) + Send + Sync) -> Result<Totals> {
    let dir = dir.to_owned();
    let (_, _, complete) = disk(move || Folder::open(&dir)).await?;
    compare(ends, &complete, &tell).await
}

/// As [`verify`], with what the manifest says.
pub(crate) async fn compare(ends: &Ends, complete: &Complete, tell: Tell<'_>) -> Result<Totals> {
    let mut scan = Scan::begin(ends.clone(), Cursor::default(), Totals::default()).await?;
    let all = complete.totals.bytes().max(1) as f64;
    while !matches!(scan.next().await?, Step::End) {
        let (totals, table) = (scan.totals(), scan.table());
        let (rows, blobs, bytes) = (totals.rows(), totals.blobs.count, totals.bytes());
        let fraction = Some((bytes as f64 / all).min(1.0));
        tell(Progress { phase: Phase::Verify, table, rows, blobs, bytes, fraction });
    }
    match complete.totals.differences(scan.totals()) {
        same if same.is_empty() => Ok(scan.totals().clone()),
        lines => Err(Error::Differs(lines)),
    }
}
