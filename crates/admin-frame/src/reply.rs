//! The frames from the server: progress, then the answer.

use larder_progress_bar::Progress;
use serde_json::{Value as Json, json};

use crate::{AdminAnswer, BadFrame, framed};

/// Longest progress or answer, in bytes.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One frame from the server.
#[derive(Debug, Clone, PartialEq)]
pub enum AdminReply {
    /// The progress of a command that runs.
    Progress(Progress),
    /// The end of the command.
    Answer(AdminAnswer),
}

impl AdminReply {
    /// The frame. A failure that says so replaces an answer longer than [`ANSWER_BYTES_MAX`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let body = match self {
            Self::Progress(Progress { seconds, percent, text }) => {
                json!({ "progress": { "seconds": seconds, "percent": percent, "text": text } })
            }
            Self::Answer(AdminAnswer { stdout, stderr, exit }) => {
                json!({ "answer": { "stdout": stdout, "stderr": stderr, "exit": exit } })
            }
        };
        let too_long = |bad| Self::Answer(AdminAnswer::failed(format!("the answer {bad}"))).encode();
        framed(&body, ANSWER_BYTES_MAX).unwrap_or_else(too_long)
    }

    /// The reply in the body of a frame.
    ///
    /// # Errors
    /// [`BadFrame::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Self, BadFrame> {
        let json: Json = serde_json::from_slice(body).map_err(|_| BadFrame::Malformed)?;
        let reply = match json.get("progress") {
            Some(progress) => progress_of(progress).map(Self::Progress),
            None => json.get("answer").and_then(answer_of).map(Self::Answer),
        };
        reply.ok_or(BadFrame::Malformed)
    }
}

fn progress_of(json: &Json) -> Option<Progress> {
    let seconds = json.get("seconds")?.as_f64()?;
    let percent = json.get("percent")?.as_u64().and_then(|percent| percent.try_into().ok());
    Some(Progress { seconds, percent, text: text(json, "text")? })
}

fn answer_of(json: &Json) -> Option<AdminAnswer> {
    let exit = json.get("exit")?.as_u64()?.try_into().ok()?;
    Some(AdminAnswer { stdout: text(json, "stdout")?, stderr: text(json, "stderr")?, exit })
}

fn text(json: &Json, name: &str) -> Option<String> {
    json.get(name)?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LENGTH_BYTES;
    use proptest::prelude::*;

    fn decoded(reply: &AdminReply) -> Result<AdminReply, BadFrame> {
        AdminReply::decode(&reply.encode()[LENGTH_BYTES..])
    }

    #[test]
    fn progress_and_answer_have_these_bytes() {
        let progress = Progress { seconds: 1.5, percent: None, text: "export keys".to_owned() };
        for (reply, body) in [
            (AdminReply::Progress(progress), r#"{"progress":{"seconds":1.5,"percent":null,"text":"export keys"}}"#),
            (AdminReply::Answer(AdminAnswer::done("pong")), r#"{"answer":{"stdout":"pong\n","stderr":"","exit":0}}"#),
        ] {
            let length = u32::try_from(body.len()).unwrap().to_be_bytes();
            assert_eq!(reply.encode(), [&length, body.as_bytes()].concat());
            assert_eq!(AdminReply::decode(body.as_bytes()), Ok(reply));
        }
    }

    #[test]
    fn other_formats_are_malformed() {
        for body in ["", "[]", r#"{"stdout":"pong\n","stderr":"","exit":0}"#, r#"{"answer":{"stdout":"","stderr":""}}"#]
        {
            assert_eq!(AdminReply::decode(body.as_bytes()), Err(BadFrame::Malformed), "{body}");
        }
    }

    #[test]
    fn an_answer_that_is_too_long_becomes_a_failure() {
        let long = AdminAnswer::done("x".repeat(ANSWER_BYTES_MAX));
        match decoded(&AdminReply::Answer(long)) {
            Ok(AdminReply::Answer(AdminAnswer { stderr, exit: 1, .. })) => {
                assert_eq!(
                    stderr,
                    format!("the answer has {} bytes, more than {ANSWER_BYTES_MAX}\n", ANSWER_BYTES_MAX + 47)
                );
            }
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn a_reply_decodes_to_itself(
            stdout: String, stderr: String, exit: u8, seconds in 0.0..1e9_f64, percent: Option<u8>, text: String
        ) {
            let answer = AdminReply::Answer(AdminAnswer { stdout, stderr, exit });
            prop_assert_eq!(decoded(&answer), Ok(answer));
            let progress = AdminReply::Progress(Progress { seconds, percent, text });
            prop_assert_eq!(decoded(&progress), Ok(progress));
        }

        #[test]
        fn arbitrary_bytes_decode_or_fail_without_a_panic(bytes: Vec<u8>) {
            let _ = AdminReply::decode(&bytes);
        }
    }
}
