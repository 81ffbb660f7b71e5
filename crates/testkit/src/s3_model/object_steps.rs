//! Puts and reads of objects.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::answers::{self, answered_etag, differs, header, object_headers, same};
use super::asks::{AskedEncryption, Faults, ModelRequest, with_customer_key};
use super::digests::{base64_md5, base64_sha256};
use super::state::{ModelBucket, ModelEncryption, ModelMetadata, ModelObject, ModelVersion, ModelVersioning, etag};
use super::{Checked, S3Model};
use crate::http::HttpResponse;

/// The keys of every bucket: one begins with another, one has characters that paths escape.
pub(super) const KEYS: &[&str] = &["a/1", "a/2", "b", "b c+é"];

/// A key in a path.
pub(super) fn escaped_key(key: &str) -> String {
    key.replace(' ', "%20").replace('+', "%2B").replace('é', "%C3%A9")
}

/// A version that a request names.
#[derive(Debug, Clone)]
pub(super) struct NamedVersion {
    pub(super) bucket: usize,
    pub(super) key: &'static str,
    /// The parameter's value.
    pub(super) id: Option<String>,
    /// Its place among the versions of its key; `None`: there is none.
    pub(super) at: Option<usize>,
}

impl S3Model<'_> {
    pub(super) fn bucket_name(&self, number: usize) -> String {
        format!("{}{number}", self.bounds.bucket_prefix)
    }

    pub(super) fn object_path(&self, bucket: usize, key: &str) -> String {
        format!("/{}/{}", self.bucket_name(bucket), escaped_key(key))
    }

    pub(super) fn bucket(&self, number: usize) -> Option<&ModelBucket> {
        self.state.buckets[number].as_ref()
    }

    pub(super) fn bucket_mut(&mut self, number: usize) -> &mut ModelBucket {
        self.state.buckets[number].as_mut().expect("the request was served, so there is a bucket")
    }

    pub(super) fn any_bucket(&mut self) -> usize {
        // Mostly one that exists.
        let number = self.dice.below(3);
        let number = if self.state.buckets[number].is_none() { self.dice.below(3) } else { number };
        if self.state.buckets[number].is_none() { self.dice.below(3) } else { number }
    }

    pub(super) fn any_key(&mut self) -> &'static str {
        self.dice.pick::<&str>(KEYS)
    }

    /// A bucket and a key, and mostly one of its versions.
    pub(super) fn any_version(&mut self) -> NamedVersion {
        let (bucket, key) = (self.any_bucket(), self.any_key());
        let versions = self.bucket(bucket).map_or(0, |bucket| bucket.versions(key).len());
        let current = NamedVersion { bucket, key, id: None, at: (versions > 0).then_some(0) };
        match self.dice.below(20) {
            0..8 => current,
            8..17 if versions > 0 => {
                let at = self.dice.below(versions);
                match self.bucket(bucket).and_then(|found| found.versions(key)[at].id.clone()) {
                    Some(id) => NamedVersion { id: Some(id), at: Some(at), ..current },
                    None => current,
                }
            }
            17..19 => {
                let null =
                    self.bucket(bucket).and_then(|found| found.versions(key).iter().position(ModelVersion::is_null));
                NamedVersion { id: Some("null".into()), at: null, ..current }
            }
            _ => match self.bucket(bucket).and_then(|bucket| bucket.gone.last().cloned()) {
                Some(id) => NamedVersion { id: Some(id), at: None, ..current },
                None => current,
            },
        }
    }

    /// The target of a request for this version, with a parameter in front of its id.
    pub(super) fn target(&self, named: &NamedVersion, parameter: &str) -> String {
        let path = self.object_path(named.bucket, named.key);
        let id = named.id.as_ref().map(|id| format!("versionId={id}"));
        let query: Vec<String> =
            [Some(parameter.to_owned()).filter(|name| !name.is_empty()), id].into_iter().flatten().collect();
        if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
    }

    pub(super) fn version(&self, named: &NamedVersion) -> Option<&ModelVersion> {
        self.bucket(named.bucket)?.versions(named.key).get(named.at?)
    }

    /// What is wrong with a read of this version, before its headers count. A delete marker is named as `marker`.
    pub(super) fn missing(&self, named: &NamedVersion, marker: &'static str) -> Option<&'static str> {
        if self.bucket(named.bucket).is_none() {
            return Some("NoSuchBucket");
        }
        match (self.version(named), &named.id) {
            (None, Some(_)) => Some("NoSuchVersion"),
            (None, None) => Some("NoSuchKey"),
            (Some(ModelVersion { object: None, .. }), Some(_)) => Some(marker),
            (Some(ModelVersion { object: None, .. }), None) if marker == "MethodNotAllowed" => Some("NoSuchKey"),
            (Some(ModelVersion { object: None, .. }), None) => Some(marker),
            _ => None,
        }
    }

    pub(super) fn new_metadata(&mut self) -> ModelMetadata {
        let content_type = self.dice.chance(400).then(|| "text/x-model".to_owned());
        let colour = self.dice.chance(400).then(|| self.dice.pick(&["red", "blue"]).to_string());
        let tags = [("a".to_owned(), self.dice.below(3).to_string()), ("b".to_owned(), String::new())];
        let tags = if self.dice.chance(250) { tags.into() } else { BTreeMap::new() };
        ModelMetadata { content_type, colour, tags, is_public: self.dice.chance(150) }
    }

    /// Adds the headers of metadata.
    pub(super) fn ask_metadata(&mut self, mut request: ModelRequest, metadata: &ModelMetadata) -> ModelRequest {
        if let Some(kind) = &metadata.content_type {
            request = request.header("content-type", kind);
        }
        if let Some(colour) = &metadata.colour {
            request = request.header("x-amz-meta-colour", colour);
        }
        if !metadata.tags.is_empty() {
            request = request.header("x-amz-tagging", format!("a={}&b=", metadata.tags["a"]));
        }
        if metadata.is_public { request.header("x-amz-acl", "public-read") } else { request }
    }

    /// Adds conditions of a write on the current version.
    pub(super) fn ask_write_conditions(
        &mut self,
        request: ModelRequest,
        bucket: usize,
        key: &str,
        faults: &mut Faults,
    ) -> ModelRequest {
        let current = self.bucket(bucket).and_then(|bucket| bucket.current(key)).map(|object| object.etag.clone());
        match self.dice.below(12) {
            0 => {
                if current.is_some() {
                    faults.push("PreconditionFailed");
                }
                request.header("if-none-match", "*")
            }
            1 => {
                let (etag, fault) = match current {
                    Some(etag) if self.dice.chance(700) => (etag, None),
                    Some(_) => ("0".repeat(32), Some("PreconditionFailed")),
                    None => ("0".repeat(32), Some("NoSuchKey")),
                };
                faults.extend(fault);
                request.header("if-match", format!("\"{etag}\""))
            }
            _ => request,
        }
    }

    pub(super) fn put_object(&mut self) -> Checked {
        let (bucket, key, bytes) = (self.any_bucket(), self.any_key(), self.new_body());
        let mut faults: Faults = Vec::new();
        let metadata = self.new_metadata();
        let request = ModelRequest::new("PUT", self.object_path(bucket, key));
        let request = self.ask_metadata(request, &metadata);
        let (request, encryption) = self.ask_encryption(request, &mut faults);
        let has_lock = self.bucket(bucket).is_some_and(|bucket| bucket.lock.is_some());
        let (request, lock) = self.ask_lock(request, has_lock, &mut faults);
        let request = self.ask_write_conditions(request, bucket, key, &mut faults);
        let request = self.ask_digest(request, &bytes, &mut faults).body(bytes.clone());
        if self.bucket(bucket).is_none() {
            faults.push("NoSuchBucket");
        }
        let Some(answer) = self.expect(&request, &faults, &[200])? else { return Ok(()) };
        let found = self.bucket(bucket).expect("the put was served");
        let encryption = match encryption {
            AskedEncryption::Default => found.default_encryption(),
            AskedEncryption::Named(named) => named,
        };
        let lock = found.new_lock(lock, self.now());
        let etag = etag(&bytes, encryption, &answered_etag(&answer));
        same("etag", &etag, &answered_etag(&answer))?;
        answers::encryption(&answer, encryption)?;
        let sha256 = request.value("x-amz-checksum-sha256").map(str::to_owned);
        header(&answer, "x-amz-checksum-sha256", sha256.as_deref())?;
        let object = ModelObject { bytes: Rc::new(bytes), parts: None, etag, metadata, encryption, lock, sha256 };
        self.add_object(bucket, key, &answer, object)
    }

    /// Adds a digest or a checksum, right or wrong. A request for a lock needs one.
    fn ask_digest(&mut self, request: ModelRequest, bytes: &[u8], faults: &mut Faults) -> ModelRequest {
        let names_lock = request.headers.iter().any(|(name, _)| name.starts_with("x-amz-object-lock-"));
        match self.dice.below(24) {
            0..8 => request.header("content-md5", base64_md5(bytes)),
            8..12 => request.header("x-amz-checksum-sha256", base64_sha256(bytes)),
            12 => {
                faults.push("BadDigest");
                request.header("content-md5", base64_md5(b"other bytes"))
            }
            13 => {
                faults.push("BadDigest");
                request.header("x-amz-checksum-sha256", base64_sha256(b"other bytes"))
            }
            14 if names_lock => {
                faults.push("InvalidRequest");
                request
            }
            _ if names_lock => request.header("content-md5", base64_md5(bytes)),
            _ => request,
        }
    }

    /// Follows a served write: checks the id of its version, and adds it.
    pub(super) fn add_object(
        &mut self,
        bucket: usize,
        key: &str,
        answer: &HttpResponse,
        object: ModelObject,
    ) -> Checked {
        let id = self.new_version_id(bucket, key, answer.header("x-amz-version-id"))?;
        let modified = self.now();
        self.bucket_mut(bucket).add(key, ModelVersion { id: Some(id), modified, object: Some(object) });
        Ok(())
    }

    /// The id of a version that was just made, as its bucket's versioning has it.
    pub(super) fn new_version_id(&self, bucket: usize, key: &str, shown: Option<&str>) -> Result<String, String> {
        let found = self.bucket(bucket).expect("the write was served");
        match (found.versioning, shown) {
            (ModelVersioning::Never, None) => Ok("null".to_owned()),
            // AWS names the null version of a suspended bucket or does not, by operation.
            (ModelVersioning::Suspended, None | Some("null")) => Ok("null".to_owned()),
            (ModelVersioning::Enabled, Some(id)) if id != "null" => {
                let is_new = found.versions(key).iter().all(|version| version.id.as_deref() != Some(id));
                if is_new { Ok(id.to_owned()) } else { differs("version id", "a new one", id) }
            }
            (versioning, shown) => differs("version id", versioning, shown),
        }
    }

    pub(super) fn get_object(&mut self) -> Checked {
        let named = self.any_version();
        let method = if self.dice.chance(300) { "HEAD" } else { "GET" };
        let mut faults: Faults = self.missing(&named, "MethodNotAllowed").into_iter().collect();
        let object = self.version(&named).and_then(|version| version.object.clone());
        let request = ModelRequest::new(method, self.target(&named, ""));
        let encryption = object.as_ref().map_or(ModelEncryption::Plain, |object| object.encryption);
        let request = self.ask_key(request, "", encryption, object.is_some(), &mut faults);
        let request = self.ask_read_conditions(request, object.as_ref(), &mut faults);
        let length = object.as_ref().map_or(0, |object| object.bytes.len());
        let (request, range) = match object.as_ref().and_then(|object| object.parts.clone()) {
            Some(parts) if self.dice.chance(300) => self.ask_part(request, &parts, &mut faults),
            _ => self.ask_range(request, length, &mut faults),
        };
        let request = request.header("x-amz-checksum-mode", "ENABLED");
        // A part without bytes has no range that a header could name.
        let named_range = range.filter(|(from, to)| from < to);
        let Some(answer) = self.expect(&request, &faults, &[if named_range.is_some() { 206 } else { 200 }])? else {
            return Ok(());
        };
        let Some(object) = object else { return differs("read", "a refusal", answer.status) };
        object_headers(&answer, &object)?;
        self.check_version_id(&named, &answer)?;
        let (from, to) = range.unwrap_or((0, length));
        let shown = named_range.map(|(from, to)| format!("bytes {from}-{}/{length}", to - 1));
        header(&answer, "content-range", shown.as_deref())?;
        if range.is_none() && object.sha256.is_some() {
            header(&answer, "x-amz-checksum-sha256", object.sha256.as_deref())?;
        }
        header(&answer, "content-length", Some((to - from).to_string().as_str()))?;
        if method == "GET" && answer.body != object.bytes[from..to] {
            return differs("body", to - from, answer.body.len());
        }
        Ok(())
    }

    /// An answer about a version names it, if the bucket ever had versions.
    fn check_version_id(&self, named: &NamedVersion, answer: &HttpResponse) -> Checked {
        let never = self.bucket(named.bucket).is_some_and(|bucket| bucket.versioning == ModelVersioning::Never);
        let id = self.version(named).and_then(|version| version.id.clone());
        match id {
            Some(id) if !(never && named.id.is_none()) => match answer.header("x-amz-version-id") {
                // A bucket that never had versions may name the null version or not.
                None if never => Ok(()),
                shown => same("version id", Some(id.as_str()), shown),
            },
            _ => Ok(()),
        }
    }

    /// Adds the headers of the key that an object needs to be read, now and then others or none.
    pub(super) fn ask_key(
        &mut self,
        request: ModelRequest,
        prefix: &str,
        encryption: ModelEncryption,
        exists: bool,
        faults: &mut Faults,
    ) -> ModelRequest {
        match encryption {
            ModelEncryption::Customer(number) => match self.dice.below(10) {
                0 => {
                    faults.push("InvalidRequest");
                    request
                }
                1 => {
                    faults.push("AccessDenied");
                    with_customer_key(request, prefix, 1 - number)
                }
                _ => with_customer_key(request, prefix, number),
            },
            _ if exists && self.dice.chance(30) => {
                faults.push("InvalidRequest");
                with_customer_key(request, prefix, 0)
            }
            _ => request,
        }
    }

    fn ask_read_conditions(
        &mut self,
        request: ModelRequest,
        object: Option<&ModelObject>,
        faults: &mut Faults,
    ) -> ModelRequest {
        let Some(object) = object else { return request };
        let (own, other) = (format!("\"{}\"", object.etag), format!("\"{}\"", "0".repeat(32)));
        match self.dice.below(24) {
            0 => request.header("if-match", own),
            1 => {
                faults.push("PreconditionFailed");
                request.header("if-match", other)
            }
            2 => {
                faults.push("NotModified");
                request.header("if-none-match", own)
            }
            3 => request.header("if-none-match", other),
            4 => {
                faults.push("PreconditionFailed");
                request.header("if-unmodified-since", "Mon, 01 Jan 2001 00:00:00 GMT")
            }
            5 => request.header("if-modified-since", "Mon, 01 Jan 2001 00:00:00 GMT"),
            6 => request.header("if-match", own).header("if-unmodified-since", "Mon, 01 Jan 2001 00:00:00 GMT"),
            _ => request,
        }
    }

    /// Adds a range; `Some`: its first byte and its end.
    fn ask_range(
        &mut self,
        request: ModelRequest,
        length: usize,
        faults: &mut Faults,
    ) -> (ModelRequest, Option<(usize, usize)>) {
        if self.dice.chance(700) {
            return (request, None);
        }
        let (from, count) = (self.dice.below(length + 1), 1 + self.dice.below(length + 2));
        let (text, range) = match self.dice.below(3) {
            0 => (format!("bytes={from}-{}", from + count - 1), (from, length.min(from + count))),
            1 => (format!("bytes={from}-"), (from, length)),
            _ => (format!("bytes=-{count}"), (length.saturating_sub(count), length)),
        };
        if range.0 >= length {
            faults.push("InvalidRange");
        }
        (request.header("range", text), Some(range))
    }

    /// Asks for a part of an object that was uploaded in parts: their numbers are those of the list that completed it.
    fn ask_part(
        &mut self,
        request: ModelRequest,
        parts: &[usize],
        faults: &mut Faults,
    ) -> (ModelRequest, Option<(usize, usize)>) {
        let at = self.dice.below(parts.len() + 1);
        let mut request = request;
        let mark = if request.target.contains('?') { '&' } else { '?' };
        request.target = format!("{}{mark}partNumber={}", request.target, at + 1);
        let Some(length) = parts.get(at) else {
            faults.push("InvalidPartNumber");
            return (request, None);
        };
        let from = parts[..at].iter().sum();
        (request, Some((from, from + length)))
    }

    pub(super) fn get_anonymous(&mut self) -> Checked {
        let (bucket, key) = (self.any_bucket(), self.any_key());
        let mut request = ModelRequest::new("GET", self.object_path(bucket, key));
        request.is_anonymous = true;
        let current = self.bucket(bucket).and_then(|bucket| bucket.current(key)).cloned();
        let faults: Faults = match &current {
            _ if self.bucket(bucket).is_none() => vec!["NoSuchBucket"],
            Some(object) if !object.metadata.is_public => vec!["AccessDenied"],
            Some(object) if matches!(object.encryption, ModelEncryption::Customer(_)) => vec!["InvalidRequest"],
            Some(_) => vec![],
            None => vec!["AccessDenied"],
        };
        let Some(answer) = self.expect(&request, &faults, &[200])? else { return Ok(()) };
        same("body", current.map(|object| object.bytes.len()), Some(answer.body.len()))
    }
}
