//! Answers with bytes that somebody stored, shown by a browser: no script in them runs in the origin of this server.
//!
//! Attack: a user stores a page, and another one opens its address. Its script could send requests that carry the reader's credentials.
//! Programs get no such headers: some compare those of an answer.

use hyper::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT, X_CONTENT_TYPE_OPTIONS,
};

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
    let mut types = media.split(',').map(|one| one.split(';').next().unwrap_or_default().trim());
    types.any(|one| WITH_SCRIPTS.iter().any(|end| one.ends_with(end)))
}

#[cfg(test)]
mod tests {
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
        let mut own = map(&[("content-type", "text/html"), ("content-security-policy", "default-src 'self'")]);
        disarm(&mut own);
        assert_eq!(own[CONTENT_SECURITY_POLICY], "default-src 'self'");
    }
}
