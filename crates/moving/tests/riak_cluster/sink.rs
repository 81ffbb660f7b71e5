//! The sink of the stand-in: it fetches elements of another store, and writes them as a peer of the replication does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use larder_kv::Gateway;
use larder_moving::rules::{QueueAnswer, QueueElement, ReplicatedChange, RiakObject};
use larder_rows::content::KvBody;
use tokio::time::{Instant, sleep};

use super::objects::{ClusterObject, ClusterValue};
use super::{Place, RiakCluster};

/// Pause after an empty queue.
const EMPTY_PAUSE: Duration = Duration::from_millis(100);
/// Pause while the sink is away.
const AWAY_PAUSE: Duration = Duration::from_secs(1);

impl RiakCluster {
    /// Fetches from the queue `back` of a gateway, without an end.
    pub(crate) async fn run_sink(self: Arc<Self>, gateway: Arc<Gateway>) {
        loop {
            let (is_away, is_lost) = {
                let mut state = self.state.lock();
                let broken = state.faults.broken;
                (state.up().is_empty() || state.faults.refused > 500, state.random.chance(broken))
            };
            if is_away {
                sleep(AWAY_PAUSE).await;
                continue;
            }
            match fetch(&gateway).await {
                Some(element) if !is_lost => self.take_element(element),
                // Nobody hands it out again.
                Some(_) => {}
                None => sleep(EMPTY_PAUSE).await,
            }
        }
    }

    /// Takes what a queue handed out.
    pub(crate) fn take_element(&self, element: QueueElement) {
        let ReplicatedChange::Object(object) = element.change else { panic!("it is an object") };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let place = (text(&element.key.bucket), text(&element.key.key));
        assert!(element.key.bucket_type.is_empty());
        assert_eq!(element.tombstone.is_some(), object.is_tombstone());
        self.take_in(&place, &object);
    }

    fn take_in(&self, place: &Place, object: &RiakObject) {
        let mut state = self.state.lock();
        state.pass_on();
        let up = state.up();
        let Some(node) = (!up.is_empty()).then(|| *state.random.pick(&up)) else { return };
        // A put asks several replicas for what they have.
        let mut merged = state.read(place, true).unwrap_or_default();
        merged.take_in(pushed(object));
        if !merged.is_live() {
            state.deleted_at.insert(place.clone(), Instant::now());
        }
        state.store(node, place, &merged);
        // What a sink writes goes to other queues, too.
        state.enqueue(node, place, merged);
    }
}

/// Fetches an element from the queue `back` of a gateway.
pub(crate) async fn fetch(gateway: &Gateway) -> Option<QueueElement> {
    let answer = gateway.kv.next_in_queue(b"back").await.ok().flatten()?;
    match QueueAnswer::decode(answer, 1 << 20).unwrap() {
        QueueAnswer::Element(element) => Some(element),
        QueueAnswer::Empty => None,
    }
}

/// The object, with dots by which the replicas of the stand-in merge it.
fn pushed(object: &RiakObject) -> ClusterObject {
    let clock: BTreeMap<Vec<u8>, u64> =
        object.clock.entries().iter().map(|entry| (entry.actor.to_vec(), entry.count)).collect();
    let (actor, count) = clock.iter().max_by_key(|(_, count)| **count).unwrap();
    let dot = (actor.clone(), *count);
    let values = object.siblings.iter().map(|sibling| {
        let KvBody::Inline(body) = &sibling.content.body else { panic!("its bytes are there") };
        ClusterValue {
            text: String::from_utf8(body.to_vec()).unwrap(),
            dot: dot.clone(),
            modified: sibling.modified.0,
            vtag: String::from_utf8(sibling.vtag.to_vec()).unwrap(),
            is_deleted: sibling.deleted,
        }
    });
    ClusterObject { values: values.collect(), clock: clock.clone() }
}
