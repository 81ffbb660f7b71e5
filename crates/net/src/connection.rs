//! One connection, from its first byte to its close.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::MissedTickBehavior;

use crate::accept::{ConnectedClient, ConnectionServer, ListenerWork, ShutdownRequest, serve_connections};
use crate::client_socket::{ClientListener, ClientSocket};
use crate::lingering_close::{ActivityCounts, ConnectionActivity, LingeringSocket};
use crate::request_answer::{answer, forwarded};
use crate::watchers::{ConnectionWatchers, wait_for_slow_reader};
use crate::{ConnectionHandler, ConnectionSettings, http2};

/// A listener of HTTP over its handler.
struct HttpServer<F>(F);

/// Serves HTTP on `listener` until `shutdown`, as [`serve_connections`] does; a connection above the limit is answered 503.
pub fn serve<F: ConnectionHandler>(listener: ClientListener, handler: F, shutdown: ShutdownRequest) -> ListenerWork {
    serve_connections(listener, HttpServer(handler), shutdown)
}

impl<F: ConnectionHandler> Clone for HttpServer<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<F: ConnectionHandler> ConnectionServer for HttpServer<F> {
    const NAME: &'static str = F::DIALECT.name;

    fn settings(&self) -> ConnectionSettings {
        self.0.settings()
    }

    fn refusal() -> Bytes {
        let (media, body) = F::DIALECT.overload_response;
        let answer = format!(
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: {media}\r\nContent-Length: {}\r\nRetry-After: 1\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        answer.into()
    }

    async fn serve(self, socket: ClientSocket, client: ConnectedClient, ending: impl Future<Output = ()> + Send) {
        serve_connection(socket, client, self.0, ending).await;
    }
}

/// Serves one connection to its end. After `shutdown` the request under way is its last.
async fn serve_connection<F: ConnectionHandler>(
    socket: ClientSocket,
    client: ConnectedClient,
    handler: F,
    shutdown: impl Future<Output = ()> + Send,
) {
    if socket.speaks_http2() {
        return http2::serve(socket, client, handler, shutdown).await;
    }
    let settings = handler.settings();
    let activity = Arc::new(ConnectionActivity::default());
    // A client that a PROXY header names is no proxy, unless it is in the list itself: its headers are not believed.
    let is_proxy = settings.proxies.contains(client.source.address);
    let named_client = |request: &Request<Incoming>| is_proxy.then(|| forwarded::<F>(&client, request, &settings));
    let answer = service_fn(|request| answer(&handler, &activity, &client, named_client(&request), request));
    let socket = LingeringSocket::new(socket, Arc::clone(&activity)).with_heads(client.account.clone());
    let io = TokioIo::new(socket);
    let connection = http1::Builder::new()
        // Some clients close their writing side after the request and still read the answer.
        .half_close(true)
        // Every answer has a date of ours.
        .auto_date_header(false)
        .title_case_headers(F::DIALECT.title_case)
        // `wait_for_silence` bounds the headers instead, with one timer for the whole connection.
        .header_read_timeout(None)
        .max_headers(F::DIALECT.headers_max)
        .max_header_size(F::DIALECT.header_bytes_max)
        .serve_connection(io, answer);
    let mut connection = pin!(connection);
    let mut watchers = ConnectionWatchers::new();
    watchers.add(async {
        shutdown.await;
        ConnectionEvent::Shutdown
    });
    watchers.add(async {
        wait_for_silence(&activity, &settings).await;
        ConnectionEvent::TooSlow
    });
    watchers.add(async {
        wait_for_slow_reader(|| (activity.is_blocked(), activity.sent())).await;
        ConnectionEvent::TooSlow
    });
    loop {
        tokio::select! {
            biased;
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%error, "connection broke off");
                }
                return;
            }
            event = watchers.next() => match event {
                // Keep-alive ends here; the request under way is still answered.
                ConnectionEvent::Shutdown => connection.as_mut().graceful_shutdown(),
                ConnectionEvent::TooSlow => return,
            },
        }
    }
}

/// An event beside the requests of a connection.
enum ConnectionEvent {
    /// The server ends.
    Shutdown,
    /// The client is silent for too long, or reads below the least rate.
    TooSlow,
}

/// Returns when a client stops in the middle of a request's headers, or is silent between requests for too long. One timer
/// serves the whole connection, so the headers of a request get between one and two times their timeout.
async fn wait_for_silence(activity: &ConnectionActivity, settings: &ConnectionSettings) {
    let mut ticks = tokio::time::interval(settings.header_timeout);
    // A late tick of a busy server must not shorten the time of its clients.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = ActivityCounts::default();
    let (mut reads_then, mut idle) = (0, Duration::ZERO);
    loop {
        ticks.tick().await;
        let now = activity.counts();
        let quiet = now.begun == now.answered && (now.begun, now.writes) == (before.begun, before.writes);
        if !quiet {
            // A request or a response moved: from here on, new bytes are the start of a request.
            (reads_then, idle) = (now.reads, Duration::ZERO);
        } else if now.reads != reads_then && before.reads != reads_then {
            // Bytes were there at the last tick, and no request followed: the client stopped within the headers.
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
