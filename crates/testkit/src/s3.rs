//! An S3 client that signs by hand: with signature version 2, which is the shortest, or with version 4.

#![allow(clippy::expect_used, reason = "a harness fails a test by panicking")]

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use crate::http::{HttpClient, HttpRequest, HttpResponse};

/// The query keys that a signature of version 2 covers, as far as the tests use them.
const SIGNED: &[&str] = &[
    "acl",
    "cors",
    "delete",
    "lifecycle",
    "location",
    "logging",
    "notification",
    "partNumber",
    "policy",
    "replication",
    "requestPayment",
    "tagging",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];
const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";

/// Signs requests of one user.
#[derive(Debug, Clone)]
pub struct S3Signer {
    key: String,
    secret: String,
}

impl S3Signer {
    /// A signer with this key.
    #[must_use]
    pub fn new(key: &str, secret: &str) -> Self {
        Self { key: key.to_owned(), secret: secret.to_owned() }
    }

    /// A request in path style, signed with version 2; `target` is that of the request line, its query values not encoded.
    #[must_use]
    pub fn v2(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> HttpRequest {
        self.v2_at(&http_date(), method, target, headers)
    }

    /// The same, signed as of a time: `Fri, 15 Jan 2027 08:00:00 GMT`.
    #[must_use]
    pub fn v2_at(&self, date: &str, method: &str, target: &str, headers: &[(&str, &str)]) -> HttpRequest {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut kept: Vec<&str> = query.split('&').filter(|pair| SIGNED.contains(&name(pair))).collect();
        kept.sort_by_key(|pair| name(pair));
        let resource = if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) };
        let signature = self.sign(method, date, headers, &resource);
        HttpRequest::new(method, target)
            .header("Host", "localhost")
            .header("Date", date)
            .header("Authorization", &format!("AWS {}:{signature}", self.key))
            .headers(headers)
    }

    /// The signature of version 2 over a canonical resource.
    #[must_use]
    pub fn sign(&self, method: &str, date: &str, headers: &[(&str, &str)], resource: &str) -> String {
        let header = |wanted: &str| {
            headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map_or("", |(_, value)| value)
        };
        let (md5, kind) = (header("content-md5"), header("content-type"));
        let amz = lines(&amz_headers(headers));
        self.sign_text(&format!("{method}\n{md5}\n{kind}\n{date}\n{amz}{resource}"))
    }

    /// The signature of version 2 over this text.
    #[must_use]
    pub fn sign_text(&self, text: &str) -> String {
        let mut mac = Hmac::<Sha1>::new_from_slice(self.secret.as_bytes()).expect("any key will do");
        mac.update(text.as_bytes());
        STANDARD.encode(mac.finalize().into_bytes())
    }

    /// A request in path style without a query, signed with version 4. `payload` is the payload hash.
    #[must_use]
    pub fn v4(&self, method: &str, path: &str, payload: &str, headers: &[(&str, &str)]) -> HttpRequest {
        self.v4_for("s3", method, path, payload, headers)
    }

    /// A request to STS with this form as its body, signed with version 4.
    #[must_use]
    pub fn sts(&self, target: &str, form: &str, headers: &[(&str, &str)]) -> HttpRequest {
        let payload = hex(&Sha256::digest(form.as_bytes()));
        self.v4_for("sts", "POST", target, &payload, headers).header("Content-Length", &form.len().to_string())
    }

    /// A request as [`Self::v4`] makes it, with a signature for this service. The query of the target is in canonical order.
    #[must_use]
    pub fn v4_for(
        &self,
        service: &str,
        method: &str,
        target: &str,
        payload: &str,
        headers: &[(&str, &str)],
    ) -> HttpRequest {
        let date = basic_date();
        let scope = format!("{}/anywhere/{service}/aws4_request", &date[..8]);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let own = [("host", "localhost"), ("x-amz-content-sha256", payload), ("x-amz-date", date.as_str())];
        let mut all = amz_headers(headers);
        all.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
        all.sort();
        let (signed, names) = (lines(&all), all.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";"));
        let canonical = format!("{method}\n{path}\n{query}\n{signed}\n{names}\n{payload}");
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={}",
            self.key,
            self.v4_signature(&date, &scope, &canonical)
        );
        HttpRequest::new(method, target)
            .header("Host", "localhost")
            .header("X-Amz-Date", &date)
            .header("X-Amz-Content-Sha256", payload)
            .header("Authorization", &authorization)
            .headers(headers)
    }

    /// The target of a link of version 2, in path style. Of `headers` the conditions and those that a signer moves are in its query.
    #[must_use]
    pub fn v2_link(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        const EXPIRES: &str = "4000000000";
        let signature = self.sign(method, EXPIRES, headers, path);
        let own = [("AWSAccessKeyId", self.key.as_str()), ("Expires", EXPIRES), ("Signature", &signature)];
        format!("{path}?{}", query(own.iter().chain(headers)))
    }

    /// The same of version 4.
    #[must_use]
    pub fn v4_link(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        let date = basic_date();
        let scope = format!("{}/anywhere/s3/aws4_request", &date[..8]);
        let credential = format!("{}/{scope}", self.key);
        let own = [
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", credential.as_str()),
            ("X-Amz-Date", date.as_str()),
            ("X-Amz-Expires", "3600"),
            ("X-Amz-SignedHeaders", "host"),
        ];
        let mut all: Vec<_> = own.iter().chain(headers).copied().collect();
        all.sort_unstable();
        let signed = query(all.iter());
        let canonical = format!("{method}\n{path}\n{signed}\nhost:localhost\n\nhost\nUNSIGNED-PAYLOAD");
        format!("{path}?{signed}&X-Amz-Signature={}", self.v4_signature(&date, &scope, &canonical))
    }

    fn v4_signature(&self, date: &str, scope: &str, canonical: &str) -> String {
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
        let secret = format!("AWS4{}", self.secret).into_bytes();
        let key = scope.split('/').fold(secret, |key, part| hmac_sha256(&key, part));
        hex(&hmac_sha256(&key, &text))
    }
}

/// An S3 client: a user, and a connection.
#[derive(Debug)]
pub struct S3Client {
    client: HttpClient,
    /// Signs its requests.
    pub signer: S3Signer,
}

impl S3Client {
    /// A user with this key.
    #[must_use]
    pub fn new(server: SocketAddr, key: &str, secret: &str) -> Self {
        Self { client: HttpClient::new(server), signer: S3Signer::new(key, secret) }
    }

    /// This user, connected from this address of the machine to this server.
    #[must_use]
    pub fn from(self, address: IpAddr, server: SocketAddr) -> Self {
        Self { client: HttpClient::from(address, server), ..self }
    }

    /// A signed request in path style.
    #[must_use]
    pub fn signed(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> HttpRequest {
        self.signer.v2(method, target, headers).body(body)
    }

    /// Signs and sends.
    #[track_caller]
    pub fn call(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> HttpResponse {
        let request = self.signed(method, target, headers, body);
        self.client.send(&request)
    }

    /// Sends a request that is made with this user's signer.
    #[track_caller]
    pub fn send(&mut self, request: impl FnOnce(&S3Signer) -> HttpRequest) -> HttpResponse {
        let request = request(&self.signer);
        self.client.send(&request)
    }

    /// A `GET`.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> HttpResponse {
        self.call("GET", target, &[], "")
    }

    /// A `PUT`.
    #[track_caller]
    pub fn put(&mut self, target: &str, body: impl Into<Vec<u8>>) -> HttpResponse {
        self.call("PUT", target, &[], body)
    }

    /// A `DELETE`.
    #[track_caller]
    pub fn delete(&mut self, target: &str) -> HttpResponse {
        self.call("DELETE", target, &[], "")
    }

    /// Signs and sends a request that a kill of the server may interrupt.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn try_call(&mut self, method: &str, target: &str, body: impl Into<Vec<u8>>) -> io::Result<HttpResponse> {
        let request = self.signed(method, target, &[], body);
        self.client.try_send(&request)
    }

    /// Begins an upload and returns its id.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn begin(&mut self, object: &str) -> String {
        let answer = self.call("POST", &format!("{object}?uploads"), &[], "").expect(200);
        answer.element("UploadId").expect("an upload has an id").to_owned()
    }

    /// Puts a part and returns its entity tag.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn part(&mut self, object: &str, upload: &str, number: u32, body: impl Into<Vec<u8>>) -> String {
        let answer = self.put(&format!("{object}?partNumber={number}&uploadId={upload}"), body).expect(200);
        answer.header("ETag").expect("a part has an entity tag").to_owned()
    }

    /// Completes an upload.
    #[track_caller]
    pub fn complete(&mut self, object: &str, upload: &str, parts: &[(u32, String)]) -> HttpResponse {
        self.call("POST", &format!("{object}?uploadId={upload}"), &[], complete_body(parts))
    }
}

/// The body of a Complete.
#[must_use]
pub fn complete_body(parts: &[(u32, String)]) -> String {
    let part = |(number, etag): &(u32, String)| {
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>", etag.replace('"', "&quot;"))
    };
    format!("<CompleteMultipartUpload>{}</CompleteMultipartUpload>", parts.iter().map(part).collect::<String>())
}

fn name(pair: &str) -> &str {
    pair.split('=').next().unwrap_or_default()
}

/// The headers that both versions sign, in their order.
fn amz_headers(headers: &[(&str, &str)]) -> Vec<(String, String)> {
    let headers = headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    let mut headers: Vec<_> = headers.filter(|(name, _)| name.starts_with("x-amz-")).collect();
    headers.sort();
    headers
}

fn lines(headers: &[(String, String)]) -> String {
    headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect()
}

/// The pairs of a query, escaped as both versions sign them.
fn query<'a>(pairs: impl Iterator<Item = &'a (&'a str, &'a str)>) -> String {
    let pairs = pairs.map(|(name, value)| format!("{}={}", escaped(name), escaped(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => (byte as char).to_string(),
        _ if byte.is_ascii_alphanumeric() => (byte as char).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

fn hmac_sha256(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any key will do");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn http_date() -> String {
    #[expect(clippy::disallowed_methods, reason = "the servers of tests have the wall clock too")]
    httpdate::fmt_http_date(SystemTime::now())
}

/// The time as `20260101T000000Z`.
fn basic_date() -> String {
    let date = http_date();
    let month = MONTHS.find(&date[8..11]).expect("an English month") / 3 + 1;
    format!("{}{month:02}{}T{}Z", &date[12..16], &date[5..7], date[17..25].replace(':', ""))
}
