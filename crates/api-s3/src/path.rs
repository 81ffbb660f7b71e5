//! Paths: the bucket and the key in them, decoded once and never tidied: `//`, `.` and `..` are bytes of a key.

use std::borrow::Cow;

use bytes::Bytes;
use percent_encoding::percent_decode_str;

use crate::errors::{Code, Fault};
use crate::host::Place;

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// The bucket; empty: the service itself.
    pub bucket: String,
    /// The key; empty: the bucket itself. UTF-8.
    pub key: Bytes,
}

impl Target {
    /// Reads a raw path, which begins with a slash, of a request that came to `place`.
    ///
    /// # Errors
    /// `InvalidURI`: a name is no UTF-8 once decoded, or the path does not begin with a slash.
    pub fn of(place: &Place, path: &str) -> Result<Self, Fault> {
        let rest = path.strip_prefix('/').ok_or(Code::InvalidURI)?;
        let (bucket, key) = match place {
            Place::Bucket(bucket) => (bucket.clone(), rest),
            Place::Service => {
                let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
                (text(bucket)?, key)
            }
        };
        if bucket.is_empty() && !key.is_empty() {
            return Err(Code::InvalidBucketName.into());
        }
        Ok(Self { bucket, key: text(key)?.into() })
    }

    /// The resource as error documents name it: decoded, with its bucket.
    #[must_use]
    pub fn resource(&self) -> String {
        let mut resource = format!("/{}", self.bucket);
        if !self.key.is_empty() {
            resource.push('/');
            resource.push_str(&String::from_utf8_lossy(&self.key));
        }
        resource
    }
}

/// Decodes the escapes of a path; one that is none stays as it is.
pub(crate) fn decode(raw: &str) -> Cow<'_, [u8]> {
    percent_decode_str(raw).into()
}

fn text(raw: &str) -> Result<String, Fault> {
    percent_decode_str(raw).decode_utf8().map(Cow::into_owned).map_err(|_| Code::InvalidURI.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(place: Place, path: &str) -> Option<(String, String)> {
        let target = Target::of(&place, path).ok()?;
        Some((target.bucket, String::from_utf8(target.key.to_vec()).unwrap()))
    }

    #[test]
    fn keys_are_decoded_once_and_never_tidied() {
        let cases = [
            ("/", "", ""),
            ("/b", "b", ""),
            ("/b/", "b", ""),
            ("/b/k", "b", "k"),
            ("/b//k/./../", "b", "/k/./../"),
            ("/b/a%2Fb%252F+%20c%zz", "b", "a/b%2F+ c%zz"),
            ("/b/%C3%a9", "b", "é"),
        ];
        for (path, bucket, key) in cases {
            assert_eq!(target(Place::Service, path), Some((bucket.into(), key.into())), "{path}");
        }
        let host = Place::Bucket("v.h".into());
        assert_eq!(target(host.clone(), "/"), Some(("v.h".into(), String::new())));
        assert_eq!(target(host, "//k"), Some(("v.h".into(), "/k".into())));
        for path in ["", "b", "/b/%ff", "/%ff", "//k"] {
            assert_eq!(target(Place::Service, path), None, "{path}");
        }
    }
}
