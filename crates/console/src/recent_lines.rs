//! The last lines of a log, in memory: what an operator looks at first.

use std::collections::VecDeque;

use larder_rows::Timestamp;
use larder_rows::text::beginning;
use parking_lot::Mutex;

/// Lines that are kept.
const LINES_KEPT: usize = 200;
/// Longest text of a line, in bytes; with [`LINES_KEPT`] it bounds the memory.
const TEXT_BYTES_MAX: usize = 2048;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentLine {
    /// The time.
    pub at: Timestamp,
    /// Its kind in a word, such as `WARN` or `refused`.
    pub kind: &'static str,
    /// The text.
    pub text: String,
}

/// The last lines, at most 200.
#[derive(Debug, Default)]
pub struct RecentLines(Mutex<VecDeque<RecentLine>>);

impl RecentLines {
    /// Keeps a line, its text cut at 2 KiB, in the place of the oldest one.
    pub fn push(&self, line: RecentLine) {
        let text = beginning(&line.text, TEXT_BYTES_MAX).to_owned();
        let mut lines = self.0.lock();
        if lines.len() == LINES_KEPT {
            lines.pop_front();
        }
        lines.push_back(RecentLine { text, ..line });
    }

    /// The lines, the newest first.
    #[must_use]
    pub fn newest_first(&self) -> Vec<RecentLine> {
        self.0.lock().iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_long_ones_cut() {
        let lines = RecentLines::default();
        for number in 0..LINES_KEPT as u64 + 7 {
            lines.push(RecentLine { at: Timestamp(number), kind: "WARN", text: "x".repeat(9000) });
        }
        let kept = lines.newest_first();
        assert_eq!((kept.len(), kept[0].at, kept[LINES_KEPT - 1].at), (LINES_KEPT, Timestamp(206), Timestamp(7)));
        assert!(kept.iter().all(|line| line.text.len() == TEXT_BYTES_MAX));
    }
}
