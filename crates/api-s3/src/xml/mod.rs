//! XML: a writer that keeps the given order, and a streaming reader that holds only the current element, with a lenient form for
//! documents of others than clients.

mod lenient;
mod reader;
mod writer;

pub use lenient::LenientXmlReader;
pub use reader::XmlReader;
pub(crate) use writer::PROLOG;
pub use writer::{NAMESPACE, XmlWriter};
