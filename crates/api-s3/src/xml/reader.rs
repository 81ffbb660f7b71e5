//! A streaming XML reader. It yields elements one at a time, with names stripped of prefixes. It skips comments,
//! processing instructions and white space between elements, and keeps every byte of text. A document type is refused,
//! so no entity is ever expanded.

use quick_xml::Reader as Events;
use quick_xml::events::{BytesStart, Event};

use crate::errors::{Code, S3Error};

/// Deepest nesting accepted.
const DEPTH_MAX: usize = 32;

/// Most names of elements beside each other.
const CHILD_NAMES_MAX: usize = 100;

/// The elements that may stand more than once beside each other.
const REPEATED: &[&str] = &[
    "Rule",
    "Tag",
    "Grant",
    "Part",
    "Object",
    "CORSRule",
    "AllowedOrigin",
    "AllowedMethod",
    "AllowedHeader",
    "ExposeHeader",
    "RoutingRule",
    "TopicConfiguration",
    "QueueConfiguration",
    "CloudFunctionConfiguration",
    "Event",
    "FilterRule",
    "EncryptionType",
];

/// A cursor on an element of a document with which a client asks for something. What such a document says and nobody reads is lost:
/// a rule without its condition, a delete without its. So no element can be skipped here, and an unknown one is refused by name.
///
/// ```text
/// let mut xml = XmlReader::open(b"<Tag><Key>k</Key><Value> v </Value></Tag>", "Tag")?;
/// let (mut key, mut value) = (None, None);
/// while let Some(name) = xml.next_child()? {
///     match name {
///         "Key" => key = Some(xml.text()?),
///         "Value" => value = Some(xml.text()?),
///         _ => return Err(S3Error::element_not_offered(name)),
///     }
/// }
/// xml.expect_end()?;
/// ```
pub struct XmlReader<'a> {
    events: Events<&'a [u8]>,
    document: &'a str,
    current: Option<BytesStart<'a>>,
    depth: usize,
    /// For each open element the names of its children so far.
    seen: Vec<Vec<&'a str>>,
    /// Whether elements may be skipped, and so repeated as well.
    pub(super) is_lenient: bool,
}

impl<'a> XmlReader<'a> {
    /// Moves to the root element, which must be named `root`.
    ///
    /// # Errors
    /// `MalformedXML`, here and in all methods.
    pub fn open(document: &'a [u8], root: &str) -> Result<Self, S3Error> {
        let mut reader = Self::new(document)?;
        match reader.next_child()? {
            Some(name) if name == root => Ok(reader),
            _ => Err(malformed()),
        }
    }

    /// A reader in front of the root, which is the first [`next_child`](Self::next_child).
    ///
    /// # Errors
    /// The document is not UTF-8.
    pub fn new(document: &'a [u8]) -> Result<Self, S3Error> {
        let text = std::str::from_utf8(document).map_err(|_| malformed())?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut events = Events::from_str(text);
        events.config_mut().check_end_names = true;
        // `<a/>` arrives as a start and an end.
        events.config_mut().expand_empty_elements = true;
        Ok(Self { events, document: text, current: None, depth: 0, seen: Vec::new(), is_lenient: false })
    }

    /// The value of an attribute of the current element, whatever its prefix.
    pub fn attribute(&self, name: &str) -> Option<String> {
        let start = self.current.as_ref()?;
        let found = start.attributes().flatten().find(|attribute| local(attribute.key.into_inner()) == name)?;
        Some(found.value.into_owned())
    }

    /// Moves to the next child and returns its name. `None` after the last child: the reader then stands on the
    /// parent's end, and the next call visits the parent's siblings.
    ///
    /// # Errors
    /// The document is not well formed, nests too deep, or has text where none is allowed.
    pub fn next_child(&mut self) -> Result<Option<&'a str>, S3Error> {
        if !self.advance()? {
            return Ok(None);
        }
        let name = self.current.as_ref().and_then(|start| element_span(self.document, start.name().into_inner()));
        let name = local(name.ok_or_else(malformed)?);
        self.note_child(name).map(|()| Some(name))
    }

    /// Refuses a second element where one has a meaning: the last one would win, and nobody would see that.
    fn note_child(&mut self, name: &'a str) -> Result<(), S3Error> {
        self.seen.resize(self.depth, Vec::new());
        let Some(seen) = self.seen.last_mut().filter(|_| !self.is_lenient && !REPEATED.contains(&name)) else {
            return Ok(());
        };
        // Bound: each name is compared with all before it.
        if seen.len() >= CHILD_NAMES_MAX || seen.contains(&name) {
            return Err(malformed());
        }
        seen.push(name);
        Ok(())
    }

    fn advance(&mut self) -> Result<bool, S3Error> {
        loop {
            match self.event()? {
                Event::Start(start) => return self.enter(start).map(|()| true),
                Event::End(_) => {
                    self.depth = self.depth.checked_sub(1).ok_or_else(malformed)?;
                    return Ok(false);
                }
                Event::Text(text) if text.trim().is_empty() => {}
                Event::Comment(_) | Event::PI(_) | Event::Decl(_) => {}
                Event::Empty(_)
                | Event::Eof
                | Event::Text(_)
                | Event::CData(_)
                | Event::GeneralRef(_)
                | Event::DocType(_) => {
                    return Err(malformed());
                }
            }
        }
    }

    /// Reads the text of the current element, which must have no children, and moves past it.
    ///
    /// # Errors
    /// The element has children or is not well formed.
    pub fn text(&mut self) -> Result<String, S3Error> {
        let mut text = String::new();
        loop {
            match self.event()? {
                Event::Text(more) => text.push_str(&more.xml10_content()),
                Event::CData(more) => text.push_str(&more.xml10_content()),
                Event::GeneralRef(name) => text.push(resolve(&name)?),
                Event::Comment(_) | Event::PI(_) => {}
                Event::End(_) => {
                    self.depth = self.depth.checked_sub(1).ok_or_else(malformed)?;
                    return Ok(text);
                }
                Event::Start(_) | Event::Empty(_) | Event::Decl(_) | Event::DocType(_) | Event::Eof => {
                    return Err(malformed());
                }
            }
        }
    }

    /// Parses the trimmed text of the current element.
    ///
    /// # Errors
    /// As [`text`](Self::text), and if the text is not a `T`.
    pub fn parse_text<T: std::str::FromStr>(&mut self) -> Result<T, S3Error> {
        self.text()?.trim().parse().map_err(|_| malformed())
    }

    /// Moves past the current element and its content. The caller gets its name, to refuse the element where its meaning is known:
    /// for one object of many, for instance.
    ///
    /// # Errors
    /// The document is not well formed or nests too deep.
    pub fn set_aside(&mut self) -> Result<String, S3Error> {
        let name = self.current.as_ref().map(|start| local(start.name().into_inner()).to_owned()).unwrap_or_default();
        self.pass()?;
        Ok(name)
    }

    /// Moves past the current element and its content.
    pub(super) fn pass(&mut self) -> Result<(), S3Error> {
        let outside = self.depth - 1;
        while self.depth > outside {
            match self.event()? {
                Event::Start(start) => self.enter(start)?,
                // The parser checks that each end has its start, so the depth never falls below zero here.
                Event::End(_) => self.depth -= 1,
                // A document type could define entities that grow without bound, so it is refused unread.
                Event::Eof | Event::DocType(_) => return Err(malformed()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that nothing follows the root.
    ///
    /// # Errors
    /// Content follows the root.
    pub fn expect_end(mut self) -> Result<(), S3Error> {
        loop {
            match self.event()? {
                Event::Eof => return Ok(()),
                Event::Text(text) if text.trim().is_empty() => {}
                Event::Comment(_) | Event::PI(_) => {}
                _ => return Err(malformed()),
            }
        }
    }

    fn event(&mut self) -> Result<Event<'a>, S3Error> {
        self.events.read_event().map_err(|_| malformed())
    }

    fn enter(&mut self, start: BytesStart<'a>) -> Result<(), S3Error> {
        // Bound: nested elements must not grow the state of the parser.
        if self.depth == DEPTH_MAX {
            return Err(malformed());
        }
        self.depth += 1;
        self.current = Some(start);
        Ok(())
    }
}

/// 400 for an unreadable document.
fn malformed() -> S3Error {
    Code::MalformedXML.into()
}

/// The slice of `document` that `part` points to; it outlives the event that found it.
fn element_span<'a>(document: &'a str, part: &str) -> Option<&'a str> {
    let from = part.as_ptr().addr().checked_sub(document.as_ptr().addr())?;
    document.get(from..from + part.len())
}

fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

fn resolve(reference: &quick_xml::events::BytesRef<'_>) -> Result<char, S3Error> {
    if let Ok(Some(char)) = reference.resolve_char_ref() {
        return Ok(char);
    }
    match reference.as_ref() {
        "lt" => Ok('<'),
        "gt" => Ok('>'),
        "amp" => Ok('&'),
        "quot" => Ok('"'),
        "apos" => Ok('\''),
        // No other entity exists without a document type.
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml::LenientXmlReader;
    use proptest::prelude::*;

    fn parts(document: &str) -> Result<Vec<(u32, String)>, S3Error> {
        let mut xml = LenientXmlReader::open(document.as_bytes(), "C")?;
        let mut parts = Vec::new();
        while let Some(name) = xml.next_child()? {
            if name != "Part" {
                xml.skip()?;
                continue;
            }
            let mut part = (0, String::new());
            while let Some(name) = xml.next_child()? {
                match name {
                    "N" => part.0 = xml.parse_text()?,
                    "E" => part.1 = xml.text()?,
                    _ => xml.skip()?,
                }
            }
            parts.push(part);
        }
        xml.expect_end()?;
        Ok(parts)
    }

    #[test]
    fn children_are_read_and_skipped_in_turn() {
        let mut xml =
            LenientXmlReader::open(b"<Tag><Key>k</Key><Other><A/></Other><Value> v </Value></Tag>", "Tag").unwrap();
        let (mut key, mut value) = (None, None);
        while let Some(name) = xml.next_child().unwrap() {
            match name {
                "Key" => key = Some(xml.text().unwrap()),
                "Value" => value = Some(xml.text().unwrap()),
                _ => xml.skip().unwrap(),
            }
        }
        xml.expect_end().unwrap();
        assert_eq!((key.as_deref(), value.as_deref()), (Some("k"), Some(" v ")));
    }

    #[test]
    fn prologs_prefixes_comments_and_white_space_are_skipped() {
        let document = "\u{feff}<?xml version='1.0'?>\n<!-- hi --><s:C xmlns:s=\"u\"> <s:Part><s:N> 1 </s:N><E>&quot;a&quot;\
            </E></s:Part>\n<X><Y><Z/>t</Y></X><Part><E> k&#x9;<![CDATA[<v>]]>&lt;<!-- c --> </E><N>2</N><Q/></Part><Part/>\
            </s:C>\n<!-- bye -->";
        let expected = vec![(1, "\"a\"".to_owned()), (2, " k\t<v>< ".to_owned()), (0, String::new())];
        assert_eq!(parts(document).unwrap(), expected);
        assert_eq!(parts("<C/>").unwrap(), vec![]);
    }

    #[test]
    fn malformed_documents_are_refused() {
        let bomb = "<!DOCTYPE C [<!ENTITY a \"b\">]><C><Part><E>&a;</E></Part></C>";
        let deep = format!("<C>{}{}</C>", "<a>".repeat(40), "</a>".repeat(40));
        let bad = [
            "",
            " ",
            "x",
            "<C>",
            "<C></D>",
            "<D/>",
            "<C/><C/>",
            "<C>text</C>",
            "<C><Part><N>x</N></Part></C>",
            "<C><Part><E>&nope;</E></Part></C>",
            "<C><Part><E><b/></E></Part></C>",
            bomb,
            &deep,
            "</C>",
            "<C/>x",
            "<C><Part></C></Part>",
        ];
        for document in bad {
            assert_eq!(parts(document).map_err(|error| error.code), Err(Code::MalformedXML), "{document}");
        }
        assert!(XmlReader::new(b"\xff").is_err());
    }

    proptest! {
        #[test]
        fn no_document_panics(document in "[<>/CPartNE &;#!\\-\\[\\]?'\"=x\n]{0,80}") {
            let _ = parts(&document);
            let _ = parts(&format!("<C>{document}</C>"));
        }

        #[test]
        fn written_text_is_read_back(text in any::<String>()) {
            // A carriage return is written as a reference; NUL is not an XML character.
            prop_assume!(!text.contains('\0'));
            let mut xml = crate::xml::XmlWriter::new("C");
            xml.element("Part", |part| { part.value("N", 7).text("E", &text); });
            let document = xml.finish();
            let read = parts(std::str::from_utf8(&document).unwrap()).unwrap();
            prop_assert_eq!(read, vec![(7, text)]);
        }
    }
}
