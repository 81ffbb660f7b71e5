//! The source of a copy: `x-amz-copy-source` and its byte range.

use bytes::Bytes;
use larder_s3::get::{ReadWindow, VersionSpec};
use larder_s3_rules::tags::percent_decode;

use super::listing_document;
use crate::errors::S3Error;

/// The header that turns a PUT into a copy.
pub(crate) const COPY_SOURCE: &str = "x-amz-copy-source";
/// The header with the byte range of a part copy.
pub(crate) const COPY_SOURCE_RANGE: &str = "x-amz-copy-source-range";

/// The object to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopySource {
    /// Its bucket.
    pub(crate) bucket: String,
    /// Its key.
    pub(crate) key: Bytes,
    /// Its version.
    pub(crate) version: VersionSpec,
}

impl CopySource {
    /// Parses `/bucket/key` or `bucket/key`, percent-encoded, with or without `?versionId=`.
    ///
    /// # Errors
    /// 400 `InvalidArgument` for anything else.
    pub(crate) fn parse(text: &str) -> Result<Self, S3Error> {
        let bad = || {
            S3Error::argument(
                COPY_SOURCE,
                text,
                "Copy Source must mention the source bucket and key: sourcebucket/sourcekey",
            )
        };
        // The last one: a key may contain the text itself.
        let (path, version) = match text.rsplit_once("?versionId=") {
            Some((path, version)) => (path, VersionSpec::Id(percent_decode(version).ok_or_else(bad)?)),
            None => (text, VersionSpec::Current),
        };
        // Decoded before the split: some clients escape the slash as well.
        let path = percent_decode(path).ok_or_else(bad)?;
        let path = path.strip_prefix('/').unwrap_or(&path);
        match path.split_once('/') {
            Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() => {
                Ok(Self { bucket: bucket.to_owned(), key: Bytes::copy_from_slice(key.as_bytes()), version })
            }
            _ => Err(bad()),
        }
    }
}

/// Parses the byte range of a part copy: exactly `bytes=first-last`.
///
/// # Errors
/// 400 `InvalidArgument` for anything else.
pub(crate) fn part_window(text: Option<&str>) -> Result<ReadWindow, S3Error> {
    let Some(text) = text else { return Ok(ReadWindow::Whole) };
    let range = text.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    match range
        .and_then(|(first, last)| Some((listing_document::digits::<u64>(first)?, listing_document::digits(last)?)))
    {
        Some((first, last)) if first <= last => Ok(ReadWindow::Range(first, Some(last))),
        _ => Err(S3Error::argument(
            COPY_SOURCE_RANGE,
            text,
            "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the \
             zero-based offsets of the first and last bytes to copy",
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Option<(String, String, VersionSpec)> {
        let source = CopySource::parse(text).ok()?;
        Some((source.bucket, String::from_utf8(source.key.to_vec()).unwrap(), source.version))
    }

    #[test]
    fn a_source_is_a_bucket_and_a_key() {
        let current = |key: &str| Some(("b".to_owned(), key.to_owned(), VersionSpec::Current));
        assert_eq!(parsed("b/k"), current("k"));
        assert_eq!(parsed("/b/k/l"), current("k/l"));
        assert_eq!(parsed("b%2Fk%20%2B+"), current("k ++"));
        assert_eq!(parsed("b/k?versionId="), Some(("b".into(), "k".into(), VersionSpec::Id(String::new()))));
        assert_eq!(parsed("b/k%3FversionId=1"), current("k?versionId=1"));
        assert_eq!(parsed("b/k?versionId=null"), Some(("b".into(), "k".into(), VersionSpec::Id("null".into()))));
        for bad in ["", "/", "b", "/b", "b/", "//k", "b/k%", "b/k%2", "b/%zz", "b/%ff"] {
            let error = CopySource::parse(bad).unwrap_err();
            assert_eq!((error.code.name(), error.extras[0].1.as_str()), ("InvalidArgument", COPY_SOURCE), "{bad}");
        }
    }

    #[test]
    fn a_part_range_has_both_ends() {
        assert_eq!(part_window(None).unwrap(), ReadWindow::Whole);
        assert_eq!(part_window(Some("bytes=0-0")).unwrap(), ReadWindow::Range(0, Some(0)));
        assert_eq!(part_window(Some("bytes=7-20")).unwrap(), ReadWindow::Range(7, Some(20)));
        for bad in
            ["", "0-2", "bytes=0", "bytes=-5", "bytes=5-", "bytes=0-2,3-5", "bytes=3-2", "bytes=+1-2", "bytes= 1-2"]
        {
            let error = part_window(Some(bad)).unwrap_err();
            assert_eq!(
                (error.code.name(), error.extras[0].1.as_str()),
                ("InvalidArgument", COPY_SOURCE_RANGE),
                "{bad}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_source_or_none(text: String) {
            let _ = (CopySource::parse(&text), part_window(Some(&text)));
        }
    }
}
