//! The `Link` header, in and out. Links say bucket and key, never a type: they mean objects of type `default`.

use bytes::Bytes;

use larder_model::content::Link;

use super::path::{name, quote_form};
use super::reply::Fault;

/// Which of the two forms of paths a request uses; links are read and written in the same form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// `/buckets/B/keys/K`
    Buckets,
    /// `/riak/B/K`
    Riak,
}

/// Reads the items of a `Link` header. A container link to `own` bucket is dropped.
///
/// # Errors
/// 400: an item is no link.
pub(super) fn parse(header: &[u8], style: Style, own: &[u8]) -> Result<Vec<Link>, Fault> {
    let Ok(text) = std::str::from_utf8(header) else { return Err(refusal(style)) };
    let mut links = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        match read(item, style) {
            Some(Item::Link(link)) => links.push(link),
            Some(Item::Up(bucket)) if bucket == own => {}
            _ => return Err(refusal(style)),
        }
    }
    Ok(links)
}

enum Item {
    Link(Link),
    Up(Bytes),
}

fn read(item: &str, style: Style) -> Option<Item> {
    let (path, attribute) = item.strip_prefix('<')?.split_once('>')?;
    let (attribute, value) = attribute.trim_start().strip_prefix(';')?.trim_start().split_once('=')?;
    let value = value.strip_prefix('"')?.strip_suffix('"').filter(|value| !value.contains('"'))?;
    let mut parts = path.strip_prefix('/')?.split('/');
    let mut next = || parts.next().filter(|part| !part.is_empty());
    let parts = (next(), next(), next(), next(), next());
    match (style, parts, attribute) {
        (Style::Buckets, (Some("buckets"), Some(bucket), Some("keys"), Some(key), None), "riaktag")
        | (Style::Riak, (Some("riak"), Some(bucket), Some(key), None, None), "riaktag") => {
            Some(Item::Link(Link { bucket: name(bucket), key: name(key), tag: name(value) }))
        }
        (Style::Buckets, (Some("buckets"), Some(bucket), None, None, None), "rel")
        | (Style::Riak, (Some("riak"), Some(bucket), None, None, None), "rel")
            if value == "up" =>
        {
            Some(Item::Up(name(bucket)))
        }
        _ => None,
    }
}

fn refusal(style: Style) -> Fault {
    Fault::bad(match style {
        Style::Buckets => {
            "Invalid Link header. Links must be of the form\n</buckets/BUCKET/keys/KEY>; riaktag=\"TAG\"\n"
        }
        Style::Riak => "Invalid Link header. Links must be of the form\n</riak/BUCKET/KEY>; riaktag=\"TAG\"\n",
    })
}

/// The value of the `Link` header of an object: its links, and last the bucket that holds it.
#[must_use]
pub(super) fn render(links: &[Link], style: Style, own: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(32 + own.len() + 64 * links.len());
    for link in links {
        start(&mut out, style, &link.bucket);
        out.extend_from_slice(if style == Style::Buckets { b"/keys/" } else { b"/" });
        quote_form(&link.key, &mut out);
        out.extend_from_slice(b">; riaktag=\"");
        quote_form(&link.tag, &mut out);
        out.extend_from_slice(b"\", ");
    }
    start(&mut out, style, own);
    out.extend_from_slice(b">; rel=\"up\"");
    out
}

fn start(out: &mut Vec<u8>, style: Style, bucket: &[u8]) {
    out.extend_from_slice(if style == Style::Buckets { b"</buckets/" } else { b"</riak/" });
    quote_form(bucket, out);
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
        let text = parse(header.as_bytes(), Style::Buckets, b"b").unwrap_err().text();
        assert!(text.starts_with("Invalid Link header"), "{header}: {text}");
    }

    #[test]
    fn links_are_read_in_the_form_of_the_path() {
        let header = br#"</buckets/b%20u/keys/k%2F1>; riaktag="t%20g", </buckets/b>; rel="up""#;
        assert_eq!(parse(header, Style::Buckets, b"b").unwrap(), [link("b u", "k/1", "t g")]);
        let header = br#"</riak/b/k>;riaktag="new+style""#;
        assert_eq!(parse(header, Style::Riak, b"b").unwrap(), [link("b", "k", "new style")]);
        assert!(parse(b"", Style::Riak, b"b").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_link_is_refused() {
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
        let text = |style, own: &[u8]| String::from_utf8(render(&links, style, own)).unwrap();
        assert_eq!(text(Style::Buckets, b"b"), r#"</buckets/b+u/keys/k%2F1>; riaktag="t+g", </buckets/b>; rel="up""#);
        assert_eq!(text(Style::Riak, b"b u"), r#"</riak/b+u/k%2F1>; riaktag="t+g", </riak/b+u>; rel="up""#);
    }

    proptest! {
        #[test]
        fn links_come_back(parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..8), 3)) {
            let link = Link { bucket: parts[0].clone().into(), key: parts[1].clone().into(), tag: parts[2].clone().into() };
            for style in [Style::Buckets, Style::Riak] {
                let header = render(std::slice::from_ref(&link), style, b"own");
                prop_assert_eq!(parse(&header, style, b"own").unwrap(), std::slice::from_ref(&link));
            }
        }

        #[test]
        fn any_header_is_read(header: Vec<u8>) {
            let _ = parse(&header, Style::Buckets, b"b");
        }
    }
}
