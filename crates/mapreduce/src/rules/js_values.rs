//! Values by the rules of JavaScript: its numbers, texts, sums and orders.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// A number of either language: whole numbers stay exact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum JobNumber {
    /// A whole number.
    Integer(i128),
    /// Another one.
    Float(f64),
}

impl JobNumber {
    /// The number of a document.
    pub(super) fn from_json(number: &Number) -> Option<Self> {
        if let Some(integer) = number.as_i128() {
            return Some(Self::Integer(integer));
        }
        number.as_f64().filter(|float| float.is_finite()).map(Self::Float)
    }

    /// The sum; a whole number that does not fit becomes a float.
    pub(super) fn plus(self, other: Self) -> Self {
        if let (Self::Integer(a), Self::Integer(b)) = (self, other)
            && let Some(sum) = a.checked_add(b)
        {
            return Self::Integer(sum);
        }
        Self::Float(self.float() + other.float())
    }

    /// The nearest float.
    pub(super) fn float(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Float(float) => float,
        }
    }

    /// The number as a value; a float that is none, as no JSON has it, is null.
    pub(super) fn value(self) -> Value {
        match self {
            Self::Integer(integer) => Number::from_i128(integer).map_or(Value::Null, Value::Number),
            Self::Float(float) => Number::from_f64(float).map_or(Value::Null, Value::Number),
        }
    }

    /// As JavaScript writes it: a float without a fraction is a whole number.
    fn js_value(self) -> Value {
        match self {
            Self::Float(float) if float.fract() == 0.0 && float.abs() < 1e21 => Self::Integer(float as i128).value(),
            number => number.value(),
        }
    }
}

/// The number of a value, where `NaN` is none.
pub(super) fn js_number(value: &Value) -> Option<JobNumber> {
    match value {
        Value::Null => Some(JobNumber::Integer(0)),
        Value::Bool(truth) => Some(JobNumber::Integer(i128::from(*truth))),
        Value::Number(number) => JobNumber::from_json(number),
        Value::String(text) => match text.trim() {
            "" => Some(JobNumber::Integer(0)),
            text => text.parse::<i128>().map(JobNumber::Integer).ok().or_else(|| {
                let float = text.parse::<f64>().ok().filter(|float| float.is_finite());
                float.map(JobNumber::Float)
            }),
        },
        Value::Array(_) | Value::Object(_) => js_number(&Value::String(js_text(value))),
    }
}

/// The text of a value.
pub(super) fn js_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match JobNumber::from_json(number).map(JobNumber::js_value) {
            Some(Value::Number(number)) => number.to_string(),
            _ => number.to_string(),
        },
        Value::Array(list) => {
            let item = |item: &Value| if item.is_null() { String::new() } else { js_text(item) };
            list.iter().map(item).collect::<Vec<_>>().join(",")
        }
        Value::Object(_) => "[object Object]".into(),
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}

/// `a + b`. A text `a` grows in place: a sum of many texts copies each of them once.
pub(super) fn js_sum(a: Value, b: &Value) -> Value {
    let is_text = |value: &Value| matches!(value, Value::String(_) | Value::Array(_) | Value::Object(_));
    match a {
        Value::String(text) => return (text + &js_text(b)).into(),
        a if is_text(&a) || is_text(b) => return (js_text(&a) + &js_text(b)).into(),
        _ => {}
    }
    match (js_number(&a), js_number(b)) {
        (Some(a), Some(b)) => a.plus(b).js_value(),
        _ => Value::Null,
    }
}

/// `a < b`.
pub(super) fn js_less(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => text_order(a, b).is_lt(),
        _ => match (js_number(a), js_number(b)) {
            (Some(a), Some(b)) => a.float() < b.float(),
            _ => false,
        },
    }
}

/// The order of two texts, by units of UTF-16.
pub(super) fn text_order(a: &str, b: &str) -> Ordering {
    a.encode_utf16().cmp(b.encode_utf16())
}

/// `a == b`.
pub(super) fn is_loosely_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::String(a), Value::String(b)) => a == b,
        // Two objects are equal only if they are one.
        (Value::Array(_) | Value::Object(_), Value::Array(_) | Value::Object(_)) => false,
        _ => match (js_number(a), js_number(b)) {
            (Some(a), Some(b)) => a.float().total_cmp(&b.float()).is_eq(),
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sums_are_those_of_javascript() {
        for (a, b, sum) in [
            (json!(1), json!(2), json!(3)),
            (json!(1.5), json!(1.5), json!(3)),
            (json!(0.5), json!(1), json!(1.5)),
            (json!("a"), json!(1), json!("a1")),
            (json!(1), json!("2"), json!("12")),
            (json!(null), json!(true), json!(1)),
            (json!([1, 2]), json!({}), json!("1,2[object Object]")),
        ] {
            assert_eq!(js_sum(a, &b).to_string(), sum.to_string());
        }
    }

    #[test]
    fn orders_are_those_of_javascript() {
        for (a, b, less) in [
            (json!(2), json!(10), true),
            (json!("2"), json!("10"), false),
            (json!("2"), json!(10), true),
            (json!("x"), json!(1), false),
            (json!(1), json!("x"), false),
            (json!(null), json!(1), true),
        ] {
            assert_eq!(js_less(&a, &b), less, "{a} {b}");
        }
        assert!(text_order("\u{10000}", "\u{ffff}").is_lt());
    }

    #[test]
    fn equality_is_loose() {
        for (a, b, equal) in [
            (json!(1), json!("1"), true),
            (json!(1), json!(1.0), true),
            (json!(true), json!(1), true),
            (json!(null), json!(0), false),
            (json!([1]), json!(1), true),
            (json!([1]), json!([1]), false),
            (json!("1"), json!("1.0"), false),
        ] {
            assert_eq!(is_loosely_equal(&a, &b), equal, "{a} {b}");
        }
    }
}
