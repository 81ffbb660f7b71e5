//! Lines that scripts log, in the server's log: `ejsLog(file, text)` writes no file.

use std::time::Duration;

use parking_lot::Mutex;

/// Most lines in a second, of all scripts together.
const LINES_PER_SECOND: u32 = 200;

/// The bound on logged lines.
#[derive(Debug, Default)]
pub(crate) struct ScriptLog {
    /// The current second, its lines, and those left out since the last written one.
    second: Mutex<(u64, u32, u64)>,
}

impl ScriptLog {
    /// Logs a line, a JSON array of file and text, at this monotonic time; counts it where the second is full.
    pub(crate) fn write(&self, payload: &[u8], now: Duration) {
        let Ok([file, text]) = serde_json::from_slice::<[String; 2]>(payload) else { return };
        if let Some(left_out) = self.admit(now) {
            let left_out = (left_out > 0).then_some(left_out);
            tracing::info!(file = file.escape_debug().to_string(), left_out, "script: {}", text.escape_debug());
        }
    }

    /// The lines left out before this one, or `None` where this one is left out too.
    fn admit(&self, now: Duration) -> Option<u64> {
        let mut second = self.second.lock();
        if second.0 != now.as_secs() {
            (second.0, second.1) = (now.as_secs(), 0);
        }
        if second.1 == LINES_PER_SECOND {
            second.2 += 1;
            return None;
        }
        second.1 += 1;
        Some(std::mem::take(&mut second.2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_a_bound_of_lines_and_the_next_one_tells_those_left_out() {
        let log = ScriptLog::default();
        let admitted = (0..1000).filter(|_| log.admit(Duration::from_secs(1)).is_some()).count();
        assert_eq!(admitted, 200);
        assert_eq!(log.admit(Duration::from_secs(2)), Some(800));
        assert_eq!(log.admit(Duration::from_secs(2)), Some(0));
    }
}
