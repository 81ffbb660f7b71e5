//! Disk space: one admission before anything is written, shared by rows and blobs.
//!
//! ```text
//! free ──────────────┬──────────────────────┬───────────────┬─ 0
//!                    │ floor of data        │ of reclaim    │
//!   puts, parts, bodies   deletes, aborts, sweeps,      flush and compaction
//!                         heartbeats, catalogue         (never asked)
//!                    └─ need of the engine + margin ───────┘
//!                                           └─ a quarter ──┘
//! ```
//! A write is admitted if the floor of its purpose is still free after it. The two floors:
//! - *Data* leaves what the engine may write without asking: memtables that are not flushed yet, a table for each byte of
//!   them, and the output of a compaction. The engine keeps that number up to date. On top lies a margin of 2 % of the disk, at
//!   least 8 MiB, so that some thousand deletes fit on the smallest disk, and at most 512 MiB: on a large disk a share would
//!   keep more away than housekeeping ever writes. On a tiny disk the margin is a quarter of it.
//! - *Reclaim* leaves a quarter of the same. Deletes come once puts are refused, and each writes a tombstone of some hundred
//!   bytes: three quarters of 8 MiB take more than ten thousand of them. The last quarter lets one table at a time be flushed or
//!   compacted, which is how the removed bytes come back.
//!
//! Free bytes are read when they are older than [`READING_VALID`], and always before something is refused: a write is never
//! refused for space that is there again. Between two readings, bytes that were spent count as gone. Space that is promised to
//! bodies under way does not count against deletes: a body is looked at again before each of its runs, together with the runs of
//! others that are being written, so bodies never take the disk below the floor of data. The journal may meet a full disk all the same, since others write to it too; it says so itself.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_store::{Clock, Error, Kind, Purpose, Result};
use parking_lot::Mutex;

const MIB: u64 = 1024 * 1024;
/// How long a reading of the disk holds while nothing is refused.
const READING_VALID: Duration = Duration::from_millis(10);
/// Which part of the disk the margin is.
const MARGIN_PART: u64 = 50;
/// Least margin, unless the disk is tiny.
const MARGIN_MIN: u64 = 8 * MIB;
/// Largest margin.
const MARGIN_MAX: u64 = 512 * MIB;
/// Bytes that a body reserves at a time when its length is not known.
const CHUNK_BYTES: u64 = MIB;
/// A line about refusals is logged at most so often.
const WARNING_EVERY: Duration = Duration::from_secs(60);

/// What holds for a purpose.
struct Tier {
    /// Its floor is this part of what is kept free.
    part: u64,
    /// What its floor is kept for.
    kept_for: &'static str,
}

/// One for each of [`Purpose::ALL`], in that order. The engine's own flush and compaction have none: they are what the floors
/// are for.
const TIERS: [Tier; Purpose::ALL.len()] =
    [Tier { part: 1, kept_for: "deletes, housekeeping and the engine" }, Tier { part: 4, kept_for: "the engine" }];

/// What a disk says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRoom {
    /// Bytes that may still be written.
    pub free: u64,
    /// Bytes of the whole disk.
    pub total: u64,
}

/// Where the room of a disk is read, so that tests can make it up.
pub(crate) trait RoomProbe: Send + Sync {
    /// The room now.
    fn read(&self) -> io::Result<DiskRoom>;
}

/// The file system of a directory.
struct StatvfsProbe(PathBuf);

impl RoomProbe for StatvfsProbe {
    fn read(&self) -> io::Result<DiskRoom> {
        let disk = rustix::fs::statvfs(&self.0)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Ok(DiskRoom { free: bytes(disk.f_bavail), total: bytes(disk.f_blocks) })
    }
}

/// Figures for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceFigures {
    /// The disk.
    pub room: DiskRoom,
    /// Bytes promised to writes under way.
    pub held: u64,
    /// The floor of each of [`Purpose::ALL`].
    pub floors: [u64; Purpose::ALL.len()],
    /// Writes refused since the start, of each of [`Purpose::ALL`].
    pub refused: [u64; Purpose::ALL.len()],
}

/// The disk space of one data directory.
pub struct DiskSpace {
    dir: PathBuf,
    probe: Box<dyn RoomProbe>,
    clock: Arc<dyn Clock>,
    engine_need: AtomicU64,
    refused: [AtomicU64; Purpose::ALL.len()],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ledger: Ledger,
    /// When the room was read; `None` before the first time.
    read_at: Option<Duration>,
    /// Whether the last write of data was refused.
    short: bool,
    log: RefusalLog,
}

/// The room as it was read, and what was promised and written since. Pure.
#[derive(Debug, Default, Clone, Copy)]
struct Ledger {
    free: u64,
    total: u64,
    /// Bytes written since the reading, which may show some of them or none.
    spent: u64,
    /// Bytes promised and not written yet, by purpose.
    held: [u64; Purpose::ALL.len()],
    /// Those of the promised bytes that bodies are writing now.
    writing: u64,
}

/// When refusals were last logged.
#[derive(Debug, Default)]
struct RefusalLog {
    warned_at: Option<Duration>,
    /// Refusals that no line has told yet.
    untold: u64,
    /// Whether the last line said that writes are refused.
    is_open: bool,
}

/// Bytes that are promised until they are spent; what is left is given back when this is dropped.
#[must_use = "the bytes are held as long as this lives"]
pub struct SpaceReservation {
    space: Arc<DiskSpace>,
    purpose: Purpose,
    held: u64,
    writing: u64,
}

impl DiskSpace {
    /// The space of the disk that `dir` is on.
    #[must_use]
    pub fn new(dir: &Path, clock: Arc<dyn Clock>) -> Arc<Self> {
        Self::with_probe(dir, clock, Box::new(StatvfsProbe(dir.to_owned())))
    }

    pub(crate) fn with_probe(dir: &Path, clock: Arc<dyn Clock>, probe: Box<dyn RoomProbe>) -> Arc<Self> {
        let (refused, state, engine_need) = (Default::default(), Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { dir: dir.to_owned(), probe, clock, engine_need, refused, state })
    }

    /// Notes how many bytes the engine may write without asking: those of the memtables that are in no table yet, and room for a
    /// compaction.
    pub fn set_engine_need(&self, bytes: u64) {
        self.engine_need.store(bytes, Ordering::Relaxed);
    }

    /// Promises these bytes to a write. Nothing needs no room.
    ///
    /// # Errors
    /// `Full`: the floor of the purpose would not be free after it.
    pub fn admit(self: &Arc<Self>, purpose: Purpose, bytes: u64) -> Result<SpaceReservation> {
        self.hold(purpose, bytes)?;
        Ok(SpaceReservation { space: self.clone(), purpose, held: bytes, writing: 0 })
    }

    /// Promises what a batch of rows of these bytes costs: its place in the journal and in a table, and what both add to it.
    ///
    /// # Errors
    /// As [`Self::admit`].
    pub fn admit_rows(self: &Arc<Self>, purpose: Purpose, bytes: usize) -> Result<SpaceReservation> {
        self.admit(purpose, rows_cost(bytes as u64))
    }

    /// Whether the last write of data was refused: what the engine can give back by a flush or a compaction is wanted now.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.state.lock().short
    }

    /// The disk, the floors and the refusals now.
    #[must_use]
    pub fn figures(&self) -> SpaceFigures {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        self.renew_if_old(&mut state, now);
        let Ledger { free, total, held, .. } = state.ledger;
        SpaceFigures {
            room: DiskRoom { free, total },
            held: held.iter().sum(),
            floors: Purpose::ALL.map(|purpose| self.floor(purpose, total)),
            refused: Purpose::ALL.map(|purpose| self.refused[purpose as usize].load(Ordering::Relaxed)),
        }
    }

    fn hold(&self, purpose: Purpose, bytes: u64) -> Result<()> {
        let mut state = self.fitting(purpose, bytes, |ledger| ledger.free_for(purpose))?;
        let held = &mut state.ledger.held[purpose as usize];
        *held = held.saturating_add(bytes);
        Ok(())
    }

    /// Lets promised bytes be written in place of `before`, the ones that were: others may have filled the disk meanwhile.
    fn write_promised(&self, purpose: Purpose, before: u64, bytes: u64) -> Result<()> {
        let free = |ledger: &Ledger| ledger.unspent().saturating_sub(ledger.writing.saturating_sub(before));
        let mut state = self.fitting(purpose, bytes, free)?;
        let writing = &mut state.ledger.writing;
        *writing = writing.saturating_sub(before).saturating_add(bytes);
        Ok(())
    }

    /// The state, if so many bytes fit beside the floor; refuses by a new reading only.
    fn fitting(
        &self,
        purpose: Purpose,
        bytes: u64,
        free: impl Fn(&Ledger) -> u64,
    ) -> Result<parking_lot::MutexGuard<'_, State>> {
        let now = self.clock.monotonic();
        let mut guard = self.state.lock();
        if bytes == 0 {
            return Ok(guard);
        }
        let state = &mut *guard;
        let renewed = self.renew_if_old(state, now);
        let fits = |ledger: &Ledger| fits(free(ledger), bytes, self.floor(purpose, ledger.total));
        if !fits(&state.ledger) {
            if !renewed {
                self.renew(state, now);
            }
            if renewed || !fits(&state.ledger) {
                return Err(self.refuse(state, purpose, bytes, now));
            }
        }
        if purpose == Purpose::Data {
            state.short = false;
            if state.log.taken() {
                tracing::info!(dir = %self.dir.display(), free = state.ledger.free, "there is disk space again: writes are taken");
            }
        }
        Ok(guard)
    }

    /// Whether so many bytes fit by the last reading. Nobody is refused for it.
    fn has_room(&self, purpose: Purpose, bytes: u64) -> bool {
        let ledger = self.state.lock().ledger;
        fits(ledger.free_for(purpose), bytes, self.floor(purpose, ledger.total))
    }

    fn refuse(&self, state: &mut State, purpose: Purpose, bytes: u64, now: Duration) -> Error {
        self.refused[purpose as usize].fetch_add(1, Ordering::Relaxed);
        state.short |= purpose == Purpose::Data;
        let (free, floor) = (state.ledger.free, self.floor(purpose, state.ledger.total));
        let (dir, kept_for) = (self.dir.display(), TIERS[purpose as usize].kept_for);
        let text = format!(
            "the disk of {dir} is full: {bytes} bytes do not fit, {free} are free, of which {floor} are kept for {kept_for}"
        );
        if let Some(count) = state.log.refused(now) {
            tracing::warn!(refused = count, purpose = purpose.name(), "{text}");
        }
        Error::new(Kind::Full, text)
    }

    /// Reads the room anew if the last reading is old; answers whether it did.
    fn renew_if_old(&self, state: &mut State, now: Duration) -> bool {
        let is_old = state.read_at.is_none_or(|read_at| now.saturating_sub(read_at) >= READING_VALID);
        if is_old {
            self.renew(state, now);
        }
        is_old
    }

    fn renew(&self, state: &mut State, now: Duration) {
        let room = self.probe.read().unwrap_or_else(|error| {
            // Without a number nothing is refused here: the disk itself refuses what does not fit.
            tracing::debug!(dir = %self.dir.display(), %error, "the free disk space cannot be read");
            DiskRoom { free: u64::MAX, total: 0 }
        });
        state.read_at = Some(now);
        state.ledger.renew(room);
    }

    fn floor(&self, purpose: Purpose, total: u64) -> u64 {
        floor(purpose, self.engine_need.load(Ordering::Relaxed), total)
    }
}

impl SpaceReservation {
    /// Lets the next bytes be written, those under way and not spent yet included: holds them, and looks once more whether they
    /// fit.
    ///
    /// # Errors
    /// `Full`; what was held stays so.
    pub fn cover(&mut self, bytes: u64) -> Result<()> {
        self.reserve(bytes)?;
        self.space.write_promised(self.purpose, self.writing, bytes)?;
        self.writing = bytes;
        Ok(())
    }

    /// Holds these bytes at least. What is added comes in chunks, as far as there is room.
    ///
    /// # Errors
    /// `Full`; what was held stays so.
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        let Some(more) = bytes.checked_sub(self.held).filter(|more| *more > 0) else { return Ok(()) };
        let chunk = more.max(CHUNK_BYTES);
        let added = match more < chunk && self.space.has_room(self.purpose, chunk) {
            true => chunk,
            false => more,
        };
        self.space.hold(self.purpose, added)?;
        self.held += added;
        Ok(())
    }

    /// Notes that bytes were written.
    pub fn spend(&mut self, bytes: u64) {
        let (bytes, written) = (bytes.min(self.held), bytes.min(self.writing));
        self.held -= bytes;
        self.writing -= written;
        let mut state = self.space.state.lock();
        state.ledger.release(self.purpose, bytes, written);
        state.ledger.spent = state.ledger.spent.saturating_add(bytes);
    }

    /// Notes that all of it was written.
    pub fn spend_all(mut self) {
        self.spend(self.held);
    }
}

impl Drop for SpaceReservation {
    fn drop(&mut self) {
        if self.held > 0 {
            self.space.state.lock().ledger.release(self.purpose, self.held, self.writing);
        }
    }
}

impl Ledger {
    fn renew(&mut self, room: DiskRoom) {
        *self = Self { free: room.free, total: room.total, spent: 0, ..*self };
    }

    /// Free bytes without those written since the reading.
    fn unspent(&self) -> u64 {
        self.free.saturating_sub(self.spent)
    }

    /// Free bytes without those promised to others. What bodies were promised they take down to the floor of data at most, so
    /// it does not count for those below.
    fn free_for(&self, purpose: Purpose) -> u64 {
        let held = &self.held[purpose as usize..];
        held.iter().fold(self.unspent(), |free, held| free.saturating_sub(*held))
    }

    /// Takes back a promise of so many bytes, of which so many were being written.
    fn release(&mut self, purpose: Purpose, bytes: u64, writing: u64) {
        let held = &mut self.held[purpose as usize];
        *held = held.saturating_sub(bytes);
        self.writing = self.writing.saturating_sub(writing);
    }
}

impl RefusalLog {
    /// Notes a refusal; answers how many are to be told now.
    fn refused(&mut self, now: Duration) -> Option<u64> {
        self.untold += 1;
        if self.warned_at.is_some_and(|warned_at| now.saturating_sub(warned_at) < WARNING_EVERY) {
            return None;
        }
        self.warned_at = Some(now);
        self.is_open = true;
        Some(std::mem::take(&mut self.untold))
    }

    /// Notes that a write was admitted; answers whether that is to be told.
    fn taken(&mut self) -> bool {
        std::mem::take(&mut self.is_open)
    }
}

/// Whether the floor is still free after so many bytes of what is free.
fn fits(free: u64, bytes: u64, floor: u64) -> bool {
    free.checked_sub(bytes).is_some_and(|left| left >= floor)
}

/// Bytes that must be free after a write for this purpose, on a disk of `total` bytes whose engine may write `need`.
fn floor(purpose: Purpose, need: u64, total: u64) -> u64 {
    let margin = (total / MARGIN_PART).clamp(MARGIN_MIN, MARGIN_MAX).min(total / 4);
    need.saturating_add(margin) / TIERS[purpose as usize].part
}

/// Bytes on disk of a batch of rows: once in the journal, once in a table, and a tenth each for checks, stamps and indexes.
fn rows_cost(bytes: u64) -> u64 {
    bytes.saturating_add(bytes.saturating_mul(6).div_ceil(5))
}

#[cfg(test)]
pub(crate) mod testing {
    //! A disk that has as much room as told.

    use super::*;

    /// The room of a disk, to be set.
    pub(crate) struct FakeRoom {
        free: AtomicU64,
        total: u64,
        /// The files in the folders of this one take of the room.
        pub(crate) blobs: Mutex<Option<PathBuf>>,
    }

    impl FakeRoom {
        /// A disk of so many bytes, all of them free.
        pub(crate) fn of(total: u64) -> Arc<Self> {
            Arc::new(Self { free: AtomicU64::new(total), total, blobs: Mutex::default() })
        }

        pub(crate) fn set(&self, free: u64) {
            self.free.store(free, Ordering::SeqCst);
        }

        fn taken(&self) -> io::Result<u64> {
            let mut taken = 0;
            for folder in self.blobs.lock().iter().map(std::fs::read_dir).collect::<io::Result<Vec<_>>>()? {
                for file in folder.flat_map(|folder| std::fs::read_dir(folder?.path())).flatten() {
                    taken += file?.metadata()?.len();
                }
            }
            Ok(taken)
        }
    }

    impl RoomProbe for Arc<FakeRoom> {
        fn read(&self) -> io::Result<DiskRoom> {
            let free = self.free.load(Ordering::SeqCst).saturating_sub(self.taken()?);
            Ok(DiskRoom { free, total: self.total })
        }
    }

    /// The space of such a disk, and the need of its engine.
    pub(crate) fn space_of(room: &Arc<FakeRoom>, clock: Arc<dyn Clock>) -> Arc<DiskSpace> {
        DiskSpace::with_probe(Path::new("/data"), clock, Box::new(room.clone()))
    }
}

#[cfg(test)]
mod tests;
