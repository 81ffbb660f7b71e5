//! A server over an in-process gateway, and requests that the tests may change after they are signed.

use std::sync::Arc;

use larder_api_s3::{S3Settings, serve};
use larder_core::{Config, GatewayPorts};
use larder_kv::Gateway;
use larder_rows::ActorId;
use larder_s3::users::Users;
use larder_s3::{Objects, ObjectsConfig};
use larder_store::memory::MemoryStore;
use larder_store::{Store, SystemClock};
use larder_testkit::BackgroundServer;
use larder_testkit::http::{HttpConnection, HttpRequest, HttpResponse};
use larder_testkit::s3::S3Signer;

pub(crate) const KEY: &str = "ADMIN-KEY";
pub(crate) const SECRET: &str = "admin-secret";

/// A running server.
pub(crate) struct S3TestServer {
    background: BackgroundServer,
    pub(crate) gateway: Arc<Gateway>,
    /// Its users, as its requests find them.
    pub(crate) users: Arc<Users>,
}

impl S3TestServer {
    pub(crate) fn start() -> Self {
        Self::start_with(Config::default(), S3Settings::default())
    }

    pub(crate) fn start_with(config: Config, settings: S3Settings) -> Self {
        let clock = Arc::new(SystemClock::default());
        let memory = Arc::new(MemoryStore::new(clock.clone()));
        Self::start_over(memory.clone(), memory, clock, |bytes| bytes.fill(7), config, settings)
    }

    /// A server that stores rows in `store` and bodies in `blobs`, and draws keys and secrets from `random`.
    pub(crate) fn start_over(
        store: Arc<dyn Store>,
        blobs: Arc<MemoryStore>,
        clock: Arc<SystemClock>,
        random: fn(&mut [u8]),
        config: Config,
        settings: S3Settings,
    ) -> Self {
        let ports = GatewayPorts {
            random,
            store,
            blobs,
            clock,
            actor: ActorId(7),
            engine: Arc::new("memory"),
            scripts: None,
            audit: None,
            certificate: None,
            webhooks: None,
            product: larder_s3::S3Catalogue::empty(),
        };
        let (background, (gateway, users)) = BackgroundServer::start(async |listener, stop| {
            let gateway = Gateway::start(ports, config).await.unwrap();
            let objects =
                Objects::new(Arc::clone(gateway.shared()), vec![gateway.kv.clone()], ObjectsConfig::default());
            objects.users.ensure_admin(Some((KEY.into(), SECRET.into()))).await.unwrap();
            ((gateway, Arc::clone(&objects.users)), serve(vec![listener.into()], objects, settings, stop))
        });
        Self { background, gateway, users }
    }

    pub(crate) fn connect(&self) -> HttpConnection {
        HttpConnection::open(self.background.address)
    }

    /// Sends one signed request on a new connection.
    pub(crate) fn ask(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpResponse {
        self.ask_text(&signed_v2(method, target, headers, Some(body.len())), body)
    }

    /// Sends one request verbatim on a new connection.
    pub(crate) fn ask_text(&self, head: &str, body: &[u8]) -> HttpResponse {
        self.connect().exchange([head.as_bytes(), body].concat()).expect("an answer")
    }

    pub(crate) fn stop(self) {
        self.background.stop(self.gateway.shutdown());
    }
}

/// The signer of the administrator.
pub(crate) fn admin() -> S3Signer {
    S3Signer::new(KEY, SECRET)
}

/// The head of a path-style request signed with version 2.
pub(crate) fn signed_v2(method: &str, target: &str, headers: &[(&str, &str)], length: Option<usize>) -> String {
    head(admin().v2(method, target, headers), length)
}

/// The head of a request signed with version 4. `payload` is the payload hash.
pub(crate) fn signed_v4(
    method: &str,
    path: &str,
    payload: &str,
    headers: &[(&str, &str)],
    length: Option<usize>,
) -> String {
    head(admin().v4(method, path, payload, headers), length)
}

fn head(request: HttpRequest, length: Option<usize>) -> String {
    match length {
        Some(length) => request.header("Content-Length", &length.to_string()).head(),
        None => request.head(),
    }
}
