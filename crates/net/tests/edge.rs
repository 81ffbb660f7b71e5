//! Connections of a listener, as a client sees them: their bound, their timeouts and their ends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test may panic")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use larder_net::{ArrivingBody, ConnectionHandler, ConnectionLimit, ConnectionSettings, HttpDialect, Requester, serve};
use larder_testkit::BackgroundServer;
use larder_testkit::http::{HttpConnection, connect};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(20);

/// `/refuse` answers 403 without reading, `/busy` 503 with `Retry-After`, `/wait` waits for a notification, other paths echo the body.
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
        assert!(requester.source.address.is_loopback());
        let path = request.uri().path().to_owned();
        if path == "/refuse" {
            drop(ArrivingBody::new(request.into_body(), requester));
            let mut refusal = Response::new(Full::from("no"));
            *refusal.status_mut() = StatusCode::FORBIDDEN;
            return refusal;
        }
        if path == "/busy" {
            let mut busy = self.busy();
            busy.headers_mut().insert(RETRY_AFTER, HeaderValue::from(1));
            return busy;
        }
        if path == "/wait" {
            self.waiting.notify_one();
            self.let_go.notified().await;
        }
        Response::new(Full::new(request.into_body().collect().await.unwrap_or_default().to_bytes()))
    }

    fn response_memory(_: &Full<Bytes>) -> u64 {
        0
    }

    fn busy(&self) -> Response<Full<Bytes>> {
        let mut busy = Response::new(Full::default());
        *busy.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        busy
    }
}

pub(crate) struct EchoServer {
    background: BackgroundServer,
    handler: EchoHandler,
}

impl EchoServer {
    pub(crate) fn start(settings: ConnectionSettings) -> Self {
        let handler = EchoHandler { settings, waiting: Arc::default(), let_go: Arc::default() };
        let work = handler.clone();
        let (background, ()) = BackgroundServer::start(async |listener, stop| ((), serve(listener.into(), work, stop)));
        Self { background, handler }
    }

    pub(crate) fn connect(&self) -> HttpConnection {
        HttpConnection::open(self.background.address)
    }
}

/// Sends a request whose body the server echoes.
fn exchange_hello(connection: &mut HttpConnection) {
    let answer = connection.exchange(HELLO).unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, "hello"), "{answer:?}");
}

const HELLO: &[u8] = b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";

#[test]
fn a_connection_above_the_limit_gets_503_and_closes() {
    let server =
        EchoServer::start(ConnectionSettings { connections: ConnectionLimit::new(1), ..ConnectionSettings::default() });
    let mut first = server.connect();
    exchange_hello(&mut first);
    let turned = server.connect().read_to_close().unwrap();
    assert!(turned.starts_with("HTTP/1.1 503 ") && turned.contains("\r\nRetry-After: 1\r\n"), "{turned}");
    assert!(turned.contains("\r\nContent-Length: 5\r\n") && turned.ends_with("\r\n\r\nfull\n"), "{turned}");
    exchange_hello(&mut first);
}

#[test]
fn listeners_share_one_connection_limit() {
    // One address has half of the four.
    let settings = ConnectionSettings { connections: ConnectionLimit::new(4), ..ConnectionSettings::default() };
    let (one, other) = (EchoServer::start(settings.clone()), EchoServer::start(settings));
    let (mut first, mut second) = (one.connect(), other.connect());
    exchange_hello(&mut first);
    exchange_hello(&mut second);
    for server in [&one, &other] {
        assert!(server.connect().read_to_close().unwrap().starts_with("HTTP/1.1 503 "));
    }
    // A closed connection frees its place for clients of either listener.
    drop(first);
    let begun = Instant::now();
    // The server may close a refused connection before the request arrives.
    while !other.connect().exchange(HELLO).is_ok_and(|answer| answer.status == 200) {
        assert!(begun.elapsed() < PATIENCE, "the closed connection keeps its place");
    }
    exchange_hello(&mut second);
}

#[test]
fn every_connection_of_a_flood_above_the_limit_is_answered() {
    let server =
        EchoServer::start(ConnectionSettings { connections: ConnectionLimit::new(1), ..ConnectionSettings::default() });
    let mut first = server.connect();
    exchange_hello(&mut first);
    // More connections than the server refuses at a time, and than the listener accepts in one turn.
    let mut flood = Vec::new();
    for _ in 0..300 {
        flood.push(server.connect());
    }
    for mut client in flood {
        assert!(client.read_to_close().unwrap().starts_with("HTTP/1.1 503 "));
    }
    exchange_hello(&mut first);
}

#[test]
fn clients_above_their_share_once_had_the_processors_for_their_refusals() {
    let server = EchoServer::start(ConnectionSettings::default());
    let mut client = server.connect();
    let begun = Instant::now();
    for _ in 0..3 {
        assert_eq!(client.exchange(b"GET /busy HTTP/1.1\r\nHost: h\r\n\r\n").unwrap().status, 503);
    }
    assert!(begun.elapsed() >= 3 * Duration::from_millis(100), "{:?}", begun.elapsed());
    exchange_hello(&mut client);
}

#[test]
fn a_client_that_still_sends_gets_its_refusal() {
    let server = EchoServer::start(ConnectionSettings::default());
    let mut client = server.connect();
    // More than the socket buffers hold: an immediate close would reset the connection while the client sends.
    let body = vec![b'x'; 4 << 20];
    let head = format!("PUT /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len());
    client.write(head).unwrap();
    client.write(&body).unwrap();
    let answer = client.read_to_close().unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("\r\n\r\nno"), "{answer}");
}

/// The connection closed in silence, and the next request of a client with a pool of them failed.
#[test]
fn a_refusal_before_a_body_arrives_once_ended_its_connection_in_silence() {
    let server = EchoServer::start(ConnectionSettings::default());
    let refused = |length: usize, sent: usize| {
        let mut client = server.connect();
        client.write(format!("PUT /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n")).unwrap();
        thread::sleep(Duration::from_millis(50));
        client.write(vec![b'x'; sent]).unwrap();
        let answer = client.receive().unwrap();
        assert_eq!(answer.status, 403);
        (answer.header("connection").map(str::to_owned), client)
    };
    // A short body is read: the connection goes on.
    let (connection, mut client) = refused(100_000, 100_000);
    assert_eq!(connection, None);
    exchange_hello(&mut client);
    // A long one is not, and one that does not come is not awaited.
    for (length, sent) in [(1 << 30, 10), (100, 10)] {
        let (connection, mut client) = refused(length, sent);
        assert_eq!(connection.as_deref(), Some("close"), "{length}");
        assert_eq!(client.read_to_close().unwrap(), "");
    }
}

#[test]
fn a_stored_page_once_ran_its_scripts_in_the_origin_of_the_server() {
    let server = EchoServer::start(ConnectionSettings::default());
    let mut client = server.connect();
    for (agent, sniffed) in [("Mozilla/5.0", Some("nosniff")), ("curl/8", None)] {
        client
            .write(format!("PUT / HTTP/1.1\r\nHost: h\r\nUser-Agent: {agent}\r\nContent-Length: 5\r\n\r\nhello"))
            .unwrap();
        let answer = client.receive().unwrap();
        assert_eq!(answer.header("X-Content-Type-Options"), sniffed, "{agent}");
    }
}

/// Such a client sends no body after a refusal. It took the connection for its next request while the server closed it.
#[test]
fn a_refusal_of_a_client_that_waits_to_send_says_that_the_connection_ends() {
    let server = EchoServer::start(ConnectionSettings::default());
    let ask = |path: &str| {
        let mut client = server.connect();
        let head = format!("PUT {path} HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
        client.write(head).unwrap();
        let answer = client.receive().unwrap();
        (answer.status, answer.header("connection").map(str::to_owned), client)
    };
    let (status, connection, mut refused) = ask("/refuse");
    assert_eq!((status, connection.as_deref()), (403, Some("close")));
    assert_eq!(refused.read_to_close().unwrap(), "");
    let (status, _, mut taken) = ask("/");
    assert_eq!(status, 100);
    taken.write(b"hello").unwrap();
    let answer = taken.receive().unwrap();
    assert_eq!((answer.status, answer.header("connection")), (200, None));
    exchange_hello(&mut taken);
}

#[test]
fn a_client_that_stops_in_the_headers_is_disconnected() {
    let hour = Duration::from_secs(3600);
    let settings = ConnectionSettings {
        header_timeout: Duration::from_millis(50),
        idle_timeout: hour,
        ..ConnectionSettings::default()
    };
    let server = EchoServer::start(settings);
    let mut slow = server.connect();
    slow.write(b"GET / HT").unwrap();
    assert_eq!(slow.read_to_close().unwrap(), "");
    // Silence before a request has the longer timeout.
    let mut idle = server.connect();
    exchange_hello(&mut idle);
    thread::sleep(Duration::from_millis(300));
    exchange_hello(&mut idle);
}

#[test]
fn idle_connections_are_closed() {
    let (header_timeout, idle_timeout) = (Duration::from_millis(20), Duration::from_millis(60));
    let server =
        EchoServer::start(ConnectionSettings { header_timeout, idle_timeout, ..ConnectionSettings::default() });
    let mut idle = server.connect();
    exchange_hello(&mut idle);
    assert_eq!(idle.read_to_close().unwrap(), "");
}

#[test]
fn shutdown_finishes_the_request_under_way_and_breaks_off_late_ones() {
    for drain_timeout in [PATIENCE, Duration::from_millis(50)] {
        let mut server = EchoServer::start(ConnectionSettings { drain_timeout, ..ConnectionSettings::default() });
        let mut client = server.connect();
        client.write([b"PUT /wait", &HELLO[5..]].concat()).unwrap();
        let arrived = async { timeout(PATIENCE, server.handler.waiting.notified()).await };
        server.background.run(arrived).expect("the request arrives");
        server.background.request_stop();
        if drain_timeout == PATIENCE {
            server.handler.let_go.notify_one();
            let answer = client.read_to_close().unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("hello"), "{answer}");
        } else {
            assert_eq!(client.read_to_close().unwrap(), "");
        }
        let address = server.background.address;
        server.background.stop(async {});
        assert!(connect(address, None).is_err());
    }
}
