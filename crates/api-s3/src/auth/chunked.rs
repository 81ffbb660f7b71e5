//! Decoder of `aws-chunked` bodies, with or without chunk signatures and trailing headers.
//!
//! ```text
//! <hex size>[;chunk-signature=<64 hex>] CRLF <bytes> CRLF … 0[;chunk-signature=…] CRLF {name:value CRLF} [CRLF] CRLF
//! ```
//! Chunk bytes pass through without a copy as they arrive. A chunk's signature is verified at its end, so a body must
//! not be used before [`ChunkedDecoder::finish`] succeeds.

use bytes::{Buf as _, Bytes, BytesMut};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::errors::{Code, S3Error};

use super::canonical::{hmac_sha256, sha256_hex, unhex};

/// Longest size line or trailing header line.
const LINE_BYTES_MAX: usize = 4096;
/// Most trailing headers.
const TRAILERS_MAX: usize = 16;

/// Computes the chunk signatures of one body; each covers the signature before it.
#[derive(Clone)]
pub struct ChunkSigner {
    key: [u8; 32],
    date: String,
    scope: String,
    previous: String,
}

impl std::fmt::Debug for ChunkSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signer({} {})", self.date, self.scope)
    }
}

impl ChunkSigner {
    /// A signer that starts from the signature of the headers, the `seed`.
    pub(super) fn new(key: [u8; 32], date: String, scope: String, seed: String) -> Self {
        Self { key, date, scope, previous: seed }
    }

    /// Verifies the signature of a chunk with this hash and advances the chain.
    fn verify_chunk(&mut self, given: &str, hash: &[u8]) -> bool {
        let kind = "AWS4-HMAC-SHA256-PAYLOAD";
        let text = format!(
            "{kind}\n{}\n{}\n{}\n{}\n{}",
            self.date,
            self.scope,
            self.previous,
            sha256_hex(b""),
            hex::encode(hash)
        );
        self.verify_next(given, &text)
    }

    /// Verifies the signature of the trailing headers.
    fn verify_trailer(&mut self, given: &str, lines: &[u8]) -> bool {
        let kind = "AWS4-HMAC-SHA256-TRAILER";
        let text = format!("{kind}\n{}\n{}\n{}\n{}", self.date, self.scope, self.previous, sha256_hex(lines));
        self.verify_next(given, &text)
    }

    fn verify_next(&mut self, given: &str, text: &str) -> bool {
        let signature = hmac_sha256(&self.key, text.as_bytes());
        // The chain continues from the computed signature, never from the one that the client gave.
        self.previous = hex::encode(signature);
        unhex(given).is_some_and(|given| given.ct_eq(&signature).into())
    }
}

/// The position of the decoder in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecoderState {
    /// In a size line.
    Size,
    /// In the bytes of a chunk, with this many remaining.
    Data(u64),
    /// In the line end after a chunk.
    DataEnd,
    /// After the last chunk.
    Trailers,
    /// After the trailing headers.
    Done,
}

/// A decoder of one chunked body.
#[derive(Debug)]
pub struct ChunkedDecoder {
    state: DecoderState,
    /// The beginning of a line that arrived in pieces.
    line: BytesMut,
    signer: Option<ChunkSigner>,
    /// The signature that the client gave for the current chunk.
    chunk_signature: String,
    hash: Sha256,
    /// Bytes decoded so far, and the announced length.
    decoded: u64,
    length: u64,
    /// Names of the announced trailing headers, in lower case.
    announced: Vec<String>,
    trailers: Vec<(String, Bytes)>,
    trailer_signature: Option<String>,
}

impl ChunkedDecoder {
    /// A decoder of a body of `length` decoded bytes. `signer` is set for signed chunks; `announced` is the value of
    /// `x-amz-trailer`.
    #[must_use]
    pub fn new(length: u64, signer: Option<ChunkSigner>, announced: Option<&str>) -> Self {
        let names = announced.unwrap_or_default().split(',').map(|name| name.trim().to_ascii_lowercase());
        Self {
            state: DecoderState::Size,
            line: BytesMut::new(),
            signer,
            chunk_signature: String::new(),
            hash: Sha256::new(),
            decoded: 0,
            length,
            // Bound: the header may name any number.
            announced: names.filter(|name| !name.is_empty()).take(TRAILERS_MAX).collect(),
            trailers: Vec::new(),
            trailer_signature: None,
        }
    }

    /// Decodes the next bytes and consumes them from `input`; `None` when `input` is exhausted.
    ///
    /// # Errors
    /// `IncompleteBody` for malformed framing or excess bytes; `SignatureDoesNotMatch`; `MalformedTrailerError`.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, S3Error> {
        while !input.is_empty() {
            match self.state {
                DecoderState::Data(left) => {
                    // Only the bytes of this chunk: what follows is framing.
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    let bytes = input.split_to(count);
                    self.record_data(&bytes, left);
                    return Ok(Some(bytes));
                }
                DecoderState::Done => self.skip_line_ends(input)?,
                DecoderState::Size | DecoderState::DataEnd | DecoderState::Trailers => {
                    let Some(line) = self.take_line(input)? else { return Ok(None) };
                    self.on_line(&line)?;
                }
            }
        }
        Ok(None)
    }

    /// Verifies that the body is complete.
    ///
    /// # Errors
    /// `IncompleteBody`; `MalformedTrailerError` if an announced header is missing; `SignatureDoesNotMatch` for the
    /// trailing headers.
    pub fn finish(&mut self) -> Result<(), S3Error> {
        // Some clients omit the last line end when no trailing headers follow.
        if self.state == DecoderState::Trailers && self.line.is_empty() {
            self.finish_trailers()?;
        }
        if self.state != DecoderState::Done || self.decoded != self.length {
            return Err(Code::IncompleteBody.into());
        }
        Ok(())
    }

    /// The trailing headers without the signature, names in lower case.
    #[must_use]
    pub fn trailers(&self) -> &[(String, Bytes)] {
        &self.trailers
    }

    fn record_data(&mut self, bytes: &Bytes, left: u64) {
        if self.signer.is_some() {
            self.hash.update(bytes);
        }
        self.decoded += bytes.len() as u64;
        let left = left - bytes.len() as u64;
        self.state = if left == 0 { DecoderState::DataEnd } else { DecoderState::Data(left) };
    }

    /// Takes the next line without its end; `None` while it is incomplete.
    fn take_line(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, S3Error> {
        let end = input.iter().position(|byte| *byte == b'\n');
        let part = input.split_to(end.unwrap_or(input.len()));
        // Bound: a line without an end would fill the memory.
        if self.line.len() + part.len() > LINE_BYTES_MAX {
            return Err(malformed("a line of its framing is too long"));
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

    fn on_line(&mut self, line: &Bytes) -> Result<(), S3Error> {
        match self.state {
            DecoderState::Size => self.on_size(line),
            DecoderState::DataEnd if line.is_empty() => {
                self.finish_chunk()?;
                self.state = DecoderState::Size;
                Ok(())
            }
            DecoderState::DataEnd => Err(malformed("a chunk is longer than its size")),
            DecoderState::Trailers => self.on_trailer(line),
            DecoderState::Data(_) | DecoderState::Done => Ok(()),
        }
    }

    fn on_size(&mut self, line: &[u8]) -> Result<(), S3Error> {
        let text = std::str::from_utf8(line).map_err(|_| malformed("a chunk has no size"))?;
        let (size, extension) = text.split_once(';').unwrap_or((text, ""));
        let size = size.trim();
        // A sign, which the parser would accept, is no digit; 16 digits are 64 bits.
        if size.is_empty() || size.len() > 16 || !size.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(malformed("a chunk has no size"));
        }
        let size = u64::from_str_radix(size, 16).map_err(|_| malformed("a chunk has no size"))?;
        // Refused before the bytes arrive: the object would be longer than announced.
        if size > self.length - self.decoded {
            return Err(Code::IncompleteBody.into());
        }
        if self.signer.is_some() {
            let given = extension.trim().strip_prefix("chunk-signature=").unwrap_or_default();
            given.trim().clone_into(&mut self.chunk_signature);
        }
        if size > 0 {
            self.state = DecoderState::Data(size);
            return Ok(());
        }
        self.finish_chunk()?;
        self.state = DecoderState::Trailers;
        Ok(())
    }

    fn finish_chunk(&mut self) -> Result<(), S3Error> {
        let Some(signer) = &mut self.signer else { return Ok(()) };
        let hash = self.hash.finalize_reset();
        // The caller has the bytes of the chunk already: the body counts only once `finish` succeeds.
        if signer.verify_chunk(&self.chunk_signature, &hash) { Ok(()) } else { Err(Code::SignatureDoesNotMatch.into()) }
    }

    fn on_trailer(&mut self, line: &Bytes) -> Result<(), S3Error> {
        if line.is_empty() {
            // Old clients put an empty line before the signature.
            return if self.is_awaiting_signature() && !self.trailers.is_empty() {
                Ok(())
            } else {
                self.finish_trailers()
            };
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
        // Only announced trailers, each once: a client or a proxy could otherwise add one, and the first would win unseen.
        let is_there = self.trailers.iter().any(|(other, _)| *other == name);
        if is_there || self.trailers.len() == TRAILERS_MAX || !self.announced.contains(&name) {
            return Err(Code::MalformedTrailerError.into());
        }
        self.trailers.push((name, value));
        Ok(())
    }

    fn is_awaiting_signature(&self) -> bool {
        self.signer.is_some() && !self.announced.is_empty() && self.trailer_signature.is_none()
    }

    /// Checks that all announced headers have arrived and, for signed chunks, that their signature is valid.
    fn finish_trailers(&mut self) -> Result<(), S3Error> {
        let has_come = |name: &String| self.trailers.iter().any(|(key, _)| key == name);
        if !self.announced.iter().all(has_come) {
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
            if !signer.verify_trailer(self.trailer_signature.as_deref().unwrap_or_default(), &lines) {
                return Err(Code::SignatureDoesNotMatch.into());
            }
        }
        self.state = DecoderState::Done;
        Ok(())
    }

    /// Tolerates a few extra line ends after the body.
    fn skip_line_ends(&self, input: &mut Bytes) -> Result<(), S3Error> {
        if input.len() > 4 || !input.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
            return Err(malformed("something follows its last chunk"));
        }
        input.clear();
        Ok(())
    }
}

fn malformed(why: &str) -> S3Error {
    S3Error::new(Code::IncompleteBody, format!("The chunked body cannot be read: {why}."))
}

#[cfg(test)]
mod tests;
