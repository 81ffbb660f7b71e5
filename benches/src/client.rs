//! One keep-alive connection that sends prepared bytes and reads whole answers.

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::endpoint::Endpoint;
use crate::limits::HEAD_BYTES_MAX;
use crate::response::{Body, Chunks, Head};

/// A connection in a closed loop: one request, one answer.
pub(crate) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    filled: usize,
    head: Vec<u8>,
    vclock: Vec<u8>,
    keeps_head: bool,
}

/// What an answer was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The status code.
    pub(crate) status: u16,
    /// Bytes of the body.
    pub(crate) body_bytes: u64,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    ///
    /// When nothing answers there.
    pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Self> {
        let stream = TcpStream::connect(endpoint.address)
            .await
            .with_context(|| format!("connecting to {}", endpoint.address))?;
        stream.set_nodelay(true)?;
        let input = vec![0; HEAD_BYTES_MAX];
        Ok(Self { stream, input, filled: 0, head: Vec::new(), vclock: Vec::new(), keeps_head: false })
    }

    /// Sends one request and reads its answer to the end.
    ///
    /// # Errors
    ///
    /// Whatever makes the connection useless: broken transport, broken framing, a server that closes.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<Reply> {
        self.stream.write_all(request).await.context("sending a request")?;
        let head = self.read_head().await?;
        let body_bytes = match head.body {
            Body::Length(length) => self.skip_length(head.head_bytes, length).await?,
            Body::Chunked => self.skip_chunks(head.head_bytes).await?,
        };
        self.filled = 0;
        if head.closes {
            bail!("the server closes the connection after status {}", head.status);
        }
        Ok(Reply { status: head.status, body_bytes })
    }

    /// The causal context of the last answer; empty when it had none.
    pub(crate) fn vclock(&self) -> &[u8] {
        &self.vclock
    }

    /// As [`Client::exchange`], and hands back the head's bytes.
    ///
    /// # Errors
    ///
    /// As [`Client::exchange`].
    pub(crate) async fn exchange_for_head(&mut self, request: &[u8]) -> Result<(Reply, Vec<u8>)> {
        self.keeps_head = true;
        let reply = self.exchange(request).await;
        self.keeps_head = false;
        Ok((reply?, std::mem::take(&mut self.head)))
    }

    async fn read_head(&mut self) -> Result<Head> {
        loop {
            self.filled += self.read(self.filled).await?;
            let input = &self.input[..self.filled];
            if let Some(head) = Head::parse(input)? {
                self.vclock.clear();
                self.vclock.extend_from_slice(head.vclock.clone().map_or(&[], |at| &input[at]));
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
        let mut seen = (self.filled - head_bytes) as u64;
        while seen < length {
            seen += self.read(0).await? as u64;
        }
        if seen > length {
            bail!("{} bytes after the body", seen - length);
        }
        Ok(length)
    }

    async fn skip_chunks(&mut self, head_bytes: usize) -> Result<u64> {
        let mut chunks = Chunks::default();
        let mut done = chunks.feed(&self.input[head_bytes..self.filled])?;
        while !done {
            let count = self.read(0).await?;
            done = chunks.feed(&self.input[..count])?;
        }
        Ok(chunks.body_bytes)
    }

    async fn read(&mut self, from: usize) -> Result<usize> {
        match self.stream.read(&mut self.input[from..]).await.context("reading an answer")? {
            0 => bail!("the server closed the connection before its answer ended"),
            count => Ok(count),
        }
    }
}
