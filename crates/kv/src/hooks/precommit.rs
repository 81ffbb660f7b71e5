//! Runs precommit hooks: each sees what the one before it returned, and the first refusal ends the write.

use std::slice;

use larder_core::metrics::Event;
use larder_core::rules::erlang;
use larder_core::rules::props::{Hook, NativeHook};
use larder_core::{Error, PrecommitRefusal, Result, ScriptCall, ScriptError, Scripts};
use larder_rows::text::beginning;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{CommitHooks, HookedObject, hook_name};

/// The script behind `larder:json_schema`: it is part of the helpers, so a schema and a value that take long harm nothing.
const SCHEMA_FUNCTION: &str = "Larder.schemaFault";

/// Most bytes of a refusal's reason.
const REASON_BYTES_MAX: usize = 4 << 10;

/// The decision of a hook.
enum HookDecision {
    Accept,
    Refuse(PrecommitRefusal),
}

impl CommitHooks {
    /// Runs the hooks in their order; the object is changed as they say.
    ///
    /// # Errors
    /// [`Error::Precommit`]: nothing was written. [`Error::Overloaded`] when no script can be run now. [`Error::TimedOut`] when
    /// the request's time ends before the hooks do.
    pub(crate) async fn before(&self, hooks: &[Hook], object: &mut HookedObject, deadline: Instant) -> Result<()> {
        for hook in hooks {
            let decided = match hook {
                Hook::Text(name) | Hook::Named(name) => self.run_script(name, object, deadline).await,
                Hook::ModFun(function) => {
                    self.run_native(NativeHook::from_function(function, None), object, deadline).await
                }
                Hook::WithArgument { function, argument } => {
                    self.run_native(NativeHook::from_function(function, Some(argument)), object, deadline).await
                }
            };
            match decided {
                // A hook has its own time, so that a short one of a client kills no worker; the write is not made then.
                Ok(HookDecision::Accept) if Instant::now() >= deadline => return Err(Error::TimedOut),
                Ok(HookDecision::Accept) => {}
                Ok(HookDecision::Refuse(refusal)) => {
                    self.context.metrics.count_event(Event::PrecommitFailed);
                    return Err(Error::Precommit(refusal));
                }
                Err(HookFailure::PastDeadline) => return Err(Error::TimedOut),
                Err(HookFailure::ForTheMoment) => return Err(Error::Overloaded { retry_after: 1 }),
                Err(HookFailure::Text(failure)) => {
                    self.context.metrics.count_event(Event::PrecommitFailed);
                    self.log_failure(&hook_name(hook), object, &failure, "the write is refused");
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
        let returned = self.call(object.script(name, slice::from_ref(&sent), deadline)).await?;
        if let Some(refusal) = refusal_in(&returned) {
            return Ok(HookDecision::Refuse(refusal));
        }
        match object.take_over(&returned, &sent) {
            Ok(()) => Ok(HookDecision::Accept),
            Err(part) => {
                let part = bounded(part);
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
            None | Some(NativeHook::Webhook(_)) => return Err(HookFailure::Text("it is not built in".into())),
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
                let arguments = [json!(schema.to_string()), json!(text)];
                match self.call(object.script(SCHEMA_FUNCTION, &arguments, deadline)).await? {
                    Value::String(fault) => Some(fault),
                    _ => None,
                }
            }
        };
        Ok(refusal.map_or(HookDecision::Accept, |reason| HookDecision::Refuse(PrecommitRefusal::Reason(reason))))
    }

    async fn call(&self, call: ScriptCall) -> std::result::Result<Value, HookFailure> {
        let deadline = call.deadline;
        let called = self.scripts()?.call(call).await;
        called.map_err(|error| HookFailure::from_script_error(&error, deadline))
    }

    /// The port to scripts.
    pub(super) fn scripts(&self) -> std::result::Result<&dyn Scripts, HookFailure> {
        self.context.ports.scripts.as_deref().ok_or_else(|| HookFailure::Text("this server runs no scripts".into()))
    }
}

/// Why a hook made no decision.
pub(super) enum HookFailure {
    /// The deadline passed before a worker was free.
    PastDeadline,
    /// No worker can be had.
    ForTheMoment,
    /// It failed.
    Text(String),
}

impl HookFailure {
    /// The failure of a call with this deadline.
    pub(super) fn from_script_error(error: &ScriptError, deadline: Instant) -> Self {
        match error {
            ScriptError::Unavailable if Instant::now() >= deadline => Self::PastDeadline,
            ScriptError::Unavailable => Self::ForTheMoment,
            error => Self::Text(error.to_string()),
        }
    }
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
            Value::String(reason) => Some(PrecommitRefusal::Reason(bounded(reason.clone()))),
            reason => Some(PrecommitRefusal::Reason(bounded(reason.to_string()))),
        },
        _ => None,
    }
}

/// A text for an answer and the log.
fn bounded(mut text: String) -> String {
    text.truncate(beginning(&text, REASON_BYTES_MAX).len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_any_length_is_cut_between_two_characters() {
        for reason in
            [json!("ä".repeat(REASON_BYTES_MAX)), json!(["x".repeat(1 << 20)]), json!(format!("x{}", "ä".repeat(4096)))]
        {
            let Some(PrecommitRefusal::Reason(cut)) = refusal_in(&json!({ "fail": reason })) else {
                panic!("{reason}")
            };
            assert!((REASON_BYTES_MAX - 1..=REASON_BYTES_MAX).contains(&cut.len()), "{}", cut.len());
        }
        assert_eq!(refusal_in(&json!({"fail": "short"})), Some(PrecommitRefusal::Reason("short".into())));
    }
}
