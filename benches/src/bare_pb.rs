//! Bare frames: the cost of Riak's protocol buffers without lookups.
//!
//! Every get is answered with the same frame, every put with an acknowledgement, after a bare group commit where there is a data
//! directory. A connection is one task: it answers the frames that have arrived in order, and writes once none is left. The
//! process ends when its stdin does.

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::child::ChildProcess;
use crate::commit_queue::{BareCommitQueue, stored_value};
use crate::endpoint::Endpoint;
use crate::server::wait_for_frame;
use crate::wire::{RiakFrame, WireProtocol, add_frame, bytes_field, code, riak_frame};

/// The arguments of `bare-pb`.
#[derive(Debug, clap::Args)]
pub(crate) struct BarePbArgs {
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1:8087")]
    listen: SocketAddr,
    /// The file with the frame that answers every get.
    #[arg(long)]
    answer: PathBuf,
    /// The folder of a bare group commit of each put.
    #[arg(long)]
    data: Option<PathBuf>,
}

/// A running bare server.
pub(crate) struct BarePb {
    child: ChildProcess,
    /// Its address.
    pub(crate) endpoint: Endpoint,
}

impl BarePb {
    /// Starts this binary as a server that answers gets with the frame in the file `answer`, and commits puts to `data`, if
    /// given.
    ///
    /// # Errors
    ///
    /// When it does not start, or does not answer.
    pub(crate) fn start(answer: &Path, data: Option<&Path>) -> Result<Self> {
        let endpoint = Endpoint::free()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("bare-pb").arg("--listen").arg(endpoint.address.to_string()).arg("--answer").arg(answer);
        if let Some(data) = data {
            command.arg("--data").arg(data);
        }
        let mut child = ChildProcess::start(command.stdin(Stdio::piped()))?;
        wait_for_frame(&mut child, &endpoint, WireProtocol::Riak)?;
        Ok(Self { child, endpoint })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }
}

/// Serves until stdin ends.
///
/// # Errors
///
/// When the address cannot be listened on, or a file cannot be opened.
pub(crate) fn serve(options: &BarePbArgs) -> Result<()> {
    let answer = std::fs::read(&options.answer).with_context(|| options.answer.display().to_string())?;
    let commits = options.data.as_deref().map(BareCommitQueue::start).transpose()?.map(|(queue, _)| queue);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let listener = runtime
        .block_on(TcpListener::bind(options.listen))
        .with_context(|| format!("listening on {}", options.listen))?;
    runtime.spawn(accept(listener, Arc::new(FixedFrames { answer, commits })));
    // The parent holds the other end of stdin: this process ends with it, also after a kill.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// Serves on a free port while the test's runtime lives; every get is answered with a value of this size.
#[cfg(test)]
pub(crate) async fn on_loopback(value_bytes: usize) -> Result<Endpoint> {
    use crate::wire::add_field;
    let (mut content, mut answer) = (Vec::new(), Vec::new());
    add_field(&mut content, 1, &vec![7; value_bytes]);
    add_frame(&mut answer, code::GET[1], |out| {
        add_field(out, 1, &content);
        add_field(out, 2, b"clock");
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let endpoint = Endpoint::at(listener.local_addr()?);
    tokio::spawn(accept(listener, Arc::new(FixedFrames { answer, commits: None })));
    Ok(endpoint)
}

/// The fixed answers.
struct FixedFrames {
    answer: Vec<u8>,
    commits: Option<BareCommitQueue>,
}

async fn accept(listener: TcpListener, frames: Arc<FixedFrames>) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let frames = frames.clone();
            // Every connection ends when its client closes it: that is no error.
            tokio::spawn(async move { frames.connection(stream).await });
        }
    }
}

impl FixedFrames {
    async fn connection(&self, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let (mut input, mut out) = (BytesMut::with_capacity(64 * 1_024), Vec::new());
        while stream.read_buf(&mut input).await? > 0 {
            while let Some(frame) = riak_frame(&input)? {
                let end = frame.message.end;
                self.answer(&input, frame, &mut out).await?;
                input.advance(end);
            }
            stream.write_all(&out).await?;
            out.clear();
            input.reserve(16 * 1_024);
        }
        Ok(())
    }

    async fn answer(&self, input: &[u8], frame: RiakFrame, out: &mut Vec<u8>) -> Result<()> {
        match frame.code {
            _ if frame.code == code::GET[0] => out.extend_from_slice(&self.answer),
            _ if frame.code == code::PUT[0] => {
                if let Some(commits) = &self.commits {
                    let key = bytes_field(input, frame.message.clone(), 2)?.context("a put without a key")?;
                    let content = bytes_field(input, frame.message, 4)?.context("a put without a content")?;
                    let value = bytes_field(input, content, 1)?.context("a content without a value")?;
                    commits.put(input[key].to_vec(), stored_value(&input[value])).await?;
                }
                add_frame(out, code::PUT[1], |_| {});
            }
            _ if frame.code == code::PING[0] => add_frame(out, code::PING[1], |_| {}),
            other => bail!("a request with code {other}"),
        }
        Ok(())
    }
}
