//! The frames between the pool and a worker: a length, a kind, a payload.
//!
//! ```text
//! length: u32, big-endian, of kind and payload · kind: u8 · payload: JSON or text
//! ```

use std::io::{self, Read, Write};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// To the worker: limits and modules, the first frame. Payload: [`WorkerSetup`](crate::worker::WorkerSetup).
    Setup,
    /// To the worker: a call of a named function. Payload: `{"function":NAME,"now":MILLISECONDS,"arguments":[...]}`.
    CallNamed,
    /// To the worker: a call of a source, in a heap of its own. Payload as above.
    CallSource,
    /// From the worker: it is ready for a call. Payload of the first: [`LoadedModules`](crate::worker::LoadedModules).
    Ready,
    /// From the worker: a line of the script's log. Payload: `[FILE, TEXT]`.
    Log,
    /// From the worker: the result of the call. Payload: JSON.
    Value,
    /// From the worker: the script threw. Payload: the text.
    Threw,
    /// From the worker: no function has the name.
    NoSuchFunction,
    /// From the worker: the result has too many bytes.
    TooLarge,
}

impl FrameKind {
    const ALL: [Self; 9] = [
        Self::Setup,
        Self::CallNamed,
        Self::CallSource,
        Self::Ready,
        Self::Log,
        Self::Value,
        Self::Threw,
        Self::NoSuchFunction,
        Self::TooLarge,
    ];

    fn from_byte(byte: u8) -> io::Result<Self> {
        Self::ALL.get(usize::from(byte)).copied().ok_or_else(|| invalid("unknown kind of frame"))
    }
}

/// A kind with its payload.
pub(crate) type Frame = (FrameKind, Vec<u8>);

/// A frame as bytes.
pub(crate) fn encode(kind: FrameKind, payload: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(payload.len() + 1).map_err(|_| invalid("frame too large"))?;
    let mut bytes = Vec::with_capacity(payload.len() + 5);
    bytes.extend(length.to_be_bytes());
    bytes.push(kind as u8);
    bytes.extend(payload);
    Ok(bytes)
}

/// Writes a frame in one call, in the worker.
pub(crate) fn write(mut out: impl Write, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
    out.write_all(&encode(kind, payload)?)?;
    out.flush()
}

/// Reads a frame, in the worker; `None` at the end of the pipe.
pub(crate) fn read(mut from: impl Read, max: usize) -> io::Result<Option<Frame>> {
    let mut head = [0; 5];
    match from.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let (kind, length) = decode_head(head, max)?;
    let mut payload = vec![0; length];
    from.read_exact(&mut payload)?;
    Ok(Some((kind, payload)))
}

/// Writes an encoded frame, in the server.
pub(crate) async fn send(mut to: impl AsyncWrite + Unpin, frame: &[u8]) -> io::Result<()> {
    to.write_all(frame).await?;
    to.flush().await
}

/// Reads a frame, in the server. Memory grows by bytes that arrived, never by a claimed length.
pub(crate) async fn receive(mut from: impl AsyncRead + Unpin, max: usize) -> io::Result<Frame> {
    let mut head = [0; 5];
    from.read_exact(&mut head).await?;
    let (kind, length) = decode_head(head, max)?;
    let mut payload = Vec::with_capacity(length.min(64 << 10));
    from.take(length as u64).read_to_end(&mut payload).await?;
    if payload.len() == length { Ok((kind, payload)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn decode_head(head: [u8; 5], max: usize) -> io::Result<(FrameKind, usize)> {
    let [a, b, c, d, kind] = head;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    let payload = length.checked_sub(1).ok_or_else(|| invalid("empty frame"))?;
    if payload > max { Err(invalid("frame too large")) } else { Ok((FrameKind::from_byte(kind)?, payload)) }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_frame_is_read_as_it_was_written() {
        for kind in FrameKind::ALL {
            let bytes = encode(kind, b"payload").unwrap();
            assert_eq!(read(&*bytes, 7).unwrap(), Some((kind, b"payload".to_vec())));
            assert!(read(&*bytes, 6).is_err(), "{kind:?}: a payload above the bound is refused");
        }
    }

    #[tokio::test]
    async fn a_claimed_length_takes_no_memory_and_a_cut_frame_is_an_error() {
        let mut claimed = u32::MAX.to_be_bytes().to_vec();
        claimed.push(FrameKind::Value as u8);
        assert!(receive(&*claimed, usize::MAX).await.is_err());
        assert!(receive(&*claimed, 1 << 20).await.is_err());
        for broken in [&[0, 0, 0, 0, 5][..], &[0, 0, 0, 2, 99, 0], &[0, 0]] {
            assert!(receive(broken, 100).await.is_err(), "{broken:?}");
        }
        assert_eq!(read(&[][..], 9).unwrap(), None);
    }
}
