//! Rules for browsers: which pages of other origins may ask what.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::CORS_RULES_MAX;

/// What a name of a rule may have, in characters.
const MAX_ID: usize = 255;

/// Methods a rule may name.
const METHODS: &[&str] = &["GET", "PUT", "POST", "DELETE", "HEAD"];

/// The rules of a bucket; the first that matches counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cors {
    /// Up to 100.
    pub rules: Vec<CorsRule>,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CorsRule {
    /// Its name, if it has one.
    pub id: Option<String>,
    /// Origins, each with at most one `*`.
    pub origins: Vec<String>,
    /// Methods.
    pub methods: Vec<String>,
    /// Headers that may be asked with, each with at most one `*`.
    pub headers: Vec<String>,
    /// Headers that scripts may see.
    pub expose: Vec<String>,
    /// How many seconds an answer to a preflight holds.
    pub max_age: Option<u32>,
}

impl Cors {
    /// The first rule for a request of `method` from a page of `origin` that sends `headers`, and the value of
    /// `Access-Control-Allow-Origin`: `*` where the rule is for all origins, or the origin itself.
    #[must_use]
    pub fn matches<'a>(&'a self, origin: &'a str, method: &str, headers: &[&str]) -> Option<(&'a CorsRule, &'a str)> {
        self.rules.iter().find_map(|rule| Some((rule, rule.allows(origin, method, headers)?)))
    }

    /// Checks what a client wants to store.
    ///
    /// # Errors
    /// [`BadCors`] for no or too many rules, rules without origin or method, unknown methods, or too many wildcards.
    pub fn validate(&self) -> Result<(), BadCors> {
        match self.rules.len() {
            0 => return Err(BadCors::malformed("There has to be at least one CORSRule.")),
            1..=CORS_RULES_MAX => {}
            _ => return Err(BadCors::invalid(format!("A bucket may have at most {CORS_RULES_MAX} CORS rules."))),
        }
        self.rules.iter().try_for_each(CorsRule::validate)
    }
}

impl CorsRule {
    fn allows<'a>(&self, origin: &'a str, method: &str, headers: &[&str]) -> Option<&'a str> {
        let named = self.origins.iter().find(|pattern| fits(pattern.as_bytes(), origin.as_bytes()))?;
        let lower: Vec<_> = self.headers.iter().map(|pattern| pattern.to_ascii_lowercase()).collect();
        let asked = |header: &&str| {
            let header = header.trim().to_ascii_lowercase();
            lower.iter().any(|pattern| fits(pattern.as_bytes(), header.as_bytes()))
        };
        let allowed = self.methods.iter().any(|known| known == method) && headers.iter().all(asked);
        allowed.then_some(if named == "*" { "*" } else { origin })
    }

    fn validate(&self) -> Result<(), BadCors> {
        if self.origins.is_empty() || self.methods.is_empty() {
            return Err(BadCors::malformed("A CORSRule needs an AllowedOrigin and an AllowedMethod."));
        }
        if self.id.as_ref().is_some_and(|id| id.chars().count() > MAX_ID) {
            return Err(BadCors::invalid(format!("The ID of a CORS rule has at most {MAX_ID} characters.")));
        }
        if let Some(method) = self.methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
            return Err(BadCors::invalid(format!("A CORS rule cannot be for the method {method}.")));
        }
        let stars = |text: &&String| text.bytes().filter(|byte| *byte == b'*').count();
        if let Some(origin) = self.origins.iter().find(|origin| stars(origin) > 1) {
            return Err(BadCors::invalid(format!("An AllowedOrigin can have one wildcard, {origin} has more.")));
        }
        if let Some(header) = self.headers.iter().find(|header| stars(header) > 1) {
            return Err(BadCors::invalid(format!("An AllowedHeader can have one wildcard, {header} has more.")));
        }
        if let Some(header) = self.expose.iter().find(|header| stars(header) > 0) {
            return Err(BadCors::invalid(format!("An ExposeHeader can have no wildcard, {header} has one.")));
        }
        Ok(())
    }
}

/// Whether `text` is as `pattern` says, which has at most one `*`.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.iter().position(|byte| *byte == b'*') {
        None => pattern == text,
        Some(star) => {
            let (before, behind) = (&pattern[..star], &pattern[star + 1..]);
            text.len() >= before.len() + behind.len() && text.starts_with(before) && text.ends_with(behind)
        }
    }
}

/// Why rules are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadCors {
    /// Whether the document has the wrong shape (`MalformedXML`), not a wrong value (`InvalidRequest`).
    pub malformed: bool,
    /// What is wrong, for the client.
    pub message: String,
}

impl BadCors {
    fn malformed(message: &str) -> Self {
        Self { malformed: true, message: message.to_owned() }
    }

    fn invalid(message: String) -> Self {
        Self { malformed: false, message }
    }
}

impl fmt::Display for BadCors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BadCors {}

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
    fn the_first_rule_that_matches_counts() {
        let cors = Cors {
            rules: vec![
                rule(&["http://a", "https://*.b.com"], &["GET", "PUT"], &["x-amz-*", "Content-Type"]),
                rule(&["*"], &["GET"], &[]),
                rule(&["*end"], &["DELETE"], &["*"]),
            ],
        };
        let found = |origin, method, headers: &[&str]| {
            let (found, allowed) = cors.matches(origin, method, headers)?;
            Some((cors.rules.iter().position(|rule| rule == found)?, allowed.to_owned()))
        };
        assert_eq!(found("http://a", "GET", &["X-Amz-Meta-A", "content-type"]), Some((0, "http://a".into())));
        assert_eq!(found("https://x.b.com", "PUT", &[]), Some((0, "https://x.b.com".into())));
        assert_eq!(found("https://.b.com", "PUT", &[]), Some((0, "https://.b.com".into())));
        assert_eq!(found("https://b.com", "PUT", &[]), None);
        assert_eq!(found("http://a", "GET", &["other"]), None);
        assert_eq!(found("http://c", "GET", &[]), Some((1, "*".into())));
        assert_eq!(found("http://c", "get", &[]), None);
        assert_eq!(found("the end", "DELETE", &["any", "thing"]), Some((2, "the end".into())));
        assert_eq!(found("HTTP://A", "PUT", &[]), None);
    }

    #[test]
    fn a_star_does_not_let_its_sides_overlap() {
        assert!(!fits(b"ab*bc", b"abc"));
        assert!(fits(b"ab*bc", b"abbc"));
        assert!(fits(b"*", b""));
        assert!(!fits(b"", b"a"));
    }

    #[test]
    fn validation() {
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
