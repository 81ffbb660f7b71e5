//! The reader of documents whose other elements mean nothing here.

use std::ops::{Deref, DerefMut};

use super::XmlReader;
use crate::errors::S3Error;

/// A reader that may [`skip`](Self::skip) elements: of what another server answers, and of Riak CS's user documents, which are sent
/// back with all that was read. A document with which a client asks for something is read by [`XmlReader`] instead.
///
/// ```text
/// let mut xml = LenientXmlReader::open(b"<Tag><Key>k</Key><Colour/></Tag>", "Tag")?;
/// while let Some(name) = xml.next_child()? {
///     match name {
///         "Key" => key = Some(xml.text()?),
///         _ => xml.skip()?,
///     }
/// }
/// ```
pub struct LenientXmlReader<'a>(XmlReader<'a>);

impl<'a> LenientXmlReader<'a> {
    /// Moves to the root element, which must be named `root`.
    ///
    /// # Errors
    /// As [`XmlReader::open`].
    pub fn open(document: &'a [u8], root: &str) -> Result<Self, S3Error> {
        XmlReader::open(document, root).map(Self::over)
    }

    /// A reader in front of the root, which is the first [`next_child`](XmlReader::next_child).
    ///
    /// # Errors
    /// As [`XmlReader::new`].
    pub fn new(document: &'a [u8]) -> Result<Self, S3Error> {
        XmlReader::new(document).map(Self::over)
    }

    fn over(mut reader: XmlReader<'a>) -> Self {
        reader.is_lenient = true;
        Self(reader)
    }

    /// Moves past the current element and its content.
    ///
    /// # Errors
    /// The document is not well formed or nests too deep.
    pub fn skip(&mut self) -> Result<(), S3Error> {
        self.0.pass()
    }

    /// Checks that nothing follows the root.
    ///
    /// # Errors
    /// Content follows the root.
    pub fn expect_end(self) -> Result<(), S3Error> {
        self.0.expect_end()
    }
}

impl<'a> Deref for LenientXmlReader<'a> {
    type Target = XmlReader<'a>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for LenientXmlReader<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
