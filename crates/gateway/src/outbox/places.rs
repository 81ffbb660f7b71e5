//! The places of an outbox: how many notices it holds, in how many bytes, and of which buckets and hosts.
//!
//! A bucket, and a host, takes no more places than are free: one that is not answered leaves half of them to the others, two leave a
//! third, and so on.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use larder_model::Timestamp;
use larder_model::address::BucketAddress;
use larder_model::props::{WebhookHost, WebhookUrl};
use larder_model::rows::NoticeRow;

use super::size_of;

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
    all: PlaceShare,
    buckets: HashMap<BucketAddress, PlaceShare>,
    hosts: HashMap<Option<WebhookHost>, PlaceShare>,
}

/// A place and the notice there.
#[derive(Debug)]
pub(super) struct TakenPlace {
    pub(super) bucket: BucketAddress,
    pub(super) url: String,
    /// When it was taken.
    pub(super) since: Timestamp,
    /// Whether an operator dropped the notice.
    pub(super) is_dropped: bool,
    host: Option<WebhookHost>,
    bytes: usize,
}

/// Places of a bucket, a host, or all.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct PlaceShare {
    places: usize,
    bytes: usize,
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
    pub(super) fn take(&mut self, notices: &[NoticeRow], now: Timestamp) -> Option<Vec<u32>> {
        let wanted = share_of(notices.iter());
        let of_bucket = notices.first().and_then(|notice| self.buckets.get(&notice.address.bucket));
        let has_share = |taken: Option<&PlaceShare>, more: PlaceShare| {
            let (all, taken) = (self.all.with(more), taken.copied().unwrap_or_default().with(more));
            taken.places + all.places <= PLACES_MAX && taken.bytes + all.bytes <= NOTICES_BYTES_MAX
        };
        let is_there_room = notices.iter().all(|notice| {
            let host = host_of(notice);
            let to_host = share_of(notices.iter().filter(|other| host_of(other) == host));
            has_share(self.hosts.get(&host), to_host)
        });
        if !has_share(of_bucket, wanted) || !is_there_room {
            return None;
        }
        self.take_free(notices, now)
    }

    /// The same for notices that are stored already, from any buckets, as far as there are free places.
    pub(super) fn take_free(&mut self, notices: &[NoticeRow], now: Timestamp) -> Option<Vec<u32>> {
        let all = self.all.with(share_of(notices.iter()));
        // Bound: beyond it writes are refused, so nothing is dropped [invariant 139].
        if all.places > PLACES_MAX || all.bytes > NOTICES_BYTES_MAX {
            return None;
        }
        Some(notices.iter().map(|notice| self.take_one(notice, now)).collect())
    }

    fn take_one(&mut self, notice: &NoticeRow, now: Timestamp) -> u32 {
        let place = self.freed.pop().map_or(self.next, |Reverse(place)| place);
        self.next = self.next.max(place + 1);
        let taken = TakenPlace {
            bucket: notice.address.bucket.clone(),
            url: notice.url.clone(),
            since: now,
            is_dropped: false,
            host: host_of(notice),
            bytes: size_of(notice),
        };
        let share = PlaceShare { places: 1, bytes: taken.bytes };
        self.all = self.all.with(share);
        for sum in
            [self.buckets.entry(taken.bucket.clone()).or_default(), self.hosts.entry(taken.host.clone()).or_default()]
        {
            *sum = sum.with(share);
        }
        self.taken.insert(place, taken);
        place
    }

    /// Frees a place.
    pub(super) fn free(&mut self, place: u32) {
        let Some(taken) = self.taken.remove(&place) else { return };
        self.freed.push(Reverse(place));
        let share = PlaceShare { places: 1, bytes: taken.bytes };
        self.all = self.all.without(share);
        give_back(&mut self.buckets, &taken.bucket, share);
        give_back(&mut self.hosts, &taken.host, share);
    }
}

impl PlaceShare {
    fn with(self, more: Self) -> Self {
        Self { places: self.places + more.places, bytes: self.bytes + more.bytes }
    }

    fn without(self, less: Self) -> Self {
        Self { places: self.places - less.places, bytes: self.bytes - less.bytes }
    }
}

fn give_back<K: Eq + std::hash::Hash>(shares: &mut HashMap<K, PlaceShare>, of: &K, share: PlaceShare) {
    if let Some(sum) = shares.get_mut(of) {
        *sum = sum.without(share);
        if *sum == PlaceShare::default() {
            shares.remove(of);
        }
    }
}

fn share_of<'a>(notices: impl Iterator<Item = &'a NoticeRow>) -> PlaceShare {
    notices.fold(PlaceShare::default(), |sum, notice| sum.with(PlaceShare { places: 1, bytes: size_of(notice) }))
}

fn host_of(notice: &NoticeRow) -> Option<WebhookHost> {
    WebhookUrl::parse(&notice.url).ok().map(|url| url.host().clone())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use larder_model::address::Address;
    use larder_model::rows::NoticeEvent;

    use super::*;

    fn notice(bucket: &str, host: &str, key: usize) -> NoticeRow {
        let bucket = BucketAddress { bucket_type: Bytes::new(), bucket: bucket.to_owned().into() };
        NoticeRow {
            id: String::new(),
            url: format!("http://{host}/"),
            event: NoticeEvent::Put,
            address: Address { bucket, key: vec![b'k'; key].into() },
            time: Timestamp::ZERO,
            content_type: None,
            bytes: 0,
        }
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
        assert_eq!(
            (places.taken(), places.buckets.len(), places.hosts.len(), places.all),
            (0, 0, 0, PlaceShare::default())
        );
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
