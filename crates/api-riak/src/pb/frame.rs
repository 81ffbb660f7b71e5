//! Frames: a length of four bytes, a message code of one, and the message.
//!
//! The buffer of a connection grows with the bytes that arrived, never by a length that a client only claims.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::Message;

/// Bytes of the length field.
pub(super) const LENGTH_BYTES: usize = 4;

/// The first bytes of a frame: its code, and the length of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHead {
    /// The message code.
    pub(super) code: u8,
    /// Bytes of the message.
    pub(super) length: usize,
}

/// The connection sent a frame without a code: where the next one begins is known, what this one means is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EmptyFrame;

impl FrameHead {
    /// The head at the start of `input`; `None` until it has arrived.
    ///
    /// # Errors
    /// [`EmptyFrame`]: Riak closes the connection, and so does the caller.
    pub(super) fn parse(input: &[u8]) -> Result<Option<Self>, EmptyFrame> {
        let Some((length, rest)) = input.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length).checked_sub(1).ok_or(EmptyFrame)?;
        Ok(rest.first().map(|&code| Self { code, length: length as usize }))
    }

    /// Bytes of the whole frame.
    pub(super) fn frame_bytes(self) -> usize {
        LENGTH_BYTES + 1 + self.length
    }

    /// Whether the whole frame has arrived.
    pub(super) fn is_whole(self, input: &[u8]) -> bool {
        input.len() >= self.frame_bytes()
    }

    /// Takes the message off `input`; `None` until all of it has arrived.
    pub(super) fn take(self, input: &mut BytesMut) -> Option<Bytes> {
        if !self.is_whole(input) {
            return None;
        }
        input.advance(LENGTH_BYTES + 1);
        Some(input.split_to(self.length).freeze())
    }
}

/// Appends a frame with `message`.
pub(super) fn put_message(output: &mut BytesMut, code: u8, message: &impl Message) {
    put_head(output, code, message.encoded_len());
    // A buffer in memory has room for every message.
    let _ = message.encode(output);
}

/// Appends the head of a frame whose message of `length` bytes follows.
pub(super) fn put_head(output: &mut BytesMut, code: u8, length: usize) {
    output.reserve(LENGTH_BYTES + 1 + length.min(RESERVE_MAX));
    output.put_u32(u32::try_from(length + 1).unwrap_or(u32::MAX));
    output.put_u8(code);
}

/// The most bytes that a head reserves for its message: the rest of a long one goes out in pieces.
const RESERVE_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_frame_is_taken_when_all_of_it_has_arrived() {
        let sent = [0, 0, 0, 3, 9, 7, 8, 0, 0, 0, 1, 1];
        for arrived in 0..sent.len() {
            let mut input = BytesMut::from(&sent[..arrived]);
            let head = FrameHead::parse(&input).unwrap();
            assert_eq!(head.is_some(), arrived >= 5, "{arrived} bytes");
            let message = head.and_then(|head| head.take(&mut input));
            assert_eq!(message.as_deref(), (arrived >= 7).then_some(&[7, 8][..]), "{arrived} bytes");
        }
        let mut input = BytesMut::from(&sent[7..]);
        let head = FrameHead::parse(&input).unwrap().unwrap();
        assert_eq!((head, head.take(&mut input)), (FrameHead { code: 1, length: 0 }, Some(Bytes::new())));
        assert!(input.is_empty());
    }

    #[test]
    fn a_frame_of_no_bytes_is_refused_and_a_claimed_length_takes_no_memory() {
        assert_eq!(FrameHead::parse(&[0, 0, 0, 0]), Err(EmptyFrame));
        let mut input = BytesMut::from(&[0xff, 0xff, 0xff, 0xff, 11, 1][..]);
        let head = FrameHead::parse(&input).unwrap().unwrap();
        assert_eq!((head.length, head.take(&mut input)), (u32::MAX as usize - 1, None));
        assert!(input.capacity() < 64);
    }

    proptest! {
        #[test]
        fn frames_are_taken_as_they_were_put(code: u8, name: Vec<u8>, rest: Vec<u8>) {
            let message = super::super::messages::RpbClientId { client_id: Some(name.into()) };
            let mut wire = BytesMut::new();
            put_message(&mut wire, code, &message);
            wire.extend_from_slice(&rest);
            let head = FrameHead::parse(&wire).unwrap().unwrap();
            prop_assert_eq!(head.code, code);
            let body = head.take(&mut wire).unwrap();
            prop_assert_eq!(super::super::messages::RpbClientId::decode(body).unwrap(), message);
            prop_assert_eq!(&wire[..], &rest[..]);
        }
    }
}
