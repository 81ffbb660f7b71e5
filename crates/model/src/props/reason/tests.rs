//! The wording of every reason, as observed.

use super::*;

fn one(prop: &str, reason: Reason) -> Refused {
    Refused::Props(vec![Invalid { prop: prop.into(), reason }])
}

#[test]
fn words_have_a_console_line_of_their_own() {
    for (prop, reason, word, line) in [
        ("allow_mult", Reason::NotBoolean, "not_boolean", r#"allow_mult should be "true" or "false""#),
        ("n_val", Reason::NotInteger, "not_integer", "n_val must be an integer"),
        ("w", Reason::NotValidQuorum, "not_valid_quorum", "w must be an integer or (one|quorum|all)"),
        ("sync_on_write", Reason::NotValidSyncParam, "not_valid_sync_param", "sync_on_write: not_valid_sync_param"),
        ("nope", Reason::UnknownProperty, "unknown_property", "nope is not a bucket property"),
        ("precommit", Reason::NotValidHook, "not_valid_hook", "precommit must be a list of hook names"),
        (
            "linkfun",
            Reason::NotValidFunction,
            "not_valid_function",
            r#"linkfun must be an object with "mod" and "fun""#,
        ),
        ("backend", Reason::NotString, "not_string", "backend must be a string"),
        ("repl", Reason::NotValidRepl, "not_valid_repl", "repl must be true, false, realtime, fullsync or both"),
    ] {
        let refused = one(prop, reason);
        assert_eq!(refused.http_json().to_string(), format!(r#"{{"{prop}":"{word}"}}"#));
        assert_eq!(refused.console(), [line]);
        assert_eq!(refused.erlang(), format!("[{{{prop},{word}}}]"));
        assert_eq!(refused.to_string(), line);
    }
}

#[test]
fn texts_are_riaks_to_the_letter() {
    for (reason, text) in [
        (Reason::CannotUpdateWriteOnce, "cannot update write_once property"),
        (Reason::CannotUpdateConsistent, "cannot update consistent property"),
        (Reason::CannotUpdateClaimant, "Cannot update claimant property"),
        (Reason::CannotModifyActive, "Cannot modify active property"),
        (Reason::DvvWithLastWriteWins, "If last_write_wins is true, dvv_enabled must be false"),
        (Reason::ConsistentValue("x".into()), r#"x is not a valid value for consistent. Use "true" or "false""#),
        (Reason::CreateWriteOnceConsistent, "Write once buckets must be not be consistent=true"),
        (Reason::UpdateWriteOnceConsistent, "Write once buckets must not be consistent=true"),
        (Reason::WriteOnceDatatype, "Write once buckets must not have datatype defined"),
        (Reason::Datatype("set".into()), "set not supported for bucket datatype property"),
        (Reason::DatatypeNotDefined, "`datatype` must not be defined."),
        (Reason::DatatypeAllowMult, "Data Type buckets must be allow_mult=true"),
        (
            Reason::HllPrecision("15".into()),
            "15 not supported for Hyperloglog precision property for bucket type. Precision must be an integer between 4 and 16, inclusive (3 < p < 17) and precision can be reduced but never increased after initial setting",
        ),
        (Reason::ConsistentNVal, "n_val cannot be modified for existing consistent type"),
        (Reason::WriteOnceForever, "Cannot modify write_once property once set to true"),
        (Reason::WriteOnceExisting, "Cannot set existing bucket type to `write_once`"),
        (Reason::NValAboveNodes(3), "n_val cannot be greater than the number of nodes that hold data, which is 3"),
    ] {
        assert_eq!(reason.text(), text);
        assert_eq!(reason.console("p"), text);
        assert_eq!(reason.http_json(), json!(text.bytes().collect::<Vec<u8>>()));
        assert_eq!(reason.erlang(), format!("\"{}\"", text.replace('"', "\\\"")));
    }
}

#[test]
fn a_text_is_an_array_of_bytes_over_http() {
    let body = r#"{"consistent":[99,97,110,110,111,116,32,117,112,100,97,116,101,32,99,111,110,115,105,115,116,101,110,116,32,112,114,111,112,101,114,116,121]}"#;
    assert_eq!(one("consistent", Reason::CannotUpdateConsistent).http_json().to_string(), body);
}

#[test]
fn protocol_buffers_show_terms() {
    let two = Refused::Props(vec![
        Invalid { prop: "n_val".into(), reason: Reason::NotInteger },
        Invalid { prop: "No such".into(), reason: Reason::UnknownProperty },
    ]);
    assert_eq!(two.erlang(), "[{n_val,not_integer},{'No such',unknown_property}]");
    let text = one("datatype", Reason::DatatypeNotDefined);
    assert_eq!(text.erlang(), "[{datatype,\"`datatype` must not be defined.\"}]");
}

#[test]
fn whole_requests() {
    for (whole, text) in [
        (Whole::DefaultType, "default_type"),
        (Whole::NoDefaultUpdate, "no_default_update"),
        (Whole::ReservedName, "The name 'any' may not be used for bucket types"),
        (Whole::AlreadyActive, "already_active"),
        (Whole::NotActive, "not_active"),
    ] {
        let refused = Refused::from(whole);
        assert_eq!(refused.console(), [text]);
        assert_eq!(refused.http_json(), json!(text));
        if whole != Whole::ReservedName {
            assert_eq!(refused.erlang(), text);
        }
    }
}
