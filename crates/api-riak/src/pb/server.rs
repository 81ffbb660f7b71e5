//! The listener of protocol buffers.

use std::future::Future;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use larder_gateway::{Error, Gateway};
use larder_http_edge::{
    ClientListener, ClientSocket, ConnectedClient, ConnectionServer, ConnectionSettings, serve_connections,
};

use super::connection::PbConnection;
use super::fault::PbFault;
use super::service::PbSession;

/// Answers the connections of protocol buffers over one gateway.
#[derive(Clone)]
struct PbServer {
    gateway: Arc<Gateway>,
    settings: ConnectionSettings,
}

/// Serves `listener` until `shutdown`. After that it accepts nothing new, finishes the requests under way, and breaks off
/// those that run past the deadline.
pub async fn serve(
    listener: impl Into<ClientListener>,
    gateway: Arc<Gateway>,
    settings: ConnectionSettings,
    shutdown: impl Future<Output = ()>,
) {
    serve_connections(listener, PbServer { gateway, settings }, shutdown).await;
}

impl ConnectionServer for PbServer {
    const NAME: &'static str = "pb";

    fn settings(&self) -> ConnectionSettings {
        self.settings.clone()
    }

    fn refusal() -> Bytes {
        let mut output = BytesMut::new();
        PbFault::Gateway(Error::Overloaded { retry_after: 1 }).put(&mut output);
        output.freeze()
    }

    async fn serve(self, socket: ClientSocket, client: ConnectedClient, ending: impl Future<Output = ()> + Send) {
        let gateway = Arc::clone(&self.gateway);
        let _open = gateway.core.begin_pb_connection();
        let connection = PbConnection {
            socket,
            account: client.account,
            gateway: self.gateway,
            slow_after: self.settings.slow_after,
            idle_timeout: self.settings.idle_timeout,
            input: BytesMut::new(),
            output: BytesMut::new(),
            session: PbSession::new(client.source),
        };
        connection.serve(ending).await;
    }
}
