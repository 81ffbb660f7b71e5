//! Byte ranges of a value. An unsatisfiable range, and several at once, get the whole value, as in Riak.

use hyper::header::{HeaderMap, HeaderValue, IF_RANGE, RANGE};

use super::headers;

/// A range of a value's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByteRange {
    /// First byte.
    pub from: u64,
    /// Number of bytes, at least one.
    pub length: u64,
}

impl ByteRange {
    /// The range that a request asks for, of a value of `size` bytes with this entity tag; `None`: the whole value.
    #[must_use]
    pub(super) fn from_headers(headers: &HeaderMap, size: u64, etag: &str) -> Option<Self> {
        let range = headers.get(RANGE)?.to_str().ok()?;
        let is_other = |tag: &HeaderValue| tag.to_str().map_or(true, |tag| headers::tag(tag) != etag);
        // The client's part belongs to another value: it needs the whole of this one.
        if headers.get(IF_RANGE).is_some_and(is_other) {
            return None;
        }
        Self::parse(range, size)
    }

    fn parse(range: &str, size: u64) -> Option<Self> {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        let (first, last) = (number(first)?, number(last)?);
        match (first, last) {
            (Some(from), _) if from >= size => None,
            (Some(from), None) => Some(Self { from, length: size - from }),
            (Some(from), Some(to)) => Some(Self { from, length: to.min(size - 1).checked_sub(from)? + 1 }),
            (None, Some(tail)) if tail > 0 && size > 0 => {
                let length = tail.min(size);
                Some(Self { from: size - length, length })
            }
            (None, _) => None,
        }
    }

    /// The `Content-Range` header.
    #[must_use]
    pub(super) fn header(self, size: u64) -> String {
        format!("bytes {}-{}/{size}", self.from, self.from + self.length - 1)
    }
}

/// A number; the inner `None` is an empty text, the outer one is no number.
fn number(text: &str) -> Option<Option<u64>> {
    let text = text.trim();
    if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(range: &str, size: u64, span: Option<(u64, u64)>) {
        assert_eq!(
            ByteRange::parse(range, size),
            span.map(|(from, length)| ByteRange { from, length }),
            "{range} of {size}"
        );
    }

    #[test]
    fn ranges_are_cut_to_the_value() {
        check("bytes=0-1", 6, Some((0, 2)));
        check("bytes=2-", 6, Some((2, 4)));
        check("bytes=-2", 6, Some((4, 2)));
        check("bytes=-9", 6, Some((0, 6)));
        check("bytes=0-100", 6, Some((0, 6)));
        check("bytes=5-9", 1, None);
        check("bytes=3-1", 6, None);
        check("bytes=-0", 6, None);
        check("bytes=0-", 0, None);
        check("bytes=0-1,3-4", 6, None);
        check("items=0-1", 6, None);
        check("bytes=-", 6, None);
        assert_eq!(ByteRange { from: 0, length: 2 }.header(6), "bytes 0-1/6");
    }

    #[test]
    fn a_range_of_another_version_gets_the_whole_value() {
        let mut headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_static("bytes=0-0"))]);
        headers.insert(IF_RANGE, HeaderValue::from_static("\"old\""));
        assert_eq!(ByteRange::from_headers(&headers, 6, "new"), None);
        assert!(ByteRange::from_headers(&headers, 6, "old").is_some());
    }

    proptest! {
        #[test]
        fn ranges_lie_within_the_value(range in "bytes=[0-9]{0,20}-[0-9]{0,20}", size: u64) {
            if let Some(span) = ByteRange::parse(&range, size) {
                prop_assert!(span.length > 0 && span.from.checked_add(span.length).is_some_and(|end| end <= size));
            }
        }
    }
}
