//! The bound of the outbox: places and bytes that buckets and hosts share.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use larder_admission::{FairBudget, HeldUnits, ShareSource};
use larder_rows::address::BucketAddress;
use larder_rows::{NoticeRow, Timestamp};

use super::addressed_notice::AddressedNotice;
use crate::rules::props::WebhookHost;

/// Most notices of a gateway that are not delivered.
pub(super) const PLACES_MAX: usize = 10_000;
/// Most bytes of their names, addresses and content types.
pub(super) const NOTICES_BYTES_MAX: usize = 16 << 20;

/// Free and taken places. The least free number is taken first, so few numbers are ever used.
#[derive(Debug, Default)]
pub(super) struct OutboxPlaces {
    freed: BinaryHeap<Reverse<u32>>,
    /// The least number that was never taken.
    next: u32,
    taken: HashMap<u32, TakenPlace>,
    buckets: NoticeBudgets<BucketAddress>,
    hosts: NoticeBudgets<Option<WebhookHost>>,
}

/// A place and the notice there.
#[derive(Debug)]
pub(super) struct TakenPlace {
    pub(super) bucket: BucketAddress,
    pub(super) receiver: String,
    /// When it was taken.
    pub(super) since: Timestamp,
    /// Whether an operator dropped the notice.
    pub(super) is_dropped: bool,
    _room: NoticeRoom,
}

/// The room of a notice, of its bucket and its host: places and bytes.
type NoticeRoom = ([HeldUnits<BucketAddress>; 2], [HeldUnits<Option<WebhookHost>>; 2]);

/// Places and bytes that buckets, or hosts, share: one that is not answered leaves half of them to the others.
#[derive(Debug)]
struct NoticeBudgets<S: ShareSource> {
    places: FairBudget<S>,
    bytes: FairBudget<S>,
}

impl OutboxPlaces {
    /// Places that are taken.
    pub(super) fn taken(&self) -> usize {
        self.taken.len()
    }

    /// The notices of taken places.
    pub(super) fn notices(&mut self) -> impl Iterator<Item = &mut TakenPlace> {
        self.taken.values_mut()
    }

    /// Whether an operator dropped the notice of this place.
    pub(super) fn is_dropped(&self, place: u32) -> bool {
        self.taken.get(&place).is_some_and(|taken| taken.is_dropped)
    }

    /// Takes a place for each notice of one write; `None` where its bucket, or a host, has no room for all of them.
    pub(super) fn take(&mut self, notices: &[AddressedNotice], now: Timestamp) -> Option<Vec<u32>> {
        self.take_all(notices, now, true)
    }

    /// The same for notices that are stored already, from any buckets, as far as there are free places.
    pub(super) fn take_free(&mut self, notices: &[AddressedNotice], now: Timestamp) -> Option<Vec<u32>> {
        self.take_all(notices, now, false)
    }

    fn take_all(&mut self, notices: &[AddressedNotice], now: Timestamp, is_shared: bool) -> Option<Vec<u32>> {
        // Bound: beyond it writes are refused, so nothing is dropped [invariant 139].
        let room = |notice: &AddressedNotice| {
            let (bucket, bytes) = (&notice.row.address.bucket, notice.row.bytes());
            Some((self.buckets.take(bucket, bytes, is_shared)?, self.hosts.take(&notice.host(), bytes, is_shared)?))
        };
        let room = notices.iter().map(room).collect::<Option<Vec<_>>>()?;
        Some(notices.iter().zip(room).map(|(notice, room)| self.take_one(&notice.row, room, now)).collect())
    }

    fn take_one(&mut self, notice: &NoticeRow, room: NoticeRoom, now: Timestamp) -> u32 {
        let place = self.freed.pop().map_or(self.next, |Reverse(place)| place);
        self.next = self.next.max(place + 1);
        let (bucket, receiver) = (notice.address.bucket.clone(), notice.receiver.clone());
        self.taken.insert(place, TakenPlace { bucket, receiver, since: now, is_dropped: false, _room: room });
        place
    }

    /// Frees a place.
    pub(super) fn free(&mut self, place: u32) {
        if self.taken.remove(&place).is_some() {
            self.freed.push(Reverse(place));
        }
    }
}

impl<S: ShareSource> NoticeBudgets<S> {
    /// A place and these bytes; without `is_shared`, as far as any are free.
    fn take(&self, source: &S, bytes: usize, is_shared: bool) -> Option<[HeldUnits<S>; 2]> {
        let take = |budget: &FairBudget<S>, units| match is_shared {
            true => budget.try_take(source, units),
            false => budget.try_take_any(source, units),
        };
        Some([take(&self.places, 1)?, take(&self.bytes, bytes)?])
    }
}

impl<S: ShareSource> Default for NoticeBudgets<S> {
    fn default() -> Self {
        Self { places: FairBudget::new(PLACES_MAX), bytes: FairBudget::new(NOTICES_BYTES_MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::testing::{addressed, notice_at};

    fn notice(bucket: &str, host: &str, key: usize) -> AddressedNotice {
        addressed(notice_at(&format!("http://{host}/"), bucket, &"k".repeat(key), 0))
    }

    fn take(places: &mut OutboxPlaces, bucket: &str, host: &str) -> Option<u32> {
        places.take(&[notice(bucket, host, 0)], Timestamp(1)).map(|taken| taken[0])
    }

    #[test]
    fn the_least_free_place_is_taken_again() {
        let mut places = OutboxPlaces::default();
        let three = [notice("b", "h", 0), notice("b", "h", 0), notice("b", "h", 0)];
        assert_eq!(places.take(&three, Timestamp(1)), Some(vec![0, 1, 2]));
        places.free(2);
        places.free(0);
        assert_eq!((take(&mut places, "b", "h"), places.taken()), (Some(0), 2));
        places.free(0);
        places.free(1);
        let held = [places.buckets.places.held(), places.buckets.bytes.held(), places.hosts.bytes.held()];
        assert_eq!((places.taken(), held), (0, [0; 3]));
    }

    #[test]
    fn one_bucket_with_dead_webhooks_once_took_the_places_of_all() {
        let mut places = OutboxPlaces::default();
        let many = |places: &mut OutboxPlaces, bucket: &str, host: &str| {
            (0..PLACES_MAX).take_while(|_| take(places, bucket, host).is_some()).count()
        };
        assert_eq!(many(&mut places, "a", "dead"), PLACES_MAX / 2);
        assert_eq!(many(&mut places, "b", "dead"), 0, "the host has its share");
        assert_eq!(many(&mut places, "b", "live"), PLACES_MAX / 4);
        assert_eq!(many(&mut places, "c", "third"), PLACES_MAX / 8);
        for place in 0..100 {
            places.free(place);
        }
        assert!(take(&mut places, "c", "third").is_some());
    }

    #[test]
    fn bytes_are_shared_as_well_and_a_write_has_all_its_places_or_none() {
        let mut places = OutboxPlaces::default();
        let large = NOTICES_BYTES_MAX / 2 - 5_000;
        assert!(places.take(&[notice("a", "h", large)], Timestamp(1)).is_some());
        assert!(places.take(&[notice("a", "i", 20_000)], Timestamp(1)).is_none());
        let both = [notice("b", "h", 20_000), notice("b", "i", 1)];
        assert_eq!((places.take(&both, Timestamp(1)), places.taken()), (None, 1));
        assert!(places.take(&[notice("b", "i", 1000)], Timestamp(1)).is_some());
        assert!(places.take_free(&[notice("a", "h", large)], Timestamp(1)).is_some(), "a stored one");
        assert!(places.take_free(&[notice("a", "h", large)], Timestamp(1)).is_none());
    }
}
