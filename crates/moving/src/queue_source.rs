//! What is known of the replication queue of each node of a source, and the memory of its elements.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use larder_rows::Timestamp;
use larder_rows::address::BucketAddress;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use crate::rules::{ElementKey, QueueElement, SourceHeaders};
use crate::source_calls::SourceError;

/// Most bytes of an element on the wire, and of what it inflates to.
const ELEMENT_BYTES_MAX: usize = 64 << 20;
/// Most bytes of an element whose answer does not say its length. Riak's answers do.
const UNSIZED_BYTES_MAX: usize = 16 << 20;
/// The unit of the memory of elements.
pub(crate) const MEMORY_UNIT: usize = 16 << 10;
/// Most bytes of elements in memory at a time, in units.
const MEMORY_UNITS: u32 = (ELEMENT_BYTES_MAX / MEMORY_UNIT) as u32;
/// Memory that is reserved for each byte of an element: a compressed object may become larger.
const MEMORY_FACTOR: usize = 4;

/// The queues of a source, and what is known of them.
pub(crate) struct SourceQueue {
    pub(crate) name: String,
    memory: Arc<Semaphore>,
    /// The types that move, once their elements may be imported.
    pub(crate) scope: watch::Sender<Option<Arc<Vec<Bytes>>>>,
    /// Notified when a gap opens, or a node begins or ends to be followed.
    pub(crate) changed: Notify,
    pub(crate) state: Mutex<QueueState>,
    /// Buckets whose properties were moved; `None` before they are read.
    pub(crate) buckets: tokio::sync::Mutex<Option<HashSet<BucketAddress>>>,
}

/// What is known of the nodes.
#[derive(Default)]
pub(crate) struct QueueState {
    nodes: Vec<QueueNode>,
    /// Nodes of the source that its address does not name.
    pub(crate) unnamed: usize,
    /// Gaps of this run.
    gaps: u64,
}

/// What is known of a node.
#[derive(Debug, Clone, Default)]
struct QueueNode {
    standing: QueueStanding,
    /// The time of the last answer without an element, or of the last element.
    until: Timestamp,
    /// The times of elements that are brought to their keys.
    under_way: BTreeMap<u64, Timestamp>,
    number: u64,
    /// The gaps of this run when its queue was empty last: elements of before are gone from it.
    emptied: Option<u64>,
}

/// Whether a queue is drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum QueueStanding {
    /// Nobody asked yet.
    #[default]
    Unknown,
    /// It is.
    Followed,
    /// The node has no such queue.
    Lacking,
    /// The node does not answer.
    Away,
}

/// What a fetch brought.
pub(crate) enum QueueFetch {
    /// The queue was empty.
    Empty,
    /// An element.
    Element(Box<TakenElement>),
    /// An element that has not its form.
    Unreadable(String),
    /// A refusal: the element that it stands for is gone.
    Refused(String),
}

/// An element, with the memory that it takes.
pub(crate) struct TakenElement {
    pub(crate) key: ElementKey,
    /// `None`: its key alone could be read.
    pub(crate) element: Option<QueueElement>,
    pub(crate) memory: OwnedSemaphorePermit,
}

/// Memory for an element that is about to be read.
pub(crate) struct ElementRoom {
    pub(crate) memory: OwnedSemaphorePermit,
    pub(crate) bytes_max: usize,
}

impl SourceQueue {
    pub(crate) fn new(name: String, nodes: usize) -> Self {
        Self {
            name,
            memory: Arc::new(Semaphore::new(MEMORY_UNITS as usize)),
            scope: watch::Sender::default(),
            changed: Notify::new(),
            state: Mutex::new(QueueState { nodes: vec![QueueNode::default(); nodes], ..QueueState::default() }),
            buckets: tokio::sync::Mutex::default(),
        }
    }

    /// Waits until elements may be imported; returns the types that move.
    pub(crate) async fn await_scope(&self) -> Option<Arc<Vec<Bytes>>> {
        let mut scope = self.scope.subscribe();
        let found = scope.wait_for(Option::is_some).await.ok()?;
        found.clone()
    }

    /// Reserves memory for an element before it is read; returns it with the most bytes of the element.
    ///
    /// # Errors
    /// [`SourceError::TooLarge`].
    pub(crate) async fn reserve(&self, headers: &SourceHeaders) -> Result<ElementRoom, SourceError> {
        let length = headers.length().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        let bytes_max = length.unwrap_or(UNSIZED_BYTES_MAX);
        if bytes_max > ELEMENT_BYTES_MAX {
            return Err(SourceError::TooLarge);
        }
        let units =
            u32::try_from(bytes_max * MEMORY_FACTOR / MEMORY_UNIT + 1).unwrap_or(MEMORY_UNITS).min(MEMORY_UNITS);
        let memory = Arc::clone(&self.memory).acquire_many_owned(units).await.map_err(|_| SourceError::TooLarge)?;
        Ok(ElementRoom { memory, bytes_max })
    }
}

impl QueueState {
    /// Notes how a node stands; returns whether that changes anything.
    pub(crate) fn stand(&mut self, node: usize, standing: QueueStanding) -> bool {
        match self.nodes.get_mut(node) {
            Some(node) => std::mem::replace(&mut node.standing, standing) != standing,
            None => false,
        }
    }

    pub(crate) fn standing(&self, node: usize) -> QueueStanding {
        self.nodes.get(node).map(|node| node.standing).unwrap_or_default()
    }

    /// Whether every queue of the source is drained.
    pub(crate) fn is_followed(&self) -> bool {
        self.unnamed == 0 && self.nodes.iter().all(|node| node.standing == QueueStanding::Followed)
    }

    /// Notes that a queue was empty at a time, after so many gaps.
    pub(crate) fn emptied(&mut self, node: usize, at: Timestamp, gaps: u64) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.until = at;
            node.emptied = Some(gaps);
        }
    }

    pub(crate) fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Notes a gap.
    pub(crate) fn open_gap(&mut self) {
        self.gaps += 1;
    }

    /// Whether the queue of a node may have elements of before the last gap, or of before this run.
    pub(crate) fn is_behind(&self, node: usize) -> bool {
        self.nodes.get(node).is_none_or(|node| node.emptied != Some(self.gaps))
    }

    /// Notes an element that was written at a time, and is brought to its key; returns its number.
    pub(crate) fn begin(&mut self, node: usize, at: Timestamp) -> u64 {
        let Some(node) = self.nodes.get_mut(node) else { return 0 };
        node.number += 1;
        node.until = at;
        node.under_way.insert(node.number, at);
        node.number
    }

    /// Notes that an element is done.
    pub(crate) fn end(&mut self, node: usize, number: u64) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.under_way.remove(&number);
        }
    }

    /// The time before which every change that a queue handed out is here.
    pub(crate) fn until(&self) -> Timestamp {
        let until = |node: &QueueNode| node.under_way.values().copied().fold(node.until, Timestamp::min);
        self.nodes.iter().map(until).min().unwrap_or_default()
    }
}
