//! CORS rules: the requests that browsers may send for pages of other origins.

use larder_rows::limits::CORS_RULES_MAX;
use serde::{Deserialize, Serialize};

/// Longest ID of a rule, in characters.
const ID_CHARS_MAX: usize = 255;

/// The methods that a rule may allow.
const METHODS: &[&str] = &["GET", "PUT", "POST", "DELETE", "HEAD"];

/// The CORS rules of a bucket; the first that matches decides.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cors {
    /// The rules in order, at most [`CORS_RULES_MAX`].
    pub rules: Vec<CorsRule>,
}

/// A CORS rule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CorsRule {
    /// Its ID.
    pub id: Option<String>,
    /// `AllowedOrigin`s, each with at most one `*`.
    pub origins: Vec<String>,
    /// `AllowedMethod`s.
    pub methods: Vec<String>,
    /// `AllowedHeader`s, each with at most one `*`.
    pub headers: Vec<String>,
    /// `ExposeHeader`s: response headers that scripts may read.
    pub expose: Vec<String>,
    /// `MaxAgeSeconds`: how long a browser may cache the answer to a preflight.
    pub max_age: Option<u32>,
}

impl Cors {
    /// The first rule that allows a request of `method` with `headers` from a page of `origin`, and the value of
    /// `Access-Control-Allow-Origin`: `*` when the rule allows all origins, else the origin.
    #[must_use]
    pub fn find_rule<'a>(&'a self, origin: &'a str, method: &str, headers: &[&str]) -> Option<(&'a CorsRule, &'a str)> {
        self.rules.iter().find_map(|rule| Some((rule, rule.allowed_origin(origin, method, headers)?)))
    }

    /// Checks rules that a client wants to store.
    ///
    /// # Errors
    /// [`CorsError`] for no or too many rules, rules without origin or method, unknown methods, or too many wildcards.
    pub fn validate(&self) -> Result<(), CorsError> {
        match self.rules.len() {
            0 => return Err(CorsError::malformed("There has to be at least one CORSRule.")),
            1..=CORS_RULES_MAX => {}
            _ => return Err(CorsError::invalid(format!("A bucket may have at most {CORS_RULES_MAX} CORS rules."))),
        }
        self.rules.iter().try_for_each(CorsRule::validate)
    }
}

impl CorsRule {
    fn allowed_origin<'a>(&self, origin: &'a str, method: &str, headers: &[&str]) -> Option<&'a str> {
        let named = self.origins.iter().find(|pattern| matches_pattern(pattern.as_bytes(), origin.as_bytes()))?;
        let lower: Vec<_> = self.headers.iter().map(|pattern| pattern.to_ascii_lowercase()).collect();
        let is_allowed = |header: &&str| {
            let header = header.trim().to_ascii_lowercase();
            lower.iter().any(|pattern| matches_pattern(pattern.as_bytes(), header.as_bytes()))
        };
        let allowed = self.methods.iter().any(|known| known == method) && headers.iter().all(is_allowed);
        allowed.then_some(if named == "*" { "*" } else { origin })
    }

    fn validate(&self) -> Result<(), CorsError> {
        if self.origins.is_empty() || self.methods.is_empty() {
            return Err(CorsError::malformed("A CORSRule needs an AllowedOrigin and an AllowedMethod."));
        }
        if self.id.as_ref().is_some_and(|id| id.chars().count() > ID_CHARS_MAX) {
            return Err(CorsError::invalid(format!("The ID of a CORS rule has at most {ID_CHARS_MAX} characters.")));
        }
        if let Some(method) = self.methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
            return Err(CorsError::invalid(format!("A CORS rule cannot be for the method {method}.")));
        }
        let stars = |text: &&String| text.bytes().filter(|byte| *byte == b'*').count();
        if let Some(origin) = self.origins.iter().find(|origin| stars(origin) > 1) {
            return Err(CorsError::invalid(format!("An AllowedOrigin can have one wildcard, {origin} has more.")));
        }
        if let Some(header) = self.headers.iter().find(|header| stars(header) > 1) {
            return Err(CorsError::invalid(format!("An AllowedHeader can have one wildcard, {header} has more.")));
        }
        if let Some(header) = self.expose.iter().find(|header| stars(header) > 0) {
            return Err(CorsError::invalid(format!("An ExposeHeader can have no wildcard, {header} has one.")));
        }
        Ok(())
    }
}

/// Whether `text` matches `pattern`, which has at most one `*`.
fn matches_pattern(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.iter().position(|byte| *byte == b'*') {
        None => pattern == text,
        Some(star) => {
            let (before, after) = (&pattern[..star], &pattern[star + 1..]);
            text.len() >= before.len() + after.len() && text.starts_with(before) && text.ends_with(after)
        }
    }
}

/// Why CORS rules are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CorsError {
    /// Whether the document has the wrong form (`MalformedXML`) rather than a wrong value (`InvalidRequest`).
    pub malformed: bool,
    /// The reason, for the client.
    pub message: String,
}

impl CorsError {
    fn malformed(message: &str) -> Self {
        Self { malformed: true, message: message.to_owned() }
    }

    fn invalid(message: String) -> Self {
        Self { malformed: false, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(items: &[&str]) -> Vec<String> {
        items.iter().map(|item| (*item).to_owned()).collect()
    }

    fn rule(origins: &[&str], methods: &[&str], headers: &[&str]) -> CorsRule {
        CorsRule { origins: list(origins), methods: list(methods), headers: list(headers), ..CorsRule::default() }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let cors = Cors {
            rules: vec![
                rule(&["http://a", "https://*.b.com"], &["GET", "PUT"], &["x-amz-*", "Content-Type"]),
                rule(&["*"], &["GET"], &[]),
                rule(&["*end"], &["DELETE"], &["*"]),
            ],
        };
        let find_rule = |origin, method, headers: &[&str]| {
            let (matched_rule, allowed) = cors.find_rule(origin, method, headers)?;
            Some((cors.rules.iter().position(|rule| rule == matched_rule)?, allowed.to_owned()))
        };
        assert_eq!(find_rule("http://a", "GET", &["X-Amz-Meta-A", "content-type"]), Some((0, "http://a".into())));
        assert_eq!(find_rule("https://x.b.com", "PUT", &[]), Some((0, "https://x.b.com".into())));
        assert_eq!(find_rule("https://.b.com", "PUT", &[]), Some((0, "https://.b.com".into())));
        assert_eq!(find_rule("https://b.com", "PUT", &[]), None);
        assert_eq!(find_rule("http://a", "GET", &["other"]), None);
        assert_eq!(find_rule("http://c", "GET", &[]), Some((1, "*".into())));
        assert_eq!(find_rule("http://c", "get", &[]), None);
        assert_eq!(find_rule("the end", "DELETE", &["any", "thing"]), Some((2, "the end".into())));
        assert_eq!(find_rule("HTTP://A", "PUT", &[]), None);
    }

    #[test]
    fn the_sides_of_a_star_do_not_overlap() {
        assert!(!matches_pattern(b"ab*bc", b"abc"));
        assert!(matches_pattern(b"ab*bc", b"abbc"));
        assert!(matches_pattern(b"*", b""));
        assert!(!matches_pattern(b"", b"a"));
    }

    #[test]
    fn bad_rules_are_refused() {
        let good = rule(&["*"], METHODS, &["*"]);
        let check = |rules: Vec<CorsRule>| Cors { rules }.validate().map_err(|bad| bad.malformed);
        assert_eq!(check(vec![good.clone()]), Ok(()));
        assert_eq!(check(vec![good.clone(); 100]), Ok(()));
        assert_eq!(check(vec![good.clone(); 101]), Err(false));
        assert_eq!(check(vec![]), Err(true));
        assert_eq!(check(vec![rule(&[], &["GET"], &[])]), Err(true));
        assert_eq!(check(vec![rule(&["*"], &[], &[])]), Err(true));
        for bad in [
            rule(&["*"], &["OPTIONS"], &[]),
            rule(&["*"], &["get"], &[]),
            rule(&["http://*.*"], &["GET"], &[]),
            rule(&["*"], &["GET"], &["x-*-*"]),
            CorsRule { expose: list(&["x-*"]), ..good.clone() },
            CorsRule { id: Some("é".repeat(256)), ..good.clone() },
        ] {
            assert_eq!(check(vec![bad.clone()]), Err(false), "{bad:?}");
        }
        assert_eq!(check(vec![CorsRule { id: Some("é".repeat(255)), ..good }]), Ok(()));
    }
}
