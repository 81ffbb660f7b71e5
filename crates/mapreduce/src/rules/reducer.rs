//! A reduce phase that runs: the values so far, reduced again and again.

use serde_json::Value;

use super::reduce_function::ReduceFunction;
use super::value::{JobValue, PhaseFailure};

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
mod tests {
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
