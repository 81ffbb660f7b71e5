//! A response.

use std::fmt;

/// A response.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// Its status code.
    pub status: u16,
    /// Its headers, in order.
    pub headers: Vec<(String, String)>,
    /// Its body, complete.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// Reads an answer to a request with this method.
    ///
    /// # Errors
    /// When the bytes are no complete answer.
    pub fn read(mut bytes: &[u8], method: &str) -> std::io::Result<Self> {
        super::reader::read_response(&mut bytes, method, None)
    }

    /// The value of a header; the case of its name does not matter.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is not JSON.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("not JSON ({error}): {self:?}"),
        }
    }

    /// The text of the first XML element of this name.
    #[must_use]
    pub fn element(&self, name: &str) -> Option<&str> {
        element(str::from_utf8(&self.body).ok()?, name)
    }

    /// The causal context.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    #[track_caller]
    pub fn context(&self) -> &str {
        self.header("X-Riak-Vclock").unwrap_or_else(|| panic!("the answer carries no context: {self:?}"))
    }

    /// Fails the test unless the status is this one.
    ///
    /// # Panics
    /// When it is another one.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        let start: String = self.text().chars().take(400).collect();
        assert_eq!(self.status, status, "{start}");
        self
    }

    /// Whether the server closes the connection after it.
    pub(super) fn is_last(&self) -> bool {
        self.header("Connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.status)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {value}")?;
        }
        write!(f, "\n{}", self.text())
    }
}

/// The text of the first XML element of this name.
#[must_use]
pub fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
}
