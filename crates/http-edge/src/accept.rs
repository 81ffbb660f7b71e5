//! The listener: it accepts connections, refuses those above the limit, and drains at the end.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connection::{ConnectedClient, serve_connection};
use crate::requester::UNCOUNTED_BYTES;
use crate::{Acceptor, ConnectionHandler, ConnectionSettings};

/// Memory of an idle connection: its task and its first buffers.
const CONNECTION_BYTES_HELD: u64 = 2 * UNCOUNTED_BYTES;
/// How long a refused client may take to read the 503.
const OVERLOAD_RESPONSE_MAX: Duration = Duration::from_secs(1);

/// Serves `listener` until `shutdown`. After that it accepts nothing new, finishes the requests under way, and breaks off
/// those that run past `drain_timeout`. A connection above the limit is answered 503 and closed.
pub async fn serve<F: ConnectionHandler>(listener: TcpListener, handler: F, shutdown: impl Future<Output = ()>) {
    let ConnectionSettings { connections: limit, memory, drain_timeout, .. } = handler.settings();
    let (end, ending) = watch::channel(());
    let mut acceptor = Acceptor::new(F::DIALECT.name);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, peer) = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = acceptor.next(|| listener.accept()) => accepted,
        };
        let address = peer.ip();
        let account = memory.account(F::DIALECT.name, address);
        let place = limit.admit(F::DIALECT.name, address).zip(account.try_draw(CONNECTION_BYTES_HELD).ok());
        if let Some(place) = place {
            let client = ConnectedClient { address, account };
            let (handler, mut ending) = (handler.clone(), ending.clone());
            connections.spawn(async move {
                // The channel closes when `end` is dropped: each connection then takes its request under way as the last.
                serve_connection(stream, client, handler, async move { while ending.changed().await.is_ok() {} }).await;
                drop(place);
            });
        } else {
            // The listener waits here when the refusals are taken: they hold descriptors out of a fixed reserve.
            let permit = limit.refuse(address).await;
            connections.spawn(async move {
                send_overload_response(stream, F::DIALECT.overload_response).await;
                drop(permit);
            });
        }
    }
    drop((listener, end));
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(drain_timeout, drained).await.is_err() {
        tracing::warn!(count = connections.len(), "drain timed out: the connections still open are broken off");
    }
}

/// Sends the 503 of a connection too many, and closes.
async fn send_overload_response(mut stream: TcpStream, (media, body): (&'static str, &'static str)) {
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: {media}\r\nContent-Length: {}\r\nRetry-After: 1\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let send = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    };
    if let Ok(Err(error)) = tokio::time::timeout(OVERLOAD_RESPONSE_MAX, send).await {
        tracing::debug!(%error, "overload response not sent: the client closed the connection first");
    }
}
