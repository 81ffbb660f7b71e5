//! The path and the query of a request. A path is split first and decoded afterwards, so that an escaped slash belongs to a
//! name.
//!
//! Names are decoded as form values, as in Riak: `%XX` is a byte, `+` is a space, an invalid escape stays as it is. Empty
//! segments do not count: a trailing slash changes nothing, and no path names an empty bucket or key.

use std::borrow::Cow;

use bytes::Bytes;
use larder_rows::address::DEFAULT_TYPE;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

/// Most segments that a route examines; further ones are only counted.
pub(super) const SEGMENTS_MAX: usize = 8;

/// The raw segments of a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segments<'a> {
    path: &'a str,
    parts: [&'a str; SEGMENTS_MAX],
    count: usize,
}

impl<'a> Segments<'a> {
    /// Splits a raw path.
    #[must_use]
    pub(super) fn new(path: &'a str) -> Self {
        let mut segments = Self { path, parts: [""; SEGMENTS_MAX], count: 0 };
        for part in path.split('/').filter(|part| !part.is_empty()) {
            if let Some(place) = segments.parts.get_mut(segments.count) {
                *place = part;
            }
            segments.count += 1;
        }
        segments
    }

    /// The raw segments from `index` on, however many there are.
    pub(super) fn rest(&self, index: usize) -> impl Iterator<Item = &'a str> {
        self.path.split('/').filter(|part| !part.is_empty()).skip(index)
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
    // The most frequent name needs no copy.
    if segment.as_bytes() == DEFAULT_TYPE {
        return Bytes::from_static(DEFAULT_TYPE);
    }
    match unquote(segment.as_bytes()) {
        Cow::Borrowed(raw) => Bytes::copy_from_slice(raw),
        Cow::Owned(decoded) => Bytes::from(unmark(&decoded).unwrap_or(decoded)),
    }
}

/// The bytes of a name that are escaped: all but the unreserved ones of a URI.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The mark of a percent-encoded name in a listing: U+FFFD stands before a name that is not UTF-8.
const NON_UTF8_MARK: &[u8] = "\u{FFFD}".as_bytes();

/// A name as a listing shows it. JSON holds text only, so a name that is not UTF-8 is marked and percent-encoded; a path with
/// the listed text, quoted as usual, leads to the name. A text that looks like a marked name is marked too.
#[must_use]
pub(super) fn listed_name(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if unmark(name).is_none() => Cow::Borrowed(text),
        _ => Cow::Owned(format!("{}{}", char::REPLACEMENT_CHARACTER, percent_encode(name, ESCAPED))),
    }
}

/// The bytes that a text of a listing or of a data type shows.
#[must_use]
pub(super) fn listed_bytes(text: &[u8]) -> Bytes {
    unmark(text).map_or_else(|| Bytes::copy_from_slice(text), Bytes::from)
}

/// The name of a marked text of a listing; `None` if a listing would not mark it like this.
fn unmark(text: &[u8]) -> Option<Vec<u8>> {
    let quoted = text.strip_prefix(NON_UTF8_MARK)?;
    if std::str::from_utf8(quoted).is_err() {
        // The client sent the listed text without quoting it.
        return Some(quoted.to_vec());
    }
    let name = unquote(quoted).into_owned();
    let again = percent_encode(&name, ESCAPED).to_string();
    let is_shown_so = again.as_bytes() == quoted && (std::str::from_utf8(&name).is_err() || unmark(&name).is_some());
    is_shown_so.then_some(name)
}

/// Decodes a form value.
#[must_use]
fn unquote(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.contains(&b'+') {
        return percent_decode(raw).into();
    }
    let spaced: Vec<u8> = raw.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    Cow::Owned(percent_decode(&spaced).collect())
}

/// Appends a name as a form value, as Riak writes it in `Link`: a space becomes `+`.
pub(super) fn quote_form(name: &[u8], out: &mut Vec<u8>) {
    for (position, word) in name.split(|byte| *byte == b' ').enumerate() {
        if position > 0 {
            out.push(b'+');
        }
        quote_segment(word, out);
    }
}

/// Appends a name as a path segment: it escapes every reserved byte and writes no `+`.
pub(super) fn quote_segment(name: &[u8], out: &mut Vec<u8>) {
    percent_encode(name, ESCAPED).for_each(|piece| out.extend_from_slice(piece.as_bytes()));
}

/// A decoded name or value, copied only if it has escapes.
type Text<'a> = Cow<'a, [u8]>;

/// The parameters of a request, in order. The first of a repeated parameter counts.
#[derive(Debug, Clone, Default)]
pub(super) struct QueryParams<'a> {
    pairs: Vec<(Text<'a>, Text<'a>)>,
}

impl<'a> QueryParams<'a> {
    /// Splits a query at `&` and `;`; a name without `=` has an empty value.
    #[must_use]
    pub(super) fn parse(query: Option<&'a str>) -> Self {
        let pairs = query.unwrap_or_default().split(['&', ';']).filter(|pair| !pair.is_empty());
        let decode = |pair: &'a str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unquote(name.as_bytes()), unquote(value.as_bytes()))
        };
        Self { pairs: pairs.map(decode).collect() }
    }

    /// Whether the query has no parameters.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The name of the first parameter.
    #[must_use]
    pub(super) fn first_name(&self) -> Option<&[u8]> {
        self.pairs.first().map(|(name, _)| name.as_ref())
    }

    /// The first value of a parameter.
    #[must_use]
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.pairs.iter().find(|(key, _)| key.as_ref() == name.as_bytes()).map(|(_, value)| value.as_ref())
    }

    /// Whether the parameter has exactly this value.
    #[must_use]
    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value.as_bytes())
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
        let segments = Segments::new("//buckets/b/keys/");
        assert_eq!(segments.count(), 3);
        assert_eq!((segments.raw(0), segments.raw(2), segments.raw(3)), ("buckets", "keys", ""));
        assert_eq!(Segments::new("/").count(), 0);
        assert_eq!(Segments::new("/1/2/3/4/5/6/7/8/9").count(), 9);
    }

    #[test]
    fn the_first_of_a_repeated_parameter_counts() {
        let query = QueryParams::parse(Some("r=1&r=foo;x=a+b%26&flag&=v&"));
        assert_eq!(query.get("r"), Some(&b"1"[..]));
        assert_eq!(query.get("x"), Some(&b"a b&"[..]));
        assert!(query.is("flag", "") && query.is("", "v"));
        assert_eq!(query.get("y"), None);
        assert!(QueryParams::parse(None).is_empty() && QueryParams::parse(Some("&;")).is_empty());
    }

    proptest! {
        #[test]
        fn arbitrary_queries_parse_without_a_panic(text: String, name: String) {
            let _ = QueryParams::parse(Some(&text)).get(&name);
        }

        #[test]
        fn arbitrary_paths_decode_without_a_panic(path: String) {
            let segments = Segments::new(&path);
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
                prop_assert_eq!(Segments::new(&text).count(), 1);
                prop_assert_eq!(&name(&text), &bytes);
            }
        }
    }
}
