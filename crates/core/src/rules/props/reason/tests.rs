//! The wording of every reason, as Riak writes it.

use super::*;
use crate::rules::props::webhook_url::{WebhookHost, WebhookUrlFault};

fn one(prop: &str, reason: InvalidReason) -> PropsError {
    PropsError::Props(vec![InvalidProp { prop: prop.into(), reason }])
}

#[test]
fn atoms_have_a_console_line_of_their_own() {
    for (prop, reason, atom, line) in [
        ("allow_mult", InvalidReason::NotBoolean, "not_boolean", r#"allow_mult should be "true" or "false""#),
        ("n_val", InvalidReason::NotInteger, "not_integer", "n_val must be an integer"),
        ("w", InvalidReason::NotValidQuorum, "not_valid_quorum", "w must be an integer or (one|quorum|all)"),
        (
            "sync_on_write",
            InvalidReason::NotValidSyncParam,
            "not_valid_sync_param",
            "sync_on_write: not_valid_sync_param",
        ),
        ("nope", InvalidReason::UnknownProperty, "unknown_property", "nope is not a bucket property"),
        ("precommit", InvalidReason::NotValidHook, "not_valid_hook", "precommit must be a list of hook names"),
        (
            "linkfun",
            InvalidReason::NotValidFunction,
            "not_valid_function",
            r#"linkfun must be an object with "mod" and "fun""#,
        ),
        ("backend", InvalidReason::NotString, "not_string", "backend must be a string"),
        ("repl", InvalidReason::NotValidRepl, "not_valid_repl", "repl must be true, false, realtime, fullsync or both"),
    ] {
        let refused = one(prop, reason);
        assert_eq!(refused.http_json().to_string(), format!(r#"{{"{prop}":"{atom}"}}"#));
        assert_eq!(refused.console(), [line]);
        assert_eq!(refused.erlang(), format!("[{{{prop},{atom}}}]"));
        assert_eq!(refused.to_string(), line);
    }
}

#[test]
fn texts_are_riaks_to_the_letter() {
    for (reason, text) in [
        (InvalidReason::CannotUpdateWriteOnce, "cannot update write_once property"),
        (InvalidReason::CannotUpdateConsistent, "cannot update consistent property"),
        (InvalidReason::CannotUpdateClaimant, "Cannot update claimant property"),
        (InvalidReason::CannotModifyActive, "Cannot modify active property"),
        (InvalidReason::DvvWithLastWriteWins, "If last_write_wins is true, dvv_enabled must be false"),
        (InvalidReason::ConsistentValue("x".into()), r#"x is not a valid value for consistent. Use "true" or "false""#),
        (InvalidReason::CreateWriteOnceConsistent, "Write once buckets must be not be consistent=true"),
        (InvalidReason::UpdateWriteOnceConsistent, "Write once buckets must not be consistent=true"),
        (InvalidReason::WriteOnceDatatype, "Write once buckets must not have datatype defined"),
        (InvalidReason::Datatype("set".into()), "set not supported for bucket datatype property"),
        (InvalidReason::DatatypeNotDefined, "`datatype` must not be defined."),
        (InvalidReason::DatatypeAllowMult, "Data Type buckets must be allow_mult=true"),
        (
            InvalidReason::HllPrecision("15".into()),
            "15 not supported for Hyperloglog precision property for bucket type. Precision must be an integer between 4 and 16, inclusive (3 < p < 17) and precision can be reduced but never increased after initial setting",
        ),
        (InvalidReason::ConsistentNVal, "n_val cannot be modified for existing consistent type"),
        (InvalidReason::WriteOnceForever, "Cannot modify write_once property once set to true"),
        (InvalidReason::WriteOnceExisting, "Cannot set existing bucket type to `write_once`"),
        (
            InvalidReason::NValAboveNodes(3),
            "n_val cannot be greater than the number of nodes that hold data, which is 3",
        ),
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
    assert_eq!(one("consistent", InvalidReason::CannotUpdateConsistent).http_json().to_string(), body);
}

#[test]
fn protocol_buffers_show_erlang_terms() {
    let two = PropsError::Props(vec![
        InvalidProp { prop: "n_val".into(), reason: InvalidReason::NotInteger },
        InvalidProp { prop: "No such".into(), reason: InvalidReason::UnknownProperty },
    ]);
    assert_eq!(two.erlang(), "[{n_val,not_integer},{'No such',unknown_property}]");
    let text = one("datatype", InvalidReason::DatatypeNotDefined);
    assert_eq!(text.erlang(), "[{datatype,\"`datatype` must not be defined.\"}]");
}

#[test]
fn refused_requests_have_the_texts_of_riak() {
    for (whole, text) in [
        (TypeRefusal::DefaultType, "default_type"),
        (TypeRefusal::NoDefaultUpdate, "no_default_update"),
        (TypeRefusal::ReservedName, "The name 'any' may not be used for bucket types"),
        (TypeRefusal::AlreadyActive, "already_active"),
        (TypeRefusal::NotActive, "not_active"),
    ] {
        let refused = PropsError::from(whole);
        assert_eq!(refused.console(), [text]);
        assert_eq!(refused.http_json(), json!(text));
        if whole != TypeRefusal::ReservedName {
            assert_eq!(refused.erlang(), text);
        }
    }
}

#[test]
fn a_refused_hook_is_named_with_its_fault() {
    for (fault, text) in [
        (HookFault::NotBuiltIn, "my:check is not built in"),
        (HookFault::WrongArgument, "my:check has another argument"),
        (HookFault::PrecommitOnly, "my:check is built in for precommit only"),
        (HookFault::PostcommitOnly, "my:check is built in for postcommit only"),
        (HookFault::NotASchema("7 is no type".into()), "my:check has no JSON schema: 7 is no type"),
        (
            HookFault::NotAWebhook(WebhookUrlFault::NotHttp),
            "my:check has a URL that begins neither with http:// nor with https://",
        ),
        (HookFault::TooManyWebhooks, "my:check is in the list more than 8 times"),
        (
            HookFault::HostNotAllowed(WebhookHost::parse("h").unwrap()),
            "my:check names the host h:80, which the setting --webhook-hosts does not allow",
        ),
    ] {
        let refused = one("precommit", InvalidReason::UnknownHookFunction { function: "my:check".into(), fault });
        assert_eq!(refused.http_json().to_string(), format!(r#"{{"precommit":"unknown_hook_function: {text}"}}"#));
        assert_eq!(refused.console(), [format!("precommit cannot be run: {text}")]);
        assert_eq!(refused.erlang(), format!(r#"[{{precommit,{{unknown_hook_function,"{text}"}}}}]"#));
    }
}
