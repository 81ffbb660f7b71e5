//! One connection to a key-value server: the same requests over each protocol.

use std::sync::Arc;

use anyhow::{Result, bail};

use crate::client::ReplySummary;
use crate::framed_driver::FramedDriver;
use crate::http_driver::HttpDriver;
use crate::keys::{BenchRandom, KEY_BYTES, ValuePool};
use crate::kv_location::{KvLocation, KvProtocol};
use crate::wire::WriteWait;

/// One connection. Statuses are those of HTTP over every protocol: 200 a value, 204 stored, 404 missing.
pub(crate) enum KvDriver {
    /// Over HTTP.
    Http(HttpDriver),
    /// Over frames.
    Framed(FramedDriver),
}

impl KvDriver {
    /// Opens connection number `seed`.
    ///
    /// # Errors
    ///
    /// When no server answers there.
    pub(crate) async fn connect(place: &KvLocation, values: Arc<ValuePool>, seed: u64) -> Result<Self> {
        Ok(match place.protocol {
            KvProtocol::Http => Self::Http(HttpDriver::connect(place, values, seed).await?),
            KvProtocol::Framed(protocol) => Self::Framed(FramedDriver::connect(place, protocol, values, seed).await?),
        })
    }

    /// Reads a key.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn get(&mut self, key: &[u8]) -> Result<ReplySummary> {
        match self {
            Self::Http(driver) => driver.get(key).await,
            Self::Framed(driver) => driver.get(key).await,
        }
    }

    /// Sends a read of each key, then reads all answers; returns the first unexpected one, or else the last.
    ///
    /// # Errors
    ///
    /// A broken connection, or HTTP.
    pub(crate) async fn get_pipelined(
        &mut self,
        keys: impl Iterator<Item = [u8; KEY_BYTES]>,
        expected: ReplySummary,
    ) -> Result<ReplySummary> {
        match self {
            Self::Http(_) => bail!("requests over HTTP are not pipelined"),
            Self::Framed(driver) => driver.get_pipelined(keys, expected).await,
        }
    }

    /// Writes a random value without a context.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn put(&mut self, key: &[u8], wait: WriteWait) -> Result<ReplySummary> {
        match self {
            Self::Http(driver) => driver.put(key, wait).await,
            Self::Framed(driver) => driver.put(key, wait).await,
        }
    }

    /// Writes a random value with the context of the last read.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn put_with_context(&mut self, key: &[u8], wait: WriteWait) -> Result<ReplySummary> {
        match self {
            Self::Http(driver) => driver.put_with_context(key, wait).await,
            Self::Framed(driver) => driver.put_with_context(key, wait).await,
        }
    }

    /// The size of the values that it writes and expects.
    pub(crate) fn value_bytes(&self) -> usize {
        match self {
            Self::Http(driver) => driver.value_bytes(),
            Self::Framed(driver) => driver.value_bytes(),
        }
    }

    /// Whether the last answer had a causal context.
    pub(crate) fn has_context(&self) -> bool {
        match self {
            Self::Http(driver) => driver.has_context(),
            Self::Framed(driver) => driver.has_context(),
        }
    }

    /// The random numbers of this connection.
    pub(crate) fn random(&mut self) -> &mut BenchRandom {
        match self {
            Self::Http(driver) => &mut driver.random,
            Self::Framed(driver) => &mut driver.random,
        }
    }
}
