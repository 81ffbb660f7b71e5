//! Signatures of version 2: HMAC-SHA1 over a few headers and the resource.
//!
//! Clients disagree about what the resource is, so a signature that does not hold for the widest reading is tried for the few
//! others that real clients are known to have. Each try costs one SHA-1 of some hundred bytes, and there are at most eighteen.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use subtle::ConstantTimeEq as _;

use crate::errors::{Code, Fault};
use crate::query::{Query, decode_plus, pairs};
use crate::route::is_subresource;

use super::canonical::{Append, fold, folded, hmac_sha1, joined, trim};
use super::{Checked, Request, SKEW_MICROS_MAX, Scheme, date, expired, mismatch, skewed};

/// Sub-resources that all clients sign.
const CORE: &[&str] = &[
    "acl",
    "delete",
    "lifecycle",
    "location",
    "logging",
    "notification",
    "partNumber",
    "policy",
    "requestPayment",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// Those that some sign beside.
const MORE: &[&str] = &[
    "accelerate",
    "analytics",
    "cors",
    "defaultObjectAcl",
    "inventory",
    "metrics",
    "object-lock",
    "replication",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "select",
    "select-type",
    "storageClass",
    "tagging",
];

/// A signature that was read but not checked.
#[derive(Debug)]
pub struct Claim {
    /// The access key id.
    pub access_key: String,
    scheme: Scheme,
    signature: String,
    /// What stands in the line of the date.
    date_line: Vec<u8>,
}

impl Claim {
    /// Reads `<access key>:<signature>` and the time of the request.
    pub(super) fn of_header(request: &Request<'_>, credential: &str) -> Result<Self, Fault> {
        let Some((access_key, signature)) = credential.split_once(':') else {
            let message = "AWS authorization header is invalid. Expected AwsAccessKeyId:signature";
            return Err(Fault::argument("Authorization", format!("AWS {credential}"), message));
        };
        let moved = request.headers.contains_key("x-amz-date");
        let sent = folded(request.headers, if moved { "x-amz-date" } else { "date" });
        let text = String::from_utf8_lossy(&sent).into_owned();
        let at = date::parse(&text).ok_or_else(undated)?;
        if at.abs_diff(request.now) > SKEW_MICROS_MAX {
            return Err(skewed(&text, request.now));
        }
        Ok(Self {
            access_key: access_key.to_owned(),
            scheme: Scheme::V2Header,
            signature: signature.to_owned(),
            date_line: if moved { Vec::new() } else { raw(request, "date") },
        })
    }

    /// Reads the three parameters of a presigned address.
    pub(super) fn of_query(request: &Request<'_>) -> Result<Self, Fault> {
        let parameter = |name: &str| request.query.filled(name);
        let (Some(access_key), Some(signature), Some(expires)) =
            (parameter("AWSAccessKeyId"), parameter("Signature"), parameter("Expires"))
        else {
            let message = "Query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters";
            return Err(Fault::new(Code::AccessDenied, message));
        };
        let seconds: u64 = expires.parse().map_err(|_| {
            Fault::new(Code::AccessDenied, "Invalid date (should be seconds since epoch)").with("Expires", expires)
        })?;
        let until = seconds.saturating_mul(1_000_000);
        if request.now > until {
            return Err(expired()
                .with("Expires", crate::dates::iso(until))
                .with("ServerTime", crate::dates::iso(request.now)));
        }
        Ok(Self {
            access_key: access_key.to_owned(),
            scheme: Scheme::V2Query,
            // A plus that nobody escaped came as a space.
            signature: signature.replace(' ', "+"),
            date_line: expires.as_bytes().to_vec(),
        })
    }

    /// Whether the signature is that of the request under one of the readings.
    pub(super) fn check(self, request: &Request<'_>, secret: &str) -> Result<Checked, Fault> {
        // The protocol keeps white space within a value, some clients fold it.
        let (kept, folded) = (self.head(request, trim), self.head(request, fold));
        let with = |resource: &[u8]| [&kept, resource].concat();
        if let Some(name) = request.query.iter().map(|(name, _)| name).find(|name| self.leaves_open(name)) {
            let message = format!("The address was signed without the parameter {name}");
            return Err(Fault::new(Code::AccessDenied, message));
        }
        let resources = resources(request, self.scheme == Scheme::V2Query);
        let given: Option<[u8; 20]> = STANDARD.decode(&self.signature).ok().and_then(|bytes| bytes.try_into().ok());
        let holds = given.is_some_and(|given| {
            let heads = [&kept, &folded].into_iter().take(if kept == folded { 1 } else { 2 });
            let mut texts = heads.flat_map(|head| resources.iter().map(|resource| [&head[..], resource].concat()));
            texts.any(|text| hmac_sha1(secret.as_bytes(), &text).ct_eq(&given).into())
        });
        if holds {
            return Ok(Checked { scheme: self.scheme, signer: None, body: None });
        }
        Err(mismatch(&self.access_key, &with(&resources[0]), &self.signature))
    }

    /// Whether a parameter decides what is done and yet is not signed. A presigned address is for others, who must not make
    /// something else of it; who signs each request says with the next signature what it is for.
    fn leaves_open(&self, name: &str) -> bool {
        self.scheme == Scheme::V2Query && is_subresource(name) && !is_signed(name)
    }

    /// The string to sign up to the resource; `append` puts the values of headers into it.
    fn head(&self, request: &Request<'_>, append: Append) -> Vec<u8> {
        let presigned = self.scheme == Scheme::V2Query;
        let mut text = request.method.as_bytes().to_vec();
        for name in ["content-md5", "content-type"] {
            text.push(b'\n');
            match request.query.iter().find(|(one, _)| presigned && one.eq_ignore_ascii_case(name)) {
                Some((_, value)) if !request.headers.contains_key(name) => text.extend_from_slice(value.as_bytes()),
                _ => text.extend_from_slice(&raw(request, name)),
            }
        }
        text.push(b'\n');
        text.extend_from_slice(&self.date_line);
        text.push(b'\n');
        for (name, value) in amz_headers(request, presigned, append) {
            text.extend_from_slice(name.as_bytes());
            text.push(b':');
            text.extend_from_slice(&value);
            text.push(b'\n');
        }
        text
    }
}

/// 403, in the words that s3cmd looks for.
pub(super) fn undated() -> Fault {
    Fault::new(Code::AccessDenied, "AWS authentication requires a valid Date or x-amz-date header")
}

fn raw(request: &Request<'_>, name: &str) -> Vec<u8> {
    request.headers.get(name).map(|value| value.as_bytes().to_vec()).unwrap_or_default()
}

/// The headers that are signed, by name. boto moves them into the query of a presigned address; a real header wins.
fn amz_headers(request: &Request<'_>, presigned: bool, append: Append) -> BTreeMap<String, Vec<u8>> {
    let mut signed = BTreeMap::new();
    if presigned {
        for (name, value) in request.query.iter() {
            let name = name.to_ascii_lowercase();
            if name.starts_with("x-amz-") {
                let line: &mut Vec<u8> = signed.entry(name).or_default();
                if !line.is_empty() {
                    line.push(b',');
                }
                append(line, value.as_bytes());
            }
        }
    }
    for name in request.headers.keys().map(hyper::header::HeaderName::as_str) {
        if name.starts_with("x-amz-") {
            signed.insert(name.to_owned(), joined(request.headers, name, append));
        }
    }
    signed
}

/// Gives a presigned request the headers that clients moved into its query: what was signed as one is one, so that nobody can
/// make it count for nothing by moving it. A real header wins. boto moves all of them with version 2; of version 4, signers of
/// JavaScript and Go move those that say something about the object, and only these are taken: some put the checksum of an
/// empty body there.
///
/// # Errors
/// 400 `InvalidArgument` for a name or a value that no header can have.
pub(crate) fn move_headers(query: &Query, headers: &mut HeaderMap) -> Result<(), Fault> {
    let Some(moves) = mover(query).filter(|_| !headers.contains_key(AUTHORIZATION)) else { return Ok(()) };
    let mut moved = HeaderMap::new();
    for (name, value) in query.iter() {
        let lower = name.to_ascii_lowercase();
        if !moves(&lower) || headers.contains_key(&lower) {
            continue;
        }
        let bad = || Fault::new(Code::InvalidArgument, "A parameter that stands for a header cannot be one.");
        let header = HeaderName::try_from(lower).map_err(|_| bad())?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad())?;
        if !ONCE.contains(&header.as_str()) || !moved.contains_key(&header) {
            moved.append(header, value);
        }
    }
    headers.extend(moved);
    Ok(())
}

/// Headers that a request has once.
const ONCE: [&str; 2] = ["content-md5", "content-type"];

/// Which parameters of a presigned request are headers; `None` for one that is not presigned.
fn mover(query: &Query) -> Option<fn(&str) -> bool> {
    if query.has("X-Amz-Algorithm") {
        return query.has("X-Amz-Signature").then_some(about_the_object as fn(&str) -> bool);
    }
    let presigned = query.has("AWSAccessKeyId") && query.has("Signature");
    presigned.then_some(|name| ONCE.contains(&name) || name.starts_with("x-amz-"))
}

fn about_the_object(name: &str) -> bool {
    const NAMES: [&str; 4] = ["x-amz-acl", "x-amz-storage-class", "x-amz-tagging", "x-amz-website-redirect-location"];
    NAMES.contains(&name) || name.starts_with("x-amz-meta-") || name.starts_with("x-amz-grant-")
}

/// Whether a sub-resource is signed, by some clients at least.
fn is_signed(name: &str) -> bool {
    CORE.contains(&name) || MORE.contains(&name)
}

/// The resource in every reading that clients are known to have, the widest first. `presigned`: only readings that leave nothing
/// out, for who has the address could add it.
fn resources(request: &Request<'_>, presigned: bool) -> Vec<Vec<u8>> {
    let path = match request.host_bucket {
        Some(bucket) => format!("/{bucket}{}", request.path),
        None => request.path.to_owned(),
    };
    let all = sub_resources(request.raw_query, is_signed, false);
    let some = |name: &str| if presigned { is_signed(name) } else { CORE.contains(&name) };
    let core = sub_resources(request.raw_query, some, false);
    let with_type = sub_resources(request.raw_query, |name| some(name) || name == "list-type", false);
    // An empty value signed with its equals sign, as botocore does.
    let empty = sub_resources(request.raw_query, is_signed, true);
    let mut readings = vec![[path.as_bytes(), &all].concat()];
    for query in [&core, &with_type, &empty] {
        readings.push([path.as_bytes(), query].concat());
    }
    let bare = path.trim_start_matches('/');
    if !bare.is_empty() && bare.find('/').is_none_or(|slash| slash + 1 == bare.len()) {
        // The bucket itself: with and without the slash behind it, and without it and the sub-resource twice.
        let short = path.strip_suffix('/').unwrap_or(&path);
        for query in [&all, &core] {
            readings.push([short.as_bytes(), query].concat());
            readings.push([short.as_bytes(), b"/", query].concat());
        }
        readings.push([short.as_bytes(), &all, &all].concat());
    }
    let mut seen = Vec::with_capacity(readings.len());
    for reading in readings {
        if !seen.contains(&reading) {
            seen.push(reading);
        }
    }
    seen
}

/// The parameters that belong to the resource, sorted by name, values decoded; empty values with their sign or without.
fn sub_resources(raw_query: Option<&str>, signed: impl Fn(&str) -> bool, keep_empty: bool) -> Vec<u8> {
    let mut found = Vec::new();
    for (name, value) in pairs(raw_query.unwrap_or_default()).take(crate::query::PARAMETERS_MAX) {
        let name = decode_plus(name);
        if std::str::from_utf8(&name).is_ok_and(&signed) {
            found.push((name, value.map(decode_plus)));
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let mut text = Vec::new();
    for (name, value) in found {
        text.push(if text.is_empty() { b'?' } else { b'&' });
        text.extend_from_slice(&name);
        if let Some(value) = value.filter(|value| keep_empty || !value.is_empty()) {
            text.push(b'=');
            text.extend_from_slice(&value);
        }
    }
    text
}
