//! The requests of S3 on one connection, in path style.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::sign::V2Signer;
use super::xml;
use crate::client::{KeepAliveClient, ReplySummary};
use crate::endpoint::Endpoint;
use crate::keys::{BenchRandom, ValuePool};
use crate::server::S3Account;

/// The most keys or parts of a page.
pub(crate) const PAGE_MAX: u64 = 1_000;

/// The characters of a query value that are not encoded.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A bucket, its server and the account of its requests.
#[derive(Debug, Clone)]
pub(crate) struct BucketLocation {
    /// The server.
    pub(crate) endpoint: Endpoint,
    /// The account that signs the requests.
    pub(crate) account: S3Account,
    /// The bucket.
    pub(crate) bucket: String,
}

/// One request.
struct SignedCall<'a> {
    method: &'static str,
    /// The key; empty for the bucket itself.
    key: &'a str,
    /// The part of the query that is signed, sorted by name.
    signed: &'a [(&'static str, &'a str)],
    /// The rest of the query.
    unsigned: &'a str,
    range: Option<Range<u64>>,
    body: &'a [u8],
    keeps: bool,
}

impl<'a> SignedCall<'a> {
    fn new(method: &'static str, key: &'a str) -> Self {
        Self { method, key, signed: &[], unsigned: "", range: None, body: &[], keeps: false }
    }
}

/// One connection and its request buffer.
pub(crate) struct S3Driver {
    client: KeepAliveClient,
    signer: V2Signer,
    request: Vec<u8>,
    bucket: String,
    host: String,
    values: Arc<ValuePool>,
    /// The random numbers of this connection.
    pub(crate) random: BenchRandom,
}

impl S3Driver {
    /// Opens connection number `seed`.
    ///
    /// # Errors
    ///
    /// When no server answers there.
    pub(crate) async fn connect(place: &BucketLocation, values: Arc<ValuePool>, seed: u64) -> Result<Self> {
        Ok(Self {
            client: KeepAliveClient::connect(&place.endpoint).await?,
            signer: V2Signer::new(&place.account)?,
            request: Vec::with_capacity(1_024),
            bucket: place.bucket.clone(),
            host: place.endpoint.host.clone(),
            values,
            random: BenchRandom::new(seed),
        })
    }

    /// Writes a random value of this size.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn put(&mut self, key: &str, bytes: usize) -> Result<ReplySummary> {
        self.send_value(key, &[], bytes).await
    }

    /// Reads a key.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn get(&mut self, key: &str) -> Result<ReplySummary> {
        self.call(SignedCall::new("GET", key)).await
    }

    /// Reads a range of a key.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn get_range(&mut self, key: &str, range: Range<u64>) -> Result<ReplySummary> {
        self.call(SignedCall { range: Some(range), ..SignedCall::new("GET", key) }).await
    }

    /// Deletes a key.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn delete(&mut self, key: &str) -> Result<ReplySummary> {
        self.call(SignedCall::new("DELETE", key)).await
    }

    /// Makes the bucket, unless this account has it already.
    ///
    /// # Errors
    ///
    /// A refusal, or a broken connection.
    pub(crate) async fn make_bucket(&mut self) -> Result<()> {
        let reply = self.call(SignedCall { keeps: true, ..SignedCall::new("PUT", "") }).await?;
        let is_ours = xml::text(self.client.body(), "Code").is_some_and(|code| code == "BucketAlreadyOwnedByYou");
        if reply.status == 200 || is_ours { Ok(()) } else { Err(self.refusal("making a bucket", reply)) }
    }

    /// Sets the bucket's policy.
    ///
    /// # Errors
    ///
    /// A refusal, or a broken connection.
    pub(crate) async fn put_policy(&mut self, policy: &str) -> Result<()> {
        let signed = [("policy", "")];
        let call = SignedCall { signed: &signed, body: policy.as_bytes(), keeps: true, ..SignedCall::new("PUT", "") };
        let reply = self.call(call).await?;
        if reply.status == 204 { Ok(()) } else { Err(self.refusal("setting a policy", reply)) }
    }

    /// Removes the bucket, which must be empty.
    ///
    /// # Errors
    ///
    /// A refusal, or a broken connection.
    pub(crate) async fn remove_bucket(&mut self) -> Result<()> {
        let reply = self.call(SignedCall::new("DELETE", "")).await?;
        if reply.status == 204 { Ok(()) } else { Err(self.refusal("removing a bucket", reply)) }
    }

    /// Lists a page of the bucket's keys, after `token` or else after the key `start_after`. [`S3Driver::page`] has the page.
    ///
    /// # Errors
    ///
    /// A broken connection.
    pub(crate) async fn list(&mut self, token: Option<&str>, start_after: &str) -> Result<ReplySummary> {
        let mut query = format!("list-type=2&max-keys={PAGE_MAX}");
        if let Some(token) = token {
            query += &format!("&continuation-token={}", utf8_percent_encode(token, PLAIN));
        } else if !start_after.is_empty() {
            query += &format!("&start-after={}", utf8_percent_encode(start_after, PLAIN));
        }
        self.call(SignedCall { unsigned: &query, keeps: true, ..SignedCall::new("GET", "") }).await
    }

    /// The last page of a listing.
    pub(crate) fn page(&self) -> &[u8] {
        self.client.body()
    }

    /// Starts a multipart upload.
    ///
    /// # Errors
    ///
    /// A refusal, or a broken connection.
    pub(crate) async fn initiate(&mut self, key: &str) -> Result<String> {
        let call = SignedCall { signed: &[("uploads", "")], keeps: true, ..SignedCall::new("POST", key) };
        let reply = self.call(call).await?;
        match xml::text(self.client.body(), "UploadId") {
            Some(id) if reply.status == 200 => Ok(id),
            _ => Err(self.refusal("starting an upload", reply)),
        }
    }

    /// Sends a part of random bytes; returns its ETag.
    ///
    /// # Errors
    ///
    /// A refusal, or a broken connection.
    pub(crate) async fn part(&mut self, key: &str, upload: &str, number: u64, bytes: usize) -> Result<String> {
        let number = number.to_string();
        let reply = self.send_value(key, &[("partNumber", &number), ("uploadId", upload)], bytes).await?;
        if reply.status != 200 {
            return Err(self.refusal("sending a part", reply));
        }
        let etag = std::str::from_utf8(self.client.etag())?;
        if etag.is_empty() {
            bail!("a part was answered without ETag");
        }
        Ok(etag.to_owned())
    }

    /// Completes an upload of the parts with these ETags, numbered from 1.
    ///
    /// # Errors
    ///
    /// A refusal, an error inside a 200, or a broken connection.
    pub(crate) async fn complete(&mut self, key: &str, upload: &str, etags: &[String]) -> Result<()> {
        let mut body = String::from("<CompleteMultipartUpload>");
        for (index, etag) in etags.iter().enumerate() {
            let number = index + 1;
            body += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
        }
        body += "</CompleteMultipartUpload>";
        let signed = [("uploadId", upload)];
        let call = SignedCall { signed: &signed, body: body.as_bytes(), keeps: true, ..SignedCall::new("POST", key) };
        let reply = self.call(call).await?;
        let is_done = memchr::memmem::find(self.client.body(), b"<CompleteMultipartUploadResult").is_some();
        if reply.status == 200 && is_done { Ok(()) } else { Err(self.refusal("completing an upload", reply)) }
    }

    /// An unexpected answer as an error, with the server's code and message.
    pub(crate) fn refusal(&self, doing: &str, reply: ReplySummary) -> anyhow::Error {
        let body = self.client.body();
        let element = |name| xml::text(body, name).unwrap_or_default();
        anyhow::anyhow!("{doing} was answered by status {}: {} {}", reply.status, element("Code"), element("Message"))
    }

    async fn send_value(&mut self, key: &str, signed: &[(&'static str, &str)], bytes: usize) -> Result<ReplySummary> {
        let values = self.values.clone();
        let body = values.cut(&mut self.random, bytes);
        self.call(SignedCall { signed, body, ..SignedCall::new("PUT", key) }).await
    }

    async fn call(&mut self, call: SignedCall<'_>) -> Result<ReplySummary> {
        self.build(&call);
        self.client
            .exchange_body(&mut self.request, call.body, call.keeps)
            .await
            .with_context(|| format!("{} of {:?}", call.method, call.key))
    }

    /// Builds the head of a request.
    fn build(&mut self, call: &SignedCall<'_>) {
        let path =
            if call.key.is_empty() { format!("/{}", self.bucket) } else { format!("/{}/{}", self.bucket, call.key) };
        let (resource, sent) = (joined(&path, call.signed, false), joined(&path, call.signed, true));
        let mut head = format!("{} {sent}", call.method);
        if !call.unsigned.is_empty() {
            head.push(if call.signed.is_empty() { '?' } else { '&' });
            head += call.unsigned;
        }
        head += &format!(" HTTP/1.1\r\nHost: {}\r\n", self.host);
        if let Some(range) = &call.range {
            head += &format!("Range: bytes={}-{}\r\n", range.start, range.end - 1);
        }
        if matches!(call.method, "PUT" | "POST") {
            head += &format!("Content-Length: {}\r\n", call.body.len());
        }
        self.request.clear();
        self.request.extend_from_slice(head.as_bytes());
        self.signer.add_headers(&mut self.request, call.method, &resource);
        self.request.extend_from_slice(b"\r\n");
    }
}

/// The path and the signed part of the query, the values encoded for the request or plain for the signature.
fn joined(path: &str, signed: &[(&'static str, &str)], encodes: bool) -> String {
    let mut text = path.to_owned();
    for (index, (name, value)) in signed.iter().enumerate() {
        text.push(if index == 0 { '?' } else { '&' });
        text += name;
        match (value.is_empty(), encodes) {
            (true, _) => {}
            (false, false) => text += &format!("={value}"),
            (false, true) => text += &format!("={}", utf8_percent_encode(value, PLAIN)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_signed_plain_and_sent_encoded() {
        let signed = [("partNumber", "7"), ("uploadId", "a+b/c=")];
        assert_eq!(joined("/b/k", &signed, false), "/b/k?partNumber=7&uploadId=a+b/c=");
        assert_eq!(joined("/b/k", &signed, true), "/b/k?partNumber=7&uploadId=a%2Bb%2Fc%3D");
        assert_eq!(joined("/b/k", &[("uploads", "")], true), "/b/k?uploads");
        assert_eq!(joined("/b", &[], true), "/b");
    }

    #[tokio::test]
    async fn a_head_has_what_its_call_needs() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = BucketLocation {
            endpoint: Endpoint::at(listener.local_addr().unwrap()),
            account: S3Account { key: "k".to_owned(), secret: "s".to_owned() },
            bucket: "b".to_owned(),
        };
        let mut driver = S3Driver::connect(&place, Arc::new(ValuePool::new(10)), 0).await.unwrap();
        let signed = [("uploadId", "u")];
        driver.build(&SignedCall { signed: &signed, unsigned: "max-parts=2", ..SignedCall::new("GET", "k") });
        let head = String::from_utf8(driver.request.clone()).unwrap();
        assert!(head.starts_with("GET /b/k?uploadId=u&max-parts=2 HTTP/1.1\r\nHost: 127.0.0.1:"), "{head}");
        assert!(head.contains("\r\nAuthorization: AWS k:") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(!head.contains("Content-Length"), "{head}");
        driver.build(&SignedCall { range: Some(5..9), ..SignedCall::new("GET", "k") });
        assert!(String::from_utf8(driver.request.clone()).unwrap().contains("\r\nRange: bytes=5-8\r\n"));
        driver.build(&SignedCall::new("PUT", ""));
        let head = String::from_utf8(driver.request.clone()).unwrap();
        assert!(head.starts_with("PUT /b HTTP/1.1\r\n") && head.contains("\r\nContent-Length: 0\r\n"), "{head}");
    }
}
