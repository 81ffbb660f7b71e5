//! The links that sign in to the console.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use larder_console::ConsoleAccess;

use crate::banner::reachable;

/// Makes links to the console of this server.
#[derive(Clone)]
pub(crate) struct ConsoleLinks {
    access: Arc<ConsoleAccess>,
    address: SocketAddr,
}

impl ConsoleLinks {
    /// Links to the console at this address.
    pub(crate) fn new(access: Arc<ConsoleAccess>, address: SocketAddr) -> Self {
        Self { access, address }
    }

    /// A link that signs in once, for 15 minutes from the monotonic time `now` on.
    pub(crate) fn issue(&self, now: Duration) -> String {
        let token = self.access.issue_token(now);
        format!("http://{}/login?token={token}", reachable(self.address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_signs_in_once() {
        let access = Arc::new(ConsoleAccess::new(|bytes| bytes.fill(7)));
        let links = ConsoleLinks::new(access.clone(), "127.0.0.1:1234".parse().unwrap());
        let link = links.issue(Duration::ZERO);
        let token = link.strip_prefix("http://127.0.0.1:1234/login?token=").unwrap();
        assert!(access.redeem(token.as_bytes(), Duration::ZERO).is_some());
        assert!(access.redeem(token.as_bytes(), Duration::ZERO).is_none());
    }
}
