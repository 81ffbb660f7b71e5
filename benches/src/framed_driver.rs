//! The requests of a protocol of frames on one connection, one at a time or pipelined.

use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::client::ReplySummary;
use crate::connection::Connection;
use crate::keys::{BenchRandom, KEY_BYTES, ValuePool};
use crate::kv_location::KvLocation;
use crate::limits::KEPT_BYTES_MAX;
use crate::wire::{WireProtocol, WireReply, WireWrite, WriteWait};

/// The first size of the input buffer: sixteen answers of 1 KB fit.
const INPUT_BYTES: usize = 64 * 1_024;

/// One connection and its buffers.
pub(crate) struct FramedDriver {
    protocol: WireProtocol,
    stream: Connection,
    bucket: Vec<u8>,
    request: Vec<u8>,
    input: Vec<u8>,
    /// The part of the input that holds unread bytes.
    start: usize,
    filled: usize,
    vclock: Vec<u8>,
    values: Arc<ValuePool>,
    value_bytes: usize,
    /// The random numbers of this connection.
    pub(crate) random: BenchRandom,
}

impl FramedDriver {
    /// Opens connection number `seed`.
    ///
    /// # Errors
    ///
    /// When no server answers there.
    pub(crate) async fn connect(
        place: &KvLocation,
        protocol: WireProtocol,
        values: Arc<ValuePool>,
        seed: u64,
    ) -> Result<Self> {
        let stream = Connection::open(&place.endpoint).await?;
        Ok(Self {
            protocol,
            stream,
            bucket: place.bucket().into_bytes(),
            request: Vec::with_capacity(place.value_bytes + 1_024),
            input: vec![0; INPUT_BYTES],
            start: 0,
            filled: 0,
            vclock: Vec::new(),
            values,
            value_bytes: place.value_bytes,
            random: BenchRandom::new(seed),
        })
    }

    /// Reads a key.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn get(&mut self, key: &[u8]) -> Result<ReplySummary> {
        self.request.clear();
        self.protocol.add_get(&mut self.request, &self.bucket, key);
        self.exchange().await
    }

    /// Reads a key and returns the bytes of the answer, framing included.
    ///
    /// # Errors
    ///
    /// A broken connection, or a missing key.
    pub(crate) async fn get_frame(&mut self, key: &[u8]) -> Result<Vec<u8>> {
        let reply = self.get(key).await?;
        if reply.status != 200 {
            bail!("a loaded key was answered by status {}", reply.status);
        }
        // The answer was the last one, and nothing has been read over it.
        Ok(self.input[..self.start].to_vec())
    }

    /// Sends a read of each key in one write, then reads all answers; returns the first that differs from `expected`, or else
    /// the last.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn get_pipelined(
        &mut self,
        keys: impl Iterator<Item = [u8; KEY_BYTES]>,
        expected: ReplySummary,
    ) -> Result<ReplySummary> {
        self.request.clear();
        let mut sent = 0;
        for key in keys {
            self.protocol.add_get(&mut self.request, &self.bucket, &key);
            sent += 1;
        }
        self.send().await?;
        let mut first = None;
        for _ in 0..sent {
            let reply = self.answer().await?.summary;
            if reply != expected {
                first.get_or_insert(reply);
            }
        }
        Ok(first.unwrap_or(expected))
    }

    /// Writes a random value without a context.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn put(&mut self, key: &[u8], wait: WriteWait) -> Result<ReplySummary> {
        self.vclock.clear();
        self.put_with_context(key, wait).await
    }

    /// Writes a random value with the context of the last read.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn put_with_context(&mut self, key: &[u8], wait: WriteWait) -> Result<ReplySummary> {
        let value = self.values.cut(&mut self.random, self.value_bytes);
        self.request.clear();
        let write = WireWrite { key, value, vclock: &self.vclock, wait };
        self.protocol.add_put(&mut self.request, &self.bucket, write);
        self.exchange().await
    }

    /// The size of the values that it writes and expects.
    pub(crate) fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Whether the last answer had a causal context.
    pub(crate) fn has_context(&self) -> bool {
        !self.vclock.is_empty()
    }

    async fn exchange(&mut self) -> Result<ReplySummary> {
        self.send().await?;
        let reply = self.answer().await?;
        self.vclock.clear();
        // Offsets of an answer count from its own start.
        let at = self.start - reply.bytes;
        self.vclock.extend_from_slice(&self.input[at + reply.vclock.start..at + reply.vclock.end]);
        Ok(reply.summary)
    }

    async fn send(&mut self) -> Result<()> {
        if self.start < self.filled {
            bail!("{} bytes after the last answer", self.filled - self.start);
        }
        (self.start, self.filled) = (0, 0);
        self.stream.write_all(&self.request).await.context("sending a request")
    }

    /// Reads one complete answer; it ends at `start`.
    async fn answer(&mut self) -> Result<WireReply> {
        loop {
            if let Some(reply) = self.protocol.reply(&self.input[self.start..self.filled])? {
                self.start += reply.bytes;
                return Ok(reply);
            }
            self.make_room()?;
            match self.stream.read(&mut self.input[self.filled..]).await.context("reading an answer")? {
                0 => bail!("the server closed the connection before its answer ended"),
                count => self.filled += count,
            }
        }
    }

    /// Moves unread bytes to the front when the buffer is full, and grows it when that is not enough.
    fn make_room(&mut self) -> Result<()> {
        if self.filled < self.input.len() {
            return Ok(());
        }
        self.input.copy_within(self.start..self.filled, 0);
        (self.filled, self.start) = (self.filled - self.start, 0);
        if self.filled == self.input.len() {
            if self.filled >= KEPT_BYTES_MAX {
                bail!("an answer of more than {KEPT_BYTES_MAX} bytes");
            }
            self.input.resize(2 * self.filled, 0);
        }
        Ok(())
    }
}
