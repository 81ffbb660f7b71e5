//! SIGTERM, SIGINT and SIGHUP. The first that stops ends the server in order, the second at once. SIGHUP stops a server that
//! was started on a terminal, which closes; any other reads its certificate again.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

/// A second signal within this time repeats the first one: many tools signal a process and its group.
const REPEATED_SIGNAL: Duration = Duration::from_millis(500);
/// Exit code after a second signal.
const EXIT_AT_ONCE: i32 = 130;

/// The signals as the server sees them.
pub(crate) struct ProcessSignals {
    /// Turns true at the first signal that stops.
    pub(crate) stop: watch::Receiver<bool>,
    /// Changes at each signal that asks to read files again.
    pub(crate) hangups: watch::Receiver<()>,
}

/// Listens for signals from now on.
///
/// # Errors
/// An error of the system.
pub(crate) fn watch() -> io::Result<ProcessSignals> {
    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let [terminate, interrupt, hangup] = kinds.map(signal);
    let (asked, hangups) = watch::channel(());
    let stops_at_hangup = io::stdin().is_terminal();
    let signals = StopSignals { terminate: terminate?, interrupt: interrupt?, hangup: hangup?, stops_at_hangup, asked };
    let (down, stop) = watch::channel(false);
    tokio::spawn(await_signals(signals, down));
    Ok(ProcessSignals { stop, hangups })
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
    /// The terminal of the server closes with a hangup.
    stops_at_hangup: bool,
    /// Hears of hangups that do not stop. It lives as long as the process: its end would end the watch of the certificate.
    asked: watch::Sender<()>,
}

impl StopSignals {
    /// Waits for a signal that stops.
    async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => {}
            }
            if self.stops_at_hangup {
                return;
            }
            self.asked.send_replace(());
        }
    }
}
