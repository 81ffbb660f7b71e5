//! The HTTP client that reads the source of a move: it connects to the host of a URL and to nothing else.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::USER_AGENT;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use larder_core::body::{BodyError, ByteStream};
use larder_moving::{SourceAnswer, SourceCall, SourceHttp, rules::SourceHeaders};

use crate::receiver_connector::ReceiverConnector;
use crate::webhook_client::{AGENT, causes};

/// Most bytes of an answer's head: objects have their metadata there.
const HEAD_BYTES_MAX: usize = 1 << 20;
/// Most headers of an answer.
const HEADERS_MAX: usize = 4096;
/// Connections to one host that stay open.
const IDLE_CONNECTIONS_MAX: usize = 16;
/// How long an unused connection stays open.
const IDLE_TIME: Duration = Duration::from_secs(20);

/// Reads sources. It follows no redirection, and obeys no proxy of the environment.
struct SourceClient {
    client: Client<ReceiverConnector, Full<Bytes>>,
}

/// The client of this server. It trusts the authorities of this file (PEM); `None`: those of the system.
///
/// # Errors
/// One line that names the file.
pub(crate) fn source_client(authorities: Option<&Path>) -> Result<Arc<dyn SourceHttp>, String> {
    let connector = ReceiverConnector::new(authorities)?;
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).pool_max_idle_per_host(IDLE_CONNECTIONS_MAX).pool_idle_timeout(IDLE_TIME);
    builder.http1_max_buf_size(HEAD_BYTES_MAX).http1_max_headers(HEADERS_MAX);
    Ok(Arc::new(SourceClient { client: builder.build(connector) }))
}

#[async_trait]
impl SourceHttp for SourceClient {
    async fn send(&self, call: SourceCall<'_>) -> Result<SourceAnswer, String> {
        let mut request = Request::builder().method(call.method.name()).uri(call.url).header(USER_AGENT, AGENT);
        for (name, value) in call.headers {
            request = request.header(*name, value);
        }
        let body = Full::new(Bytes::copy_from_slice(call.body.as_bytes()));
        let request = request.body(body).map_err(|error| format!("no request can be made: {error}"))?;
        let answer = self.client.request(request).await.map_err(|error| causes(&error))?;
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use larder_moving::SourceRequest;

    use super::*;
    use crate::receiver_connector::tests::{self_signed, tls_server};

    const ANSWER: &[u8] = b"HTTP/1.1 302 Found\r\nLocation: /x\r\nX-Amz-Meta-A: b\r\nContent-Length: 2\r\n\r\nok";

    async fn send(client: &dyn SourceHttp, url: &str) -> Result<SourceAnswer, String> {
        let headers = &[("x-amz-date", "20130524T000000Z".to_owned()), ("authorization", "K\u{e9}/a, b=c".to_owned())];
        client.send(SourceCall { method: SourceRequest::Get, url, headers, body: "" }).await
    }

    #[tokio::test]
    async fn a_source_whose_certificate_nobody_signed_is_not_read() {
        let certified = self_signed("localhost");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        fs::write(&file, certified.1.pem()).unwrap();
        for (authorities, host, is_read) in
            [(Some(file.as_path()), "localhost", true), (Some(&*file), "127.0.0.1", false), (None, "localhost", false)]
        {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let received = tls_server(listener, &certified, b"\r\n\r\n", ANSWER);
            let client = source_client(authorities).unwrap();
            let answer = send(&*client, &format!("https://{host}:{port}/types")).await;
            let failure = answer.as_ref().err().map(String::as_str).unwrap_or_default();
            assert_eq!((answer.is_ok(), failure.contains("certificate")), (is_read, !is_read), "{host}: {failure}");
            drop((answer, client));
            assert_eq!(received.join().unwrap().starts_with("GET /types HTTP/1.1\r\n"), is_read, "{host}");
        }
        assert!(source_client(Some(&dir.path().join("absent"))).is_err_and(|error| error.contains("absent")));
    }

    #[tokio::test]
    async fn a_request_is_sent_as_it_was_signed_and_its_answer_is_not_followed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let received = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut piece = [0; 1024];
                let count = stream.read(&mut piece).unwrap();
                request.extend_from_slice(&piece[..count]);
            }
            stream.write_all(ANSWER).unwrap();
            String::from_utf8(request).unwrap()
        });
        let client = source_client(None).unwrap();
        let target = "/b//a%20b%2B/../~%C3%A9%00?versionId=a%2Fb&versions=";
        let mut answer = send(&*client, &format!("http://{at}{target}")).await.unwrap();
        assert_eq!((answer.status, answer.headers.get("x-amz-meta-a").map(|value| &value[..])), (302, Some(&b"b"[..])));
        assert_eq!(answer.body.next().await.unwrap().unwrap(), "ok");
        let request = received.join().unwrap();
        for line in [
            &format!("GET {target} HTTP/1.1\r\n"),
            &format!("\r\nhost: {at}\r\n"),
            "\r\nx-amz-date: 20130524T000000Z\r\n",
            "\r\nauthorization: K\u{e9}/a, b=c\r\n",
        ] {
            assert!(request.contains(line), "{line} {request}");
        }
    }
}
