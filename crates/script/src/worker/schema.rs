//! JSON schemas, checked in the worker: a schema that recurses without end, or a value that takes long, ends with it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use jsonschema::{PatternOptions, Validator};
use larder_rows::text::beginning;
use serde_json::Value;

/// Schemas that a worker keeps compiled.
const SCHEMAS_MAX: usize = 64;
/// Most bytes of the fault, which names a part of the value.
const FAULT_BYTES_MAX: usize = 1 << 10;

thread_local! {
    static COMPILED: RefCell<HashMap<String, Rc<Validator>>> = RefCell::default();
}

/// Why a text is not JSON that matches a schema; `None` where it is.
pub(super) fn schema_fault(schema: String, text: String) -> Option<String> {
    let fault = match (serde_json::from_str::<Value>(&text), validator(schema)) {
        (Err(error), _) => format!("the value is not JSON: {error}"),
        (_, Err(error)) => format!("the schema is not one: {error}"),
        (Ok(value), Ok(validator)) => {
            let error = validator.iter_errors(&value).next()?;
            format!("the value does not match the schema at \"{}\": {error}", error.instance_path())
        }
    };
    Some(beginning(&fault, FAULT_BYTES_MAX).to_owned())
}

/// Why a text is no schema; `None` where it is one.
pub(super) fn schema_error(schema: String) -> Option<String> {
    let error = validator(schema).err()?;
    Some(beginning(&error, FAULT_BYTES_MAX).to_owned())
}

fn validator(schema: String) -> Result<Rc<Validator>, String> {
    if let Some(cached_validator) = COMPILED.with_borrow(|compiled| compiled.get(&schema).cloned()) {
        return Ok(cached_validator);
    }
    let json: Value = serde_json::from_str(&schema).map_err(|error| error.to_string())?;
    // Patterns run in linear time; references to other documents are refused.
    let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
    let built = Rc::new(options.build(&json).map_err(|error| error.to_string())?);
    COMPILED.with_borrow_mut(|compiled| {
        if compiled.len() >= SCHEMAS_MAX {
            compiled.clear();
        }
        compiled.insert(schema, Rc::clone(&built));
    });
    Ok(built)
}
