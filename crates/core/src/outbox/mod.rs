//! The outbox: notices for webhooks and targets of S3 events, delivered at least once.
//!
//! ```text
//! put, delete ──> place reserved ──> one batch: object, views, notice ──> answer
//!                  (or 503)                                    └──> ready ──> POST ── 2xx ──> row removed, place free
//!                                                                     ↑         └─ else ──> later: 1 s, 2 s, … 5 min
//! gateway gone ──> its rows ──> places of the leader ─────────────────┘              └─ after 24 h: given up, logged;
//!                                                                                        at once if nothing asks for it any more
//! ```
//! A notice is a row in the partition of its gateway's run, written in the batch of its object [invariant 136]. It is removed
//! after its receiver answered [invariant 137], so a crash at any moment delivers it twice rather than never. The leader of the
//! gateways takes over the rows of runs that ended ([`takeover`]), and each gateway does before it serves.
//! The notices of a key for one receiver leave a gateway in the order of their writes [invariant 173].
//!
//! The row is named by its *place*, a number that the next notice uses again: over Cassandra a row that is written anew costs
//! its readers less than a tombstone for each notice. The number of places bounds the outbox. The state of retries is in memory.

mod addressed_notice;
mod backlogs;
mod deliverer;
mod delivery_queue;
mod pending_notices;
mod places;
mod receivers;
mod takeover;
#[cfg(test)]
mod testing;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_rows::{ActorId, Batch, Change, NoticeRow, Row, Timestamp};
use larder_store::Partition;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock_issuer::ClockIssuer;
use crate::metrics::Event;
use crate::node_context::NodeContext;
use crate::rules::props::{WebhookHost, WebhookUrl};
use crate::types::CatalogueCopy;
use crate::{Error, Result};
use addressed_notice::{AddressedNotice, ReceiverEndpoint};
use delivery_queue::DeliveryQueue;
use places::OutboxPlaces;
use receivers::ReceiverFailures;

pub use backlogs::{WebhookBacklog, WebhookChoice};
pub(crate) use deliverer::deliver_notices;
pub use delivery_queue::HOST_DELIVERIES_MAX;
pub use pending_notices::{NoticeSubject, PendingNotices};
pub use receivers::ReceiverFailure;
pub(crate) use takeover::{take_over_once, watch_for_orphans};

/// The notices of one gateway.
pub struct Outbox {
    context: Arc<NodeContext>,
    issuer: Arc<ClockIssuer>,
    catalogue: Arc<CatalogueCopy>,
    state: Mutex<OutboxState>,
    /// Notified when a notice is ready.
    wake: Notify,
}

#[derive(Default)]
struct OutboxState {
    places: OutboxPlaces,
    queue: DeliveryQueue,
    failures: ReceiverFailures,
}

/// A stored notice that is not delivered yet, or whose row is not removed yet.
#[derive(Debug)]
struct WaitingNotice {
    place: u32,
    /// The stamp of its row.
    stamp: Timestamp,
    notice: NoticeRow,
    /// Where it goes; `None` for a receiver that this server does not know.
    endpoint: Option<ReceiverEndpoint>,
    step: DeliveryStep,
    /// Whether its write was refused: it is not sent, and has no order.
    is_withdrawn: bool,
    /// Failed tries of the step.
    failures: u32,
    /// When its next step is due; `None`: at once.
    due: Option<Instant>,
}

/// The next step of a waiting notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeliveryStep {
    /// It is sent.
    Send,
    /// Its row is removed: it was received, given up, or its write was refused.
    Remove,
}

impl Outbox {
    pub(crate) fn new(context: Arc<NodeContext>, issuer: Arc<ClockIssuer>, catalogue: Arc<CatalogueCopy>) -> Arc<Self> {
        Arc::new(Self { context, issuer, catalogue, state: Mutex::default(), wake: Notify::new() })
    }

    /// Notices that wait or are under way.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state.lock().places.taken()
    }

    /// Reserves places for the notices of one write, before it begins.
    ///
    /// # Errors
    /// [`Error::Overloaded`] when the outbox has no room, or the bucket or a host has its share.
    pub fn reserve(self: &Arc<Self>, urls: &[WebhookUrl], subject: &NoticeSubject<'_>) -> Result<PendingNotices> {
        self.reserve_for(urls.iter().map(|url| subject.notice(self.context.new_request_id(), url)).collect())
    }

    /// Reserves places for these notices, before their rows get a clock.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub fn reserve_for(self: &Arc<Self>, notices: Vec<NoticeRow>) -> Result<PendingNotices> {
        let notices = self.addressed(notices);
        let places = self.state.lock().places.take(&notices, self.context.now());
        let Some(places) = places else {
            self.context.metrics.count_event(Event::WebhookRefused);
            return Err(Error::Overloaded { retry_after: 1 });
        };
        Ok(PendingNotices::new(Arc::clone(self), places.into_iter().zip(notices).collect()))
    }

    /// The rows of this gateway.
    fn partition(&self) -> Partition {
        Partition::outbox(self.context.ports.actor)
    }

    /// Hands stored notices to the deliverer.
    fn enqueue(&self, notices: Vec<WaitingNotice>) {
        {
            let (mut state, now) = (self.state.lock(), Instant::now());
            notices.into_iter().for_each(|waiting| state.queue.add(waiting, now));
        }
        self.wake.notify_one();
    }

    /// Frees places of notices that are not stored.
    fn free(&self, notices: &[(u32, AddressedNotice)]) {
        let mut state = self.state.lock();
        for (place, _) in notices {
            state.places.free(*place);
        }
    }

    /// Removes the row of a notice.
    async fn remove_row(&self, waiting: &WaitingNotice) -> Result<()> {
        let gone = Change::Remove { name: name_of_place(waiting.place), stamp: waiting.stamp };
        self.context.apply_at_quorum(Batch::single(self.partition(), vec![gone])).await
    }

    fn is_own(&self, actor: ActorId) -> bool {
        actor == self.context.ports.actor
    }
}

impl WaitingNotice {
    fn new(place: u32, stamp: Timestamp, notice: AddressedNotice) -> Self {
        let AddressedNotice { row, endpoint } = notice;
        Self {
            place,
            stamp,
            notice: row,
            endpoint,
            step: DeliveryStep::Send,
            is_withdrawn: false,
            failures: 0,
            due: None,
        }
    }

    /// Its next step is the removal of its row.
    fn into_removal(self) -> Self {
        Self { step: DeliveryStep::Remove, failures: 0, due: None, ..self }
    }

    /// The same, for a write that may still take effect: its receiver would read the value before it.
    fn after(self, pause: Duration) -> Self {
        Self { due: Some(Instant::now() + pause), ..self }
    }

    /// The host that it goes to.
    fn host(&self) -> Option<WebhookHost> {
        self.endpoint.as_ref().map(|endpoint| endpoint.url.host().clone())
    }
}

/// The row of a notice at a place.
fn notice_row(place: u32, stamp: Timestamp, notice: &NoticeRow) -> Row {
    Row { name: name_of_place(place), value: notice.encode(), stamp, expires: None }
}

fn name_of_place(place: u32) -> Bytes {
    Bytes::copy_from_slice(&place.to_be_bytes())
}
