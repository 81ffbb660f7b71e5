//! A bare server that answers with a file by `sendfile`: the cost of a large GET when the bytes never leave the kernel.
//!
//! It reads a request to its empty line, writes a head with the length, and lets the kernel copy the file to the socket. The
//! answer to `/ping` is empty. The process ends when its stdin does.

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustix::fs::sendfile;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream};

use crate::child::ChildProcess;
use crate::endpoint::Endpoint;
use crate::limits::HEAD_BYTES_MAX;
use crate::server::wait_for_answer;

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
    /// Starts this binary as a server that sends `file`.
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
/// When the address cannot be listened on, or the file cannot be opened.
pub(crate) fn serve(options: &BareFileArgs) -> Result<()> {
    let file = SentFile::open(&options.file)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let listener = runtime
        .block_on(TcpListener::bind(options.listen))
        .with_context(|| format!("listening on {}", options.listen))?;
    runtime.spawn(accept(listener, Arc::new(file)));
    // The parent holds the other end of stdin: this process ends with it, also after a kill.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

async fn accept(listener: TcpListener, file: Arc<SentFile>) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let file = file.clone();
            // Every connection ends when its client closes it: that is no error.
            tokio::spawn(async move { file.connection(stream).await });
        }
    }
}

/// The file, opened once.
struct SentFile {
    file: File,
    length: u64,
}

impl SentFile {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }

    async fn connection(&self, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut request = Vec::with_capacity(1_024);
        loop {
            while !request.ends_with(b"\r\n\r\n") {
                if stream.read_buf(&mut request).await? == 0 {
                    return Ok(());
                }
                if request.len() > HEAD_BYTES_MAX {
                    bail!("a request head of more than {HEAD_BYTES_MAX} bytes");
                }
            }
            let length = if request.starts_with(b"GET /ping ") { 0 } else { self.length };
            request.clear();
            stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").as_bytes()).await?;
            self.send(&stream, length).await?;
        }
    }

    async fn send(&self, stream: &TcpStream, length: u64) -> Result<()> {
        let mut at = 0;
        while at < length {
            stream.writable().await?;
            let wanted = usize::try_from(length - at)?;
            // The kernel moves `at`; the file's own offset, which all connections share, stays.
            let sent = stream.try_io(Interest::WRITABLE, || Ok(sendfile(stream, &self.file, Some(&mut at), wanted)?));
            match sent {
                Ok(0) => bail!("the file became shorter"),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
