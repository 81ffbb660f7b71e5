//! JSON schemas of hooks, checked when they are set: each put would find a wrong one otherwise.

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::Instant;

use super::Types;
use crate::rules::props::{InvalidProp, InvalidReason, PropsError, schemas_in};
use crate::{Error, Result, ScriptArguments, ScriptCall, ScriptError, ScriptFunction};

/// The property with the hooks that have schemas.
const PROP: &str = "precommit";

/// The script that names the fault of a schema. In a worker, since a schema may take memory or time without end.
const SCHEMA_FUNCTION: &str = "Larder.schemaError";

/// How long a check may wait for a worker.
const WORKER_TIMEOUT: Duration = Duration::from_secs(10);

impl Types {
    /// Checks the schemas in properties that a client sets for this type or bucket.
    ///
    /// # Errors
    /// [`Error::Refused`]: the argument of a hook is no schema. [`Error::Overloaded`]: no worker can check it now.
    pub(super) async fn check_schemas(&self, client: &str, props: &Map<String, Value>) -> Result<()> {
        // Without scripts no hook of this kind runs: each put says so.
        let Some(scripts) = &self.core.ports.scripts else { return Ok(()) };
        for schema in props.get(PROP).map(schemas_in).unwrap_or_default() {
            let function = ScriptFunction::Named(SCHEMA_FUNCTION.into());
            let deadline = Instant::now() + WORKER_TIMEOUT;
            let arguments = ScriptArguments::new(&[schema.into()]);
            let reason = match scripts.call(ScriptCall { client: client.into(), function, arguments, deadline }).await {
                Ok(Value::String(reason)) => reason,
                Ok(_) => continue,
                Err(ScriptError::Unavailable) => return Err(Error::Overloaded { retry_after: 1 }),
                Err(error) => error.to_string(),
            };
            let refused = InvalidProp { prop: PROP.into(), reason: InvalidReason::not_a_schema(reason) };
            return Err(PropsError::Props(vec![refused]).into());
        }
        Ok(())
    }
}
