//! Decodes JSON into property values: the forms that each kind accepts, and the reason it gives for others.
//!
//! Coercion follows the Riak KV property reference. A boolean may be a string in any case or an integer, a quorum an integer
//! or a lower-case name, and a single hook is a list of one.

use serde_json::{Map, Value as Json};

use super::quorum::Quorum;
use super::reason::InvalidReason;
use super::table::PropKind;
use super::value::{Datatype, Hook, LinkFun, ModFun, Repl, SyncOnWrite, Value};

impl PropKind {
    /// Decodes `json` as a value of this kind.
    ///
    /// # Errors
    /// The [`InvalidReason`] that Riak gives for a bad value of this kind, or Larder's own where Riak does not check.
    pub fn decode(self, json: &Json) -> Result<Value, InvalidReason> {
        match self {
            Self::Flag => flag(json).map(Value::Bool).ok_or(InvalidReason::NotBoolean),
            Self::Positive => integer(json, 1).map(Value::Int).ok_or(InvalidReason::NotInteger),
            Self::NonNegative => integer(json, 0).map(Value::Int).ok_or(InvalidReason::NotInteger),
            Self::Precision => {
                precision(json).map(Value::Int).ok_or_else(|| InvalidReason::HllPrecision(quoted_in_error(json)))
            }
            Self::Quorum => quorum(json, 1).map(Value::Quorum).ok_or(InvalidReason::NotValidQuorum),
            Self::QuorumOrZero => quorum(json, 0).map(Value::Quorum).ok_or(InvalidReason::NotValidQuorum),
            Self::Text => text(json).map(Value::Text).ok_or(InvalidReason::NotString),
            Self::Node => text(json).map(Value::Node).ok_or(InvalidReason::NotString),
            Self::Sync => named(json, SyncOnWrite::named).map(Value::Sync).ok_or(InvalidReason::NotValidSyncParam),
            Self::Repl => repl(json).map(Value::Repl).ok_or(InvalidReason::NotValidRepl),
            Self::Datatype => named(json, Datatype::named)
                .map(Value::Datatype)
                .ok_or_else(|| InvalidReason::Datatype(quoted_in_error(json))),
            Self::Hooks => hooks(json).map(Value::Hooks).ok_or(InvalidReason::NotValidHook),
            // Riak takes a text, too.
            Self::KeyFun => modfun(json)
                .map(Value::KeyFun)
                .or_else(|| text(json).map(Value::Text))
                .ok_or(InvalidReason::NotValidFunction),
            Self::LinkFun => linkfun(json).map(Value::LinkFun).ok_or(InvalidReason::NotValidFunction),
        }
    }
}

/// A boolean in any of the forms that Riak accepts.
pub(super) fn flag(json: &Json) -> Option<bool> {
    match json {
        Json::Bool(flag) => Some(*flag),
        Json::String(text) if text.eq_ignore_ascii_case("true") => Some(true),
        Json::String(text) if text.eq_ignore_ascii_case("false") => Some(false),
        Json::Number(number) => number.as_i64().map(|number| number > 0),
        _ => None,
    }
}

/// A value in the form of an error text: strings without quotes, everything else as JSON.
pub(super) fn quoted_in_error(json: &Json) -> String {
    json.as_str().map_or_else(|| json.to_string(), str::to_owned)
}

fn integer(json: &Json, least: u32) -> Option<i64> {
    count(json, least).map(i64::from)
}

/// A count of at least `least`. Protocol buffers carry counts as unsigned 32-bit numbers, so no property takes more.
fn count(json: &Json, least: u32) -> Option<u32> {
    json.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number >= least)
}

fn precision(json: &Json) -> Option<i64> {
    json.as_i64().filter(|precision| (4..=16).contains(precision))
}

fn quorum(json: &Json, least: u32) -> Option<Quorum> {
    named(json, Quorum::named).or_else(|| count(json, least).map(Quorum::Count))
}

fn text(json: &Json) -> Option<String> {
    json.as_str().map(str::to_owned)
}

fn named<T>(json: &Json, find: impl Fn(&str) -> Option<T>) -> Option<T> {
    json.as_str().and_then(find)
}

fn repl(json: &Json) -> Option<Repl> {
    match json {
        Json::Bool(true) => Some(Repl::True),
        Json::Bool(false) => Some(Repl::False),
        Json::String(text) if text == "both" => Some(Repl::True),
        _ => named(json, Repl::named),
    }
}

fn hooks(json: &Json) -> Option<Vec<Hook>> {
    match json {
        Json::String(none) if none == "none" => Some(Vec::new()),
        Json::Array(list) => list.iter().map(hook).collect(),
        single => hook(single).map(|hook| vec![hook]),
    }
}

fn hook(json: &Json) -> Option<Hook> {
    match json {
        Json::String(name) => Some(Hook::Text(name.clone())),
        Json::Object(object) => match only_text(object, "name") {
            Some(name) => Some(Hook::Named(name.to_owned())),
            None => match object.get("arg") {
                Some(argument) => with_argument(object, argument),
                None => modfun(json).map(Hook::ModFun),
            },
        },
        _ => None,
    }
}

fn with_argument(object: &Map<String, Json>, argument: &Json) -> Option<Hook> {
    let text = |name| object.get(name).and_then(text);
    let function = ModFun { module: text("mod")?, function: text("fun")? };
    (object.len() == 3).then(|| Hook::WithArgument { function, argument: argument.clone() })
}

fn modfun(json: &Json) -> Option<ModFun> {
    let (module, function) = two_texts(json, "mod", "fun")?;
    Some(ModFun { module, function })
}

fn linkfun(json: &Json) -> Option<LinkFun> {
    if let Some(fun) = modfun(json) {
        return Some(LinkFun::ModFun(fun));
    }
    let object = json.as_object()?;
    if let Some(name) = only_text(object, "jsfun") {
        return Some(LinkFun::Named(name.to_owned()));
    }
    if let Some(source) = only_text(object, "jsanon") {
        return Some(LinkFun::Source(source.to_owned()));
    }
    let (bucket, key) = two_texts(only_member(object, "jsanon")?, "bucket", "key")?;
    Some(LinkFun::Stored { bucket, key })
}

/// The member `name` of an object without other members.
fn only_member<'a>(object: &'a Map<String, Json>, name: &str) -> Option<&'a Json> {
    object.get(name).filter(|_| object.len() == 1)
}

fn only_text<'a>(object: &'a Map<String, Json>, name: &str) -> Option<&'a str> {
    only_member(object, name).and_then(Json::as_str)
}

/// The two text members of an object without other members.
fn two_texts(json: &Json, first: &str, second: &str) -> Option<(String, String)> {
    let object = json.as_object().filter(|object| object.len() == 2)?;
    Some((text(object.get(first)?)?, text(object.get(second)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: PropKind, given: &str, expected: &str) {
        let json: Json = serde_json::from_str(given).unwrap();
        let got = match kind.decode(&json) {
            Ok(value) => value.to_json().to_string(),
            Err(reason) => format!("refused: {}", reason.text()),
        };
        assert_eq!(got, expected, "{kind:?} {given}");
    }

    #[test]
    fn booleans_are_coerced() {
        for given in ["true", r#""true""#, r#""True""#, r#""TRUE""#, "1", "7"] {
            check(PropKind::Flag, given, "true");
        }
        for given in ["false", r#""False""#, "0", "-1"] {
            check(PropKind::Flag, given, "false");
        }
        for given in ["null", r#""maybe""#, r#""""#, "1.5", "[]", "{}", "99999999999999999999"] {
            check(PropKind::Flag, given, "refused: not_boolean");
        }
    }

    #[test]
    fn integers_have_bounds() {
        check(PropKind::Positive, "1", "1");
        check(PropKind::NonNegative, "0", "0");
        check(PropKind::Positive, "4294967295", "4294967295");
        for given in ["0", "-1", "2.5", "2.0", "1e3", r#""three""#, r#""3""#, "null", "4294967296", "1e999"] {
            check(PropKind::Positive, given, "refused: not_integer");
        }
        check(PropKind::NonNegative, "-1", "refused: not_integer");
        for given in ["4", "16"] {
            check(PropKind::Precision, given, given);
        }
    }

    #[test]
    fn quorums_are_names_or_counts() {
        check(PropKind::Quorum, r#""all""#, r#""all""#);
        check(PropKind::Quorum, "99", "99");
        check(PropKind::QuorumOrZero, "0", "0");
        for given in ["0", "-1", r#""default""#, r#""ALL""#, r#""foo""#, "true", "1.5"] {
            check(PropKind::Quorum, given, "refused: not_valid_quorum");
        }
    }

    #[test]
    fn hooks_keep_their_form_and_order() {
        let many = r#"["b",{"name":"JS.f"},{"mod":"m","fun":"f"},"a"]"#;
        check(PropKind::Hooks, many, many);
        check(PropKind::Hooks, r#""x""#, r#"["x"]"#);
        check(PropKind::Hooks, r#"{"mod":"a","fun":"b"}"#, r#"[{"mod":"a","fun":"b"}]"#);
        check(PropKind::Hooks, r#""none""#, "[]");
        let native = r#"[{"mod":"larder","fun":"max_size","arg":{"bytes":10}}]"#;
        check(PropKind::Hooks, native, native);
        for given in ["5", "[5]", "null", r#"{"mod":"a"}"#, r#"{"name":1}"#, r#"{"mod":"a","fun":"b","x":1}"#] {
            check(PropKind::Hooks, given, "refused: not_valid_hook");
        }
    }

    #[test]
    fn functions_names_and_replication_have_fixed_forms() {
        check(PropKind::KeyFun, r#"{"fun":"f","mod":"m"}"#, r#"{"mod":"m","fun":"f"}"#);
        check(PropKind::KeyFun, r#"{"jsfun":"f"}"#, "refused: not_valid_function");
        for same in [r#"{"jsfun":"f"}"#, r#"{"jsanon":"src"}"#, r#"{"jsanon":{"bucket":"b","key":"k"}}"#] {
            check(PropKind::LinkFun, same, same);
        }
        check(PropKind::LinkFun, r#"{"jsanon":{"bucket":"b"}}"#, "refused: not_valid_function");
        check(PropKind::Sync, r#""one""#, r#""one""#);
        check(PropKind::Sync, r#""two""#, "refused: not_valid_sync_param");
        check(PropKind::Repl, r#""both""#, "true");
        check(PropKind::Repl, r#""false""#, "false");
        check(PropKind::Repl, "3", "refused: not_valid_repl");
        check(PropKind::Datatype, r#""gset""#, r#""gset""#);
        check(PropKind::Datatype, r#""bag""#, "refused: bag not supported for bucket datatype property");
        check(PropKind::Text, "1", "refused: not_string");
    }
}
