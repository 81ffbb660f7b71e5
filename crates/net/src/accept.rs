//! The listener: it accepts connections within one bound of the process, refuses those above it, and drains at the end.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use larder_admission::{ClientAccount, HeldMemory};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ConnectionSettings;
use crate::acceptor::Acceptor;
use crate::client_socket::{ClientListener, ClientSocket};
use crate::connection_limit::ConnectionPermit;
use crate::proxy_header::take_proxy_header;
use crate::request_source::RequestSource;
use crate::requester::UNCOUNTED_BYTES;
use crate::server_tls::{ENCRYPTION_BYTES_HELD, ServerTls};

/// Memory of an idle connection: its task and its first buffers.
const CONNECTION_BYTES_HELD: u64 = 2 * UNCOUNTED_BYTES;
/// The same of an encrypted one: a record of each direction, what waits to be sent, and the keys.
const ENCRYPTED_BYTES_HELD: u64 = CONNECTION_BYTES_HELD + ENCRYPTION_BYTES_HELD;
/// How long a refused client may take to read the refusal.
const REFUSAL_MAX: Duration = Duration::from_secs(1);

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
        socket: ClientSocket,
        client: ConnectedClient,
        ending: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = ()> + Send;
}

/// The client at the other end of a connection.
#[derive(Debug)]
pub struct ConnectedClient {
    /// Its address. Of a proxy that named no client it is the proxy's.
    pub source: RequestSource,
    /// Its account with the memory budget.
    pub account: ClientAccount,
}

/// Completes when a listener has to end.
pub type ShutdownRequest = BoxFuture<'static, ()>;

/// The work of a listener until its end. It is boxed: the compiler then builds the futures of a protocol once, in the crate of the
/// protocol, and not again in each crate that starts a listener.
pub type ListenerWork = BoxFuture<'static, ()>;

/// Serves `listener` until `shutdown`. After that it accepts nothing new, finishes the requests under way, and breaks off
/// those that run past `drain_timeout`. A connection above the limit gets the server's refusal and is closed.
pub fn serve_connections<S: ConnectionServer>(
    listener: ClientListener,
    server: S,
    shutdown: ShutdownRequest,
) -> ListenerWork {
    Box::pin(accept_until(listener, server, shutdown))
}

async fn accept_until<S: ConnectionServer>(listener: ClientListener, server: S, mut shutdown: ShutdownRequest) {
    let ClientListener { tcp: listener, tls } = listener;
    let settings = server.settings();
    let drain_timeout = settings.drain_timeout;
    let (end, ending) = watch::channel(());
    let accepted = AcceptedConnections { server, settings, tls, ending };
    let mut acceptor = Acceptor::new(S::NAME);
    let mut connections = JoinSet::new();
    loop {
        let (stream, peer) = tokio::select! {
            () = &mut shutdown => break,
            // Ended connections leave the set at once: it would grow with each client otherwise.
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = acceptor.next(|| listener.accept()) => accepted,
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "failed to set TCP_NODELAY: small packets of this connection may wait");
        }
        let peer = RequestSource::plain(peer.ip());
        let is_proxy = accepted.settings.proxies.contains(peer.address);
        let limit = &accepted.settings.connections;
        match accepted.admit(peer, is_proxy) {
            Some((place, account)) if is_proxy => {
                connections.spawn(accepted.clone().serve_proxied(stream, peer, account, place));
            }
            Some((place, account)) => {
                let client = ConnectedClient { source: peer, account };
                connections.spawn(accepted.clone().serve(stream, client, place));
            }
            None => {
                // The listener waits here when the refusals are taken: they hold descriptors out of a fixed reserve.
                let permit = limit.refuse(peer.address).await;
                let is_encrypted = accepted.tls.is_some();
                connections.spawn(async move {
                    send_refusal::<S>(stream, is_encrypted).await;
                    drop(permit);
                });
            }
        }
    }
    // The listener closes first: a client that connects now is refused, not left waiting.
    drop((listener, end, accepted));
    let drained = async { while connections.join_next().await.is_some() {} };
    // Bound: a slow client must not hold up the end of the server.
    if tokio::time::timeout(drain_timeout, drained).await.is_err() {
        tracing::warn!(count = connections.len(), "drain timed out: the connections still open are broken off");
    }
}

/// A listener, as each of its connections needs it.
#[derive(Clone)]
struct AcceptedConnections<S> {
    server: S,
    settings: ConnectionSettings,
    tls: Option<ServerTls>,
    /// Closed at the end of the server.
    ending: watch::Receiver<()>,
}

/// The place of a connection among all, and its memory.
type ConnectionPlace = (ConnectionPermit, HeldMemory);

impl<S: ConnectionServer> AcceptedConnections<S> {
    /// Place and memory together: a connection gets both, or the refusal. A proxy's connections are those of many clients, so they
    /// have no share by address.
    fn admit(&self, peer: RequestSource, is_proxy: bool) -> Option<(ConnectionPlace, ClientAccount)> {
        let ConnectionSettings { connections: limit, memory, .. } = &self.settings;
        let (permit, account) = match is_proxy {
            false => (limit.admit(S::NAME, peer.address)?, memory.account(S::NAME, peer.address)),
            true => (limit.admit_proxy(S::NAME)?, memory.account_of_proxy(S::NAME)),
        };
        let bytes = if self.tls.is_some() { ENCRYPTED_BYTES_HELD } else { CONNECTION_BYTES_HELD };
        let held = account.try_draw(bytes).ok()?;
        Some(((permit, held), account))
    }

    async fn serve(self, stream: TcpStream, mut client: ConnectedClient, place: impl Send) {
        let mut ending = self.ending;
        let socket = match &self.tls {
            None => ClientSocket::Plain(stream),
            Some(tls) => {
                let accepted = tokio::select! {
                    accepted = tls.accept(stream) => accepted,
                    // A client in the midst of its handshake must not hold up the end of the server.
                    _ = ending.changed() => return,
                };
                match accepted {
                    Ok(socket) => socket,
                    Err(error) => {
                        return tracing::debug!(%error, address = %client.source.address, "no TLS with this client");
                    }
                }
            }
        };
        client.source.secure |= socket.is_encrypted();
        // The channel closes when its sender is dropped: each connection then takes its request under way as the last.
        self.server.serve(socket, client, async move { while ending.changed().await.is_ok() {} }).await;
        drop(place);
    }

    /// Serves the connection of a trusted proxy, in the name of the client in its PROXY header.
    async fn serve_proxied(
        self,
        mut stream: TcpStream,
        peer: RequestSource,
        account: ClientAccount,
        place: ConnectionPlace,
    ) {
        let mut ending = self.ending.clone();
        let named = tokio::select! {
            named = take_proxy_header(&mut stream, self.settings.idle_timeout) => named,
            // A proxy that has sent nothing must not hold up the end of the server.
            _ = ending.changed() => return,
        };
        let source = match named {
            Ok(Some(source)) => source,
            Ok(None) => return self.serve(stream, ConnectedClient { source: peer, account }, place).await,
            Err(error) => return self.settings.connections.log_bad_proxy(peer.address, &error),
        };
        let share = self.settings.connections.admit_behind_proxy(source.address);
        if share.is_none() {
            let permit = self.settings.connections.refuse(source.address).await;
            send_refusal::<S>(stream, self.tls.is_some()).await;
            return drop(permit);
        }
        let account = self.settings.memory.account(S::NAME, source.address);
        self.serve(stream, ConnectedClient { source, account }, (place, share)).await;
    }
}

/// Sends the refusal of a connection too many, and closes. A client that waits for a handshake could not read it.
async fn send_refusal<S: ConnectionServer>(mut stream: TcpStream, is_encrypted: bool) {
    let send = async {
        if !is_encrypted {
            stream.write_all(&S::refusal()).await?;
        }
        stream.shutdown().await
    };
    if let Ok(Err(error)) = tokio::time::timeout(REFUSAL_MAX, send).await {
        tracing::debug!(%error, "refusal not sent: the client closed the connection first");
    }
}
