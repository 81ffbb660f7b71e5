//! The address of a key-value server, its protocol, and the bucket of a cell.

use crate::endpoint::Endpoint;
use crate::wire::WireProtocol;

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KvProtocol {
    /// Riak's HTTP.
    Http,
    /// A protocol whose requests and answers are frames.
    Framed(WireProtocol),
}

impl KvProtocol {
    /// Riak's protocol buffers.
    pub(crate) const PB: Self = Self::Framed(WireProtocol::Riak);

    /// Redis' protocol.
    pub(crate) const REDIS: Self = Self::Framed(WireProtocol::Redis);
}

/// The server, its protocol, and the bucket of one value size.
#[derive(Debug, Clone)]
pub(crate) struct KvLocation {
    /// The server.
    pub(crate) endpoint: Endpoint,
    /// The protocol that it speaks there.
    pub(crate) protocol: KvProtocol,
    /// The size of each value, which is part of the bucket's name.
    pub(crate) value_bytes: usize,
}

impl KvLocation {
    /// The bucket.
    pub(crate) fn bucket(&self) -> String {
        format!("larder-bench-{}", self.value_bytes)
    }
}
