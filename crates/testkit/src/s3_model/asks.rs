//! Requests, and the headers that many of them have.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use super::S3Model;
use super::dates::{DAY, MINUTE, iso};
use super::digests::base64_md5;
use super::state::{ModelEncryption, ModelLock, ModelRetention};
use crate::http::HttpRequest;
use crate::s3::S3Signer;

/// A request before it is signed.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The method.
    pub method: &'static str,
    /// Path and query.
    pub target: String,
    /// The headers but those of a signature.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Whether it is sent without a signature.
    pub is_anonymous: bool,
}

impl ModelRequest {
    pub(super) fn new(method: &'static str, target: impl Into<String>) -> Self {
        Self { method, target: target.into(), headers: Vec::new(), body: Vec::new(), is_anonymous: false }
    }

    pub(super) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(super) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// A document with its digest, which some operations require.
    pub(super) fn document(self, text: &str) -> Self {
        self.header("content-md5", base64_md5(text.as_bytes())).body(text)
    }

    /// The value of a header.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The request as it is sent, signed with version 2 as of `date` (`Fri, 15 Jan 2027 08:00:00 GMT`).
    #[must_use]
    pub fn signed(&self, signer: &S3Signer, date: &str) -> HttpRequest {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let request = match self.is_anonymous {
            true => HttpRequest::new(self.method, &self.target).header("Host", "localhost").headers(&headers),
            false => signer.v2_at(date, self.method, &self.target, &headers),
        };
        request.body(self.body.clone())
    }
}

impl fmt::Display for ModelRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.target)?;
        self.headers.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))?;
        match std::str::from_utf8(&self.body) {
            Ok(text) if text.starts_with('<') => write!(f, " {text}"),
            _ => write!(f, " [{} bytes]", self.body.len()),
        }
    }
}

/// Faults of a request that is being made.
pub(super) type Faults = Vec<&'static str>;

/// The key of a customer, by its number.
fn customer_key(number: u8) -> [u8; 32] {
    Sha256::digest([b'k', number]).into()
}

/// The value of `…-customer-key-MD5` for it.
pub(super) fn customer_key_md5(number: u8) -> String {
    base64_md5(&customer_key(number))
}

/// The headers of a customer's key; `prefix` is empty, or that of a copy's source.
pub(super) fn with_customer_key(request: ModelRequest, prefix: &str, number: u8) -> ModelRequest {
    let name = |what: &str| format!("x-amz-{prefix}server-side-encryption-customer-{what}");
    request
        .header(&name("algorithm"), "AES256")
        .header(&name("key"), STANDARD.encode(customer_key(number)))
        .header(&name("key-md5"), customer_key_md5(number))
}

/// The encryption that a writing request asks for; `None`: it names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AskedEncryption {
    Default,
    Named(ModelEncryption),
}

impl S3Model<'_> {
    /// Adds headers of encryption, now and then with a fault.
    pub(super) fn ask_encryption(
        &mut self,
        request: ModelRequest,
        faults: &mut Faults,
    ) -> (ModelRequest, AskedEncryption) {
        use AskedEncryption::{Default, Named};
        const HEADER: &str = "x-amz-server-side-encryption";
        match self.dice.below(40) {
            0..18 => (request, Default),
            18..27 => (request.header(HEADER, "AES256"), Named(ModelEncryption::Server)),
            27..37 => {
                let number = self.dice.below(2) as u8;
                (with_customer_key(request, "", number), Named(ModelEncryption::Customer(number)))
            }
            37 => {
                faults.push("InvalidArgument");
                let request = with_customer_key(request, "", 0).header(HEADER, "AES256");
                (request, Default)
            }
            38 => {
                faults.push("NotImplemented");
                (request.header(HEADER, "aws:kms"), Default)
            }
            _ => {
                faults.push("InvalidArgument");
                let mut request = with_customer_key(request, "", 0);
                let md5 =
                    request.headers.iter_mut().find(|(name, _)| name.starts_with(HEADER) && name.ends_with("-md5"));
                md5.expect("it was just added").1 = customer_key_md5(1);
                (request, Default)
            }
        }
    }

    /// A retention that ends in minutes, days or years.
    pub(super) fn new_retention(&mut self) -> ModelRetention {
        let length = match self.dice.below(10) {
            0..6 => (2 + self.dice.number_below(58)) * MINUTE,
            6..9 => (1 + self.dice.number_below(3)) * DAY,
            _ => 40_000 * DAY,
        };
        let until = (self.now() + length) / MINUTE * MINUTE;
        ModelRetention { is_compliance: self.dice.chance(300), until }
    }

    /// Adds headers of a lock, now and then with a fault. `has_lock` says whether the bucket has object lock.
    pub(super) fn ask_lock(
        &mut self,
        mut request: ModelRequest,
        has_lock: bool,
        faults: &mut Faults,
    ) -> (ModelRequest, ModelLock) {
        let mut lock = ModelLock::default();
        if self.dice.chance(if has_lock { 600 } else { 960 }) {
            return (request, lock);
        }
        if self.dice.chance(600) {
            let retention = self.new_retention();
            let mode = if retention.is_compliance { "COMPLIANCE" } else { "GOVERNANCE" };
            request = request.header("x-amz-object-lock-mode", mode);
            match self.dice.below(16) {
                0 => faults.push("InvalidArgument"),
                1 => {
                    request = request.header("x-amz-object-lock-retain-until-date", "2001-01-01T00:00:00Z");
                    faults.push("InvalidArgument");
                }
                _ => request = request.header("x-amz-object-lock-retain-until-date", iso(retention.until)),
            }
            lock.retention = Some(retention);
        }
        if lock.retention.is_none() || self.dice.chance(300) {
            let is_on = self.dice.chance(700);
            request = request.header("x-amz-object-lock-legal-hold", if is_on { "ON" } else { "OFF" });
            lock.hold = Some(is_on);
        }
        if !has_lock {
            faults.push("InvalidRequest");
        }
        (request, lock)
    }

    /// A body: mostly small, sometimes across the edges of chunks, pieces and rows.
    pub(super) fn new_body(&mut self) -> Vec<u8> {
        let length = match self.dice.below(200) {
            0..20 => 0,
            20..140 => 1 + self.dice.below(300),
            140..180 => 1000 + self.dice.below(9000),
            180..198 => 65_000 + self.dice.below(2000),
            _ => 1_048_000 + self.dice.below(2000),
        };
        self.dice.bytes(length)
    }
}
