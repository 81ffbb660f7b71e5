//! A keep-alive connection that sends prepared bytes and reads complete answers.

use anyhow::{Context, Result, bail};

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::limits::{HEAD_BYTES_MAX, JOINED_BYTES_MAX, KEPT_BYTES_MAX};
use crate::response::{BodyFraming, ChunkedReader, ResponseHead};

/// A connection in a closed loop: one request, then one answer.
pub(crate) struct KeepAliveClient {
    stream: Connection,
    input: Vec<u8>,
    filled: usize,
    head: Vec<u8>,
    vclock: Vec<u8>,
    etag: Vec<u8>,
    body: Vec<u8>,
    keeps_head: bool,
    keeps_body: bool,
}

/// The status and the length of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplySummary {
    /// The status code.
    pub(crate) status: u16,
    /// Bytes of the body.
    pub(crate) body_bytes: u64,
}

impl KeepAliveClient {
    /// Connects.
    ///
    /// # Errors
    ///
    /// When no server answers there.
    pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Self> {
        let stream = Connection::open(endpoint).await?;
        let input = vec![0; HEAD_BYTES_MAX];
        Ok(Self {
            stream,
            input,
            filled: 0,
            head: Vec::new(),
            vclock: Vec::new(),
            etag: Vec::new(),
            body: Vec::new(),
            keeps_head: false,
            keeps_body: false,
        })
    }

    /// Sends one request and reads its answer to the end.
    ///
    /// # Errors
    ///
    /// A broken connection, broken framing, or a server that closes the connection.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<ReplySummary> {
        self.stream.write_all(request).await.context("sending a request")?;
        self.answer().await
    }

    /// As [`KeepAliveClient::exchange`], with a body that is copied only when it is small. With `keeps` the answer's body is kept
    /// for [`KeepAliveClient::body`]; the body of an error is always kept.
    ///
    /// # Errors
    ///
    /// As [`KeepAliveClient::exchange`].
    pub(crate) async fn exchange_body(&mut self, head: &mut Vec<u8>, body: &[u8], keeps: bool) -> Result<ReplySummary> {
        let sent = if body.len() <= JOINED_BYTES_MAX {
            head.extend_from_slice(body);
            self.stream.write_all(head).await
        } else {
            match self.stream.write_all(head).await {
                Ok(()) => self.stream.write_all(body).await,
                error => error,
            }
        };
        self.keeps_body = keeps;
        // A server may refuse a body before its end: then its answer explains the broken pipe.
        let answer = self.answer().await;
        match sent {
            Ok(()) => answer,
            Err(error) => Err(error).with_context(|| match answer {
                Ok(reply) => format!("sending a request, answered by status {}", reply.status),
                Err(_) => "sending a request".to_owned(),
            }),
        }
    }

    /// Reads one complete answer.
    async fn answer(&mut self) -> Result<ReplySummary> {
        let head = self.read_head().await?;
        self.keeps_body |= head.status >= 400;
        let body_bytes = match head.body {
            BodyFraming::Length(length) => self.skip_length(head.head_bytes, length).await?,
            BodyFraming::Chunked => self.skip_chunks(head.head_bytes).await?,
        };
        self.filled = 0;
        self.keeps_body = false;
        if head.closes {
            bail!("the server closes the connection after status {}", head.status);
        }
        Ok(ReplySummary { status: head.status, body_bytes })
    }

    /// The causal context of the last answer; empty when it had none.
    pub(crate) fn vclock(&self) -> &[u8] {
        &self.vclock
    }

    /// As [`KeepAliveClient::exchange`], and returns the bytes of the head.
    ///
    /// # Errors
    ///
    /// As [`KeepAliveClient::exchange`].
    pub(crate) async fn exchange_for_head(&mut self, request: &[u8]) -> Result<(ReplySummary, Vec<u8>)> {
        self.keeps_head = true;
        let reply = self.exchange(request).await;
        self.keeps_head = false;
        Ok((reply?, std::mem::take(&mut self.head)))
    }

    /// The ETag of the last answer, with its quotes; empty when it had none.
    pub(crate) fn etag(&self) -> &[u8] {
        &self.etag
    }

    /// The kept body of the last answer.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    async fn read_head(&mut self) -> Result<ResponseHead> {
        loop {
            self.filled += self.read(self.filled).await?;
            let input = &self.input[..self.filled];
            if let Some(head) = ResponseHead::parse(input)? {
                self.vclock.clear();
                self.vclock.extend_from_slice(head.vclock.clone().map_or(&[], |at| &input[at]));
                self.etag.clear();
                self.etag.extend_from_slice(head.etag.clone().map_or(&[], |at| &input[at]));
                if self.keeps_head {
                    self.head = input[..head.head_bytes].to_vec();
                }
                return Ok(head);
            }
            if self.filled == self.input.len() {
                bail!("a response head of more than {HEAD_BYTES_MAX} bytes");
            }
        }
    }

    async fn skip_length(&mut self, head_bytes: usize, length: u64) -> Result<u64> {
        self.body.clear();
        let mut seen = (self.filled - head_bytes) as u64;
        self.keep(head_bytes, self.filled)?;
        while seen < length {
            let count = self.read(0).await?;
            self.keep(0, count)?;
            seen += count as u64;
        }
        if seen > length {
            bail!("{} bytes after the body", seen - length);
        }
        Ok(length)
    }

    /// Adds bytes of the input to the kept body, if it is kept.
    fn keep(&mut self, from: usize, to: usize) -> Result<()> {
        if self.keeps_body {
            if self.body.len() + (to - from) > KEPT_BYTES_MAX {
                bail!("a body of more than {KEPT_BYTES_MAX} bytes");
            }
            self.body.extend_from_slice(&self.input[from..to]);
        }
        Ok(())
    }

    async fn skip_chunks(&mut self, head_bytes: usize) -> Result<u64> {
        let mut chunks = ChunkedReader::keeping(self.keeps_body);
        let mut done = chunks.feed(&self.input[head_bytes..self.filled])?;
        while !done {
            let count = self.read(0).await?;
            done = chunks.feed(&self.input[..count])?;
            if chunks.kept.as_ref().is_some_and(|kept| kept.len() > KEPT_BYTES_MAX) {
                bail!("a body of more than {KEPT_BYTES_MAX} bytes");
            }
        }
        self.body = chunks.kept.take().unwrap_or_default();
        Ok(chunks.body_bytes)
    }

    async fn read(&mut self, from: usize) -> Result<usize> {
        match self.stream.read(&mut self.input[from..]).await.context("reading an answer")? {
            0 => bail!("the server closed the connection before its answer ended"),
            count => Ok(count),
        }
    }
}
