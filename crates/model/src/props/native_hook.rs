//! The commit hooks that Larder has built in, named as Riak names Erlang functions: `{"mod":"larder","fun":F,"arg":A}`.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::table::PropKind;
use super::value::{Hook, ModFun, Value};

/// The module of the built-in hooks.
pub(super) const NATIVE_HOOK_MODULE: &str = "larder";

/// The list that a hook stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookStage {
    /// Before the write, which it may change or refuse.
    Precommit,
    /// After the write.
    Postcommit,
}

/// A built-in hook with its argument. All of them are precommit hooks; each lets deletes pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NativeHook<'a> {
    /// `max_size`, `{"bytes":N}`: refuses a larger value.
    MaxSize(u64),
    /// `json`, no argument: refuses a value that is not JSON.
    Json,
    /// `json_schema`, `{"schema":S}`: refuses a value that does not match the JSON schema.
    JsonSchema(&'a Json),
}

impl<'a> NativeHook<'a> {
    /// The built-in hook of this name, if the argument is one of it.
    #[must_use]
    pub fn of(function: &ModFun, argument: Option<&'a Json>) -> Option<Self> {
        if function.module != NATIVE_HOOK_MODULE {
            return None;
        }
        match (&*function.function, argument) {
            ("max_size", Some(argument)) => only(argument, "bytes").and_then(Json::as_u64).map(Self::MaxSize),
            ("json", None) => Some(Self::Json),
            ("json_schema", Some(argument)) => only(argument, "schema")
                .filter(|schema| schema.is_object() || schema.is_boolean())
                .map(Self::JsonSchema),
            _ => None,
        }
    }
}

/// Why a function may not stand in a list of hooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookFault {
    /// No built-in hook has the name.
    NotBuiltIn,
    /// The built-in hook has another argument, or none.
    WrongArgument,
    /// It is built in for the list `precommit` alone.
    PrecommitOnly,
    /// Its argument is no JSON schema, for this reason.
    NotASchema(String),
}

impl HookFault {
    /// The end of a sentence that begins with the function.
    pub(super) fn text(&self) -> Cow<'static, str> {
        match self {
            Self::NotBuiltIn => "is not built in".into(),
            Self::WrongArgument => "has another argument".into(),
            Self::PrecommitOnly => "is built in for precommit only".into(),
            Self::NotASchema(reason) => format!("has no JSON schema: {reason}").into(),
        }
    }
}

/// The functions of the built-in hooks.
const NATIVE_HOOKS: [&str; 3] = ["max_size", "json", "json_schema"];

/// Checks that a hook may stand in this list: a name of a script may, a function only where it is built in.
///
/// # Errors
/// The function as `module:function`, and its fault.
pub fn check_hook(hook: &Hook, stage: HookStage) -> Result<(), (String, HookFault)> {
    let (function, argument) = match hook {
        Hook::Text(_) | Hook::Named(_) => return Ok(()),
        Hook::ModFun(function) => (function, None),
        Hook::WithArgument { function, argument } => (function, Some(argument)),
    };
    let is_built_in = function.module == NATIVE_HOOK_MODULE && NATIVE_HOOKS.contains(&&*function.function);
    let fault = match stage {
        _ if !is_built_in => HookFault::NotBuiltIn,
        HookStage::Postcommit => HookFault::PrecommitOnly,
        HookStage::Precommit if NativeHook::of(function, argument).is_none() => HookFault::WrongArgument,
        HookStage::Precommit => return Ok(()),
    };
    Err((format!("{}:{}", function.module, function.function), fault))
}

/// The schemas of the hooks `json_schema` in a list that a client sets, as texts.
#[must_use]
pub fn schemas_in(hooks: &Json) -> Vec<String> {
    let Ok(Value::Hooks(hooks)) = PropKind::Hooks.decode(hooks) else { return Vec::new() };
    let schema = |hook: &Hook| match hook {
        Hook::WithArgument { function, argument } => match NativeHook::of(function, Some(argument)) {
            Some(NativeHook::JsonSchema(schema)) => Some(schema.to_string()),
            _ => None,
        },
        Hook::Text(_) | Hook::Named(_) | Hook::ModFun(_) => None,
    };
    hooks.iter().filter_map(schema).collect()
}

/// The value of an object's only member.
fn only<'a>(json: &'a Json, name: &str) -> Option<&'a Json> {
    json.as_object().filter(|object| object.len() == 1)?.get(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_function_is_known_by_its_name_and_the_form_of_its_argument() {
        let function = |function: &str| ModFun { module: "larder".into(), function: function.into() };
        let with = |name: &str, argument: Json| Hook::WithArgument { function: function(name), argument };
        for known in [
            Hook::Text("Any.name".into()),
            Hook::ModFun(function("json")),
            with("max_size", json!({"bytes": 10})),
            with("json_schema", json!({"schema": {"type": "object"}})),
        ] {
            assert_eq!(check_hook(&known, HookStage::Precommit), Ok(()), "{known:?}");
        }
        for (refused, name, fault) in [
            (Hook::ModFun(function("max_size")), "larder:max_size", HookFault::WrongArgument),
            (
                Hook::ModFun(ModFun { module: "riak".into(), function: "json".into() }),
                "riak:json",
                HookFault::NotBuiltIn,
            ),
            (with("json", json!({})), "larder:json", HookFault::WrongArgument),
            (with("max_size", json!({"bytes": -1})), "larder:max_size", HookFault::WrongArgument),
            (with("max_size", json!({"bytes": 1, "other": 2})), "larder:max_size", HookFault::WrongArgument),
            (with("json_schema", json!({"schema": "object"})), "larder:json_schema", HookFault::WrongArgument),
            (with("none", json!({})), "larder:none", HookFault::NotBuiltIn),
        ] {
            assert_eq!(check_hook(&refused, HookStage::Precommit), Err((name.into(), fault)), "{refused:?}");
        }
        let late = check_hook(&Hook::ModFun(function("json")), HookStage::Postcommit);
        assert_eq!(late, Err(("larder:json".into(), HookFault::PrecommitOnly)));
        for name in NATIVE_HOOKS {
            let arguments = [None, Some(json!({"bytes": 1})), Some(json!({"schema": {}}))];
            let is_known = arguments.iter().any(|one| NativeHook::of(&function(name), one.as_ref()).is_some());
            assert!(is_known, "{name}");
        }
    }
}
