//! The state of a replication queue, as a node of Riak tells it: its length, its counters, and how many nodes there are.

use serde_json::Value;

/// Most characters of the name of a queue.
const NAME_CHARS_MAX: usize = 64;

/// Reads the name of a queue that an operator gave.
///
/// # Errors
/// A line that says what a name has.
pub fn parse_queue_name(text: &str) -> Result<String, String> {
    let is_letter = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    match !text.is_empty() && text.len() <= NAME_CHARS_MAX && text.chars().all(is_letter) {
        true => Ok(text.to_owned()),
        false => Err(format!("the name of a queue has 1 to {NAME_CHARS_MAX} of the characters A-Z a-z 0-9 _ -")),
    }
}

/// The elements of a queue, from the answer `Queue NAME: 1 2 3` with those of each priority; `None`: it is no such answer.
#[must_use]
pub fn queue_length(name: &str, body: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(body).ok()?;
    let counts = text.trim().strip_prefix("Queue ")?.strip_prefix(name)?.strip_prefix(": ")?;
    let counts = counts.split(' ').map(|count| count.parse().ok()).collect::<Option<Vec<u64>>>()?;
    (counts.len() == 3).then(|| counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)))
}

/// The nodes that are up, from the answer of `/membership_request`; `None`: it is no such answer.
#[must_use]
pub fn members_up(body: &[u8]) -> Option<usize> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    Some(answer.get("up_nodes")?.as_array()?.len())
}

/// The counters of a node's queues since its start, from the answer of `/stats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueTotals {
    /// Elements that were discarded since a queue was full.
    pub discarded: u64,
    /// Requests for an element.
    pub fetches: u64,
}

impl QueueTotals {
    /// Reads them; `None`: the answer has none.
    #[must_use]
    pub fn from_answer(body: &[u8]) -> Option<Self> {
        let answer: Value = serde_json::from_slice(body).ok()?;
        let total = |name: &str| answer.get(name).and_then(Value::as_u64);
        let fetches = ["ngrfetch_nofetch_total", "ngrfetch_prefetch_total", "ngrfetch_tofetch_total"];
        let fetches = fetches.into_iter().map(total).collect::<Option<Vec<_>>>()?;
        let discarded = total("ngrrepl_srcdiscard_total").unwrap_or_default();
        Some(Self { discarded, fetches: fetches.into_iter().fold(0, u64::saturating_add) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_golden_answers_of_a_node_are_read() {
        assert_eq!(queue_length("larder", b"Queue larder: 20 3 50"), Some(73));
        assert_eq!(queue_length("lard", b"Queue larder: 20 3 50"), None);
        assert_eq!(queue_length("larder", b"Queue larder: 20 3"), None);
        assert_eq!(queue_length("x", b"Queue name [108,97,114] not defined"), None);
        assert_eq!(members_up(br#"{"up_nodes":[{"ip":"127.0.0.1","port":"18098"}]}"#), Some(1));
        assert_eq!(members_up(b"<html>"), None);
        let stats = br#"{"ngrfetch_nofetch_total":13,"ngrfetch_prefetch_total":22,"ngrfetch_tofetch_total":42,"a":[],
            "ngrrepl_srcdiscard_total":70}"#;
        assert_eq!(QueueTotals::from_answer(stats), Some(QueueTotals { discarded: 70, fetches: 77 }));
        assert_eq!(QueueTotals::from_answer(br#"{"vnode_gets":1}"#), None);
    }

    #[test]
    fn names_of_queues_need_no_escapes() {
        assert_eq!(parse_queue_name("Larder_q-1"), Ok("Larder_q-1".to_owned()));
        for wrong in ["", "a b", "a/b", "a:any", "a|b", "é", &"x".repeat(65)] {
            assert!(parse_queue_name(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = (queue_length("q", &bytes), members_up(&bytes), QueueTotals::from_answer(&bytes));
            let _ = queue_length("q", &[b"Queue q: ", &bytes[..]].concat());
        }
    }
}
