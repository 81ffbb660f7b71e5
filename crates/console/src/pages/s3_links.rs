//! Links between the pages of S3, the object that one names, and the path above a page.

use bytes::Bytes;
use larder_rows::limits::S3_KEY_BYTES_MAX;
use larder_s3::get::{GetObject, VersionSpec};
use larder_s3_rules::S3Action;

use crate::call::ConsoleCall;
use crate::escaped::shown;
use crate::faults::ConsoleFault;
use crate::href::Href;

/// Most folders of a path that have a link of their own: each link repeats those above it.
const FOLDERS_SHOWN: usize = 16;
/// Lines of a page.
pub(super) const LINES_SHOWN: usize = 100;

/// The object, or the version of it, in the link of a page.
pub(super) struct ObjectLink {
    pub(super) bucket: String,
    pub(super) key: Bytes,
    pub(super) version: Option<String>,
}

impl ObjectLink {
    pub(super) fn from_call(call: &ConsoleCall<'_>) -> Result<Self, ConsoleFault> {
        let query = &call.query;
        let version = query.given("version").map(|_| query.text("version"));
        Ok(Self { bucket: query.text("bucket"), key: checked_key(query.bytes("key"))?, version })
    }

    pub(super) fn spec(&self) -> VersionSpec {
        self.version.clone().map_or(VersionSpec::Current, VersionSpec::Id)
    }

    pub(super) fn get(&self) -> GetObject {
        let (bucket, key) = (self.bucket.clone(), self.key.clone());
        GetObject { bucket, key, version: self.spec(), ..GetObject::default() }
    }

    pub(super) fn to(&self, path: &'static str) -> Href {
        let href = Href::to(path).with("bucket", self.bucket.as_bytes()).with("key", &self.key);
        match &self.version {
            Some(version) => href.with("version", version.as_bytes()),
            None => href,
        }
    }

    pub(super) fn spec_action(&self, action: S3Action) -> S3Action {
        if self.version.is_some() { action.versioned() } else { action }
    }
}

/// The key of an object in a link or a form: at least one byte, and at most as many as S3 keys have.
///
/// # Errors
/// Another key. Its bytes would come back in every link of its page.
pub(super) fn checked_key(key: Bytes) -> Result<Bytes, ConsoleFault> {
    match key.len() {
        0 => Err(ConsoleFault::bad("The key is empty.")),
        1..=S3_KEY_BYTES_MAX => Ok(key),
        _ => Err(ConsoleFault::bad(format!("The key is longer than {S3_KEY_BYTES_MAX} bytes."))),
    }
}

/// A key that is to be written: one that S3 clients can name afterwards.
///
/// # Errors
/// As [`checked_key`]; bytes that are no UTF-8.
pub(super) fn new_key(key: Bytes) -> Result<Bytes, ConsoleFault> {
    let key = checked_key(key)?;
    match std::str::from_utf8(&key) {
        Ok(_) => Ok(key),
        Err(_) => Err(ConsoleFault::bad("The key is no UTF-8: S3 clients could not name it.")),
    }
}

/// The objects of a bucket.
pub(super) fn to_bucket(name: &str) -> Href {
    Href::to("/s3/bucket").with("bucket", name.as_bytes())
}

/// The settings of a bucket.
pub(super) fn to_settings(bucket: &str) -> Href {
    Href::to("/s3/settings").with("bucket", bucket.as_bytes())
}

/// The open uploads of a bucket.
pub(super) fn to_uploads(bucket: &str) -> Href {
    Href::to("/s3/uploads").with("bucket", bucket.as_bytes())
}

/// An object with its versions.
pub(super) fn to_s3_object(bucket: &str, key: &[u8]) -> Href {
    Href::to("/s3/object").with("bucket", bucket.as_bytes()).with("key", key)
}

/// The pages above a folder, each folder with its own, and the name of this one.
pub(super) fn folders(bucket: &str, prefix: &[u8]) -> (Vec<(Href, String)>, String) {
    let mut steps = vec![(Href::to("/s3"), "S3".to_owned()), (to_bucket(bucket), shown(bucket.as_bytes()))];
    let mut begin = 0;
    for (at, _) in prefix.iter().enumerate().filter(|(_, byte)| **byte == b'/').take(FOLDERS_SHOWN) {
        steps.push((to_bucket(bucket).with("prefix", &prefix[..=at]), shown(&prefix[begin..=at])));
        begin = at + 1;
    }
    if begin < prefix.len() {
        steps.push((to_bucket(bucket).with("prefix", prefix), shown(&prefix[begin..])));
    }
    // The last one is this page.
    let here = steps.pop().map(|(_, name)| name).unwrap_or_default();
    (steps, here)
}

/// The pages above an object: its bucket, and the folders that its key names.
pub(super) fn above_object(bucket: &str, key: &[u8]) -> Vec<(Href, String)> {
    let folder = key.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let (mut steps, here) = folders(bucket, &key[..folder]);
    let link = if folder == 0 { to_bucket(bucket) } else { to_bucket(bucket).with("prefix", &key[..folder]) };
    steps.push((link, here));
    steps
}

/// A name without the folder that the page is about.
pub(super) fn below(prefix: &[u8], name: &[u8]) -> String {
    let folder = prefix.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    shown(name.get(folder..).filter(|short| !short.is_empty()).unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_of_a_prefix_has_a_page() {
        let names = |prefix: &[u8]| {
            let (steps, here) = folders("b", prefix);
            steps.into_iter().map(|(_, name)| name).chain([here]).collect::<Vec<_>>()
        };
        assert_eq!(names(b""), ["S3", "b"]);
        assert_eq!(names(b"a/b/"), ["S3", "b", "a/", "b/"]);
        assert_eq!(names(b"a/b"), ["S3", "b", "a/", "b"]);
        assert_eq!(names(b"//"), ["S3", "b", "/", "/"]);
        let above: Vec<_> = above_object("b", b"a/key").into_iter().map(|(href, name)| (href.text(), name)).collect();
        assert_eq!(above[2], ("/s3/bucket?bucket=b&prefix=a%2F".into(), "a/".into()));
        assert_eq!(above_object("b", b"key").len(), 2);
        assert_eq!(
            (below(b"a/", b"a/key"), below(b"a", b"ab"), below(b"a/", b"a/")),
            ("key".into(), "ab".into(), "a/".into())
        );
    }
}
