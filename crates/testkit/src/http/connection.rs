//! One connection.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::reader::read_response;
use super::{HttpRequest, HttpResponse};

/// The longest time of one read or write.
const DEADLINE: Duration = Duration::from_secs(60);

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

/// A connection that takes any bytes and reads complete answers.
#[derive(Debug)]
pub struct HttpConnection {
    stream: BufReader<TcpStream>,
}

impl HttpConnection {
    /// A connection to this server.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    #[track_caller]
    pub fn open(server: SocketAddr) -> Self {
        match connect(server, None) {
            Ok(stream) => Self::over(stream),
            Err(error) => panic!("no connection to {server}: {error}"),
        }
    }

    pub(super) fn over(stream: TcpStream) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// When the server has closed the connection, or takes no bytes for a minute.
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes.as_ref())
    }

    /// Tells the server that no more bytes come.
    ///
    /// # Errors
    /// When the connection is closed.
    pub fn close_writing(&mut self) -> io::Result<()> {
        self.stream.get_ref().shutdown(Shutdown::Write)
    }

    /// Reads one answer, which may be `100 Continue`.
    ///
    /// # Errors
    /// When the connection ends before the answer does, or brings no bytes for a minute.
    pub fn receive(&mut self) -> io::Result<HttpResponse> {
        self.receive_to("GET", None)
    }

    /// Sends a whole request and reads its final answer.
    ///
    /// # Errors
    /// As those of [`write`](Self::write) and [`receive`](Self::receive).
    pub fn exchange(&mut self, request: impl AsRef<[u8]>) -> io::Result<HttpResponse> {
        let request = request.as_ref();
        self.write(request)?;
        self.receive_final(if request.starts_with(b"HEAD ") { "HEAD" } else { "GET" })
    }

    /// As [`exchange`](Self::exchange), with the body of the answer written to `body`.
    ///
    /// # Errors
    /// As those of [`exchange`](Self::exchange).
    pub fn exchange_to(&mut self, request: impl AsRef<[u8]>, body: &mut dyn Write) -> io::Result<HttpResponse> {
        self.write(request)?;
        self.receive_to("GET", Some(body))
    }

    /// As [`exchange`](Self::exchange), with the body written by another thread: a server may answer before its end.
    pub(super) fn exchange_large(&mut self, request: &HttpRequest) -> io::Result<HttpResponse> {
        let mut writer = self.stream.get_ref().try_clone()?;
        thread::scope(|scope| {
            scope.spawn(move || {
                let head = request.head_with_length();
                let _ = writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(&request.body));
            });
            let response = self.receive_final(&request.method);
            if response.as_ref().map_or(true, |response| response.status >= 400) {
                let _ = self.stream.get_ref().shutdown(Shutdown::Both);
            }
            response
        })
    }

    /// Reads all bytes until the server closes.
    ///
    /// # Errors
    /// When the connection breaks, or brings no bytes for a minute.
    pub fn read_to_close(&mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether the server closes the connection without more bytes.
    pub fn is_closed(&mut self) -> bool {
        self.is_closed_within(DEADLINE)
    }

    /// Whether the server closes the connection in this time, without more bytes.
    pub fn is_closed_within(&mut self, within: Duration) -> bool {
        let timed = self.stream.get_ref().set_read_timeout(Some(within));
        let closed = match self.stream.fill_buf() {
            Ok(bytes) => bytes.is_empty(),
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        };
        timed.and_then(|()| self.stream.get_ref().set_read_timeout(Some(DEADLINE))).is_ok() && closed
    }

    fn receive_final(&mut self, method: &str) -> io::Result<HttpResponse> {
        loop {
            let response = self.receive_to(method, None)?;
            if response.status != 100 {
                return Ok(response);
            }
        }
    }

    fn receive_to(&mut self, method: &str, body: Option<&mut dyn Write>) -> io::Result<HttpResponse> {
        read_response(&mut self.stream, method, body)
    }
}
