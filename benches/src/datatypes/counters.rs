//! Increments of one counter from many connections, beside plain puts, each connection to a key of its own.

use anyhow::Result;

use super::operation::ValueOperation;
use super::run::DatatypesRun;
use crate::numbered_work::{self, NumberedWork, ValueServer};
use crate::targets;
use crate::turns::{BARE_CONNECTIONS, Comparison};
use crate::value_requests::ValueDriver;

/// The body of a plain put.
const PUT_BODY: [u8; 100] = [b'7'; 100];

/// The counter.
const COUNTER: &str = "/types/counters/buckets/bench/datatypes/one";

impl DatatypesRun {
    /// Measures both sides in turns, and then whether the counter has every increment that was answered.
    ///
    /// # Errors
    ///
    /// When a connection cannot be made, or the counter is below the answered increments.
    pub(super) async fn counters(&mut self, server: &ValueServer) -> Result<()> {
        let works = [increments(), puts()];
        let [ours, base] = numbered_work::measure(&mut self.report, server, &works, self.plan.rounds).await?;
        let comparison = Comparison::of(&ours, &base);
        self.report.rate_target(targets::COUNTER, &comparison, "plain durable puts to 64 keys");
        let mut driver = ValueDriver::connect(&server.endpoint).await?;
        driver.request.get(format_args!("{COUNTER}"));
        driver.send_checked(200).await?;
        let is_increment = |name: &str| name == ValueOperation::Increment.name();
        let counted = self.report.cells.iter().filter(|measured| is_increment(measured.cell.operation.name));
        let answered: u64 = counted.map(|measured| measured.tally.latencies_us.len()).sum();
        // Those of the warm-up count in the value alone.
        let total = encoded_value(&driver.text());
        anyhow::ensure!(total.is_some_and(|total| total >= answered), "{answered} increments, but {}", driver.text());
        Ok(())
    }
}

fn increments() -> NumberedWork {
    let work = NumberedWork::new(ValueOperation::Increment, 1, |_, request| {
        request.post(format_args!("{COUNTER}"));
        request.add(&[b"{\"increment\":1}"]);
    });
    NumberedWork { connections: BARE_CONNECTIONS, ..work }
}

fn puts() -> NumberedWork {
    let work = NumberedWork::new(ValueOperation::PlainPut, 1, |number, request| {
        // The numbers of a connection are this far apart, so it keeps its key.
        request.put(format_args!("/buckets/bench/keys/{}", number % BARE_CONNECTIONS as u64));
        request.add(&[&PUT_BODY]);
    });
    NumberedWork { connections: BARE_CONNECTIONS, ..work }
}

/// The number of `{"type":"counter","value":7}`, of a HyperLogLog as well.
pub(super) fn encoded_value(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("\"value\":")?;
    rest.split(['}', ',']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CELL_OPERATIONS_MAX;

    #[test]
    fn a_value_is_read() {
        assert_eq!(encoded_value(r#"{"type":"counter","value":12}"#), Some(12));
        assert_eq!(encoded_value(r#"{"type":"hll","value":3,"x":1}"#), Some(3));
        assert_eq!(encoded_value(r#"{"type":"counter","error":"notfound"}"#), None);
    }

    #[test]
    fn a_connection_keeps_its_key_over_all_turns() {
        let connections = BARE_CONNECTIONS as u64;
        assert_eq!(CELL_OPERATIONS_MAX % connections, 0, "the first number of a turn");
        let mut request = crate::value_requests::ValueRequest::default();
        for number in [5, 5 + connections, CELL_OPERATIONS_MAX + 5] {
            (puts().build)(number, &mut request);
            assert!(request.shown().starts_with("PUT /buckets/bench/keys/5 777"), "{}", request.shown());
        }
    }
}
