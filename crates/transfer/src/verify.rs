//! Compares a store with an export.

use std::path::Path;

use crate::cursor::ScanCursor;
use crate::export::run_blocking;
use crate::folder::{ExportContents, ExportFolder};
use crate::scan::{ScanStep, StoreScan};
use crate::totals::{Phase, ProgressCallback, Totals, TransferProgress};
use crate::{Error, Result, StorePair};

/// Reads everything in `stores` and compares counts and checksums with the export in `dir`. Returns the totals found.
///
/// # Errors
/// [`Error::Differs`]: a table differs. Others: a store or a file failed.
pub async fn verify(stores: &StorePair, dir: &Path, report: impl Fn(TransferProgress) + Send + Sync) -> Result<Totals> {
    let dir = dir.to_owned();
    let (_, _, complete) = run_blocking(move || ExportFolder::open(&dir)).await?;
    compare(stores, &complete, &report).await
}

/// As [`verify`], against the contents of a manifest.
pub(crate) async fn compare(
    stores: &StorePair,
    complete: &ExportContents,
    report: ProgressCallback<'_>,
) -> Result<Totals> {
    let mut scan = StoreScan::begin(stores.clone(), ScanCursor::default(), Totals::default()).await?;
    let all = complete.totals.bytes().max(1) as f64;
    while !matches!(scan.next().await?, ScanStep::End) {
        let fraction = Some((scan.totals().bytes() as f64 / all).min(1.0));
        report(TransferProgress::new(Phase::Verify, scan.table(), scan.totals(), fraction));
    }
    match complete.totals.differences(scan.totals()) {
        same if same.is_empty() => Ok(scan.totals().clone()),
        lines => Err(Error::Differs(lines)),
    }
}
