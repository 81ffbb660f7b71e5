//! An XML writer; children keep the order in which they are written.

use std::fmt::{Display, Write as _};

use bytes::Bytes;

/// The namespace of all documents except errors.
pub const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";
/// The XML declaration of every document.
pub(crate) const PROLOG: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// A document being written.
#[derive(Debug)]
pub struct XmlWriter {
    out: String,
    root: &'static str,
}

impl XmlWriter {
    /// A document with this root in the S3 namespace.
    #[must_use]
    pub fn new(root: &'static str) -> Self {
        Self::with_attributes(root, &[("xmlns", NAMESPACE)])
    }

    /// A document without a namespace.
    #[must_use]
    pub fn without_namespace(root: &'static str) -> Self {
        Self::with_attributes(root, &[])
    }

    /// A document whose root has these attributes.
    #[must_use]
    pub fn with_attributes(root: &'static str, attributes: &[(&str, &str)]) -> Self {
        let mut xml = Self { out: String::with_capacity(1024), root };
        xml.out.push_str(PROLOG);
        xml.open(root, attributes);
        xml
    }

    /// Writes a child with this text.
    pub fn text(&mut self, name: &str, text: impl AsRef<str>) -> &mut Self {
        let text = text.as_ref();
        if text.is_empty() {
            return self.empty(name);
        }
        self.open(name, &[]);
        escape(&mut self.out, text);
        self.close(name)
    }

    /// Writes a child with this text if it is `Some`.
    pub fn optional_text(&mut self, name: &str, text: Option<impl AsRef<str>>) -> &mut Self {
        match text {
            Some(text) => self.text(name, text),
            None => self,
        }
    }

    /// Writes a child with bytes that are usually UTF-8, as keys are. Invalid sequences become replacement characters.
    pub fn text_lossy(&mut self, name: &str, text: &[u8]) -> &mut Self {
        self.text(name, String::from_utf8_lossy(text))
    }

    /// Writes a child with a number or a boolean.
    pub fn value(&mut self, name: &str, value: impl Display) -> &mut Self {
        self.open(name, &[]);
        // Writing to a string cannot fail.
        let _ = write!(self.out, "{value}");
        self.close(name)
    }

    /// Writes an empty child.
    pub fn empty(&mut self, name: &str) -> &mut Self {
        self.out.push('<');
        self.out.push_str(name);
        self.out.push_str("/>");
        self
    }

    /// Writes a child with children.
    pub fn element(&mut self, name: &str, children: impl FnOnce(&mut Self)) -> &mut Self {
        self.element_with(name, &[], children)
    }

    /// Writes a child with attributes and children.
    pub fn element_with(
        &mut self,
        name: &str,
        attributes: &[(&str, &str)],
        children: impl FnOnce(&mut Self),
    ) -> &mut Self {
        self.open(name, attributes);
        children(self);
        self.close(name)
    }

    /// Writes text directly into the root.
    pub fn root_text(&mut self, text: &str) -> &mut Self {
        escape(&mut self.out, text);
        self
    }

    /// Closes the root and returns the document.
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

/// Appends escaped text. Control characters, which keys may contain and XML does not allow, become numeric references.
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
    fn children_keep_their_order() {
        let mut xml = XmlWriter::new("ListPartsResult");
        xml.text("Bucket", "b").text("Key", "").optional_text("No", None::<&str>).value("MaxParts", 2);
        for number in [1, 2] {
            xml.element("Part", |part| {
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
        let mut xml = XmlWriter::without_namespace("R");
        xml.text("K", "a<b>&'\u{1}\t\r\n\u{7f}é").element_with("G", &[("x", "a\"b")], |_| {});
        let text = String::from_utf8(xml.finish().to_vec()).unwrap();
        assert!(
            text.ends_with("<R><K>a&lt;b&gt;&amp;&apos;&#x1;&#x9;&#xD;&#xA;&#x7F;é</K><G x=\"a&quot;b\"></G></R>"),
            "{text}"
        );
    }
}
