//! An S3 client that signs by hand with signature version 2, which is the shortest.

use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use sha1::Sha1;

use crate::node::{S3_KEY, S3_SECRET};
use crate::{HttpClient, HttpRequest, HttpResponse, LarderNode};

/// The query keys that a signature covers, as far as the tests use them.
const SIGNED: &[&str] = &[
    "acl",
    "cors",
    "delete",
    "lifecycle",
    "location",
    "partNumber",
    "policy",
    "tagging",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
];

/// An S3 client: a key that signs, and a connection.
#[derive(Debug)]
pub struct S3Client {
    client: HttpClient,
    key: String,
    secret: String,
}

impl S3Client {
    /// The admin of a server under test.
    #[must_use]
    pub fn admin(node: &LarderNode) -> Self {
        Self::at(node.s3_at())
    }

    /// The admin, connected from this address of the machine.
    #[must_use]
    pub fn admin_from(address: IpAddr, node: &LarderNode) -> Self {
        Self { client: HttpClient::from(address, node.s3_at()), ..Self::admin(node) }
    }

    /// The admin of the server at this address.
    #[must_use]
    pub fn at(server: SocketAddr) -> Self {
        Self::with_key(server, S3_KEY, S3_SECRET)
    }

    /// A user with this key.
    #[must_use]
    pub fn with_key(server: SocketAddr, key: &str, secret: &str) -> Self {
        Self { client: HttpClient::new(server), key: key.to_owned(), secret: secret.to_owned() }
    }

    /// A signed request in path style; `target` is the target of the request line, its query values not encoded.
    #[must_use]
    pub fn signed(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> HttpRequest {
        let date = httpdate::fmt_http_date(SystemTime::now());
        let signature = self.signature(method, target, &date, headers);
        let request = HttpRequest::new(method, target)
            .header("Host", "127.0.0.1")
            .header("Date", &date)
            .header("Authorization", &format!("AWS {}:{signature}", self.key))
            .body(body);
        headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    /// Signs and sends.
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

    /// A `GET`.
    pub fn get(&mut self, target: &str) -> HttpResponse {
        self.call("GET", target, &[], "")
    }

    /// A `PUT`.
    pub fn put(&mut self, target: &str, body: impl Into<Vec<u8>>) -> HttpResponse {
        self.call("PUT", target, &[], body)
    }

    /// A `DELETE`.
    pub fn delete(&mut self, target: &str) -> HttpResponse {
        self.call("DELETE", target, &[], "")
    }

    /// Signs and sends a request that a kill of the server may interrupt.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn try_call(&mut self, method: &str, target: &str, body: impl Into<Vec<u8>>) -> std::io::Result<HttpResponse> {
        let request = self.signed(method, target, &[], body);
        self.client.try_send(&request)
    }

    /// Begins an upload and returns its id.
    pub fn begin(&mut self, object: &str) -> String {
        let answer = self.call("POST", &format!("{object}?uploads"), &[], "").expect(200);
        element(&answer.text(), "UploadId").expect("an upload has an id")
    }

    /// Puts a part and returns its entity tag.
    pub fn part(&mut self, object: &str, upload: &str, number: u32, body: impl Into<Vec<u8>>) -> String {
        let answer = self.put(&format!("{object}?partNumber={number}&uploadId={upload}"), body).expect(200);
        answer.header("ETag").expect("a part has an entity tag").to_owned()
    }

    /// Completes an upload.
    pub fn complete(&mut self, object: &str, upload: &str, parts: &[(u32, String)]) -> HttpResponse {
        self.call("POST", &format!("{object}?uploadId={upload}"), &[], complete_body(parts))
    }

    /// The signature of a request, in path style.
    #[must_use]
    pub fn signature(&self, method: &str, target: &str, date: &str, headers: &[(&str, &str)]) -> String {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut kept: Vec<&str> = query.split('&').filter(|pair| SIGNED.contains(&name(pair))).collect();
        kept.sort_by(|one, other| name(one).cmp(name(other)));
        let sub = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
        self.sign(method, date, headers, &format!("{path}{sub}"))
    }

    /// The signature of a request over a canonical resource.
    #[must_use]
    pub fn sign(&self, method: &str, date: &str, headers: &[(&str, &str)], resource: &str) -> String {
        let header = |wanted: &str| {
            headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map_or("", |(_, value)| value)
        };
        let mut amz: Vec<String> = headers
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .filter(|(name, _)| name.starts_with("x-amz-"))
            .map(|(name, value)| format!("{name}:{}\n", value.trim()))
            .collect();
        amz.sort();
        let (md5, kind) = (header("content-md5"), header("content-type"));
        let text = format!("{method}\n{md5}\n{kind}\n{date}\n{}{resource}", amz.concat());
        let mut mac = Hmac::<Sha1>::new_from_slice(self.secret.as_bytes()).expect("any key will do");
        mac.update(text.as_bytes());
        STANDARD.encode(mac.finalize().into_bytes())
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

/// The text of the first element of this name.
#[must_use]
pub fn element(xml: &str, name: &str) -> Option<String> {
    let rest = xml.split_once(&format!("<{name}>"))?.1;
    Some(rest.split_once(&format!("</{name}>"))?.0.to_owned())
}

fn name(pair: &str) -> &str {
    pair.split('=').next().unwrap_or_default()
}
