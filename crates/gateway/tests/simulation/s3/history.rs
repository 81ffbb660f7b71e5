//! What was done to the keys and when, and what a reader may see of it.
//!
//! Each key is a register. A reader may see a value if a write that can have made it was not *followed*: no acknowledged
//! write began after it had ended, and ended before the reader began. Who was not answered may have written or not.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::time::Instant;

/// What an object reads as; nothing: there is none.
pub(crate) type Value = Option<String>;

/// What a write does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Deed {
    Put(String),
    Delete,
    /// Of what this key is at the time.
    Copy(String),
}

#[derive(Debug, Clone)]
struct Write {
    key: String,
    deed: Deed,
    begun: Instant,
    /// Nothing while it is under way.
    ended: Option<Instant>,
    acknowledged: bool,
}

/// All writes, shared by those who make them.
#[derive(Debug, Clone, Default)]
pub(crate) struct History(Rc<RefCell<Vec<Write>>>);

/// A write under way: it has ended when this is dropped.
pub(crate) struct UnderWay {
    history: History,
    at: usize,
}

impl UnderWay {
    /// It was answered with success.
    pub(crate) fn acknowledge(self) {
        self.history.0.borrow_mut()[self.at].acknowledged = true;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.history.0.borrow_mut()[self.at].ended = Some(Instant::now());
    }
}

impl History {
    /// Notes a write that begins now.
    pub(crate) fn begin(&self, key: &str, deed: Deed) -> UnderWay {
        let mut writes = self.0.borrow_mut();
        let write = Write { key: key.into(), deed, begun: Instant::now(), ended: None, acknowledged: false };
        writes.push(write);
        UnderWay { history: self.clone(), at: writes.len() - 1 }
    }

    /// As [`Self::begin`], for what takes effect once however often it is tried: an earlier try may have been the one.
    pub(crate) fn begin_again(&self, key: &str, deed: Deed) -> UnderWay {
        let found = self.0.borrow().iter().position(|write| write.key == key && write.deed == deed);
        let Some(at) = found else { return self.begin(key, deed) };
        self.0.borrow_mut()[at].ended = None;
        UnderWay { history: self.clone(), at }
    }

    /// Whether who read `key` from `begun` to `ended` may have seen `value`.
    pub(crate) fn allows(&self, key: &str, value: &Value, (begun, ended): (Instant, Instant)) -> bool {
        let writes = self.0.borrow();
        possible(&writes, key, value, (begun, ended), &mut vec![false; writes.len()])
    }

    /// Whether `value` was ever written.
    pub(crate) fn knows(&self, value: &str) -> bool {
        self.0.borrow().iter().any(|write| write.deed == Deed::Put(value.into()))
    }

    /// The writes of a key as lines, for who has to find out.
    pub(crate) fn told(&self, key: &str, start: Instant) -> String {
        let since = |moment: Instant| moment.duration_since(start).as_millis();
        let writes = self.0.borrow();
        let lines = writes.iter().filter(|write| write.key == key).map(|write| {
            let ended = write.ended.map(since);
            let mark = if write.acknowledged { "ok" } else { "?" };
            format!("  {:>6} to {ended:?} {mark} {:?}\n", since(write.begun), write.deed)
        });
        lines.collect()
    }

    /// How many writes were acknowledged.
    pub(crate) fn acknowledged(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for write in self.0.borrow().iter().filter(|write| write.acknowledged) {
            let name = match &write.deed {
                Deed::Put(text) if text.contains(' ') => "complete",
                Deed::Put(_) => "put",
                Deed::Delete => "delete",
                Deed::Copy(_) => "copy",
            };
            *counts.entry(name).or_default() += 1;
        }
        counts
    }
}

fn possible(
    writes: &[Write],
    key: &str,
    value: &Value,
    (begun, ended): (Instant, Instant),
    asked: &mut Vec<bool>,
) -> bool {
    let followed = |end: Option<Instant>| {
        writes.iter().any(|write| {
            let later = end.is_none_or(|end| write.begun > end);
            write.key == key && write.acknowledged && later && write.ended.is_some_and(|ended| ended < begun)
        })
    };
    if value.is_none() && !followed(None) {
        return true; // As in the beginning.
    }
    for (at, write) in writes.iter().enumerate().filter(|(_, write)| write.key == key && write.begun <= ended) {
        if asked[at] || write.ended.is_some_and(|end| followed(Some(end))) {
            continue;
        }
        let makes = match &write.deed {
            Deed::Put(text) => value.as_ref() == Some(text),
            Deed::Delete => value.is_none(),
            Deed::Copy(_) if value.is_none() => false,
            Deed::Copy(from) => {
                asked[at] = true;
                let source = possible(writes, from, value, (write.begun, write.ended.unwrap_or(ended)), asked);
                asked[at] = false;
                source
            }
        };
        if makes {
            return true;
        }
    }
    false
}
