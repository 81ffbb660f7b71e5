//! Connections as a client sees them: how many, how silent, and how they end.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use larder_http_edge::{ConnectionLimit, Face, Requester, Settings, Wire, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// `/refuse` answers 403 without reading, `/wait` once it is let go, everything else its own body.
#[derive(Clone)]
struct Echo {
    settings: Settings,
    waiting: Arc<Notify>,
    let_go: Arc<Notify>,
}

impl Face for Echo {
    type Body = Full<Bytes>;

    const WIRE: Wire = Wire {
        name: "echo",
        headers_max: 8,
        header_bytes_max: 16 * 1024,
        title_case: false,
        turned_away: ("text/plain", "full\n"),
    };

    fn settings(&self) -> Settings {
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

struct Server {
    address: SocketAddr,
    face: Echo,
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(settings: Settings) -> Self {
        let face = Echo { settings, waiting: Arc::default(), let_go: Arc::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let task = tokio::spawn(serve(listener, face.clone(), async {
            let _ = ended.await;
        }));
        Self { address, face, end, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it takes too long")
}

/// Sends this and reads until so many bytes came that end with `end`.
async fn ask(stream: &mut TcpStream, request: &[u8], end: &str) -> String {
    stream.write_all(request).await.unwrap();
    let mut all = Vec::new();
    while !all.ends_with(end.as_bytes()) {
        assert!(in_time(stream.read_buf(&mut all)).await.unwrap() > 0, "{}", String::from_utf8_lossy(&all));
    }
    String::from_utf8(all).unwrap()
}

/// What comes until the server closes.
async fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    in_time(stream.read_to_end(&mut all)).await.unwrap();
    String::from_utf8(all).unwrap()
}

const HELLO: &[u8] = b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";

#[tokio::test]
async fn one_too_many_is_told_so() {
    let server = Server::start(Settings { connections: ConnectionLimit::new(1), ..Settings::default() }).await;
    let mut first = server.connect().await;
    ask(&mut first, HELLO, "hello").await;
    let turned = rest(&mut server.connect().await).await;
    assert!(turned.starts_with("HTTP/1.1 503 ") && turned.contains("\r\nRetry-After: 1\r\n"), "{turned}");
    assert!(turned.contains("\r\nContent-Length: 5\r\n") && turned.ends_with("\r\n\r\nfull\n"), "{turned}");
    ask(&mut first, HELLO, "hello").await;
}

#[tokio::test]
async fn listeners_with_a_limit_each_do_not_take_more_together_than_one_may() {
    // One address has half of them.
    let settings = Settings { connections: ConnectionLimit::new(4), ..Settings::default() };
    let (one, other) = (Server::start(settings.clone()).await, Server::start(settings).await);
    let (mut first, mut second) = (one.connect().await, other.connect().await);
    ask(&mut first, HELLO, "hello").await;
    ask(&mut second, HELLO, "hello").await;
    for server in [&one, &other] {
        assert!(rest(&mut server.connect().await).await.starts_with("HTTP/1.1 503 "));
    }
    // The place of one that ends is free for clients of either.
    drop(first);
    let answered = async {
        loop {
            let mut client = other.connect().await;
            let mut status = [0; 12];
            // One that is refused may be closed under its request.
            let _ = client.write_all(HELLO).await;
            if client.read_exact(&mut status).await.is_ok() && status == *b"HTTP/1.1 200" {
                return;
            }
        }
    };
    in_time(answered).await;
    ask(&mut second, HELLO, "hello").await;
}

#[tokio::test]
async fn a_flood_above_the_limit_is_answered_to_the_last() {
    let server = Server::start(Settings { connections: ConnectionLimit::new(1), ..Settings::default() }).await;
    let mut first = server.connect().await;
    ask(&mut first, HELLO, "hello").await;
    // More than are refused at the same time, and than one turn of the listener takes.
    let mut flood = Vec::new();
    for _ in 0..300 {
        flood.push(server.connect().await);
    }
    for mut client in flood {
        assert!(rest(&mut client).await.starts_with("HTTP/1.1 503 "));
    }
    ask(&mut first, HELLO, "hello").await;
}

#[tokio::test]
async fn a_refusal_reaches_who_still_sends() {
    let server = Server::start(Settings::default()).await;
    let mut client = server.connect().await;
    // More than sockets hold: a server that closed at once would reset the connection under who sends.
    let body = vec![b'x'; 4 << 20];
    let head = format!("PUT /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len());
    client.write_all(head.as_bytes()).await.unwrap();
    in_time(client.write_all(&body)).await.unwrap();
    let answer = rest(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("\r\n\r\nno"), "{answer}");
}

#[tokio::test]
async fn who_begins_and_does_not_go_on_is_dropped() {
    let hour = Duration::from_secs(3600);
    let settings = Settings { header_timeout: Duration::from_millis(50), idle_timeout: hour, ..Settings::default() };
    let server = Server::start(settings).await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET / HT").await.unwrap();
    assert_eq!(rest(&mut slow).await, "");
    // Nothing begun is no such silence.
    let mut idle = server.connect().await;
    ask(&mut idle, HELLO, "hello").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    ask(&mut idle, HELLO, "hello").await;
}

#[tokio::test]
async fn idle_connections_end() {
    let (header_timeout, idle_timeout) = (Duration::from_millis(20), Duration::from_millis(60));
    let server = Server::start(Settings { header_timeout, idle_timeout, ..Settings::default() }).await;
    let mut idle = server.connect().await;
    ask(&mut idle, HELLO, "hello").await;
    assert_eq!(rest(&mut idle).await, "");
}

#[tokio::test]
async fn a_request_under_way_is_the_last_and_what_takes_too_long_is_broken_off() {
    for drain_timeout in [PATIENCE, Duration::from_millis(50)] {
        let server = Server::start(Settings { drain_timeout, ..Settings::default() }).await;
        let mut client = server.connect().await;
        client.write_all(&[b"PUT /wait", &HELLO[5..]].concat()).await.unwrap();
        in_time(server.face.waiting.notified()).await;
        let _ = server.end.send(());
        if drain_timeout == PATIENCE {
            server.face.let_go.notify_one();
            let answer = rest(&mut client).await;
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hello"), "{answer}");
        } else {
            assert_eq!(rest(&mut client).await, "");
        }
        in_time(server.task).await.unwrap();
        assert!(TcpStream::connect(server.address).await.is_err());
    }
}
