//! Bare hyper: the cost of the same bytes without lookups.
//!
//! A GET is answered with the given headers and as many bytes as the bucket's name says, a key of kind `miss` with 404, a PUT or POST
//! with 204 after its body, and after a bare group commit of it where there is a data directory. The process ends when its stdin
//! does, so it does not outlive its parent.

use std::convert::Infallible;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use crate::cells::VALUE_BYTES;
use crate::child::ChildProcess;
use crate::commit_queue::{BareCommitQueue, stored_value};
use crate::endpoint::Endpoint;
use crate::server::wait_for_answer;

/// Headers that hyper writes itself.
const FRAMING: [&str; 5] = ["content-length", "transfer-encoding", "connection", "keep-alive", "date"];

/// The default head, which is one of Riak's.
const RIAK_HEAD: &str = "Content-Type: application/octet-stream\n\
    X-Riak-Vclock: a85hYGBgzGDKBVIcypz/fgbxyb7PYEpkymNlsE9zO8OXBQA=\n\
    ETag: \"4nOkPfQpLRGJQAsVhoD2tG\"\n\
    Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\n\
    Link: </buckets/larder-bench-1024>; rel=\"up\"\n\
    Vary: Accept-Encoding\nServer: MochiWeb/1.1 WebMachine/1.10.9";

/// The arguments of `bare-http`.
#[derive(Debug, clap::Args)]
pub(crate) struct BareHttpArgs {
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1:8098")]
    listen: SocketAddr,
    /// The head of the answers: lines of `Name: value`, of which those that frame a message are ignored.
    #[arg(long, default_value = RIAK_HEAD)]
    head: String,
    /// The folder of a bare group commit of each PUT.
    #[arg(long)]
    data: Option<PathBuf>,
}

/// A running bare server.
pub(crate) struct BareHttp {
    child: ChildProcess,
    /// Its address.
    pub(crate) endpoint: Endpoint,
}

impl BareHttp {
    /// Starts this binary as a server whose answers have this head, and which commits PUTs to `data`, if given.
    ///
    /// # Errors
    ///
    /// When it does not start, or does not answer.
    pub(crate) fn start(head: &[u8], data: Option<&Path>) -> Result<Self> {
        let endpoint = Endpoint::free()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("bare-http").arg("--listen").arg(endpoint.address.to_string());
        command.arg("--head").arg(String::from_utf8_lossy(head).into_owned());
        if let Some(data) = data {
            command.arg("--data").arg(data);
        }
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
pub(crate) fn serve(options: &BareHttpArgs) -> Result<()> {
    let answers = Arc::new(FixedAnswers::new(&options.head, options.data.as_deref())?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let listener = runtime
        .block_on(TcpListener::bind(options.listen))
        .with_context(|| format!("listening on {}", options.listen))?;
    runtime.spawn(accept(listener, answers));
    // The parent holds the other end of stdin: this process ends with it, also after a kill.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// Serves on a free port while the test's runtime lives.
#[cfg(test)]
pub(crate) async fn on_loopback() -> Result<Endpoint> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let endpoint = Endpoint::at(listener.local_addr()?);
    tokio::spawn(accept(listener, Arc::new(FixedAnswers::new(RIAK_HEAD, None)?)));
    Ok(endpoint)
}

async fn accept(listener: TcpListener, answers: Arc<FixedAnswers>) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(connection(stream, answers.clone()));
        }
    }
}

async fn connection(stream: TcpStream, answers: Arc<FixedAnswers>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let answers = answers.clone();
        async move { Ok::<_, Infallible>(answers.answer(request).await) }
    });
    // Every connection ends when its client closes it: that is no error.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// The fixed answers.
struct FixedAnswers {
    headers: HeaderMap,
    pool: Bytes,
    commits: Option<BareCommitQueue>,
}

impl FixedAnswers {
    fn new(head: &str, data: Option<&Path>) -> Result<Self> {
        let bytes_max = VALUE_BYTES.into_iter().max().unwrap_or(0);
        let pool = crate::keys::ValuePool::new(bytes_max);
        let value = pool.cut(&mut crate::keys::BenchRandom::new(1), bytes_max);
        let commits = data.map(BareCommitQueue::start).transpose()?.map(|(queue, _)| queue);
        Ok(Self { headers: headers(head)?, pool: Bytes::copy_from_slice(value), commits })
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if matches!(*request.method(), Method::PUT | Method::POST) {
            return self.store(request).await;
        }
        let path = request.uri().path();
        if path == "/ping" {
            return plain(StatusCode::OK, "OK");
        }
        match value_bytes(path) {
            Some(bytes) if bytes <= self.pool.len() && !path.contains("/miss") => {
                let mut response = Response::new(Full::new(self.pool.slice(..bytes)));
                *response.headers_mut() = self.headers.clone();
                response
            }
            _ => plain(StatusCode::NOT_FOUND, "not found\n"),
        }
    }

    async fn store(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let key = request.uri().path().rsplit('/').next().unwrap_or_default().as_bytes().to_vec();
        let Ok(body) = request.into_body().collect().await else {
            return plain(StatusCode::BAD_REQUEST, "");
        };
        if let Some(commits) = &self.commits
            && commits.put(key, stored_value(&body.to_bytes())).await.is_err()
        {
            return plain(StatusCode::INTERNAL_SERVER_ERROR, "");
        }
        plain(StatusCode::NO_CONTENT, "")
    }
}

fn plain(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    response
}

/// The number at the end of the bucket's name.
fn value_bytes(path: &str) -> Option<usize> {
    let bucket = path.strip_prefix("/buckets/")?.split('/').next()?;
    bucket.rsplit('-').next()?.parse().ok()
}

/// The headers of a head, without the status line and without those that frame a message.
fn headers(head: &str) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for line in head.lines().filter(|line| !line.is_empty() && !line.starts_with("HTTP/")) {
        let (name, value) = line.split_once(':').with_context(|| format!("no header: {line}"))?;
        if FRAMING.iter().any(|framing| name.eq_ignore_ascii_case(framing)) {
            continue;
        }
        headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value.trim())?);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_comes_from_the_buckets_name() {
        assert_eq!(value_bytes("/buckets/larder-bench-1024/keys/x"), Some(1_024));
        assert_eq!(value_bytes("/buckets/other/keys/x"), None);
        assert_eq!(value_bytes("/stats"), None);
    }

    #[test]
    fn framing_headers_of_a_given_head_are_ignored() {
        let given = headers("HTTP/1.1 200 OK\r\nETag: \"x\"\r\nDate: now\r\nContent-Length: 3\r\n\r\n").unwrap();
        assert_eq!(given.len(), 1);
        assert_eq!(given["etag"], "\"x\"");
        assert_eq!(headers(RIAK_HEAD).unwrap().len(), 7);
        assert!(headers("no header").is_err());
    }
}
