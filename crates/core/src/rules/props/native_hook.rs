//! The commit hooks that Larder has built in, named as Riak names Erlang functions: `{"mod":"larder","fun":F,"arg":A}`.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::table::PropKind;
use super::value::{Hook, ModFun, Value};
use super::webhook_url::{WebhookHost, WebhookUrl, WebhookUrlFault};

/// The module of the built-in hooks.
pub(super) const NATIVE_HOOK_MODULE: &str = "larder";

/// Most webhooks in one list: the notices of a write are in its batch.
const WEBHOOKS_MAX: usize = 8;

/// The list that a hook stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookStage {
    /// Before the write, which it may change or refuse.
    Precommit,
    /// After the write.
    Postcommit,
}

/// A built-in hook with its argument. Each precommit hook lets deletes pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NativeHook<'a> {
    /// `max_size`, `{"bytes":N}`: refuses a larger value.
    MaxSize(u64),
    /// `json`, no argument: refuses a value that is not JSON.
    Json,
    /// `json_schema`, `{"schema":S}`: refuses a value that does not match the JSON schema.
    JsonSchema(&'a Json),
    /// `webhook`, a URL, the only postcommit hook: tells a receiver of the write.
    Webhook(&'a str),
}

impl<'a> NativeHook<'a> {
    /// The built-in hook of this name, if the argument is one of it.
    #[must_use]
    pub fn from_function(function: &ModFun, argument: Option<&'a Json>) -> Option<Self> {
        if function.module != NATIVE_HOOK_MODULE {
            return None;
        }
        match (&*function.function, argument) {
            ("max_size", Some(argument)) => only(argument, "bytes").and_then(Json::as_u64).map(Self::MaxSize),
            ("json", None) => Some(Self::Json),
            ("json_schema", Some(argument)) => only(argument, "schema")
                .filter(|schema| schema.is_object() || schema.is_boolean())
                .map(Self::JsonSchema),
            ("webhook", Some(Json::String(url))) => Some(Self::Webhook(url)),
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
    /// It is built in for the list `postcommit` alone.
    PostcommitOnly,
    /// Its argument is no JSON schema, for this reason.
    NotASchema(String),
    /// Its argument is no address of a webhook.
    NotAWebhook(WebhookUrlFault),
    /// It stands in the list more than [`WEBHOOKS_MAX`] times.
    TooManyWebhooks,
    /// The server sends nothing to this host.
    HostNotAllowed(WebhookHost),
}

impl HookFault {
    /// The end of a sentence that begins with the function.
    pub(super) fn text(&self) -> Cow<'static, str> {
        match self {
            Self::NotBuiltIn => "is not built in".into(),
            Self::WrongArgument => "has another argument".into(),
            Self::PrecommitOnly => "is built in for precommit only".into(),
            Self::PostcommitOnly => "is built in for postcommit only".into(),
            Self::NotASchema(reason) => format!("has no JSON schema: {reason}").into(),
            Self::NotAWebhook(fault) => fault.text(),
            Self::TooManyWebhooks => format!("is in the list more than {WEBHOOKS_MAX} times").into(),
            Self::HostNotAllowed(host) => {
                format!("names the host {host}, which the setting --webhook-hosts does not allow").into()
            }
        }
    }
}

/// The functions of the built-in hooks, with the list that each may stand in.
const NATIVE_HOOKS: [(&str, HookStage); 4] = [
    ("max_size", HookStage::Precommit),
    ("json", HookStage::Precommit),
    ("json_schema", HookStage::Precommit),
    (WEBHOOK, HookStage::Postcommit),
];

/// The function of webhooks.
const WEBHOOK: &str = "webhook";

/// Checks that hooks may stand in this list: a name of a script may, a function only where it is built in.
///
/// # Errors
/// The first function that may not as `module:function`, and its fault.
pub fn check_hooks(hooks: &[Hook], stage: HookStage) -> Result<(), (String, HookFault)> {
    hooks.iter().try_for_each(|hook| check_hook(hook, stage))?;
    match hooks.iter().filter_map(webhook_in).count() > WEBHOOKS_MAX {
        true => Err((format!("{NATIVE_HOOK_MODULE}:{WEBHOOK}"), HookFault::TooManyWebhooks)),
        false => Ok(()),
    }
}

fn check_hook(hook: &Hook, stage: HookStage) -> Result<(), (String, HookFault)> {
    let (function, argument) = match hook {
        Hook::Text(_) | Hook::Named(_) => return Ok(()),
        Hook::ModFun(function) => (function, None),
        Hook::WithArgument { function, argument } => (function, Some(argument)),
    };
    let native_hook = NATIVE_HOOKS.iter().find(|(name, _)| *name == function.function);
    let native_stage = native_hook.filter(|_| function.module == NATIVE_HOOK_MODULE).map(|(_, stage)| *stage);
    let fault = match (native_stage, stage) {
        (None, _) => HookFault::NotBuiltIn,
        (Some(HookStage::Precommit), HookStage::Postcommit) => HookFault::PrecommitOnly,
        (Some(HookStage::Postcommit), HookStage::Precommit) => HookFault::PostcommitOnly,
        _ => match NativeHook::from_function(function, argument) {
            None => HookFault::WrongArgument,
            Some(NativeHook::Webhook(url)) => match WebhookUrl::parse(url) {
                Ok(_) => return Ok(()),
                Err(fault) => HookFault::NotAWebhook(fault),
            },
            Some(_) => return Ok(()),
        },
    };
    Err((format!("{}:{}", function.module, function.function), fault))
}

/// The schemas of the hooks `json_schema` in a list that a client sets, as texts.
#[must_use]
pub fn schemas_in(hooks: &Json) -> Vec<String> {
    let schema = |hook: &Hook| match native(hook) {
        Some(NativeHook::JsonSchema(schema)) => Some(schema.to_string()),
        _ => None,
    };
    native_hooks(hooks).iter().filter_map(schema).collect()
}

/// The addresses of the webhooks in a list that a client sets.
#[must_use]
pub fn webhooks_in(hooks: &Json) -> Vec<WebhookUrl> {
    native_hooks(hooks).iter().filter_map(webhook_in).collect()
}

/// The address of this hook, if it is a webhook.
#[must_use]
pub fn webhook_in(hook: &Hook) -> Option<WebhookUrl> {
    match native(hook) {
        Some(NativeHook::Webhook(url)) => WebhookUrl::parse(url).ok(),
        _ => None,
    }
}

/// The hooks of a list; none of one that is malformed.
fn native_hooks(hooks: &Json) -> Vec<Hook> {
    match PropKind::Hooks.decode(hooks) {
        Ok(Value::Hooks(hooks)) => hooks,
        _ => Vec::new(),
    }
}

fn native(hook: &Hook) -> Option<NativeHook<'_>> {
    match hook {
        Hook::Text(_) | Hook::Named(_) => None,
        Hook::ModFun(function) => NativeHook::from_function(function, None),
        Hook::WithArgument { function, argument } => NativeHook::from_function(function, Some(argument)),
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
        for (name, _) in NATIVE_HOOKS {
            let arguments = [None, Some(json!({"bytes": 1})), Some(json!({"schema": {}})), Some(json!("http://h/"))];
            let is_known = arguments
                .iter()
                .any(|argument| NativeHook::from_function(&function(name), argument.as_ref()).is_some());
            assert!(is_known, "{name}");
        }
    }

    #[test]
    fn a_webhook_stands_after_the_write_with_an_address_and_eight_times_at_most() {
        let webhook = |argument: Json| Hook::WithArgument {
            function: ModFun { module: "larder".into(), function: "webhook".into() },
            argument,
        };
        let (known, named) = (webhook(json!("http://h:9/p")), "larder:webhook".to_owned());
        assert_eq!(check_hooks(&vec![known.clone(); WEBHOOKS_MAX], HookStage::Postcommit), Ok(()));
        assert_eq!(webhook_in(&known).unwrap().as_str(), "http://h:9/p");
        for (hooks, stage, fault) in [
            (vec![known.clone()], HookStage::Precommit, HookFault::PostcommitOnly),
            (vec![webhook(json!({"url": "http://h/"}))], HookStage::Postcommit, HookFault::WrongArgument),
            (vec![webhook(json!("ftp://h/"))], HookStage::Postcommit, HookFault::NotAWebhook(WebhookUrlFault::NotHttp)),
            (vec![known; WEBHOOKS_MAX + 1], HookStage::Postcommit, HookFault::TooManyWebhooks),
        ] {
            assert_eq!(check_hooks(&hooks, stage), Err((named.clone(), fault)), "{hooks:?}");
        }
    }
}
