//! The order of deliveries: a lane for each host, so that a host that does not answer holds up no other, and the notices whose
//! next try is later.

use std::collections::{BTreeMap, HashMap, VecDeque};

use larder_core::rules::props::WebhookHost;
use tokio::time::Instant;

use super::{DeliveryStep, WaitingNotice};

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
        self.lanes.entry(lane_of(&waiting)).or_default().ready.push_back(waiting);
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
        let lane = lane_of(waiting);
        if let Some(found) = self.lanes.get_mut(&lane) {
            found.under_way -= 1;
            if found.under_way == 0 && found.ready.is_empty() {
                self.lanes.remove(&lane);
            }
        }
    }
}

fn lane_of(waiting: &WaitingNotice) -> Option<WebhookHost> {
    waiting.url.as_ref().map(|url| url.host().clone())
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
