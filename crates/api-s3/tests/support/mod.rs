//! A server over an in-process gateway, and a client that writes bytes and signs by hand.

use larder_model::{ActorId, Timestamp};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use larder_api_s3::{S3Settings, serve};
use larder_gateway::objects::{Objects, ObjectsConfig};
use larder_gateway::{Config, Gateway, GatewayPorts};
use larder_store::SystemClock;
use larder_store::memory::MemoryStore;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longest wait for any event.
const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const KEY: &str = "ADMIN-KEY";
pub(crate) const SECRET: &str = "admin-secret";

/// A running server.
pub(crate) struct S3TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) gateway: Arc<Gateway>,
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl S3TestServer {
    pub(crate) async fn start() -> Self {
        Self::start_with(Config::default(), S3Settings::default()).await
    }

    pub(crate) async fn start_with(config: Config, settings: S3Settings) -> Self {
        let clock = Arc::new(SystemClock::default());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let ports = GatewayPorts {
            random: |bytes| bytes.fill(7),
            store: store.clone(),
            blobs: store,
            clock,
            actor: ActorId(7),
            engine: Arc::new("memory"),
        };
        let gateway = Gateway::start(ports, config).await.unwrap();
        let objects = Objects::new(gateway.clone(), ObjectsConfig::default());
        objects.users.ensure_admin(Some((KEY.into(), SECRET.into()))).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let task = tokio::spawn(serve(listener, objects, settings, async {
            let _ = ended.await;
        }));
        Self { address, gateway, end, task }
    }

    pub(crate) async fn connect(&self) -> S3TestClient {
        S3TestClient { stream: TcpStream::connect(self.address).await.unwrap(), read: Vec::new() }
    }

    /// Sends one signed request on a new connection.
    pub(crate) async fn ask(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> S3TestResponse {
        self.ask_text(&signed_v2(method, target, headers, Some(body.len())), body).await
    }

    /// Sends one request verbatim on a new connection.
    pub(crate) async fn ask_text(&self, head: &str, body: &[u8]) -> S3TestResponse {
        let mut client = self.connect().await;
        client.send(head.as_bytes()).await;
        client.send(body).await;
        client.response(head.starts_with("HEAD")).await
    }

    pub(crate) async fn stop(self) {
        let _ = self.end.send(());
        tokio::time::timeout(PATIENCE, self.task).await.expect("the server did not end").unwrap();
        self.gateway.shutdown().await;
    }
}

/// A response as received.
#[derive(Debug)]
pub(crate) struct S3TestResponse {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl S3TestResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(one, _)| one.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// The text of an element.
    pub(crate) fn element(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.body.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
    }
}

/// A connection to the server.
pub(crate) struct S3TestClient {
    stream: TcpStream,
    read: Vec<u8>,
}

impl S3TestClient {
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        // A server that refused the request may have closed the connection already.
        let _ = self.stream.write_all(bytes).await;
    }

    /// The head of the next response, including `100 Continue`.
    pub(crate) async fn head(&mut self) -> String {
        loop {
            if let Some(at) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = self.read.drain(..at + 4).collect();
                return String::from_utf8(head).unwrap();
            }
            assert!(self.more().await, "the server closed: {:?}", String::from_utf8_lossy(&self.read));
        }
    }

    pub(crate) async fn response(&mut self, without_body: bool) -> S3TestResponse {
        let head = self.head().await;
        let status = head[9..12].parse().unwrap();
        let response = S3TestResponse { status, head, body: String::new() };
        let length: usize = response.header("content-length").map_or(0, |length| length.parse().unwrap());
        let length = if without_body || status == 304 { 0 } else { length };
        while self.read.len() < length {
            assert!(self.more().await, "the server closed within a body");
        }
        let body = self.read.drain(..length).collect();
        S3TestResponse { body: String::from_utf8(body).unwrap(), ..response }
    }

    /// Whether the server closes without sending more bytes.
    pub(crate) async fn is_closed(&mut self) -> bool {
        self.read.is_empty() && !self.more().await
    }

    /// Whether the server closes soon instead of waiting for the next request.
    pub(crate) async fn is_closed_soon(&mut self) -> bool {
        let read = tokio::time::timeout(Duration::from_millis(200), self.stream.read_buf(&mut self.read)).await;
        read.is_ok_and(|read| read.unwrap_or(0) == 0)
    }

    async fn more(&mut self) -> bool {
        let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.read)).await;
        read.expect("no response in time").unwrap_or(0) > 0
    }
}

fn now() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the server of this test has the wall clock too")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).unwrap().as_micros().try_into().unwrap()
}

/// A path-style request signed with version 2. The target is signed as given, so its parameters must be sub-resources.
pub(crate) fn signed_v2(method: &str, target: &str, headers: &[(&str, &str)], length: Option<usize>) -> String {
    signed_v2_by((KEY, SECRET), method, target, headers, length)
}

/// A request signed with version 2 by the user with this key and secret.
pub(crate) fn signed_v2_by(
    (key, secret): (&str, &str),
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    length: Option<usize>,
) -> String {
    let date = larder_api_s3::dates::http(Timestamp(now()));
    let header = |name: &str| headers.iter().find(|(one, _)| *one == name).map_or("", |(_, value)| *value);
    let mut amz: Vec<_> = headers.iter().filter(|(name, _)| name.starts_with("x-amz-")).collect();
    amz.sort_unstable();
    let amz: String = amz.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let text = format!("{method}\n\n{}\n{date}\n{amz}{target}", header("content-type"));
    let mut mac = Hmac::<Sha1>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(text.as_bytes());
    let signature = STANDARD.encode(mac.finalize().into_bytes());
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nDate: {date}\r\n");
    head.push_str(&format!("Authorization: AWS {key}:{signature}\r\n"));
    finish(head, headers, length)
}

/// A request signed with version 4. `payload` is the payload hash.
pub(crate) fn signed_v4(
    method: &str,
    path: &str,
    payload: &str,
    headers: &[(&str, &str)],
    length: Option<usize>,
) -> String {
    let hmac = |key: &[u8], text: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        mac.update(text.as_bytes());
        mac.finalize().into_bytes().to_vec()
    };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let date = larder_api_s3::dates::basic(Timestamp(now()));
    let scope = format!("{}/anywhere/s3/aws4_request", &date[..8]);
    let mut all = vec![("host", "localhost"), ("x-amz-content-sha256", payload), ("x-amz-date", date.as_str())];
    all.extend(headers.iter().filter(|(name, _)| name.starts_with("x-amz-")).copied());
    all.sort_unstable();
    let lines: String = all.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let names = all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let canonical = format!("{method}\n{path}\n\n{lines}\n{names}\n{payload}");
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical.as_bytes())));
    let mut key = format!("AWS4{SECRET}").into_bytes();
    for part in scope.split('/') {
        key = hmac(&key, part);
    }
    let signature = hex(&hmac(&key, &text));
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-Amz-Date: {date}\r\n");
    head.push_str(&format!(
        "X-Amz-Content-Sha256: {payload}\r\nAuthorization: AWS4-HMAC-SHA256 Credential={KEY}/{scope}, "
    ));
    head.push_str(&format!("SignedHeaders={names}, Signature={signature}\r\n"));
    finish(head, headers, length)
}

fn finish(mut head: String, headers: &[(&str, &str)], length: Option<usize>) -> String {
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(length) = length {
        head.push_str(&format!("Content-Length: {length}\r\n"));
    }
    head + "\r\n"
}
