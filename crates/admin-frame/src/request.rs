//! The request: the arguments of one command.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::{BadFrame, framed};

/// Longest request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 1024 * 1024;
/// Most arguments of a request.
pub const ARGS_MAX: usize = 1024;

/// One command for the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdminRequest {
    /// The arguments after `kv-admin`.
    pub args: Vec<String>,
    /// The content of FILE for each argument `@FILE`. The command decides which arguments may name files; others may begin
    /// with `@`, too.
    pub files: BTreeMap<String, String>,
    /// The reason why FILE cannot be read, for each other argument `@FILE`.
    pub unreadable: BTreeMap<String, String>,
    /// Whether the client shows progress.
    pub progress: bool,
}

impl AdminRequest {
    /// The frame.
    ///
    /// # Errors
    /// [`BadFrame::Long`]: the body exceeds [`REQUEST_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, BadFrame> {
        let Self { args, files, unreadable, progress } = self;
        let body = json!({ "args": args, "files": files, "unreadable": unreadable, "progress": progress });
        framed(&body, REQUEST_BYTES_MAX)
    }

    /// The request in the body of a frame.
    ///
    /// # Errors
    /// [`BadFrame::Malformed`] or [`BadFrame::TooManyArgs`].
    pub fn decode(body: &[u8]) -> Result<Self, BadFrame> {
        let malformed = |_| BadFrame::Malformed;
        let mut json: Json = serde_json::from_slice(body).map_err(malformed)?;
        let mut member = |name: &str| json.get_mut(name).map(Json::take).unwrap_or_default();
        let args: Vec<String> = serde_json::from_value(member("args")).map_err(malformed)?;
        if args.len() > ARGS_MAX {
            return Err(BadFrame::TooManyArgs(args.len()));
        }
        let files = serde_json::from_value(member("files")).map_err(malformed)?;
        let unreadable = serde_json::from_value(member("unreadable")).map_err(malformed)?;
        let progress = serde_json::from_value(member("progress")).map_err(malformed)?;
        Ok(Self { args, files, unreadable, progress })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(body: &str) -> Result<AdminRequest, BadFrame> {
        AdminRequest::decode(body.as_bytes())
    }

    #[test]
    fn a_request_has_these_bytes() {
        let one = |arg: &str, text: &str| BTreeMap::from([(arg.to_owned(), text.to_owned())]);
        let (args, files, unreadable) = (vec!["ping".to_owned()], one("@f", "{}"), one("@g", "no"));
        let request = AdminRequest { args, files, unreadable, progress: true };
        let body = r#"{"args":["ping"],"files":{"@f":"{}"},"unreadable":{"@g":"no"},"progress":true}"#;
        assert_eq!(request.encode().unwrap(), [&[0, 0, 0, 78], body.as_bytes()].concat());
        assert_eq!(text(body), Ok(request));
    }

    #[test]
    fn other_formats_are_malformed() {
        for body in [
            "",
            "{}",
            r#"["ping"]"#,
            r#"{"args":["ping"]}"#,
            r#"{"args":[1],"files":{},"unreadable":{},"progress":true}"#,
            r#"{"args":[],"files":{"@f":1},"unreadable":{},"progress":true}"#,
            r#"{"args":[],"files":{},"unreadable":{},"progress":1}"#,
        ] {
            assert_eq!(text(body), Err(BadFrame::Malformed), "{body}");
        }
        assert_eq!(AdminRequest::decode(&[b'['; 100_000]), Err(BadFrame::Malformed));
        let many = json!({ "args": vec![""; ARGS_MAX + 1], "files": {}, "progress": false }).to_string();
        assert_eq!(text(&many), Err(BadFrame::TooManyArgs(ARGS_MAX + 1)));
    }

    proptest! {
        #[test]
        fn a_request_decodes_to_itself(
            args: Vec<String>, files: BTreeMap<String, String>, unreadable: BTreeMap<String, String>, progress: bool
        ) {
            let request = AdminRequest { args, files, unreadable, progress };
            prop_assert_eq!(AdminRequest::decode(&request.encode().unwrap()[crate::LENGTH_BYTES..]), Ok(request));
        }

        #[test]
        fn arbitrary_bytes_decode_or_fail_without_a_panic(bytes: Vec<u8>) {
            let _ = AdminRequest::decode(&bytes);
        }
    }
}
