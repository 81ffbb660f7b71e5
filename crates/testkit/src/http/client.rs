//! A client.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::time::Duration;

use super::{HttpConnection, HttpRequest, HttpResponse, connect};

/// A longer body is written while the answer is awaited: a server may refuse it half-way.
const LARGE: usize = 1 << 20;
/// The longest time between two pieces of the answer to [`HttpClient::raw`].
const RAW_DEADLINE: Duration = Duration::from_secs(20);

/// A client with one connection, opened when it is needed.
#[derive(Debug)]
pub struct HttpClient {
    server: SocketAddr,
    /// The address that it connects from; `None`: the system's choice.
    from: Option<IpAddr>,
    connection: Option<HttpConnection>,
}

impl HttpClient {
    /// A client of this server.
    #[must_use]
    pub fn new(server: SocketAddr) -> Self {
        Self { server, from: None, connection: None }
    }

    /// A client of this server that connects from this address of the machine.
    #[must_use]
    pub fn from(address: IpAddr, server: SocketAddr) -> Self {
        Self { server, from: Some(address), connection: None }
    }

    /// Sends a request and waits for its answer; fails the test when there is none.
    ///
    /// # Panics
    /// When there is no answer on a new connection.
    #[track_caller]
    pub fn send(&mut self, request: &HttpRequest) -> HttpResponse {
        let reused = self.connection.is_some();
        let answer = match self.try_send(request) {
            Err(error) if reused && is_closed_connection(&error) => self.try_send(request),
            answer => answer,
        };
        match answer {
            Ok(response) => response,
            Err(error) => panic!("no answer to {} {}: {error}", request.method, request.target),
        }
    }

    /// Sends a `GET`.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> HttpResponse {
        self.send(&HttpRequest::get(target))
    }

    /// Puts a text.
    #[track_caller]
    pub fn put(&mut self, target: &str, body: impl Into<Vec<u8>>) -> HttpResponse {
        self.send(&HttpRequest::put(target, body))
    }

    /// Puts JSON.
    #[track_caller]
    pub fn put_json(&mut self, target: &str, body: &str) -> HttpResponse {
        self.send(&HttpRequest::put_json(target, body))
    }

    /// Sends a `DELETE`.
    #[track_caller]
    pub fn delete(&mut self, target: &str) -> HttpResponse {
        self.send(&HttpRequest::new("DELETE", target))
    }

    /// Sends a request once and waits for its answer.
    ///
    /// # Errors
    /// When the connection cannot be made, or breaks before the answer is complete.
    pub fn try_send(&mut self, request: &HttpRequest) -> io::Result<HttpResponse> {
        self.with_connection(|connection| match request.body.len() > LARGE {
            true => connection.exchange_large(request),
            false => connection.exchange(request.bytes()),
        })
    }

    /// Sends the bytes of a whole request once and waits for its answer.
    ///
    /// # Errors
    /// When the connection cannot be made, breaks before the answer is complete, or does not take all bytes.
    pub fn exchange(&mut self, request: impl AsRef<[u8]>) -> io::Result<HttpResponse> {
        self.with_connection(|connection| connection.exchange(request))
    }

    fn with_connection(
        &mut self,
        exchange: impl FnOnce(&mut HttpConnection) -> io::Result<HttpResponse>,
    ) -> io::Result<HttpResponse> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => HttpConnection::over(connect(self.server, self.from)?),
        };
        let response = exchange(&mut connection)?;
        if !response.is_last() {
            self.connection = Some(connection);
        }
        Ok(response)
    }

    /// Sends bytes on a new connection, closes that direction, and reads until the server closes the other.
    ///
    /// # Errors
    /// When the connection cannot be made. A connection that breaks is no error: the bytes received so far are the answer.
    pub fn raw(server: SocketAddr, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut stream = connect(server, None)?;
        stream.set_read_timeout(Some(RAW_DEADLINE))?;
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(error),
            _ => Ok(answer),
        }
    }
}

fn is_closed_connection(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
