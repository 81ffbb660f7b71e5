use serde_json::json;

use super::ReduceFunction as R;
use super::*;

fn values(list: &Value) -> Vec<JobValue> {
    list.as_array().unwrap().iter().cloned().map(JobValue::Json).collect()
}

fn reduced(function: R, list: &Value, arg: &Value) -> String {
    match function.reduce(values(list), Some(arg).filter(|arg| !arg.is_null())) {
        Ok(values) => Value::Array(values.into_iter().map(JobValue::into_json).collect()).to_string(),
        Err(failure) => failure.error,
    }
}

#[track_caller]
fn check(function: R, list: Value, arg: Value, expected: &str) {
    assert_eq!(reduced(function, &list, &arg), expected, "{function:?} {list}");
}

#[test]
fn erlang_functions_reduce() {
    let none = || Value::Null;
    let missing = json!({"not_found": {"bucket": "b", "key": "k", "keydata": "undefined"}});
    check(R::Sum, json!([1, 2, missing]), none(), "[3]");
    check(R::Sum, json!([1, 0.5]), none(), "[1.5]");
    check(R::Sum, json!([]), none(), "[0]");
    check(R::Sum, json!(["1"]), none(), "badarith: a value is no number");
    check(R::CountInputs, json!(["a", ["b", "k"], 7, missing]), none(), "[10]");
    check(R::CountInputs, json!([]), none(), "[0]");
    check(R::StringToInteger, json!(["30", 4, missing, "-1"]), none(), "[30,4,-1]");
    check(R::StringToInteger, json!(["x"]), none(), "badarg: a value is no whole number");
    check(R::Sort, json!(["b", 2, "a", 1, null]), none(), r#"[1,2,null,"a","b"]"#);
    check(R::SetUnion, json!(["b", "a", "b", 1, 1]), none(), r#"["b","a",1]"#);
    check(R::Identity, json!([["b", "k"], ["b", "k", "data"]]), none(), r#"[["b","k"],["b","k"]]"#);
    check(R::Identity, json!(["x"]), none(), "badarg: the input names no object");
    check(R::PlistSum, json!([{"a": 1}, [{"a": 2}, {"b": 1.5}]]), none(), r#"[{"a":3,"b":1.5}]"#);
    check(R::PlistSum, json!([]), none(), "[]");
    check(R::PlistSum, json!([{"a": "x"}]), none(), "badarith: a value is no number");
    check(R::PlistSum, json!([5]), none(), "badarg: a value is no object of numbers");
}

#[test]
fn javascript_functions_reduce() {
    let none = || Value::Null;
    check(R::JsSum, json!([1, 2, 0.5]), none(), "[3.5]");
    check(R::JsSum, json!(["a", 1]), none(), r#"["a1"]"#);
    check(R::JsSum, json!([]), none(), "[0]");
    check(R::JsMin, json!([3, 1, 2]), none(), "[1]");
    check(R::JsMax, json!([3, 10, 2]), none(), "[10]");
    check(R::JsMax, json!(["3", "10"]), none(), r#"["3"]"#);
    check(R::JsMin, json!([]), none(), "[]");
    check(R::JsSort, json!([10, 9, "b", "B"]), none(), r#"[10,9,"B","b"]"#);
    check(R::JsNumericSort, json!([10, 9, "8"]), none(), r#"["8",9,10]"#);
    check(R::JsLimit, json!([1, 2, 3, 4]), json!(3), "[1,2]");
    check(R::JsLimit, json!([1, 2]), json!(9), "[1,2]");
    check(R::JsLimit, json!([1, 2]), json!(-1e300), "[]");
    check(R::JsSlice, json!([1, 2]), json!([-1e300, 1e300]), "[1,2]");
    check(R::JsLimit, json!([1]), none(), "reduceLimit takes a number");
    check(R::JsSlice, json!([1, 2, 3, 4]), json!([1, 3]), "[2,3]");
    check(R::JsSlice, json!([1, 2]), json!([1, 3]), "[1,2]");
    check(R::JsSlice, json!([1, 2, 3]), json!([-2, 3]), "[2,3]");
    check(R::JsSlice, json!([1, 2, 3]), json!([3, 1]), "[]");
    check(R::JsSlice, json!([1]), json!(1), "reduceSlice takes [start, end]");
    check(R::JsFilterNotFound, json!([1, {"not_found": {}}, {"a": 1}]), none(), r#"[1,{"a":1}]"#);
}

#[test]
fn whole_numbers_stay_exact_beyond_floats() {
    let large: Value = serde_json::from_str("[9007199254740993,1]").unwrap();
    check(R::Sum, large, Value::Null, "[9007199254740994]");
}
