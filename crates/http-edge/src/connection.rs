//! The life of one connection.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use larder_admission::{ClientAccount, Pace};
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior};

use crate::linger::{Counts, HeadMemory, Pulse, Socket};
use crate::paid::PaidBody;
use crate::{Face, Requester, Settings};

/// How often it is looked whether a client reads.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The client at the other end of a connection.
pub(crate) struct ConnectedClient {
    pub(crate) address: IpAddr,
    pub(crate) account: ClientAccount,
}

/// Serves one connection to its end. After `shutdown` the request under way is its last.
pub(crate) async fn serve_connection<F: Face>(
    stream: TcpStream,
    client: ConnectedClient,
    face: F,
    shutdown: impl Future<Output = ()>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps its small packets back");
    }
    let settings = face.settings();
    let ConnectedClient { address, account } = client;
    let pulse = Arc::new(Pulse::default());
    let answer = service_fn(|request| answer(&face, &pulse, Requester::new(address, &account), request));
    let io = TokioIo::new(Socket::new(stream, Arc::clone(&pulse), HeadMemory::new(account.clone())));
    let connection = http1::Builder::new()
        .half_close(true)
        .title_case_headers(F::WIRE.title_case)
        .header_read_timeout(None)
        .max_headers(F::WIRE.headers_max)
        .max_header_size(F::WIRE.header_bytes_max)
        .serve_connection(io, answer);
    let (mut connection, mut shutdown) = (pin!(connection), pin!(shutdown));
    let mut silence = pin!(silence(&pulse, settings));
    let mut reads_too_slowly = pin!(reads_too_slowly(&pulse));
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
            () = &mut reads_too_slowly => return,
        }
    }
}

async fn answer<F: Face>(
    face: &F,
    pulse: &Pulse,
    requester: Requester<'_>,
    request: Request<Incoming>,
) -> Result<Response<PaidBody<F::Body>>, Infallible> {
    pulse.begin();
    let with_body = !request.body().is_end_stream();
    let mut reply = face.respond(&requester, request).await;
    // It is in memory already; whoever reads it slowly does not keep more there than its share.
    if requester.hold(F::memory_of(reply.body())).await.is_err() {
        reply = face.busy();
    }
    let refused = reply.status().as_u16() >= StatusCode::BAD_REQUEST.as_u16();
    pulse.answered(with_body && refused);
    Ok(reply.map(|body| PaidBody::new(body, requester.into_held())))
}

/// Returns when a client has taken an answer too slowly for too long: below the least rate, and never all of it.
async fn reads_too_slowly(pulse: &Pulse) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut since: Option<(Pace, u64)> = None;
    loop {
        ticks.tick().await;
        if !pulse.is_blocked() {
            since = None;
            continue;
        }
        let sent = pulse.sent();
        let (pace, before) = since.get_or_insert_with(|| (Pace::begin(), sent));
        pace.count(sent.saturating_sub(*before));
        *before = sent;
        if Instant::now() > pace.latest() {
            tracing::debug!("sending an answer: its client reads too slowly, so the connection is closed");
            return;
        }
    }
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
