//! Requests that a browser sends for a page: the host that they name, and the origin of the page.
//!
//! Attack: a page anywhere can make its reader's browser send requests to this server. A page whose host was pointed here after it
//! was loaded (DNS rebinding) can read the answers too: its requests name its own host.
//!
//! Answers with bytes that somebody stored, shown by a browser: no script in them runs in the origin of this server.
//!
//! Attack: a user stores a page, and another one opens its address. Its script could send requests that carry the reader's credentials.
//! Programs get no such headers: some compare those of an answer.

use std::net::IpAddr;

use hyper::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, REFERER, USER_AGENT,
    X_CONTENT_TYPE_OPTIONS,
};

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
            if self.allows(address_origin(page)) {
                return Ok(());
            }
            if !is_own_origin(address_origin(page), host) {
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
            AllowedOrigins::Listed(listed) => {
                listed.iter().any(|allowed_origin| origin.eq_ignore_ascii_case(allowed_origin.as_bytes()))
            }
        }
    }
}

/// The scheme, host and port of an address.
fn address_origin(address: &[u8]) -> &[u8] {
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
        || hosts.iter().any(|own_host| own_host.eq_ignore_ascii_case(name))
}

/// A browser sends it where the connection is secure.
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox");
/// Ends of the media types whose documents can have scripts: HTML, XML of any vocabulary, and style sheets of XML. A sandbox around
/// others, such as PDF, keeps browsers from showing them.
const WITH_SCRIPTS: [&str; 4] = ["/html", "/xml", "+xml", "/xsl"];

/// Whether a browser asks.
pub(crate) fn is_of_browser(request: &HeaderMap) -> bool {
    let names_a_browser = || request.get(USER_AGENT).is_some_and(|agent| agent.as_bytes().starts_with(b"Mozilla/"));
    request.contains_key(SEC_FETCH_DEST) || names_a_browser()
}

/// Adds the headers that keep a stored document from running scripts; those that the answer has stay.
pub(crate) fn disarm(answer: &mut HeaderMap) {
    answer.entry(X_CONTENT_TYPE_OPTIONS).or_insert(NOSNIFF);
    if answer.get_all(CONTENT_TYPE).iter().any(may_have_scripts) {
        answer.entry(CONTENT_SECURITY_POLICY).or_insert(SANDBOX);
    }
}

/// Whether a browser may find a document with scripts. Of several types in one header it takes the last that it can read.
fn may_have_scripts(media: &HeaderValue) -> bool {
    let media = String::from_utf8_lossy(media.as_bytes()).to_ascii_lowercase();
    let mut types = media.split(',').map(|media_type| media_type.split(';').next().unwrap_or_default().trim());
    types.any(|media_type| WITH_SCRIPTS.iter().any(|end| media_type.ends_with(end)))
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
            let own_origin = format!("http://{host}");
            assert_eq!(check(&rules, &[("host", host), ("origin", &own_origin)]), Some(ForeignRequest::Host), "{host}");
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

#[cfg(test)]
mod stored_pages_tests {
    use super::*;

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_browser_is_known_by_its_headers() {
        assert!(is_of_browser(&map(&[("sec-fetch-dest", "document")])));
        assert!(is_of_browser(&map(&[("user-agent", "Mozilla/5.0 (X11)")])));
        assert!(!is_of_browser(&map(&[("user-agent", "Boto3/1.40 Mozilla/5.0")])));
        assert!(!is_of_browser(&map(&[])));
    }

    #[test]
    fn only_documents_with_scripts_are_in_a_sandbox() {
        let policy = |media: &'static str| {
            let mut answer = map(&[("content-type", media)]);
            disarm(&mut answer);
            assert_eq!(answer[X_CONTENT_TYPE_OPTIONS], NOSNIFF);
            answer.remove(CONTENT_SECURITY_POLICY)
        };
        assert_eq!(policy("Text/HTML; charset=utf-8"), Some(SANDBOX));
        for media in ["image/svg+xml", "application/rss+xml", "text/xsl", "text/plain, text/html", "text/xml ;a=b"] {
            assert_eq!(policy(media), Some(SANDBOX), "{media}");
        }
        for media in ["application/pdf", "text/plain; of=text/html", "application/vnd.openxmlformats-officedocument"] {
            assert_eq!(policy(media), None, "{media}");
        }
        let mut headers = map(&[("content-type", "text/html"), ("content-security-policy", "default-src 'self'")]);
        disarm(&mut headers);
        assert_eq!(headers[CONTENT_SECURITY_POLICY], "default-src 'self'");
    }
}
