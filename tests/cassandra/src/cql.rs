//! A connection with just enough of Cassandra's protocol (version 4) for test harnesses: whether a node answers, its
//! peers, and emptying tables.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// First byte of frames: of a request and of a response.
const REQUEST: u8 = 0x04;
const RESPONSE: u8 = 0x84;
/// Most bytes of an answer: harnesses run small queries.
const FRAME_MAX: usize = 16 << 20;
/// Consistency level ONE: the queries read a node's own tables, or there is one node.
const ONE: [u8; 2] = [0, 1];

mod opcode {
    pub(super) const ERROR: u8 = 0;
    pub(super) const STARTUP: u8 = 1;
    pub(super) const READY: u8 = 2;
    pub(super) const OPTIONS: u8 = 5;
    pub(super) const SUPPORTED: u8 = 6;
    pub(super) const QUERY: u8 = 7;
    pub(super) const RESULT: u8 = 8;
}

/// The kind of a result with rows.
const ROWS: i32 = 2;

/// A row: its columns in the order of the query; `None` is null.
pub type CqlRow = Vec<Option<Vec<u8>>>;

/// A connection to one node, without encryption or credentials.
#[derive(Debug)]
pub struct CqlConnection {
    stream: TcpStream,
}

impl CqlConnection {
    /// Connects; `within` is the timeout of every answer.
    ///
    /// # Errors
    /// When the node does not answer, or requires credentials.
    pub fn connect(node: SocketAddr, within: Duration) -> io::Result<Self> {
        let mut cql = Self::open(node, within)?;
        let mut body = 1_u16.to_be_bytes().to_vec();
        for text in ["CQL_VERSION", "3.0.0"] {
            body.extend(length(text.len())?.to_be_bytes());
            body.extend(text.as_bytes());
        }
        cql.ask(opcode::STARTUP, &body, opcode::READY)?;
        Ok(cql)
    }

    /// Whether the node answers within this time.
    #[must_use]
    pub fn is_answering(node: SocketAddr, within: Duration) -> bool {
        Self::open(node, within).and_then(|mut cql| cql.ask(opcode::OPTIONS, &[], opcode::SUPPORTED)).is_ok()
    }

    /// Runs a statement; answers all its rows.
    ///
    /// # Errors
    /// The node's error, or that it does not answer.
    pub fn query(&mut self, statement: &str) -> io::Result<Vec<CqlRow>> {
        let bytes = u32::try_from(statement.len()).map_err(|_| invalid_data("the statement is too long"))?;
        let mut body = bytes.to_be_bytes().to_vec();
        body.extend(statement.as_bytes());
        body.extend(ONE);
        body.push(0);
        let answer = self.ask(opcode::QUERY, &body, opcode::RESULT)?;
        rows(&answer)
    }

    fn open(node: SocketAddr, within: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&node, within)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(within))?;
        stream.set_write_timeout(Some(within))?;
        Ok(Self { stream })
    }

    /// Sends a frame and reads the answer, which must have the opcode `expected`.
    fn ask(&mut self, opcode: u8, body: &[u8], expected: u8) -> io::Result<Vec<u8>> {
        let bytes = u32::try_from(body.len()).map_err(|_| invalid_data("the frame is too long"))?;
        let mut frame = vec![REQUEST, 0, 0, 0, opcode];
        frame.extend(bytes.to_be_bytes());
        frame.extend(body);
        self.stream.write_all(&frame)?;
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let [version, _, _, _, opcode, length @ ..] = head;
        let length = u32::from_be_bytes(length) as usize;
        if version != RESPONSE || length > FRAME_MAX {
            return Err(invalid_data("the answer is not from a Cassandra node"));
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer)?;
        match opcode {
            opcode::ERROR => Err(io::Error::other(error_text(&answer)?)),
            opcode if opcode == expected => Ok(answer),
            opcode => Err(invalid_data(&format!("it answered with opcode {opcode}"))),
        }
    }
}

fn length(bytes: usize) -> io::Result<u16> {
    u16::try_from(bytes).map_err(|_| invalid_data("a string is too long"))
}

fn invalid_data(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// The text of an error.
fn error_text(answer: &[u8]) -> io::Result<String> {
    let mut input = Input(answer);
    input.number()?;
    Ok(String::from_utf8_lossy(input.string()?).into_owned())
}

/// The rows of a result; none for a result without rows.
fn rows(answer: &[u8]) -> io::Result<Vec<CqlRow>> {
    let mut input = Input(answer);
    if input.number()? != ROWS {
        return Ok(Vec::new());
    }
    let columns = metadata(&mut input)?;
    let count = input.count()?;
    let mut rows = Vec::new();
    for _ in 0..count {
        rows.push((0..columns).map(|_| input.value()).collect::<io::Result<CqlRow>>()?);
    }
    Ok(rows)
}

/// Skips the metadata of the columns; answers their number.
fn metadata(input: &mut Input<'_>) -> io::Result<usize> {
    let flags = input.number()?;
    let columns = input.count()?;
    let has = |bit: i32| flags & bit != 0;
    if has(2) {
        input.value()?;
    }
    if has(4) {
        return Ok(columns);
    }
    let table = |input: &mut Input<'_>| input.string().and_then(|_| input.string()).map(drop);
    if has(1) {
        table(input)?;
    }
    for _ in 0..columns {
        if !has(1) {
            table(input)?;
        }
        input.string()?;
        input.kind()?;
    }
    Ok(columns)
}

/// Bytes, read from the front.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, bytes: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or_else(|| invalid_data("an answer is cut short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> io::Result<i32> {
        let bytes = self.take(4)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | i32::from(*byte)))
    }

    fn short(&mut self) -> io::Result<u16> {
        let bytes = self.take(2)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u16::from(*byte)))
    }

    fn count(&mut self) -> io::Result<usize> {
        usize::try_from(self.number()?).map_err(|_| invalid_data("a count is negative"))
    }

    fn string(&mut self) -> io::Result<&'a [u8]> {
        let bytes = self.short()?;
        self.take(bytes.into())
    }

    fn value(&mut self) -> io::Result<Option<Vec<u8>>> {
        match usize::try_from(self.number()?) {
            Ok(bytes) => Ok(Some(self.take(bytes)?.to_vec())),
            Err(_) => Ok(None),
        }
    }

    /// Skips the type of a column: only collections have more bytes after their number.
    fn kind(&mut self) -> io::Result<()> {
        match self.short()? {
            0x20 | 0x22 => self.kind(),
            0x21 => self.kind().and_then(|()| self.kind()),
            1..=0x1f => Ok(()),
            other => Err(invalid_data(&format!("a column is of type {other:#x}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A node that gives one answer to one request.
    fn node(answer: Vec<u8>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 9];
            stream.read_exact(&mut head).unwrap();
            stream.write_all(&answer).unwrap();
        });
        at
    }

    #[test]
    fn only_a_cassandra_node_counts_as_answering() {
        let within = Duration::from_secs(5);
        assert!(CqlConnection::is_answering(node(vec![0x84, 0, 0, 0, 6, 0, 0, 0, 2, 0, 0]), within));
        assert!(!CqlConnection::is_answering(node(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), within));
        assert!(!CqlConnection::is_answering(node(vec![0x84, 0, 0]), within));
    }

    #[test]
    fn rows_are_read_after_every_kind_of_column() {
        let mut answer = vec![0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 1, b'k', 0, 1, b't'];
        answer.extend([0, 1, b'a', 0, 0x0d, 0, 1, b'b', 0, 0x21, 0, 0x0d, 0, 0x22, 0, 0x03]);
        answer.extend([0, 0, 0, 1, 0, 0, 0, 2, b'h', b'i', 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(rows(&answer).unwrap(), [vec![Some(b"hi".to_vec()), None]]);
        for end in 4..answer.len() {
            assert!(rows(&answer[..end]).is_err(), "{end}");
        }
        assert_eq!(rows(&[0, 0, 0, 1]).unwrap(), Vec::<CqlRow>::new());
    }
}
