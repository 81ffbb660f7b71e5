//! Reading documents: an element at a time, names without their prefixes. Comments, processing instructions and the white
//! space between elements do not count; text keeps every byte. A document type is refused: nothing is ever expanded.

use quick_xml::Reader as Events;
use quick_xml::events::{BytesStart, Event};

use crate::errors::{Code, Fault};

/// Deepest nesting.
const DEPTH_MAX: usize = 32;

/// Stands on an element of a document; its children are visited in turn.
///
/// ```
/// # use larder_api_s3::xml::Reader;
/// let mut xml = Reader::open(b"<Tag><Key>k</Key><Value> v </Value></Tag>", "Tag")?;
/// let (mut key, mut value) = (None, None);
/// while let Some(name) = xml.child()? {
///     match name {
///         "Key" => key = Some(xml.text()?),
///         "Value" => value = Some(xml.text()?),
///         _ => xml.skip()?,
///     }
/// }
/// xml.end()?;
/// assert_eq!((key.as_deref(), value.as_deref()), (Some("k"), Some(" v ")));
/// # Ok::<(), larder_api_s3::errors::Fault>(())
/// ```
pub struct Reader<'a> {
    events: Events<&'a [u8]>,
    document: &'a str,
    current: Option<BytesStart<'a>>,
    depth: usize,
    /// The element came as `<a/>`: its end is already behind the reader.
    closed: bool,
}

impl<'a> Reader<'a> {
    /// Stands on the root, which must be called `root`.
    ///
    /// # Errors
    /// `MalformedXML` here and below.
    pub fn open(document: &'a [u8], root: &str) -> Result<Self, Fault> {
        let mut reader = Self::any(document)?;
        match reader.child()? {
            Some(name) if name == root => Ok(reader),
            _ => Err(malformed()),
        }
    }

    /// Stands before the root, which is the first [`child`](Self::child).
    ///
    /// # Errors
    /// It is no UTF-8.
    pub fn any(document: &'a [u8]) -> Result<Self, Fault> {
        let text = std::str::from_utf8(document).map_err(|_| malformed())?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut events = Events::from_str(text);
        events.config_mut().check_end_names = true;
        Ok(Self { events, document: text, current: None, depth: 0, closed: false })
    }

    /// Goes to the next child and tells its name; `None` behind the last: the reader then stands on the parent's end, so the
    /// next call of it visits the parent's brothers.
    ///
    /// # Errors
    /// Not well formed, too deep, or text where there can be none.
    pub fn child(&mut self) -> Result<Option<&'a str>, Fault> {
        if !self.next_child()? {
            return Ok(None);
        }
        let name = self.current.as_ref().and_then(|start| within(self.document, start.name().into_inner()));
        name.map(|name| Some(local(name))).ok_or_else(malformed)
    }

    fn next_child(&mut self) -> Result<bool, Fault> {
        if std::mem::take(&mut self.closed) {
            self.depth -= 1;
            return Ok(false);
        }
        loop {
            match self.event()? {
                Event::Start(start) => return self.enter(start, false).map(|()| true),
                Event::Empty(start) => return self.enter(start, true).map(|()| true),
                Event::End(_) => {
                    self.depth = self.depth.checked_sub(1).ok_or_else(malformed)?;
                    return Ok(false);
                }
                Event::Text(text) if text.trim().is_empty() => {}
                Event::Comment(_) | Event::PI(_) | Event::Decl(_) => {}
                Event::Eof | Event::Text(_) | Event::CData(_) | Event::GeneralRef(_) | Event::DocType(_) => {
                    return Err(malformed());
                }
            }
        }
    }

    /// The text of the current element, which has no children, and goes behind it.
    ///
    /// # Errors
    /// It has children, or is not well formed.
    pub fn text(&mut self) -> Result<String, Fault> {
        let mut text = String::new();
        if std::mem::take(&mut self.closed) {
            self.depth -= 1;
            return Ok(text);
        }
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

    /// The current element's text without the white space around it, as a number or a word.
    ///
    /// # Errors
    /// As [`text`](Self::text), and when it cannot be read as a `T`.
    pub fn parsed<T: std::str::FromStr>(&mut self) -> Result<T, Fault> {
        self.text()?.trim().parse().map_err(|_| malformed())
    }

    /// Goes behind the current element, whatever is in it.
    ///
    /// # Errors
    /// Not well formed, too deep.
    pub fn skip(&mut self) -> Result<(), Fault> {
        if std::mem::take(&mut self.closed) {
            self.depth -= 1;
            return Ok(());
        }
        let outside = self.depth - 1;
        while self.depth > outside {
            match self.event()? {
                Event::Start(start) => self.enter(start, false)?,
                Event::End(_) => self.depth -= 1,
                Event::Eof | Event::DocType(_) => return Err(malformed()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes sure that nothing follows the root.
    ///
    /// # Errors
    /// Something does.
    pub fn end(mut self) -> Result<(), Fault> {
        loop {
            match self.event()? {
                Event::Eof => return Ok(()),
                Event::Text(text) if text.trim().is_empty() => {}
                Event::Comment(_) | Event::PI(_) => {}
                _ => return Err(malformed()),
            }
        }
    }

    fn event(&mut self) -> Result<Event<'a>, Fault> {
        self.events.read_event().map_err(|_| malformed())
    }

    fn enter(&mut self, start: BytesStart<'a>, closed: bool) -> Result<(), Fault> {
        if self.depth == DEPTH_MAX {
            return Err(malformed());
        }
        self.depth += 1;
        self.current = Some(start);
        self.closed = closed;
        Ok(())
    }
}

/// 400, the document cannot be read.
fn malformed() -> Fault {
    Code::MalformedXML.into()
}

/// The part of `document` that `part` is, which outlives the event that found it.
fn within<'a>(document: &'a str, part: &str) -> Option<&'a str> {
    let from = part.as_ptr().addr().checked_sub(document.as_ptr().addr())?;
    document.get(from..from + part.len())
}

fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

fn resolve(reference: &quick_xml::events::BytesRef<'_>) -> Result<char, Fault> {
    if let Ok(Some(char)) = reference.resolve_char_ref() {
        return Ok(char);
    }
    match reference.as_ref() {
        "lt" => Ok('<'),
        "gt" => Ok('>'),
        "amp" => Ok('&'),
        "quot" => Ok('"'),
        "apos" => Ok('\''),
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(document: &str) -> Result<Vec<(u32, String)>, Fault> {
        let mut xml = Reader::open(document.as_bytes(), "C")?;
        let mut parts = Vec::new();
        while let Some(name) = xml.child()? {
            if name != "Part" {
                xml.skip()?;
                continue;
            }
            let mut part = (0, String::new());
            while let Some(name) = xml.child()? {
                match name {
                    "N" => part.0 = xml.parsed()?,
                    "E" => part.1 = xml.text()?,
                    _ => xml.skip()?,
                }
            }
            parts.push(part);
        }
        xml.end()?;
        Ok(parts)
    }

    #[test]
    fn prologs_prefixes_comments_and_white_space_do_not_matter() {
        let document = "\u{feff}<?xml version='1.0'?>\n<!-- hi --><s:C xmlns:s=\"u\"> <s:Part><s:N> 1 </s:N><E>&quot;a&quot;\
            </E></s:Part>\n<X><Y><Z/>t</Y></X><Part><E> k&#x9;<![CDATA[<v>]]>&lt;<!-- c --> </E><N>2</N><Q/></Part><Part/>\
            </s:C>\n<!-- bye -->";
        let expected = vec![(1, "\"a\"".to_owned()), (2, " k\t<v>< ".to_owned()), (0, String::new())];
        assert_eq!(parts(document).unwrap(), expected);
        assert_eq!(parts("<C/>").unwrap(), vec![]);
    }

    #[test]
    fn what_is_no_document_is_refused() {
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
            assert_eq!(parts(document).map_err(|fault| fault.code), Err(Code::MalformedXML), "{document}");
        }
        assert!(Reader::any(b"\xff").is_err());
    }

    proptest! {
        #[test]
        fn no_document_panics(document in "[<>/CPartNE &;#!\\-\\[\\]?'\"=x\n]{0,80}") {
            let _ = parts(&document);
            let _ = parts(&format!("<C>{document}</C>"));
        }

        #[test]
        fn what_is_written_is_read(text in any::<String>()) {
            // A carriage return comes as a reference, a NUL is no character of XML at all.
            prop_assume!(!text.contains('\0'));
            let mut xml = crate::xml::Xml::new("C");
            xml.within("Part", |part| { part.value("N", 7).text("E", &text); });
            let document = xml.finish();
            let read = parts(std::str::from_utf8(&document).unwrap()).unwrap();
            prop_assert_eq!(read, vec![(7, text)]);
        }
    }
}
