//! Paths are split first and decoded afterwards, so that an escaped slash belongs to a name.
//!
//! Names are decoded as form values, as in Riak: `%XX` is a byte, `+` is a space, an invalid escape stays as it is. Empty
//! segments do not count: a trailing slash changes nothing, and no path names an empty bucket or key.

use std::borrow::Cow;

use bytes::Bytes;

use larder_model::address::DEFAULT_TYPE;

/// Most segments that a route examines; further ones are only counted.
pub(super) const SEGMENTS_MAX: usize = 8;

/// The raw segments of a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segments<'a> {
    parts: [&'a str; SEGMENTS_MAX],
    count: usize,
}

impl<'a> Segments<'a> {
    /// Splits a raw path.
    #[must_use]
    pub(super) fn of(path: &'a str) -> Self {
        let mut segments = Self { parts: [""; SEGMENTS_MAX], count: 0 };
        for part in path.split('/').filter(|part| !part.is_empty()) {
            if let Some(place) = segments.parts.get_mut(segments.count) {
                *place = part;
            }
            segments.count += 1;
        }
        segments
    }

    /// The number of segments.
    #[must_use]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The raw segment at `index`; empty when the path has fewer.
    #[must_use]
    pub(super) fn raw(&self, index: usize) -> &'a str {
        self.parts.get(index).copied().unwrap_or_default()
    }
}

/// The name in a path segment.
#[must_use]
pub(super) fn name(segment: &str) -> Bytes {
    if segment.as_bytes() == DEFAULT_TYPE {
        return Bytes::from_static(DEFAULT_TYPE);
    }
    match unquote(segment.as_bytes()) {
        Cow::Borrowed(raw) => Bytes::copy_from_slice(raw),
        Cow::Owned(decoded) => Bytes::from(unmark(&decoded).unwrap_or(decoded)),
    }
}

/// The mark of a percent-encoded name in a listing: U+FFFD stands before a name that is not UTF-8.
const NON_UTF8_MARK: &[u8] = "\u{FFFD}".as_bytes();

/// A name as a listing shows it. JSON holds text only, so a name that is not UTF-8 is marked and percent-encoded; a path with
/// the listed text, quoted as usual, leads to the name. A text that looks like a marked name is marked too.
#[must_use]
pub(super) fn listed_name(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if unmark(name).is_none() => Cow::Borrowed(text),
        _ => {
            let mut listed_name = NON_UTF8_MARK.to_vec();
            quote_segment(name, &mut listed_name);
            Cow::Owned(String::from_utf8_lossy(&listed_name).into_owned())
        }
    }
}

/// The name of a marked text of a listing; `None` if a listing would not mark it like this.
fn unmark(text: &[u8]) -> Option<Vec<u8>> {
    let quoted = text.strip_prefix(NON_UTF8_MARK)?;
    if std::str::from_utf8(quoted).is_err() {
        // The client sent the listed text without quoting it.
        return Some(quoted.to_vec());
    }
    let name = unquote(quoted).into_owned();
    let mut again = Vec::with_capacity(quoted.len());
    quote_segment(&name, &mut again);
    let is_shown_so = again == quoted && (std::str::from_utf8(&name).is_err() || unmark(&name).is_some());
    is_shown_so.then_some(name)
}

/// Decodes a form value.
#[must_use]
pub(super) fn unquote(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(raw);
    }
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = match (byte, after) {
            (b'%', [high, low, after @ ..]) => match hex(*high).zip(hex(*low)) {
                Some((high, low)) => (high << 4 | low, after),
                None => (b'%', &rest[1..]),
            },
            (b'+', _) => (b' ', after),
            _ => (byte, after),
        };
        decoded.push(byte);
        rest = after;
    }
    Cow::Owned(decoded)
}

/// Appends a name as a form value, as Riak writes it in `Link`: a space becomes `+`.
pub(super) fn quote_form(name: &[u8], out: &mut Vec<u8>) {
    quote(name, true, out);
}

/// Appends a name as a path segment: it escapes every reserved byte and writes no `+`.
pub(super) fn quote_segment(name: &[u8], out: &mut Vec<u8>) {
    quote(name, false, out);
}

fn quote(name: &[u8], form: bool, out: &mut Vec<u8>) {
    for &byte in name {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte),
            b' ' if form => out.push(b'+'),
            _ => {
                let digits = b"0123456789ABCDEF";
                out.extend([b'%', digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]);
            }
        }
    }
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(raw: &str, decoded: &[u8]) {
        assert_eq!(name(raw), decoded);
    }

    #[test]
    fn names_decode_as_form_values() {
        check("plain", b"plain");
        check("a%2Fb%20c%3f", b"a/b c?");
        check("a+b", b"a b");
        check("%zz", b"%zz");
        check("%4", b"%4");
        check("%", b"%");
        check("%%41", b"%A");
        check("%ff%00", b"\xff\0");
    }

    #[test]
    fn a_listing_distinguishes_a_byte_from_its_escape() {
        let names: [&[u8]; 6] = [b"\xff", b"%FF", b"a\xff/", "п".as_bytes(), "\u{FFFD}x".as_bytes(), NON_UTF8_MARK];
        for name in names {
            let mut quoted = Vec::new();
            quote_segment(listed_name(name).as_bytes(), &mut quoted);
            check(&String::from_utf8(quoted).unwrap(), name);
            if std::str::from_utf8(name).is_err() {
                check(&listed_name(name), name);
            }
        }
        assert_eq!(listed_name(b"a\xff/"), "\u{FFFD}a%FF%2F");
        assert_eq!((listed_name(b"%FF"), listed_name("\u{FFFD}x".as_bytes())), ("%FF".into(), "\u{FFFD}x".into()));
        // A text that looks like a marked name is marked itself.
        assert_eq!(listed_name("\u{FFFD}%FF".as_bytes()), "\u{FFFD}%EF%BF%BD%25FF");
        check("%EF%BF%BD%25EF%25BF%25BD%2525FF", "\u{FFFD}%FF".as_bytes());
    }

    #[test]
    fn empty_segments_do_not_count() {
        let segments = Segments::of("//buckets/b/keys/");
        assert_eq!(segments.count(), 3);
        assert_eq!((segments.raw(0), segments.raw(2), segments.raw(3)), ("buckets", "keys", ""));
        assert_eq!(Segments::of("/").count(), 0);
        assert_eq!(Segments::of("/1/2/3/4/5/6/7/8/9").count(), 9);
    }

    proptest! {
        #[test]
        fn arbitrary_paths_decode_without_a_panic(path: String) {
            let segments = Segments::of(&path);
            for index in 0..segments.count() {
                let _ = name(segments.raw(index));
            }
        }

        #[test]
        fn a_quoted_name_decodes_to_itself(bytes in proptest::collection::vec(any::<u8>(), 1..64)) {
            for quote in [quote_form, quote_segment] {
                let mut quoted = Vec::new();
                quote(&bytes, &mut quoted);
                let text = String::from_utf8(quoted).unwrap();
                prop_assert_eq!(Segments::of(&text).count(), 1);
                prop_assert_eq!(&name(&text), &bytes);
            }
        }
    }
}
