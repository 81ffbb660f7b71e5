//! XML: a writer that keeps the given order, and a streaming reader that holds only the current element.

mod reader;
mod writer;

pub use reader::XmlReader;
pub(crate) use writer::PROLOG;
pub use writer::{NAMESPACE, XmlWriter};
