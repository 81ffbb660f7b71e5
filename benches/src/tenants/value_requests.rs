//! Requests of Riak's HTTP with bodies and headers of any kind, on one connection.

use std::io::Write as _;

use anyhow::{Result, bail};

use crate::client::{KeepAliveClient, ReplySummary};
use crate::endpoint::Endpoint;

/// One request, whose buffers serve for the next one, too.
#[derive(Debug, Default)]
pub(crate) struct ValueRequest {
    method: &'static str,
    /// Path and query.
    target: Vec<u8>,
    /// Header lines, each after a line's end.
    headers: Vec<u8>,
    /// JSON; empty for none.
    pub(crate) body: Vec<u8>,
}

impl ValueRequest {
    /// Begins an update of this path.
    pub(crate) fn post(&mut self, target: std::fmt::Arguments<'_>) {
        self.begin("POST", target);
    }

    /// Begins a put of this path.
    pub(crate) fn put(&mut self, target: std::fmt::Arguments<'_>) {
        self.begin("PUT", target);
    }

    /// Begins a read of this path.
    pub(crate) fn get(&mut self, target: std::fmt::Arguments<'_>) {
        self.begin("GET", target);
    }

    fn begin(&mut self, method: &'static str, target: std::fmt::Arguments<'_>) {
        self.method = method;
        self.target.clear();
        self.headers.clear();
        self.body.clear();
        // Writing into a vector never fails.
        let _ = self.target.write_fmt(target);
    }

    /// Adds a header line.
    pub(crate) fn add_header(&mut self, line: std::fmt::Arguments<'_>) {
        self.headers.extend_from_slice(b"\r\n");
        // Writing into a vector never fails.
        let _ = self.headers.write_fmt(line);
    }

    /// Adds these parts to the body.
    pub(crate) fn add(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.body.extend_from_slice(part);
        }
    }

    /// The request line without the version, and the body, for tests and errors.
    pub(crate) fn shown(&self) -> String {
        let (target, body) = (String::from_utf8_lossy(&self.target), String::from_utf8_lossy(&self.body));
        format!("{} {target} {body}", self.method).trim_end().to_owned()
    }
}

/// One connection and its request buffer.
pub(crate) struct ValueDriver {
    client: KeepAliveClient,
    host: String,
    head: Vec<u8>,
    /// The request under way.
    pub(crate) request: ValueRequest,
}

impl ValueDriver {
    /// Opens a connection.
    ///
    /// # Errors
    ///
    /// When no server answers there.
    pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Self> {
        Ok(Self {
            client: KeepAliveClient::connect(endpoint).await?,
            host: endpoint.host.clone(),
            head: Vec::with_capacity(1_024),
            request: ValueRequest::default(),
        })
    }

    /// Sends the request that was built.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn send(&mut self) -> Result<ReplySummary> {
        self.exchange(false).await
    }

    /// Sends the request that was built, which must be answered by `status`; [`ValueDriver::text`] has the body.
    ///
    /// # Errors
    ///
    /// A broken connection, or another status.
    pub(crate) async fn send_checked(&mut self, status: u16) -> Result<()> {
        let reply = self.exchange(true).await?;
        if reply.status != status {
            let shown: String = self.request.shown().chars().take(120).collect();
            bail!("`{shown}` was answered by status {}: {}", reply.status, self.text().trim());
        }
        Ok(())
    }

    /// The kept body of the last answer, as text.
    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.client.body())
    }

    async fn exchange(&mut self, keeps: bool) -> Result<ReplySummary> {
        let Self { client, host, head, request } = self;
        head.clear();
        for part in [request.method.as_bytes(), b" ", &request.target, b" HTTP/1.1\r\nHost: ", host.as_bytes()] {
            head.extend_from_slice(part);
        }
        head.extend_from_slice(&request.headers);
        if !request.body.is_empty() {
            let length = request.body.len();
            let _ = write!(head, "\r\nContent-Type: application/json\r\nContent-Length: {length}");
        }
        head.extend_from_slice(b"\r\n\r\n");
        client.exchange_body(head, &request.body, keeps).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_keeps_nothing_of_the_one_before() {
        let mut request = ValueRequest::default();
        request.post(format_args!("/a/{}", 7));
        request.add(&[b"{\"a\":", b"1}"]);
        request.add_header(format_args!("X-Riak-Index-n_int: {}", 7));
        assert_eq!(request.headers, b"\r\nX-Riak-Index-n_int: 7");
        assert_eq!(request.shown(), r#"POST /a/7 {"a":1}"#);
        request.get(format_args!("/a/8"));
        assert!(request.headers.is_empty());
        assert_eq!(request.shown(), "GET /a/8");
    }
}
