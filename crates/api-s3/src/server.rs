//! Sockets: accepting, the life of a connection, and its end.

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use larder_gateway::objects::Objects;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::linger::{Pulse, Socket};
use crate::pipeline::S3Service;
use crate::reply::Reply;

/// Most header lines of a request.
const HEADERS_MAX: usize = 256;
/// Most bytes of a request's line and headers: a key of 1 KiB escaped, 2 KiB of metadata, a presigned query with a token.
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// How long to wait when no socket can be accepted, for instance for want of file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Settings of the S3 listener.
#[derive(Debug, Clone)]
pub struct S3Settings {
    /// Root hosts: what stands in front of one is a bucket.
    pub roots: Vec<String>,
    /// The only region that signatures may be for; `None`: any.
    pub region: Option<String>,
    /// Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
    pub proxies: Vec<IpAddr>,
    /// Whether anybody may create users, as Riak CS lets the first administrator in.
    pub anonymous_user_creation: bool,
    /// Most connections at a time; one more is answered 503 and closed.
    pub connections_max: usize,
    /// How long the headers of a request may take once they have begun.
    pub header_timeout: Duration,
    /// How long a connection may stay open with nothing on it.
    pub idle_timeout: Duration,
    /// How long requests may take that run when the server is told to end.
    pub drain_timeout: Duration,
}

impl Default for S3Settings {
    fn default() -> Self {
        Self {
            roots: vec!["s3.localhost".into(), "localhost".into()],
            region: None,
            proxies: Vec::new(),
            anonymous_user_creation: false,
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
    objects: Arc<Objects>,
    settings: S3Settings,
    shutdown: impl Future<Output = ()>,
) {
    let service = S3Service::new(objects, settings);
    let settings = Arc::clone(service.settings());
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
pub async fn serve_connection(stream: TcpStream, service: S3Service, shutdown: impl Future<Output = ()>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps its small packets back");
    }
    let peer = stream.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
    let settings = Arc::clone(service.settings());
    let pulse = Arc::new(Pulse::default());
    let answer = service_fn(|request| answer(&service, &pulse, peer, request));
    let io = TokioIo::new(Socket::new(stream, Arc::clone(&pulse)));
    let connection = http1::Builder::new()
        .half_close(true)
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

async fn answer(
    service: &S3Service,
    pulse: &Pulse,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Result<Reply, Infallible> {
    pulse.begun.fetch_add(1, Ordering::Relaxed);
    // A request comes only when the body before it was read to its end.
    pulse.unread.store(false, Ordering::Relaxed);
    let with_body = !request.body().is_end_stream();
    let reply = service.answer(peer, request).await;
    if with_body && reply.status().as_u16() >= StatusCode::BAD_REQUEST.as_u16() {
        pulse.unread.store(true, Ordering::Relaxed);
    }
    pulse.reads_answered.store(pulse.reads.load(Ordering::Relaxed), Ordering::Relaxed);
    pulse.answered.fetch_add(1, Ordering::Relaxed);
    Ok(reply)
}

/// Returns when a client has begun a request and does not go on, or has been silent between requests for too long. One timer
/// for a connection instead of one for each request: a request's headers get between one and two times their timeout.
async fn silence(pulse: &Pulse, settings: &S3Settings) {
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
    const BODY: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>SlowDown</Code><Message>Please reduce your \
                        request rate.</Message></Error>";
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/xml\r\nContent-Length: {}\r\nRetry-After: \
         1\r\nConnection: close\r\n\r\n{BODY}",
        BODY.len()
    );
    let say = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    };
    if let Ok(Err(error)) = tokio::time::timeout(Duration::from_secs(1), say).await {
        tracing::debug!(%error, "a connection went before it was turned away");
    }
}
