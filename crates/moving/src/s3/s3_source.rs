//! The requests to a source that speaks S3, in path style.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use larder_api_s3::auth::PATH;
use larder_core::body::ByteStream;
use larder_store::Clock;
use parking_lot::Mutex;
use percent_encoding::percent_encode;
use tokio::time::timeout;

use super::documents::{
    BucketNames, S3ErrorDocument, SourceVersionMarker, VersionPage, is_listing, is_region, source_tags,
};
use super::fetched_body::FetchedBody;
use super::signature::{CallSigner, CallToSign, canonical_query};
use crate::rules::{ListingError, S3Address, SourceHeaders};
use crate::source_calls::{
    HEAD_TIMEOUT, LISTING_TIMEOUT, PlannedCall, SourceCalls, SourceError, read_body, refusal_body, while_broken,
};
use crate::source_http::{SourceAnswer, SourceHttp, SourceRequest};

/// Most bytes of a page of a listing.
const PAGE_BYTES_MAX: usize = 16 << 20;
/// Most bytes of another document.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// Entries of a page.
const PAGE_ENTRIES: &[u8] = b"1000";
/// Most buckets of a source.
const BUCKETS_MAX: usize = 1_000_000;
/// The region of signatures until the source names another.
const DEFAULT_REGION: &str = "us-east-1";
/// The code of an answer that names the region.
const WRONG_REGION: &str = "AuthorizationHeaderMalformed";
/// Codes of a user or a signature that the source does not know: they are about no operation.
const NOT_KNOWN: &[&str] = &[
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "RequestTimeTooSkewed",
    "InvalidToken",
    "ExpiredToken",
    WRONG_REGION,
];

/// A source that speaks S3, as one of its users sees it.
pub(crate) struct S3Source {
    calls: SourceCalls,
    clock: Arc<dyn Clock>,
    key: String,
    secret: String,
    region: Mutex<String>,
    /// Buckets of which the source lists no versions.
    unversioned: Mutex<HashSet<String>>,
}

/// An object that was found.
pub(crate) struct S3Fetched {
    /// The headers of the answer.
    pub(crate) headers: SourceHeaders,
    /// Bytes of the body, if the source says so.
    pub(crate) length: Option<u64>,
    /// The body. It fails if it ends before its length, goes beyond it, or pauses for a minute.
    pub(crate) body: Box<dyn ByteStream>,
}

/// What the source answers: what was asked for, or a refusal.
enum S3Answer<T> {
    Found(T),
    Refused(S3Refusal),
}

/// A refusal.
struct S3Refusal {
    status: u16,
    error: S3ErrorDocument,
    /// Whether a delete marker is in the place of the object.
    is_delete_marker: bool,
    /// The region of the bucket, of a redirection to it.
    moved_to: Option<String>,
}

/// A GET.
#[derive(Clone, Copy)]
struct S3Request<'a> {
    /// Made by [`bucket_path`] or [`key_path`].
    path: &'a str,
    query: &'a [(&'a str, &'a [u8])],
    headers: &'a [(&'static str, &'a str)],
    is_listing: bool,
}

impl S3Source {
    /// A source that is read with this secret, at most `rate` requests a second.
    pub(crate) fn new(
        http: Arc<dyn SourceHttp>,
        clock: Arc<dyn Clock>,
        address: S3Address,
        secret: String,
        rate: u32,
    ) -> Self {
        let hosts = vec![address.authority().to_owned()];
        let refusal_text = |body: &[u8]| S3ErrorDocument::read(body).to_string();
        Self {
            calls: SourceCalls::new(http, address.is_secure, hosts, rate, refusal_text),
            clock,
            key: address.key,
            secret,
            region: Mutex::new(DEFAULT_REGION.to_owned()),
            unversioned: Mutex::default(),
        }
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.calls.requests()
    }

    /// The names of the user's buckets, in the order of the source.
    ///
    /// # Errors
    /// [`SourceError`].
    pub(crate) async fn list_buckets(&self) -> Result<Vec<String>, SourceError> {
        let (mut names, mut token) = (Vec::new(), None::<String>);
        loop {
            let query: Vec<(&str, &[u8])> =
                token.iter().map(|token| ("continuation-token", token.as_bytes())).collect();
            let page = self.page(S3Request { query: &query, ..S3Request::listing("/") }).await?.found()?;
            let page = BucketNames::read(&page)?;
            // A source could list for ever: each page has to bring buckets, up to the bound.
            let is_progress = page.next != token && !page.names.is_empty();
            names.extend(page.names);
            if names.len() > BUCKETS_MAX || page.next.is_some() && !is_progress {
                return Err(ListingError::Endless.into());
            }
            match page.next {
                Some(next) => token = Some(next),
                None => return Ok(names),
            }
        }
    }

    /// A page of up to 1000 versions and delete markers of a bucket, in the order of the source: by key, the newest first. A
    /// source that lists no versions of it shows its current objects.
    ///
    /// # Errors
    /// [`SourceError`].
    pub(crate) async fn list_versions(
        &self,
        bucket: &str,
        after: Option<&SourceVersionMarker>,
    ) -> Result<VersionPage, SourceError> {
        self.list_prefix(bucket, b"", after).await
    }

    /// As [`Self::list_versions`], of the keys with a prefix.
    ///
    /// # Errors
    /// [`SourceError`].
    pub(crate) async fn list_prefix(
        &self,
        bucket: &str,
        prefix: &[u8],
        after: Option<&SourceVersionMarker>,
    ) -> Result<VersionPage, SourceError> {
        let path = bucket_path(bucket);
        let is_known = self.unversioned.lock().contains(bucket);
        let page = match is_known {
            true => None,
            false => self.versions_page(&path, prefix, after).await?,
        };
        let page = match page {
            Some(page) => page,
            None => {
                let page = self.objects_page(&path, prefix, after).await?;
                // A refusal of one prefix says nothing of the bucket.
                if prefix.is_empty() {
                    self.unversioned.lock().insert(bucket.to_owned());
                }
                page
            }
        };
        check_progress(after, page.next.as_ref())?;
        Ok(page)
    }

    /// A page of up to 1000 current objects of a bucket with a prefix, in the order of the source.
    ///
    /// # Errors
    /// [`SourceError`].
    pub(crate) async fn list_objects(
        &self,
        bucket: &str,
        prefix: &[u8],
        after: Option<&SourceVersionMarker>,
    ) -> Result<VersionPage, SourceError> {
        let page = self.objects_page(&bucket_path(bucket), prefix, after).await?;
        check_progress(after, page.next.as_ref())?;
        Ok(page)
    }

    /// Whether the source listed versions of a bucket so far.
    pub(crate) fn lists_versions(&self, bucket: &str) -> bool {
        !self.unversioned.lock().contains(bucket)
    }

    /// A page of versions; `None`: the source lists none.
    async fn versions_page(
        &self,
        path: &str,
        prefix: &[u8],
        after: Option<&SourceVersionMarker>,
    ) -> Result<Option<VersionPage>, SourceError> {
        let mut query: Vec<(&str, &[u8])> =
            vec![("versions", b""), ("encoding-type", b"url"), ("max-keys", PAGE_ENTRIES)];
        query.extend(some_prefix(prefix));
        let version = after.and_then(|after| after.version.as_deref());
        query.extend(after.map(|after| ("key-marker", after.key.as_ref())));
        query.extend(version.map(|version| ("version-id-marker", version.as_bytes())));
        match self.page(S3Request { query: &query, ..S3Request::listing(path) }).await? {
            S3Answer::Found(page) => {
                let page = VersionPage::versions(&page)?;
                // A source that has shown versions has more of them: objects alone would hide those.
                if page.is_none() && version.is_some() { Err(ListingError::Form.into()) } else { Ok(page) }
            }
            S3Answer::Refused(refusal) if version.is_none() && refusal.has_no_versions() => Ok(None),
            S3Answer::Refused(refusal) => Err(refusal.into()),
        }
    }

    async fn objects_page(
        &self,
        path: &str,
        prefix: &[u8],
        after: Option<&SourceVersionMarker>,
    ) -> Result<VersionPage, SourceError> {
        let mut query: Vec<(&str, &[u8])> = vec![("encoding-type", b"url"), ("max-keys", PAGE_ENTRIES)];
        query.extend(some_prefix(prefix));
        query.extend(after.map(|after| ("marker", after.key.as_ref())));
        let page = self.page(S3Request { query: &query, ..S3Request::listing(path) }).await?.found()?;
        Ok(VersionPage::objects(&page)?)
    }

    /// Reads an object, or one of its versions, with its checksums; `None`: it is not there, or a delete marker is.
    ///
    /// # Errors
    /// [`SourceError`].
    pub(crate) async fn get(
        &self,
        bucket: &str,
        key: &[u8],
        version_id: Option<&str>,
    ) -> Result<Option<S3Fetched>, SourceError> {
        let query: Vec<(&str, &[u8])> = version_id.iter().map(|id| ("versionId", id.as_bytes())).collect();
        let path = key_path(bucket, key);
        let headers = &[("x-amz-checksum-mode", "ENABLED")];
        match self.ask(S3Request { query: &query, headers, ..S3Request::document(&path) }).await? {
            S3Answer::Found(SourceAnswer { headers, body, .. }) => {
                let length = headers.length();
                let body = Box::new(FetchedBody::new(body, length));
                Ok(Some(S3Fetched { headers, length, body }))
            }
            S3Answer::Refused(refusal) if refusal.is_absent_object() => Ok(None),
            S3Answer::Refused(refusal) => Err(refusal.into()),
        }
    }

    /// The tags of an object, or of one of its versions; none at a source that has no tags. Ask for objects that have some
    /// (`x-amz-tagging-count`): a source that does not know tags may answer with the object.
    ///
    /// # Errors
    /// [`SourceError`]: also when there is no such object.
    pub(crate) async fn tags(
        &self,
        bucket: &str,
        key: &[u8],
        version_id: Option<&str>,
    ) -> Result<Vec<(String, String)>, SourceError> {
        match self.object_document(bucket, key, version_id, "tagging").await? {
            Some(document) => Ok(source_tags(&document)?),
            None => Ok(Vec::new()),
        }
    }

    /// A document about an object, or about one of its versions; `None`: it has none, or the source knows none.
    ///
    /// # Errors
    /// [`SourceError`]: also when there is no such object.
    pub(crate) async fn object_document(
        &self,
        bucket: &str,
        key: &[u8],
        version_id: Option<&str>,
        name: &str,
    ) -> Result<Option<Bytes>, SourceError> {
        let mut query: Vec<(&str, &[u8])> = vec![(name, b"")];
        query.extend(version_id.map(|id| ("versionId", id.as_bytes())));
        let path = key_path(bucket, key);
        match self.whole(S3Request { query: &query, ..S3Request::document(&path) }).await? {
            S3Answer::Found(document) => Ok(Some(document)),
            S3Answer::Refused(refusal) if refusal.is_absent_document() && !refusal.is_gone() => Ok(None),
            S3Answer::Refused(refusal) => Err(refusal.into()),
        }
    }

    /// A document about a bucket, such as `policy`; `None`: it has none, or the source knows none.
    ///
    /// # Errors
    /// [`SourceError`]: also when there is no such bucket.
    pub(crate) async fn bucket_document(&self, bucket: &str, query: &str) -> Result<Option<Bytes>, SourceError> {
        let (path, query) = (bucket_path(bucket), [(query, b"".as_slice())]);
        match self.whole(S3Request { query: &query, ..S3Request::document(&path) }).await? {
            // A source that does not know the query lists the bucket.
            S3Answer::Found(document) => Ok(Some(document).filter(|document| !is_listing(document))),
            S3Answer::Refused(refusal) if refusal.is_absent_document() => Ok(None),
            S3Answer::Refused(refusal) => Err(refusal.into()),
        }
    }

    /// A whole page of a listing.
    async fn page(&self, request: S3Request<'_>) -> Result<S3Answer<Bytes>, SourceError> {
        let too_large = |error| match error {
            SourceError::TooLarge => ListingError::TooLarge.into(),
            other => other,
        };
        while_broken(|| self.read_whole(request, PAGE_BYTES_MAX)).await.map_err(too_large)
    }

    /// A whole document that is no listing.
    async fn whole(&self, request: S3Request<'_>) -> Result<S3Answer<Bytes>, SourceError> {
        let too_large = |error| match error {
            SourceError::TooLarge => SourceError::Props("a document of the source has more than 1 MiB"),
            other => other,
        };
        while_broken(|| self.read_whole(request, DOCUMENT_BYTES_MAX)).await.map_err(too_large)
    }

    async fn read_whole(&self, request: S3Request<'_>, max: usize) -> Result<S3Answer<Bytes>, SourceError> {
        let mut answer = match self.ask(request).await? {
            S3Answer::Found(answer) => answer,
            S3Answer::Refused(refusal) => return Ok(S3Answer::Refused(refusal)),
        };
        // A source could send a byte a minute.
        match timeout(LISTING_TIMEOUT, read_body(&mut answer, max)).await {
            Ok(body) => Ok(S3Answer::Found(body?)),
            Err(_) => Err(SourceError::Unreachable("the answer did not end within five minutes".to_owned())),
        }
    }

    /// Asks, and once more if the source names the region that it wants.
    async fn ask(&self, request: S3Request<'_>) -> Result<S3Answer<SourceAnswer>, SourceError> {
        let region = self.region.lock().clone();
        let answer = self.ask_in(&region, request).await?;
        let S3Answer::Refused(S3Refusal { status: 400, error, .. }) = &answer else { return Ok(answer) };
        match error.region.as_ref().filter(|other| error.code == WRONG_REGION && **other != region) {
            Some(other) => {
                self.region.lock().clone_from(other);
                self.ask_in(other, request).await
            }
            None => Ok(answer),
        }
    }

    async fn ask_in(&self, region: &str, request: S3Request<'_>) -> Result<S3Answer<SourceAnswer>, SourceError> {
        let S3Request { path, query, headers, is_listing } = request;
        let (method, query) = (SourceRequest::Get, canonical_query(query));
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let signer = CallSigner { key: &self.key, secret: &self.secret, region };
        let sign =
            |host: &str| signer.headers(CallToSign { method, host, path, query: &query, headers }, self.clock.now());
        let time = if is_listing { LISTING_TIMEOUT } else { HEAD_TIMEOUT };
        let mut answer =
            self.calls.send(PlannedCall { method, target: &target, headers: &sign, time, body: "" }).await?;
        if answer.status == 200 {
            return Ok(S3Answer::Found(answer));
        }
        let body = refusal_body(&mut answer).await;
        let marker = answer.headers.get("x-amz-delete-marker");
        let region = answer.headers.get("x-amz-bucket-region").filter(|_| (300..400).contains(&answer.status));
        Ok(S3Answer::Refused(S3Refusal {
            status: answer.status,
            error: S3ErrorDocument::read(&body),
            is_delete_marker: marker.is_some_and(|value| value.eq_ignore_ascii_case(b"true")),
            moved_to: region
                .and_then(|name| str::from_utf8(name).ok())
                .filter(|name| is_region(name))
                .map(str::to_owned),
        }))
    }
}

impl<T> S3Answer<T> {
    fn found(self) -> Result<T, SourceError> {
        match self {
            Self::Found(found) => Ok(found),
            Self::Refused(refusal) => Err(refusal.into()),
        }
    }
}

impl From<S3Refusal> for SourceError {
    fn from(refusal: S3Refusal) -> Self {
        let text = match refusal.moved_to {
            // A signature for that region is refused at this address, too.
            Some(region) => format!(
                "the bucket is in region {region}: take the address of that region as the source, with --buckets"
            ),
            None => refusal.error.to_string(),
        };
        Self::Refused { status: refusal.status, text }
    }
}

impl S3Refusal {
    /// Whether the source lists no versions, or does not let this user list them.
    fn has_no_versions(&self) -> bool {
        matches!(self.status, 400 | 403 | 405 | 501) && !NOT_KNOWN.contains(&self.error.code.as_str())
    }

    /// Whether a source says that there is no object. A proxy that finds nothing does not say it with a code.
    fn is_gone(&self) -> bool {
        match self.status {
            404 => self.is_delete_marker || ["NoSuchKey", "NoSuchVersion"].contains(&self.error.code.as_str()),
            405 => self.is_delete_marker,
            _ => false,
        }
    }

    /// Whether a GET of an object says that there is none: of a delete marker some answer 405 without its header.
    fn is_absent_object(&self) -> bool {
        self.is_gone() || self.status == 405 && self.error.code == "MethodNotAllowed"
    }

    /// Whether a document is not there, or is none that the source knows.
    fn is_absent_document(&self) -> bool {
        let code = self.error.code.as_str();
        match self.status {
            404 => code != "NoSuchBucket",
            501 => true,
            400 | 405 => {
                ["MethodNotAllowed", "NotImplemented"].contains(&code)
                    || code.ends_with("NotFoundError")
                    || code.starts_with("NoSuch") && code != "NoSuchBucket"
            }
            _ => false,
        }
    }
}

impl<'a> S3Request<'a> {
    const fn document(path: &'a str) -> Self {
        Self { path, query: &[], headers: &[], is_listing: false }
    }

    const fn listing(path: &'a str) -> Self {
        Self { path, query: &[], headers: &[], is_listing: true }
    }
}

/// Refuses a page that leads to itself, or back: the listing would not end.
fn check_progress(after: Option<&SourceVersionMarker>, next: Option<&SourceVersionMarker>) -> Result<(), ListingError> {
    match (after, next) {
        (Some(after), Some(next)) if next == after || next.key < after.key => Err(ListingError::Endless),
        _ => Ok(()),
    }
}

/// The parameter of a prefix. An empty one is left out, as some sources sign it otherwise.
fn some_prefix(prefix: &[u8]) -> Option<(&'static str, &[u8])> {
    (!prefix.is_empty()).then_some(("prefix", prefix))
}

fn bucket_path(bucket: &str) -> String {
    format!("/{}", percent_encode(bucket.as_bytes(), PATH))
}

fn key_path(bucket: &str, key: &[u8]) -> String {
    format!("{}/{}", bucket_path(bucket), percent_encode(key, PATH))
}

#[cfg(test)]
mod tests;
