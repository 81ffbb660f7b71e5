//! Bodies that come in chunks (`aws-chunked`), with or without a signature for each, with or without headers behind the last.
//!
//! ```text
//! <hex size>[;chunk-signature=<64 hex>] CRLF <bytes> CRLF … 0[;chunk-signature=…] CRLF {name:value CRLF} [CRLF] CRLF
//! ```
//! The bytes of a chunk pass through as they come, without a copy; its signature is known to hold only at its end, so nothing of
//! a body may count before [`Decoder::finish`].

use bytes::{Buf as _, Bytes, BytesMut};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::errors::{Code, Fault};

use super::canonical::{hex, hmac_sha256, sha256_hex, unhex};

/// Longest line of a chunk's size or of a trailing header.
const LINE_BYTES_MAX: usize = 4096;
/// Most headers behind the last chunk.
const TRAILERS_MAX: usize = 16;

/// Signs the chunks of one body, each with the signature before it.
#[derive(Clone)]
pub struct Signer {
    key: [u8; 32],
    date: String,
    scope: String,
    previous: String,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signer({} {})", self.date, self.scope)
    }
}

impl Signer {
    /// A signer that begins with the signature of the headers, the `seed`.
    pub(super) fn new(key: [u8; 32], date: String, scope: String, seed: String) -> Self {
        Self { key, date, scope, previous: seed }
    }

    /// Whether `given` signs a chunk of this hash; the next one builds on it.
    fn chunk(&mut self, given: &str, hash: &[u8]) -> bool {
        let kind = "AWS4-HMAC-SHA256-PAYLOAD";
        let text =
            format!("{kind}\n{}\n{}\n{}\n{}\n{}", self.date, self.scope, self.previous, sha256_hex(b""), hex(hash));
        self.next(given, &text)
    }

    /// Whether `given` signs these trailing headers.
    fn trailer(&mut self, given: &str, lines: &[u8]) -> bool {
        let kind = "AWS4-HMAC-SHA256-TRAILER";
        let text = format!("{kind}\n{}\n{}\n{}\n{}", self.date, self.scope, self.previous, sha256_hex(lines));
        self.next(given, &text)
    }

    fn next(&mut self, given: &str, text: &str) -> bool {
        let signature = hmac_sha256(&self.key, text.as_bytes());
        self.previous = hex(&signature);
        unhex(given).is_some_and(|given| given.ct_eq(&signature).into())
    }
}

/// Where in a body the decoder stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the line of a chunk's size.
    Size,
    /// In its bytes, with so many to come.
    Data(u64),
    /// In the line end behind them.
    DataEnd,
    /// Behind the last chunk.
    Trailers,
    /// Behind it all.
    Done,
}

/// Takes a body out of its chunks.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    /// The line so far, when it came in pieces.
    line: BytesMut,
    signer: Option<Signer>,
    /// The signature given for the chunk under way.
    given: String,
    hash: Sha256,
    /// Bytes decoded so far, and how many there have to be.
    decoded: u64,
    length: u64,
    /// Names of the headers that were announced, in lower case.
    announced: Vec<String>,
    trailers: Vec<(String, Bytes)>,
    trailer_signature: Option<String>,
}

impl Decoder {
    /// A decoder of a body of `length` bytes once decoded. `signer`: chunks are signed. `announced`: the value of the header
    /// `x-amz-trailer`.
    #[must_use]
    pub fn new(length: u64, signer: Option<Signer>, announced: Option<&str>) -> Self {
        let names = announced.unwrap_or_default().split(',').map(|name| name.trim().to_ascii_lowercase());
        Self {
            state: State::Size,
            line: BytesMut::new(),
            signer,
            given: String::new(),
            hash: Sha256::new(),
            decoded: 0,
            length,
            announced: names.filter(|name| !name.is_empty()).take(TRAILERS_MAX).collect(),
            trailers: Vec::new(),
            trailer_signature: None,
        }
    }

    /// The next decoded bytes of `input`, which loses what was read; `None` when all of it was.
    ///
    /// # Errors
    /// `IncompleteBody`: malformed or longer than announced; `SignatureDoesNotMatch`; `MalformedTrailerError`.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, Fault> {
        while !input.is_empty() {
            match self.state {
                State::Data(left) => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    let bytes = input.split_to(count);
                    self.took(&bytes, left);
                    return Ok(Some(bytes));
                }
                State::Done => self.after_end(input)?,
                State::Size | State::DataEnd | State::Trailers => {
                    let Some(line) = self.line(input)? else { return Ok(None) };
                    self.on_line(&line)?;
                }
            }
        }
        Ok(None)
    }

    /// Whether the body came whole.
    ///
    /// # Errors
    /// `IncompleteBody`: it did not; `MalformedTrailerError`: the announced headers did not come behind it;
    /// `SignatureDoesNotMatch`: theirs.
    pub fn finish(&mut self) -> Result<(), Fault> {
        // Some clients leave out the last line end when nothing stands behind the last chunk.
        if self.state == State::Trailers && self.line.is_empty() {
            self.end()?;
        }
        if self.state != State::Done || self.decoded != self.length {
            return Err(Code::IncompleteBody.into());
        }
        Ok(())
    }

    /// The headers that came behind the body, names in lower case, without the signature.
    #[must_use]
    pub fn trailers(&self) -> &[(String, Bytes)] {
        &self.trailers
    }

    fn took(&mut self, bytes: &Bytes, left: u64) {
        if self.signer.is_some() {
            self.hash.update(bytes);
        }
        self.decoded += bytes.len() as u64;
        let left = left - bytes.len() as u64;
        self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
    }

    /// The next line of `input` without its end; `None` when it has not come whole.
    fn line(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, Fault> {
        let end = input.iter().position(|byte| *byte == b'\n');
        let part = input.split_to(end.unwrap_or(input.len()));
        if self.line.len() + part.len() > LINE_BYTES_MAX {
            return Err(broken("a line of its framing is too long"));
        }
        if end.is_none() {
            self.line.extend_from_slice(&part);
            return Ok(None);
        }
        input.advance(1);
        let line = if self.line.is_empty() {
            part
        } else {
            self.line.extend_from_slice(&part);
            self.line.split().freeze()
        };
        Ok(Some(if line.ends_with(b"\r") { line.slice(..line.len() - 1) } else { line }))
    }

    fn on_line(&mut self, line: &Bytes) -> Result<(), Fault> {
        match self.state {
            State::Size => self.on_size(line),
            State::DataEnd if line.is_empty() => {
                self.chunk_holds()?;
                self.state = State::Size;
                Ok(())
            }
            State::DataEnd => Err(broken("a chunk is longer than its size")),
            State::Trailers => self.on_trailer(line),
            State::Data(_) | State::Done => Ok(()),
        }
    }

    fn on_size(&mut self, line: &[u8]) -> Result<(), Fault> {
        let text = std::str::from_utf8(line).map_err(|_| broken("a chunk has no size"))?;
        let (size, extension) = text.split_once(';').unwrap_or((text, ""));
        let size = size.trim();
        if size.is_empty() || size.len() > 16 || !size.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(broken("a chunk has no size"));
        }
        let size = u64::from_str_radix(size, 16).map_err(|_| broken("a chunk has no size"))?;
        if size > self.length - self.decoded {
            return Err(Code::IncompleteBody.into());
        }
        if self.signer.is_some() {
            let given = extension.trim().strip_prefix("chunk-signature=").unwrap_or_default();
            given.trim().clone_into(&mut self.given);
        }
        if size > 0 {
            self.state = State::Data(size);
            return Ok(());
        }
        self.chunk_holds()?;
        self.state = State::Trailers;
        Ok(())
    }

    fn chunk_holds(&mut self) -> Result<(), Fault> {
        let Some(signer) = &mut self.signer else { return Ok(()) };
        let hash = self.hash.finalize_reset();
        if signer.chunk(&self.given, &hash) { Ok(()) } else { Err(Code::SignatureDoesNotMatch.into()) }
    }

    fn on_trailer(&mut self, line: &Bytes) -> Result<(), Fault> {
        if line.is_empty() {
            // Old programs put an empty line in front of the signature.
            return if self.awaits_signature() && !self.trailers.is_empty() { Ok(()) } else { self.end() };
        }
        let colon = line.iter().position(|byte| *byte == b':').ok_or(Code::MalformedTrailerError)?;
        let name = std::str::from_utf8(&line[..colon]).map_err(|_| Code::MalformedTrailerError)?;
        let name = name.trim().to_ascii_lowercase();
        let value = line.slice(colon + 1..);
        let value = value.slice_ref(value.trim_ascii());
        if name == "x-amz-trailer-signature" {
            self.trailer_signature = Some(String::from_utf8_lossy(&value).into_owned());
            return Ok(());
        }
        if self.trailers.len() == TRAILERS_MAX || !self.announced.contains(&name) {
            return Err(Code::MalformedTrailerError.into());
        }
        self.trailers.push((name, value));
        Ok(())
    }

    fn awaits_signature(&self) -> bool {
        self.signer.is_some() && !self.announced.is_empty() && self.trailer_signature.is_none()
    }

    /// The end of the trailing headers: those that were announced are there, and signed if chunks are.
    fn end(&mut self) -> Result<(), Fault> {
        let came = |name: &String| self.trailers.iter().any(|(one, _)| one == name);
        if !self.announced.iter().all(came) {
            return Err(Code::MalformedTrailerError.into());
        }
        if let (Some(signer), false) = (&mut self.signer, self.announced.is_empty()) {
            let mut lines = Vec::new();
            for (name, value) in &self.trailers {
                lines.extend_from_slice(name.as_bytes());
                lines.push(b':');
                lines.extend_from_slice(value);
                lines.push(b'\n');
            }
            if !signer.trailer(self.trailer_signature.as_deref().unwrap_or_default(), &lines) {
                return Err(Code::SignatureDoesNotMatch.into());
            }
        }
        self.state = State::Done;
        Ok(())
    }

    /// Line ends too many are nobody's harm.
    fn after_end(&self, input: &mut Bytes) -> Result<(), Fault> {
        if input.len() > 4 || !input.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
            return Err(broken("something follows its last chunk"));
        }
        input.clear();
        Ok(())
    }
}

fn broken(why: &str) -> Fault {
    Fault::new(Code::IncompleteBody, format!("The chunked body cannot be read: {why}."))
}

#[cfg(test)]
mod tests;
