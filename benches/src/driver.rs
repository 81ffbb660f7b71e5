//! The requests of Riak's objects on one connection.

use std::sync::Arc;

use anyhow::Result;

use crate::client::{KeepAliveClient, ReplySummary};
use crate::endpoint::Endpoint;
use crate::keys::{BenchRandom, ValuePool};

/// The durability that a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteWait {
    /// A sync: the bucket's own `dw`.
    Disk,
    /// Memory only: `?dw=0`.
    Memory,
}

/// The server and the bucket of one value size.
#[derive(Debug, Clone)]
pub(crate) struct KvLocation {
    /// The server.
    pub(crate) endpoint: Endpoint,
    /// The size of each value, which is part of the bucket's name.
    pub(crate) value_bytes: usize,
}

impl KvLocation {
    /// The path before a key.
    pub(crate) fn path(&self) -> String {
        format!("/buckets/larder-bench-{}/keys/", self.value_bytes)
    }
}

/// One connection and its request buffer.
pub(crate) struct KvDriver {
    client: KeepAliveClient,
    request: Vec<u8>,
    get_start: Vec<u8>,
    put_start: Vec<u8>,
    get_end: Vec<u8>,
    put_end: Vec<u8>,
    values: Arc<ValuePool>,
    value_bytes: usize,
    /// The random numbers of this connection.
    pub(crate) random: BenchRandom,
}

impl KvDriver {
    /// Opens connection number `seed`.
    ///
    /// # Errors
    ///
    /// When no server answers there.
    pub(crate) async fn connect(place: &KvLocation, values: Arc<ValuePool>, seed: u64) -> Result<Self> {
        let (path, host) = (place.path(), &place.endpoint.host);
        let put_end = format!(
            " HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n",
            place.value_bytes
        );
        Ok(Self {
            client: KeepAliveClient::connect(&place.endpoint).await?,
            request: Vec::with_capacity(place.value_bytes + 1_024),
            get_start: format!("GET {path}").into_bytes(),
            put_start: format!("PUT {path}").into_bytes(),
            get_end: format!(" HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes(),
            put_end: put_end.into_bytes(),
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
        self.build_get(key);
        self.client.exchange(&self.request).await
    }

    /// Reads a key and returns the head of the answer.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn get_head(&mut self, key: &[u8]) -> Result<(ReplySummary, Vec<u8>)> {
        self.build_get(key);
        self.client.exchange_for_head(&self.request).await
    }

    /// Writes a random value without a context.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn put(&mut self, key: &[u8], wait: WriteWait) -> Result<ReplySummary> {
        self.build_put(key, wait, false);
        self.client.exchange(&self.request).await
    }

    /// Writes a random value with the context of the last read.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn put_with_context(&mut self, key: &[u8], wait: WriteWait) -> Result<ReplySummary> {
        self.build_put(key, wait, true);
        self.client.exchange(&self.request).await
    }

    /// The size of the values that it writes and expects.
    pub(crate) fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Whether the last answer had a causal context.
    pub(crate) fn has_context(&self) -> bool {
        !self.client.vclock().is_empty()
    }

    fn build_get(&mut self, key: &[u8]) {
        self.request.clear();
        for part in [&self.get_start, key, &self.get_end] {
            self.request.extend_from_slice(part);
        }
    }

    fn build_put(&mut self, key: &[u8], wait: WriteWait, with_context: bool) {
        let query: &[u8] = if wait == WriteWait::Memory { b"?dw=0" } else { b"" };
        self.request.clear();
        for part in [&self.put_start, key, query, &self.put_end] {
            self.request.extend_from_slice(part);
        }
        let vclock = self.client.vclock();
        if with_context && !vclock.is_empty() {
            for part in [b"X-Riak-Vclock: ", vclock, b"\r\n"] {
                self.request.extend_from_slice(part);
            }
        }
        self.request.extend_from_slice(b"\r\n");
        self.request.extend_from_slice(self.values.cut(&mut self.random, self.value_bytes));
    }
}
