//! Signature version 2, and its `Date`.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha1::Sha1;

use crate::server::S3Account;

/// The length of a signature in a header.
const SIGNATURE_BYTES: usize = 28;

/// Signs requests; the date is formatted once a second.
#[derive(Clone)]
pub(crate) struct V2Signer {
    key: String,
    keyed: Hmac<Sha1>,
    second: u64,
    date: String,
    text: Vec<u8>,
}

impl V2Signer {
    /// A signer of this account.
    ///
    /// # Errors
    ///
    /// Never; only the signature of the HMAC's constructor has an error.
    pub(crate) fn new(account: &S3Account) -> Result<Self> {
        let keyed = Hmac::new_from_slice(account.secret.as_bytes()).context("a secret of that length")?;
        Ok(Self { key: account.key.clone(), keyed, second: 0, date: String::new(), text: Vec::new() })
    }

    /// Adds the headers `Date` and `Authorization` for a request without body digest, type and `x-amz-` headers.
    /// `resource` is the path as sent, with the signed part of the query.
    pub(crate) fn add_headers(&mut self, request: &mut Vec<u8>, method: &str, resource: &str) {
        self.tick();
        let Self { key, keyed, date, text, .. } = self;
        for part in ["Date: ", date, "\r\nAuthorization: AWS ", key, ":"] {
            request.extend_from_slice(part.as_bytes());
        }
        request.extend_from_slice(&signature(keyed, text, method, date, resource));
        request.extend_from_slice(b"\r\n");
    }

    /// Formats the date again after each second.
    fn tick(&mut self) {
        let now = SystemTime::now();
        let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if second != self.second {
            self.second = second;
            self.date = httpdate::fmt_http_date(now);
        }
    }
}

/// The signature of a request; `text` is a buffer for the signed text.
fn signature(
    keyed: &Hmac<Sha1>,
    text: &mut Vec<u8>,
    method: &str,
    date: &str,
    resource: &str,
) -> [u8; SIGNATURE_BYTES] {
    text.clear();
    for part in [method, "\n\n\n", date, "\n", resource] {
        text.extend_from_slice(part.as_bytes());
    }
    let mut keyed = keyed.clone();
    keyed.update(text);
    let mut written = [b'='; SIGNATURE_BYTES];
    // 20 bytes encode to 28 characters, which always fit.
    let _ = STANDARD.encode_slice(keyed.finalize().into_bytes(), &mut written);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer() -> V2Signer {
        let secret = "uV3F3YluFJax1cknvbcGwgjvx4QpvB+leU8dUj2o".to_owned();
        V2Signer::new(&S3Account { key: "0PN5J17HBGZHT7JJ3X82".to_owned(), secret }).unwrap()
    }

    #[test]
    fn signatures_equal_the_published_examples() {
        let mut signer = signer();
        for (date, resource, expected) in [
            ("Tue, 27 Mar 2007 19:36:42 +0000", "/johnsmith/photos/puppy.jpg", "xXjDGYUmKxnwqr5KXNPGldn5LbA="),
            ("Tue, 27 Mar 2007 19:42:41 +0000", "/johnsmith/", "jsRt/rhG+Vtp88HrYL706QhE4w4="),
            ("Tue, 27 Mar 2007 19:44:46 +0000", "/johnsmith/?acl", "thdUi9VAkzhkniLj96JIrOPGi0g="),
        ] {
            let made = signature(&signer.keyed, &mut signer.text, "GET", date, resource);
            assert_eq!(std::str::from_utf8(&made).unwrap(), expected, "{resource}");
        }
    }

    #[test]
    fn the_headers_carry_the_date_that_was_signed() {
        let mut signer = signer();
        let mut request = Vec::new();
        signer.add_headers(&mut request, "GET", "/a/b");
        let text = String::from_utf8(request).unwrap();
        let mut lines = text.lines();
        let date = lines.next().unwrap().strip_prefix("Date: ").unwrap().to_owned();
        assert!(date.ends_with(" GMT"), "{date}");
        let made = signature(&signer.keyed, &mut signer.text, "GET", &date, "/a/b");
        let expected = format!("Authorization: AWS 0PN5J17HBGZHT7JJ3X82:{}", std::str::from_utf8(&made).unwrap());
        assert_eq!(lines.next(), Some(expected.as_str()));
        assert!(text.ends_with("\r\n"));
    }
}
