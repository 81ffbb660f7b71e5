//! The objects of a run: 100 B of JSON, one number for each, the same number as a term.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::endpoint::Endpoint;
use crate::keys::{KEY_BYTES, key};
use crate::numbered_work;
use crate::value_requests::ValueRequest;

/// Bytes of each object, of as many as have amounts of nine digits.
pub(super) const OBJECT_BYTES: usize = 100;

/// The amount of the first object.
const FIRST_AMOUNT: u64 = 100_000_000;

/// The members of each object beside `amount`.
const MEMBERS: [(&str, u64); 4] =
    [("height", 1_000_000_000), ("length", 2_000_000_000), ("volume", 3_000_000_000), ("weight", 4_000_000_000)];

/// The field whose term is the amount.
pub(super) const FIELD: &str = "n_int";

/// The number of an object in its `amount` and its term.
pub(super) fn amount(number: u64) -> u64 {
    FIRST_AMOUNT + number
}

/// The key of an object that is loaded.
pub(super) fn loaded_key(number: u64) -> [u8; KEY_BYTES] {
    key("load", number)
}

/// Adds the object with this number to the body.
pub(super) fn add_object(number: u64, request: &mut ValueRequest) {
    add_members(&mut request.body, amount(number), 1);
}

/// The sums of the members of the first `count` objects, in JSON.
pub(super) fn sums(count: u64) -> Vec<u8> {
    let mut text = Vec::new();
    add_members(&mut text, sum(count), count);
    text
}

/// The sum of the amounts of the first `count` objects.
pub(super) fn sum(count: u64) -> u64 {
    (0..count).map(amount).sum()
}

fn add_members(out: &mut Vec<u8>, amount: u64, times: u64) {
    // Writing into a vector never fails.
    let _ = write!(out, "{{\"amount\":{amount}");
    for (name, value) in MEMBERS {
        let _ = write!(out, ",\"{name}\":{}", value * times);
    }
    out.push(b'}');
}

/// Loads `count` objects with their terms, or without, into the bucket at this path; returns the time.
///
/// # Errors
///
/// As [`numbered_work::load`].
pub(super) async fn load(endpoint: &Endpoint, bucket: &'static str, has_terms: bool, count: u64) -> Result<Duration> {
    let build = move |number: u64, request: &mut ValueRequest| {
        request.put(format_args!("{bucket}/keys/"));
        request.add_to_target(&loaded_key(number));
        request.add_to_target(b"?dw=0");
        if has_terms {
            request.add_header(format_args!("X-Riak-Index-{FIELD}: {}", amount(number)));
        }
        add_object(number, request);
    };
    numbered_work::load(endpoint, count, Arc::new(build)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CELL_OPERATIONS_MAX;

    #[test]
    fn objects_have_their_length_whatever_their_number() {
        for number in [0, 99_999, CELL_OPERATIONS_MAX * 20] {
            let mut request = ValueRequest::default();
            add_object(number, &mut request);
            assert_eq!(request.body.len(), OBJECT_BYTES, "{}", request.shown());
        }
    }

    #[test]
    fn sums_are_those_of_the_objects() {
        assert_eq!(sum(3), 300_000_003);
        let text = String::from_utf8(sums(2)).unwrap();
        assert!(text.starts_with(r#"{"amount":200000001,"height":2000000000,"#), "{text}");
    }
}
