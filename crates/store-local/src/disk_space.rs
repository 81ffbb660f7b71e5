//! Disk space: the admission of every write, shared by rows and blobs.
//!
//! ```text
//! free ──────────────┬──────────────────────┬───────────────┬─ 0
//!                    │ floor of data        │ of reclaim    │
//!   puts, parts, bodies   deletes, aborts, sweeps,      flush and compaction
//!                         heartbeats, catalogue         (not admitted)
//!                    └─ need of the engine + margin ───────┘
//!                                           └─ a quarter ──┘
//! ```
//! A write is admitted if the floor of its purpose is still free after it. The two floors:
//! - *Data* leaves free the bytes that the engine writes without admission: unflushed memtables, their tables, and the output
//!   of a compaction. The engine keeps that number up to date. To it comes a margin of 2 % of the disk: at least 8 MiB, so that
//!   some thousand deletes fit on the smallest disk, and at most 512 MiB, because housekeeping never writes more. On a tiny
//!   disk the margin is a quarter of the disk.
//! - *Reclaim* leaves a quarter of the same free. Deletes come once puts are refused, and each writes a tombstone of some
//!   hundred bytes: three quarters of 8 MiB hold more than ten thousand. In the last quarter one table at a time is flushed or
//!   compacted, which frees the removed bytes.
//!
//! Above the floor of data a put waits a while, if merges need the room that give space back.
//!
//! A reading of the free bytes is valid for [`READING_VALID`], and a refusal always rests on a new reading: no write is refused
//! for space that is free again. Between two readings, spent bytes count as used. Reservations of bodies do not count against
//! deletes: before each run of blocks a body is authorized again, together with the runs of other bodies, so bodies never take
//! the disk below the floor of data. The journal may meet a full disk all the same, since other programs write to it, too.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_store::{Clock, Error, Kind, Purpose, Result};

use crate::threads::{Mutex, MutexGuard};

const MIB: u64 = 1024 * 1024;
/// How long a reading of the disk is valid while nothing is refused.
const READING_VALID: Duration = Duration::from_millis(10);
/// The margin is the disk's size divided by this.
const MARGIN_DIVISOR: u64 = 50;
/// Least margin, unless the disk is tiny.
const MARGIN_MIN: u64 = 8 * MIB;
/// Largest margin.
const MARGIN_MAX: u64 = 512 * MIB;
/// A disk is short from a refusal, or a wait, until this part of it is free above the floor of data at a put.
const SHORT_PART: u64 = 16;
/// Bytes that a body of unknown length reserves at a time.
const CHUNK_BYTES: u64 = MIB;
/// Least time between two log lines about refusals.
const WARNING_EVERY: Duration = Duration::from_secs(60);

/// The rule for a purpose.
struct PurposeTier {
    /// The floor is the engine's need and the margin, divided by this.
    divisor: u64,
    /// The users of the floor, for error texts.
    kept_for: &'static str,
}

/// The rules of [`Purpose::ALL`], in that order. Flush and compaction have none: the floors are for them.
const PURPOSE_TIERS: [PurposeTier; Purpose::ALL.len()] = [
    PurposeTier { divisor: 1, kept_for: "deletes, housekeeping and the engine" },
    PurposeTier { divisor: 4, kept_for: "the engine" },
];

/// The capacity of a disk, as statvfs reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskCapacity {
    /// Free bytes.
    pub free: u64,
    /// Bytes of the whole disk.
    pub total: u64,
}

/// The source of a disk's capacity; a port, so that tests can set it.
pub(crate) trait CapacityProbe: Send + Sync {
    /// The capacity now.
    fn read(&self) -> io::Result<DiskCapacity>;
}

/// The file system of a directory.
struct StatvfsProbe(PathBuf);

impl CapacityProbe for StatvfsProbe {
    fn read(&self) -> io::Result<DiskCapacity> {
        let disk = rustix::fs::statvfs(&self.0)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        // The blocks that `f_bfree` counts in addition are reserved for root.
        Ok(DiskCapacity { free: bytes(disk.f_bavail), total: bytes(disk.f_blocks) })
    }
}

/// Figures for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceStats {
    /// The disk.
    pub capacity: DiskCapacity,
    /// Bytes reserved by writes in flight.
    pub held: u64,
    /// The floor of each of [`Purpose::ALL`].
    pub floors: [u64; Purpose::ALL.len()],
    /// Writes refused since the start, of each of [`Purpose::ALL`].
    pub refused: [u64; Purpose::ALL.len()],
}

/// The disk space of one data directory.
pub struct DiskSpace {
    dir: PathBuf,
    probe: Box<dyn CapacityProbe>,
    clock: Arc<dyn Clock>,
    engine_need: AtomicU64,
    merge_need: AtomicU64,
    refused: [AtomicU64; Purpose::ALL.len()],
    state: Mutex<SpaceState>,
}

#[derive(Default)]
struct SpaceState {
    ledger: SpaceLedger,
    /// When the capacity was read; `None` before the first time.
    read_at: Option<Duration>,
    /// Whether a write was refused or waited, and there is little room since.
    short: bool,
    log: RefusalLog,
}

/// The capacity as it was read, and the bytes reserved and written since. Pure.
#[derive(Debug, Default, Clone, Copy)]
struct SpaceLedger {
    free: u64,
    total: u64,
    /// Bytes written since the reading, which may show some of them or none.
    spent: u64,
    /// Bytes reserved and not written yet, by purpose.
    held: [u64; Purpose::ALL.len()],
    /// Reserved bytes that bodies are writing now.
    writing: u64,
}

/// When refusals were last logged.
#[derive(Debug, Default)]
struct RefusalLog {
    warned_at: Option<Duration>,
    /// Refusals since the last line.
    unlogged: u64,
    /// Whether the last line reported refusals.
    is_open: bool,
}

/// Bytes reserved until they are spent; dropping the reservation releases the rest.
#[must_use = "the bytes are held as long as this lives"]
pub struct SpaceReservation {
    space: Arc<DiskSpace>,
    purpose: Purpose,
    held: u64,
    writing: u64,
}

impl DiskSpace {
    /// The space of the disk that holds `dir`.
    #[must_use]
    pub fn new(dir: &Path, clock: Arc<dyn Clock>) -> Arc<Self> {
        Self::with_probe(dir, clock, Box::new(StatvfsProbe(dir.to_owned())))
    }

    pub(crate) fn with_probe(dir: &Path, clock: Arc<dyn Clock>, probe: Box<dyn CapacityProbe>) -> Arc<Self> {
        let (engine_need, merge_need) = (AtomicU64::new(0), AtomicU64::new(0));
        let (refused, state) = (Default::default(), Mutex::default());
        Arc::new(Self { dir: dir.to_owned(), probe, clock, engine_need, merge_need, refused, state })
    }

    /// Sets the bytes that the engine may write without admission: unflushed memtables, and the output of a compaction.
    pub fn set_engine_need(&self, bytes: u64) {
        self.engine_need.store(bytes, Ordering::Relaxed);
    }

    /// Sets the bytes above the floor of data that merges need which give space back.
    pub(crate) fn set_merge_need(&self, bytes: u64) {
        self.merge_need.store(bytes, Ordering::Relaxed);
    }

    /// Reserves bytes for a write; 0 bytes always fit.
    ///
    /// # Errors
    /// `Full`: the floor of the purpose would not be free after the write.
    pub fn admit(self: &Arc<Self>, purpose: Purpose, bytes: u64) -> Result<SpaceReservation> {
        self.hold(purpose, bytes)?;
        Ok(SpaceReservation { space: self.clone(), purpose, held: bytes, writing: 0 })
    }

    /// Reserves the cost of a batch of rows of these bytes: its place in the journal and in a table, with their overhead.
    ///
    /// # Errors
    /// As [`Self::admit`].
    pub fn admit_rows(self: &Arc<Self>, purpose: Purpose, bytes: usize) -> Result<SpaceReservation> {
        self.admit(purpose, rows_cost(bytes as u64))
    }

    /// Whether a batch of rows of these bytes should wait before its admission: a removal without room, or a put that would take
    /// the room of merges that give space back. The engine gives space back at once. A put without any room does not wait: it is
    /// refused.
    #[must_use]
    pub(crate) fn must_wait(&self, purpose: Purpose, bytes: usize) -> bool {
        let merge_need = self.merge_need.load(Ordering::Relaxed);
        // A sync barrier writes nothing. Nor does a put wait where no merge needs room.
        if bytes == 0 || purpose == Purpose::Data && merge_need == 0 {
            return false;
        }
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        self.refresh_if_old(&mut state, now);
        let (free, cost) = (state.ledger.free_for(purpose), rows_cost(bytes as u64));
        let floor = self.floor(purpose, state.ledger.total);
        let must_wait = match purpose {
            Purpose::Reclaim => !fits(free, cost, floor),
            Purpose::Data => fits(free, cost, floor) && !fits(free, cost, floor.saturating_add(merge_need)),
        };
        state.short |= must_wait;
        must_wait
    }

    /// Whether a write was refused or waits, and there is little room since, so that the engine should give space back at once.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.state.lock().short
    }

    /// Free bytes of the disk.
    #[must_use]
    pub(crate) fn free(&self) -> u64 {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        self.refresh_if_old(&mut state, now);
        state.ledger.free_after_spent()
    }

    /// The disk, the floors and the refusals now, for metrics.
    #[must_use]
    pub fn stats(&self) -> SpaceStats {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        self.refresh_if_old(&mut state, now);
        let SpaceLedger { free, total, held, .. } = state.ledger;
        SpaceStats {
            capacity: DiskCapacity { free, total },
            held: held.iter().sum(),
            floors: Purpose::ALL.map(|purpose| self.floor(purpose, total)),
            refused: Purpose::ALL.map(|purpose| self.refused[purpose as usize].load(Ordering::Relaxed)),
        }
    }

    fn hold(&self, purpose: Purpose, bytes: u64) -> Result<()> {
        let mut state = self.lock_if_fits(purpose, bytes, |ledger| ledger.free_for(purpose))?;
        let held = &mut state.ledger.held[purpose as usize];
        *held = held.saturating_add(bytes);
        Ok(())
    }

    /// Authorizes the write of reserved bytes, in place of the `before` bytes that were authorized last. Other programs may
    /// have filled the disk since the reservation.
    fn authorize_held(&self, purpose: Purpose, before: u64, bytes: u64) -> Result<()> {
        // The caller's own last run is replaced, so only the runs of other bodies count as in flight.
        let free =
            |ledger: &SpaceLedger| ledger.free_after_spent().saturating_sub(ledger.writing.saturating_sub(before));
        let mut state = self.lock_if_fits(purpose, bytes, free)?;
        let writing = &mut state.ledger.writing;
        *writing = writing.saturating_sub(before).saturating_add(bytes);
        Ok(())
    }

    /// Locks the state if so many bytes fit above the floor; a refusal rests on a new reading.
    fn lock_if_fits(
        &self,
        purpose: Purpose,
        bytes: u64,
        free: impl Fn(&SpaceLedger) -> u64,
    ) -> Result<MutexGuard<'_, SpaceState>> {
        let now = self.clock.monotonic();
        let mut guard = self.state.lock();
        // A sync barrier writes nothing and passes on a full disk.
        if bytes == 0 {
            return Ok(guard);
        }
        let state = &mut *guard;
        let refreshed = self.refresh_if_old(state, now);
        let fits = |ledger: &SpaceLedger| fits(free(ledger), bytes, self.floor(purpose, ledger.total));
        if !fits(&state.ledger) {
            // An old reading may miss space that a compaction freed.
            if !refreshed {
                self.refresh(state, now);
            }
            if refreshed || !fits(&state.ledger) {
                return Err(self.refuse(state, purpose, bytes, now));
            }
        }
        if purpose == Purpose::Data {
            let room = self.floor(purpose, state.ledger.total) + state.ledger.total / SHORT_PART;
            state.short &= state.ledger.free_after_spent() < room;
            if state.log.note_admitted() {
                let (dir, free) = (self.dir.display(), state.ledger.free);
                tracing::info!(%dir, free, "the disk has space again; writes of data go on");
            }
        }
        Ok(guard)
    }

    /// Whether so many bytes fit by the last reading. A caller must not refuse a write for it.
    fn has_room(&self, purpose: Purpose, bytes: u64) -> bool {
        let ledger = self.state.lock().ledger;
        fits(ledger.free_for(purpose), bytes, self.floor(purpose, ledger.total))
    }

    fn refuse(&self, state: &mut SpaceState, purpose: Purpose, bytes: u64, now: Duration) -> Error {
        self.refused[purpose as usize].fetch_add(1, Ordering::Relaxed);
        state.short = true;
        let (free, floor) = (state.ledger.free, self.floor(purpose, state.ledger.total));
        let (dir, kept_for) = (self.dir.display(), PURPOSE_TIERS[purpose as usize].kept_for);
        let text = format!(
            "the disk of {dir} is full: {bytes} bytes do not fit, {free} are free, of which {floor} are kept for {kept_for}"
        );
        if let Some(count) = state.log.note_refused(now) {
            tracing::warn!(refused = count, purpose = purpose.name(), "{text}");
        }
        Error::new(Kind::Full, text)
    }

    /// Reads the capacity anew if the last reading is old; returns whether it did.
    fn refresh_if_old(&self, state: &mut SpaceState, now: Duration) -> bool {
        let is_old = state.read_at.is_none_or(|read_at| now.saturating_sub(read_at) >= READING_VALID);
        if is_old {
            self.refresh(state, now);
        }
        is_old
    }

    fn refresh(&self, state: &mut SpaceState, now: Duration) {
        let capacity = self.probe.read().unwrap_or_else(|error| {
            // Without a number admission refuses nothing: a full disk refuses the write itself.
            tracing::debug!(dir = %self.dir.display(), %error, "reading the free disk space failed; all writes are admitted");
            DiskCapacity { free: u64::MAX, total: 0 }
        });
        state.read_at = Some(now);
        state.ledger.refresh(capacity);
    }

    fn floor(&self, purpose: Purpose, total: u64) -> u64 {
        floor(purpose, self.engine_need.load(Ordering::Relaxed), total)
    }
}

impl SpaceReservation {
    /// Authorizes the next write of a body: reserves `bytes`, which include those in flight, and checks once more that they
    /// fit.
    ///
    /// # Errors
    /// `Full`; the reservation stays as it was.
    pub fn authorize(&mut self, bytes: u64) -> Result<()> {
        self.reserve(bytes)?;
        self.space.authorize_held(self.purpose, self.writing, bytes)?;
        self.writing = bytes;
        Ok(())
    }

    /// Reserves at least these bytes. It grows by whole chunks while there is room for them.
    ///
    /// # Errors
    /// `Full`; the reservation stays as it was.
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        let Some(more) = bytes.checked_sub(self.held).filter(|more| *more > 0) else { return Ok(()) };
        // Chunks save an admission per run of blocks; near the floor a body takes only the bytes that it needs.
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
        // The disk may show these bytes late, so they count as used until the next reading.
        state.ledger.spent = state.ledger.spent.saturating_add(bytes);
    }

    /// Notes that all reserved bytes were written.
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

impl SpaceLedger {
    fn refresh(&mut self, capacity: DiskCapacity) {
        // Reservations outlive a reading: their bytes are not written yet.
        *self = Self { free: capacity.free, total: capacity.total, spent: 0, ..*self };
    }

    /// Free bytes at the reading, less those written since.
    fn free_after_spent(&self) -> u64 {
        self.free.saturating_sub(self.spent)
    }

    /// Free bytes, less those reserved by others. Bodies take the disk down to the floor of data at most, so their reservations
    /// do not count against purposes with a lower floor.
    fn free_for(&self, purpose: Purpose) -> u64 {
        let held = &self.held[purpose as usize..];
        held.iter().fold(self.free_after_spent(), |free, held| free.saturating_sub(*held))
    }

    /// Releases `bytes` of a reservation, of which `writing` were being written.
    fn release(&mut self, purpose: Purpose, bytes: u64, writing: u64) {
        let held = &mut self.held[purpose as usize];
        *held = held.saturating_sub(bytes);
        self.writing = self.writing.saturating_sub(writing);
    }
}

impl RefusalLog {
    /// Notes a refusal; returns the number to log, if a line is due.
    fn note_refused(&mut self, now: Duration) -> Option<u64> {
        self.unlogged += 1;
        if self.warned_at.is_some_and(|warned_at| now.saturating_sub(warned_at) < WARNING_EVERY) {
            return None;
        }
        self.warned_at = Some(now);
        self.is_open = true;
        Some(std::mem::take(&mut self.unlogged))
    }

    /// Notes an admitted write; returns whether to log it.
    fn note_admitted(&mut self) -> bool {
        std::mem::take(&mut self.is_open)
    }
}

/// Whether the floor is still free after a write of so many bytes.
fn fits(free: u64, bytes: u64, floor: u64) -> bool {
    free.checked_sub(bytes).is_some_and(|left| left >= floor)
}

/// Bytes that must be free after a write for this purpose, on a disk of `total` bytes whose engine may write `need` bytes.
fn floor(purpose: Purpose, need: u64, total: u64) -> u64 {
    let margin = (total / MARGIN_DIVISOR).clamp(MARGIN_MIN, MARGIN_MAX).min(total / 4);
    need.saturating_add(margin) / PURPOSE_TIERS[purpose as usize].divisor
}

/// Bytes on disk of a batch of rows: once in the journal, once in a table, and a tenth each for checksums, stamps and indexes.
fn rows_cost(bytes: u64) -> u64 {
    bytes.saturating_add(bytes.saturating_mul(6).div_ceil(5))
}

#[cfg(test)]
pub(crate) mod testing {
    //! A disk whose free bytes the test sets.

    use super::*;

    /// A disk with settable free bytes.
    pub(crate) struct FakeDisk {
        free: AtomicU64,
        total: u64,
        /// A folder whose files use the disk's space.
        pub(crate) blobs: Mutex<Option<PathBuf>>,
    }

    impl FakeDisk {
        /// A disk of `total` bytes, all of them free.
        pub(crate) fn with_bytes(total: u64) -> Arc<Self> {
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

    impl CapacityProbe for Arc<FakeDisk> {
        fn read(&self) -> io::Result<DiskCapacity> {
            let free = self.free.load(Ordering::SeqCst).saturating_sub(self.taken()?);
            Ok(DiskCapacity { free, total: self.total })
        }
    }

    /// The admission to such a disk.
    pub(crate) fn space_on(disk: &Arc<FakeDisk>, clock: Arc<dyn Clock>) -> Arc<DiskSpace> {
        DiskSpace::with_probe(Path::new("/data"), clock, Box::new(disk.clone()))
    }
}

#[cfg(test)]
mod tests;
