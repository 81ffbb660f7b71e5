//! The HTTP client that reads the source of a move: it connects to the host of a URL and to nothing else.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use larder_core::body::{BodyError, ByteStream};
use larder_moving::{SourceAnswer, SourceHttp, SourceRequest, rules::SourceHeaders};

use crate::webhook_client::AGENT;

/// Most bytes of an answer's head: objects have their metadata there.
const HEAD_BYTES_MAX: usize = 1 << 20;
/// Most headers of an answer.
const HEADERS_MAX: usize = 4096;
/// Connections to one host that stay open.
const IDLE_CONNECTIONS_MAX: usize = 16;
/// How long an unused connection stays open.
const IDLE_TIME: Duration = Duration::from_secs(20);
/// Time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads sources. It follows no redirection, and obeys no proxy of the environment.
struct SourceClient {
    client: Client<HttpConnector, Empty<Bytes>>,
}

/// The client of this server.
pub(crate) fn source_client() -> Arc<dyn SourceHttp> {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_nodelay(true);
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).pool_max_idle_per_host(IDLE_CONNECTIONS_MAX).pool_idle_timeout(IDLE_TIME);
    builder.http1_max_buf_size(HEAD_BYTES_MAX).http1_max_headers(HEADERS_MAX);
    Arc::new(SourceClient { client: builder.build(connector) })
}

#[async_trait]
impl SourceHttp for SourceClient {
    async fn send(&self, method: SourceRequest, url: &str, accept: &str) -> Result<SourceAnswer, String> {
        let method = match method {
            SourceRequest::Get => Method::GET,
            SourceRequest::Head => Method::HEAD,
        };
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header(ACCEPT, accept)
            .header(USER_AGENT, AGENT)
            .body(Empty::new())
            .map_err(|error| format!("no request can be made: {error}"))?;
        let answer = self.client.request(request).await.map_err(|error| match error.source() {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        })?;
        let (head, body) = answer.into_parts();
        let mut headers = SourceHeaders::default();
        head.headers.iter().for_each(|(name, value)| headers.add(name.as_str().as_bytes(), value.as_bytes()));
        Ok(SourceAnswer { status: head.status.as_u16(), headers, body: Box::new(AnswerBody(body)) })
    }
}

/// The body of an answer.
struct AnswerBody(Incoming);

#[async_trait]
impl ByteStream for AnswerBody {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        loop {
            match self.0.frame().await? {
                Ok(frame) => {
                    // Trailers are no bytes of the body.
                    if let Ok(piece) = frame.into_data() {
                        return Some(Ok(piece));
                    }
                }
                Err(error) => return Some(Err(BodyError(error.to_string()))),
            }
        }
    }
}
