//! The built-in functions of reduce phases.
//!
//! A reduce function gets the values so far and new ones in one list, and makes a list of them again.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::js_values::{JobNumber, js_less, js_number, js_sum, js_text, text_order};
use super::term_order::term_order;
use super::value::{JobValue, PhaseFailure};

/// A built-in function of a reduce phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduceFunction {
    /// The keys.
    Identity,
    /// Each value once.
    SetUnion,
    /// The sum of numbers.
    Sum,
    /// Objects of numbers: the sum of each member.
    PlistSum,
    /// The values in the order of Erlang.
    Sort,
    /// Texts as whole numbers.
    StringToInteger,
    /// The number of values.
    CountInputs,
    /// `Riak.reduceSum`: the sum of numbers, or texts joined.
    JsSum,
    /// `Riak.reduceMin`: the least value.
    JsMin,
    /// `Riak.reduceMax`: the greatest value.
    JsMax,
    /// `Riak.reduceSort` without a comparison: the values in the order of their texts.
    JsSort,
    /// `Riak.reduceNumericSort`: the values in the order of their numbers.
    JsNumericSort,
    /// `Riak.reduceLimit`: fewer values than the argument.
    JsLimit,
    /// `Riak.reduceSlice`: the values between two places.
    JsSlice,
    /// `Riak.filterNotFound`: the values without missing objects.
    JsFilterNotFound,
}

impl ReduceFunction {
    /// Whether the function may run before all values are here. A sort or a slice of a part costs time or is wrong.
    #[must_use]
    pub fn folds(self) -> bool {
        !matches!(self, Self::Sort | Self::JsSort | Self::JsNumericSort | Self::JsSlice)
    }

    /// The values that the function makes of a list.
    ///
    /// # Errors
    /// A value or the argument is not one of the function.
    pub fn reduce(self, values: Vec<JobValue>, arg: Option<&Value>) -> Result<Vec<JobValue>, PhaseFailure> {
        match self {
            Self::Identity => return values.into_iter().map(key).collect(),
            Self::CountInputs => return Ok(vec![count(&values)]),
            Self::JsFilterNotFound => return Ok(found(values)),
            _ => {}
        }
        let json = |values: Vec<JobValue>| values.into_iter().map(JobValue::into_json).collect::<Vec<Value>>();
        let values = match self {
            Self::Sum | Self::StringToInteger | Self::JsSum => json(found(values)),
            _ => json(values),
        };
        Ok(self.reduce_json(values, arg)?.into_iter().map(JobValue::Json).collect())
    }

    fn reduce_json(self, mut values: Vec<Value>, arg: Option<&Value>) -> Result<Vec<Value>, PhaseFailure> {
        match self {
            Self::Sum => {
                values.iter().try_fold(JobNumber::Integer(0), |sum, value| Ok(sum.plus(number(value)?))).map(one)
            }
            Self::PlistSum => plist_sum(values),
            Self::StringToInteger => values.iter().map(to_integer).collect(),
            Self::SetUnion => {
                let mut seen = HashSet::new();
                values.retain(|value| seen.insert(value.to_string()));
                Ok(values)
            }
            Self::Sort => {
                values.sort_by(term_order);
                Ok(values)
            }
            Self::JsSum => Ok(vec![values.into_iter().reduce(|sum, value| js_sum(sum, &value)).unwrap_or(0.into())]),
            Self::JsMin => Ok(best(values, |next, best| !js_less(best, next))),
            Self::JsMax => Ok(best(values, |next, best| !js_less(next, best))),
            Self::JsSort => {
                values.sort_by_cached_key(|value| TextOrdered(js_text(value)));
                Ok(values)
            }
            Self::JsNumericSort => {
                let number = |value: &Value| js_number(value).map_or(f64::INFINITY, JobNumber::float);
                values.sort_by(|a, b| number(a).total_cmp(&number(b)));
                Ok(values)
            }
            Self::JsLimit => {
                let limit = whole(arg).ok_or_else(|| bad_arg("reduceLimit takes a number", arg))?;
                let end = slice_end(limit.saturating_sub(1), values.len());
                values.truncate(end);
                Ok(values)
            }
            Self::JsSlice => slice(values, arg),
            Self::Identity | Self::CountInputs | Self::JsFilterNotFound => Ok(values),
        }
    }
}

fn one(number: JobNumber) -> Vec<Value> {
    vec![number.value()]
}

fn found(values: Vec<JobValue>) -> Vec<JobValue> {
    values.into_iter().filter(|value| !value.is_not_found()).collect()
}

/// The key of a value, as a list of bucket and key.
fn key(value: JobValue) -> Result<JobValue, PhaseFailure> {
    match value {
        JobValue::NotFound(_) => value.into_input().map(JobValue::Key),
        value => {
            let mut input = value.into_input()?;
            input.key_data = None;
            Ok(JobValue::Key(input))
        }
    }
}

/// The number of values. A whole number among them is the count of an earlier call.
fn count(values: &[JobValue]) -> JobValue {
    let counted = |value: &JobValue| match value {
        JobValue::Json(Value::Number(number)) => match JobNumber::from_json(number) {
            Some(JobNumber::Integer(count)) => count,
            _ => 1,
        },
        _ => 1,
    };
    JobValue::Json(JobNumber::Integer(values.iter().map(counted).fold(0, i128::saturating_add)).value())
}

fn number(value: &Value) -> Result<JobNumber, PhaseFailure> {
    let number = value.as_number().and_then(JobNumber::from_json);
    number.ok_or_else(|| PhaseFailure::new("badarith: a value is no number", value))
}

fn to_integer(value: &Value) -> Result<Value, PhaseFailure> {
    let integer = match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_i128(),
        _ => None,
    };
    let integer = integer.ok_or_else(|| PhaseFailure::new("badarg: a value is no whole number", value))?;
    Ok(JobNumber::Integer(integer).value())
}

/// The sum of each member, as an object. Lists of objects count as their objects.
fn plist_sum(values: Vec<Value>) -> Result<Vec<Value>, PhaseFailure> {
    let mut sums = Map::new();
    let mut stack: Vec<Value> = values.into_iter().rev().collect();
    while let Some(value) = stack.pop() {
        match value {
            Value::Array(list) => stack.extend(list.into_iter().rev()),
            Value::Object(members) => {
                for (name, value) in members {
                    let sum = sums.get(&name).map_or(Ok(JobNumber::Integer(0)), number)?;
                    sums.insert(name, sum.plus(number(&value)?).value());
                }
            }
            other => return Err(PhaseFailure::new("badarg: a value is no object of numbers", &other)),
        }
    }
    Ok(if sums.is_empty() { Vec::new() } else { vec![Value::Object(sums)] })
}

/// The value that wins against all before it, if there is any.
fn best(values: Vec<Value>, wins: impl Fn(&Value, &Value) -> bool) -> Vec<Value> {
    values.into_iter().reduce(|best, next| if wins(&next, &best) { next } else { best }).into_iter().collect()
}

/// A text in the order of JavaScript.
#[derive(PartialEq, Eq)]
struct TextOrdered(String);

impl PartialOrd for TextOrdered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TextOrdered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        text_order(&self.0, &other.0)
    }
}

/// The values between two places, the second excluded. An end beyond the list is none: all values stay.
fn slice(mut values: Vec<Value>, arg: Option<&Value>) -> Result<Vec<Value>, PhaseFailure> {
    let ends = arg.and_then(Value::as_array).map(|ends| (whole(ends.first()), whole(ends.get(1))));
    let Some((Some(start), Some(end))) = ends else { return Err(bad_arg("reduceSlice takes [start, end]", arg)) };
    if usize::try_from(end).is_ok_and(|end| end > values.len()) {
        return Ok(values);
    }
    let (start, end) = (slice_end(start, values.len()), slice_end(end, values.len()));
    values.truncate(end);
    values.drain(..start.min(end));
    Ok(values)
}

fn whole(value: Option<&Value>) -> Option<i64> {
    js_number(value?).map(|number| number.float() as i64)
}

/// A place of `slice`: a negative one counts from the end.
fn slice_end(place: i64, length: usize) -> usize {
    match usize::try_from(place) {
        Ok(place) => place.min(length),
        Err(_) => length.saturating_sub(usize::try_from(place.unsigned_abs()).unwrap_or(usize::MAX)),
    }
}

fn bad_arg(error: &str, arg: Option<&Value>) -> PhaseFailure {
    PhaseFailure::new(error, arg.unwrap_or(&Value::Null))
}

/// Values that wait before a function runs the next time, at least, unless they are large.
const VALUES_MIN: usize = 1000;
/// Bytes of waiting values that are large.
const BYTES_MIN: usize = 1024 * 1024;

/// A native reduce phase.
#[derive(Debug)]
pub struct Reducer {
    function: ReduceFunction,
    arg: Option<Value>,
    values: Vec<JobValue>,
    /// How many values the function made the last time.
    reduced: usize,
    /// Bytes of the values that it made.
    reduced_bytes: usize,
    bytes: usize,
}

impl Reducer {
    /// A phase without values.
    #[must_use]
    pub fn new(function: ReduceFunction, arg: Option<Value>) -> Self {
        Self { function, arg, values: Vec::new(), reduced: 0, reduced_bytes: 0, bytes: 0 }
    }

    /// Whether it reduces its values before all are here.
    #[must_use]
    pub fn folds(&self) -> bool {
        self.function.folds()
    }

    /// Bytes of memory that its values take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes more values.
    ///
    /// # Errors
    /// The function failed.
    pub fn push(&mut self, values: Vec<JobValue>) -> Result<(), PhaseFailure> {
        self.bytes += values.iter().map(JobValue::bytes).sum::<usize>();
        self.values.extend(values);
        // Only after as many new values as the last result had: reducing a growing set stays linear.
        let are_many = self.values.len() >= self.reduced + VALUES_MIN.max(self.reduced);
        let are_large = self.bytes >= self.reduced_bytes + BYTES_MIN.max(self.reduced_bytes);
        if self.function.folds() && (are_many || are_large) { self.reduce() } else { Ok(()) }
    }

    /// The result, at the end of all values.
    ///
    /// # Errors
    /// The function failed.
    pub fn finish(&mut self) -> Result<Vec<JobValue>, PhaseFailure> {
        self.reduce()?;
        self.bytes = 0;
        Ok(std::mem::take(&mut self.values))
    }

    fn reduce(&mut self) -> Result<(), PhaseFailure> {
        self.values = self.function.reduce(std::mem::take(&mut self.values), self.arg.as_ref())?;
        self.reduced = self.values.len();
        self.bytes = self.values.iter().map(JobValue::bytes).sum();
        self.reduced_bytes = self.bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod reducer_tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn run(function: ReduceFunction, arg: Option<Value>, numbers: &[i64], page: usize) -> Vec<Value> {
        let mut reducer = Reducer::new(function, arg);
        for page in numbers.chunks(page.max(1)) {
            reducer.push(page.iter().map(|number| JobValue::Json((*number).into())).collect()).unwrap();
        }
        let values = reducer.finish().unwrap();
        assert_eq!(reducer.bytes(), 0);
        values.into_iter().map(JobValue::into_json).collect()
    }

    #[test]
    fn a_sum_holds_few_values() {
        let mut reducer = Reducer::new(ReduceFunction::Sum, None);
        for _ in 0..100 {
            reducer.push(vec![JobValue::Json(1.into()); 999]).unwrap();
            assert!(reducer.bytes() < 2000 * 200);
        }
        assert_eq!(reducer.finish().unwrap(), [JobValue::Json(99_900.into())]);
    }

    #[test]
    fn a_sum_of_many_texts_does_not_take_the_square_of_their_bytes() {
        let mut reducer = Reducer::new(ReduceFunction::JsSum, None);
        // Copied for each text, the sum would be a terabyte.
        for _ in 0..200 {
            reducer.push(vec![JobValue::Json("x".repeat(50).into()); 1000]).unwrap();
        }
        let sum = reducer.finish().unwrap().remove(0).into_json();
        assert_eq!(sum.as_str().map(str::len), Some(200 * 1000 * 50));
    }

    proptest! {
        #[test]
        fn pages_of_any_size_give_the_result_of_one(numbers in proptest::collection::vec(-50..50i64, 0..3000), page in 1..1500usize) {
            for (function, arg) in [
                (ReduceFunction::Sum, None),
                (ReduceFunction::SetUnion, None),
                (ReduceFunction::Sort, None),
                (ReduceFunction::JsMin, None),
                (ReduceFunction::JsMax, None),
                (ReduceFunction::JsNumericSort, None),
                (ReduceFunction::JsLimit, Some(json!(7))),
                (ReduceFunction::JsSlice, Some(json!([2, 9]))),
            ] {
                let whole = run(function, arg.clone(), &numbers, usize::MAX);
                prop_assert_eq!(run(function, arg, &numbers, page), whole);
            }
        }
    }
}
