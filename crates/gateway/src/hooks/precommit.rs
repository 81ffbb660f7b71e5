//! Runs precommit hooks: each sees what the one before it returned, and the first refusal ends the write.

use larder_model::erlang;
use larder_model::props::{Hook, NativeHook};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{CommitHooks, HookedObject, is_for_the_moment, name_of};
use crate::metrics::Event;
use crate::{Error, Result, ScriptCall, ScriptFunction};

/// Why a precommit hook refused a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrecommitRefusal {
    /// The hook said `fail`, or could not be run.
    Fail,
    /// The hook gave this reason.
    Reason(String),
    /// The hook returned something else; an Erlang term.
    Term(String),
}

impl PrecommitRefusal {
    /// Riak's error term, as its protocol buffers show it.
    #[must_use]
    pub fn erlang(&self) -> String {
        match self {
            Self::Fail => "precommit_fail".into(),
            Self::Reason(reason) => format!("{{precommit_fail,{}}}", erlang::binary(reason)),
            Self::Term(term) => format!("{{precommit_fail,{term}}}"),
        }
    }
}

/// The script behind `larder:json_schema`: it is part of the helpers, so a schema and a value that take long harm nothing.
const SCHEMA_FUNCTION: &str = "Larder.schemaFault";

/// The decision of a hook.
enum HookDecision {
    Accept,
    Refuse(PrecommitRefusal),
}

impl CommitHooks {
    /// Runs the hooks in their order; the object is changed as they say.
    ///
    /// # Errors
    /// [`Error::Precommit`]: nothing was written. [`Error::Overloaded`] when no script can be run now.
    pub(crate) async fn before(&self, hooks: &[Hook], object: &mut HookedObject, deadline: Instant) -> Result<()> {
        for hook in hooks {
            let decided = match hook {
                Hook::Text(name) | Hook::Named(name) => self.run_script(name, object, deadline).await,
                Hook::ModFun(function) => self.run_native(NativeHook::of(function, None), object, deadline).await,
                Hook::WithArgument { function, argument } => {
                    self.run_native(NativeHook::of(function, Some(argument)), object, deadline).await
                }
            };
            match decided {
                Ok(HookDecision::Accept) => {}
                Ok(HookDecision::Refuse(refusal)) => {
                    self.core.metrics.count_event(Event::PrecommitFailed);
                    return Err(Error::Precommit(refusal));
                }
                Err(HookFailure::ForTheMoment) => return Err(Error::Overloaded { retry_after: 1 }),
                Err(HookFailure::Text(failure)) => {
                    self.core.metrics.count_event(Event::PrecommitFailed);
                    self.log_failure(&name_of(hook), object, &failure, "the write is refused");
                    return Err(Error::Precommit(PrecommitRefusal::Fail));
                }
            }
        }
        Ok(())
    }

    async fn run_script(
        &self,
        name: &str,
        object: &mut HookedObject,
        deadline: Instant,
    ) -> std::result::Result<HookDecision, HookFailure> {
        let sent = object.to_json()?;
        let returned = self.call(name, vec![sent.clone()], deadline).await?;
        if let Some(refusal) = refusal_in(&returned) {
            return Ok(HookDecision::Refuse(refusal));
        }
        match object.take_over(&returned, &sent) {
            Ok(()) => Ok(HookDecision::Accept),
            Err(part) => {
                let failure = format!("it returned no object: {part}");
                self.log_failure(name, object, &failure, "the write is refused");
                let name = erlang::binary(name);
                let term = format!("{{invalid_return,{{{name},{}}}}}", erlang::binary(part));
                Ok(HookDecision::Refuse(PrecommitRefusal::Term(term)))
            }
        }
    }

    async fn run_native(
        &self,
        hook: Option<NativeHook<'_>>,
        object: &HookedObject,
        deadline: Instant,
    ) -> std::result::Result<HookDecision, HookFailure> {
        if object.is_delete {
            return Ok(HookDecision::Accept);
        }
        let refusal = match hook {
            None => return Err(HookFailure::Text("it is not built in".into())),
            Some(NativeHook::MaxSize(bytes)) => {
                let length = object.body().len() as u64;
                (length > bytes).then(|| format!("the value has {length} bytes, more than {bytes}"))
            }
            Some(NativeHook::Json) => {
                let parsed = serde_json::from_slice::<serde::de::IgnoredAny>(object.body());
                parsed.err().map(|error| format!("the value is not JSON: {error}"))
            }
            Some(NativeHook::JsonSchema(schema)) => {
                let Ok(text) = std::str::from_utf8(object.body()) else {
                    return Ok(HookDecision::Refuse(PrecommitRefusal::Reason("the value is not JSON".into())));
                };
                let arguments = vec![json!(schema.to_string()), json!(text)];
                match self.call(SCHEMA_FUNCTION, arguments, deadline).await? {
                    Value::String(fault) => Some(fault),
                    _ => None,
                }
            }
        };
        Ok(refusal.map_or(HookDecision::Accept, |reason| HookDecision::Refuse(PrecommitRefusal::Reason(reason))))
    }

    /// Calls a function of the modules.
    pub(super) async fn call(
        &self,
        name: &str,
        arguments: Vec<Value>,
        deadline: Instant,
    ) -> std::result::Result<Value, HookFailure> {
        let Some(scripts) = &self.core.ports.scripts else {
            return Err(HookFailure::Text("this server runs no scripts".into()));
        };
        let function = ScriptFunction::Named(name.to_owned());
        let called = scripts.call(ScriptCall { function, arguments, deadline }).await;
        called.map_err(|error| match is_for_the_moment(&error) {
            true => HookFailure::ForTheMoment,
            false => HookFailure::Text(error.to_string()),
        })
    }
}

/// Why a hook made no decision.
pub(super) enum HookFailure {
    /// No worker is free.
    ForTheMoment,
    /// It failed.
    Text(String),
}

impl From<String> for HookFailure {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// The refusal that a script returned: `"fail"` or `{"fail": REASON}`.
pub(super) fn refusal_in(returned: &Value) -> Option<PrecommitRefusal> {
    match returned {
        Value::String(word) if word == "fail" => Some(PrecommitRefusal::Fail),
        Value::Object(object) if object.len() == 1 => match object.get("fail")? {
            Value::String(reason) => Some(PrecommitRefusal::Reason(reason.clone())),
            reason => Some(PrecommitRefusal::Reason(reason.to_string())),
        },
        _ => None,
    }
}
