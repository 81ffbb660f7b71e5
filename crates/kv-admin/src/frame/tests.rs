//! The bytes of frames, their bounds, and frames of other formats.

use super::*;
use proptest::prelude::*;
use serde_json::json;

#[test]
fn a_length_above_the_bound_is_refused_on_both_sides() {
    assert_eq!(body_length([0, 0, 0, 9], 9), Ok(9));
    assert_eq!(body_length([0, 0, 0, 10], 9), Err(BadFrame::Long { bytes: 10, max: 9 }));
    assert_eq!(framed(&"seven", 7), Ok(b"\0\0\0\x07\"seven\"".to_vec()));
    assert_eq!(framed(&"eight!", 7), Err(BadFrame::Long { bytes: 8, max: 7 }));
}

fn decode_request(body: &str) -> Result<AdminRequest, BadFrame> {
    AdminRequest::decode(body.as_bytes())
}

#[test]
fn a_request_has_these_bytes() {
    let single_entry = |arg: &str, text: &str| BTreeMap::from([(arg.to_owned(), text.to_owned())]);
    let (args, files, unreadable) = (vec!["ping".to_owned()], single_entry("@f", "{}"), single_entry("@g", "no"));
    let request = AdminRequest { args, files, unreadable, progress: true, folders: BTreeMap::new() };
    let body = r#"{"args":["ping"],"files":{"@f":"{}"},"unreadable":{"@g":"no"},"progress":true}"#;
    assert_eq!(request.encode().unwrap(), [&[0, 0, 0, 78], body.as_bytes()].concat());
    assert_eq!(decode_request(body), Ok(request));
}

#[test]
fn requests_of_other_formats_are_malformed() {
    for body in [
        "",
        "{}",
        r#"["ping"]"#,
        r#"{"args":["ping"]}"#,
        r#"{"args":[1],"files":{},"unreadable":{},"progress":true}"#,
        r#"{"args":[],"files":{"@f":1},"unreadable":{},"progress":true}"#,
        r#"{"args":[],"files":{},"unreadable":{},"progress":1}"#,
    ] {
        assert_eq!(decode_request(body), Err(BadFrame::Malformed), "{body}");
    }
    assert_eq!(AdminRequest::decode(&[b'['; 100_000]), Err(BadFrame::Malformed));
    let many = json!({ "args": vec![""; ARGS_MAX + 1], "files": {}, "progress": false }).to_string();
    assert_eq!(decode_request(&many), Err(BadFrame::TooManyArgs(ARGS_MAX + 1)));
}

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
fn replies_of_other_formats_are_malformed() {
    for body in [
        "",
        "[]",
        r#"{"stdout":"pong\n","stderr":"","exit":0}"#,
        r#"{"answer":{"stdout":"","stderr":""}}"#,
        r#"{"progress":{"seconds":1.5,"text":"export keys"}}"#,
    ] {
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
    fn a_request_decodes_to_itself(
        args: Vec<String>, files: BTreeMap<String, String>, unreadable: BTreeMap<String, String>, progress: bool
    ) {
        let request = AdminRequest { args, files, unreadable, progress, folders: BTreeMap::new() };
        prop_assert_eq!(AdminRequest::decode(&request.encode().unwrap()[LENGTH_BYTES..]), Ok(request));
    }

    #[test]
    fn arbitrary_requests_decode_or_fail_without_a_panic(bytes: Vec<u8>) {
        let _ = AdminRequest::decode(&bytes);
    }

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
    fn arbitrary_replies_decode_or_fail_without_a_panic(bytes: Vec<u8>) {
        let _ = AdminReply::decode(&bytes);
    }
}

#[test]
fn the_nearest_folder_is_the_first_that_exists() {
    let dir = tempfile::tempdir().unwrap();
    let nearest = SeenFolder::nearest(&dir.path().join("a/b/c")).unwrap();
    assert_eq!(nearest.path, dir.path());
    let request = AdminRequest { folders: BTreeMap::from([("/x".into(), nearest)]), ..AdminRequest::default() };
    assert_eq!(AdminRequest::decode(&request.encode().unwrap()[LENGTH_BYTES..]).unwrap(), request);
}
