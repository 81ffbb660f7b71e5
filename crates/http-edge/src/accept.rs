//! The listener: it accepts connections within one bound of the process, refuses those above it, and drains at the end.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_admission::{ClientAccount, HeldShare, SharedPermits};
use larder_store::RateLimitedLog;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::ConnectionSettings;
use crate::requester::UNCOUNTED_BYTES;

/// Memory of an idle connection: its task and its first buffers.
const CONNECTION_BYTES_HELD: u64 = 2 * UNCOUNTED_BYTES;
/// How long a refused client may take to read the refusal.
const REFUSAL_MAX: Duration = Duration::from_secs(1);
/// The default bound of a listener.
const CONNECTIONS_MAX: usize = 10_000;
/// Refusals at the same time. Each holds a descriptor until its response is sent, so the process keeps as many in reserve.
/// Further connections wait in the backlog of their listener, a second at most for each client that does not read.
pub const REFUSALS_MAX: usize = 32;
/// The first pause when the system has no descriptor or no memory for a connection; each later one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause: a listener sees free descriptors after it at the latest.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The code that serves the connections of a listener, in any protocol. Each connection takes a clone.
pub trait ConnectionServer: Clone + Send + 'static {
    /// The listener's name in log lines and shares.
    const NAME: &'static str;

    /// Its settings; they do not change.
    fn settings(&self) -> ConnectionSettings;

    /// The bytes that a connection above the limit gets before it is closed.
    fn refusal() -> Bytes;

    /// Serves one connection to its end. After `ending` the request under way is its last.
    fn serve(
        self,
        stream: TcpStream,
        client: ConnectedClient,
        ending: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = ()> + Send;
}

/// The client at the other end of a connection.
#[derive(Debug)]
pub struct ConnectedClient {
    /// Its address.
    pub address: IpAddr,
    /// Its account with the memory budget.
    pub account: ClientAccount,
}

/// Serves `listener` until `shutdown`. After that it accepts nothing new, finishes the requests under way, and breaks off
/// those that run past `drain_timeout`. A connection above the limit gets the server's refusal and is closed.
pub async fn serve_connections<S: ConnectionServer>(
    listener: TcpListener,
    server: S,
    shutdown: impl Future<Output = ()>,
) {
    let ConnectionSettings { connections: limit, memory, drain_timeout, .. } = server.settings();
    let (end, ending) = watch::channel(());
    let mut acceptor = Acceptor::new(S::NAME);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, peer) = tokio::select! {
            () = &mut shutdown => break,
            // Ended connections leave the set at once: it would grow with each client otherwise.
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = acceptor.next(|| listener.accept()) => accepted,
        };
        let address = peer.ip();
        let account = memory.account(S::NAME, address);
        // Place and memory together: a connection gets both, or the refusal.
        let place = limit.admit(S::NAME, address).zip(account.try_draw(CONNECTION_BYTES_HELD).ok());
        if let Some(place) = place {
            let client = ConnectedClient { address, account };
            let (server, mut ending) = (server.clone(), ending.clone());
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "failed to set TCP_NODELAY: small packets of this connection may wait");
            }
            connections.spawn(async move {
                // The channel closes when `end` is dropped: each connection then takes its request under way as the last.
                server.serve(stream, client, async move { while ending.changed().await.is_ok() {} }).await;
                drop(place);
            });
        } else {
            // The listener waits here when the refusals are taken: they hold descriptors out of a fixed reserve.
            let permit = limit.refuse(address).await;
            connections.spawn(async move {
                send_refusal(stream, &S::refusal()).await;
                drop(permit);
            });
        }
    }
    // The listener closes first: a client that connects now is refused, not left waiting.
    drop((listener, end));
    let drained = async { while connections.join_next().await.is_some() {} };
    // Bound: a slow client must not hold up the end of the server.
    if tokio::time::timeout(drain_timeout, drained).await.is_err() {
        tracing::warn!(count = connections.len(), "drain timed out: the connections still open are broken off");
    }
}

/// Sends the refusal of a connection too many, and closes.
async fn send_refusal(mut stream: TcpStream, refusal: &[u8]) {
    let send = async {
        stream.write_all(refusal).await?;
        stream.shutdown().await
    };
    if let Ok(Err(error)) = tokio::time::timeout(REFUSAL_MAX, send).await {
        tracing::debug!(%error, "refusal not sent: the client closed the connection first");
    }
}

/// The bound that all listeners of a process share. Clones are the same bound.
#[derive(Debug, Clone)]
pub struct ConnectionLimit(Arc<SharedConnectionLimit>);

#[derive(Debug)]
struct SharedConnectionLimit {
    open: SharedPermits,
    refusals: Arc<Semaphore>,
    log: RateLimitedLog,
    started: Instant,
}

/// The place of one connection; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(#[expect(dead_code, reason = "held, not read")] HeldShare);

impl ConnectionLimit {
    /// At most `max` connections at a time.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self(Arc::new(SharedConnectionLimit {
            open: SharedPermits::new(max),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
            log: RateLimitedLog::new(),
            started: Instant::now(),
        }))
    }

    /// The place of one more connection from this address; `None`: the bound is reached, and the caller refuses it.
    pub(crate) fn admit(&self, listener: &'static str, address: IpAddr) -> Option<ConnectionPermit> {
        self.0.open.gates(listener, address).try_acquire(1).map(ConnectionPermit)
    }

    /// Waits for the place of a refusal, and logs refusals at a bounded rate.
    pub(crate) async fn refuse(&self, address: IpAddr) -> Option<OwnedSemaphorePermit> {
        if let Some(line) = self.0.log.admit(self.0.started.elapsed()) {
            tracing::warn!(
                max = self.0.open.max(),
                open = self.0.open.held(),
                %address,
                left_out = line.left_out,
                "connection refused: the server, its listener or its address is at its share of connections or memory"
            );
        }
        self.0.refusals.clone().acquire_owned().await.ok()
    }
}

impl Default for ConnectionLimit {
    fn default() -> Self {
        Self::new(CONNECTIONS_MAX)
    }
}

/// Accepts connections of one listener. After a failure it pauses, longer each time, and logs at a bounded rate.
#[derive(Debug)]
pub struct Acceptor {
    listener: &'static str,
    started: Instant,
    not_before: Instant,
    pause: Duration,
    log: RateLimitedLog,
}

impl Acceptor {
    /// An acceptor for the listener of this name in log lines.
    #[must_use]
    pub fn new(listener: &'static str) -> Self {
        let started = Instant::now();
        Self { listener, started, not_before: started, pause: PAUSE_MIN, log: RateLimitedLog::new() }
    }

    /// The next connection, however long it takes. A dropped call loses no connection, and its pause continues in the next
    /// call.
    pub async fn next<C, F>(&mut self, mut accept: impl FnMut() -> F) -> C
    where
        F: Future<Output = io::Result<C>>,
    {
        loop {
            if self.not_before > Instant::now() {
                sleep_until(self.not_before).await;
            }
            match accept().await {
                Ok(connection) => {
                    self.pause = PAUSE_MIN;
                    return connection;
                }
                // The error belongs to that client alone: the next accept needs no pause.
                Err(error) if is_of_one_connection(&error) => {
                    tracing::debug!(%error, "connection not accepted: the client closed it first");
                }
                Err(error) => self.back_off(&error),
            }
        }
    }

    /// Without descriptors (EMFILE, ENFILE) or memory (ENOBUFS, ENOMEM) the next try fails too, until others release some.
    fn back_off(&mut self, error: &io::Error) {
        let now = Instant::now();
        if let Some(line) = self.log.admit(now - self.started) {
            tracing::warn!(
                listener = self.listener,
                %error,
                left_out = line.left_out,
                "connection not accepted: the listener tries again in {} ms",
                self.pause.as_millis()
            );
        }
        self.not_before = now + self.pause;
        self.pause = PAUSE_MAX.min(self.pause * 2);
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    /// "Too many open files", on Linux.
    const EMFILE: i32 = 24;

    #[tokio::test(start_paused = true)]
    async fn accept_errors_pause_longer_each_time_and_end_with_a_connection() {
        let mut acceptor = Acceptor::new("test");
        let started = Instant::now();
        let mut tries = Vec::new();
        let mut accept = || {
            tries.push(started.elapsed().as_millis());
            ready(if tries.len() < 9 { Err(io::Error::from_raw_os_error(EMFILE)) } else { Ok(tries.len()) })
        };
        assert_eq!(acceptor.next(&mut accept).await, 9);
        assert_eq!(acceptor.next(&mut accept).await, 10);
        assert_eq!(tries, [0, 50, 150, 350, 750, 1550, 2550, 3550, 4550, 4550]);
        assert_eq!(acceptor.pause, PAUSE_MIN, "after a connection the first pause is short again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_wait_does_not_shorten_the_pause() {
        let mut acceptor = Acceptor::new("test");
        let mut tries = 0;
        let mut accept = || {
            tries += 1;
            ready(Err::<(), _>(io::Error::from_raw_os_error(EMFILE)))
        };
        // As if another branch of the listener's loop became ready every millisecond.
        for _ in 0..1000 {
            let _ = tokio::time::timeout(Duration::from_millis(1), acceptor.next(&mut accept)).await;
        }
        assert!(tries <= 6, "{tries} tries in a second");
    }

    #[tokio::test(start_paused = true)]
    async fn an_aborted_connection_does_not_delay_the_next_one() {
        let mut acceptor = Acceptor::new("test");
        let started = Instant::now();
        let mut tries = 0;
        let accept = || {
            tries += 1;
            ready(if tries == 1 { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) })
        };
        acceptor.next(accept).await;
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}
