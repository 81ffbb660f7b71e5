//! The requests of Riak's objects over HTTP on one connection.

use std::sync::Arc;

use anyhow::Result;

use crate::client::{KeepAliveClient, ReplySummary};
use crate::keys::{BenchRandom, ValuePool};
use crate::kv_location::KvLocation;
use crate::wire::WriteWait;

/// One connection and its request buffer.
pub(crate) struct HttpDriver {
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

impl HttpDriver {
    /// Opens connection number `seed`.
    ///
    /// # Errors
    ///
    /// When no server answers there.
    pub(crate) async fn connect(place: &KvLocation, values: Arc<ValuePool>, seed: u64) -> Result<Self> {
        let (path, host) = (format!("/buckets/{}/keys/", place.bucket()), &place.endpoint.host);
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
