//! A folder into a store.

use std::path::Path;

use larder_store::{Row, Table};

use crate::calls::patiently;
use crate::export::disk;
use crate::folder::{Complete, Folder};
use crate::marker::Marker;
use crate::progress::{Phase, Progress, Tell};
use crate::record::Record;
use crate::scope::{How, ORDER, how};
use crate::segment::{self, ExportId, Reader};
use crate::sink::Sink;
use crate::totals::{Total, Totals};
use crate::{Ends, Error, Result, users};

/// Bytes of records read at once.
const READ_BYTES: usize = 2 * 1024 * 1024;
/// How far ahead of the target's clock the newest row may be, in microseconds.
const AHEAD_MAX: u64 = 60 * 1_000_000;

/// What was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The identity of the export.
    pub id: String,
    /// What it holds.
    pub totals: Totals,
    /// Segments that were in the target before.
    pub resumed: u32,
    /// Segments there are.
    pub segments: u32,
}

/// Writes the export in `dir` into a target that is empty, or goes on where that was interrupted. Nobody should use the
/// target meanwhile. When this is answered everything is on disk; [`crate::verify`] says whether it is right.
///
/// # Errors
/// [`Error`]; given again, it goes on. `Refused`: nothing was written.
pub async fn import(ends: &Ends, dir: &Path, tell: impl Fn(Progress) + Send + Sync) -> Result<Imported> {
    let path = dir.to_owned();
    let (folder, id, complete) = disk(move || {
        let (folder, manifest, complete) = Folder::open(&path)?;
        Ok((folder.clone(), manifest.id(&folder)?, complete))
    })
    .await?;
    let text = String::from_utf8_lossy(&id).into_owned();
    let mut marker = begin(ends, &text, &complete).await?;
    let resumed = marker.segments;
    let segments = u32::try_from(complete.segments.len()).unwrap_or(u32::MAX);
    let store = &ends.store;
    for number in resumed + 1..=segments {
        let now = patiently("asking for the time", |options| async move { store.now(&options).await }).await?;
        let mut sink = Sink::new(ends.clone(), now);
        put_segment(&mut sink, (&folder, &id, &complete), number, &tell).await?;
        sink.drain().await?;
        marker.segments = number;
        marker.complete = number == segments;
        marker.write(ends).await?;
    }
    Ok(Imported { id: text, totals: complete.totals, resumed, segments })
}

/// Where the import stands; a new one once nothing speaks against it.
async fn begin(ends: &Ends, id: &str, complete: &Complete) -> Result<Marker> {
    let before = Marker::read(ends).await?;
    match &before {
        Some(marker) if marker.id == id => return Ok(marker.clone()),
        Some(marker) if !marker.complete => {
            let line =
                format!("the import of another export ({}) was interrupted here: finish that one first", marker.id);
            return Err(Error::Refused(line));
        }
        Some(_) | None => {}
    }
    refuse_types(ends, complete)?;
    refuse_future(ends, complete).await?;
    refuse_others(ends, complete).await?;
    let mut marker = Marker::new(id, before.as_ref());
    marker.write(ends).await?;
    Ok(marker)
}

/// Refuses types that want more copies than there are machines.
fn refuse_types(ends: &Ends, complete: &Complete) -> Result<()> {
    let limits = ends.store.limits();
    let too_many = complete.types.iter().filter(|one| limits.replicated && u32::from(one.copies) > limits.nodes);
    let named: Vec<_> = too_many.map(|one| format!("{} (n_val {})", one.name.escape_debug(), one.copies)).collect();
    if named.is_empty() {
        return Ok(());
    }
    let (nodes, named) = (limits.nodes, named.join(", "));
    Err(Error::Refused(format!("there are {nodes} nodes, too few for the copies these bucket types ask for: {named}")))
}

/// Refuses rows from a time that has not come: what is written after the import would be older.
async fn refuse_future(ends: &Ends, complete: &Complete) -> Result<()> {
    let store = &ends.store;
    let now = patiently("asking for the time", |options| async move { store.now(&options).await }).await?;
    let ahead = complete.totals.greatest.saturating_sub(now);
    if ahead <= AHEAD_MAX {
        return Ok(());
    }
    let seconds = ahead / 1_000_000;
    Err(Error::Refused(format!(
        "the newest row of the export is {seconds} s ahead of this machine's clock: set the clock"
    )))
}

/// Refuses a target that has something already.
async fn refuse_others(ends: &Ends, complete: &Complete) -> Result<()> {
    let mut found = Vec::new();
    let (store, blobs) = (&ends.store, &ends.blobs);
    for table in ORDER.into_iter().filter(|table| !matches!(table, Table::Users | Table::Usage)) {
        if how(table) == How::Shadow {
            continue;
        }
        let list = |options| async move { store.partitions(table, None, 1, &options).await };
        let page = patiently("looking whether the target is empty", list).await?;
        if !page.partitions.is_empty() {
            found.push(table.name());
        }
    }
    if complete.totals.of(Table::Users) != Total::default() && users::are_there(ends).await? {
        found.push(Table::Users.name());
    }
    if !patiently("looking whether the target is empty", |_| blobs.list(None, 1)).await?.is_empty() {
        found.push("blobs");
    }
    if found.is_empty() {
        return Ok(());
    }
    Err(Error::Refused(format!("the target is not empty: it has {}", found.join(", "))))
}

/// Writes the records of one segment.
async fn put_segment(
    sink: &mut Sink,
    (folder, id, complete): (&Folder, &ExportId, &Complete),
    number: u32,
    tell: Tell<'_>,
) -> Result<()> {
    let (dir, id) = (folder.dir.clone(), *id);
    let (mut reader, before, digest) = disk(move || {
        let before = match number {
            1 => Totals::default(),
            _ => segment::trailer(&dir.join(segment::name_of(number - 1)))?.0.totals,
        };
        let (reader, _, digest) = Reader::open(&dir, number, &id)?;
        Ok((reader, before, digest))
    })
    .await?;
    let damaged = |what: String| Error::damaged(&folder.dir.join(segment::name_of(number)), what);
    let wanted = complete.segments.get(number as usize - 1);
    if wanted != Some(&digest.iter().map(|byte| format!("{byte:02x}")).collect()) {
        return Err(damaged("it is not the one in the manifest".to_owned()));
    }
    let mut told = Told { rows: before.rows(), blobs: before.blobs.count, bytes: before.bytes(), table: "blobs" };
    let all = complete.totals.bytes().max(1) as f64;
    loop {
        let records;
        (reader, records) = disk(move || reader.records(READ_BYTES).map(|records| (reader, records))).await?;
        if records.is_empty() {
            return Ok(());
        }
        for bytes in records {
            let record = Record::decode(bytes).map_err(|error| damaged(error.to_string()))?;
            told.count(&record);
            sink.take(record).await?;
            let Told { rows, blobs, bytes, table } = told;
            let fraction = Some((bytes as f64 / all).min(1.0));
            tell(Progress { phase: Phase::Import, table, rows, blobs, bytes, fraction });
        }
    }
}

/// What was taken so far.
struct Told {
    rows: u64,
    blobs: u64,
    bytes: u64,
    table: &'static str,
}

impl Told {
    fn count(&mut self, record: &Record) {
        self.table = "blobs";
        match record {
            Record::Rows(rows) => {
                self.table = rows.partition.table.name();
                self.rows += rows.rows.len() as u64;
                let row = |row: &Row| (rows.partition.key.len() + row.name.len() + row.value.len()) as u64;
                self.bytes += rows.rows.iter().map(row).sum::<u64>();
            }
            Record::Blob(_) => self.blobs += 1,
            Record::Piece(bytes) => self.bytes += bytes.len() as u64,
        }
    }
}
