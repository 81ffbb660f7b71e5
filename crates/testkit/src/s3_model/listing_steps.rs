//! Listings, page by page.

use super::answers::{differs, elements, same};
use super::asks::ModelRequest;
use super::object_steps::escaped_key;
use super::state::ModelVersion;
use super::{Checked, S3Model};
use crate::http::element;

/// A listed version.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ShownVersion {
    key: String,
    id: Option<String>,
    is_latest: bool,
    /// Entity tag and length; `None`: a delete marker.
    object: Option<(String, String)>,
}

impl S3Model<'_> {
    pub(super) fn list_objects(&mut self) -> Checked {
        let (bucket, size) = (self.any_bucket(), 1 + self.dice.below(4));
        let prefix = *self.dice.pick(&["", "", "a/", "b"]);
        let has_delimiter = self.dice.chance(300);
        let mut names = Vec::new();
        let mut after = String::new();
        loop {
            let delimiter = if has_delimiter { "&delimiter=/" } else { "" };
            let query = format!("list-type=2&max-keys={size}&prefix={prefix}{delimiter}{after}");
            let request = ModelRequest::new("GET", format!("/{}?{query}", self.bucket_name(bucket)));
            let faults = if self.bucket(bucket).is_none() { vec!["NoSuchBucket"] } else { vec![] };
            let Some(answer) = self.expect(&request, &faults, &[200])? else { return Ok(()) };
            let text = answer.text();
            let of = |one: &&str, name| element(one, name).unwrap_or_default().replace("&quot;", "\"");
            for one in elements(&text, "Contents") {
                names.push(format!("{} {} {}", of(&one, "Key"), of(&one, "ETag").trim_matches('"'), of(&one, "Size")));
            }
            names.extend(elements(&text, "CommonPrefixes").iter().map(|one| of(one, "Prefix")));
            match element(&text, "NextContinuationToken") {
                Some(token) => after = format!("&continuation-token={}", token.replace('+', "%2B").replace('=', "%3D")),
                None => break,
            }
            if names.len() > 100 {
                return differs("listing", "an end", names);
            }
        }
        let found = self.bucket_mut(bucket);
        let mut expected: Vec<String> = Vec::new();
        for key in found.keys.keys().filter(|key| key.starts_with(prefix)) {
            let Some(object) = found.current(key) else { continue };
            let line = match key[prefix.len()..].split_once('/') {
                Some((begin, _)) if has_delimiter => format!("{prefix}{begin}/"),
                _ => format!("{key} {} {}", object.etag, object.bytes.len()),
            };
            if expected.last() != Some(&line) {
                expected.push(line);
            }
        }
        // A page has its keys in front of its common prefixes.
        expected.sort();
        names.sort();
        same("listing", expected, names)
    }

    pub(super) fn list_versions(&mut self) -> Checked {
        let bucket = self.any_bucket();
        self.compare_versions(bucket)
    }

    /// Compares all versions of a bucket, and learns the ids of delete markers that the lifecycle made.
    pub(super) fn compare_versions(&mut self, bucket: usize) -> Checked {
        let size = 1 + self.dice.below(6);
        let mut found: Vec<ShownVersion> = Vec::new();
        let mut after = String::new();
        loop {
            let query = format!("versions&max-keys={size}{after}");
            let request = ModelRequest::new("GET", format!("/{}?{query}", self.bucket_name(bucket)));
            let faults = if self.bucket(bucket).is_none() { vec!["NoSuchBucket"] } else { vec![] };
            let Some(answer) = self.expect(&request, &faults, &[200])? else { return Ok(()) };
            let text = answer.text();
            found.extend(listed(&text));
            match (element(&text, "NextKeyMarker"), element(&text, "NextVersionIdMarker")) {
                (Some(key), id) => {
                    let id = id.map(|id| format!("&version-id-marker={id}")).unwrap_or_default();
                    after = format!("&key-marker={}{id}", escaped_key(key));
                }
                _ => break,
            }
        }
        let line = |key: &String, at: usize, version: &ModelVersion| ShownVersion {
            key: key.clone(),
            id: version.id.clone(),
            is_latest: at == 0,
            object: version.object.as_ref().map(|object| (object.etag.clone(), object.bytes.len().to_string())),
        };
        let mut rest = found.iter();
        for (key, versions) in &mut self.bucket_mut(bucket).keys {
            for (at, version) in versions.iter_mut().enumerate() {
                let Some(shown) = rest.next() else { return differs("versions", line(key, at, version), "the end") };
                if version.id.is_none() && version.object.is_none() {
                    version.id.clone_from(&shown.id);
                }
                same("version", line(key, at, version), shown.clone())?;
            }
        }
        match rest.next() {
            Some(more) => differs("versions", "the end", more),
            None => Ok(()),
        }
    }
}

/// The versions and delete markers of a page, in order.
fn listed(text: &str) -> Vec<ShownVersion> {
    let mut all = Vec::new();
    let mut rest = text;
    loop {
        let version = rest.find("<Version>").unwrap_or(usize::MAX);
        let marker = rest.find("<DeleteMarker>").unwrap_or(usize::MAX);
        let begin = version.min(marker);
        if begin == usize::MAX {
            return all;
        }
        let end = if version < marker { "</Version>" } else { "</DeleteMarker>" };
        let Some((one, after)) = rest[begin..].split_once(end) else { return all };
        let of = |name| element(one, name).unwrap_or_default().replace("&quot;", "\"");
        all.push(ShownVersion {
            key: of("Key"),
            id: element(one, "VersionId").map(str::to_owned),
            is_latest: of("IsLatest") == "true",
            object: (version < marker).then(|| (of("ETag").trim_matches('"').to_owned(), of("Size"))),
        });
        rest = after;
    }
}
