//! Tells from the answers of one node when elements of its queue were lost: delivery is at most once, and a restart empties a queue.

use super::queue_state::QueueTotals;

/// What is known of the queue of one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueWatch {
    /// Whether the node gave no answer to the last request.
    is_away: bool,
    /// Its elements at the last question, and those that were taken since that was sent.
    length: u64,
    taken: u64,
    /// Questions that were answered.
    asked: u64,
    totals: Option<QueueTotals>,
}

/// How elements of a queue were lost, or may have been.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueLoss {
    /// An answer did not come, or broke off: the element in it is gone.
    #[error("{0}")]
    Unanswered(String),
    /// The node answers again; it may have been restarted meanwhile.
    #[error("it answers again, perhaps after a restart, which empties its queue")]
    Back,
    /// It has fewer elements than it had, and they were not taken here.
    #[error("elements of its queue are gone: it was restarted, or another reader takes them")]
    Emptied,
    /// Its counters begin again.
    #[error("it was restarted, which empties its queue")]
    Restarted,
    /// A queue was full.
    #[error("a full queue discarded {0} elements: raise replrtq_overflow_limit")]
    Discarded(u64),
    /// An element has not its form.
    #[error("an element that cannot be read: {0}")]
    Unreadable(String),
}

impl QueueWatch {
    /// Notes an answer of any kind.
    pub fn answered(&mut self) -> Option<QueueLoss> {
        // Race: a node is restarted, and its queue with its elements is gone before anyone asks again [invariant 191].
        std::mem::take(&mut self.is_away).then_some(QueueLoss::Back)
    }

    /// Notes that a request got no answer, or half of one.
    pub fn failed(&mut self, why: String) -> Option<QueueLoss> {
        self.taken += 1;
        // One loss for all failures until it answers again.
        (!std::mem::replace(&mut self.is_away, true)).then_some(QueueLoss::Unanswered(why))
    }

    /// Whether the node gave no answer to the last request.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.is_away
    }

    /// Notes an answer with an element.
    pub fn took(&mut self) {
        self.taken += 1;
    }

    /// The mark of a request that is sent now, for [`Self::emptied`].
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.asked
    }

    /// Notes that the queue was empty, in the answer to the only request under way, which had this mark.
    pub fn emptied(&mut self, mark: u64) -> Option<QueueLoss> {
        // An older request may have come before the elements that the last question counted.
        let is_lost = mark == self.asked && self.taken < self.length;
        (self.length, self.taken) = (0, 0);
        is_lost.then_some(QueueLoss::Emptied)
    }

    /// Begins a question for the length: what is taken from now on counts against its answer.
    pub fn ask_length(&mut self) {
        self.taken = 0;
    }

    /// Notes the length.
    pub fn counted(&mut self, length: u64) {
        self.length = length;
        self.asked += 1;
    }

    /// Notes the counters of the node.
    pub fn totalled(&mut self, totals: QueueTotals) -> Option<QueueLoss> {
        // The first counters of a run tell nothing of the time before them: discards of then may be of now.
        let before = self.totals.replace(totals).unwrap_or(QueueTotals { discarded: 0, ..totals });
        if totals.fetches < before.fetches || totals.discarded < before.discarded {
            return Some(QueueLoss::Restarted);
        }
        // Race: a queue overflows, and changes of the source come in no element [invariant 192].
        let discarded = totals.discarded - before.discarded;
        (discarded > 0).then_some(QueueLoss::Discarded(discarded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(fetches: u64, discarded: u64) -> QueueTotals {
        QueueTotals { discarded, fetches }
    }

    #[test]
    fn an_outage_is_one_loss_at_its_begin_and_one_at_its_end() {
        let mut watch = QueueWatch::default();
        assert_eq!(watch.answered(), None);
        assert_eq!(watch.failed("refused".into()), Some(QueueLoss::Unanswered("refused".into())));
        assert_eq!(watch.failed("refused".into()), None);
        assert!(watch.is_away());
        assert_eq!(watch.answered(), Some(QueueLoss::Back));
        assert_eq!(watch.answered(), None);
    }

    #[test]
    fn a_queue_that_is_empty_before_its_elements_were_taken_lost_them() {
        let mut watch = QueueWatch::default();
        watch.ask_length();
        watch.counted(2);
        let mark = watch.mark();
        watch.took();
        assert_eq!(watch.emptied(mark), Some(QueueLoss::Emptied));
        assert_eq!(watch.emptied(mark), None, "told once");
        watch.ask_length();
        watch.took();
        watch.counted(1);
        assert_eq!(watch.emptied(watch.mark()), None, "it was taken while the question was under way");
        let before = watch.mark();
        watch.ask_length();
        watch.counted(5);
        assert_eq!(watch.emptied(before), None, "it was empty before they came");
    }

    #[test]
    fn counters_tell_restarts_and_discards() {
        let mut watch = QueueWatch::default();
        assert_eq!(watch.totalled(totals(100, 7)), Some(QueueLoss::Discarded(7)), "perhaps since the run began");
        assert_eq!(watch.totalled(totals(100, 7)), None);
        assert_eq!(QueueWatch::default().totalled(totals(100, 0)), None);
        assert_eq!(watch.totalled(totals(120, 9)), Some(QueueLoss::Discarded(2)));
        assert_eq!(watch.totalled(totals(3, 0)), Some(QueueLoss::Restarted));
        assert_eq!(watch.totalled(totals(4, 0)), None);
    }
}
