//! The documents of a source, read from XML. Each is bounded before it comes here; none is believed.

use std::fmt;

use bytes::Bytes;
use larder_api_s3::errors::{Code, S3Error};
use larder_api_s3::target::decode_plus;
use larder_api_s3::xml::LenientXmlReader;
use larder_rows::Timestamp;
use larder_rows::limits::ACL_GRANTS_MAX;
use larder_s3::acl::GranteeRef;
use larder_s3_rules::{Permission, dates};

use crate::rules::ListingError;
use crate::source_calls::first_line;

/// Most bytes of a key: what a request can name. S3 has 1024, and Riak CS lets its operator choose.
const KEY_BYTES_MAX: usize = 16 << 10;
/// Most bytes of a version id, as of S3.
const VERSION_ID_BYTES_MAX: usize = 1024;
/// The date of nothing: MinIO writes it, and it is before 1970.
const NO_DATE: &str = "0001-01-01T00:00:00";

/// A version of an object, or a delete marker, as a source lists it.
#[derive(Default, Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceVersion {
    /// The key.
    pub(crate) key: Bytes,
    /// The id of the version; `null` in a bucket without versioning, `None` at a source that lists no versions.
    pub(crate) version_id: Option<String>,
    /// Whether the key shows it.
    pub(crate) is_latest: bool,
    /// Whether it is a delete marker.
    pub(crate) is_marker: bool,
    /// The entity tag without its quotes; empty for a delete marker.
    pub(crate) etag: String,
    /// Bytes of the body; 0 for a delete marker.
    pub(crate) length: u64,
    /// Its last modification.
    pub(crate) modified: Timestamp,
}

/// The last entry of a page: the next one begins after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceVersionMarker {
    /// The key.
    pub(crate) key: Bytes,
    /// The version; `None`: all of the key are listed.
    pub(crate) version: Option<String>,
}

/// A page of the versions of a bucket: by key, of each key the newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VersionPage {
    /// The versions.
    pub(crate) versions: Vec<SourceVersion>,
    /// Where the next page begins; `None` on the last one.
    pub(crate) next: Option<SourceVersionMarker>,
}

/// A page of the caller's buckets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BucketNames {
    pub(super) names: Vec<String>,
    /// The token of the next page.
    pub(super) next: Option<String>,
}

/// The error in an answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct S3ErrorDocument {
    /// Its code; empty where the answer is no such document.
    pub(super) code: String,
    /// Its message, or the first line of another answer.
    pub(super) message: String,
    /// The region that a signature has to name.
    pub(super) region: Option<String>,
}

impl VersionPage {
    /// Reads an answer to `?versions`; `None`: it lists objects without their versions.
    ///
    /// # Errors
    /// It is no listing.
    pub(super) fn versions(document: &[u8]) -> Result<Option<Self>, ListingError> {
        form(read_page(document, PageKind::Versions))
    }

    /// Reads a page of current objects, which have no version ids.
    ///
    /// # Errors
    /// It is no listing.
    pub(super) fn objects(document: &[u8]) -> Result<Self, ListingError> {
        form(read_page(document, PageKind::Objects))?.ok_or(ListingError::Form)
    }
}

/// What a page lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageKind {
    Versions,
    Objects,
}

/// A page whose names are not yet decoded: some sources say at the end how they are encoded.
#[derive(Default)]
struct EncodedPage {
    is_truncated: Option<bool>,
    is_encoded: bool,
    entries: Vec<(String, SourceVersion)>,
    next_key: Option<String>,
    next_version: Option<String>,
}

fn read_page(document: &[u8], kind: PageKind) -> Result<Option<VersionPage>, S3Error> {
    let mut xml = LenientXmlReader::new(document)?;
    match (xml.next_child()?, kind) {
        (Some("ListVersionsResult"), PageKind::Versions) | (Some("ListBucketResult"), PageKind::Objects) => {}
        (Some("ListBucketResult"), PageKind::Versions) => return Ok(None),
        _ => return Err(malformed()),
    }
    let mut page = EncodedPage::default();
    while let Some(name) = xml.next_child()? {
        match (name, kind) {
            ("IsTruncated", _) => page.is_truncated = Some(xml.parse_text()?),
            ("EncodingType", _) => page.is_encoded = xml.text()?.trim() == "url",
            ("NextKeyMarker", PageKind::Versions) | ("NextMarker", PageKind::Objects) => {
                page.next_key = Some(xml.text()?).filter(|key| !key.is_empty());
            }
            ("NextVersionIdMarker", PageKind::Versions) => page.next_version = version_id(xml.text()?)?,
            ("Version" | "DeleteMarker", PageKind::Versions) | ("Contents", PageKind::Objects) => {
                page.entries.push(entry(&mut xml, kind, name == "DeleteMarker")?);
            }
            _ => xml.skip()?,
        }
    }
    xml.expect_end()?;
    page.decode(kind).map(Some)
}

/// An entry, and its key as it is written.
fn entry(xml: &mut LenientXmlReader<'_>, kind: PageKind, is_marker: bool) -> Result<(String, SourceVersion), S3Error> {
    let (mut key, mut length, mut modified, mut version, mut etag) = (None, None, None, None, String::new());
    let mut is_latest = kind == PageKind::Objects;
    while let Some(name) = xml.next_child()? {
        match name {
            "Key" => key = Some(xml.text()?),
            "VersionId" if kind == PageKind::Versions => version = version_id(xml.text()?)?,
            "IsLatest" if kind == PageKind::Versions => is_latest = xml.parse_text()?,
            "LastModified" => modified = Some(time(&xml.text()?)?),
            "ETag" => etag = unquoted(&xml.text()?),
            "Size" => length = Some(xml.parse_text()?),
            _ => xml.skip()?,
        }
    }
    let (Some(key), Some(modified)) = (key, modified) else { return Err(malformed()) };
    let length = length.or(is_marker.then_some(0)).ok_or_else(malformed)?;
    // No request could name an older version without its id.
    if version.is_none() && !is_latest {
        return Err(malformed());
    }
    let key_bytes = Bytes::new();
    Ok((key, SourceVersion { key: key_bytes, version_id: version, is_latest, is_marker, etag, length, modified }))
}

impl EncodedPage {
    fn decode(self, kind: PageKind) -> Result<VersionPage, S3Error> {
        let is_truncated = self.is_truncated.ok_or_else(malformed)?;
        let is_encoded = self.is_encoded;
        let decoded =
            |(text, version): (String, SourceVersion)| Ok(SourceVersion { key: key(text, is_encoded)?, ..version });
        let versions = self.entries.into_iter().map(decoded).collect::<Result<Vec<_>, S3Error>>()?;
        let next = match (is_truncated, self.next_key, versions.last()) {
            (false, ..) => None,
            (true, Some(text), _) => {
                Some(SourceVersionMarker { key: key(text, is_encoded)?, version: self.next_version })
            }
            (true, None, Some(last)) => {
                let version = last.version_id.clone().filter(|_| kind == PageKind::Versions);
                Some(SourceVersionMarker { key: last.key.clone(), version })
            }
            // It says that there is more, but not where.
            (true, None, None) => return Err(malformed()),
        };
        Ok(VersionPage { versions, next })
    }
}

fn key(text: String, is_encoded: bool) -> Result<Bytes, S3Error> {
    let key: Bytes = if is_encoded { decode_plus(&text).into_owned().into() } else { text.into() };
    if key.is_empty() || key.len() > KEY_BYTES_MAX { Err(malformed()) } else { Ok(key) }
}

fn version_id(text: String) -> Result<Option<String>, S3Error> {
    match text.len() {
        0 => Ok(None),
        1..=VERSION_ID_BYTES_MAX => Ok(Some(text)),
        _ => Err(malformed()),
    }
}

fn time(text: &str) -> Result<Timestamp, S3Error> {
    let text = text.trim();
    let nothing = || text.starts_with(NO_DATE).then_some(Timestamp::ZERO);
    dates::parse_iso(text).or_else(|| dates::parse_any(text)).or_else(nothing).ok_or_else(malformed)
}

fn unquoted(etag: &str) -> String {
    let etag = etag.trim();
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"').to_owned()
}

impl BucketNames {
    /// Reads a page of buckets.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn read(document: &[u8]) -> Result<Self, ListingError> {
        form(Self::try_read(document))
    }

    fn try_read(document: &[u8]) -> Result<Self, S3Error> {
        let mut xml = LenientXmlReader::open(document, "ListAllMyBucketsResult")?;
        let mut page = Self { names: Vec::new(), next: None };
        while let Some(name) = xml.next_child()? {
            match name {
                "Buckets" => elements(&mut xml, "Bucket", |bucket| {
                    let name = texts(bucket, ["Name"])?.map(|name| name.filter(|name| !name.is_empty()));
                    let [Some(name)] = name else { return Err(malformed()) };
                    page.names.push(name);
                    Ok(())
                })?,
                "ContinuationToken" => page.next = Some(xml.text()?).filter(|token| !token.is_empty()),
                _ => xml.skip()?,
            }
        }
        xml.expect_end()?;
        Ok(page)
    }
}

/// Whether a document lists objects.
pub(super) fn is_listing(document: &[u8]) -> bool {
    LenientXmlReader::open(document, "ListBucketResult").is_ok()
}

/// The tags in a document of a bucket, or of an object.
///
/// # Errors
/// It is none.
pub(crate) fn source_tags(document: &[u8]) -> Result<Vec<(String, String)>, ListingError> {
    form(read_tags(document))
}

fn read_tags(document: &[u8]) -> Result<Vec<(String, String)>, S3Error> {
    let mut tags = Vec::new();
    let mut xml = LenientXmlReader::open(document, "Tagging")?;
    elements(&mut xml, "TagSet", |set| {
        elements(set, "Tag", |tag| {
            let [Some(key), value] = texts(tag, ["Key", "Value"])? else { return Err(malformed()) };
            tags.push((key, value.unwrap_or_default()));
            Ok(())
        })
    })?;
    xml.expect_end()?;
    Ok(tags)
}

/// The ACL in a document of a bucket, or of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SourceAcl {
    /// The id of the owner there.
    pub(super) owner: Option<String>,
    /// The grants that name somebody and something. A MinIO shows one to nobody.
    pub(super) grants: Vec<(Permission, GranteeRef)>,
}

impl SourceAcl {
    /// Reads a document; `None`: it is another one, as of a source that does not know ACLs.
    ///
    /// # Errors
    /// It breaks off, or has more grants than an ACL may have.
    pub(super) fn read(document: &[u8]) -> Result<Option<Self>, ListingError> {
        let Ok(xml) = LenientXmlReader::open(document, "AccessControlPolicy") else { return Ok(None) };
        form(Self::try_read(xml)).map(Some)
    }

    fn try_read(mut xml: LenientXmlReader<'_>) -> Result<Self, S3Error> {
        let mut acl = Self::default();
        while let Some(name) = xml.next_child()? {
            match name {
                "Owner" => [acl.owner] = texts(&mut xml, ["ID"])?,
                "AccessControlList" => elements(&mut xml, "Grant", |grant| acl.add(grant))?,
                _ => xml.skip()?,
            }
        }
        xml.expect_end()?;
        Ok(acl)
    }

    fn add(&mut self, grant: &mut LenientXmlReader<'_>) -> Result<(), S3Error> {
        let (mut permission, mut to) = (None, None);
        while let Some(name) = grant.next_child()? {
            match name {
                "Permission" => permission = Permission::named(grant.text()?.trim()),
                "Grantee" => to = grantee(texts(grant, ["ID", "URI", "EmailAddress"])?),
                _ => grant.skip()?,
            }
        }
        self.grants.extend(permission.zip(to));
        if self.grants.len() > ACL_GRANTS_MAX { Err(malformed()) } else { Ok(()) }
    }
}

fn grantee([id, uri, email]: [Option<String>; 3]) -> Option<GranteeRef> {
    id.map(GranteeRef::Id).or(uri.map(GranteeRef::Group)).or(email.map(GranteeRef::Email))
}

impl S3ErrorDocument {
    /// The error in the body of an answer, as far as it is one.
    pub(super) fn read(body: &[u8]) -> Self {
        let read = || -> Result<Self, S3Error> {
            let mut xml = LenientXmlReader::open(body, "Error")?;
            let [code, message, region] = texts(&mut xml, ["Code", "Message", "Region"])?;
            let line = |text: Option<String>| first_line(text.unwrap_or_default().trim().as_bytes());
            Ok(Self { code: line(code), message: line(message), region: region.filter(|region| is_region(region)) })
        };
        read().unwrap_or_else(|_| Self { message: first_line(body), ..Self::default() })
    }
}

impl fmt::Display for S3ErrorDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code.as_str(), self.message.as_str()) {
            ("", message) => f.write_str(message),
            (code, "") => f.write_str(code),
            (code, message) => write!(f, "{code}: {message}"),
        }
    }
}

/// Whether a text may be the region of a signature.
pub(super) fn is_region(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Visits the children with this name, and skips the others.
fn elements(
    xml: &mut LenientXmlReader<'_>,
    name: &str,
    mut each: impl FnMut(&mut LenientXmlReader<'_>) -> Result<(), S3Error>,
) -> Result<(), S3Error> {
    while let Some(child) = xml.next_child()? {
        if child == name { each(xml)? } else { xml.skip()? }
    }
    Ok(())
}

/// The texts of the children with these names; the last one of a name counts.
fn texts<const N: usize>(xml: &mut LenientXmlReader<'_>, names: [&str; N]) -> Result<[Option<String>; N], S3Error> {
    let mut texts = [const { None }; N];
    while let Some(child) = xml.next_child()? {
        match names.iter().position(|name| *name == child) {
            Some(at) => texts[at] = Some(xml.text()?),
            None => xml.skip()?,
        }
    }
    Ok(texts)
}

fn form<T>(read: Result<T, S3Error>) -> Result<T, ListingError> {
    read.map_err(|_| ListingError::Form)
}

fn malformed() -> S3Error {
    Code::MalformedXML.into()
}

#[cfg(test)]
mod tests;
