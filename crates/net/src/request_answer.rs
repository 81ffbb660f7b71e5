//! One request of a connection: its client, its memory, and its answer.
//!
//! The header `Date` of an answer.
//!
//! hyper would write one, too: it stays at the latest time that it saw when the clock is set back, and panics before 1970.

use std::cell::RefCell;
use std::convert::Infallible;
use std::time::{Duration, UNIX_EPOCH};

use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, DATE, EXPECT, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode, Version};
use rustix::time::{ClockId, clock_gettime};

use crate::accept::ConnectedClient;
use crate::arriving_body::UnreadBody;
use crate::lingering_close::ConnectionActivity;
use crate::requester::{MemoryHoldingBody, Requester};
use crate::{ConnectionHandler, ConnectionSettings, browser_rules};

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
    peer: &ConnectedClient,
    forwarded: Option<ConnectedClient>,
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
    let is_of_browser = browser_rules::is_of_browser(request.headers());
    let mut reply = handler.respond(&requester, request).await;
    if reply.status() == StatusCode::SERVICE_UNAVAILABLE && reply.headers().contains_key(RETRY_AFTER) {
        pause_before_refusal().await;
    }
    // The response is in memory already; this hold keeps a slow reader within its client's share.
    if requester.hold(F::response_memory(reply.body())).await.is_err() {
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
        browser_rules::disarm(reply.headers_mut());
    }
    reply.headers_mut().entry(DATE).or_insert_with(now);
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

/// The last second that has a date: 9999-12-31T23:59:59Z.
const LAST_SECOND: u64 = 253_402_300_799;

thread_local! {
    /// The date of the last answer of this thread, and its second.
    static LAST: RefCell<(u64, HeaderValue)> = RefCell::new((0, header_at(0)));
}

/// The date now. A time before 1970 counts as the first second of that year.
pub(crate) fn now() -> HeaderValue {
    let second = u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0);
    LAST.with_borrow_mut(|last| {
        // Also after a jump back of the clock.
        if last.0 != second {
            *last = (second, header_at(second));
        }
        last.1.clone()
    })
}

fn header_at(second: u64) -> HeaderValue {
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second.min(LAST_SECOND)));
    HeaderValue::try_from(date).unwrap_or_else(|_| HeaderValue::from_static(""))
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

#[cfg(test)]
mod date_header_tests {
    use super::*;

    #[test]
    fn every_second_has_a_date() {
        assert_eq!(header_at(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(header_at(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
        LAST.with_borrow_mut(|last| *last = (u64::MAX, header_at(u64::MAX)));
        assert_ne!(now(), header_at(u64::MAX), "a clock that was set back shows");
    }
}
