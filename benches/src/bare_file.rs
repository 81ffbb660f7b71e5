//! Bare hyper that streams a file: the cost of a large GET without lookups and checksums.
//!
//! The answer of every GET is the file: a blocking thread reads it in pieces, a few ahead of the connection, as a server must
//! that cannot hold a body in memory. The process ends when its stdin does.

use std::convert::Infallible;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use anyhow::{Context, Result};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::child::ChildProcess;
use crate::endpoint::Endpoint;
use crate::server::wait_for_answer;

/// The size of a piece.
const PIECE_BYTES: usize = 256 * 1_024;

/// The pieces that are read ahead of the connection.
const PIECES_AHEAD: usize = 2;

/// The arguments of `bare-file`.
#[derive(Debug, clap::Args)]
pub(crate) struct BareFileArgs {
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The file that answers every GET.
    #[arg(long)]
    file: PathBuf,
}

/// A running bare server.
pub(crate) struct BareFile {
    child: ChildProcess,
    /// Its address.
    pub(crate) endpoint: Endpoint,
}

impl BareFile {
    /// Starts this binary as a server that streams `file`.
    ///
    /// # Errors
    ///
    /// When it does not start, or does not answer.
    pub(crate) fn start(file: &Path) -> Result<Self> {
        let endpoint = Endpoint::free()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("bare-file").arg("--listen").arg(endpoint.address.to_string()).arg("--file").arg(file);
        let mut child = ChildProcess::start(command.stdin(Stdio::piped()))?;
        wait_for_answer(&mut child, &endpoint)?;
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
/// When the address cannot be listened on.
pub(crate) fn serve(options: &BareFileArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let listener = runtime
        .block_on(TcpListener::bind(options.listen))
        .with_context(|| format!("listening on {}", options.listen))?;
    runtime.spawn(accept(listener, Arc::new(options.file.clone())));
    // The parent holds the other end of stdin: this process ends with it, also after a kill.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// Serves on a free port while the test's runtime lives.
#[cfg(test)]
pub(crate) async fn on_loopback(file: &Path) -> Result<Endpoint> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let endpoint = Endpoint::at(listener.local_addr()?);
    tokio::spawn(accept(listener, Arc::new(file.to_path_buf())));
    Ok(endpoint)
}

async fn accept(listener: TcpListener, file: Arc<PathBuf>) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(connection(stream, file.clone()));
        }
    }
}

async fn connection(stream: TcpStream, file: Arc<PathBuf>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let file = file.clone();
        async move { Ok::<_, Infallible>(answer(request.uri().path(), &file)) }
    });
    // Every connection ends when its client closes it: that is no error.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// The file; an empty body for `/ping`; 500 when the file cannot be opened.
fn answer(path: &str, file: &Path) -> Response<FileBody> {
    let opened = if path == "/ping" { Ok(FileBody::none()) } else { FileBody::of(file) };
    opened.map(Response::new).unwrap_or_else(|_| {
        let mut response = Response::new(FileBody::none());
        *response.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

/// A body that is streamed from a file.
struct FileBody {
    read: mpsc::Receiver<std::io::Result<Bytes>>,
    left: u64,
}

impl FileBody {
    fn none() -> Self {
        Self { read: mpsc::channel(1).1, left: 0 }
    }

    fn of(path: &Path) -> std::io::Result<Self> {
        let file = File::open(path)?;
        let left = file.metadata()?.len();
        let (pieces, read) = mpsc::channel(PIECES_AHEAD);
        tokio::task::spawn_blocking(move || read_pieces(file, &pieces));
        Ok(Self { read, left })
    }
}

/// Reads until the file ends or the connection is gone.
fn read_pieces(mut file: File, pieces: &mpsc::Sender<std::io::Result<Bytes>>) {
    loop {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let read = (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece);
        if matches!(read, Ok(0)) || pieces.blocking_send(read.map(|_| piece.into())).is_err() {
            return;
        }
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        self.read.poll_recv(context).map(|piece| {
            piece.map(|piece| {
                let piece = piece?;
                self.left = self.left.saturating_sub(piece.len() as u64);
                Ok(Frame::data(piece))
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
