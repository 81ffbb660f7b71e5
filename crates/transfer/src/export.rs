//! A store into a folder.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_store::{Batch, Change, Partition, ReadQuery, Row, Table};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};

use crate::calls::{landed, patiently, patiently_on_disk, read};
use crate::catalogue::Copies;
use crate::cursor::Cursor;
use crate::folder::{Complete, Folder, Manifest, TypeCopies};
use crate::progress::{Phase, Progress};
use crate::scan::{Scan, Step};
use crate::scope::{How, ORDER, how};
use crate::segment::{self, ExportId, Reader, Trailer, Writer};
use crate::totals::Totals;
use crate::{Ends, Error, Result};

/// A segment is ended behind the record that makes it as long as this, if nobody says otherwise. One blob is never cut, so it
/// may make a segment longer.
pub const SEGMENT_BYTES: u64 = 16 * 1024 * 1024;
/// Bytes handed to the disk at once.
const WRITE_BYTES: usize = 1024 * 1024;
/// How long a store remembers an export that was begun, in microseconds: so long it may be gone on with.
const REMEMBERED: u64 = 30 * 24 * 60 * 60 * 1_000_000;
/// Partitions counted at once.
const COUNT_PARTITIONS: usize = 10_000;

/// How to export.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// Into which folder.
    pub dir: PathBuf,
    /// Identity of the export if it is a new one: letters and digits that no other export has.
    pub id: [u8; 32],
    /// What it is taken from, for people.
    pub source: String,
    /// When a segment is long enough; [`SEGMENT_BYTES`].
    pub segment_bytes: u64,
}

/// What was exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The identity of the export.
    pub id: String,
    /// What there was.
    pub totals: Totals,
    /// Segments that were there before.
    pub resumed: u32,
    /// Segments now.
    pub segments: u32,
}

/// Writes everything `ends` keeps into a folder, or goes on where that was interrupted. What is written meanwhile may be in
/// it or not: nobody should write.
///
/// # Errors
/// [`Error`]; given again, it goes on. A folder with a complete export is refused: what was written since is not in it.
pub async fn export(ends: &Ends, options: &ExportOptions, tell: impl Fn(Progress) + Send + Sync) -> Result<Exported> {
    let dir = options.dir.clone();
    let folder = disk(move || Folder::make(&dir)?.lock()).await?;
    let manifest = begin(ends, &folder, options).await?;
    let id = manifest.id(&folder)?;
    let of = folder.clone();
    let (resumed, Trailer { cursor, totals }) = disk(move || stands(&of, &id)).await?;
    let counted = Counter::begin(ends.clone());
    let mut scan = Scan::begin(ends.clone(), cursor, totals).await?;
    let mut number = resumed;
    while scan.cut().is_some_and(|cursor| !cursor.is_at_the_end()) {
        number += 1;
        let of = folder.clone();
        let writer = disk(move || Writer::create(of, number, &id)).await?;
        write_segment(&mut scan, writer, options.segment_bytes, &|scan| tell(told(scan, &counted))).await?;
    }
    let complete = Complete { types: types(scan.copies()), totals: scan.totals().clone(), segments: Vec::new() };
    let totals = complete.totals.clone();
    disk(move || end(&folder, manifest, complete, (number, id))).await?;
    Ok(Exported { id: String::from_utf8_lossy(&id).into_owned(), totals, resumed, segments: number })
}

/// The manifest of a new export, or of the one that is gone on with.
async fn begin(ends: &Ends, folder: &Folder, options: &ExportOptions) -> Result<Manifest> {
    let of = folder.clone();
    if let Some(manifest) = disk(move || of.manifest()).await? {
        if manifest.complete.is_some() {
            return Err(Error::Refused(is_complete(folder, &manifest)));
        }
        let id = manifest.id(folder)?;
        let found = read(ends, &exports(), &ReadQuery::one(bytes::Bytes::copy_from_slice(&id))).await?;
        if found.rows.is_empty() {
            let line = "holds an unfinished export of another server's data, or one begun more than 30 days ago";
            return Err(Error::Refused(format!("{} {line}", folder.dir.display())));
        }
        return Ok(manifest);
    }
    let of = folder.clone();
    if disk(move || of.has_others()).await? {
        return Err(Error::Refused(format!("{} is not empty, and holds no export", folder.dir.display())));
    }
    let store = &ends.store;
    let now = patiently("asking for the time", |options| async move { store.now(&options).await }).await?;
    let name = bytes::Bytes::copy_from_slice(&options.id);
    let mark = Row { name, value: bytes::Bytes::from_static(&[1]), stamp: now.max(1), expires: Some(now + REMEMBERED) };
    let batch = Batch::of(exports(), vec![Change::Put(mark)]);
    let batch = &batch;
    patiently_on_disk("noting the export", |options| async move { store.apply(batch.clone(), &options).await }).await?;
    let manifest = Manifest::new(&options.id, now, options.source.clone());
    let (of, whole) = (folder.clone(), manifest.clone());
    disk(move || of.put_manifest(&whole)).await?;
    Ok(manifest)
}

fn is_complete(folder: &Folder, manifest: &Manifest) -> String {
    let (dir, Manifest { id, source, .. }) = (folder.dir.display(), manifest);
    let begun = OffsetDateTime::from_unix_timestamp_nanos(i128::from(manifest.begun) * 1000);
    let begun = begun.unwrap_or(OffsetDateTime::UNIX_EPOCH).truncate_to_second().format(&Rfc3339).unwrap_or_default();
    format!(
        "{dir} holds a complete export already: {id} of {source}, begun {begun}; export into another directory, or add \
         --verify to compare"
    )
}

/// Where a store notes the exports that were begun: they go on with the data they were begun with, or not at all.
fn exports() -> Partition {
    Partition::own(Table::Marks, bytes::Bytes::from_static(b"exports"))
}

/// How many segments are there, and what the last one says.
fn stands(folder: &Folder, id: &ExportId) -> Result<(u32, Trailer)> {
    match folder.segments()? {
        0 => Ok((0, Trailer { cursor: Cursor::default(), totals: Totals::default() })),
        count => Reader::open(&folder.dir, count, id).map(|(_, trailer, _)| (count, trailer)),
    }
}

/// Writes one segment.
async fn write_segment(
    scan: &mut Scan,
    writer: Writer,
    bytes_max: u64,
    tell: &(dyn Fn(&Scan) + Send + Sync),
) -> Result<()> {
    let mut file = Behind::new(writer);
    let mut buffer = Vec::with_capacity(WRITE_BYTES * 2);
    let mut bytes = 0;
    loop {
        let cut = scan.cut();
        if cut.is_some_and(|cursor| bytes >= bytes_max || cursor.is_at_the_end()) {
            break;
        }
        match scan.next().await? {
            Step::Record(record) => {
                let before = buffer.len();
                segment::frame(&mut buffer, &record.encode());
                bytes += (buffer.len() - before) as u64;
            }
            Step::Counted | Step::End => {}
        }
        if buffer.len() >= WRITE_BYTES {
            file.append(std::mem::take(&mut buffer)).await?;
            buffer.reserve(WRITE_BYTES * 2);
        }
        tell(scan);
    }
    let Some(cursor) = scan.cut().cloned() else { return Ok(()) };
    let trailer = Trailer { cursor, totals: scan.totals().clone() };
    file.append(buffer).await?;
    let writer = file.settle().await?;
    disk(move || writer.finish(&trailer)).await.map(drop)
}

/// A segment whose bytes are written while the next ones are gathered.
struct Behind(JoinHandle<Result<Writer>>);

impl Behind {
    fn new(writer: Writer) -> Self {
        Self(spawn_blocking(move || Ok(writer)))
    }

    /// Waits for the bytes before, then lets these be written.
    async fn append(&mut self, bytes: Vec<u8>) -> Result<()> {
        let mut writer = landed("writing a segment", (&mut self.0).await)?;
        self.0 = spawn_blocking(move || writer.append(&bytes).map(|()| writer));
        Ok(())
    }

    async fn settle(self) -> Result<Writer> {
        landed("writing a segment", self.0.await)
    }
}

/// Looks once more at every segment and says that the export is complete.
fn end(folder: &Folder, manifest: Manifest, mut complete: Complete, (count, id): (u32, ExportId)) -> Result<()> {
    for number in 1..=count {
        let (_, _, digest) = Reader::open(&folder.dir, number, &id)?;
        complete.segments.push(digest.iter().map(|byte| format!("{byte:02x}")).collect());
    }
    folder.put_manifest(&Manifest { complete: Some(complete), ..manifest })
}

fn types(copies: &Copies) -> Vec<TypeCopies> {
    let asked = copies.0.iter().filter(|(_, (_, asked))| *asked);
    let of = |name: &bytes::Bytes, copies| TypeCopies { name: String::from_utf8_lossy(name).into_owned(), copies };
    asked.map(|(name, (copies, _))| of(name, *copies)).collect()
}

fn told(scan: &Scan, counted: &Counter) -> Progress {
    let totals = scan.totals();
    Progress {
        phase: Phase::Export,
        table: scan.table(),
        rows: totals.rows(),
        blobs: totals.blobs.count,
        bytes: totals.bytes(),
        // How many blobs there are no engine says without reading them all.
        fraction: counted.fraction(totals.partitions).filter(|_| scan.table() != "blobs"),
    }
}

/// Counts the partitions while they are being exported: so there is something to measure progress by.
struct Counter {
    /// How many there are; 0 while that is not known.
    all: Arc<AtomicU64>,
    _task: JoinSet<()>,
}

impl Counter {
    fn begin(ends: Ends) -> Self {
        let all = Arc::new(AtomicU64::new(0));
        let mut task = JoinSet::new();
        let found = Arc::clone(&all);
        task.spawn(async move {
            match count(&ends).await {
                Ok(count) => found.store(count, Ordering::Relaxed),
                Err(error) => tracing::debug!(%error, "partitions were not counted"),
            }
        });
        Self { all, _task: task }
    }

    fn fraction(&self, done: u64) -> Option<f64> {
        let all = self.all.load(Ordering::Relaxed);
        (all > 0).then(|| (done as f64 / all as f64).min(1.0))
    }
}

async fn count(ends: &Ends) -> Result<u64> {
    let (store, mut count) = (&ends.store, 0);
    for table in ORDER.into_iter().filter(|table| how(*table) != How::Left) {
        let mut after = None;
        loop {
            let after_now = &after;
            let list =
                |options| async move { store.partitions(table, after_now.clone(), COUNT_PARTITIONS, &options).await };
            let page = patiently("counting partitions", list).await?;
            count += page.partitions.len() as u64;
            after = page.next;
            if after.is_none() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    Ok(count)
}

/// Runs what blocks where it may.
pub(crate) async fn disk<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    landed("working on the folder", spawn_blocking(work).await)
}
