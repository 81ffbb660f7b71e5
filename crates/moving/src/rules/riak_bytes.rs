//! Big-endian fields of Riak's forms, and the one error of all decoders here.

use bytes::{Buf as _, Bytes};
use larder_rows::Timestamp;
use miniz_oxide::inflate::{decompress_to_vec_with_limit, decompress_to_vec_zlib_with_limit};

/// Most bytes that compressed bytes may inflate to.
pub(super) const INFLATED_BYTES_MAX: usize = 64 << 20;

/// Bytes of a source that have not the form that they should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RiakFormError {
    /// They end too early: a length or a count exceeds them.
    #[error("it ends before its {0} does")]
    Truncated(&'static str),
    /// A part has a form that is unknown or wrong.
    #[error("its {0} is not one that Riak writes")]
    Invalid(&'static str),
    /// There is more behind its end.
    #[error("bytes follow its end")]
    Trailing,
    /// A bound of this decoder was reached.
    #[error("its {0} exceeds what is decoded")]
    TooLarge(&'static str),
    /// The checksum is another one.
    #[error("its checksum does not match")]
    Checksum,
}

/// Reads fields from the front of bytes.
#[derive(Debug, Clone)]
pub(super) struct RiakBytes(pub(super) Bytes);

impl RiakBytes {
    /// Bytes that are left.
    pub(super) fn remaining(&self) -> usize {
        self.0.len()
    }

    pub(super) fn u8(&mut self, part: &'static str) -> Result<u8, RiakFormError> {
        self.0.try_get_u8().map_err(|_| RiakFormError::Truncated(part))
    }

    pub(super) fn u32(&mut self, part: &'static str) -> Result<u32, RiakFormError> {
        self.0.try_get_u32().map_err(|_| RiakFormError::Truncated(part))
    }

    /// So many bytes, without a copy.
    pub(super) fn take(&mut self, count: usize, part: &'static str) -> Result<Bytes, RiakFormError> {
        match count <= self.0.len() {
            true => Ok(self.0.split_to(count)),
            false => Err(RiakFormError::Truncated(part)),
        }
    }

    /// Bytes after their length in four bytes.
    pub(super) fn sized(&mut self, part: &'static str) -> Result<Bytes, RiakFormError> {
        let length = self.u32(part)?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX), part)
    }

    /// A time in three numbers: megaseconds, seconds and microseconds. One beyond all times is the last one.
    pub(super) fn time(&mut self) -> Result<Timestamp, RiakFormError> {
        let mut part = || self.u32("time").map(u64::from);
        let (mega, seconds, micros) = (part()?, part()?, part()?);
        let seconds = mega.saturating_mul(1_000_000).saturating_add(seconds);
        Ok(Timestamp(seconds.saturating_mul(1_000_000).saturating_add(micros)))
    }

    /// The rest.
    pub(super) fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.0)
    }

    /// # Errors
    /// [`RiakFormError::Trailing`] when bytes are left.
    pub(super) fn finish(&self) -> Result<(), RiakFormError> {
        if self.0.is_empty() { Ok(()) } else { Err(RiakFormError::Trailing) }
    }
}

/// Writes bytes after their length in four bytes.
pub(super) fn put_sized(out: &mut Vec<u8>, parts: &[&[u8]]) {
    // Bound: an object that is written has at most 64 MiB.
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Writes a time in three numbers.
pub(super) fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    let seconds = time.0 / 1_000_000;
    for part in [seconds / 1_000_000, seconds % 1_000_000, time.0 % 1_000_000] {
        out.extend(u32::try_from(part).unwrap_or(u32::MAX).to_be_bytes());
    }
}

/// Inflates bytes with a zlib header, up to `max` bytes.
pub(super) fn inflate_zlib(bytes: &[u8], max: usize) -> Result<Bytes, RiakFormError> {
    inflated(decompress_to_vec_zlib_with_limit(bytes, max))
}

/// Inflates bytes without a header, up to `max` bytes.
pub(super) fn inflate_raw(bytes: &[u8], max: usize) -> Result<Bytes, RiakFormError> {
    inflated(decompress_to_vec_with_limit(bytes, max))
}

fn inflated(result: Result<Vec<u8>, miniz_oxide::inflate::DecompressError>) -> Result<Bytes, RiakFormError> {
    use miniz_oxide::inflate::TINFLStatus;
    match result {
        Ok(bytes) => Ok(bytes.into()),
        Err(error) if error.status == TINFLStatus::HasMoreOutput => Err(RiakFormError::TooLarge("inflated form")),
        Err(_) => Err(RiakFormError::Invalid("compressed form")),
    }
}
