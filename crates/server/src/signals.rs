//! SIGTERM, SIGINT and SIGHUP: the first ends the server in order, the second at once.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

/// A second signal within this time repeats the first one: many tools signal a process and its group.
const REPEATED_SIGNAL: Duration = Duration::from_millis(500);
/// Exit code after a second signal.
const EXIT_AT_ONCE: i32 = 130;

/// Listens for signals from now on. The receiver turns true at the first signal.
///
/// # Errors
/// An error of the system.
pub(crate) fn watch() -> io::Result<watch::Receiver<bool>> {
    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let [terminate, interrupt, hangup] = kinds.map(signal);
    let signals = StopSignals { terminate: terminate?, interrupt: interrupt?, hangup: hangup? };
    let (down, receiver) = watch::channel(false);
    tokio::spawn(await_signals(signals, down));
    Ok(receiver)
}

async fn await_signals(mut signals: StopSignals, down: watch::Sender<bool>) {
    signals.next().await;
    tracing::info!("stopping: running requests are ended; a second signal stops at once");
    down.send_replace(true);
    let first = Instant::now();
    signals.next().await;
    // Race: a tool that signals the process and its group sends the first signal twice.
    while first.elapsed() < REPEATED_SIGNAL {
        signals.next().await;
    }
    tracing::warn!("second signal: the server stops at once and cuts off running requests");
    std::process::exit(EXIT_AT_ONCE);
}

struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl StopSignals {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
