//! The certificate of the encrypted listeners while the server runs: it is read again when its files change.

use std::time::Duration;

use larder_net::ServerTls;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::failure::ServerFailure;
use crate::private::readable_by_all;
use crate::settings::TlsSettings;

/// How often the files are compared with what was read.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The encryption of these settings; `None` without an encrypted listener.
///
/// # Errors
/// A line that names the file that does not serve.
pub(crate) fn load(settings: Option<&TlsSettings>) -> Result<Option<ServerTls>, ServerFailure> {
    if let Some(warning) = settings.and_then(|tls| readable_by_all(&tls.files.key)) {
        tracing::warn!("{warning}");
    }
    let load = |tls: &TlsSettings| ServerTls::load(tls.files.clone()).map_err(|why| failed(&why));
    settings.map(load).transpose()
}

fn failed(why: &str) -> ServerFailure {
    ServerFailure(format!("cannot encrypt connections: {why}"))
}

/// Reads the files again every ten seconds, and at each hangup signal. The task ends when it is dropped.
pub(crate) fn keep_current(tls: ServerTls, mut hangups: watch::Receiver<()>) -> CertificateWatch {
    CertificateWatch(tokio::spawn(async move {
        loop {
            let asked = tokio::time::timeout(LOOK_EVERY, hangups.changed()).await;
            // The files may be on a slow disk: their read must not hold a thread of the runtime.
            let of_task = tls.clone();
            match tokio::task::spawn_blocking(move || of_task.reload()).await {
                Ok(Ok(true)) => tracing::info!("certificate read again: new connections get it"),
                Ok(Ok(false)) => {}
                Ok(Err(why)) => tracing::warn!(why, "certificate not read again: the old one stays in use"),
                Err(_) => return,
            }
            if let Ok(Err(_)) = asked {
                return;
            }
        }
    }))
}

/// The task that follows the files.
pub(crate) struct CertificateWatch(JoinHandle<()>);

impl Drop for CertificateWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}
