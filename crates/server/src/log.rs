//! Logs go to standard error; standard output holds the banner.
//!
//! A thread of its own writes them: whoever reads them may be slow, or a pipe that nobody reads, and no request waits for that.

use std::io::IsTerminal as _;

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::settings::{LogFormat, LogLevel};

/// What our own crates' names begin with.
const OWN: &str = "larder";
/// The driver of Cassandra. It warns of every connection; our own lines say which node is lost, and what still works.
const DRIVER: &str = "scylla";
/// Lines that wait to be written at most, some MiB; further ones are left out.
const LINES_MAX: usize = 8192;

/// Starts logging, also of what libraries such as `lsm-tree` say through the `log` crate (`try_init` bridges that by
/// tracing-subscriber's feature `tracing-log`), and of panics. Later calls change nothing. What waits is written when the
/// guard is dropped, as far as somebody reads it.
pub fn start(level: LogLevel, format: LogFormat) -> WorkerGuard {
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES_MAX).thread_name("larder-log");
    let (writer, guard) = builder.finish(std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = match format {
        LogFormat::Human => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    match tracing_subscriber::registry().with(lines.with_filter(targets(level))).try_init() {
        // The standard hook writes to standard error by itself, and would wait there for a reader.
        Ok(()) => std::panic::set_hook(Box::new(log_panic)),
        Err(error) => tracing::debug!(%error, "logging had been started"),
    }
    guard
}

fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let backtrace = std::backtrace::Backtrace::capture();
    tracing::error!(thread = thread.name(), "{panic}\n{backtrace}");
}

/// Our own crates at the level that was set. Others speak of their own affairs: only when they warn, or everything is wanted.
fn targets(level: LogLevel) -> Targets {
    let others = if level == LogLevel::TRACE { level } else { level.min(LogLevel::WARN) };
    let driver = if level >= LogLevel::DEBUG { others } else { level.min(LogLevel::ERROR) };
    Targets::new().with_default(others).with_target(OWN, level).with_target(DRIVER, driver)
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
        assert_eq!(logged(LogLevel::DEBUG, "lsm_tree::tree"), [true, true, false, false]);
        assert_eq!(logged(LogLevel::ERROR, "lsm_tree::tree"), [true, false, false, false]);
        assert_eq!(logged(LogLevel::TRACE, "lsm_tree::tree"), [true; 4]);
        assert_eq!(logged(LogLevel::INFO, "scylla::network"), [true, false, false, false]);
        assert_eq!(logged(LogLevel::DEBUG, "scylla::network"), [true, true, false, false]);
    }
}
