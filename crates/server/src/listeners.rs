//! The bound listeners of the settings: one or two of each protocol, plain and encrypted.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use larder_core::CertificateStatus;
use larder_net::{ClientListener, ServerTls};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::banner::ListenAddresses;
use crate::failure::ServerFailure;
use crate::private::readable_by_all;
use crate::settings::table::{self, Setting};
use crate::settings::{Listener, ServerSettings, TlsSettings};

/// A listener and its address.
pub(crate) struct BoundListener {
    /// The address that it has.
    pub(crate) address: SocketAddr,
    /// The listener to serve.
    pub(crate) listener: ClientListener,
    /// Its host in the settings, in lower case.
    host: String,
}

/// The listeners by protocol, the plain one first.
pub(crate) struct BoundListeners {
    /// Riak's HTTP.
    pub(crate) http: Vec<BoundListener>,
    /// Riak's protocol buffers.
    pub(crate) pb: Vec<BoundListener>,
    /// S3.
    pub(crate) s3: Vec<BoundListener>,
    /// The console.
    pub(crate) console: Option<BoundListener>,
    /// Of metrics.
    pub(crate) metrics: Option<BoundListener>,
}

impl BoundListeners {
    /// Binds every listener that is not off.
    ///
    /// # Errors
    /// A line that names the setting whose address cannot be had.
    pub(crate) async fn bind(settings: &ServerSettings, tls: Option<&ServerTls>) -> Result<Self, ServerFailure> {
        let encrypted = settings.tls.as_ref();
        let off = &Listener::Off;
        let pair = async |plain: &Listener, setting: &Setting, secure: &Listener, secure_setting: &Setting| {
            let mut bound = Vec::new();
            bound.extend(BoundListener::bind(plain, setting, None).await?);
            bound.extend(BoundListener::bind(secure, secure_setting, tls).await?);
            Ok::<_, ServerFailure>(bound)
        };
        let https = encrypted.map_or(off, |tls| &tls.https);
        let pb_tls = encrypted.map_or(off, |tls| &tls.pb_tls);
        let s3_https = encrypted.map_or(off, |tls| &tls.s3_https);
        Ok(Self {
            http: pair(&settings.http, &table::HTTP, https, &table::HTTPS).await?,
            pb: pair(&settings.pb, &table::PB, pb_tls, &table::PB_TLS).await?,
            s3: pair(&settings.s3, &table::S3, s3_https, &table::S3_HTTPS).await?,
            console: bind_optional(&settings.console, &table::CONSOLE).await?,
            metrics: bind_optional(&settings.metrics, &table::METRICS).await?,
        })
    }

    /// Their addresses, and the socket of `kv-admin`.
    pub(crate) fn addresses<'a>(&self, admin: &'a Path) -> ListenAddresses<'a> {
        let of = |bound: &[BoundListener], is_encrypted: bool| {
            let mut listeners = bound.iter().filter(|listener| listener.listener.tls.is_some() == is_encrypted);
            listeners.next().map(|listener| listener.address)
        };
        ListenAddresses {
            http: of(&self.http, false),
            https: of(&self.http, true),
            pb: of(&self.pb, false),
            pb_tls: of(&self.pb, true),
            s3: of(&self.s3, false),
            s3_https: of(&self.s3, true),
            console: self.console.as_ref().map(|listener| listener.address),
            admin,
        }
    }
}

/// Binds a listener that a server can do without. Two servers on one machine share its default port: the second goes without,
/// unless it was asked for.
async fn bind_optional(listener: &Listener, setting: &Setting) -> Result<Option<BoundListener>, ServerFailure> {
    let bound = BoundListener::bind(listener, setting, None).await;
    match bound {
        Err(taken) if *listener == Listener::At(setting.default.to_owned()) => {
            tracing::warn!("{taken}; --{} is off", setting.name);
            Ok(None)
        }
        bound => bound,
    }
}

impl BoundListener {
    async fn bind(
        listener: &Listener,
        setting: &Setting,
        tls: Option<&ServerTls>,
    ) -> Result<Option<Self>, ServerFailure> {
        let Listener::At(at) = listener else { return Ok(None) };
        let failed = |error| ServerFailure(format!("cannot listen on {at} ({}): {error}", setting.flag()));
        // tokio sets SO_REUSEADDR: a restart does not wait for old connections.
        let tcp = TcpListener::bind(at).await.map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        let host = at.rsplit_once(':').map_or_else(String::new, |(host, _)| host.to_ascii_lowercase());
        Ok(Some(Self { address, listener: ClientListener { tcp, tls: tls.cloned() }, host }))
    }

    /// Whether only this machine reaches it.
    pub(crate) fn is_on_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }

    /// The hosts that its clients may name: the one in the settings, and its address.
    pub(crate) fn names(&self) -> [String; 2] {
        [self.host.clone(), self.address.ip().to_string()]
    }
}

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

/// The certificate as the metrics see it.
pub(crate) struct ListenerCertificate(pub(crate) ServerTls);

impl CertificateStatus for ListenerCertificate {
    fn ends(&self) -> Option<u64> {
        self.0.ends()
    }
}

/// The task that follows the files.
pub(crate) struct CertificateWatch(JoinHandle<()>);

impl Drop for CertificateWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}
