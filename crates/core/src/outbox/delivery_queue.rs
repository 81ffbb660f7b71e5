//! The order of deliveries: the notices of a key for one receiver follow each other, and each host has a lane, so that one that
//! does not answer holds up no other.
//!
//! ```text
//! key and receiver ──> its notices, the oldest first ──> lane of the host: up to 8 under way ──> end ──> the next of the key
//!                                          └── not due yet: later ──┘
//! ```

use std::collections::{BTreeMap, HashMap, VecDeque};

use larder_rows::Timestamp;
use larder_rows::address::Address;
use tokio::time::Instant;

use super::{DeliveryStep, WaitingNotice};
use crate::rules::props::WebhookHost;

/// Most deliveries to one host at a time.
pub const HOST_DELIVERIES_MAX: usize = 8;

/// Notices of one key for one receiver have an order; others have none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct OrderKey {
    receiver: String,
    address: Address,
    /// The place of one that is not sent and waits for no other.
    alone: Option<u32>,
}

/// The host of a receiver; `None` for one that this server does not send to.
type LaneHost = Option<WebhookHost>;

/// Waiting notices that are not under way.
#[derive(Debug, Default)]
pub(super) struct DeliveryQueue {
    keys: HashMap<OrderKey, KeyNotices>,
    lanes: HashMap<LaneHost, HostLane>,
    later: BTreeMap<(Instant, u64), OrderKey>,
    /// Distinguishes keys of one moment.
    sequence: u64,
}

/// The waiting notices of one key, by the clocks of their writes.
#[derive(Debug)]
struct KeyNotices {
    waiting: BTreeMap<(Timestamp, u32), WaitingNotice>,
    state: KeyState,
}

/// Where a key waits. It is in one place at most, so one notice of it is under way at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyState {
    /// In the lane of its host.
    Ready,
    /// One of its notices is under way.
    UnderWay,
    /// Among those whose next try is later.
    Later((Instant, u64)),
}

#[derive(Debug, Default)]
struct HostLane {
    ready: VecDeque<OrderKey>,
    under_way: usize,
}

impl DeliveryQueue {
    /// Adds a notice.
    pub(super) fn add(&mut self, waiting: WaitingNotice, now: Instant) {
        let (key, place) = (order_key(&waiting), (waiting.notice.time, waiting.place));
        if let Some(queue) = self.keys.get_mut(&key) {
            queue.waiting.insert(place, waiting);
            return;
        }
        let queue = KeyNotices { waiting: BTreeMap::from([(place, waiting)]), state: KeyState::UnderWay };
        self.keys.insert(key.clone(), queue);
        self.schedule(key, now);
    }

    /// Puts a key where its oldest notice waits; one without notices is forgotten.
    fn schedule(&mut self, key: OrderKey, now: Instant) {
        let Some(queue) = self.keys.get_mut(&key) else { return };
        let Some(first) = queue.waiting.values().next() else {
            self.keys.remove(&key);
            return;
        };
        // Race: a younger notice of the key waits, too, or its receiver would hear of an older write last [invariant 173].
        match first.due {
            Some(due) if due > now => {
                self.sequence += 1;
                queue.state = KeyState::Later((due, self.sequence));
                self.later.insert((due, self.sequence), key);
            }
            _ => {
                queue.state = KeyState::Ready;
                self.lanes.entry(first.host()).or_default().ready.push_back(key);
            }
        }
    }

    /// The notices to deliver now, as far as their hosts have room for more, and when the next one is due. Each one ends with
    /// [`Self::end`].
    pub(super) fn begin_due(&mut self, now: Instant) -> (Vec<WaitingNotice>, Option<Instant>) {
        while let Some(first) = self.later.first_entry().filter(|first| first.key().0 <= now) {
            let key = first.remove();
            self.schedule(key, now);
        }
        let (mut due, mut early) = (Vec::new(), Vec::new());
        for lane in self.lanes.values_mut() {
            let room = HOST_DELIVERIES_MAX - lane.under_way;
            for key in lane.ready.drain(..room.min(lane.ready.len())) {
                let Some(queue) = self.keys.get_mut(&key) else { continue };
                // An older notice may have come since, which waits for a write of unknown outcome.
                if queue.waiting.values().next().and_then(|first| first.due).is_some_and(|due| due > now) {
                    early.push(key);
                } else if let Some((_, first)) = queue.waiting.pop_first() {
                    queue.state = KeyState::UnderWay;
                    lane.under_way += 1;
                    due.push(first);
                }
            }
        }
        self.lanes.retain(|_, lane| lane.under_way > 0 || !lane.ready.is_empty());
        early.into_iter().for_each(|key| self.schedule(key, now));
        (due, self.later.first_key_value().map(|((at, _), _)| *at))
    }

    /// Lets the rows of these notices be removed next.
    pub(super) fn remove(&mut self, is_dropped: impl Fn(&WaitingNotice) -> bool, now: Instant) {
        let mut hurried = Vec::new();
        for (key, queue) in &mut self.keys {
            let mut dropped = queue.waiting.values_mut().filter(|waiting| is_dropped(waiting)).peekable();
            if dropped.peek().is_some()
                && let KeyState::Later(at) = queue.state
            {
                hurried.push((key.clone(), at));
            }
            for waiting in dropped {
                (waiting.step, waiting.due, waiting.failures) = (DeliveryStep::Remove, None, 0);
            }
        }
        for (key, at) in hurried {
            self.later.remove(&at);
            self.schedule(key, now);
        }
    }

    /// Notes that a delivery is not under way any more; the next notice of its key may be.
    pub(super) fn end(&mut self, ended: &WaitingNotice, now: Instant) {
        self.leave_lane(order_key(ended), &ended.host(), now);
    }

    /// As [`Self::end`], for a notice that is tried again.
    pub(super) fn try_again(&mut self, waiting: WaitingNotice, now: Instant) {
        let (key, host) = (order_key(&waiting), waiting.host());
        if let Some(queue) = self.keys.get_mut(&key) {
            queue.waiting.insert((waiting.notice.time, waiting.place), waiting);
        }
        self.leave_lane(key, &host, now);
    }

    fn leave_lane(&mut self, key: OrderKey, host: &LaneHost, now: Instant) {
        if let Some(lane) = self.lanes.get_mut(host) {
            lane.under_way -= 1;
            if lane.under_way == 0 && lane.ready.is_empty() {
                self.lanes.remove(host);
            }
        }
        self.schedule(key, now);
    }
}

fn order_key(waiting: &WaitingNotice) -> OrderKey {
    let alone = waiting.is_withdrawn.then_some(waiting.place);
    OrderKey { receiver: waiting.notice.receiver.clone(), address: waiting.notice.address.clone(), alone }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outbox::testing::{notice_at, waiting_at};

    fn waiting(host: &str, key: &str, time: u64) -> WaitingNotice {
        waiting_at(notice_at(&format!("http://{host}/"), "b", key, time))
    }

    fn begun(queue: &mut DeliveryQueue, now: Instant) -> Vec<u64> {
        queue.begin_due(now).0.iter().map(|waiting| waiting.notice.time.0).collect()
    }

    #[test]
    fn a_host_that_does_not_answer_holds_up_no_other() {
        let (mut queue, now) = (DeliveryQueue::default(), Instant::now());
        (0..20).for_each(|key: u64| queue.add(waiting("dead", &key.to_string(), 1), now));
        let (dead, _) = queue.begin_due(now);
        assert_eq!(dead.len(), HOST_DELIVERIES_MAX);
        queue.add(waiting("live", "k", 1), now);
        let later = now + Duration::from_secs(1);
        queue.add(WaitingNotice { due: Some(later), ..waiting("live", "l", 1) }, now);
        let (due, next) = queue.begin_due(now);
        assert_eq!((due.len(), next), (1, Some(later)));
        assert_eq!(due[0].notice.receiver, "http://live/");
        assert_eq!(queue.begin_due(later).0.len(), 1);
        queue.end(&dead[0], now);
        assert_eq!(queue.begin_due(now).0.len(), 1, "one more to the dead host");
    }

    #[test]
    fn the_notices_of_a_key_go_one_after_the_other_in_the_order_of_their_writes() {
        let (mut queue, now) = (DeliveryQueue::default(), Instant::now());
        for (key, time) in [("k", 3), ("k", 1), ("other", 9), ("k", 2)] {
            queue.add(waiting("h", key, time), now);
        }
        let (due, _) = queue.begin_due(now);
        assert_eq!(due.iter().map(|one| one.notice.time.0).collect::<Vec<_>>(), [1, 9]);
        assert_eq!(begun(&mut queue, now), [0; 0]);
        let [first, _] = due.try_into().unwrap();
        // It fails: the younger ones wait with it.
        let later = now + Duration::from_secs(5);
        queue.try_again(WaitingNotice { due: Some(later), ..first }, now);
        assert_eq!(begun(&mut queue, now), [0; 0]);
        let (due, _) = queue.begin_due(later);
        assert_eq!(due[0].notice.time.0, 1);
        queue.end(&due[0], later);
        let (due, _) = queue.begin_due(later);
        assert_eq!(due[0].notice.time.0, 2);
        queue.end(&due[0], later);
        assert_eq!(begun(&mut queue, later), [3]);
    }

    #[test]
    fn a_withdrawn_notice_gives_its_place_back_though_older_ones_wait() {
        let (mut queue, now) = (DeliveryQueue::default(), Instant::now());
        queue.add(WaitingNotice { due: Some(now + Duration::from_secs(300)), ..waiting("h", "k", 1) }, now);
        queue.add(WaitingNotice { is_withdrawn: true, ..waiting("h", "k", 2).into_removal() }, now);
        assert_eq!(begun(&mut queue, now), [2]);
    }

    #[test]
    fn an_older_notice_of_unknown_outcome_holds_the_key_and_a_dropped_one_does_not() {
        let (mut queue, now) = (DeliveryQueue::default(), Instant::now());
        let later = now + Duration::from_secs(60);
        queue.add(waiting("h", "k", 2), now);
        queue.add(WaitingNotice { due: Some(later), ..waiting("h", "k", 1) }, now);
        assert_eq!(begun(&mut queue, now), [0; 0]);
        queue.remove(|waiting| waiting.notice.time.0 == 1, now);
        let (due, _) = queue.begin_due(now);
        assert_eq!((due[0].notice.time.0, due[0].step), (1, DeliveryStep::Remove));
        queue.end(&due[0], now);
        let (due, _) = queue.begin_due(now);
        assert_eq!((due[0].notice.time.0, due[0].step), (2, DeliveryStep::Send));
        queue.end(&due[0], now);
        assert!(queue.keys.is_empty() && queue.lanes.is_empty() && queue.later.is_empty(), "{queue:?}");
    }
}
