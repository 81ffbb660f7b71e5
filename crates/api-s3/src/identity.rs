//! The sender of a request: its user, by the signature, and its address, by the peer or a trusted proxy.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::header::HeaderMap;
use larder_gateway::objects::{Error, Objects};
use larder_model::objects::User;

use crate::auth::{self, AuthRequest, AuthScheme, RequestSignature, SigningKeys, VerifiedSignature};
use crate::errors::{S3Error, gateway};

/// The authenticated identity of a request.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    /// The user; `None` if anonymous.
    pub user: Option<Arc<User>>,
    /// The verified signature; `None` if anonymous.
    pub signature: Option<VerifiedSignature>,
}

impl Identity {
    /// How the request was signed.
    pub(crate) fn scheme(&self) -> Option<AuthScheme> {
        self.signature.as_ref().map(|signature| signature.scheme)
    }
}

/// Verifies the signature of a request.
///
/// # Errors
/// The errors of a bad signature; `InvalidAccessKeyId`; `AccessDenied` for a disabled user.
pub(crate) async fn authenticate(
    objects: &Objects,
    keys: &SigningKeys,
    request: &AuthRequest<'_>,
) -> Result<Identity, S3Error> {
    let Some(signature) = RequestSignature::of(request)? else { return Ok(Identity::default()) };
    let user = user_of_key(objects, signature.access_key()).await?;
    let signature = signature.verify(request, &user.secret, keys)?;
    // Only the holder of the secret learns that the user is disabled.
    let user = require_enabled(user)?;
    Ok(Identity { user: Some(user), signature: Some(signature) })
}

/// The user of an access key id, enabled or not. Callers verify the signature before [`require_enabled`].
///
/// # Errors
/// `InvalidAccessKeyId`, and errors of the store.
pub(crate) async fn user_of_key(objects: &Objects, access_key: &str) -> Result<Arc<User>, S3Error> {
    match objects.users.of_key(access_key).await {
        Ok(user) => Ok(user),
        Err(Error::UnknownKey(_)) => Err(auth::unknown_key(access_key)),
        Err(error) => Err(error.into()),
    }
}

/// Refuses a disabled user.
///
/// # Errors
/// `AccessDenied`.
pub(crate) fn require_enabled(user: Arc<User>) -> Result<Arc<User>, S3Error> {
    if user.enabled { Ok(user) } else { Err(gateway::user_disabled()) }
}

/// The client address of a request, and whether it used TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestSource {
    /// The client address.
    pub address: IpAddr,
    /// Whether the request came over TLS.
    pub secure: bool,
}

impl RequestSource {
    /// Reads `X-Forwarded-For` and `X-Forwarded-Proto` if `peer` is one of the `proxies`. The client is the last
    /// address that is not a proxy. Addresses before it can be forged, so they are ignored. If that position holds no
    /// address, the last known proxy stands for the client.
    pub(crate) fn of(peer: IpAddr, headers: &HeaderMap, proxies: &[IpAddr]) -> Self {
        let peer = peer.to_canonical();
        // A client may send these headers itself: only a proxy of the settings is believed.
        if !proxies.contains(&peer) {
            return Self { address: peer, secure: false };
        }
        let mut source = peer;
        let lines: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
        // The last entry is from the nearest proxy; a client can forge all before it.
        for text in lines.iter().rev().flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')) {
            let Some(address) = address(text) else { break };
            source = address;
            if !proxies.contains(&source) {
                break;
            }
        }
        let proto = headers.get_all("x-forwarded-proto").iter().next_back();
        let secure = proto.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"https"));
        Self { address: source, secure }
    }
}

/// Parses an address; some proxies append the port.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let address = text.parse().ok().or_else(|| text.parse().ok().map(|socket: SocketAddr| socket.ip()));
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn only_a_trusted_proxy_reports_the_client() {
        let proxies: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        let headers: HeaderMap = [
            ("x-forwarded-for".parse().unwrap(), "6.6.6.6, 1.2.3.4, 10.0.0.2".parse().unwrap()),
            ("x-forwarded-proto".parse().unwrap(), "https".parse().unwrap()),
        ]
        .into_iter()
        .collect();
        let of = |peer: &str, headers| RequestSource::of(peer.parse().unwrap(), headers, &proxies);
        let (named, bare) = ("1.2.3.4".parse().unwrap(), "10.0.0.1".parse().unwrap());
        assert_eq!(of("::ffff:10.0.0.1", &headers), RequestSource { address: named, secure: true });
        assert_eq!(of("9.9.9.9", &headers), RequestSource { address: "9.9.9.9".parse().unwrap(), secure: false });
        assert_eq!(of("10.0.0.1", &HeaderMap::new()), RequestSource { address: bare, secure: false });
    }

    #[test]
    fn forged_entries_before_the_proxys_own_are_ignored() {
        let proxies: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        let of = |lines: &[&[u8]]| {
            let line = |line: &&[u8]| ("x-forwarded-for".parse().unwrap(), HeaderValue::from_bytes(line).unwrap());
            let headers: HeaderMap = lines.iter().map(line).collect();
            RequestSource::of("10.0.0.1".parse().unwrap(), &headers, &proxies).address.to_string()
        };
        assert_eq!(of(&[b"6.6.6.6, junk, 1.2.3.4"]), "1.2.3.4");
        assert_eq!(of(&[b"\xff, 1.2.3.4, 10.0.0.2"]), "1.2.3.4");
        assert_eq!(of(&[b"6.6.6.6", b"1.2.3.4"]), "1.2.3.4");
        assert_eq!(of(&[b"6.6.6.6", b"1.2.3.4:567"]), "1.2.3.4");
        assert_eq!(of(&[b"6.6.6.6, ::ffff:1.2.3.4"]), "1.2.3.4");
        // An intermediary hid its client; the entries before it can be forged.
        assert_eq!(of(&[b"6.6.6.6, unknown, 10.0.0.2"]), "10.0.0.2");
        assert_eq!(of(&[b""]), "10.0.0.1");
    }
}
