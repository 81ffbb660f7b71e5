//! XML: a writer that keeps the order it is given, a reader that holds only the element it stands on.

mod reader;
mod writer;

pub use reader::Reader;
pub(crate) use writer::PROLOG;
pub use writer::{NAMESPACE, Xml};
