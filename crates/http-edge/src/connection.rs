//! The life of one connection.

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::MissedTickBehavior;

use crate::linger::{Counts, Pulse, Socket};
use crate::{Face, Settings};

/// Serves one connection to its end. After `shutdown` the request under way is its last.
pub async fn serve_connection<F: Face>(stream: TcpStream, face: F, shutdown: impl Future<Output = ()>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps its small packets back");
    }
    let peer = stream.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
    let pulse = Arc::new(Pulse::default());
    let answer = service_fn(|request| answer(&face, &pulse, peer, request));
    let io = TokioIo::new(Socket::new(stream, Arc::clone(&pulse)));
    let connection = http1::Builder::new()
        .half_close(true)
        .title_case_headers(F::WIRE.title_case)
        .header_read_timeout(None)
        .max_headers(F::WIRE.headers_max)
        .max_header_size(F::WIRE.header_bytes_max)
        .serve_connection(io, answer);
    let (mut connection, mut shutdown) = (pin!(connection), pin!(shutdown));
    let mut silence = pin!(silence(&pulse, face.settings()));
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

async fn answer<F: Face>(
    face: &F,
    pulse: &Pulse,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Result<Response<F::Body>, Infallible> {
    pulse.begin();
    let with_body = !request.body().is_end_stream();
    let reply = face.respond(peer, request).await;
    let refused = reply.status().as_u16() >= StatusCode::BAD_REQUEST.as_u16();
    pulse.answered(with_body && refused);
    Ok(reply)
}

/// Returns when a client has begun a request and does not go on, or has been silent between requests for too long. One timer
/// for a connection instead of one for each request: a request's headers get between one and two times their timeout.
async fn silence(pulse: &Pulse, settings: Settings) {
    let mut ticks = tokio::time::interval(settings.header_timeout);
    // When the server was late, clients do not pay for it.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = Counts::default();
    let (mut reads_then, mut idle) = (0, Duration::ZERO);
    loop {
        ticks.tick().await;
        let now = pulse.counts();
        let quiet = now.begun == now.answered && (now.begun, now.writes) == (before.begun, before.writes);
        if !quiet {
            // Something was asked or sent: from here on, new bytes are the start of a request.
            (reads_then, idle) = (now.reads, Duration::ZERO);
        } else if now.reads != reads_then && before.reads != reads_then {
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
