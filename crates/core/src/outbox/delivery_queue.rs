//! The order of deliveries: a lane for each host, so that a host that does not answer holds up no other, and the notices whose
//! next try is later.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use larder_admission::{FairBudget, HeldUnits, ShareSource};
use larder_rows::address::BucketAddress;
use larder_rows::{NoticeRow, Timestamp};
use tokio::time::Instant;

use super::{DeliveryStep, Outbox, WaitingNotice, notice_bytes};
use crate::rules::props::{WebhookHost, WebhookUrl};

/// Most deliveries to one host at a time.
pub const HOST_DELIVERIES_MAX: usize = 8;

/// Waiting notices that are not under way.
#[derive(Debug, Default)]
pub(super) struct DeliveryQueue {
    lanes: HashMap<Option<WebhookHost>, HostLane>,
    later: BTreeMap<(Instant, u64), WaitingNotice>,
    /// Distinguishes notices of one moment.
    sequence: u64,
}

#[derive(Debug, Default)]
struct HostLane {
    ready: VecDeque<WaitingNotice>,
    under_way: usize,
}

impl DeliveryQueue {
    /// Adds a notice that is due now.
    pub(super) fn add(&mut self, waiting: WaitingNotice) {
        self.lanes.entry(host_lane(&waiting)).or_default().ready.push_back(waiting);
    }

    /// Adds a notice for a later moment.
    pub(super) fn add_later(&mut self, waiting: WaitingNotice, due: Instant) {
        self.sequence += 1;
        self.later.insert((due, self.sequence), waiting);
    }

    /// The notices to deliver now, as far as their hosts have room for more, and when the next one is due. Each one ends with
    /// [`Self::end`].
    pub(super) fn begin_due(&mut self, now: Instant) -> (Vec<WaitingNotice>, Option<Instant>) {
        while let Some(first) = self.later.first_entry().filter(|first| first.key().0 <= now) {
            let waiting = first.remove();
            self.add(waiting);
        }
        let mut due = Vec::new();
        for lane in self.lanes.values_mut() {
            let room = HOST_DELIVERIES_MAX - lane.under_way;
            let begun = lane.ready.drain(..room.min(lane.ready.len()));
            lane.under_way += begun.len();
            due.extend(begun);
        }
        (due, self.later.first_key_value().map(|((at, _), _)| *at))
    }

    /// Lets the rows of these notices be removed next.
    pub(super) fn remove(&mut self, is_dropped: impl Fn(&WaitingNotice) -> bool) {
        for lane in self.lanes.values_mut() {
            for waiting in lane.ready.iter_mut().filter(|waiting| is_dropped(waiting)) {
                waiting.step = DeliveryStep::Remove;
            }
        }
        let later = std::mem::take(&mut self.later);
        let (dropped, kept): (Vec<_>, Vec<_>) = later.into_iter().partition(|(_, waiting)| is_dropped(waiting));
        self.later = kept.into_iter().collect();
        dropped.into_iter().for_each(|(_, waiting)| self.add(waiting.into_removal()));
    }

    /// Notes that a delivery is not under way any more.
    pub(super) fn end(&mut self, waiting: &WaitingNotice) {
        let lane = host_lane(waiting);
        if let Some(deliveries) = self.lanes.get_mut(&lane) {
            deliveries.under_way -= 1;
            if deliveries.under_way == 0 && deliveries.ready.is_empty() {
                self.lanes.remove(&lane);
            }
        }
    }
}

fn host_lane(waiting: &WaitingNotice) -> Option<WebhookHost> {
    waiting.url.as_ref().map(|url| url.host().clone())
}

/// The notices of a bucket for one webhook that wait on this gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookBacklog {
    /// The bucket.
    pub bucket: BucketAddress,
    /// The address of the webhook.
    pub url: String,
    /// Notices that wait or are under way.
    pub waiting: usize,
    /// When the oldest of them was written.
    pub oldest: Timestamp,
}

/// Which notices to drop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebhookChoice {
    /// Those of this bucket; `None`: of any.
    pub bucket: Option<BucketAddress>,
    /// Those for this webhook; `None`: for any.
    pub url: Option<String>,
}

impl WebhookChoice {
    fn includes(&self, taken: &TakenPlace) -> bool {
        self.bucket.as_ref().is_none_or(|bucket| *bucket == taken.bucket)
            && self.url.as_ref().is_none_or(|url| *url == taken.url)
    }
}

impl Outbox {
    /// The notices that wait, by bucket and webhook.
    #[must_use]
    pub fn backlogs(&self) -> Vec<WebhookBacklog> {
        let mut sums: BTreeMap<(BucketAddress, String), (usize, Timestamp)> = BTreeMap::new();
        for taken in self.state.lock().places.notices() {
            let sum = sums.entry((taken.bucket.clone(), taken.url.clone())).or_insert((0, taken.since));
            *sum = (sum.0 + 1, sum.1.min(taken.since));
        }
        let backlog = |((bucket, url), (waiting, oldest))| WebhookBacklog { bucket, url, waiting, oldest };
        sums.into_iter().map(backlog).collect()
    }

    /// Drops notices; returns their number. One that is under way is sent once more at most.
    pub fn drop_notices(&self, choice: &WebhookChoice) -> usize {
        let mut dropped = 0;
        {
            let state = &mut *self.state.lock();
            for taken in state.places.notices().filter(|taken| choice.includes(taken)) {
                taken.is_dropped = true;
                dropped += 1;
            }
            state.queue.remove(|waiting| state.places.is_dropped(waiting.place));
        }
        self.wake.notify_one();
        dropped
    }
}

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
    pub(super) url: String,
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
    pub(super) fn take(&mut self, notices: &[NoticeRow], now: Timestamp) -> Option<Vec<u32>> {
        self.take_all(notices, now, true)
    }

    /// The same for notices that are stored already, from any buckets, as far as there are free places.
    pub(super) fn take_free(&mut self, notices: &[NoticeRow], now: Timestamp) -> Option<Vec<u32>> {
        self.take_all(notices, now, false)
    }

    fn take_all(&mut self, notices: &[NoticeRow], now: Timestamp, is_shared: bool) -> Option<Vec<u32>> {
        // Bound: beyond it writes are refused, so nothing is dropped [invariant 139].
        let room = |notice: &NoticeRow| {
            let (bucket, host) = (&notice.address.bucket, webhook_host(notice));
            let bytes = notice_bytes(notice);
            Some((self.buckets.take(bucket, bytes, is_shared)?, self.hosts.take(&host, bytes, is_shared)?))
        };
        let room = notices.iter().map(room).collect::<Option<Vec<_>>>()?;
        Some(notices.iter().zip(room).map(|(notice, room)| self.take_one(notice, room, now)).collect())
    }

    fn take_one(&mut self, notice: &NoticeRow, room: NoticeRoom, now: Timestamp) -> u32 {
        let place = self.freed.pop().map_or(self.next, |Reverse(place)| place);
        self.next = self.next.max(place + 1);
        let (bucket, url) = (notice.address.bucket.clone(), notice.url.clone());
        self.taken.insert(place, TakenPlace { bucket, url, since: now, is_dropped: false, _room: room });
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

fn webhook_host(notice: &NoticeRow) -> Option<WebhookHost> {
    WebhookUrl::parse(&notice.url).ok().map(|url| url.host().clone())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use larder_rows::Timestamp;
    use larder_rows::address::{Address, BucketAddress};
    use larder_rows::{NoticeEvent, NoticeRow};

    use super::*;

    fn waiting(host: &str) -> WaitingNotice {
        let bucket = BucketAddress { bucket_type: Bytes::new(), bucket: Bytes::new() };
        let notice = NoticeRow {
            id: String::new(),
            url: format!("http://{host}/"),
            event: NoticeEvent::Put,
            address: Address { bucket, key: Bytes::new() },
            time: Timestamp::ZERO,
            content_type: None,
            bytes: 0,
        };
        WaitingNotice::new(0, Timestamp(1), notice)
    }

    #[test]
    fn a_host_that_does_not_answer_holds_up_no_other() {
        let (mut queue, now) = (DeliveryQueue::default(), Instant::now());
        (0..20).for_each(|_| queue.add(waiting("dead")));
        let (dead, _) = queue.begin_due(now);
        assert_eq!(dead.len(), HOST_DELIVERIES_MAX);
        queue.add(waiting("live"));
        queue.add_later(waiting("live"), now + Duration::from_secs(1));
        let (due, next) = queue.begin_due(now);
        assert_eq!((due.len(), next), (1, Some(now + Duration::from_secs(1))));
        assert_eq!(due[0].notice.url, "http://live/");
        assert_eq!(queue.begin_due(now + Duration::from_secs(1)).0.len(), 1);
        queue.end(&dead[0]);
        assert_eq!(queue.begin_due(now).0.len(), 1, "one more to the dead host");
    }
}

#[cfg(test)]
mod places_tests {
    use bytes::Bytes;
    use larder_rows::NoticeEvent;
    use larder_rows::address::Address;

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
