//! The buffers of a reader. Memory that held a block before is neither allocated nor zeroed again, and is in the processor's cache.

use bytes::{Bytes, BytesMut};

/// Most buffers of a reader: two whose bytes wait for the socket, and one to read into.
const BUFFERS_MAX: usize = 3;
/// The longest buffer that is kept, in bytes.
pub(super) const BUFFER_BYTES_MAX: usize = 1024 * 1024;

/// The buffers of one reader, those used last at the end.
#[derive(Debug, Default)]
pub(super) struct BlockBuffers(Vec<Bytes>);

impl BlockBuffers {
    /// A buffer of this length with any content: one whose bytes nobody reads any more, or a new one.
    pub(super) fn take(&mut self, length: usize) -> BytesMut {
        let free = self.0.iter().rposition(Bytes::is_unique);
        let free = free.and_then(|at| self.0.remove(at).try_into_mut().ok());
        let mut buffer = free.unwrap_or_default();
        buffer.resize(length, 0);
        buffer
    }

    /// Keeps a full buffer for a later [`Self::take`], and returns it.
    pub(super) fn keep(&mut self, buffer: Bytes) -> Bytes {
        if buffer.len() <= BUFFER_BYTES_MAX && self.0.len() < BUFFERS_MAX {
            self.0.push(buffer.clone());
        }
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_serves_again_only_when_all_its_readers_are_gone() {
        let mut buffers = BlockBuffers::default();
        let first = buffers.take(4);
        let memory = first.as_ptr();
        let slice = buffers.keep(first.freeze()).slice(1..3);
        assert_ne!(buffers.take(4).as_ptr(), memory, "a reader has a slice");
        assert_eq!(slice, [0, 0][..]);
        drop(slice);
        let again = buffers.take(2);
        assert_eq!((again.as_ptr(), again.len()), (memory, 2), "the memory of the first, cut to the length");
    }

    #[test]
    fn a_reader_keeps_few_buffers() {
        let mut buffers = BlockBuffers::default();
        let mut fill = |length| {
            let full = buffers.take(length).freeze();
            buffers.keep(full)
        };
        let held: Vec<Bytes> = (0..10).map(|_| fill(8)).collect();
        assert_eq!(buffers.0.len(), BUFFERS_MAX);
        drop(held);
        buffers.0.clear();
        let long = buffers.take(BUFFER_BYTES_MAX + 1);
        buffers.keep(long.freeze());
        assert!(buffers.0.is_empty(), "a long buffer is not kept");
    }
}
