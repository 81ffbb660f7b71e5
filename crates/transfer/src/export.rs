//! Exports a store into a folder.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_rows::Timestamp;
use larder_store::{Batch, Change, Partition, ReadQuery, Row, Table};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};

use crate::catalogue::{TypeCatalogue, bucket_split_since};
use crate::cursor::ScanCursor;
use crate::folder::{ExportContents, ExportFolder, ExportManifest, TypeCopies};
use crate::retry::{join_result, read, with_durable_retries, with_retries};
use crate::scan::{ScanStep, StoreScan};
use crate::scope::{ORDER, TransferMethod, transfer_method};
use crate::segment::{self, ExportId, SegmentReader, SegmentTrailer, SegmentWriter};
use crate::totals::{Phase, Totals, TransferProgress};
use crate::{Error, Result, StorePair};

/// The default length of a segment: it ends after the record that reaches it. A segment never ends inside a blob, so it may be
/// longer.
pub const SEGMENT_BYTES: u64 = 16 * 1024 * 1024;
/// Bytes per write to the disk.
const WRITE_BYTES: usize = 1024 * 1024;
/// How long a store remembers an unfinished export, in microseconds. An older one cannot resume.
const RESUMABLE: u64 = 30 * 24 * 60 * 60 * 1_000_000;
/// Partitions per page of the count.
const COUNT_PARTITIONS: usize = 10_000;

/// Options of an export.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// The target folder.
    pub dir: PathBuf,
    /// Identity of a new export: letters and digits that no other export has.
    pub id: [u8; 32],
    /// The exported node's name, for people.
    pub source: String,
    /// The length that ends a segment; usually [`SEGMENT_BYTES`].
    pub segment_bytes: u64,
}

/// The result of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The identity of the export.
    pub id: String,
    /// Counts and checksums.
    pub totals: Totals,
    /// Segments of earlier, interrupted runs.
    pub resumed: u32,
    /// Segments in all.
    pub segments: u32,
}

/// Writes everything in `stores` into a folder, or resumes an interrupted export. A write during the export may be in it or
/// not, so clients should not write.
///
/// # Errors
/// [`Error`]; the same call resumes the export. A folder with a complete export is refused: later writes are not in it.
pub async fn export(
    stores: &StorePair,
    options: &ExportOptions,
    report: impl Fn(TransferProgress) + Send + Sync,
) -> Result<Exported> {
    let dir = options.dir.clone();
    let folder = run_blocking(move || ExportFolder::make(&dir)?.lock()).await?;
    let manifest = begin(stores, &folder, options).await?;
    let id = manifest.id(&folder)?;
    let of = folder.clone();
    let (resumed, SegmentTrailer { cursor, totals }) = run_blocking(move || resume_point(&of, &id)).await?;
    let counted = PartitionCounter::begin(stores.clone());
    // Crash: each whole segment has the cursor of the next one, so a repeated export resumes after it.
    let mut scan = StoreScan::begin(stores.clone(), cursor, totals).await?;
    let mut number = resumed;
    while scan.safe_cursor().is_some_and(|cursor| !cursor.is_at_end()) {
        number += 1;
        let of = folder.clone();
        let writer = run_blocking(move || SegmentWriter::create(of, number, &id)).await?;
        write_segment(&mut scan, writer, options.segment_bytes, &|scan| report(scan_progress(scan, &counted))).await?;
    }
    check_epochs(stores, &folder, manifest.begun).await?;
    let complete = ExportContents { types: types(scan.copies()), totals: scan.totals().clone(), segments: Vec::new() };
    let totals = complete.totals.clone();
    run_blocking(move || end(&folder, manifest, complete, number, id)).await?;
    Ok(Exported { id: String::from_utf8_lossy(&id).into_owned(), totals, resumed, segments: number })
}

/// Refuses an export during which the indexes of a bucket were split: its catalogue may lack the epoch of rows that follow, and no
/// query of the target would read them.
async fn check_epochs(stores: &StorePair, folder: &ExportFolder, begun: Timestamp) -> Result<()> {
    let Some(bucket) = bucket_split_since(stores, begun).await? else { return Ok(()) };
    let (of, name, dir) = (bucket.bucket_type.escape_ascii(), bucket.bucket.escape_ascii(), folder.dir.display());
    Err(Error::Refused(format!(
        "the indexes of bucket {of}/{name} were split during the export: remove {dir} and export anew, while no client writes"
    )))
}

/// The manifest of a new export, or of the interrupted one in the folder.
async fn begin(stores: &StorePair, folder: &ExportFolder, options: &ExportOptions) -> Result<ExportManifest> {
    let of = folder.clone();
    if let Some(manifest) = run_blocking(move || of.manifest()).await? {
        if manifest.complete.is_some() {
            return Err(Error::Refused(complete_export_text(folder, &manifest)));
        }
        let id = manifest.id(folder)?;
        let page = read(stores, &exports(), &ReadQuery::one(bytes::Bytes::copy_from_slice(&id))).await?;
        if page.rows.is_empty() {
            let line = "holds an unfinished export of another server's data, or one begun more than 30 days ago";
            return Err(Error::Refused(format!("{} {line}", folder.dir.display())));
        }
        return Ok(manifest);
    }
    let of = folder.clone();
    if run_blocking(move || of.has_others()).await? {
        return Err(Error::Refused(format!("{} is not empty, and holds no export", folder.dir.display())));
    }
    let store = &stores.store;
    let now = with_retries("asking for the time", |options| async move { store.now(&options).await }).await?;
    let name = bytes::Bytes::copy_from_slice(&options.id);
    let mark = Row {
        name,
        value: bytes::Bytes::from_static(&[1]),
        stamp: now.max(Timestamp(1)),
        expires: Some(now + RESUMABLE),
    };
    let batch = Batch::single(exports(), vec![Change::Put(mark)]);
    let batch = &batch;
    with_durable_retries("noting the export", |options| async move { store.apply(batch.clone(), &options).await })
        .await?;
    // The store's mark comes before the manifest. After a crash in between, the folder looks empty and the export starts anew;
    // in the other order a manifest could stand for an export that its own store does not know.
    let manifest = ExportManifest::new(&options.id, now, options.source.clone());
    let (of, whole) = (folder.clone(), manifest.clone());
    run_blocking(move || of.put_manifest(&whole)).await?;
    Ok(manifest)
}

fn complete_export_text(folder: &ExportFolder, manifest: &ExportManifest) -> String {
    let (dir, ExportManifest { id, source, .. }) = (folder.dir.display(), manifest);
    let begun = OffsetDateTime::from_unix_timestamp_nanos(i128::from(manifest.begun.0) * 1000);
    let begun = begun.unwrap_or(OffsetDateTime::UNIX_EPOCH).truncate_to_second().format(&Rfc3339).unwrap_or_default();
    format!(
        "{dir} holds a complete export already: {id} of {source}, begun {begun}; export into another directory, or add \
         --verify to compare"
    )
}

/// The store's marks of begun exports. An export resumes only with the store that it began with.
fn exports() -> Partition {
    Partition::new(Table::Marks, bytes::Bytes::from_static(b"exports"))
}

/// The number of whole segments, and the last one's trailer.
fn resume_point(folder: &ExportFolder, id: &ExportId) -> Result<(u32, SegmentTrailer)> {
    match folder.segments()? {
        0 => Ok((0, SegmentTrailer { cursor: ScanCursor::default(), totals: Totals::default() })),
        count => SegmentReader::open(&folder.dir, count, id).map(|(_, trailer, _)| (count, trailer)),
    }
}

/// Writes one segment.
async fn write_segment(
    scan: &mut StoreScan,
    writer: SegmentWriter,
    bytes_max: u64,
    report: &(dyn Fn(&StoreScan) + Send + Sync),
) -> Result<()> {
    let mut file = WriteBehind::new(writer);
    let mut buffer = Vec::with_capacity(WRITE_BYTES * 2);
    let mut bytes = 0;
    loop {
        // A segment ends only where the scan can resume: an interrupted export continues from its trailer.
        let safe_cursor = scan.safe_cursor();
        if safe_cursor.is_some_and(|cursor| bytes >= bytes_max || cursor.is_at_end()) {
            break;
        }
        match scan.next().await? {
            ScanStep::Record(record) => {
                let before = buffer.len();
                segment::frame(&mut buffer, &record.encode());
                bytes += (buffer.len() - before) as u64;
            }
            ScanStep::Counted | ScanStep::End => {}
        }
        if buffer.len() >= WRITE_BYTES {
            file.append(std::mem::take(&mut buffer)).await?;
            buffer.reserve(WRITE_BYTES * 2);
        }
        report(scan);
    }
    let Some(cursor) = scan.safe_cursor().cloned() else { return Ok(()) };
    let trailer = SegmentTrailer { cursor, totals: scan.totals().clone() };
    file.append(buffer).await?;
    let writer = file.settle().await?;
    run_blocking(move || writer.finish(&trailer)).await.map(drop)
}

/// A segment that writes its bytes in the background while the scan gathers the next ones.
struct WriteBehind(JoinHandle<Result<SegmentWriter>>);

impl WriteBehind {
    fn new(writer: SegmentWriter) -> Self {
        Self(spawn_blocking(move || Ok(writer)))
    }

    /// Waits for the previous write, then starts the next one.
    async fn append(&mut self, bytes: Vec<u8>) -> Result<()> {
        let mut writer = join_result("writing a segment", (&mut self.0).await)?;
        self.0 = spawn_blocking(move || writer.append(&bytes).map(|()| writer));
        Ok(())
    }

    async fn settle(self) -> Result<SegmentWriter> {
        join_result("writing a segment", self.0.await)
    }
}

/// Checks every segment once more and writes the complete manifest.
fn end(
    folder: &ExportFolder,
    manifest: ExportManifest,
    mut complete: ExportContents,
    count: u32,
    id: ExportId,
) -> Result<()> {
    for number in 1..=count {
        let (_, _, digest) = SegmentReader::open(&folder.dir, number, &id)?;
        complete.segments.push(hex::encode(digest));
    }
    // The manifest comes last: an import accepts no export whose segments were not all checked.
    folder.put_manifest(&ExportManifest { complete: Some(complete), ..manifest })
}

fn types(copies: &TypeCatalogue) -> Vec<TypeCopies> {
    let asked = copies.0.iter().filter(|(_, (_, asked))| *asked);
    let of = |name: &bytes::Bytes, copies| TypeCopies { name: String::from_utf8_lossy(name).into_owned(), copies };
    asked.map(|(name, (copies, _))| of(name, *copies)).collect()
}

fn scan_progress(scan: &StoreScan, counted: &PartitionCounter) -> TransferProgress {
    let totals = scan.totals();
    // No engine counts its blobs without reading them all, so their progress has no fraction.
    let fraction = counted.fraction(totals.partitions).filter(|_| scan.table() != "blobs");
    TransferProgress::new(Phase::Export, scan.table(), totals, fraction)
}

/// Counts the partitions during the export, as the total of its progress.
struct PartitionCounter {
    /// The total; 0 until it is known.
    all: Arc<AtomicU64>,
    _task: JoinSet<()>,
}

impl PartitionCounter {
    fn begin(stores: StorePair) -> Self {
        let all = Arc::new(AtomicU64::new(0));
        let mut task = JoinSet::new();
        let counter = Arc::clone(&all);
        task.spawn(async move {
            match count(&stores).await {
                Ok(count) => counter.store(count, Ordering::Relaxed),
                Err(error) => tracing::debug!(%error, "counting partitions failed: the export shows no percentage"),
            }
        });
        Self { all, _task: task }
    }

    fn fraction(&self, done: u64) -> Option<f64> {
        let all = self.all.load(Ordering::Relaxed);
        (all > 0).then(|| (done as f64 / all as f64).min(1.0))
    }
}

async fn count(stores: &StorePair) -> Result<u64> {
    let (store, mut count) = (&stores.store, 0);
    for table in ORDER.into_iter().filter(|table| transfer_method(*table) != TransferMethod::Skipped) {
        let mut after = None;
        loop {
            let after_now = &after;
            let list =
                |options| async move { store.partitions(table, after_now.clone(), COUNT_PARTITIONS, &options).await };
            let page = with_retries("counting partitions", list).await?;
            count += page.partitions.len() as u64;
            after = page.next;
            if after.is_none() {
                break;
            }
            // Counting only serves the progress: a pause leaves the store to the export.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    Ok(count)
}

/// Runs file work on a thread that may block.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    join_result("working on the folder", spawn_blocking(work).await)
}
