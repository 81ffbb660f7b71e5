//! Building blocks of signatures: encodings, hashes, canonical headers, and the headers of presigned addresses.

use hmac::{Hmac, Mac as _};
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use crate::errors::{Code, S3Error};
use crate::target::S3Query;

/// Characters escaped in a query: all but letters, digits and `-._~`.
pub const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Characters escaped in a path: the same without the slash.
pub const PATH: &AsciiSet = &QUERY.remove(b'/');

/// Room for most header values.
const LINE_BYTES: usize = 64;

/// Parses 64 hexadecimal digits.
pub(crate) fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

/// SHA-256 in hexadecimal digits.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// HMAC with SHA-256.
#[expect(clippy::expect_used, reason = "HMAC accepts keys of any length")]
pub(super) fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC accepts keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().into()
}

/// HMAC with SHA-1.
#[expect(clippy::expect_used, reason = "HMAC accepts keys of any length")]
pub(super) fn hmac_sha1(key: &[u8], message: &[u8]) -> [u8; 20] {
    let mut mac = Hmac::<Sha1>::new_from_slice(key).expect("HMAC accepts keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().into()
}

/// The values of a header joined with commas, each trimmed, with runs of white space folded into one space.
pub(super) fn folded(headers: &HeaderMap, name: &str) -> Vec<u8> {
    joined(headers, name, fold)
}

/// The values of a header joined with commas, each formatted by `append`.
pub(super) fn joined(headers: &HeaderMap, name: &str, append: AppendValue) -> Vec<u8> {
    let mut line = Vec::with_capacity(LINE_BYTES);
    append_joined(&mut line, headers, name, append);
    line
}

/// Appends [`joined`] to a text.
pub(super) fn append_joined(text: &mut Vec<u8>, headers: &HeaderMap, name: &str, append: AppendValue) {
    for (index, value) in headers.get_all(name).iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        append(text, value.as_bytes());
    }
}

/// Appends a header's value to a line.
pub(super) type AppendValue = fn(&mut Vec<u8>, &[u8]);

/// Appends a trimmed value.
pub(super) fn trim(line: &mut Vec<u8>, value: &[u8]) {
    line.extend_from_slice(value.trim_ascii());
}

/// Appends a trimmed value with runs of white space folded into one space.
pub(super) fn fold(line: &mut Vec<u8>, value: &[u8]) {
    let words = value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    for (index, word) in words.enumerate() {
        if index > 0 {
            line.push(b' ');
        }
        line.extend_from_slice(word);
    }
}

/// Restores the headers that a client moved into the query of a presigned address, so that moving a header cannot disable it:
/// everything else reads headers alone. boto moves all headers with version 2; version 4 signers of JavaScript, Go and Ruby move
/// most of those that begin with `x-amz-`. Conditions in the query are not in any signer's list, but users put them there.
///
/// # Errors
/// 400 `InvalidArgument` for an invalid header name or value; 403 `AccessDenied` for a condition beside another one of its name.
pub(crate) fn restore_headers(query: &S3Query, headers: &mut HeaderMap) -> Result<(), S3Error> {
    // Only presigned addresses move headers into parameters.
    let Some(moves) = moved_header_filter(query).filter(|_| !headers.contains_key(AUTHORIZATION)) else {
        return Ok(());
    };
    let mut moved = HeaderMap::new();
    for (name, value) in query.iter() {
        let lower = name.to_ascii_lowercase();
        if !moves(&lower) {
            continue;
        }
        let bad = || S3Error::new(Code::InvalidArgument, "A parameter that stands for a header cannot be one.");
        let header = HeaderName::try_from(lower).map_err(|_| bad())?;
        // A header has no white space around its value.
        let value = HeaderValue::from_bytes(value.trim_ascii().as_bytes()).map_err(|_| bad())?;
        if headers.contains_key(&header) {
            // No signature covers a condition in a header: it must not take the place of the one in the address. The others are
            // compared when the signature is verified.
            if is_condition(header.as_str()) && headers.get_all(&header).iter().any(|sent| sent != value) {
                let message = format!("The header {header} is not the one of the address");
                return Err(S3Error::new(Code::AccessDenied, message));
            }
            continue;
        }
        // The signature covers the first value of such a header alone.
        if !SIGNED_ALONE.contains(&header.as_str()) || !moved.contains_key(&header) {
            moved.append(header, value);
        }
    }
    headers.extend(moved);
    Ok(())
}

/// The conditions of a request.
const CONDITIONS: [&str; 4] = ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since"];
/// Headers of the string to sign of version 2, with a single value.
const SIGNED_ALONE: [&str; 2] = ["content-md5", "content-type"];

/// Parameters of a version 4 address that are no headers: the signature itself, and the two that it signs in their own way.
const OF_SIGNATURE: [&str; 7] = [
    "x-amz-algorithm",
    "x-amz-content-sha256",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-signature",
    "x-amz-signedheaders",
];

/// Selects the query parameters that are headers; `None` for a request that is not presigned.
fn moved_header_filter(query: &S3Query) -> Option<fn(&str) -> bool> {
    if query.has("X-Amz-Algorithm") {
        return query.has("X-Amz-Signature").then_some(is_moved_in_v4 as fn(&str) -> bool);
    }
    let presigned = query.has("AWSAccessKeyId") && query.has("Signature");
    presigned.then_some(|name| SIGNED_ALONE.contains(&name) || is_condition(name) || name.starts_with("x-amz-"))
}

fn is_moved_in_v4(name: &str) -> bool {
    is_condition(name) || name.starts_with("x-amz-") && !OF_SIGNATURE.contains(&name) && !is_checksum_of_body(name)
}

/// Whether a header asks the server to compare a body. Signers put that of an empty body into the address.
fn is_checksum_of_body(name: &str) -> bool {
    match name.strip_prefix("x-amz-checksum-") {
        Some(kind) => !["algorithm", "mode", "type"].contains(&kind),
        None => name == "x-amz-sdk-checksum-algorithm",
    }
}

/// Whether a header makes a request depend on the object that is there.
fn is_condition(name: &str) -> bool {
    CONDITIONS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_read_back() {
        let bytes: [u8; 32] = Sha256::digest(b"x").into();
        assert_eq!(unhex(&hex::encode(bytes)), Some(bytes));
        assert_eq!(unhex(&hex::encode(bytes).to_uppercase()), Some(bytes));
        for bad in ["", "00", &"g".repeat(64), &"é".repeat(32), &"0".repeat(65)] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }

    #[test]
    fn white_space_within_a_value_is_folded() {
        let mut headers = HeaderMap::new();
        headers.append("x", " a  b\tc ".parse().unwrap());
        headers.append("x", "".parse().unwrap());
        headers.append("x", "d".parse().unwrap());
        assert_eq!(folded(&headers, "x"), b"a b c,,d");
    }
}
