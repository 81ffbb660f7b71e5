//! Multipart uploads.

use std::rc::Rc;

use super::answers::{self, answered_etag, differs, elements, same};
use super::asks::{AskedEncryption, Faults, ModelRequest, with_customer_key};
use super::digests::{base64_md5, md5_hex};
use super::state::{ModelEncryption, ModelObject, ModelPart, ModelUpload, completed_etag, etag};
use super::{Checked, S3Model};
use crate::http::element;

/// An upload that a request names.
#[derive(Debug, Clone)]
struct NamedUpload {
    bucket: usize,
    key: String,
    id: String,
    /// Its place among the open ones; `None`: it is gone.
    at: Option<usize>,
}

impl S3Model<'_> {
    pub(super) fn create_upload(&mut self) -> Checked {
        let (bucket, key) = (self.any_bucket(), self.any_key());
        let mut faults: Faults = Vec::new();
        let metadata = self.new_metadata();
        let request = ModelRequest::new("POST", format!("{}?uploads", self.object_path(bucket, key)));
        let request = self.ask_metadata(request, &metadata);
        let (request, encryption) = self.ask_encryption(request, &mut faults);
        let has_lock = self.bucket(bucket).is_some_and(|bucket| bucket.lock.is_some());
        let (request, lock) = self.ask_lock(request, has_lock, &mut faults);
        if self.bucket(bucket).is_none() {
            faults.push("NoSuchBucket");
        }
        let begun = self.now();
        let Some(answer) = self.expect(&request, &faults, &[200])? else { return Ok(()) };
        let encryption = match encryption {
            AskedEncryption::Default => self.bucket_mut(bucket).default_encryption(),
            AskedEncryption::Named(named) => named,
        };
        answers::encryption(&answer, encryption)?;
        let Some(id) = answer.element("UploadId").map(str::to_owned) else { return differs("upload", "an id", "none") };
        let parts = std::collections::BTreeMap::new();
        let upload = ModelUpload { id, key: key.to_owned(), begun, parts, metadata, encryption, lock };
        self.bucket_mut(bucket).uploads.push(upload);
        Ok(())
    }

    /// An open upload, mostly; `None`: there never was one.
    fn any_upload(&mut self) -> Option<NamedUpload> {
        let bucket = self.any_bucket();
        let count = self.bucket(bucket)?.uploads.len();
        if count > 0 && self.dice.chance(930) {
            let at = self.dice.below(count);
            let upload = &self.bucket(bucket)?.uploads[at];
            return Some(NamedUpload { bucket, key: upload.key.clone(), id: upload.id.clone(), at: Some(at) });
        }
        let id = self.bucket(bucket)?.gone_uploads.last()?.clone();
        Some(NamedUpload { bucket, key: self.any_key().to_owned(), id, at: None })
    }

    fn upload(&self, named: &NamedUpload) -> Option<&ModelUpload> {
        self.bucket(named.bucket)?.uploads.get(named.at?)
    }

    fn upload_target(&self, named: &NamedUpload, parameter: &str) -> String {
        format!("{}?{parameter}uploadId={}", self.object_path(named.bucket, &named.key), named.id)
    }

    /// Adds the customer's key of an upload, now and then another one or none.
    fn ask_part_key(&mut self, request: ModelRequest, named: &NamedUpload, faults: &mut Faults) -> ModelRequest {
        let encryption = self.upload(named).map_or(ModelEncryption::Plain, |upload| upload.encryption);
        match encryption {
            ModelEncryption::Customer(number) => match self.dice.below(12) {
                0 => {
                    faults.push("InvalidRequest");
                    request
                }
                1 => {
                    faults.push("InvalidRequest");
                    with_customer_key(request, "", 1 - number)
                }
                _ => with_customer_key(request, "", number),
            },
            _ if named.at.is_some() && self.dice.chance(30) => {
                faults.push("InvalidRequest");
                with_customer_key(request, "", 0)
            }
            _ => request,
        }
    }

    /// The length of a part: long enough to be in front of others, or short.
    fn new_part(&mut self) -> Vec<u8> {
        let least = self.bounds.part_bytes_min;
        // Long parts cost much where the least length is that of S3.
        let is_long = self.dice.chance(if least > 100_000 { 100 } else { 700 });
        let length = if is_long { least + self.dice.below(3000) } else { self.dice.below(least.min(2000)) };
        self.dice.bytes(length)
    }

    pub(super) fn upload_part(&mut self) -> Checked {
        let Some(named) = self.any_upload() else { return Ok(()) };
        let (number, bytes) = (1 + self.dice.below(4) as u32, self.new_part());
        let mut faults: Faults = if named.at.is_none() { vec!["NoSuchUpload"] } else { vec![] };
        let request = ModelRequest::new("PUT", self.upload_target(&named, &format!("partNumber={number}&")));
        let request = self.ask_part_key(request, &named, &mut faults);
        let request = match self.dice.below(16) {
            0 => {
                faults.push("BadDigest");
                request.header("content-md5", base64_md5(b"other bytes"))
            }
            _ => request.header("content-md5", base64_md5(&bytes)),
        };
        let request = request.body(bytes.clone());
        let Some(answer) = self.expect(&request, &faults, &[200])? else { return Ok(()) };
        let shown = answered_etag(&answer);
        self.add_part(&named, number, bytes, &shown)?;
        let encryption = self.upload(&named).map_or(ModelEncryption::Plain, |upload| upload.encryption);
        answers::encryption(&answer, encryption)
    }

    fn add_part(&mut self, named: &NamedUpload, number: u32, bytes: Vec<u8>, shown: &str) -> Checked {
        let encryption = self.upload(named).map_or(ModelEncryption::Plain, |upload| upload.encryption);
        let etag = etag(&bytes, encryption, shown);
        same("etag of the part", &etag, &shown.to_owned())?;
        let Some(at) = named.at else { return differs("part", "a refusal", shown) };
        self.bucket_mut(named.bucket).uploads[at].parts.insert(number, ModelPart { bytes: Rc::new(bytes), etag });
        Ok(())
    }

    pub(super) fn copy_part(&mut self) -> Checked {
        let Some(named) = self.any_upload() else { return Ok(()) };
        let (number, source) = (1 + self.dice.below(4) as u32, self.any_version());
        let mut faults: Faults = if named.at.is_none() { vec!["NoSuchUpload"] } else { vec![] };
        let request = ModelRequest::new("PUT", self.upload_target(&named, &format!("partNumber={number}&")));
        let request = self.ask_part_key(request, &named, &mut faults);
        let (mut request, object) = self.ask_source(request, &source, &mut faults);
        let length = object.as_ref().map_or(0, |object| object.bytes.len());
        let mut range = (0, length);
        if self.dice.chance(500) && length > 0 {
            let from = self.dice.below(length);
            range = (from, from + 1 + self.dice.below(length - from));
            request = request.header("x-amz-copy-source-range", format!("bytes={}-{}", range.0, range.1 - 1));
        }
        let Some(answer) = self.expect(&request, &faults, &[200])? else { return Ok(()) };
        let Some(object) = object else { return differs("copied part", "a refusal", answer.status) };
        let text = answer.text();
        let shown = element(&text, "ETag").unwrap_or_default().replace("&quot;", "");
        self.add_part(&named, number, object.bytes[range.0..range.1].to_vec(), &shown)
    }

    pub(super) fn list_parts(&mut self) -> Checked {
        let Some(named) = self.any_upload() else { return Ok(()) };
        let faults: Faults = if named.at.is_none() { vec!["NoSuchUpload"] } else { vec![] };
        let (mut after, mut found) = (0, Vec::new());
        loop {
            let query = format!("max-parts=2&part-number-marker={after}&");
            let request = ModelRequest::new("GET", self.upload_target(&named, &query));
            let Some(answer) = self.expect(&request, &faults, &[200])? else { return Ok(()) };
            let text = answer.text();
            for part in elements(&text, "Part") {
                let of = |name| element(part, name).unwrap_or_default().replace("&quot;", "");
                found.push((of("PartNumber"), of("Size"), of("ETag").trim_matches('"').to_owned()));
            }
            match element(&text, "NextPartNumberMarker") {
                Some(next) if element(&text, "IsTruncated") == Some("true") => after = next.parse().unwrap_or(0),
                _ => break,
            }
        }
        let Some(upload) = self.upload(&named) else { return differs("parts", "a refusal", found) };
        let row =
            |(number, part): (&u32, &ModelPart)| (number.to_string(), part.bytes.len().to_string(), part.etag.clone());
        same("parts", upload.parts.iter().map(row).collect::<Vec<_>>(), found)
    }

    pub(super) fn complete_upload(&mut self) -> Checked {
        let Some(named) = self.any_upload() else { return Ok(()) };
        let upload = self.upload(&named).cloned();
        let mut faults: Faults = if upload.is_none() { vec!["NoSuchUpload"] } else { vec![] };
        let mut listed: Vec<(u32, String)> = Vec::new();
        for (number, part) in upload.iter().flat_map(|upload| &upload.parts) {
            if self.dice.chance(900) {
                listed.push((*number, part.etag.clone()));
            }
        }
        self.break_list(&mut listed, &mut faults);
        if let Some(upload) = &upload {
            let part = |number: &u32| upload.parts.get(number).map_or(usize::MAX, |part| part.bytes.len());
            let before = listed.len().saturating_sub(1);
            if listed[..before].iter().any(|(number, _)| part(number) < self.bounds.part_bytes_min) {
                faults.push("EntityTooSmall");
            }
        }
        let part = |(number, etag): &(u32, String)| {
            format!("<Part><PartNumber>{number}</PartNumber><ETag>\"{etag}\"</ETag></Part>")
        };
        let document = listed.iter().map(part).collect::<String>();
        let document = format!("<CompleteMultipartUpload>{document}</CompleteMultipartUpload>");
        let request = ModelRequest::new("POST", self.upload_target(&named, ""));
        let request = self.ask_write_conditions(request, named.bucket, &named.key, &mut faults);
        let Some(answer) = self.expect(&request.body(document), &faults, &[200])? else { return Ok(()) };
        let Some(upload) = upload else { return differs("completion", "a refusal", answer.status) };
        self.follow_completion(&named, upload, &listed, &answer)
    }

    /// Now and then makes a list of parts wrong.
    fn break_list(&mut self, listed: &mut Vec<(u32, String)>, faults: &mut Faults) {
        if listed.is_empty() {
            faults.push("MalformedXML");
            return;
        }
        match self.dice.below(20) {
            0 => {
                listed[0].1 = md5_hex(b"other bytes");
                faults.push("InvalidPart");
            }
            1 => {
                listed.push((9, md5_hex(b"no such part")));
                faults.push("InvalidPart");
            }
            2 if listed.len() > 1 => {
                listed.reverse();
                faults.push("InvalidPartOrder");
            }
            _ => {}
        }
    }

    fn follow_completion(
        &mut self,
        named: &NamedUpload,
        upload: ModelUpload,
        listed: &[(u32, String)],
        answer: &crate::http::HttpResponse,
    ) -> Checked {
        let parts: Vec<&ModelPart> = listed.iter().filter_map(|(number, _)| upload.parts.get(number)).collect();
        let text = answer.text();
        let shown = element(&text, "ETag").unwrap_or_default().replace("&quot;", "").trim_matches('"').to_owned();
        let etag = match upload.encryption {
            ModelEncryption::Customer(_) => shown.clone(),
            _ => completed_etag(&parts),
        };
        same("etag", &etag, &shown)?;
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes.iter().copied()).collect();
        let lengths = parts.iter().map(|part| part.bytes.len()).collect();
        let now = self.now();
        let bucket = self.bucket_mut(named.bucket);
        bucket.uploads.retain(|other| other.id != named.id);
        let lock = bucket.new_lock(upload.lock, now);
        let object = ModelObject {
            bytes: Rc::new(bytes),
            parts: Some(lengths),
            etag,
            metadata: upload.metadata,
            encryption: upload.encryption,
            lock,
            sha256: None,
        };
        self.add_object(named.bucket, &named.key, answer, object)
    }

    pub(super) fn abort_upload(&mut self) -> Checked {
        let Some(named) = self.any_upload() else { return Ok(()) };
        let faults: Faults = if named.at.is_none() { vec!["NoSuchUpload"] } else { vec![] };
        let request = ModelRequest::new("DELETE", self.upload_target(&named, ""));
        if self.expect(&request, &faults, &[204])?.is_some() {
            let bucket = self.bucket_mut(named.bucket);
            bucket.uploads.retain(|other| other.id != named.id);
            bucket.gone_uploads.push(named.id);
        }
        Ok(())
    }

    pub(super) fn list_uploads(&mut self) -> Checked {
        let bucket = self.any_bucket();
        let faults: Faults = if self.bucket(bucket).is_none() { vec!["NoSuchBucket"] } else { vec![] };
        let request = ModelRequest::new("GET", format!("/{}?uploads", self.bucket_name(bucket)));
        let Some(answer) = self.expect(&request, &faults, &[200])? else { return Ok(()) };
        let text = answer.text();
        let of = |one: &&str, name| element(one, name).unwrap_or_default().to_owned();
        let mut found: Vec<_> =
            elements(&text, "Upload").iter().map(|one| (of(one, "Key"), of(one, "UploadId"))).collect();
        let uploads = &self.bucket_mut(bucket).uploads;
        let mut expected: Vec<_> = uploads.iter().map(|upload| (upload.key.clone(), upload.id.clone())).collect();
        let keys: Vec<_> = found.iter().map(|(key, _)| key.clone()).collect();
        let mut sorted = keys.clone();
        sorted.sort();
        same("order of uploads", sorted, keys)?;
        found.sort();
        expected.sort();
        same("uploads", expected, found)
    }
}
