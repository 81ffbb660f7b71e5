//! Imports an export's folder into a store.

use std::path::Path;

use larder_store::{Row, Table};

use crate::checkpoint::ImportCheckpoint;
use crate::export::run_blocking;
use crate::folder::{ExportContents, ExportFolder};
use crate::record::SegmentRecord;
use crate::retry::with_retries;
use crate::scope::{ORDER, TransferMethod, transfer_method};
use crate::segment::{self, ExportId, SegmentReader};
use crate::sink::RecordSink;
use crate::totals::{Phase, ProgressCallback, TableTotal, Totals, TransferProgress};
use crate::{Error, Result, StorePair, users};

/// Bytes of records per read.
const READ_BYTES: usize = 2 * 1024 * 1024;
/// Most attempts to write a segment.
const SEGMENT_ATTEMPTS: u32 = 3;
/// The farthest that the newest row may be ahead of the target's clock, in microseconds.
const CLOCK_AHEAD_MAX: u64 = 60 * 1_000_000;

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The identity of the export.
    pub id: String,
    /// The export's counts and checksums.
    pub totals: Totals,
    /// Segments of earlier, interrupted runs.
    pub resumed: u32,
    /// Segments in all.
    pub segments: u32,
}

/// Writes the export in `dir` into an empty target, or resumes an interrupted import. Clients must not use the target until it
/// returns; then everything is on disk, and [`crate::verify`] compares it with the export.
///
/// # Errors
/// [`Error`]; the same call resumes the import. `Refused`: the import wrote nothing.
pub async fn import(
    stores: &StorePair,
    dir: &Path,
    report: impl Fn(TransferProgress) + Send + Sync,
) -> Result<Imported> {
    let path = dir.to_owned();
    let (folder, id, complete) = run_blocking(move || {
        let (folder, manifest, complete) = ExportFolder::open(&path)?;
        Ok((folder.clone(), manifest.id(&folder)?, complete))
    })
    .await?;
    let text = String::from_utf8_lossy(&id).into_owned();
    let mut checkpoint = begin(stores, &text, &complete).await?;
    let resumed = checkpoint.segments;
    let segments = u32::try_from(complete.segments.len()).unwrap_or(u32::MAX);
    for number in resumed + 1..=segments {
        let mut attempts = 1;
        // The bytes of a large blob are written once, in order: after a failure that may pass, the segment is written anew.
        while let Err(error) = put_segment(stores, &folder, &id, &complete, number, &report).await {
            if attempts == SEGMENT_ATTEMPTS || !error.is_transient() {
                return Err(error);
            }
            tracing::warn!(%error, number, "segment of an import failed: it is written again");
            attempts += 1;
        }
        // The checkpoint follows its rows: after a crash the import repeats a segment and never skips one.
        checkpoint.segments = number;
        checkpoint.complete = number == segments;
        checkpoint.write(stores).await?;
    }
    Ok(Imported { id: text, totals: complete.totals, resumed, segments })
}

/// The import's checkpoint: the stored one, or a new one after all checks pass.
async fn begin(stores: &StorePair, id: &str, complete: &ExportContents) -> Result<ImportCheckpoint> {
    let before = ImportCheckpoint::read(stores).await?;
    match &before {
        Some(checkpoint) if checkpoint.id == id => return Ok(checkpoint.clone()),
        Some(checkpoint) if !checkpoint.complete => {
            let line =
                format!("the import of another export ({}) was interrupted here: finish that one first", checkpoint.id);
            return Err(Error::Refused(line));
        }
        Some(_) | None => {}
    }
    check_types(stores, complete)?;
    check_times(stores, complete).await?;
    check_other_rows(stores, complete).await?;
    // Before the first row: after a crash the checkpoint explains why the target is not empty.
    let mut checkpoint = ImportCheckpoint::new(id, before.as_ref());
    checkpoint.write(stores).await?;
    Ok(checkpoint)
}

/// Refuses types with more copies than the target has nodes.
fn check_types(stores: &StorePair, complete: &ExportContents) -> Result<()> {
    let limits = stores.store.limits();
    let too_many =
        complete.types.iter().filter(|bucket_type| limits.replicated && u32::from(bucket_type.copies) > limits.nodes);
    let named: Vec<_> = too_many
        .map(|bucket_type| format!("{} (n_val {})", bucket_type.name.escape_debug(), bucket_type.copies))
        .collect();
    if named.is_empty() {
        return Ok(());
    }
    let (nodes, named) = (limits.nodes, named.join(", "));
    Err(Error::Refused(format!("there are {nodes} nodes, too few for the copies these bucket types ask for: {named}")))
}

/// Refuses rows from the future: writes after the import would get older stamps than those rows and lose to them.
async fn check_times(stores: &StorePair, complete: &ExportContents) -> Result<()> {
    let store = &stores.store;
    let now = with_retries("asking for the time", |options| async move { store.now(&options).await }).await?;
    let ahead = complete.totals.greatest.since(now);
    if ahead <= CLOCK_AHEAD_MAX {
        return Ok(());
    }
    let seconds = ahead / 1_000_000;
    Err(Error::Refused(format!(
        "the newest row of the export is {seconds} s ahead of this machine's clock: set the clock"
    )))
}

/// Refuses a target that holds data.
async fn check_other_rows(stores: &StorePair, complete: &ExportContents) -> Result<()> {
    let mut kinds = Vec::new();
    let (store, blobs) = (&stores.store, &stores.blobs);
    // A first start writes an admin, and derived rows follow from others: neither makes a target used.
    for table in ORDER.into_iter().filter(|table| !matches!(table, Table::Users | Table::Usage)) {
        if transfer_method(table) == TransferMethod::Derived {
            continue;
        }
        let list = |options| async move { store.partitions(table, None, 1, &options).await };
        let page = with_retries("looking whether the target is empty", list).await?;
        if !page.partitions.is_empty() {
            kinds.push(table.name());
        }
    }
    if complete.totals.table(Table::Users) != TableTotal::default() && users::has_users(stores).await? {
        kinds.push(Table::Users.name());
    }
    if !with_retries("looking whether the target is empty", |_| blobs.list(None, 1)).await?.is_empty() {
        kinds.push("blobs");
    }
    if kinds.is_empty() {
        return Ok(());
    }
    Err(Error::Refused(format!("the target is not empty: it has {}", kinds.join(", "))))
}

/// Writes the records of one segment; it may be repeated.
async fn put_segment(
    stores: &StorePair,
    folder: &ExportFolder,
    id: &ExportId,
    complete: &ExportContents,
    number: u32,
    report: ProgressCallback<'_>,
) -> Result<()> {
    let store = &stores.store;
    // A new time for each segment: rows may expire while the import runs.
    let now = with_retries("asking for the time", |options| async move { store.now(&options).await }).await?;
    let mut sink = RecordSink::new(stores.clone(), now);
    let (dir, id) = (folder.dir.clone(), *id);
    let (mut reader, before, digest) = run_blocking(move || {
        let before = match number {
            1 => Totals::default(),
            _ => segment::trailer(&dir.join(segment::segment_name(number - 1)))?.0.totals,
        };
        let (reader, _, digest) = SegmentReader::open(&dir, number, &id)?;
        Ok((reader, before, digest))
    })
    .await?;
    let damaged = |what: String| Error::damaged(&folder.dir.join(segment::segment_name(number)), what);
    // The manifest's digest guards against a segment of another run, which is whole but holds other rows.
    let expected_digest = complete.segments.get(number as usize - 1);
    if expected_digest != Some(&hex::encode(digest)) {
        return Err(damaged("it is not the one in the manifest".to_owned()));
    }
    let mut progress = TransferProgress::new(Phase::Import, "blobs", &before, None);
    let all = complete.totals.bytes().max(1) as f64;
    loop {
        let records;
        (reader, records) = run_blocking(move || reader.records(READ_BYTES).map(|records| (reader, records))).await?;
        if records.is_empty() {
            return sink.drain().await;
        }
        for bytes in records {
            let record = SegmentRecord::decode(bytes).map_err(|error| damaged(error.to_string()))?;
            count(&mut progress, &record);
            sink.take(record).await?;
            progress.fraction = Some((progress.bytes as f64 / all).min(1.0));
            report(progress);
        }
    }
}

/// Counts a record of the import.
fn count(progress: &mut TransferProgress, record: &SegmentRecord) {
    progress.table = "blobs";
    match record {
        SegmentRecord::Rows(rows) => {
            progress.table = rows.partition.table.name();
            progress.rows += rows.rows.len() as u64;
            let row = |row: &Row| (rows.partition.key.len() + row.name.len() + row.value.len()) as u64;
            progress.bytes += rows.rows.iter().map(row).sum::<u64>();
        }
        SegmentRecord::Blob(_) => progress.blobs += 1,
        SegmentRecord::Piece(bytes) => progress.bytes += bytes.len() as u64,
    }
}
