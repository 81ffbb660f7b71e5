//! A receiver of webhooks: a small HTTP server that keeps what it gets, and can fail or be down.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

/// The pause between two looks for a connection.
const POLL: Duration = Duration::from_millis(5);
/// The longest wait for the rest of a request.
const REQUEST: Duration = Duration::from_secs(20);

/// A request that was answered with 2xx.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// The request line and the headers.
    pub head: String,
    /// The body.
    pub body: Value,
}

/// A running receiver. It ends when it is dropped; its port is then refused.
#[derive(Debug)]
pub struct WebhookReceiver {
    /// Its address.
    pub address: SocketAddr,
    shared: Arc<ReceiverState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct ReceiverState {
    received: Mutex<Vec<ReceivedRequest>>,
    status: AtomicU16,
    ends: AtomicBool,
}

impl WebhookReceiver {
    /// Starts a receiver that answers with this status, on a free port.
    #[must_use]
    pub fn start(status: u16) -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address"), status)
    }

    /// Starts a receiver at the address of an earlier one.
    #[must_use]
    pub fn start_at(address: SocketAddr, status: u16) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let shared = Arc::new(ReceiverState {
            received: Mutex::default(),
            status: AtomicU16::new(status),
            ends: AtomicBool::new(false),
        });
        let address = listener.local_addr().expect("a bound listener has an address");
        let thread = Some(thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        }));
        Self { address, shared, thread }
    }

    /// The status of further answers.
    pub fn answer(&self, status: u16) {
        self.shared.status.store(status, Ordering::SeqCst);
    }

    /// The requests that were answered with 2xx.
    #[must_use]
    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.shared.received.lock().expect("no panic").clone()
    }
}

impl Drop for WebhookReceiver {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<ReceiverState>) {
    while !shared.ends.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((stream, _)) => {
                let shared = Arc::clone(shared);
                thread::spawn(move || answer(stream, &shared));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(POLL),
            Err(error) => panic!("the receiver cannot accept: {error}"),
        }
    }
}

/// Answers one request. A server that is killed breaks it off.
fn answer(mut stream: TcpStream, shared: &ReceiverState) {
    let Some(request) = read_request(&mut stream) else { return };
    let status = shared.status.load(Ordering::SeqCst);
    if (200..300).contains(&status) {
        // Before the answer: a request that is answered counts.
        shared.received.lock().expect("no panic").push(request);
    }
    let _ = write!(stream, "HTTP/1.1 {status} Status\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}

fn read_request(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(REQUEST)).ok()?;
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let body = &bytes[end + 4..];
        if body.len() >= length.unwrap_or(0) {
            return Some(ReceivedRequest { head, body: serde_json::from_slice(body).ok()? });
        }
    }
}
