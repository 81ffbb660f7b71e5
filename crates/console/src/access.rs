//! Access to the console: one-time tokens, sessions, and the token that proves that a form came from one of its pages.
//!
//! ```text
//! issue_token ──link──> redeem (once, 15 minutes) ──cookie──> session (12 hours) ──form──> has_csrf
//! ```
//! Everything is in memory: a restart ends all sessions. Tokens have 256 bits of randomness, and are compared in constant time.

use std::collections::VecDeque;
use std::time::Duration;

use hyper::StatusCode;
use larder_core::{AuditEvent, AuditOutcome};
use larder_kv::Gateway;
use larder_net::RequestSource;
use parking_lot::Mutex;
use subtle::ConstantTimeEq as _;

/// How long a link to sign in is valid.
pub(crate) const TOKEN_LIFETIME: Duration = Duration::from_secs(15 * 60);
/// How long a session lasts.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// Most links that wait to be opened; a further one replaces the oldest.
const TOKENS_MAX: usize = 16;
/// Most sessions; a further one ends the oldest.
const SESSIONS_MAX: usize = 32;
/// Bytes of randomness of a token.
const TOKEN_BYTES: usize = 32;

/// The links and sessions of a console. Times are those of one monotonic clock.
pub struct ConsoleAccess {
    random: fn(&mut [u8]),
    state: Mutex<AccessState>,
}

#[derive(Default)]
struct AccessState {
    links: VecDeque<LoginLink>,
    sessions: VecDeque<LiveSession>,
    begun: u64,
}

struct LoginLink {
    token: String,
    issued: Duration,
}

struct LiveSession {
    cookie: String,
    begun: Duration,
    session: ConsoleSession,
}

/// A session that was found by its cookie.
#[derive(Clone, PartialEq, Eq)]
pub struct ConsoleSession {
    /// Its number since the start, for the audit log.
    pub number: u64,
    /// The token that its forms carry.
    pub csrf: String,
}

impl ConsoleAccess {
    /// An access without links and sessions. `random` fills bytes with unguessable randomness.
    #[must_use]
    pub fn new(random: fn(&mut [u8])) -> Self {
        Self { random, state: Mutex::default() }
    }

    /// A new token for a link to sign in: valid once, for [`TOKEN_LIFETIME`].
    #[must_use]
    pub fn issue_token(&self, now: Duration) -> String {
        let token = self.new_token();
        let mut state = self.state.lock();
        push_bounded(&mut state.links, LoginLink { token: token.clone(), issued: now }, TOKENS_MAX);
        token
    }

    /// Begins a session with a token, which is used up; returns the value of its cookie. `None`: the token is not valid.
    #[must_use]
    pub fn redeem(&self, token: &[u8], now: Duration) -> Option<String> {
        let (cookie, csrf) = (self.new_token(), self.new_token());
        let mut state = self.state.lock();
        state.links.retain(|link| is_within(link.issued, now, TOKEN_LIFETIME));
        let at = state.links.iter().position(|link| is_same(link.token.as_bytes(), token))?;
        state.links.remove(at);
        state.begun += 1;
        let session = ConsoleSession { number: state.begun, csrf };
        push_bounded(&mut state.sessions, LiveSession { cookie: cookie.clone(), begun: now, session }, SESSIONS_MAX);
        Some(cookie)
    }

    /// The session of a cookie.
    #[must_use]
    pub fn session(&self, cookie: &[u8], now: Duration) -> Option<ConsoleSession> {
        let mut state = self.state.lock();
        state.sessions.retain(|live| is_within(live.begun, now, SESSION_LIFETIME));
        let found = state.sessions.iter().find(|live| is_same(live.cookie.as_bytes(), cookie));
        found.map(|live| live.session.clone())
    }

    /// Ends the session of a cookie.
    pub fn end(&self, cookie: &[u8]) {
        self.state.lock().sessions.retain(|live| !is_same(live.cookie.as_bytes(), cookie));
    }

    fn new_token(&self) -> String {
        let mut bytes = [0; TOKEN_BYTES];
        (self.random)(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl ConsoleSession {
    /// Whether a form carries this session's token.
    #[must_use]
    pub fn has_csrf(&self, given: &[u8]) -> bool {
        is_same(self.csrf.as_bytes(), given)
    }
}

fn is_within(begun: Duration, now: Duration, lifetime: Duration) -> bool {
    now.saturating_sub(begun) < lifetime
}

/// Compares in a time that does not depend on the place of the first difference.
fn is_same(own: &[u8], given: &[u8]) -> bool {
    own.ct_eq(given).into()
}

fn push_bounded<T>(queue: &mut VecDeque<T>, one: T, max: usize) {
    if queue.len() >= max {
        queue.pop_front();
    }
    queue.push_back(one);
}

/// The name of this interface in the audit log.
const FACE: &str = "console";

/// A request for the audit log.
pub(crate) struct AuditedRequest<'a> {
    /// The action, by its name in the table of routes.
    pub(crate) action: &'a str,
    /// The changed thing.
    pub(crate) target: &'a str,
    /// The number of the session, if there is one.
    pub(crate) session: Option<u64>,
    /// The client.
    pub(crate) source: RequestSource,
    /// The status of the answer.
    pub(crate) status: StatusCode,
}

impl AuditedRequest<'_> {
    /// Writes the line, if there is an audit log.
    pub(crate) fn record(&self, gateway: &Gateway) {
        let Some(log) = gateway.context().audit() else { return };
        let who = self.session.map(|number| format!("session {number}"));
        let status = self.status.as_u16();
        log.record(&AuditEvent {
            face: FACE,
            who: who.as_deref(),
            from: Some(self.source.address),
            action: self.action,
            target: self.target,
            outcome: AuditOutcome::from_status(status),
            status: Some(status),
            request: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;

    static NEXT: AtomicU8 = AtomicU8::new(0);

    fn counted(bytes: &mut [u8]) {
        bytes.fill(NEXT.fetch_add(1, Ordering::Relaxed));
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_token_signs_in_once() {
        let access = ConsoleAccess::new(counted);
        let token = access.issue_token(seconds(1));
        assert_eq!(token.len(), 64);
        assert!(
            access.redeem(b"", seconds(1)).is_none() && access.redeem(&token.as_bytes()[1..], seconds(1)).is_none()
        );
        let cookie = access.redeem(token.as_bytes(), seconds(2)).unwrap();
        assert!(access.redeem(token.as_bytes(), seconds(2)).is_none(), "it is used up");
        assert!(access.session(cookie.as_bytes(), seconds(2)).is_some());
        assert!(access.session(token.as_bytes(), seconds(2)).is_none(), "a token is no cookie");
        assert!(access.session(b"", seconds(2)).is_none());
    }

    #[test]
    fn a_token_is_valid_for_fifteen_minutes_and_a_session_for_twelve_hours() {
        let access = ConsoleAccess::new(counted);
        let (late, early) = (access.issue_token(seconds(0)), access.issue_token(seconds(1)));
        assert!(access.redeem(late.as_bytes(), seconds(900)).is_none());
        let cookie = access.redeem(early.as_bytes(), seconds(900)).unwrap();
        assert!(access.session(cookie.as_bytes(), seconds(900 + 43_199)).is_some());
        assert!(access.session(cookie.as_bytes(), seconds(900 + 43_200)).is_none());
    }

    #[test]
    fn tokens_and_sessions_are_bounded_and_the_oldest_goes() {
        let access = ConsoleAccess::new(counted);
        let tokens: Vec<_> = (0..=TOKENS_MAX).map(|_| access.issue_token(seconds(1))).collect();
        assert!(access.redeem(tokens[0].as_bytes(), seconds(1)).is_none());
        assert!(access.redeem(tokens[1].as_bytes(), seconds(1)).is_some());
        let sign_in = || access.redeem(access.issue_token(seconds(1)).as_bytes(), seconds(1)).unwrap();
        let cookies: Vec<_> = (0..=SESSIONS_MAX).map(|_| sign_in()).collect();
        assert!(access.session(cookies[0].as_bytes(), seconds(1)).is_none());
        assert!(access.session(cookies[1].as_bytes(), seconds(1)).is_some());
    }

    #[test]
    fn a_session_that_was_ended_is_not_found() {
        let access = ConsoleAccess::new(counted);
        let cookie = access.redeem(access.issue_token(seconds(1)).as_bytes(), seconds(1)).unwrap();
        access.end(cookie.as_bytes());
        assert!(access.session(cookie.as_bytes(), seconds(1)).is_none());
    }

    #[test]
    fn each_session_has_its_own_form_token() {
        let access = ConsoleAccess::new(counted);
        let session = || {
            let cookie = access.redeem(access.issue_token(seconds(1)).as_bytes(), seconds(1)).unwrap();
            access.session(cookie.as_bytes(), seconds(1)).unwrap()
        };
        let (one, other) = (session(), session());
        assert!(one.has_csrf(one.csrf.as_bytes()));
        assert!(!one.has_csrf(other.csrf.as_bytes()) && !one.has_csrf(b""));
        assert_ne!(one.number, other.number);
    }
}
