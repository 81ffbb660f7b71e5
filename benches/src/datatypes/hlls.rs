//! HyperLogLogs: the rate of adds, and the error of estimates beside the theory.

use std::sync::Arc;

use anyhow::{Context, Result};

use super::counters::encoded_value;
use super::operation::ValueOperation;
use super::run::DatatypesRun;
use crate::keys::key;
use crate::numbered_work::{self, NumberedWork, ValueServer};
use crate::report::thousands;
use crate::targets::{self, BenchTarget};
use crate::value_requests::{ValueDriver, ValueRequest};

/// The elements of one request of a load.
const LOADED_AT_ONCE: u64 = 2_000;

/// The standard error of an estimate of 2^14 registers in percent: 1.04 / sqrt(2^14).
const THEORY_PERCENT: f64 = 0.8125;

impl DatatypesRun {
    /// Measures adds, then the errors at each number of elements.
    ///
    /// # Errors
    ///
    /// When the server refuses a part of the load, or a connection cannot be made.
    pub(super) async fn hlls(&mut self, server: &ValueServer) -> Result<()> {
        let adds = NumberedWork::new(ValueOperation::HllAdd, 1, |number, request| {
            request.post(format_args!("/types/hlls/buckets/bench/datatypes/added"));
            request.add(&[b"{\"add\":\"", &key("made", number), b"\"}"]);
        });
        numbered_work::measure(&mut self.report, server, &[adds], self.plan.rounds).await?;
        let mut worst: f64 = 0.0;
        let mut shown = Vec::new();
        for distinct in self.plan.distinct {
            let errors = self.errors(server, distinct).await?;
            let rms = root_mean_square(&errors);
            let largest = errors.iter().fold(0.0, |largest: f64, error| largest.max(error.abs()));
            worst = worst.max(rms);
            shown.push(format!("{}: {rms:.3} % (largest {largest:.3} %)", thousands(distinct as f64)));
        }
        let detail = format!(
            "root mean square of {} estimates at each number of elements, the theory {THEORY_PERCENT:.2} %: {}",
            self.plan.sketches,
            shown.join("; ")
        );
        self.report.targets.push(BenchTarget::new(targets::HLL_ERROR, Some(worst / THEORY_PERCENT), detail));
        Ok(())
    }

    /// The relative errors of estimates of `distinct` elements in percent; each has other elements.
    async fn errors(&mut self, server: &ValueServer, distinct: u64) -> Result<Vec<f64>> {
        let sketches = self.plan.sketches;
        eprintln!("loading {sketches} HyperLogLogs of {} elements", thousands(distinct as f64));
        let requests = sketches * distinct.div_ceil(LOADED_AT_ONCE);
        let build = move |number, request: &mut ValueRequest| load_elements(distinct, number, request);
        let seconds = numbered_work::load(&server.endpoint, requests, Arc::new(build)).await?.as_secs_f64();
        let rate = thousands((sketches * distinct) as f64 / seconds);
        let name = format!("adding {} elements to each of {sketches} hlls, `dw=0`", thousands(distinct as f64));
        self.report.fact(name, format!("{seconds:.1} s, {rate} elements/s"));
        let mut driver = ValueDriver::connect(&server.endpoint).await?;
        let mut errors = Vec::new();
        for sketch in 0..sketches {
            driver.request.get(format_args!("/types/hlls/buckets/of-{distinct}/datatypes/{sketch}"));
            driver.send_checked(200).await?;
            let estimate = encoded_value(&driver.text()).context("a HyperLogLog without a value")?;
            errors.push((estimate as f64 - distinct as f64) / distinct as f64 * 100.0);
        }
        Ok(errors)
    }
}

fn load_elements(distinct: u64, number: u64, request: &mut ValueRequest) {
    let each = distinct.div_ceil(LOADED_AT_ONCE);
    let (sketch, first) = (number / each, number % each * LOADED_AT_ONCE);
    request.post(format_args!("/types/hlls/buckets/of-{distinct}/datatypes/{sketch}?dw=0"));
    request.add(&[b"{\"add_all\":"]);
    let elements = first..(first + LOADED_AT_ONCE).min(distinct);
    request.add_names(elements.map(|element| key("elem", sketch * distinct + element)));
    request.add(&[b"}"]);
}

fn root_mean_square(errors: &[f64]) -> f64 {
    let squares: f64 = errors.iter().map(|error| error * error).sum();
    (squares / errors.len().max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn sketches_get_the_promised_number_of_elements_and_share_none() {
        let mut seen = HashSet::new();
        let mut request = ValueRequest::default();
        for number in 0..6 {
            load_elements(5_000, number, &mut request);
            let text = request.shown();
            assert!(text.contains(&format!("/of-5000/datatypes/{}?", number / 3)), "{text}");
            seen.extend(text.split('"').filter(|part| part.starts_with("elem")).map(str::to_owned));
        }
        assert_eq!(seen.len(), 10_000);
    }

    #[test]
    fn errors_of_both_signs_do_not_cancel() {
        assert!((root_mean_square(&[3.0, -3.0]) - 3.0).abs() < 1e-9);
        assert!((1.04 / 2_f64.powi(7) * 100.0 - THEORY_PERCENT).abs() < 1e-9);
    }
}
