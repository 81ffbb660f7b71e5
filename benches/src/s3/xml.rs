//! Reads XML answers: the texts of elements without children, and their number.

use memchr::memmem;

/// The text of the first element of this name, entities resolved; `None` when there is none.
pub(crate) fn text(document: &[u8], name: &str) -> Option<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let start = memmem::find(document, open.as_bytes())? + open.len();
    let length = memmem::find(&document[start..], close.as_bytes())?;
    let raw = std::str::from_utf8(&document[start..start + length]).ok()?;
    Some(resolved(raw))
}

/// The number of elements of this name.
pub(crate) fn count(document: &[u8], name: &str) -> u64 {
    memmem::find_iter(document, format!("<{name}>").as_bytes()).count() as u64
}

/// The texts of all elements of this name.
pub(crate) fn texts(document: &[u8], name: &str) -> Vec<String> {
    let open = format!("<{name}>");
    memmem::find_iter(document, open.as_bytes()).filter_map(|at| text(&document[at..], name)).collect()
}

/// Resolves the entities; the ampersand comes last, so that its result is not resolved again.
fn resolved(raw: &str) -> String {
    let pairs = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#34;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    pairs.iter().fold(raw.to_owned(), |text, (entity, character)| text.replace(entity, character))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &[u8] = b"<R><Token>a&amp;lt;b=</Token><C><Key>one</Key></C><C><Key>two</Key></C><Empty></Empty></R>";

    #[test]
    fn elements_are_found_by_name() {
        assert_eq!(text(PAGE, "Token").unwrap(), "a&lt;b=");
        assert_eq!(text(PAGE, "Empty").unwrap(), "");
        assert_eq!(text(PAGE, "Missing"), None);
        assert_eq!(count(PAGE, "Key"), 2);
        assert_eq!(texts(PAGE, "Key"), ["one", "two"]);
    }

    #[test]
    fn half_an_element_is_none() {
        assert_eq!(text(b"<Token>a", "Token"), None);
        assert_eq!(text(b"", "Token"), None);
    }
}
