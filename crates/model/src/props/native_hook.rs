//! The commit hooks that Larder has built in, named as Riak names Erlang functions: `{"mod":"larder","fun":F,"arg":A}`.

use serde_json::Value as Json;

use super::value::{Hook, ModFun};

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

/// Whether a hook may stand in this list: a name of a script may, a function only where it is built in.
#[must_use]
pub fn is_known_hook(hook: &Hook, stage: HookStage) -> bool {
    match hook {
        Hook::Text(_) | Hook::Named(_) => true,
        Hook::ModFun(function) => stage == HookStage::Precommit && NativeHook::of(function, None).is_some(),
        Hook::WithArgument { function, argument } => {
            stage == HookStage::Precommit && NativeHook::of(function, Some(argument)).is_some()
        }
    }
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
            assert!(is_known_hook(&known, HookStage::Precommit), "{known:?}");
        }
        for unknown in [
            Hook::ModFun(function("max_size")),
            Hook::ModFun(ModFun { module: "riak".into(), function: "json".into() }),
            with("json", json!({})),
            with("max_size", json!({"bytes": -1})),
            with("max_size", json!({"bytes": 1, "other": 2})),
            with("json_schema", json!({"schema": "object"})),
            with("none", json!({})),
        ] {
            assert!(!is_known_hook(&unknown, HookStage::Precommit), "{unknown:?}");
        }
        assert!(!is_known_hook(&Hook::ModFun(function("json")), HookStage::Postcommit));
    }
}
