//! The `Link` header, decoded and encoded. Links name bucket and key, never a type: they point to objects of type `default`.

use bytes::Bytes;
use larder_rows::content::Link;

use super::call::RiakCall;
use super::errors::RiakFault;
use super::path::{name, quote_form};
use super::routes::PathPart;

/// The form of paths that a request uses; its links have the same form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkStyle {
    /// `/buckets/B/keys/K`
    Buckets,
    /// `/riak/B/K`
    Riak,
}

/// The form and the bucket of an object's links.
pub(super) struct LinkContext {
    /// Form of the links.
    pub style: LinkStyle,
    /// The bucket.
    pub bucket: Bytes,
}

impl LinkContext {
    /// The context of the request's object.
    #[must_use]
    pub(super) fn from_call(call: &RiakCall<'_>) -> Self {
        let style = if call.route.is_old() { LinkStyle::Riak } else { LinkStyle::Buckets };
        Self { style, bucket: name(call.raw(PathPart::Bucket)) }
    }
}

/// Parses a `Link` header. A container link to `own_bucket` is dropped.
///
/// # Errors
/// 400: an item is not a link.
pub(super) fn parse(header: &[u8], style: LinkStyle, own_bucket: &[u8]) -> Result<Vec<Link>, RiakFault> {
    let Ok(text) = std::str::from_utf8(header) else { return Err(refusal(style)) };
    let mut links = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        match read(item, style) {
            Some(LinkItem::Link(link)) => links.push(link),
            // Clients send back the header of a read, which names the object's own bucket.
            Some(LinkItem::Up(bucket)) if bucket == own_bucket => {}
            _ => return Err(refusal(style)),
        }
    }
    Ok(links)
}

enum LinkItem {
    Link(Link),
    Up(Bytes),
}

fn read(item: &str, style: LinkStyle) -> Option<LinkItem> {
    let (path, attribute) = item.strip_prefix('<')?.split_once('>')?;
    let (attribute, value) = attribute.trim_start().strip_prefix(';')?.trim_start().split_once('=')?;
    // A quote inside would end the value early in the header of a later answer.
    let value = value.strip_prefix('"')?.strip_suffix('"').filter(|value| !value.contains('"'))?;
    let mut parts = path.strip_prefix('/')?.split('/');
    let mut next = || parts.next().filter(|part| !part.is_empty());
    let parts = (next(), next(), next(), next(), next());
    match (style, parts, attribute) {
        (LinkStyle::Buckets, (Some("buckets"), Some(bucket), Some("keys"), Some(key), None), "riaktag")
        | (LinkStyle::Riak, (Some("riak"), Some(bucket), Some(key), None, None), "riaktag") => {
            Some(LinkItem::Link(Link { bucket: name(bucket), key: name(key), tag: name(value) }))
        }
        (LinkStyle::Buckets, (Some("buckets"), Some(bucket), None, None, None), "rel")
        | (LinkStyle::Riak, (Some("riak"), Some(bucket), None, None, None), "rel")
            if value == "up" =>
        {
            Some(LinkItem::Up(name(bucket)))
        }
        _ => None,
    }
}

fn refusal(style: LinkStyle) -> RiakFault {
    RiakFault::bad(match style {
        LinkStyle::Buckets => {
            "Invalid Link header. Links must be of the form\n</buckets/BUCKET/keys/KEY>; riaktag=\"TAG\"\n"
        }
        LinkStyle::Riak => "Invalid Link header. Links must be of the form\n</riak/BUCKET/KEY>; riaktag=\"TAG\"\n",
    })
}

/// The `Link` header of an object: its links, then the bucket that holds it.
#[must_use]
pub(super) fn render(links: &[Link], style: LinkStyle, bucket: &[u8]) -> Vec<u8> {
    // Without links and escapes exactly the length of the header: no byte is moved when it is finished.
    let mut out = Vec::with_capacity(prefix(style).len() + bucket.len() + UP.len() + 64 * links.len());
    for link in links {
        start(&mut out, style, &link.bucket);
        out.extend_from_slice(if style == LinkStyle::Buckets { b"/keys/" } else { b"/" });
        quote_form(&link.key, &mut out);
        out.extend_from_slice(b">; riaktag=\"");
        quote_form(&link.tag, &mut out);
        out.extend_from_slice(b"\", ");
    }
    start(&mut out, style, bucket);
    out.extend_from_slice(UP);
    out
}

/// The end of the link to the own bucket.
const UP: &[u8] = b">; rel=\"up\"";

fn start(out: &mut Vec<u8>, style: LinkStyle, bucket: &[u8]) {
    out.extend_from_slice(prefix(style));
    quote_form(bucket, out);
}

fn prefix(style: LinkStyle) -> &'static [u8] {
    if style == LinkStyle::Buckets { b"</buckets/" } else { b"</riak/" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn link(bucket: &str, key: &str, tag: &str) -> Link {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        Link { bucket: bytes(bucket), key: bytes(key), tag: bytes(tag) }
    }

    #[track_caller]
    fn refused(header: &str) {
        let text = parse(header.as_bytes(), LinkStyle::Buckets, b"b").unwrap_err().text();
        assert!(text.starts_with("Invalid Link header"), "{header}: {text}");
    }

    #[test]
    fn links_parse_in_the_form_of_the_path() {
        let header = br#"</buckets/b%20u/keys/k%2F1>; riaktag="t%20g", </buckets/b>; rel="up""#;
        assert_eq!(parse(header, LinkStyle::Buckets, b"b").unwrap(), [link("b u", "k/1", "t g")]);
        let header = br#"</riak/b/k>;riaktag="new+style""#;
        assert_eq!(parse(header, LinkStyle::Riak, b"b").unwrap(), [link("b", "k", "new style")]);
        assert!(parse(b"", LinkStyle::Riak, b"b").unwrap().is_empty());
    }

    #[test]
    fn an_item_that_is_no_link_is_refused() {
        refused("</buckets/x/keys/y>");
        refused("</buckets/x/keys/y>; riaktag=unquoted");
        refused(r#"<http://h/buckets/x/keys/y>; riaktag="a""#);
        refused(r#"</riak/b/k2>; riaktag="old style""#);
        refused(r#"</buckets/other>; rel="up""#);
        refused(r#"</buckets/b>; rel="down""#);
    }

    #[test]
    fn the_bucket_comes_last() {
        let links = [link("b u", "k/1", "t g")];
        let text = |style, bucket: &[u8]| String::from_utf8(render(&links, style, bucket)).unwrap();
        assert_eq!(
            text(LinkStyle::Buckets, b"b"),
            r#"</buckets/b+u/keys/k%2F1>; riaktag="t+g", </buckets/b>; rel="up""#
        );
        assert_eq!(text(LinkStyle::Riak, b"b u"), r#"</riak/b+u/k%2F1>; riaktag="t+g", </riak/b+u>; rel="up""#);
    }

    proptest! {
        #[test]
        fn a_rendered_link_parses_to_itself(parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..8), 3)) {
            let link = Link { bucket: parts[0].clone().into(), key: parts[1].clone().into(), tag: parts[2].clone().into() };
            for style in [LinkStyle::Buckets, LinkStyle::Riak] {
                let header = render(std::slice::from_ref(&link), style, b"own");
                prop_assert_eq!(parse(&header, style, b"own").unwrap(), std::slice::from_ref(&link));
            }
        }

        #[test]
        fn arbitrary_headers_parse_without_a_panic(header: Vec<u8>) {
            let _ = parse(&header, LinkStyle::Buckets, b"b");
        }
    }
}
