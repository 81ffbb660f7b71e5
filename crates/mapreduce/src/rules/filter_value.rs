//! The values that key filters pass on: texts, numbers, truth.

use std::cmp::Ordering;

use serde_json::Value;

/// A value within a pipeline of filters.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FilterValue {
    /// A text of any bytes.
    Text(Vec<u8>),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Float(f64),
    /// The result of a predicate.
    Truth(bool),
}

impl FilterValue {
    /// The value of an argument; `None`: no key can be one.
    pub(super) fn of_json(value: &Value) -> Option<Self> {
        Some(match value {
            Value::String(text) => Self::Text(text.clone().into_bytes()),
            Value::Bool(truth) => Self::Truth(*truth),
            Value::Number(number) => match number.as_i64() {
                Some(integer) => Self::Integer(integer),
                None => Self::Float(number.as_f64().filter(|float| float.is_finite())?),
            },
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        })
    }

    /// The value as text.
    pub(super) fn text(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone(),
            Self::Integer(integer) => integer.to_string().into_bytes(),
            Self::Float(float) => float_text(*float).into_bytes(),
            Self::Truth(truth) => truth.to_string().into_bytes(),
        }
    }

    /// The order of Erlang: numbers, truth, texts.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        use FilterValue::{Float, Integer, Text, Truth};
        match (self, other) {
            (Integer(a), Integer(b)) => a.cmp(b),
            (Integer(a), Float(b)) => (*a as f64).total_cmp(b),
            (Float(a), Integer(b)) => a.total_cmp(&(*b as f64)),
            (Float(a), Float(b)) => a.total_cmp(b),
            (Truth(a), Truth(b)) => a.cmp(b),
            (Text(a), Text(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Integer(_) | Self::Float(_) => 0,
            Self::Truth(_) => 1,
            Self::Text(_) => 2,
        }
    }
}

/// A float as Erlang writes it: 20 digits and an exponent.
pub(super) fn float_text(float: f64) -> String {
    let text = format!("{float:.20e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_erlangs() {
        let ordered = [
            FilterValue::Float(-0.5),
            FilterValue::Integer(1),
            FilterValue::Float(1.5),
            FilterValue::Integer(2),
            FilterValue::Truth(false),
            FilterValue::Truth(true),
            FilterValue::Text(Vec::new()),
            FilterValue::Text(b"10".to_vec()),
            FilterValue::Text(b"2".to_vec()),
        ];
        assert!(ordered.is_sorted_by(|a, b| a.order(b) == Ordering::Less));
    }

    #[test]
    fn floats_are_written_with_an_exponent() {
        assert_eq!(float_text(1.5), "1.50000000000000000000e+00");
        assert_eq!(float_text(-0.25), "-2.50000000000000000000e-01");
        assert_eq!(float_text(1e100).split_once('e').unwrap().1, "+100");
    }
}
