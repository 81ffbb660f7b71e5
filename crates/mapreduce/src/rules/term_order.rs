//! The order of Erlang over values: numbers, atoms, objects, lists, texts.

use std::cmp::Ordering;

use serde_json::Value;

use super::js_values::JobNumber;

/// The order of two values.
pub(super) fn term_order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (JobNumber::from_json(a), JobNumber::from_json(b)) {
            (Some(JobNumber::Integer(a)), Some(JobNumber::Integer(b))) => a.cmp(&b),
            (Some(a), Some(b)) => mixed_order(a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        },
        (Value::String(a), Value::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Array(a), Value::Array(b)) => list_order(a.iter(), b.iter(), term_order),
        (Value::Object(a), Value::Object(b)) => list_order(a.iter(), b.iter(), |(a_name, a), (b_name, b)| {
            a_name.as_bytes().cmp(b_name.as_bytes()).then_with(|| term_order(a, b))
        }),
        _ if rank(a) == 1 && rank(b) == 1 => atom(a).cmp(atom(b)),
        _ => rank(a).cmp(&rank(b)),
    }
}

/// The exact order of two numbers. Comparing a large integer as the nearest float would be no total order: two integers would equal
/// one float and differ from each other.
fn mixed_order(a: JobNumber, b: JobNumber) -> Ordering {
    match (a, b) {
        (JobNumber::Integer(a), JobNumber::Float(b)) => integer_order(a, b),
        (JobNumber::Float(a), JobNumber::Integer(b)) => integer_order(b, a).reverse(),
        // Numbers of documents are finite. The zeros are one number, as the integer between them is.
        (a, b) => a.float().partial_cmp(&b.float()).unwrap_or(Ordering::Equal),
    }
}

fn integer_order(integer: i128, float: f64) -> Ordering {
    // The conversion takes the nearest integer in range, so a float out of range stays beyond every one but the last.
    let whole = float.trunc();
    integer.cmp(&(whole as i128)).then_with(|| whole.partial_cmp(&float).unwrap_or(Ordering::Equal))
}

fn list_order<T>(
    mut a: impl Iterator<Item = T>,
    mut b: impl Iterator<Item = T>,
    order: impl Fn(T, T) -> Ordering,
) -> Ordering {
    loop {
        match (a.next(), b.next()) {
            (Some(a), Some(b)) => match order(a, b) {
                Ordering::Equal => {}
                decided => return decided,
            },
            (a, b) => return a.is_some().cmp(&b.is_some()),
        }
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::Null | Value::Bool(_) => 1,
        Value::Object(_) => 2,
        Value::Array(_) => 3,
        Value::String(_) => 4,
    }
}

fn atom(value: &Value) -> &'static str {
    match value {
        Value::Bool(true) => "true",
        Value::Bool(false) => "false",
        _ => "null",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_integers_and_floats_have_one_order() {
        let values: Vec<Value> =
            serde_json::from_str("[-0.5,-0.0,0,0.0,0.5,9007199254740992.0,9007199254740993,9007199254740994.0]")
                .unwrap();
        for (at, a) in values.iter().enumerate() {
            for b in &values[at..] {
                assert_ne!(term_order(a, b), Ordering::Greater, "{a} {b}");
                assert_eq!(term_order(a, b), term_order(b, a).reverse(), "{a} {b}");
            }
        }
        assert_eq!(term_order(&values[5], &values[6]), Ordering::Less);
    }

    #[test]
    fn values_stand_in_the_order_of_erlang() {
        let sorted = r#"[-1,0.5,1,2,false,null,true,{},{"a":1},{"a":2},{"b":0},[],[1],[1,2],[2],"","10","2","a"]"#;
        let values: Vec<Value> = serde_json::from_str(sorted).unwrap();
        let mut shuffled = values.clone();
        shuffled.reverse();
        shuffled.sort_by(term_order);
        assert_eq!(Value::Array(shuffled).to_string(), Value::Array(values).to_string());
    }
}
