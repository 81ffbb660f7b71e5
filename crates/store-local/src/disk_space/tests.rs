//! The arithmetic of floors, and admission on a fake disk.

use std::sync::atomic::AtomicU64;

use super::testing::{FakeDisk, space_on};
use super::*;
use crate::tests::FrozenClock;

const GIB: u64 = 1024 * MIB;
const DATA: Purpose = Purpose::Data;
const RECLAIM: Purpose = Purpose::Reclaim;

/// A disk of 1 GiB, whose margin is 2 % of it.
struct SpaceFixture {
    disk: Arc<FakeDisk>,
    clock: Arc<FrozenClock>,
    space: Arc<DiskSpace>,
}

fn fixture() -> SpaceFixture {
    let (disk, clock) = (FakeDisk::with_bytes(GIB), Arc::new(FrozenClock(AtomicU64::new(1))));
    let space = space_on(&disk, clock.clone());
    SpaceFixture { disk, clock, space }
}

impl SpaceFixture {
    fn floor(&self, purpose: Purpose) -> u64 {
        self.space.stats().floors[purpose as usize]
    }

    /// Waits until the reading of the disk is old.
    fn wait(&self) {
        self.clock.0.fetch_add(READING_VALID.as_micros() as u64, Ordering::SeqCst);
    }

    /// Sets the free bytes, and makes the last reading old.
    fn leave(&self, free: u64) {
        self.disk.set(free);
        self.wait();
    }

    fn takes(&self, purpose: Purpose, bytes: u64) -> bool {
        match self.space.admit(purpose, bytes) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind, Kind::Full);
                false
            }
        }
    }
}

#[test]
fn purposes_are_in_the_order_of_the_table() {
    for (index, purpose) in Purpose::ALL.into_iter().enumerate() {
        assert_eq!(purpose as usize, index);
    }
    assert!(PURPOSE_TIERS.is_sorted_by_key(|tier| tier.divisor), "the purpose refused first has the highest floor");
}

#[test]
fn floors_grow_with_the_disk_between_their_bounds_and_with_the_need() {
    let margin = |total| floor(DATA, 0, total);
    assert_eq!(margin(64 * MIB), 8 * MIB);
    assert_eq!(margin(400 * MIB), 8 * MIB);
    assert_eq!(margin(700 * MIB), 14 * MIB);
    assert_eq!(margin(10 * GIB), 10 * GIB / 50);
    assert_eq!(margin(4096 * GIB), 512 * MIB);
    assert_eq!(margin(8 * MIB), 2 * MIB, "a tiny disk is of some use");
    assert_eq!(margin(0), 0);
    assert_eq!(floor(DATA, 30 * MIB, 64 * MIB), 38 * MIB);
    assert_eq!(floor(RECLAIM, 30 * MIB, 64 * MIB), 38 * MIB / 4);
    assert_eq!(floor(DATA, u64::MAX, GIB), u64::MAX);
}

#[test]
fn nothing_fits_on_a_full_disk_for_any_purpose() {
    assert!(!fits(0, 1, 0) && !fits(0, 0, 1) && !fits(5, u64::MAX, 0) && !fits(5, 1, u64::MAX));
    assert!(fits(5, 5, 0) && fits(5, 0, 5) && fits(5, 2, 3) && !fits(5, 2, 4));
    let f = fixture();
    f.disk.set(0);
    for purpose in Purpose::ALL {
        assert!(!f.takes(purpose, 1) && !f.takes(purpose, u64::MAX));
        assert!(f.takes(purpose, 0), "a write of no bytes only waits for earlier writes");
    }
}

#[test]
fn a_ledger_never_goes_below_zero() {
    let mut ledger = SpaceLedger { free: 10, total: 100, spent: 20, held: [30, 40], writing: 50 };
    assert_eq!((ledger.free_after_spent(), ledger.free_for(DATA), ledger.free_for(RECLAIM)), (0, 0, 0));
    ledger.release(DATA, u64::MAX, u64::MAX);
    assert_eq!(ledger.held, [0, 40]);
    ledger.refresh(DiskCapacity { free: 50, total: 100 });
    assert_eq!((ledger.free_after_spent(), ledger.free_for(RECLAIM), ledger.free_for(DATA)), (50, 10, 10));
}

#[test]
fn rows_cost_their_place_in_journal_and_table() {
    assert_eq!((rows_cost(0), rows_cost(1), rows_cost(10), rows_cost(1000)), (0, 3, 22, 2200));
    assert_eq!(rows_cost(u64::MAX), u64::MAX, "no overflow");
}

#[test]
fn deletes_pass_where_puts_do_not_and_the_engine_keeps_the_rest() {
    let f = fixture();
    f.leave(f.floor(DATA) + 100);
    assert!(f.takes(DATA, 100) && !f.takes(DATA, 101) && f.takes(RECLAIM, 101));
    f.leave(f.floor(RECLAIM) + 100);
    assert!(!f.takes(DATA, 1) && f.takes(RECLAIM, 100) && !f.takes(RECLAIM, 101));
    assert_eq!(f.space.stats().refused, [2, 1]);
}

#[test]
fn a_growing_need_of_the_engine_raises_the_floor_of_puts_at_once() {
    let f = fixture();
    let floor = f.floor(DATA);
    f.leave(floor + 100);
    assert!(f.takes(DATA, 100));
    f.space.set_engine_need(1);
    assert!(!f.takes(DATA, 100) && f.takes(DATA, 99));
    assert_eq!(f.floor(DATA), floor + 1);
}

#[test]
fn freed_space_is_used_at_once_and_lost_space_is_noticed_soon() {
    let f = fixture();
    f.disk.set(0);
    assert!(!f.takes(DATA, 1) && f.space.is_short());
    f.disk.set(GIB);
    assert!(f.takes(DATA, 1), "a refusal never rests on an old reading");
    assert!(!f.space.is_short());
    f.disk.set(0);
    f.wait();
    assert!(!f.takes(DATA, 1));
}

#[test]
fn open_reservations_never_exceed_the_free_bytes() {
    let f = fixture();
    f.leave(f.floor(DATA) + 10 * MIB);
    let mut held: Vec<_> = (0..10).map(|_| f.space.admit(DATA, MIB).unwrap()).collect();
    assert!(!f.takes(DATA, 1));
    assert!(f.takes(RECLAIM, 8 * MIB), "reservations of bodies do not stop deletes");
    assert_eq!(f.space.stats().held, 10 * MIB);
    held.pop();
    assert!(f.takes(DATA, MIB) && !f.takes(DATA, MIB + 1), "released bytes are free again");
    drop(held);
    assert!(f.takes(DATA, 10 * MIB));
    assert_eq!(f.space.stats().held, 0);
}

#[test]
fn spent_bytes_count_until_the_disk_shows_them() {
    let f = fixture();
    f.leave(f.floor(DATA) + 10 * MIB);
    f.space.admit(DATA, 4 * MIB).unwrap().spend_all();
    let ledger = f.space.state.lock().ledger;
    assert_eq!((ledger.spent, ledger.held[0]), (4 * MIB, 0));
    assert!(f.takes(DATA, 6 * MIB));
    assert!(!f.space.has_room(DATA, 6 * MIB + 1));
    f.leave(f.floor(DATA) + 6 * MIB);
    assert!(f.takes(DATA, 6 * MIB) && !f.takes(DATA, 6 * MIB + 1), "and not twice");
}

#[test]
fn a_body_of_unknown_length_reserves_chunks_and_at_the_end_single_bytes() {
    let f = fixture();
    f.leave(f.floor(DATA) + 2 * MIB + 10);
    let mut body = f.space.admit(DATA, 0).unwrap();
    body.authorize(10).unwrap();
    assert_eq!(body.held, MIB);
    body.authorize(MIB).unwrap();
    assert_eq!(body.held, MIB);
    body.authorize(MIB + 1).unwrap();
    assert_eq!(body.held, 2 * MIB);
    body.authorize(2 * MIB + 10).unwrap();
    assert_eq!(body.held, 2 * MIB + 10);
    assert_eq!(body.authorize(2 * MIB + 11).unwrap_err().kind, Kind::Full);
    body.spend(MIB);
    assert_eq!((body.held, f.space.stats().held), (MIB + 10, MIB + 10));
}

#[test]
fn a_body_with_a_reservation_stops_when_other_programs_fill_the_disk() {
    let f = fixture();
    let mut body = f.space.admit(DATA, 0).unwrap();
    body.reserve(100 * MIB).unwrap();
    f.leave(f.floor(DATA) + MIB);
    body.authorize(MIB).unwrap();
    f.leave(f.floor(DATA) + MIB - 1);
    assert_eq!(body.authorize(MIB).unwrap_err().kind, Kind::Full);
}

#[test]
fn bodies_that_write_at_once_stay_above_the_floor_together() {
    let f = fixture();
    let mut bodies: Vec<_> = (0..4).map(|_| f.space.admit(DATA, 100 * MIB).unwrap()).collect();
    f.leave(f.floor(DATA) + 2 * MIB);
    let passed: Vec<_> = bodies.iter_mut().map(|body| body.authorize(MIB).is_ok()).collect();
    assert_eq!(passed, [true, true, false, false]);
    bodies[0].authorize(MIB).expect("bytes in flight count once");
    drop(bodies.remove(1));
    assert!(bodies[1].authorize(MIB).is_ok() && bodies[2].authorize(MIB).is_err());
    drop(bodies);
    assert_eq!(f.space.state.lock().ledger.writing, 0);
}

#[test]
fn threads_that_reserve_at_once_get_no_more_than_the_free_bytes() {
    let f = fixture();
    f.leave(f.floor(DATA) + 100);
    let granted: Vec<_> = std::thread::scope(|scope| {
        let ask = || (0..50).filter_map(|_| f.space.admit(DATA, 1).ok()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(granted.len(), 100);
}

#[test]
fn a_refusal_names_the_disk_its_free_bytes_and_the_floor() {
    let f = fixture();
    f.disk.set(5);
    let text = f.space.admit(DATA, 7).err().unwrap().context;
    assert_eq!(
        text,
        format!(
            "the disk of /data is full: 7 bytes do not fit, 5 are free, of which {} are kept for deletes, housekeeping and \
             the engine",
            f.floor(DATA)
        )
    );
}

#[test]
fn refusals_are_logged_once_a_minute_with_their_count() {
    let mut log = RefusalLog::default();
    let at = Duration::from_secs;
    assert_eq!([log.note_refused(at(5)), log.note_refused(at(6)), log.note_refused(at(64))], [Some(1), None, None]);
    assert!(log.note_admitted() && !log.note_admitted());
    assert_eq!(log.note_refused(at(65)), Some(3));
    assert!(log.note_admitted());
}

#[test]
fn the_capacity_of_a_real_directory_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let capacity = StatvfsProbe(dir.path().to_owned()).read().unwrap();
    assert!(capacity.total > 0 && capacity.free <= capacity.total, "{capacity:?}");
}

#[test]
fn a_disk_whose_capacity_cannot_be_read_refuses_nothing() {
    let clock = Arc::new(FrozenClock(AtomicU64::new(1)));
    let space = DiskSpace::new(Path::new("/nowhere/at/all"), clock);
    assert!(space.admit(DATA, GIB).is_ok());
}

#[test]
fn puts_once_took_the_room_of_the_merges_that_give_space_back() {
    let f = fixture();
    let waits = |purpose| f.space.must_wait(purpose, MIB as usize);
    let cost = rows_cost(MIB);
    f.leave(f.floor(DATA) + cost);
    assert!(!waits(DATA), "no merge needs room");
    f.space.set_merge_need(10 * MIB);
    assert!(waits(DATA) && f.space.is_short(), "the engine gives space back at once");
    assert!(!waits(RECLAIM) && !f.space.must_wait(DATA, 0));
    f.leave(f.floor(DATA) + cost + 10 * MIB - 1);
    assert!(waits(DATA));
    f.leave(f.floor(DATA) + cost + 10 * MIB);
    assert!(!waits(DATA));
    f.leave(f.floor(DATA) + cost - 1);
    assert!(!waits(DATA), "a put without any room is refused at once");
    f.leave(f.floor(RECLAIM) + cost - 1);
    assert!(waits(RECLAIM));
}
