//! The website of a bucket: index and error documents, and redirects. Pure.
//!
//! ```text
//! request ─> redirect of all ─> rules without an error ─> the object, or the index document below its key
//!                                                                │ error
//!                                                                └─> rules with an error ─> the error document
//! ```

use serde::{Deserialize, Serialize};

/// Most routing rules of a website.
pub const ROUTING_RULES_MAX: usize = 50;
/// The status of a redirect that names none.
const MOVED: u16 = 301;

/// The website configuration of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Website {
    /// Every request is redirected to a host.
    RedirectAll(RedirectTarget),
    /// Requests are answered with objects.
    Pages(WebsitePages),
}

/// The host of a redirect of all requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedirectTarget {
    /// The host.
    pub host: String,
    /// The protocol; `None`: that of the request.
    pub protocol: Option<WebProtocol>,
}

/// How a website answers with objects.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WebsitePages {
    /// What follows a key that is empty or ends with a slash.
    pub index: String,
    /// The key of the object that is the answer to errors of the client.
    pub error: Option<String>,
    /// Redirects, of which the first that fits counts.
    pub rules: Vec<RoutingRule>,
}

/// A redirect under a condition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RoutingRule {
    /// The beginning of the key; `None`: any key.
    pub prefix: Option<String>,
    /// The status that the request would be answered with; `None`: the rule comes before the object is read.
    pub error: Option<u16>,
    /// The protocol; `None`: that of the request.
    pub protocol: Option<WebProtocol>,
    /// The host; `None`: that of the request.
    pub host: Option<String>,
    /// The new key, or the beginning of it.
    pub replace: Option<KeyReplacement>,
    /// The status of the answer; `None`: 301.
    pub status: Option<u16>,
}

/// The change of a key by a redirect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyReplacement {
    /// This key.
    Key(String),
    /// This in the place of the rule's prefix.
    Prefix(String),
}

/// The protocol of a redirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WebProtocol {
    /// `http`
    Http,
    /// `https`
    Https,
}

/// A redirect of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebsiteRedirect<'a> {
    /// The status, of the 300s.
    pub status: u16,
    /// The protocol; `None`: that of the request.
    pub protocol: Option<WebProtocol>,
    /// The host; `None`: that of the request.
    pub host: Option<&'a str>,
    /// The key, not encoded.
    pub key: String,
}

impl WebProtocol {
    /// Its name in documents and addresses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The protocol of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Http, Self::Https].into_iter().find(|protocol| protocol.name() == name)
    }
}

impl Website {
    /// The redirect of a request for `key` before any object is read.
    #[must_use]
    pub fn redirect_before(&self, key: &str) -> Option<WebsiteRedirect<'_>> {
        match self {
            Self::RedirectAll(target) => Some(WebsiteRedirect {
                status: MOVED,
                protocol: target.protocol,
                host: Some(&target.host),
                key: key.to_owned(),
            }),
            Self::Pages(pages) => pages.redirect(key, None),
        }
    }

    /// The redirect of a request for `key` that would be answered with the error `status`.
    #[must_use]
    pub fn redirect_after(&self, key: &str, status: u16) -> Option<WebsiteRedirect<'_>> {
        self.pages().and_then(|pages| pages.redirect(key, Some(status)))
    }

    /// The pages, unless every request is redirected.
    #[must_use]
    pub fn pages(&self) -> Option<&WebsitePages> {
        match self {
            Self::RedirectAll(_) => None,
            Self::Pages(pages) => Some(pages),
        }
    }
}

impl WebsitePages {
    /// The key of the object that answers a request for `key`.
    #[must_use]
    pub fn page_key(&self, key: &str) -> String {
        if key.is_empty() || key.ends_with('/') { format!("{key}{}", self.index) } else { key.to_owned() }
    }

    /// The key of the index document below `key`, whose request is redirected if it exists; `None` where it is that of the page.
    #[must_use]
    pub fn index_below(&self, key: &str) -> Option<String> {
        (!key.is_empty() && !key.ends_with('/')).then(|| format!("{key}/{}", self.index))
    }

    fn redirect(&self, key: &str, error: Option<u16>) -> Option<WebsiteRedirect<'_>> {
        let fits = |rule: &&RoutingRule| {
            rule.error == error && rule.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix.as_str()))
        };
        self.rules.iter().find(fits).map(|rule| rule.redirect(key))
    }
}

impl RoutingRule {
    fn redirect(&self, key: &str) -> WebsiteRedirect<'_> {
        let rest = || key.strip_prefix(self.prefix.as_deref().unwrap_or_default()).unwrap_or(key);
        let key = match &self.replace {
            None => key.to_owned(),
            Some(KeyReplacement::Key(key)) => key.clone(),
            Some(KeyReplacement::Prefix(prefix)) => format!("{prefix}{}", rest()),
        };
        WebsiteRedirect {
            status: self.status.unwrap_or(MOVED),
            protocol: self.protocol,
            host: self.host.as_deref(),
            key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(prefix: Option<&str>, error: Option<u16>, replace: KeyReplacement) -> RoutingRule {
        RoutingRule { prefix: prefix.map(str::to_owned), error, replace: Some(replace), ..RoutingRule::default() }
    }

    fn key(redirect: Option<WebsiteRedirect<'_>>) -> Option<String> {
        redirect.map(|redirect| redirect.key)
    }

    #[test]
    fn the_first_rule_that_fits_decides_before_or_after_the_read() {
        let rules = vec![
            rule(Some("old/"), None, KeyReplacement::Prefix("new/".into())),
            rule(Some("old/"), Some(404), KeyReplacement::Key("never".into())),
            rule(Some("docs/"), Some(404), KeyReplacement::Prefix("archive/".into())),
            rule(None, Some(404), KeyReplacement::Key("missing".into())),
            rule(None, Some(403), KeyReplacement::Prefix("login/".into())),
        ];
        let site = Website::Pages(WebsitePages { index: "index.html".into(), error: None, rules });
        assert_eq!(key(site.redirect_before("old/a")), Some("new/a".into()));
        assert_eq!(key(site.redirect_before("older")), None);
        assert_eq!(key(site.redirect_after("docs/a", 404)), Some("archive/a".into()));
        assert_eq!(key(site.redirect_after("a", 404)), Some("missing".into()));
        assert_eq!(key(site.redirect_after("a", 403)), Some("login/a".into()), "an empty prefix is replaced");
        assert_eq!(key(site.redirect_after("a", 416)), None);
    }

    #[test]
    fn a_rule_without_a_condition_redirects_every_request() {
        let rules = vec![RoutingRule { host: Some("other".into()), status: Some(307), ..RoutingRule::default() }];
        let site = Website::Pages(WebsitePages { rules, ..WebsitePages::default() });
        let redirect = site.redirect_before("a/b").unwrap();
        assert_eq!(redirect, WebsiteRedirect { status: 307, protocol: None, host: Some("other"), key: "a/b".into() });
    }

    #[test]
    fn all_requests_are_redirected_with_their_key() {
        let target = RedirectTarget { host: "www.example.com".into(), protocol: Some(WebProtocol::Https) };
        let site = Website::RedirectAll(target);
        let redirect = site.redirect_before("a/b").unwrap();
        assert_eq!((redirect.status, redirect.host, redirect.key.as_str()), (301, Some("www.example.com"), "a/b"));
        assert_eq!(site.redirect_after("a", 404), None);
        assert!(site.pages().is_none());
    }

    #[test]
    fn a_directory_is_answered_with_its_index_document() {
        let pages = WebsitePages { index: "index.html".into(), ..WebsitePages::default() };
        for (key, page, below) in [
            ("", "index.html", None),
            ("docs/", "docs/index.html", None),
            ("docs", "docs", Some("docs/index.html")),
            ("a//", "a//index.html", None),
        ] {
            assert_eq!((pages.page_key(key), pages.index_below(key).as_deref()), (page.into(), below), "{key}");
        }
    }
}
