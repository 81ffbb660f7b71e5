//! Links within the console. Names are parameters, never parts of a path: a browser would resolve a key named `..`.

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

/// A link that is being put together.
#[derive(Debug, Clone)]
pub(crate) struct Href {
    text: String,
    has_query: bool,
}

impl Href {
    /// A link to this path of the table of routes.
    pub(crate) fn to(path: &'static str) -> Self {
        Self { text: path.to_owned(), has_query: false }
    }

    /// The link with a further parameter.
    pub(crate) fn with(mut self, name: &str, value: &[u8]) -> Self {
        self.text.push(if self.has_query { '&' } else { '?' });
        self.has_query = true;
        self.text.extend(percent_encode(name.as_bytes(), NON_ALPHANUMERIC));
        self.text.push('=');
        self.text.extend(percent_encode(value, NON_ALPHANUMERIC));
        self
    }

    /// The link as text.
    pub(crate) fn text(self) -> String {
        self.text
    }
}
