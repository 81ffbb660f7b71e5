//! The JavaScript engine of a worker: a heap with the modules for named functions, and a fresh heap for each source.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_rows::text::beginning;
use rquickjs::context::{EvalOptions, intrinsic};
use rquickjs::function::Args;
use rquickjs::promise::PromiseState;
use rquickjs::{CatchResultExt, CaughtError, Context, Ctx, Function, Object, Persistent, Runtime, Value};

use super::schema::{schema_error, schema_fault};
use super::{LoadedModules, WorkerSetup};
use crate::frame::{self, FrameKind};
use crate::modules::JsModule;
use crate::worker_process::{CALLS_PER_CONTEXT, ERROR_BYTES_MAX, FUNCTIONS_MAX, LOG_LINE_BYTES_MAX, LOG_LINES_MAX};

/// Without `Performance`: a script has no clock. Without `DOMException`, which no script for Riak knows.
type Intrinsics = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
    intrinsic::WeakRef,
);

const PRELUDE: &str = include_str!("prelude.js");

/// Lines that the current call has logged.
static LOGGED: AtomicUsize = AtomicUsize::new(0);

/// How a call ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallOutcome {
    /// A result, as JSON.
    Value(String),
    /// It threw this.
    Threw(String),
    /// No function has the name.
    NoSuchFunction,
}

/// A function to find, or to make.
#[derive(Clone, Copy)]
enum Callee {
    Named,
    Source,
}

/// A runtime with one context.
struct JsHeap {
    // Before the context: a saved value must not outlive its runtime.
    set_now: Persistent<Function<'static>>,
    control: Persistent<Object<'static>>,
    context: Context,
    calls: u32,
    /// An error of the engine itself, such as full memory, may have left it short.
    is_spoiled: bool,
}

/// The engine of one worker.
pub(super) struct JsEngine {
    heap_bytes: usize,
    stack_bytes: usize,
    modules: Vec<JsModule>,
    /// Shared by the calls of named functions; what the engine provides is frozen in it.
    shared: JsHeap,
    /// For the next source, made while the worker has nothing else to do.
    fresh: Option<JsHeap>,
    has_sources: bool,
}

impl JsEngine {
    /// Loads the modules.
    ///
    /// # Errors
    /// The engine's, before any module runs.
    pub(super) fn start(setup: &WorkerSetup) -> Result<(Self, LoadedModules), rquickjs::Error> {
        let WorkerSetup { heap, stack, modules, .. } = setup;
        let (shared, loaded) = JsHeap::hardened(*heap, *stack, modules)?;
        let modules = modules.clone();
        let engine = Self { heap_bytes: *heap, stack_bytes: *stack, modules, shared, fresh: None, has_sources: false };
        Ok((engine, loaded))
    }

    /// Calls a function of the modules or of the helpers.
    pub(super) fn call_named(&mut self, frame: Vec<u8>) -> CallOutcome {
        self.shared.call(Callee::Named, frame)
    }

    /// Calls a source in a heap of its own, with the modules loaded.
    pub(super) fn call_source(&mut self, frame: Vec<u8>) -> CallOutcome {
        self.has_sources = true;
        let heap = self.fresh.take().map_or_else(|| self.new_source_heap(), Ok);
        match heap {
            Ok(mut heap) => {
                let outcome = heap.call(Callee::Source, frame);
                // Dropped after the answer.
                self.fresh = Some(heap);
                outcome
            }
            Err(error) => CallOutcome::Threw(error.to_string()),
        }
    }

    /// Makes ready for the next call, after the answer to this one.
    pub(super) fn rest(&mut self) {
        if (self.shared.is_spoiled || self.shared.calls >= CALLS_PER_CONTEXT)
            && let Ok((shared, _)) = JsHeap::hardened(self.heap_bytes, self.stack_bytes, &self.modules)
        {
            self.shared = shared;
        }
        if self.has_sources && self.fresh.as_ref().is_none_or(|heap| heap.calls > 0) {
            self.fresh = None;
            self.fresh = self.new_source_heap().ok();
        }
    }

    fn new_source_heap(&self) -> Result<JsHeap, rquickjs::Error> {
        let heap = JsHeap::new(self.heap_bytes, self.stack_bytes, false)?;
        heap.load(&self.modules);
        Ok(heap)
    }
}

impl JsHeap {
    /// A heap with the helpers; a shared one can be hardened.
    fn new(heap: usize, stack: usize, is_shared: bool) -> Result<Self, rquickjs::Error> {
        let runtime = Runtime::new()?;
        runtime.set_memory_limit(heap);
        runtime.set_max_stack_size(stack);
        let context = Context::custom::<Intrinsics>(&runtime)?;
        let (set_now, control) = context.with(|ctx| {
            let host = Object::new(ctx.clone())?;
            host.set("log", Function::new(ctx.clone(), log)?)?;
            host.set("schemaFault", Function::new(ctx.clone(), schema_fault)?)?;
            host.set("schemaError", Function::new(ctx.clone(), schema_error)?)?;
            let prelude: Function = ctx.eval_with_options(PRELUDE, script_options("prelude.js"))?;
            let control: Object = prelude.call((host, is_shared))?;
            let set_now: Function = control.get("setNow")?;
            Ok::<_, rquickjs::Error>((Persistent::save(&ctx, set_now), Persistent::save(&ctx, control)))
        })?;
        Ok(Self { set_now, control, context, calls: 0, is_spoiled: false })
    }

    /// A heap with the modules, in which nothing that the engine provides can be changed.
    fn hardened(heap: usize, stack: usize, modules: &[JsModule]) -> Result<(Self, LoadedModules), rquickjs::Error> {
        let heap = Self::new(heap, stack, true)?;
        let faults = heap.load(modules);
        let functions = heap.context.with(|ctx| {
            let control = heap.control.clone().restore(&ctx)?;
            control.get::<_, Function>("harden")?.call::<_, ()>(())?;
            let names: Value = control.get::<_, Function>("functionNames")?.call((FUNCTIONS_MAX,))?;
            let json = ctx.json_stringify(names)?.map_or_else(|| Ok(String::new()), |json| json.to_string())?;
            Ok::<_, rquickjs::Error>(serde_json::from_str(&json).unwrap_or_default())
        })?;
        Ok((heap, LoadedModules { functions, faults, unfiltered: None }))
    }

    /// Runs the modules in their order; returns the errors of those that failed.
    fn load(&self, modules: &[JsModule]) -> Vec<String> {
        let run = |module: &JsModule| {
            self.context.with(|ctx| {
                let loaded = ctx.eval_with_options::<Value, _>(&*module.source, script_options(&module.name));
                let failed = |error| format!("{}: {}", module.name, error_text(&error).0);
                loaded.map(drop).catch(&ctx).map_err(failed).err()
            })
        };
        modules.iter().filter_map(run).collect()
    }

    fn call(&mut self, callee: Callee, frame: Vec<u8>) -> CallOutcome {
        LOGGED.store(0, Ordering::Relaxed);
        self.calls += 1;
        let (outcome, is_spoiled) = self.context.with(|ctx| {
            let called = self.call_in(&ctx, callee, frame).catch(&ctx);
            match called {
                Ok(outcome) => (outcome, false),
                Err(error) => {
                    let (text, is_spoiled) = error_text(&error);
                    (CallOutcome::Threw(text), is_spoiled)
                }
            }
        });
        self.is_spoiled |= is_spoiled;
        outcome
    }

    fn call_in<'js>(&self, ctx: &Ctx<'js>, callee: Callee, frame: Vec<u8>) -> Result<CallOutcome, rquickjs::Error> {
        let call = ctx.json_parse(frame)?;
        let call = call.as_object().ok_or(rquickjs::Error::Unknown)?;
        self.set_now.clone().restore(ctx)?.call::<_, ()>((call.get::<_, f64>("now")?,))?;
        let text: String = call.get("function")?;
        let (this, function) = match callee {
            Callee::Named => match find(ctx, &text)? {
                Some(bound_function) => bound_function,
                None => return Ok(CallOutcome::NoSuchFunction),
            },
            Callee::Source => {
                let value: Value = ctx.eval_with_options(format!("({text}\n)"), script_options("source"))?;
                match value.into_function() {
                    Some(function) => (ctx.globals().into_value(), function),
                    None => return Ok(CallOutcome::Threw("the source is not a function".into())),
                }
            }
        };
        let arguments: rquickjs::Array = call.get("arguments")?;
        let mut args = Args::new(ctx.clone(), arguments.len());
        args.this(this)?;
        for argument in arguments.iter::<Value>() {
            args.push_arg(argument?)?;
        }
        let returned: Value = args.apply(&function)?;
        // Jobs that the call left behind end with it: no later call runs them.
        while ctx.execute_pending_job() {}
        let value = match returned.as_promise() {
            None => returned,
            Some(promise) => match (promise.state(), promise.result::<Value>()) {
                (PromiseState::Pending, _) | (_, None) => {
                    return Ok(CallOutcome::Threw("the promise is never settled".into()));
                }
                (_, Some(settled)) => settled?,
            },
        };
        let json = ctx.json_stringify(value)?;
        Ok(CallOutcome::Value(json.map_or_else(|| Ok("null".to_owned()), |json| json.to_string())?))
    }
}

/// The function at a path such as `Module.function`, and the object that it is called on.
fn find<'js>(ctx: &Ctx<'js>, path: &str) -> Result<Option<(Value<'js>, Function<'js>)>, rquickjs::Error> {
    let mut this = ctx.globals().into_value();
    let mut member = this.clone();
    for (depth, name) in path.split('.').enumerate() {
        let Some(object) = member.as_object().cloned() else { return Ok(None) };
        let mut value: Value = object.get(name)?;
        // `let`, `const` and `class` of a module are no properties of the global object.
        if depth == 0 && value.is_undefined() && is_identifier(name) {
            value = ctx.eval_with_options(
                format!("typeof {name} === 'undefined' ? undefined : {name}"),
                script_options("name"),
            )?;
        }
        this = std::mem::replace(&mut member, value);
    }
    Ok(member.into_function().map(|function| (this, function)))
}

fn is_identifier(name: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == '$';
    name.chars().all(is_part) && name.chars().next().is_some_and(|first| !first.is_ascii_digit())
}

/// The text of an error, and whether it is one of the engine itself.
fn error_text(error: &CaughtError<'_>) -> (String, bool) {
    match error {
        CaughtError::Error(error) => (error.to_string(), matches!(error, rquickjs::Error::Allocation)),
        CaughtError::Exception(exception) => {
            let object = exception.as_object();
            // A getter may throw or loop here, as in the rest of the call.
            let text = |name| object.get::<_, Option<String>>(name).ok().flatten().unwrap_or_default();
            let (name, message) = (text("name"), text("message"));
            let line = if message.is_empty() { name.clone() } else { format!("{name}: {message}") };
            (beginning(&line, ERROR_BYTES_MAX).to_owned(), name == "InternalError")
        }
        CaughtError::Value(value) if value.is_null() => {
            ("null, which the engine throws when its memory is full".into(), true)
        }
        CaughtError::Value(value) => {
            let json = value.ctx().json_stringify(value.clone()).ok().flatten().and_then(|json| json.to_string().ok());
            let text = value.as_string().and_then(|text| text.to_string().ok()).or(json);
            let text = text.unwrap_or_else(|| "a value without a text".into());
            (beginning(&text, ERROR_BYTES_MAX).to_owned(), false)
        }
    }
}

/// Old scripts are not strict, and assign to variables that they do not declare.
fn script_options(name: &str) -> EvalOptions {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some(name.replace('\0', ""));
    options
}

/// Sends a line of the log; more lines than a call may log are dropped.
fn log(file: String, text: String) {
    if LOGGED.fetch_add(1, Ordering::Relaxed) < LOG_LINES_MAX {
        let line = [beginning(&file, LOG_LINE_BYTES_MAX), beginning(&text, LOG_LINE_BYTES_MAX)];
        let payload = serde_json::to_vec(&line).unwrap_or_default();
        // A broken pipe ends the process soon.
        let _ = frame::write(io::stdout().lock(), FrameKind::Log, &payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_that_had_no_memory_for_a_call_is_replaced() {
        assert!(error_text(&CaughtError::Error(rquickjs::Error::Allocation)).1);
        assert!(!error_text(&CaughtError::Error(rquickjs::Error::new_from_js("text", "number"))).1);
    }
}
