//! The progress of a long command, on standard error: a bar on a terminal, else a line every ten seconds.

use std::io::{IsTerminal as _, Write as _};

use serde::{Deserialize, Serialize};

/// Seconds between two lines where there is no terminal.
const LINE_SECONDS: f64 = 10.0;
/// Characters of the bar.
const WIDTH: usize = 24;

/// The progress of a command.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Seconds since the command began.
    pub seconds: f64,
    /// The part that is done, from 0 to 100, where the total is known.
    #[serde(deserialize_with = "Option::deserialize")] // Without it, a missing member would count as null.
    pub percent: Option<u8>,
    /// The current step, on one line.
    pub text: String,
}

/// The progress bar. On a terminal it disappears when it is dropped.
#[derive(Debug)]
pub struct ProgressBar {
    terminal: bool,
    shown: bool,
    /// When the last line was written, in seconds since the command began.
    line_at: f64,
}

impl ProgressBar {
    /// A bar that shows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), shown: false, line_at: 0.0 }
    }

    /// Removes the bar so that other output can be written; the next [`Self::show`] draws it again.
    pub fn hide(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    /// Shows the progress.
    pub fn show(&mut self, progress: &Progress) {
        let mut out = std::io::stderr();
        // A closed standard error does not stop the command.
        if self.terminal {
            self.shown = true;
            let _ = write!(out, "\r{}\x1b[K", on_terminal(progress)).and_then(|()| out.flush());
        } else if progress.seconds - self.line_at >= LINE_SECONDS {
            self.line_at = progress.seconds;
            let _ = writeln!(out, "{}", as_line(progress));
        }
    }
}

impl Default for ProgressBar {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        self.hide();
    }
}

fn on_terminal(progress: &Progress) -> String {
    match progress.percent {
        Some(percent) => {
            let done = usize::from(percent.min(100)) * WIDTH / 100;
            format!("[{}{}] {percent:>3}%  {}", "#".repeat(done), ".".repeat(WIDTH - done), progress.text)
        }
        None => {
            // With an unknown total, a moving mark shows that the command works.
            let at = progress.seconds.max(0.0) as usize % WIDTH;
            format!("[{}#{}]       {}", ".".repeat(at), ".".repeat(WIDTH - at - 1), progress.text)
        }
    }
}

fn as_line(progress: &Progress) -> String {
    let percent = progress.percent.map_or_else(String::new, |percent| format!("{percent}%, "));
    format!("{:.0} s: {percent}{}", progress.seconds, progress.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64, percent: Option<u8>) -> Progress {
        Progress { seconds, percent, text: "export keys: 5 rows".to_owned() }
    }

    #[test]
    fn the_bar_keeps_its_width_at_every_percentage() {
        assert_eq!(on_terminal(&at(1.0, Some(0))), "[........................]   0%  export keys: 5 rows");
        assert_eq!(on_terminal(&at(1.0, Some(50))), "[############............]  50%  export keys: 5 rows");
        assert_eq!(on_terminal(&at(1.0, Some(100))), "[########################] 100%  export keys: 5 rows");
        for percent in 0..=u8::MAX {
            assert_eq!(on_terminal(&at(1.0, Some(percent))).find(']'), Some(WIDTH + 1));
        }
    }

    #[test]
    fn progress_without_a_known_end_shows_a_moving_mark() {
        for seconds in [-1.0, 0.0, 23.9, 24.0, 1e12] {
            let shown = on_terminal(&at(seconds, None));
            assert_eq!((shown.find(']'), shown.matches('#').count()), (Some(WIDTH + 1), 1), "{shown}");
        }
    }

    #[test]
    fn lines_carry_the_same_text_as_the_bar() {
        assert_eq!(as_line(&at(20.4, Some(7))), "20 s: 7%, export keys: 5 rows");
        assert_eq!(as_line(&at(20.4, None)), "20 s: export keys: 5 rows");
    }
}
