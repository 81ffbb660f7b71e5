//! Byte ranges of a value. One that cannot be had, and several at once, are answered with the whole value, as Riak does.

use hyper::header::{HeaderMap, HeaderValue, IF_RANGE, RANGE};

use super::conditional;

/// Bytes of a value: from where, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// First byte.
    pub from: u64,
    /// Number of bytes, at least one.
    pub length: u64,
}

impl Span {
    /// The part of a value of `size` bytes and this entity tag that is asked for; `None` is all of it.
    #[must_use]
    pub(super) fn asked(headers: &HeaderMap, size: u64, etag: &str) -> Option<Self> {
        let range = headers.get(RANGE)?.to_str().ok()?;
        let is_other = |tag: &HeaderValue| tag.to_str().map_or(true, |tag| conditional::tag(tag) != etag);
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

/// A number, or none for no digits at all; the outer `None` is for what is no number.
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
        assert_eq!(Span::parse(range, size), span.map(|(from, length)| Span { from, length }), "{range} of {size}");
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
        assert_eq!(Span { from: 0, length: 2 }.header(6), "bytes 0-1/6");
    }

    #[test]
    fn another_version_is_answered_whole() {
        let mut headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_static("bytes=0-0"))]);
        headers.insert(IF_RANGE, HeaderValue::from_static("\"old\""));
        assert_eq!(Span::asked(&headers, 6, "new"), None);
        assert!(Span::asked(&headers, 6, "old").is_some());
    }

    proptest! {
        #[test]
        fn spans_lie_within(range in "bytes=[0-9]{0,20}-[0-9]{0,20}", size: u64) {
            if let Some(span) = Span::parse(&range, size) {
                prop_assert!(span.length > 0 && span.from.checked_add(span.length).is_some_and(|end| end <= size));
            }
        }
    }
}
