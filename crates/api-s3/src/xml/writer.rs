//! Writing documents, children in the order they are given.

use std::fmt::{Display, Write as _};

use bytes::Bytes;

/// The namespace of every document but errors.
pub const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";
/// What every document begins with.
pub(crate) const PROLOG: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// A document being written.
#[derive(Debug)]
pub struct Xml {
    out: String,
    root: &'static str,
}

impl Xml {
    /// A document with this root, in the namespace of S3.
    #[must_use]
    pub fn new(root: &'static str) -> Self {
        Self::with(root, &[("xmlns", NAMESPACE)])
    }

    /// A document without a namespace.
    #[must_use]
    pub fn bare(root: &'static str) -> Self {
        Self::with(root, &[])
    }

    /// A document whose root has these attributes.
    #[must_use]
    pub fn with(root: &'static str, attributes: &[(&str, &str)]) -> Self {
        let mut xml = Self { out: String::with_capacity(1024), root };
        xml.out.push_str(PROLOG);
        xml.open(root, attributes);
        xml
    }

    /// A child with this text.
    pub fn text(&mut self, name: &str, text: impl AsRef<str>) -> &mut Self {
        let text = text.as_ref();
        if text.is_empty() {
            return self.empty(name);
        }
        self.open(name, &[]);
        escape(&mut self.out, text);
        self.close(name)
    }

    /// A child with this text, if there is one.
    pub fn maybe(&mut self, name: &str, text: Option<impl AsRef<str>>) -> &mut Self {
        match text {
            Some(text) => self.text(name, text),
            None => self,
        }
    }

    /// A child with bytes that are most likely UTF-8, as keys are: what is not is shown as what it is not.
    pub fn bytes(&mut self, name: &str, text: &[u8]) -> &mut Self {
        self.text(name, String::from_utf8_lossy(text))
    }

    /// A child with a number, or `true` or `false`.
    pub fn value(&mut self, name: &str, value: impl Display) -> &mut Self {
        self.open(name, &[]);
        // Writing to a string cannot fail.
        let _ = write!(self.out, "{value}");
        self.close(name)
    }

    /// A child without anything.
    pub fn empty(&mut self, name: &str) -> &mut Self {
        self.out.push('<');
        self.out.push_str(name);
        self.out.push_str("/>");
        self
    }

    /// A child with children.
    pub fn within(&mut self, name: &str, children: impl FnOnce(&mut Self)) -> &mut Self {
        self.within_of(name, &[], children)
    }

    /// A child with attributes and children.
    pub fn within_of(
        &mut self,
        name: &str,
        attributes: &[(&str, &str)],
        children: impl FnOnce(&mut Self),
    ) -> &mut Self {
        self.open(name, attributes);
        children(self);
        self.close(name)
    }

    /// The text of the root itself, for the few documents that have nothing else.
    pub fn content(&mut self, text: &str) -> &mut Self {
        escape(&mut self.out, text);
        self
    }

    /// The document.
    #[must_use]
    pub fn finish(mut self) -> Bytes {
        self.close(self.root);
        self.out.into()
    }

    fn open(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.out.push('<');
        self.out.push_str(name);
        for (name, value) in attributes {
            self.out.push(' ');
            self.out.push_str(name);
            self.out.push_str("=\"");
            escape(&mut self.out, value);
            self.out.push('"');
        }
        self.out.push('>');
    }

    fn close(&mut self, name: &str) -> &mut Self {
        self.out.push_str("</");
        self.out.push_str(name);
        self.out.push('>');
        self
    }
}

/// Appends `text`. Control characters, which XML has no place for, become numeric references: keys may have them.
fn escape(out: &mut String, text: &str) {
    let special = |byte: u8| matches!(byte, b'<' | b'>' | b'&' | b'"' | b'\'' | 0..=0x1f | 0x7f);
    let mut rest = text;
    while let Some(at) = rest.bytes().position(special) {
        let (plain, tail) = rest.split_at(at);
        out.push_str(plain);
        match tail.as_bytes()[0] {
            b'<' => out.push_str("&lt;"),
            b'>' => out.push_str("&gt;"),
            b'&' => out.push_str("&amp;"),
            b'"' => out.push_str("&quot;"),
            b'\'' => out.push_str("&apos;"),
            byte => {
                let _ = write!(out, "&#x{byte:X};");
            }
        }
        rest = &tail[1..];
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_come_in_the_order_they_are_given() {
        let mut xml = Xml::new("ListPartsResult");
        xml.text("Bucket", "b").text("Key", "").maybe("No", None::<&str>).value("MaxParts", 2);
        for number in [1, 2] {
            xml.within("Part", |part| {
                part.value("PartNumber", number).text("ETag", "\"e\"");
            });
        }
        let text = String::from_utf8(xml.finish().to_vec()).unwrap();
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListPartsResult \
             xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Bucket>b</Bucket><Key/><MaxParts>2</MaxParts><Part>\
             <PartNumber>1</PartNumber><ETag>&quot;e&quot;</ETag></Part><Part><PartNumber>2</PartNumber><ETag>\
             &quot;e&quot;</ETag></Part></ListPartsResult>";
        assert_eq!(text, expected);
    }

    #[test]
    fn text_and_attributes_are_escaped() {
        let mut xml = Xml::bare("R");
        xml.text("K", "a<b>&'\u{1}\t\r\n\u{7f}é").within_of("G", &[("x", "a\"b")], |_| {});
        let text = String::from_utf8(xml.finish().to_vec()).unwrap();
        assert!(
            text.ends_with("<R><K>a&lt;b&gt;&amp;&apos;&#x1;&#x9;&#xD;&#xA;&#x7F;é</K><G x=\"a&quot;b\"></G></R>"),
            "{text}"
        );
    }
}
