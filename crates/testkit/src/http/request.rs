//! A request.

use std::fmt::Write as _;

/// A request.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    pub(super) method: String,
    pub(super) target: String,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl HttpRequest {
    /// A request with this method to this path and query.
    #[must_use]
    pub fn new(method: &str, target: &str) -> Self {
        Self { method: method.to_owned(), target: target.to_owned(), headers: Vec::new(), body: Vec::new() }
    }

    /// A `GET`.
    #[must_use]
    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    /// A `PUT` of this text.
    #[must_use]
    pub fn put(target: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::new("PUT", target).header("Content-Type", "text/plain").body(body)
    }

    /// A `PUT` of this JSON.
    #[must_use]
    pub fn put_json(target: &str, body: &str) -> Self {
        Self::new("PUT", target).header("Content-Type", "application/json").body(body)
    }

    /// A `POST` of this JSON.
    #[must_use]
    pub fn post_json(target: &str, body: &str) -> Self {
        Self::new("POST", target).header("Content-Type", "application/json").body(body)
    }

    /// This request with one more header; a media type takes the place of the one before.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if name.eq_ignore_ascii_case("content-type") {
            self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        }
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// This request with these headers after its own.
    #[must_use]
    pub fn headers(self, headers: &[(&str, &str)]) -> Self {
        headers.iter().fold(self, |request, (name, value)| request.header(name, value))
    }

    /// This request with this body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The bytes before a body that the caller sends itself: the request line and its headers, without a length.
    #[must_use]
    pub fn head(&self) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str("Host: localhost\r\n");
        }
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head + "\r\n"
    }

    /// The bytes before its body, with the body's length.
    pub(super) fn head_with_length(&self) -> String {
        let mut head = self.head();
        if !self.body.is_empty() || self.method == "PUT" || self.method == "POST" {
            head.truncate(head.len() - 2);
            let _ = write!(head, "Content-Length: {}\r\n\r\n", self.body.len());
        }
        head
    }

    /// All its bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        [self.head_with_length().as_bytes(), &self.body].concat()
    }
}
