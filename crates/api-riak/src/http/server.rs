//! Sockets: accepting, the life of a connection, and its end.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use larder_gateway::Gateway;

use super::linger::{Pulse, Socket};
use super::{HttpService, Reply, brings_body, service};

/// Most header lines of a request: an object can have many index fields.
const HEADERS_MAX: usize = 256;
/// Most bytes of a request's line and headers: metadata and a percent-encoded address.
const HEADER_BYTES_MAX: usize = 192 * 1024;
/// How long to wait when no socket can be accepted, for instance for want of file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Settings of the HTTP listener.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Most connections at a time; one more is answered 503 and closed.
    pub connections_max: usize,
    /// How long the headers of a request may take once they have begun.
    pub header_timeout: Duration,
    /// How long a connection may stay open with nothing on it.
    pub idle_timeout: Duration,
    /// How long requests may take that run when the server is told to end.
    pub drain_timeout: Duration,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(300),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// Serves `listener` until `shutdown`: then nothing new is accepted, requests under way are finished, and what is not
/// finished by the deadline is broken off.
pub async fn serve(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    settings: HttpSettings,
    shutdown: impl Future<Output = ()>,
) {
    let service = service(gateway, settings.clone());
    let (end, ending) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() >= settings.connections_max => {
                    connections.spawn(turn_away(stream));
                }
                Ok((stream, _)) => {
                    let (service, mut ending) = (service.clone(), ending.clone());
                    connections.spawn(async move {
                        // The channel closes when the server ends.
                        serve_connection(stream, service, async move { while ending.changed().await.is_ok() {} }).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop((listener, end));
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(settings.drain_timeout, drained).await.is_err() {
        tracing::warn!(count = connections.len(), "connections were broken off at the end of their time");
    }
}

/// Serves one connection to its end. After `shutdown` the request under way is its last.
pub async fn serve_connection(stream: TcpStream, service: HttpService, shutdown: impl Future<Output = ()>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps its small packets back");
    }
    let settings = service.settings.clone();
    let pulse = Arc::new(Pulse::default());
    let answer = service_fn(|request| answer(&service, &pulse, request));
    let io = TokioIo::new(Socket::new(stream, Arc::clone(&pulse)));
    let connection = http1::Builder::new()
        .half_close(true)
        .title_case_headers(true)
        .header_read_timeout(None)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEADER_BYTES_MAX)
        .serve_connection(io, answer);
    let (mut connection, mut shutdown) = (pin!(connection), pin!(shutdown));
    let mut silence = pin!(silence(&pulse, &settings));
    let mut ending = false;
    loop {
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%error, "a connection broke off");
                }
                return;
            }
            () = &mut shutdown, if !ending => {
                ending = true;
                connection.as_mut().graceful_shutdown();
            }
            () = &mut silence => return,
        }
    }
}

async fn answer(service: &HttpService, pulse: &Pulse, request: Request<Incoming>) -> Result<Reply, Infallible> {
    pulse.begun.fetch_add(1, Ordering::Relaxed);
    // A request comes only when the body before it was read to its end.
    pulse.unread.store(false, Ordering::Relaxed);
    let with_body = brings_body(request.body());
    let reply = service.answer(request).await;
    if with_body && reply.status().as_u16() >= StatusCode::BAD_REQUEST.as_u16() {
        pulse.unread.store(true, Ordering::Relaxed);
    }
    pulse.reads_answered.store(pulse.reads.load(Ordering::Relaxed), Ordering::Relaxed);
    pulse.answered.fetch_add(1, Ordering::Relaxed);
    Ok(reply)
}

/// Returns when a client has begun a request and does not go on, or has been silent between requests for too long. One timer
/// for a connection instead of one for each request: a request's headers get between one and two times their timeout.
async fn silence(pulse: &Pulse, settings: &HttpSettings) {
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let mut ticks = tokio::time::interval(settings.header_timeout);
    let mut before = (0, 0, 0);
    let (mut reads_then, mut idle) = (0, Duration::ZERO);
    loop {
        ticks.tick().await;
        let (begun, answered) = (count(&pulse.begun), count(&pulse.answered));
        let now = (begun, count(&pulse.reads), count(&pulse.writes));
        let quiet = begun == answered && (now.0, now.2) == (before.0, before.2);
        if !quiet {
            // Something was asked or sent: from here on, new bytes are the start of a request.
            (reads_then, idle) = (now.1, Duration::ZERO);
        } else if now.1 != reads_then && before.1 != reads_then {
            return;
        } else {
            idle += settings.header_timeout;
            if idle > settings.idle_timeout {
                return;
            }
        }
        before = now;
    }
}

/// Says that there are too many connections, and closes.
async fn turn_away(mut stream: TcpStream) {
    const ANSWER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 17\r\n\
        Retry-After: 1\r\nConnection: close\r\n\r\nError:\noverload\n\n";
    let say = async {
        stream.write_all(ANSWER).await?;
        stream.shutdown().await
    };
    if let Ok(Err(error)) = tokio::time::timeout(Duration::from_secs(1), say).await {
        tracing::debug!(%error, "a connection went before it was turned away");
    }
}
