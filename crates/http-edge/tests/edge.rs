//! Connections of a listener, as a client sees them: their bound, their timeouts and their ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use larder_http_edge::{ConnectionHandler, ConnectionLimit, ConnectionSettings, HttpDialect, Requester, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// Longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(20);

/// `/refuse` answers 403 without reading, `/wait` waits for a notification, other paths echo the body.
#[derive(Clone)]
struct EchoHandler {
    settings: ConnectionSettings,
    waiting: Arc<Notify>,
    let_go: Arc<Notify>,
}

impl ConnectionHandler for EchoHandler {
    type Body = Full<Bytes>;

    const DIALECT: HttpDialect = HttpDialect {
        name: "echo",
        headers_max: 8,
        header_bytes_max: 16 * 1024,
        title_case: false,
        overload_response: ("text/plain", "full\n"),
    };

    fn settings(&self) -> ConnectionSettings {
        self.settings.clone()
    }

    async fn respond(&self, requester: &Requester<'_>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        assert!(requester.address.is_loopback());
        let path = request.uri().path().to_owned();
        if path == "/refuse" {
            let mut refusal = Response::new(Full::from("no"));
            *refusal.status_mut() = StatusCode::FORBIDDEN;
            return refusal;
        }
        if path == "/wait" {
            self.waiting.notify_one();
            self.let_go.notified().await;
        }
        Response::new(Full::new(request.into_body().collect().await.unwrap_or_default().to_bytes()))
    }

    fn memory_of(_: &Full<Bytes>) -> u64 {
        0
    }

    fn busy(&self) -> Response<Full<Bytes>> {
        let mut busy = Response::new(Full::default());
        *busy.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        busy
    }
}

struct EchoServer {
    address: SocketAddr,
    handler: EchoHandler,
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl EchoServer {
    async fn start(settings: ConnectionSettings) -> Self {
        let handler = EchoHandler { settings, waiting: Arc::default(), let_go: Arc::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let task = tokio::spawn(serve(listener, handler.clone(), async {
            let _ = ended.await;
        }));
        Self { address, handler, end, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("the test exceeds its time")
}

/// Sends a request and reads until the received bytes end with `end`.
async fn exchange(stream: &mut TcpStream, request: &[u8], end: &str) -> String {
    stream.write_all(request).await.unwrap();
    let mut all = Vec::new();
    while !all.ends_with(end.as_bytes()) {
        assert!(in_time(stream.read_buf(&mut all)).await.unwrap() > 0, "{}", String::from_utf8_lossy(&all));
    }
    String::from_utf8(all).unwrap()
}

/// Reads until the server closes.
async fn read_to_close(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    in_time(stream.read_to_end(&mut all)).await.unwrap();
    String::from_utf8(all).unwrap()
}

const HELLO: &[u8] = b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";

#[tokio::test]
async fn a_connection_above_the_limit_gets_503_and_closes() {
    let server =
        EchoServer::start(ConnectionSettings { connections: ConnectionLimit::new(1), ..ConnectionSettings::default() })
            .await;
    let mut first = server.connect().await;
    exchange(&mut first, HELLO, "hello").await;
    let turned = read_to_close(&mut server.connect().await).await;
    assert!(turned.starts_with("HTTP/1.1 503 ") && turned.contains("\r\nRetry-After: 1\r\n"), "{turned}");
    assert!(turned.contains("\r\nContent-Length: 5\r\n") && turned.ends_with("\r\n\r\nfull\n"), "{turned}");
    exchange(&mut first, HELLO, "hello").await;
}

#[tokio::test]
async fn listeners_share_one_connection_limit() {
    // One address has half of the four.
    let settings = ConnectionSettings { connections: ConnectionLimit::new(4), ..ConnectionSettings::default() };
    let (one, other) = (EchoServer::start(settings.clone()).await, EchoServer::start(settings).await);
    let (mut first, mut second) = (one.connect().await, other.connect().await);
    exchange(&mut first, HELLO, "hello").await;
    exchange(&mut second, HELLO, "hello").await;
    for server in [&one, &other] {
        assert!(read_to_close(&mut server.connect().await).await.starts_with("HTTP/1.1 503 "));
    }
    // A closed connection frees its place for clients of either listener.
    drop(first);
    let answered = async {
        loop {
            let mut client = other.connect().await;
            let mut status = [0; 12];
            // The server may close a refused connection before the request arrives.
            let _ = client.write_all(HELLO).await;
            if client.read_exact(&mut status).await.is_ok() && status == *b"HTTP/1.1 200" {
                return;
            }
        }
    };
    in_time(answered).await;
    exchange(&mut second, HELLO, "hello").await;
}

#[tokio::test]
async fn every_connection_of_a_flood_above_the_limit_is_answered() {
    let server =
        EchoServer::start(ConnectionSettings { connections: ConnectionLimit::new(1), ..ConnectionSettings::default() })
            .await;
    let mut first = server.connect().await;
    exchange(&mut first, HELLO, "hello").await;
    // More connections than the server refuses at a time, and than the listener accepts in one turn.
    let mut flood = Vec::new();
    for _ in 0..300 {
        flood.push(server.connect().await);
    }
    for mut client in flood {
        assert!(read_to_close(&mut client).await.starts_with("HTTP/1.1 503 "));
    }
    exchange(&mut first, HELLO, "hello").await;
}

#[tokio::test]
async fn a_client_that_still_sends_gets_its_refusal() {
    let server = EchoServer::start(ConnectionSettings::default()).await;
    let mut client = server.connect().await;
    // More than the socket buffers hold: an immediate close would reset the connection while the client sends.
    let body = vec![b'x'; 4 << 20];
    let head = format!("PUT /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len());
    client.write_all(head.as_bytes()).await.unwrap();
    in_time(client.write_all(&body)).await.unwrap();
    let answer = read_to_close(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("\r\n\r\nno"), "{answer}");
}

#[tokio::test]
async fn a_client_that_stops_in_the_headers_is_disconnected() {
    let hour = Duration::from_secs(3600);
    let settings = ConnectionSettings {
        header_timeout: Duration::from_millis(50),
        idle_timeout: hour,
        ..ConnectionSettings::default()
    };
    let server = EchoServer::start(settings).await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET / HT").await.unwrap();
    assert_eq!(read_to_close(&mut slow).await, "");
    // Silence before a request has the longer timeout.
    let mut idle = server.connect().await;
    exchange(&mut idle, HELLO, "hello").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    exchange(&mut idle, HELLO, "hello").await;
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let (header_timeout, idle_timeout) = (Duration::from_millis(20), Duration::from_millis(60));
    let server =
        EchoServer::start(ConnectionSettings { header_timeout, idle_timeout, ..ConnectionSettings::default() }).await;
    let mut idle = server.connect().await;
    exchange(&mut idle, HELLO, "hello").await;
    assert_eq!(read_to_close(&mut idle).await, "");
}

#[tokio::test]
async fn shutdown_finishes_the_request_under_way_and_breaks_off_late_ones() {
    for drain_timeout in [PATIENCE, Duration::from_millis(50)] {
        let server = EchoServer::start(ConnectionSettings { drain_timeout, ..ConnectionSettings::default() }).await;
        let mut client = server.connect().await;
        client.write_all(&[b"PUT /wait", &HELLO[5..]].concat()).await.unwrap();
        in_time(server.handler.waiting.notified()).await;
        let _ = server.end.send(());
        if drain_timeout == PATIENCE {
            server.handler.let_go.notify_one();
            let answer = read_to_close(&mut client).await;
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hello"), "{answer}");
        } else {
            assert_eq!(read_to_close(&mut client).await, "");
        }
        in_time(server.task).await.unwrap();
        assert!(TcpStream::connect(server.address).await.is_err());
    }
}
