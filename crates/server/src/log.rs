//! Logs go to standard error; standard output holds the banner.

use std::io::IsTerminal as _;

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::settings::{LogFormat, LogLevel};

/// What our own crates' names begin with.
const OWN: &str = "larder";

/// Starts logging, also of what libraries such as `fjall` say through the `log` crate: `try_init` bridges that by
/// tracing-subscriber's feature `tracing-log`. Later calls change nothing.
pub fn start(level: LogLevel, format: LogFormat) {
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Human => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    if let Err(error) = tracing_subscriber::registry().with(lines.with_filter(targets(level))).try_init() {
        tracing::debug!(%error, "logging had been started");
    }
}

/// Our own crates at the level that was set. Others speak of their own affairs: only when they warn, or everything is wanted.
fn targets(level: LogLevel) -> Targets {
    let others = if level == LogLevel::TRACE { level } else { level.min(LogLevel::WARN) };
    Targets::new().with_default(others).with_target(OWN, level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn other_crates_are_heard_when_they_warn() {
        let logged = |level, target| {
            [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG].map(|at| targets(level).would_enable(target, &at))
        };
        assert_eq!(logged(LogLevel::INFO, "larder_gateway::kv"), [true, true, true, false]);
        assert_eq!(logged(LogLevel::DEBUG, "fjall::db"), [true, true, false, false]);
        assert_eq!(logged(LogLevel::ERROR, "fjall::db"), [true, false, false, false]);
        assert_eq!(logged(LogLevel::TRACE, "fjall::db"), [true; 4]);
    }
}
