//! The metrics page at the paths of MinIO's scrapers: `/minio/v2/metrics/cluster` and `/minio/v2/metrics/node`.
//!
//! A scraper of MinIO sends a token that its operator made of the administrator's key: a JSON Web Token (RFC 7519) with the issuer
//! `prometheus`, the access key as its subject and an end, signed with HMAC-SHA512 by the secret. The names of the metrics are
//! Larder's.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac as _};
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use larder_rows::Timestamp;
use larder_s3::{Error, Objects};
use serde::Deserialize;
use sha2::Sha512;

use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::settings::S3Settings;
use crate::target::AddressingStyle;

const PATHS: &[&str] = &["/minio/v2/metrics/cluster", "/minio/v2/metrics/node"];
const SCHEME: &str = "Bearer";
const ISSUER: &str = "prometheus";
const ALGORITHM: &str = "HS512";
/// Longest token, in bytes.
const TOKEN_BYTES_MAX: usize = 4096;
const MEDIA: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Whether a request asks for the page: a GET of exactly its path in path style, without a query, and with no signature but a
/// token's. As for probes, every other request reaches the bucket.
pub(crate) fn is_scrape(parts: &Parts, addressing: &AddressingStyle) -> bool {
    let has_token =
        parts.headers.get(AUTHORIZATION).is_none_or(|value| value.as_bytes().starts_with(SCHEME.as_bytes()));
    let is_plain = parts.method == Method::GET && parts.uri.query().is_none() && has_token;
    is_plain && *addressing == AddressingStyle::PathStyle && PATHS.contains(&parts.uri.path())
}

/// The page, for everyone or for a token of an administrator.
///
/// # Errors
/// 403 `AccessDenied` without a token that holds.
pub(crate) async fn answer(
    objects: &Objects,
    settings: &S3Settings,
    headers: &HeaderMap,
    now: Timestamp,
) -> Result<S3Response, S3Error> {
    if !settings.has_public_metrics {
        check_token(objects, headers, now).await?;
    }
    Ok(response::typed(StatusCode::OK, MEDIA, objects.gateway.metrics_text()))
}

async fn check_token(objects: &Objects, headers: &HeaderMap, now: Timestamp) -> Result<(), S3Error> {
    let denied =
        || S3Error::new(Code::AccessDenied, "The metrics need a bearer token that an administrator's key signs.");
    let token = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix(SCHEME))
        .map(str::trim);
    let token =
        token.filter(|token| token.len() <= TOKEN_BYTES_MAX).and_then(ScraperToken::parse).ok_or_else(denied)?;
    // A user that does not exist is refused as a wrong signature is: no name can be tried.
    let holder = match objects.users.key_holder(&token.claims.sub).await {
        Err(Error::UnknownKey(_)) => return Err(denied()),
        holder => holder?,
    };
    let is_admin = holder.user.admin && holder.user.enabled && holder.is_first_key();
    let holds = token.is_signed_by(holder.secret()) && token.is_valid_at(now);
    if is_admin && holds { Ok(()) } else { Err(denied()) }
}

/// A parsed token, not yet verified.
#[derive(Debug)]
struct ScraperToken<'a> {
    /// Header and claims as they are signed.
    signed: &'a str,
    claims: TokenClaims,
    signature: Vec<u8>,
}

#[derive(Debug, Deserialize)]
struct TokenHeader {
    alg: String,
}

#[derive(Debug, Deserialize)]
struct TokenClaims {
    /// The issuer.
    iss: String,
    /// The access key.
    sub: String,
    /// The end, in seconds since 1970.
    exp: u64,
}

impl<'a> ScraperToken<'a> {
    /// Reads `header.claims.signature`; `None` for another form or another algorithm.
    fn parse(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        let header: TokenHeader = serde_json::from_slice(&decoded(header)?).ok()?;
        let claims: TokenClaims = serde_json::from_slice(&decoded(claims)?).ok()?;
        // Attack: a token chooses its algorithm, so only one counts; `none` would need no secret.
        let is_known = header.alg == ALGORITHM && claims.iss == ISSUER;
        is_known.then_some(Self { signed, claims, signature: decoded(signature)? })
    }

    #[expect(clippy::expect_used, reason = "HMAC accepts keys of any length")]
    fn is_signed_by(&self, secret: &str) -> bool {
        let mut mac = Hmac::<Sha512>::new_from_slice(secret.as_bytes()).expect("HMAC accepts keys of any length");
        mac.update(self.signed.as_bytes());
        // In constant time.
        mac.verify_slice(&self.signature).is_ok()
    }

    fn is_valid_at(&self, now: Timestamp) -> bool {
        now.as_secs() < self.claims.exp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `{"exp": 2000000000, "sub": "KEY", "iss": "prometheus"}`, signed by Python's `hmac` with `the-secret-key`.
    const TOKEN: &str = "eyJhbGciOiJIUzUxMiIsInR5cCI6IkpXVCJ9.eyJleHAiOjIwMDAwMDAwMDAsInN1YiI6IktFWSIsImlzcyI6InByb21ldGhldXMifQ.QAj-qgjE698LD7sQughuD5aIdlNCF-GfTIPW1cCEjXIZBHD35USdkg-FnqxYld_9ME5gu1anEkOAE8v4Mfef_Q";

    #[test]
    fn a_token_holds_for_its_secret_until_its_end() {
        let token = ScraperToken::parse(TOKEN).unwrap();
        assert_eq!(token.claims.sub, "KEY");
        assert!(token.is_signed_by("the-secret-key") && !token.is_signed_by("another") && !token.is_signed_by(""));
        let at = |seconds: u64| Timestamp(seconds * 1_000_000);
        assert!(token.is_valid_at(at(1_999_999_999)) && !token.is_valid_at(at(2_000_000_000)));
    }

    #[test]
    fn other_algorithms_issuers_and_forms_are_no_token() {
        let encode = |header: &str, claims: &str| {
            format!("{}.{}.AAAA", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims))
        };
        let claims = r#"{"exp":2000000000,"sub":"KEY","iss":"prometheus"}"#;
        assert!(ScraperToken::parse(&encode(r#"{"alg":"HS512"}"#, claims)).is_some());
        for (header, claims) in [
            (r#"{"alg":"none"}"#, claims),
            (r#"{"alg":"HS256"}"#, claims),
            (r#"{"alg":"hs512"}"#, claims),
            (r#"{"alg":"HS512"}"#, r#"{"exp":2000000000,"sub":"KEY","iss":"other"}"#),
            (r#"{"alg":"HS512"}"#, r#"{"sub":"KEY","iss":"prometheus"}"#),
            (r#"{"alg":"HS512"}"#, r#"{"exp":-1,"sub":"KEY","iss":"prometheus"}"#),
        ] {
            assert!(ScraperToken::parse(&encode(header, claims)).is_none(), "{header} {claims}");
        }
        for token in ["", ".", "..", "a.b", "a.b.c.d"] {
            assert!(ScraperToken::parse(token).is_none(), "{token}");
        }
    }
}
