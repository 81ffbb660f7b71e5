//! Updates of fields of a map: as fast in a large map as in a small one.

use std::sync::Arc;

use anyhow::Result;

use super::operation::ValueOperation;
use super::run::DatatypesRun;
use crate::keys::{BenchRandom, key};
use crate::numbered_work::{self, NumberedWork, ValueServer};
use crate::report::thousands;
use crate::turns::Comparison;
use crate::value_requests::ValueRequest;

/// The fields of one request of a load.
const LOADED_AT_ONCE: u64 = 1_000;

/// The name of a field, its type apart.
const FIELD: &str = "fiel";

/// The value of a register.
const REGISTER: &str = "text";

/// The operations on fields.
const OPERATIONS: [ValueOperation; 3] =
    [ValueOperation::MapRegister, ValueOperation::MapCounter, ValueOperation::MapSet];

impl DatatypesRun {
    /// Loads a map of each size and measures the updates of its fields, the sizes in turns.
    ///
    /// # Errors
    ///
    /// When the server refuses a part of the load, or a connection cannot be made.
    pub(super) async fn maps(&mut self, server: &ValueServer) -> Result<()> {
        for size in self.plan.map_sizes {
            eprintln!("loading a map of {} fields", thousands(size as f64));
            let fields = size as u64;
            let build = move |number, request: &mut ValueRequest| load_fields(fields, number, request);
            numbered_work::load(&server.endpoint, fields.div_ceil(LOADED_AT_ONCE), Arc::new(build)).await?;
        }
        let [small, large] = self.plan.map_sizes;
        for operation in OPERATIONS {
            let works = [large, small].map(|size| update(operation, size));
            let [ours, base] = numbered_work::measure(&mut self.report, server, &works, self.plan.rounds).await?;
            let (large, small) = (thousands(large as f64), thousands(small as f64));
            let name = format!("{}, {large} fields to {small}", operation.name());
            self.report.comparison(name, &Comparison::of(&ours, &base), &format!("{small} fields"));
        }
        Ok(())
    }
}

/// Builds a part of the load of a map: a third of its fields are registers, a third counters, a third sets.
fn load_fields(fields: u64, number: u64, request: &mut ValueRequest) {
    let first = number * LOADED_AT_ONCE;
    request.post(format_args!("/types/maps/buckets/bench/datatypes/of-{fields}?dw=0"));
    request.add(&[b"{\"update\":{"]);
    for field in first..(first + LOADED_AT_ONCE).min(fields) {
        let comma: &[u8] = if field == first { b"" } else { b"," };
        request.add(&[comma]);
        add_field(OPERATIONS[(field % 3) as usize], field, field, request);
    }
    request.add(&[b"}}"]);
}

/// Adds `"NAME_TYPE":EDIT` to the body.
fn add_field(operation: ValueOperation, field: u64, number: u64, request: &mut ValueRequest) {
    let name = key(FIELD, field);
    match operation {
        ValueOperation::MapCounter => request.add(&[b"\"", &name, b"_counter\":{\"increment\":1}"]),
        ValueOperation::MapSet => {
            request.add(&[b"\"", &name, b"_set\":{\"add\":\"", &key("made", number), b"\"}"]);
        }
        _ => request.add(&[b"\"", &name, b"_register\":\"", &key(REGISTER, number), b"\""]),
    }
}

/// Updates of fields that were loaded.
fn update(operation: ValueOperation, size: usize) -> NumberedWork {
    let fields = size as u64;
    let kind = OPERATIONS.iter().position(|each| *each == operation).unwrap_or(0) as u64;
    NumberedWork::new(operation, size, move |number, request| {
        let field = BenchRandom::new(number).below(fields / 3) * 3 + kind;
        request.post(format_args!("/types/maps/buckets/bench/datatypes/of-{fields}"));
        request.add(&[b"{\"update\":{"]);
        add_field(operation, field, number, request);
        request.add(&[b"}}"]);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_are_of_fields_that_were_loaded() {
        let mut request = ValueRequest::default();
        load_fields(10, 0, &mut request);
        let loaded = request.shown();
        assert_eq!(loaded.matches("\"fiel").count(), 10, "{loaded}");
        for operation in OPERATIONS {
            for number in 0..50 {
                (update(operation, 10).build)(number, &mut request);
                let text = request.shown();
                let name = text.split('"').nth(3).unwrap();
                assert!(loaded.contains(&format!("\"{name}\":")), "{text} in {loaded}");
            }
        }
    }

    #[test]
    fn the_last_part_of_a_load_ends_with_the_last_field() {
        let mut request = ValueRequest::default();
        load_fields(2_500, 2, &mut request);
        assert_eq!(request.shown().matches("\"fiel").count(), 500);
    }
}
