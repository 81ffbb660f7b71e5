//! One request of a connection: its client, its memory, and its answer.

use std::convert::Infallible;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, DATE, EXPECT, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode, Version};

use crate::accept::ConnectedClient;
use crate::date_header;
use crate::lingering_close::ConnectionActivity;
use crate::requester::{MemoryHoldingBody, Requester};
use crate::unread_body::UnreadBody;
use crate::{ConnectionHandler, ConnectionSettings, stored_pages};

/// From the decision that the server or a client's share is too busy to its answer.
const REFUSAL_PAUSE: Duration = Duration::from_millis(100);

/// Waits before a client learns that it should come back later.
///
/// Attack: clients that come back at once would have the processors for their refusals, thousands of times a second. Without a
/// pause they made the answers to others six times slower.
pub async fn pause_before_refusal() {
    tokio::time::sleep(REFUSAL_PAUSE).await;
}

/// The client that the headers of a trusted proxy name. Its memory is drawn from its own account.
pub(crate) fn forwarded<F: ConnectionHandler>(
    proxy: &ConnectedClient,
    request: &Request<Incoming>,
    settings: &ConnectionSettings,
) -> ConnectedClient {
    let source = proxy.source.forwarded(request.headers(), &settings.proxies);
    let is_proxy = source.address == proxy.source.address;
    let account =
        if is_proxy { proxy.account.clone() } else { settings.memory.account(F::DIALECT.name, source.address) };
    ConnectedClient { source, account }
}

/// The answer of the handler, which holds the memory of its request until it is sent. The rest of a short body is
/// read first; the answer to a longer one says that the connection ends.
pub(crate) async fn answer<F: ConnectionHandler>(
    handler: &F,
    activity: &ConnectionActivity,
    (peer, forwarded): (&ConnectedClient, Option<ConnectedClient>),
    request: Request<Incoming>,
) -> Result<Response<MemoryHoldingBody<F::Body>>, Infallible> {
    let begun = BegunRequest::new(activity);
    let client = forwarded.as_ref().unwrap_or(peer);
    let requester = Requester::new(client.source, &client.account).with_forwarded(forwarded.is_some());
    // Read before the handler takes the request: a refusal may leave the body on the wire.
    let unread = (!request.body().is_end_stream()).then(UnreadBody::default);
    let requester = requester.with_unread(unread.clone());
    let is_http2 = request.version() >= Version::HTTP_2;
    let waits_to_send = request.headers().contains_key(EXPECT) && !is_http2;
    let is_of_browser = stored_pages::is_of_browser(request.headers());
    let mut reply = handler.respond(&requester, request).await;
    if reply.status() == StatusCode::SERVICE_UNAVAILABLE && reply.headers().contains_key(RETRY_AFTER) {
        pause_before_refusal().await;
    }
    // The response is in memory already; this hold keeps a slow reader within its client's share.
    if requester.hold(F::memory_of(reply.body())).await.is_err() {
        reply = handler.busy();
    }
    let is_refused = reply.status().as_u16() >= StatusCode::BAD_REQUEST.as_u16();
    let is_left = match &unread {
        None => false,
        // A client that waits may keep its body after the answer, and hyper would await it before the next request.
        Some(unread) => unread.read_rest(waits_to_send).await.map_or(is_refused, |is_whole| !is_whole),
    };
    // The client's next request goes elsewhere; the socket drains the rest before it closes.
    if is_left && !is_http2 {
        reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if is_of_browser {
        stored_pages::disarm(reply.headers_mut());
    }
    reply.headers_mut().entry(DATE).or_insert_with(date_header::now);
    begun.answered(is_left);
    Ok(reply.map(|body| MemoryHoldingBody::new(body, requester.into_held())))
}

/// A request that counts as unanswered while it lives. One that its client gives up counts as answered: its connection would never
/// be idle otherwise.
struct BegunRequest<'a> {
    activity: &'a ConnectionActivity,
    is_answered: bool,
}

impl<'a> BegunRequest<'a> {
    fn new(activity: &'a ConnectionActivity) -> Self {
        activity.begin();
        Self { activity, is_answered: false }
    }

    fn answered(mut self, unread: bool) {
        self.is_answered = true;
        self.activity.answered(unread);
    }
}

impl Drop for BegunRequest<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.activity.answered(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_given_up_does_not_keep_its_connection_busy() {
        let activity = ConnectionActivity::default();
        drop(BegunRequest::new(&activity));
        BegunRequest::new(&activity).answered(true);
        let counts = activity.counts();
        assert_eq!((counts.begun, counts.answered), (2, 2));
    }
}
