//! SIGTERM and SIGINT: the first ends the server in order, the second at once.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Exit code after a second signal.
const EXIT_AT_ONCE: i32 = 130;

/// Listens for signals from now on. The receiver turns true with the first.
///
/// # Errors
/// The system refuses.
pub(crate) fn watch() -> io::Result<watch::Receiver<bool>> {
    let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (down, receiver) = watch::channel(false);
    tokio::spawn(follow(terminate, interrupt, down));
    Ok(receiver)
}

async fn follow(mut terminate: Signal, mut interrupt: Signal, down: watch::Sender<bool>) {
    next(&mut terminate, &mut interrupt).await;
    tracing::info!("stopping: running requests are ended; a second signal stops at once");
    down.send_replace(true);
    next(&mut terminate, &mut interrupt).await;
    tracing::warn!("stopped at once");
    std::process::exit(EXIT_AT_ONCE);
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
