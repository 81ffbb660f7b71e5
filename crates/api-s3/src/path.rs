//! Bucket and key of a request path. The path is decoded once and never normalised: `//`, `.` and `..` are bytes of a
//! key.

use std::borrow::Cow;

use bytes::Bytes;
use percent_encoding::percent_decode_str;

use crate::errors::{Code, S3Error};
use crate::host::AddressingStyle;

/// The bucket and the key that a request names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourcePath {
    /// The bucket; empty for the service.
    pub bucket: String,
    /// The key, UTF-8; empty for the bucket.
    pub key: Bytes,
}

impl ResourcePath {
    /// Parses a raw path under the given addressing style.
    ///
    /// # Errors
    /// `InvalidURI` if a name is not UTF-8 once decoded or the path does not begin with a slash; `InvalidBucketName` if
    /// a key has no bucket.
    pub fn parse(addressing: &AddressingStyle, path: &str) -> Result<Self, S3Error> {
        let rest = path.strip_prefix('/').ok_or(Code::InvalidURI)?;
        let (bucket, key) = match addressing {
            AddressingStyle::VirtualHosted(bucket) => (bucket.clone(), rest),
            AddressingStyle::PathStyle => {
                let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
                (text(bucket)?, key)
            }
        };
        if bucket.is_empty() && !key.is_empty() {
            return Err(Code::InvalidBucketName.into());
        }
        Ok(Self { bucket, key: text(key)?.into() })
    }

    /// The decoded path with its bucket, as error documents show it.
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

/// Decodes percent escapes; an invalid escape stays as it is.
pub(crate) fn decode(raw: &str) -> Cow<'_, [u8]> {
    percent_decode_str(raw).into()
}

fn text(raw: &str) -> Result<String, S3Error> {
    percent_decode_str(raw).decode_utf8().map(Cow::into_owned).map_err(|_| Code::InvalidURI.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(addressing: AddressingStyle, path: &str) -> Option<(String, String)> {
        let target = ResourcePath::parse(&addressing, path).ok()?;
        Some((target.bucket, String::from_utf8(target.key.to_vec()).unwrap()))
    }

    #[test]
    fn keys_are_decoded_once_and_never_normalised() {
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
            assert_eq!(target(AddressingStyle::PathStyle, path), Some((bucket.into(), key.into())), "{path}");
        }
        let host = AddressingStyle::VirtualHosted("v.h".into());
        assert_eq!(target(host.clone(), "/"), Some(("v.h".into(), String::new())));
        assert_eq!(target(host, "//k"), Some(("v.h".into(), "/k".into())));
        for path in ["", "b", "/b/%ff", "/%ff", "//k"] {
            assert_eq!(target(AddressingStyle::PathStyle, path), None, "{path}");
        }
    }
}
