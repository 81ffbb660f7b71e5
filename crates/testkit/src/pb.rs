//! Protocol buffers by hand, so that a test may send any bytes and sees every field of an answer.

#![allow(clippy::expect_used, reason = "a harness fails a test by panicking")]

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// The longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// One field of a message to send.
#[derive(Debug, Clone, Copy)]
pub enum PbField<'a> {
    /// Bytes, text or a message within.
    Bytes(u32, &'a [u8]),
    /// A number or a flag.
    Number(u32, u64),
}

/// A message that was received: its fields in order, numbers as their value and no bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PbMessage {
    /// Field number, number, bytes.
    pub fields: Vec<(u32, u64, Vec<u8>)>,
}

/// A client of protocol buffers on one connection.
#[derive(Debug)]
pub struct PbClient {
    socket: TcpStream,
}

/// The fields as a message.
#[must_use]
pub fn message(fields: &[PbField<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for field in fields {
        match field {
            PbField::Bytes(number, bytes) => {
                put_varint(&mut out, u64::from(*number) << 3 | 2);
                put_varint(&mut out, bytes.len() as u64);
                out.extend_from_slice(bytes);
            }
            PbField::Number(number, value) => {
                put_varint(&mut out, u64::from(*number) << 3);
                put_varint(&mut out, *value);
            }
        }
    }
    out
}

/// A frame with this code and message.
#[must_use]
pub fn frame(code: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len() + 1).expect("a frame that fits");
    [&length.to_be_bytes()[..], &[code], message].concat()
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_varint(rest: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first().expect("a whole number");
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

impl PbMessage {
    /// Decodes a message.
    ///
    /// # Panics
    /// When the bytes are no message.
    #[must_use]
    pub fn decode(mut bytes: &[u8]) -> Self {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = take_varint(&mut bytes);
            let value = take_varint(&mut bytes);
            let length = if key & 7 == 2 { usize::try_from(value).expect("a length") } else { 0 };
            let (taken, after) = bytes.split_at(length);
            bytes = after;
            let number = if length == 0 && key & 7 == 0 { value } else { 0 };
            fields.push((u32::try_from(key >> 3).expect("a field number"), number, taken.to_vec()));
        }
        Self { fields }
    }

    /// The bytes of a field; `None` when it is absent.
    #[must_use]
    pub fn bytes(&self, field: u32) -> Option<&[u8]> {
        self.all(field).next()
    }

    /// The text of a field, empty when it is absent.
    #[must_use]
    pub fn text(&self, field: u32) -> String {
        String::from_utf8_lossy(self.bytes(field).unwrap_or_default()).into_owned()
    }

    /// The bytes of a repeated field.
    pub fn all(&self, field: u32) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().filter(move |one| one.0 == field).map(|one| &one.2[..])
    }

    /// The number of a field; `None` when it is absent.
    #[must_use]
    pub fn number(&self, field: u32) -> Option<u64> {
        self.fields.iter().find(|one| one.0 == field).map(|one| one.1)
    }
}

impl PbClient {
    /// Connects.
    ///
    /// # Panics
    /// When the server refuses.
    #[must_use]
    pub fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).expect("the server takes connections");
        socket.set_read_timeout(Some(ANSWER_MAX)).expect("a socket with a timeout");
        socket.set_nodelay(true).expect("a socket without delay");
        Self { socket }
    }

    /// Another connection to the same server.
    ///
    /// # Panics
    /// When the server refuses.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self::connect(self.socket.peer_addr().expect("a connected socket"))
    }

    /// The same connection once more, for a thread that writes while another reads.
    ///
    /// # Panics
    /// When the process has no descriptor left.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { socket: self.socket.try_clone().expect("a descriptor") }
    }

    /// Closes one direction of the connection, or both.
    pub fn close(&self, direction: Shutdown) {
        let _ = self.socket.shutdown(direction);
    }

    /// Whether the server closes the connection within this time, without a further byte.
    ///
    /// # Panics
    /// When the socket takes no timeout.
    pub fn is_closed_within(&mut self, within: Duration) -> bool {
        self.socket.set_read_timeout(Some(within)).expect("a socket with a timeout");
        let read = self.socket.read(&mut [0]);
        self.socket.set_read_timeout(Some(ANSWER_MAX)).expect("a socket with a timeout");
        matches!(read, Ok(0))
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The server closed the connection.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Sends one request and returns the code and the message of its answer.
    ///
    /// # Panics
    /// When the server closes the connection first.
    pub fn ask(&mut self, code: u8, fields: &[PbField<'_>]) -> (u8, PbMessage) {
        self.ask_message(code, &message(fields))
    }

    /// Sends one request with this message and returns the code and the message of its answer.
    ///
    /// # Panics
    /// When the server closes the connection first.
    pub fn ask_message(&mut self, code: u8, message: &[u8]) -> (u8, PbMessage) {
        self.send(&frame(code, message)).expect("the request is sent");
        self.receive().expect("the request is answered")
    }

    /// Sends one request that must fail, and returns the error's text.
    ///
    /// # Panics
    /// When it succeeds.
    pub fn refused(&mut self, code: u8, fields: &[PbField<'_>]) -> String {
        let (code, answer) = self.ask(code, fields);
        assert_eq!((code, answer.number(2)), (0, Some(0)), "an error message: {answer:?}");
        answer.text(1)
    }

    /// The next answer; `None`: the server closed the connection.
    #[must_use]
    pub fn receive(&mut self) -> Option<(u8, PbMessage)> {
        let mut length = [0; 4];
        self.socket.read_exact(&mut length).ok()?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.socket.read_exact(&mut frame).ok()?;
        let (code, message) = frame.split_first()?;
        Some((*code, PbMessage::decode(message)))
    }
}
