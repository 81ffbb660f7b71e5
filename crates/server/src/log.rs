//! Logs go to standard error; standard output holds the banner.
//!
//! A separate thread writes them: a slow reader of the log, or an unread pipe, delays no request.

use std::io::IsTerminal as _;
use std::sync::Arc;

use larder_console::RecentLines;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::recent_log::WarningKeeper;
use crate::settings::{LogFormat, LogLevel};

/// The prefix of this product's crates.
const OWN: &str = "larder";
/// The driver of Cassandra, which warns of every connection. `node_watch` logs lost nodes and their impact instead.
const DRIVER: &str = "scylla";
/// The parts of `lsm-tree` that log what the engine answers for: each read of a damaged block, each compaction that ends early.
const ENGINE_PARTS: [&str; 2] = ["lsm_tree::table::block", "lsm_tree::compaction"];
/// Most lines that wait to be written, some MiB; further ones are dropped.
const LINES_MAX: usize = 8192;

/// Starts logging, also of libraries that use the `log` crate, such as `lsm-tree` (`try_init` bridges it by the feature
/// `tracing-log`), and of panics. Later calls change nothing. The drop of the guard writes the waiting lines, as far as they
/// are read. `recent` gets the warnings and errors that are logged.
pub fn start(level: LogLevel, format: LogFormat, recent: Arc<RecentLines>) -> WorkerGuard {
    // A lossy queue: a reader of the log that stops reading must not stop requests.
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES_MAX).thread_name("larder-log");
    let (writer, guard) = builder.finish(std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = match format {
        LogFormat::Human => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let (lines, recent) = (lines.with_filter(targets(level)), WarningKeeper(recent).with_filter(targets(level)));
    match tracing_subscriber::registry().with(lines).with(recent).try_init() {
        // The standard hook writes to standard error itself, and would block there on an unread pipe.
        Ok(()) => std::panic::set_hook(Box::new(log_panic)),
        Err(error) => tracing::debug!(%error, "logging not started: it runs already"),
    }
    guard
}

fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let backtrace = std::backtrace::Backtrace::capture();
    tracing::error!(thread = thread.name(), "{panic}\n{backtrace}");
}

/// This product's crates at the configured level; other crates only from warnings on, except at level `trace`.
fn targets(level: LogLevel) -> Targets {
    let others = if level == LogLevel::TRACE { level } else { level.min(LogLevel::WARN) };
    let driver = if level >= LogLevel::DEBUG { others } else { level.min(LogLevel::ERROR) };
    let parts = if level >= LogLevel::DEBUG { others } else { LogLevel::OFF };
    Targets::new()
        .with_default(others)
        .with_target(OWN, level)
        .with_target(DRIVER, driver)
        .with_targets(ENGINE_PARTS.map(|part| (part, parts)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn other_crates_log_from_warnings_on() {
        let logged = |level, target| {
            [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG].map(|at| targets(level).would_enable(target, &at))
        };
        assert_eq!(logged(LogLevel::INFO, "larder_kv"), [true, true, true, false]);
        assert_eq!(logged(LogLevel::DEBUG, "lsm_tree::tree"), [true, true, false, false]);
        assert_eq!(logged(LogLevel::ERROR, "lsm_tree::tree"), [true, false, false, false]);
        assert_eq!(logged(LogLevel::TRACE, "lsm_tree::tree"), [true; 4]);
        assert_eq!(logged(LogLevel::INFO, "scylla::network"), [true, false, false, false]);
        assert_eq!(logged(LogLevel::DEBUG, "scylla::network"), [true, true, false, false]);
        assert_eq!(logged(LogLevel::INFO, "lsm_tree::table::block"), [false; 4]);
        assert_eq!(logged(LogLevel::DEBUG, "lsm_tree::table::block"), [true, true, false, false]);
    }
}
