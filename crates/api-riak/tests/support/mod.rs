//! A server over a gateway in this process, and a client that speaks bytes.

#![allow(dead_code, reason = "each test binary uses a part")]

use larder_model::ActorId;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use larder_api_riak::http::{HttpSettings, serve};
use larder_gateway::{Config, Gateway, GatewayPorts};
use larder_store::memory::MemoryStore;
use larder_store::{Store, SystemClock};

/// Longest wait of a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running server.
pub(crate) struct RiakServer {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) address: SocketAddr,
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl RiakServer {
    pub(crate) async fn start() -> Self {
        Self::start_with(Config::default(), HttpSettings::default()).await
    }

    pub(crate) async fn start_with(config: Config, settings: HttpSettings) -> Self {
        let clock = Arc::new(SystemClock::default());
        let memory = Arc::new(MemoryStore::new(clock.clone()));
        Self::start_over(memory.clone(), memory, clock, config, settings).await
    }

    /// A server that stores rows in `store` and bodies in `blobs`.
    pub(crate) async fn start_over(
        store: Arc<dyn Store>,
        blobs: Arc<MemoryStore>,
        clock: Arc<SystemClock>,
        config: Config,
        settings: HttpSettings,
    ) -> Self {
        let ports = GatewayPorts {
            random: |bytes| bytes.fill(7),
            store,
            blobs,
            clock,
            actor: ActorId(7),
            engine: Arc::new("memory"),
        };
        let gateway = Gateway::start(ports, config).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let task = tokio::spawn(serve(listener, gateway.clone(), settings, async {
            let _ = ended.await;
        }));
        Self { gateway, address, end, task }
    }

    pub(crate) async fn connect(&self) -> RiakClient {
        RiakClient { stream: TcpStream::connect(self.address).await.unwrap(), read: Vec::new() }
    }

    pub(crate) async fn make_type(&self, name: &str, props: &str, active: bool) {
        let name = Bytes::copy_from_slice(name.as_bytes());
        self.gateway.types.create(&name, &serde_json::from_str(props).unwrap()).await.unwrap();
        if active {
            self.gateway.types.activate(&name).await.unwrap();
        }
    }

    pub(crate) async fn stop(self) {
        let _ = self.end.send(());
        tokio::time::timeout(PATIENCE, self.task).await.expect("the server did not end").unwrap();
        self.gateway.shutdown().await;
    }
}

/// A received answer.
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl RawResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

impl std::fmt::Display for RawResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.status)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {value}")?;
        }
        write!(f, "\n{}", String::from_utf8_lossy(&self.body))
    }
}

/// A connection.
pub(crate) struct RiakClient {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl RiakClient {
    /// Sends a request and receives its answer; reconnects when the server closes.
    pub(crate) async fn send(&mut self, server: &RiakServer, request: &[u8], is_head: bool) -> RawResponse {
        self.stream.write_all(request).await.unwrap();
        let response = self.receive(is_head).await.expect("no answer");
        if response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            *self = server.connect().await;
        }
        let headers = response.headers.into_iter().filter(|(name, _)| !name.eq_ignore_ascii_case("connection"));
        RawResponse { headers: headers.collect(), ..response }
    }

    /// Receives an answer; `None` when the connection ends before one begins.
    pub(crate) async fn receive(&mut self, is_head: bool) -> Option<RawResponse> {
        tokio::time::timeout(PATIENCE, self.next(is_head)).await.expect("no answer in time")
    }

    async fn next(&mut self, is_head: bool) -> Option<RawResponse> {
        let end = loop {
            match self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                Some(end) => break end,
                None if self.more().await => {}
                None => return None,
            }
        };
        let head = String::from_utf8_lossy(&self.read[..end]).into_owned();
        self.read.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let split = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
        let headers: Vec<_> = lines
            .map(|line| split(line).unwrap_or_else(|| (line.trim_end_matches(':').into(), String::new())))
            .collect();
        let mut response = RawResponse { status, headers, body: Vec::new() };
        let bare = is_head || matches!(status, 100 | 204 | 304);
        if !bare && response.header("transfer-encoding").is_some() {
            response.body = self.chunks().await;
        } else if let (false, Some(length)) = (bare, response.header("content-length")) {
            response.body = self.exactly(length.parse().unwrap()).await;
        }
        Some(response)
    }

    /// Reads more bytes; false at the end.
    async fn more(&mut self) -> bool {
        self.stream.read_buf(&mut self.read).await.is_ok_and(|count| count > 0)
    }

    async fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.read.len() < length {
            assert!(self.more().await, "the body broke off at {} of {length}", self.read.len());
        }
        self.read.drain(..length).collect()
    }

    async fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                match self.read.windows(2).position(|two| two == b"\r\n") {
                    Some(end) => break end,
                    None => assert!(self.more().await, "the chunks broke off"),
                }
            };
            let line = String::from_utf8(self.exactly(end + 2).await).unwrap();
            let length = usize::from_str_radix(line.trim(), 16).unwrap();
            let chunk = self.exactly(length + 2).await;
            body.extend_from_slice(&chunk[..length]);
            if length == 0 {
                return body;
            }
        }
    }
}
