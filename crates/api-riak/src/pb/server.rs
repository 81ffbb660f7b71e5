//! The listener of protocol buffers.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use larder_admission::ClientAccount;
use larder_core::Error;
use larder_kv::Gateway;
use larder_net::{
    ClientListener, ClientSocket, ConnectedClient, ConnectionServer, ConnectionSettings, ListenerWork, ServerTls,
    ShutdownRequest, serve_connections,
};

use super::connection::PbConnection;
use super::fault::PbFault;
use super::session::PbSession;

/// Settings of the listener of protocol buffers.
#[derive(Clone, Default)]
pub struct PbSettings {
    /// The settings that every listener has.
    pub connection: ConnectionSettings,
    /// The encryption of connections that begin in clear, while security is on; `None`: they cannot be encrypted.
    pub tls: Option<ServerTls>,
}

impl From<ConnectionSettings> for PbSettings {
    fn from(connection: ConnectionSettings) -> Self {
        Self { connection, tls: None }
    }
}

/// Answers the connections of protocol buffers over one gateway.
#[derive(Clone)]
struct PbServer {
    gateway: Arc<Gateway>,
    settings: PbSettings,
}

/// Serves `listener` until `shutdown`. After that it accepts nothing new, finishes the requests under way, and breaks off
/// those that run past the deadline.
#[must_use]
pub fn serve(
    listener: ClientListener,
    gateway: Arc<Gateway>,
    settings: PbSettings,
    shutdown: ShutdownRequest,
) -> ListenerWork {
    serve_connections(listener, PbServer { gateway, settings }, shutdown)
}

impl ConnectionServer for PbServer {
    const NAME: &'static str = "pb";

    fn settings(&self) -> ConnectionSettings {
        self.settings.connection.clone()
    }

    fn refusal() -> Bytes {
        let mut output = BytesMut::new();
        PbFault::Gateway(Error::Overloaded { retry_after: 1 }).put(&mut output);
        output.freeze()
    }

    async fn serve(self, socket: ClientSocket, client: ConnectedClient, ending: impl Future<Output = ()> + Send) {
        let gateway = Arc::clone(&self.gateway);
        let _open = gateway.context().begin_pb_connection();
        let ConnectedClient { source, account } = client;
        let mut session = PbSession::new(source);
        session.offers_tls = self.settings.tls.is_some();
        session.common_name = socket.common_name();
        let mut connection = self.connection(socket, account, session);
        let mut ending = pin!(ending);
        if !connection.serve(ending.as_mut()).await {
            return;
        }
        let (Some(tls), PbConnection { socket, account, mut session, .. }) = (&self.settings.tls, connection) else {
            return;
        };
        let started = tokio::select! {
            started = tls.start(socket, &account) => started,
            // A client in the midst of its handshake must not hold up the end of the server.
            () = ending.as_mut() => return,
        };
        let (socket, _held) = match started {
            Ok(started) => started,
            Err(error) => return tracing::debug!(%error, address = %source.address, "no TLS with this client"),
        };
        session.source.secure = true;
        session.common_name = socket.common_name();
        self.connection(socket, account, session).serve(ending).await;
    }
}

impl PbServer {
    fn connection(
        &self,
        socket: ClientSocket,
        account: ClientAccount,
        session: PbSession,
    ) -> PbConnection<ClientSocket> {
        PbConnection {
            socket,
            account,
            gateway: Arc::clone(&self.gateway),
            slow_after: self.settings.connection.slow_after,
            idle_timeout: self.settings.connection.idle_timeout,
            input: BytesMut::new(),
            output: BytesMut::new(),
            session,
        }
    }
}
