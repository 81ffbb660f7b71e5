//! The listener: it accepts, turns away, and drains.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connection::{ConnectedClient, serve_connection};
use crate::requester::UNCOUNTED_BYTES;
use crate::{Acceptor, Face, Settings};

/// A connection with nothing on it: its task, and the buffers that it begins with.
const CONNECTION_BYTES_HELD: u64 = 2 * UNCOUNTED_BYTES;
/// How long a client may take to hear that there are too many.
const TURN_AWAY_MAX: Duration = Duration::from_secs(1);

/// Serves `listener` until `shutdown`: then nothing new is accepted, requests under way are finished, and what is not
/// finished by the deadline is broken off. A connection above the limit is answered 503 and closed.
pub async fn serve<F: Face>(listener: TcpListener, face: F, shutdown: impl Future<Output = ()>) {
    let Settings { connections: limit, memory, drain_timeout, .. } = face.settings();
    let (end, ending) = watch::channel(());
    let mut acceptor = Acceptor::new(F::WIRE.name);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, peer) = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = acceptor.next(|| listener.accept()) => accepted,
        };
        let address = peer.ip();
        let account = memory.account(F::WIRE.name, address);
        let place = limit.admit(F::WIRE.name, address).zip(account.try_draw(CONNECTION_BYTES_HELD).ok());
        if let Some(place) = place {
            let client = ConnectedClient { address, account };
            let (face, mut ending) = (face.clone(), ending.clone());
            connections.spawn(async move {
                // The channel closes when the server ends.
                serve_connection(stream, client, face, async move { while ending.changed().await.is_ok() {} }).await;
                drop(place);
            });
        } else {
            let permit = limit.refuse(address).await;
            connections.spawn(async move {
                turn_away(stream, F::WIRE.turned_away).await;
                drop(permit);
            });
        }
    }
    drop((listener, end));
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(drain_timeout, drained).await.is_err() {
        tracing::warn!(count = connections.len(), "connections were broken off at the end of their time");
    }
}

/// Says that there are too many connections, and closes.
async fn turn_away(mut stream: TcpStream, (media, body): (&'static str, &'static str)) {
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: {media}\r\nContent-Length: {}\r\nRetry-After: 1\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let say = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    };
    if let Ok(Err(error)) = tokio::time::timeout(TURN_AWAY_MAX, say).await {
        tracing::debug!(%error, "a connection went before it was turned away");
    }
}
