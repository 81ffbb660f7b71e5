//! The table of built-in functions: their Erlang and JavaScript names.

use larder_core::rules::erlang::atom;
use serde_json::Value;

use super::map_function::MapFunction as M;
use super::phase::{PhaseFunction, PhaseScript};
use super::reduce_function::ReduceFunction as R;

/// The module of the built-in Erlang functions.
const MODULE: &str = "riak_kv_mapreduce";

/// A built-in function.
#[derive(Debug)]
pub struct Builtin {
    /// Its name: a function of `riak_kv_mapreduce`, or of `Riak`.
    pub name: &'static str,
    /// The function.
    pub function: BuiltinFunction,
}

/// The phase of a built-in function, and what it does there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltinFunction {
    /// For a map phase.
    Map(M),
    /// For a reduce phase.
    Reduce(R),
}

impl From<BuiltinFunction> for PhaseFunction {
    fn from(function: BuiltinFunction) -> Self {
        match function {
            BuiltinFunction::Map(function) => Self::Map(function),
            BuiltinFunction::Reduce(function) => Self::Reduce(function),
        }
    }
}

const fn map(name: &'static str, function: M) -> Builtin {
    Builtin { name, function: BuiltinFunction::Map(function) }
}

const fn reduce(name: &'static str, function: R) -> Builtin {
    Builtin { name, function: BuiltinFunction::Reduce(function) }
}

/// All built-in functions.
pub static BUILTINS: &[Builtin] = &[
    map("map_identity", M::Identity),
    map("map_object_value", M::ObjectValue),
    map("map_object_value_list", M::ObjectValueList),
    reduce("reduce_identity", R::Identity),
    reduce("reduce_set_union", R::SetUnion),
    reduce("reduce_sum", R::Sum),
    reduce("reduce_plist_sum", R::PlistSum),
    reduce("reduce_sort", R::Sort),
    reduce("reduce_string_to_integer", R::StringToInteger),
    reduce("reduce_count_inputs", R::CountInputs),
    map("Riak.mapValues", M::JsValues),
    map("Riak.mapValuesJson", M::JsValuesJson),
    map("Riak.mapByFields", M::JsByFields),
    reduce("Riak.reduceSum", R::JsSum),
    reduce("Riak.reduceMin", R::JsMin),
    reduce("Riak.reduceMax", R::JsMax),
    reduce("Riak.reduceSort", R::JsSort),
    reduce("Riak.reduceNumericSort", R::JsNumericSort),
    reduce("Riak.reduceLimit", R::JsLimit),
    reduce("Riak.reduceSlice", R::JsSlice),
    reduce("Riak.filterNotFound", R::JsFilterNotFound),
];

fn find(name: &str, is_map: bool) -> Option<BuiltinFunction> {
    let of_kind = |builtin: &&Builtin| matches!(builtin.function, BuiltinFunction::Map(_)) == is_map;
    BUILTINS.iter().filter(of_kind).find(|builtin| builtin.name == name).map(|builtin| builtin.function)
}

/// The function of an Erlang phase.
///
/// # Errors
/// Riak's text: there is no such module or function.
pub(super) fn erlang_function(module: &str, function: &str, is_map: bool) -> Result<PhaseFunction, String> {
    let (part, arity) = if is_map { ("PhaseSpec", 3) } else { ("arg", 2) };
    if module != MODULE {
        return Err(format!(
            "invalid module named in {part} function:\n must be a valid module name (failed to load {}: nofile)",
            atom(module)
        ));
    }
    // The other names of the table begin with a capital, which no function of a module does.
    find(function, is_map)
        .filter(|_| !function.starts_with("Riak."))
        .map(PhaseFunction::from)
        .ok_or_else(|| format!("{part} specifies {}:{}/{arity}, which is not exported", atom(module), atom(function)))
}

/// The function of a JavaScript phase: a built-in one runs natively.
pub(super) fn script_function(script: PhaseScript, is_map: bool, arg: Option<&Value>) -> PhaseFunction {
    if let PhaseScript::Named(name) = &script
        && name.starts_with("Riak.")
        && let Some(function) = find(name, is_map)
    {
        // A comparison is a function of the client's: Riak evaluates its source.
        return match (function, arg) {
            (BuiltinFunction::Reduce(R::JsSort), Some(Value::String(comparison))) if comparison != "none" => {
                PhaseFunction::ReduceScript(PhaseScript::Source(sort_by(comparison)))
            }
            _ => function.into(),
        };
    }
    if is_map { PhaseFunction::MapScript(script) } else { PhaseFunction::ReduceScript(script) }
}

fn sort_by(comparison: &str) -> String {
    format!("function(values) {{ return values.sort({comparison}\n); }}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builtin_is_found_by_its_name_alone() {
        for builtin in BUILTINS {
            let is_map = matches!(builtin.function, BuiltinFunction::Map(_));
            let script = || PhaseScript::Named(builtin.name.into());
            if builtin.name.starts_with("Riak.") {
                assert_eq!(script_function(script(), is_map, None), builtin.function.into());
                assert!(erlang_function(MODULE, builtin.name, is_map).is_err());
            } else {
                assert_eq!(erlang_function(MODULE, builtin.name, is_map).unwrap(), builtin.function.into());
                assert!(
                    matches!(script_function(script(), true, None), PhaseFunction::MapScript(_)),
                    "{}",
                    builtin.name
                );
            }
            assert_eq!(find(builtin.name, !is_map), None);
        }
    }

    #[test]
    fn a_sort_with_a_comparison_is_a_script() {
        let sort = || PhaseScript::Named("Riak.reduceSort".into());
        let comparison = Value::from("function(a,b){return b-a;}");
        let PhaseFunction::ReduceScript(PhaseScript::Source(source)) =
            script_function(sort(), false, Some(&comparison))
        else {
            panic!("native");
        };
        assert!(source.contains("values.sort(function(a,b){return b-a;}"), "{source}");
        assert_eq!(script_function(sort(), false, Some(&Value::Null)), PhaseFunction::Reduce(R::JsSort));
    }
}
