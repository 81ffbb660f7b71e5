//! The HTTP client of webhooks: it connects to the host of an address and to nothing else.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use larder_core::outbox::HOST_DELIVERIES_MAX;
use larder_core::{WebhookRequest, Webhooks};

use crate::receiver_connector::ReceiverConnector;

/// The name of this program to receivers.
pub(crate) const AGENT: &str = concat!("larder/", env!("CARGO_PKG_VERSION"));
/// The header with the id of the notice.
const EVENT_ID: &str = "x-larder-event-id";
/// Most bytes of an answer's body that are read, so that its connection can be used again.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How long the rest of an answer is read.
const DISCARD_MAX: Duration = Duration::from_secs(1);
/// Most bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Connections to one host that stay open.
const IDLE_CONNECTIONS_MAX: usize = 2;
/// Most connections to one host.
pub(crate) const WEBHOOK_CONNECTIONS_MAX: usize = HOST_DELIVERIES_MAX + IDLE_CONNECTIONS_MAX;
/// How long an unused connection stays open.
const IDLE_TIME: Duration = Duration::from_secs(20);

/// Sends notices. It follows no redirection, and obeys no proxy of the environment.
struct WebhookClient {
    client: Client<ReceiverConnector, Full<Bytes>>,
}

/// The client of this server. It trusts the authorities of this file (PEM); `None`: those of the system.
///
/// # Errors
/// One line that names the file.
pub(crate) fn webhook_client(authorities: Option<&Path>) -> Result<Arc<dyn Webhooks>, String> {
    let connector = ReceiverConnector::new(authorities)?;
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).pool_max_idle_per_host(IDLE_CONNECTIONS_MAX).pool_idle_timeout(IDLE_TIME);
    builder.http1_max_buf_size(HEAD_BYTES_MAX);
    Ok(Arc::new(WebhookClient { client: builder.build(connector) }))
}

#[async_trait]
impl Webhooks for WebhookClient {
    async fn post(&self, request: WebhookRequest<'_>) -> Result<(), String> {
        let WebhookRequest { url, id, authorization, body } = request;
        let mut head = Request::post(url.as_str())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, AGENT)
            .header(EVENT_ID, id);
        if let Some(authorization) = authorization {
            head = head.header(AUTHORIZATION, authorization);
        }
        let request = head.body(Full::new(body)).map_err(|error| format!("no request can be made: {error}"))?;
        let answer = self.client.request(request).await.map_err(|error| causes(&error))?;
        let status = answer.status();
        // The status is the receipt: a body that does not end must not undo it.
        let _ = tokio::time::timeout(DISCARD_MAX, discard(answer)).await;
        if status.is_success() { Ok(()) } else { Err(format!("the answer is {status}")) }
    }
}

/// An error with all of its causes: that of TLS is the last one.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    text
}

/// Reads the rest of an answer. A longer one, or one that breaks off, costs its connection alone.
async fn discard(mut answer: Response<Incoming>) {
    let mut bytes = 0;
    while let Some(Ok(frame)) = answer.frame().await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
        if bytes > ANSWER_BYTES_MAX {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use larder_core::rules::props::WebhookUrl;

    use super::*;

    /// Answers one request with these bytes; returns the request.
    fn receiver(answer: Vec<u8>) -> (WebhookUrl, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/a?b=c", listener.local_addr().unwrap());
        let thread = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"{}") {
                let mut piece = [0; 1024];
                let count = stream.read(&mut piece).unwrap();
                request.extend_from_slice(&piece[..count]);
            }
            // The client may close before it has all of it.
            let _ = stream.write_all(&answer);
            // A body in chunks need not end: the connection stays open for longer than it is read.
            stream.set_read_timeout(Some(2 * DISCARD_MAX)).unwrap();
            if answer.windows(7).any(|word| word == b"chunked") {
                let _ = stream.read(&mut [0]);
            }
            String::from_utf8(request).unwrap()
        });
        (WebhookUrl::parse(&url).unwrap(), thread)
    }

    async fn post(answer: impl Into<Vec<u8>>) -> (Result<(), String>, String) {
        let (url, receiver) = receiver(answer.into());
        let (id, body) = ("the-id", Bytes::from_static(b"{}"));
        let request = WebhookRequest { url: &url, id, authorization: Some("Bearer token"), body };
        let sent = webhook_client(None).unwrap().post(request).await;
        (sent, receiver.join().unwrap())
    }

    #[tokio::test]
    async fn only_a_2xx_is_a_success_and_a_redirection_is_not_followed() {
        let (sent, request) = post("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(sent, Ok(()));
        let head = request.to_ascii_lowercase();
        for line in [
            "post /a?b=c http/1.1",
            "content-type: application/json",
            EVENT_ID,
            AGENT,
            "content-length: 2",
            "authorization: bearer token",
        ] {
            assert!(head.contains(line), "{line}: {request}");
        }
        let elsewhere = "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(post(elsewhere).await.0, Err("the answer is 307 Temporary Redirect".into()));
        assert_eq!(
            post("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n").await.0,
            Err("the answer is 500 Internal Server Error".into())
        );
    }

    #[tokio::test]
    async fn a_hostile_answer_is_read_with_a_bound_and_is_no_success_without_a_status() {
        let endless = [b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n".to_vec(), vec![b'x'; 1 << 20]].concat();
        assert_eq!(post(endless).await.0, Ok(()));
        assert_eq!(
            post("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx").await.0,
            Ok(()),
            "its end never comes"
        );
        let long_head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
        for answer in [long_head, "HTTP/1.1 200".into(), "nonsense\r\n\r\n".into(), String::new()] {
            assert!(post(answer.clone()).await.0.is_err(), "{}", answer.len());
        }
    }
}
