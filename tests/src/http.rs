//! HTTP/1.1 over one connection.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// The longest time of one read or write.
const DEADLINE: Duration = Duration::from_secs(60);
/// A longer body is written while the answer is awaited: a server may refuse it half-way.
const LARGE: usize = 1 << 20;

/// A request.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl HttpRequest {
    /// A request with this method to this path and query.
    #[must_use]
    pub fn new(method: &str, target: &str) -> Self {
        Self { method: method.to_owned(), target: target.to_owned(), headers: Vec::new(), body: Vec::new() }
    }

    /// A `GET`.
    #[must_use]
    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    /// A `PUT` of this text.
    #[must_use]
    pub fn put(target: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::new("PUT", target).header("Content-Type", "text/plain").body(body)
    }

    /// A `PUT` of this JSON.
    #[must_use]
    pub fn put_json(target: &str, body: &str) -> Self {
        Self::new("PUT", target).header("Content-Type", "application/json").body(body)
    }

    /// This request with one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// This request with this body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The bytes before the body.
    #[must_use]
    pub fn head(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str("Host: larder\r\n");
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.body.is_empty() || self.method == "PUT" || self.method == "POST" {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// All its bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// Its status code.
    pub status: u16,
    /// Its headers, in order.
    pub headers: Vec<(String, String)>,
    /// Its body, complete.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// The value of a header; the case of its name does not matter.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("not JSON ({error}): {} {}", self.status, self.text()),
        }
    }

    /// The causal context.
    #[must_use]
    #[track_caller]
    pub fn context(&self) -> &str {
        self.header("X-Riak-Vclock").expect("the answer carries a context")
    }

    /// Fails the test unless the status is this one.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        let start: String = self.text().chars().take(400).collect();
        assert_eq!(self.status, status, "{start}");
        self
    }
}

/// A client with one connection, opened when it is needed.
#[derive(Debug)]
pub struct HttpClient {
    server: SocketAddr,
    /// The address that it connects from; `None`: the system's choice.
    from: Option<IpAddr>,
    connection: Option<BufReader<TcpStream>>,
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
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => BufReader::new(connect(self.server, self.from)?),
        };
        let response = if request.body.len() > LARGE {
            exchange_large(&mut connection, request)?
        } else {
            connection.get_mut().write_all(&request.bytes())?;
            read_response(&mut connection, &request.method)?
        };
        if !response.header("Connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
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
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(error),
            _ => Ok(answer),
        }
    }
}

/// A connection to a server, from this address of the machine if one is given.
///
/// # Errors
/// When the connection cannot be made.
pub fn connect(server: SocketAddr, from: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    socket.connect_timeout(&server.into(), DEADLINE)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    Ok(stream)
}

fn is_closed_connection(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// Writes the body on another thread, so that an early answer is seen.
fn exchange_large(connection: &mut BufReader<TcpStream>, request: &HttpRequest) -> io::Result<HttpResponse> {
    let mut writer = connection.get_ref().try_clone()?;
    thread::scope(|scope| {
        scope.spawn(move || {
            let _ = writer.write_all(&request.head()).and_then(|()| writer.write_all(&request.body));
        });
        let response = read_response(connection, &request.method);
        if response.as_ref().map_or(true, |response| response.status >= 400) {
            let _ = connection.get_ref().shutdown(Shutdown::Both);
        }
        response
    })
}

fn read_response(from: &mut BufReader<TcpStream>, method: &str) -> io::Result<HttpResponse> {
    let (status, headers) = loop {
        let (status, headers) = read_head(from)?;
        if status != 100 {
            break (status, headers);
        }
    };
    let mut response = HttpResponse { status, headers, body: Vec::new() };
    let bodiless = method == "HEAD" || status == 204 || status == 304;
    if !bodiless {
        response.body = read_body(from, &response)?;
    }
    Ok(response)
}

fn read_head(from: &mut BufReader<TcpStream>) -> io::Result<(u16, Vec<(String, String)>)> {
    let line = read_line(from)?;
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| invalid(&format!("not a status line: {line:?}")))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(from)?;
        if line.is_empty() {
            return Ok((status, headers));
        }
        let (name, value) = line.split_once(':').ok_or_else(|| invalid(&format!("not a header: {line:?}")))?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
}

fn read_body(from: &mut BufReader<TcpStream>, response: &HttpResponse) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if response.header("Transfer-Encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        while read_chunk(from, &mut body)? {}
    } else if let Some(length) = response.header("Content-Length") {
        let length = length.parse().map_err(|_| invalid("not a length"))?;
        body.resize(length, 0);
        from.read_exact(&mut body)?;
    } else {
        from.read_to_end(&mut body)?;
    }
    Ok(body)
}

/// Adds one chunk to `body`; `false` after the last.
fn read_chunk(from: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> io::Result<bool> {
    let line = read_line(from)?;
    let length = usize::from_str_radix(line.split(';').next().unwrap_or("").trim(), 16);
    let length = length.map_err(|_| invalid(&format!("not a chunk size: {line:?}")))?;
    let start = body.len();
    body.resize(start + length, 0);
    from.read_exact(&mut body[start..])?;
    read_line(from)?;
    Ok(length > 0)
}

fn read_line(from: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::Error::new(ErrorKind::UnexpectedEof, "the connection ended"));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(line.iter().map(|byte| char::from(*byte)).collect())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}
