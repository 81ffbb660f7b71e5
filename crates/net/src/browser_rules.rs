//! Requests that a browser sends for a page: the host that they name, and the origin of the page.
//!
//! Attack: a page anywhere can make its reader's browser send requests to this server. A page whose host was pointed here after it
//! was loaded (DNS rebinding) can read the answers too: its requests name its own host.

use std::net::IpAddr;

use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, REFERER};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const ANY: HeaderValue = HeaderValue::from_static("*");

/// Origins whose pages may send requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedOrigins {
    /// All, also those without a name.
    Any,
    /// These, in lower case, such as `https://app.example.com`.
    Listed(Vec<String>),
}

/// The rules about requests of browsers. The default refuses pages of other sites, and accepts any host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowserRules {
    /// Origins beside the server's own.
    pub origins: AllowedOrigins,
    /// Hosts that requests may name beside `localhost` and the addresses of loopback, in lower case; `None`: any host.
    pub hosts: Option<Vec<String>>,
}

impl Default for BrowserRules {
    fn default() -> Self {
        Self { origins: AllowedOrigins::Listed(Vec::new()), hosts: None }
    }
}

/// The reason for which a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignRequest {
    /// `Host` names none of the server's hosts.
    Host,
    /// A page of another origin sent it.
    Origin,
}

impl BrowserRules {
    /// Refuses the request of a foreign page. Clients that are no browsers send none of these headers but `Host`.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), ForeignRequest> {
        let host = headers.get(HOST).map(HeaderValue::as_bytes).unwrap_or_default();
        // A browser always sends its host; other clients may leave it out in HTTP/1.0.
        if self.hosts.as_ref().is_some_and(|hosts| !host.is_empty() && !is_own_host(host, hosts)) {
            return Err(ForeignRequest::Host);
        }
        if self.origins == AllowedOrigins::Any {
            return Ok(());
        }
        // `Origin` first: it decides alone where it is allowed, since `Referer` may be left out or cut.
        for header in [ORIGIN, REFERER] {
            let Some(page) = headers.get(&header).map(HeaderValue::as_bytes) else { continue };
            if self.allows(origin_of(page)) {
                return Ok(());
            }
            if !is_own_origin(origin_of(page), host) {
                return Err(ForeignRequest::Origin);
            }
        }
        // A page can leave out both, but not this one.
        let is_cross_site = headers.get(&SEC_FETCH_SITE).is_some_and(|site| site == "cross-site");
        if is_cross_site { Err(ForeignRequest::Origin) } else { Ok(()) }
    }

    /// The origin of a request whose page may read the answer; by default no request has one.
    #[must_use]
    pub fn reader(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        match &self.origins {
            AllowedOrigins::Any => headers.contains_key(ORIGIN).then_some(ANY),
            AllowedOrigins::Listed(listed) if listed.is_empty() => None,
            AllowedOrigins::Listed(_) => headers.get(ORIGIN).filter(|origin| self.allows(origin.as_bytes())).cloned(),
        }
    }

    fn allows(&self, origin: &[u8]) -> bool {
        match &self.origins {
            AllowedOrigins::Any => true,
            AllowedOrigins::Listed(listed) => listed.iter().any(|one| origin.eq_ignore_ascii_case(one.as_bytes())),
        }
    }
}

/// The scheme, host and port of an address.
fn origin_of(address: &[u8]) -> &[u8] {
    let scheme = address.windows(3).position(|three| three == b"://").map_or(0, |at| at + 3);
    let ends = |byte: &u8| matches!(byte, b'/' | b'?' | b'#');
    let end = address[scheme..].iter().position(ends).map_or(address.len(), |end| scheme + end);
    &address[..end]
}

/// Whether an origin is this server, as the request names it. A proxy may add TLS, so the scheme does not matter.
fn is_own_origin(origin: &[u8], host: &[u8]) -> bool {
    let of_scheme = |scheme: &[u8], port: &[u8]| {
        let bare = |host| <[u8]>::strip_suffix(host, port).unwrap_or(host);
        let (begin, authority) = origin.split_at_checked(scheme.len())?;
        begin.eq_ignore_ascii_case(scheme).then(|| bare(authority).eq_ignore_ascii_case(bare(host)))
    };
    of_scheme(b"http://", b":80").or_else(|| of_scheme(b"https://", b":443")).unwrap_or(false)
}

/// Whether a host, with or without a port, is of loopback or one of these.
fn is_own_host(host: &[u8], hosts: &[String]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _port)) => address,
        None => host.split_once(':').map_or(host, |(name, _port)| name),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || name.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
        || hosts.iter().any(|one| one.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rules: &BrowserRules, headers: &[(&'static str, &str)]) -> Option<ForeignRequest> {
        let pair =
            |(name, value): &(&'static str, &str)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap());
        rules.check(&headers.iter().map(pair).collect()).err()
    }

    fn rules(origins: &[&str], hosts: Option<&[&str]>) -> BrowserRules {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        BrowserRules { origins: AllowedOrigins::Listed(owned(origins)), hosts: hosts.map(owned) }
    }

    #[test]
    fn clients_that_are_no_browsers_are_served() {
        let rules = rules(&[], Some(&["kv.example.com"]));
        for host in
            ["127.0.0.1:8098", "localhost", "LOCALHOST.:1", "127.9.9.9", "[::1]:8098", "[::1]", "kv.example.com:80"]
        {
            assert_eq!(check(&rules, &[("host", host)]), None, "{host}");
        }
        assert_eq!(check(&rules, &[]), None);
    }

    #[test]
    fn a_page_whose_host_was_pointed_here_is_refused() {
        let rules = rules(&[], Some(&["kv.example.com"]));
        for host in
            ["evil.example", "evil.example:8098", "localhost.evil", "0.0.0.0:8098", "10.0.0.1", "[::2]", "[", ":8098"]
        {
            let own = format!("http://{host}");
            assert_eq!(check(&rules, &[("host", host), ("origin", &own)]), Some(ForeignRequest::Host), "{host}");
        }
        assert_eq!(check(&BrowserRules::default(), &[("host", "any")]), None);
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let rules = rules(&["https://app.example.com"], None);
        let at = ("host", "h:8098");
        for (name, value) in [
            ("origin", "http://evil.example"),
            ("origin", "http://h:8099"),
            ("origin", "http://h"),
            ("origin", "null"),
            ("origin", ""),
            ("origin", "https://app.example.com.evil"),
            ("referer", "http://elsewhere:8098/page"),
            ("referer", "about:blank"),
            ("sec-fetch-site", "cross-site"),
        ] {
            assert_eq!(check(&rules, &[at, (name, value)]), Some(ForeignRequest::Origin), "{name}: {value}");
        }
        for (name, value) in [
            ("origin", "http://h:8098"),
            ("origin", "https://H:8098"),
            ("origin", "https://APP.example.com"),
            ("referer", "http://h:8098/page"),
            ("referer", "https://app.example.com/page?x#y"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "none"),
        ] {
            assert_eq!(check(&rules, &[at, (name, value)]), None, "{name}: {value}");
        }
        assert_eq!(check(&rules, &[("host", "h"), ("origin", "http://h:80")]), None);
        assert_eq!(check(&rules, &[("host", "h"), ("origin", "https://h:443")]), None);
        assert_eq!(check(&rules, &[("host", "h"), ("origin", "https://h:80")]), Some(ForeignRequest::Origin));
        let allowed = [at, ("referer", "https://app.example.com/"), ("sec-fetch-site", "cross-site")];
        assert_eq!(check(&rules, &allowed), None, "an image of an allowed page has no origin");
        let any = BrowserRules { origins: AllowedOrigins::Any, hosts: None };
        assert_eq!(check(&any, &[at, ("origin", "null"), ("sec-fetch-site", "cross-site")]), None);
    }
}
