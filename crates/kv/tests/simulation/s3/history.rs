//! The history of writes to the keys, and the values a reader may see.
//!
//! Each key is a register. A reader may see the value of a write that was not *followed*: no acknowledged write began after
//! its end and ended before the read began. A write without an answer may have taken effect or not.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::time::Instant;

/// The value of a read; `None`: no object.
pub(crate) type ReadValue = Option<String>;

/// The effect of a write.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WriteEffect {
    Put(String),
    Delete,
    /// The value of this key at that time.
    Copy(String),
}

#[derive(Debug, Clone)]
struct RecordedWrite {
    key: String,
    effect: WriteEffect,
    begun: Instant,
    /// `None` while it runs.
    ended: Option<Instant>,
    acknowledged: bool,
}

/// All writes, shared by the clients.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyHistory(Rc<RefCell<Vec<RecordedWrite>>>);

/// A running write: it ends when this is dropped.
pub(crate) struct PendingWrite {
    history: KeyHistory,
    at: usize,
}

impl PendingWrite {
    /// Marks the write as acknowledged.
    pub(crate) fn acknowledge(self) {
        self.history.0.borrow_mut()[self.at].acknowledged = true;
    }
}

impl Drop for PendingWrite {
    fn drop(&mut self) {
        self.history.0.borrow_mut()[self.at].ended = Some(Instant::now());
    }
}

impl KeyHistory {
    /// Records a write that begins now.
    pub(crate) fn begin(&self, key: &str, effect: WriteEffect) -> PendingWrite {
        let mut writes = self.0.borrow_mut();
        let write = RecordedWrite { key: key.into(), effect, begun: Instant::now(), ended: None, acknowledged: false };
        writes.push(write);
        PendingWrite { history: self.clone(), at: writes.len() - 1 }
    }

    /// As [`Self::begin`], for a write that takes effect once in any number of tries: an earlier try may have been the one.
    pub(crate) fn begin_again(&self, key: &str, effect: WriteEffect) -> PendingWrite {
        let found = self.0.borrow().iter().position(|write| write.key == key && write.effect == effect);
        let Some(at) = found else { return self.begin(key, effect) };
        self.0.borrow_mut()[at].ended = None;
        PendingWrite { history: self.clone(), at }
    }

    /// Whether a read of `key` from `begun` to `ended` may see `value`.
    pub(crate) fn allows(&self, key: &str, value: &ReadValue, (begun, ended): (Instant, Instant)) -> bool {
        let writes = self.0.borrow();
        possible(&writes, key, value, (begun, ended), &mut vec![false; writes.len()])
    }

    /// Whether `value` was ever written.
    pub(crate) fn has_value(&self, value: &str) -> bool {
        self.0.borrow().iter().any(|write| write.effect == WriteEffect::Put(value.into()))
    }

    /// The writes of a key as lines of a failure report.
    pub(crate) fn describe_writes(&self, key: &str, start: Instant) -> String {
        let since = |moment: Instant| moment.duration_since(start).as_millis();
        let writes = self.0.borrow();
        let lines = writes.iter().filter(|write| write.key == key).map(|write| {
            let ended = write.ended.map(since);
            let mark = if write.acknowledged { "ok" } else { "?" };
            format!("  {:>6} to {ended:?} {mark} {:?}\n", since(write.begun), write.effect)
        });
        lines.collect()
    }

    /// Number of acknowledged writes by kind.
    pub(crate) fn acknowledged(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for write in self.0.borrow().iter().filter(|write| write.acknowledged) {
            let name = match &write.effect {
                WriteEffect::Put(text) if text.contains(' ') => "complete",
                WriteEffect::Put(_) => "put",
                WriteEffect::Delete => "delete",
                WriteEffect::Copy(_) => "copy",
            };
            *counts.entry(name).or_default() += 1;
        }
        counts
    }
}

fn possible(
    writes: &[RecordedWrite],
    key: &str,
    value: &ReadValue,
    (begun, ended): (Instant, Instant),
    visited: &mut Vec<bool>,
) -> bool {
    let followed = |end: Option<Instant>| {
        writes.iter().any(|write| {
            let later = end.is_none_or(|end| write.begun > end);
            write.key == key && write.acknowledged && later && write.ended.is_some_and(|ended| ended < begun)
        })
    };
    if value.is_none() && !followed(None) {
        return true; // The initial state.
    }
    for (at, write) in writes.iter().enumerate().filter(|(_, write)| write.key == key && write.begun <= ended) {
        if visited[at] || write.ended.is_some_and(|end| followed(Some(end))) {
            continue;
        }
        let makes = match &write.effect {
            WriteEffect::Put(text) => value.as_ref() == Some(text),
            WriteEffect::Delete => value.is_none(),
            WriteEffect::Copy(_) if value.is_none() => false,
            WriteEffect::Copy(from) => {
                visited[at] = true;
                let source = possible(writes, from, value, (write.begun, write.ended.unwrap_or(ended)), visited);
                visited[at] = false;
                source
            }
        };
        if makes {
            return true;
        }
    }
    false
}
