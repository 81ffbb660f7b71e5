//! Object lock in the headers of requests: the lock of a new object, and the bypass of governance retentions.

use hyper::HeaderMap;
use hyper::header::HeaderName;
use larder_rows::Timestamp;
use larder_s3::object_lock::GovernanceBypass;
use larder_s3_rules::access::AccessContext;
use larder_s3_rules::{ObjectLock, Retention, RetentionMode, dates};

use super::conditions::ConditionValue;
use super::{listing_document, upload_body};
use crate::errors::S3Error;
use crate::response::{self, S3Response};

const PREFIX: &str = "x-amz-object-lock-";
const MODE: &str = "x-amz-object-lock-mode";
const RETAIN_UNTIL: &str = "x-amz-object-lock-retain-until-date";
const LEGAL_HOLD: &str = "x-amz-object-lock-legal-hold";
const BYPASS: &str = "x-amz-bypass-governance-retention";

/// The names of the legal hold's states.
const ON: &str = "ON";
const OFF: &str = "OFF";

const BOTH: &str = "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied";
const PAST: &str = "The retain until date must be in the future!";
const MICROS_PER_DAY: u64 = 86_400_000_000;

/// Condition keys of a request for a lock, and the beginning of them all.
const KEYS: &str = "s3:object-lock-";
const MODE_KEY: &str = "s3:object-lock-mode";
const RETAIN_UNTIL_KEY: &str = "s3:object-lock-retain-until-date";
const REMAINING_DAYS_KEY: &str = "s3:object-lock-remaining-retention-days";
const LEGAL_HOLD_KEY: &str = "s3:object-lock-legal-hold";

/// The lock that the headers ask for.
///
/// # Errors
/// `InvalidArgument`: one of mode and date alone, a date that is none or not after `now`, another mode, another state of the hold,
/// in this order; 501 for a lock of another kind, such as an event hold.
pub(crate) fn lock_from_headers(headers: &HeaderMap, now: Timestamp) -> Result<ObjectLock, S3Error> {
    check_known(headers)?;
    let mode = listing_document::header(headers, MODE);
    let until = listing_document::header(headers, RETAIN_UNTIL);
    let retention = match (mode, until) {
        (None, None) => None,
        (Some(mode), Some(until)) => Some(retention(mode, until, now)?),
        (mode, _) => {
            let missing = if mode.is_none() { MODE } else { RETAIN_UNTIL };
            return Err(S3Error::argument(missing, "", BOTH));
        }
    };
    let legal_hold = listing_document::header(headers, LEGAL_HOLD).map(|state| {
        let bad = || S3Error::argument(LEGAL_HOLD, state, "Legal Hold must be either of 'ON' or 'OFF'");
        hold_from_name(state).ok_or_else(bad)
    });
    Ok(ObjectLock { retention, legal_hold: legal_hold.transpose()? })
}

/// Refuses a request that asks for a lock where none can be asked for: the request that begins an upload has it.
///
/// # Errors
/// `InvalidRequest`; 501 for a lock of another kind.
pub(crate) fn check_no_lock(headers: &HeaderMap) -> Result<(), S3Error> {
    check_known(headers)?;
    match listing_document::first_header(headers, |name| name.starts_with(PREFIX)) {
        Some(name) => Err(S3Error::invalid(format!("{name} belongs to the request that creates the upload"))),
        None => Ok(()),
    }
}

/// Refuses a put with a lock and without a digest of its body.
///
/// # Errors
/// `InvalidRequest`.
pub(crate) fn check_digest(headers: &HeaderMap, lock: &ObjectLock) -> Result<(), S3Error> {
    if lock.is_empty() || upload_body::has_digest(headers)? {
        return Ok(());
    }
    let message =
        "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters";
    Err(S3Error::invalid(message))
}

/// Whether the request asks to bypass governance retentions.
///
/// # Errors
/// `InvalidArgument` for a value that is neither `true` nor `false`.
pub(crate) fn bypass(headers: &HeaderMap) -> Result<GovernanceBypass, S3Error> {
    match headers.get(BYPASS).map(|value| value.to_str().unwrap_or_default().trim()) {
        None => Ok(GovernanceBypass::Absent),
        Some(value) if value.eq_ignore_ascii_case("true") => Ok(GovernanceBypass::Requested),
        Some(value) if value.eq_ignore_ascii_case("false") => Ok(GovernanceBypass::Absent),
        Some(value) => Err(S3Error::argument(BYPASS, value, "The value must be true or false.")),
    }
}

/// The condition keys of a lock that the headers ask for. What the operation will refuse stands as it is.
pub(crate) fn header_conditions(headers: &HeaderMap, now: Timestamp) -> Vec<ConditionValue> {
    let line = |name: &str| {
        let value = headers.get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).trim().to_owned())
    };
    let (mode, until, hold) = (line(MODE), line(RETAIN_UNTIL), line(LEGAL_HOLD));
    let date = until.as_deref().and_then(dates::parse_iso);
    let mut values = until_conditions(date, now);
    if date.is_none() {
        values.extend(until.map(|until| (RETAIN_UNTIL_KEY, until)));
    }
    values.extend(mode.map(|mode| (MODE_KEY, mode)));
    values.extend(hold.map(|hold| (LEGAL_HOLD_KEY, hold)));
    values
}

/// The condition keys of a retention that a document asks for.
pub(crate) fn retention_conditions(retention: Option<Retention>, now: Timestamp) -> Vec<ConditionValue> {
    let mut values = until_conditions(retention.map(|retention| retention.until), now);
    values.extend(retention.map(|retention| (MODE_KEY, retention.mode.name().to_owned())));
    values
}

/// The condition key of a legal hold that a document asks for.
pub(crate) fn hold_condition(is_on: bool) -> ConditionValue {
    (LEGAL_HOLD_KEY, hold_name(is_on).to_owned())
}

/// Replaces the condition keys of a lock: those of a document or a form count, and headers beside it mean nothing.
pub(crate) fn replace_conditions(context: &mut AccessContext, values: Vec<ConditionValue>) {
    context.keys.retain(|(name, _)| !name.starts_with(KEYS));
    context.keys.extend(values);
}

/// Writes the parts of a lock that the caller may see.
pub(crate) fn write_lock(response: &mut S3Response, lock: &ObjectLock) {
    if let Some(Retention { mode, until }) = lock.retention {
        response::set(response, HeaderName::from_static(MODE), mode.name());
        response::set(response, HeaderName::from_static(RETAIN_UNTIL), dates::iso(until));
    }
    if let Some(is_on) = lock.legal_hold {
        response::set(response, HeaderName::from_static(LEGAL_HOLD), hold_name(is_on));
    }
}

/// The name of a state of the legal hold.
pub(crate) fn hold_name(is_on: bool) -> &'static str {
    if is_on { ON } else { OFF }
}

/// The state of the legal hold of this name, whose case counts.
pub(crate) fn hold_from_name(name: &str) -> Option<bool> {
    match name {
        ON => Some(true),
        OFF => Some(false),
        _ => None,
    }
}

fn retention(mode: &str, until: &str, now: Timestamp) -> Result<Retention, S3Error> {
    let bad_date =
        || S3Error::argument(RETAIN_UNTIL, until, "The retain until date must be provided in ISO 8601 format");
    let date = dates::parse_iso(until).ok_or_else(bad_date)?;
    if date <= now {
        return Err(S3Error::argument(RETAIN_UNTIL, until, PAST));
    }
    let bad_mode = || S3Error::argument(MODE, mode, "Unknown wormMode directive.");
    Ok(Retention::new(RetentionMode::from_exact_name(mode).ok_or_else(bad_mode)?, date))
}

fn until_conditions(until: Option<Timestamp>, now: Timestamp) -> Vec<ConditionValue> {
    let Some(until) = until else { return Vec::new() };
    let days = until.since(now) / MICROS_PER_DAY;
    vec![(RETAIN_UNTIL_KEY, dates::iso(until)), (REMAINING_DAYS_KEY, days.to_string())]
}

fn check_known(headers: &HeaderMap) -> Result<(), S3Error> {
    let is_other = |name: &str| name.starts_with(PREFIX) && ![MODE, RETAIN_UNTIL, LEGAL_HOLD].contains(&name);
    match listing_document::first_header(headers, is_other) {
        // An event hold that is ignored is an object that is not protected.
        Some(name) => Err(S3Error::header_not_offered(name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    /// 1 January 2030.
    const NOW: Timestamp = Timestamp(1_893_456_000_000_000);
    const LATER: &str = "2030-01-03T02:00:00.5+02:00";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let header = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(header).collect()
    }

    fn lock(pairs: &[(&'static str, &str)]) -> Result<ObjectLock, S3Error> {
        lock_from_headers(&headers(pairs), NOW)
    }

    #[test]
    fn a_lock_is_read_from_headers() {
        assert_eq!(lock(&[]).unwrap(), ObjectLock::default());
        let until = NOW + 2 * MICROS_PER_DAY + 500_000;
        let retention = Some(Retention { mode: RetentionMode::Compliance, until });
        assert_eq!(
            lock(&[(MODE, "COMPLIANCE"), (RETAIN_UNTIL, LATER), (LEGAL_HOLD, "OFF")]).unwrap(),
            ObjectLock { retention, legal_hold: Some(false) }
        );
        assert_eq!(lock(&[(LEGAL_HOLD, "ON")]).unwrap(), ObjectLock { retention: None, legal_hold: Some(true) });
    }

    #[test]
    fn faults_are_named_in_order() {
        let past = "2029-12-31T23:59:59Z";
        for (pairs, argument, message) in [
            (vec![(MODE, "x"), (LEGAL_HOLD, "x")], RETAIN_UNTIL, BOTH),
            (vec![(RETAIN_UNTIL, "x"), (LEGAL_HOLD, "x")], MODE, BOTH),
            (
                vec![(MODE, "x"), (RETAIN_UNTIL, "tomorrow")],
                RETAIN_UNTIL,
                "The retain until date must be provided in ISO 8601 format",
            ),
            (vec![(MODE, "x"), (RETAIN_UNTIL, past)], RETAIN_UNTIL, PAST),
            (vec![(MODE, "governance"), (RETAIN_UNTIL, LATER), (LEGAL_HOLD, "x")], MODE, "Unknown wormMode directive."),
            (vec![(LEGAL_HOLD, "on")], LEGAL_HOLD, "Legal Hold must be either of 'ON' or 'OFF'"),
        ] {
            let error = lock(&pairs).unwrap_err();
            assert_eq!((error.code.name(), &*error.message), ("InvalidArgument", message), "{pairs:?}");
            assert_eq!(error.extras[0], ("ArgumentName", argument.to_owned()), "{pairs:?}");
        }
    }

    #[test]
    fn an_event_hold_is_refused_by_name() {
        for name in ["x-amz-object-lock-event-hold", "x-amz-object-lock-event-hold-duration-days"] {
            for refused in [lock(&[(name, "ON")]).map(|_| ()), check_no_lock(&headers(&[(name, "ON")]))] {
                let error = refused.unwrap_err();
                assert_eq!((error.code.name(), error.extras), ("NotImplemented", vec![("Header", name.to_owned())]));
            }
        }
        assert_eq!(check_no_lock(&headers(&[(LEGAL_HOLD, "ON")])).unwrap_err().code.name(), "InvalidRequest");
        assert!(check_no_lock(&HeaderMap::new()).is_ok());
    }

    #[test]
    fn a_lock_needs_a_digest() {
        let held = ObjectLock { legal_hold: Some(true), ..ObjectLock::default() };
        assert_eq!(check_digest(&HeaderMap::new(), &held).unwrap_err().code.name(), "InvalidRequest");
        assert!(check_digest(&HeaderMap::new(), &ObjectLock::default()).is_ok());
        assert!(check_digest(&headers(&[("content-md5", "x")]), &held).is_ok());
        let hashed = headers(&[("x-amz-content-sha256", "00")]);
        assert!(check_digest(&hashed, &held).is_err(), "the signature's hash does not count");
    }

    #[test]
    fn policies_see_a_lock_in_one_spelling() {
        let seen = |pairs: &[(&'static str, &str)]| header_conditions(&headers(pairs), NOW);
        let until = (RETAIN_UNTIL_KEY, "2030-01-03T00:00:00.500Z".to_owned());
        let days = (REMAINING_DAYS_KEY, "2".to_owned());
        let mode = (MODE_KEY, "GOVERNANCE".to_owned());
        assert_eq!(seen(&[(RETAIN_UNTIL, LATER), (MODE, "GOVERNANCE")]), [until.clone(), days.clone(), mode.clone()]);
        let retention = Retention { mode: RetentionMode::Governance, until: NOW + 2 * MICROS_PER_DAY + 500_000 };
        assert_eq!(retention_conditions(Some(retention), NOW), [until, days, mode]);
        assert_eq!(retention_conditions(None, NOW), []);
        assert_eq!(
            seen(&[(RETAIN_UNTIL, "x"), (LEGAL_HOLD, "ON")]),
            [(RETAIN_UNTIL_KEY, "x".into()), hold_condition(true)]
        );
        assert_eq!(seen(&[]), []);
    }

    #[test]
    fn a_header_beside_a_document_once_met_a_condition() {
        let spoofed = header_conditions(&headers(&[(MODE, "GOVERNANCE"), (LEGAL_HOLD, "OFF")]), NOW);
        let mut context = AccessContext { keys: spoofed, ..AccessContext::default() };
        context.keys.push(("aws:UserAgent", "u".into()));
        replace_conditions(&mut context, vec![hold_condition(true)]);
        assert_eq!(context.keys, [("aws:UserAgent", "u".into()), hold_condition(true)]);
    }

    #[test]
    fn a_bypass_is_asked_for_or_not() {
        let of = |value: &str| bypass(&headers(&[(BYPASS, value)])).ok();
        assert_eq!(of("true"), Some(GovernanceBypass::Requested));
        assert_eq!(of("False"), Some(GovernanceBypass::Absent));
        assert_eq!((of("yes"), of("")), (None, None));
        assert_eq!(bypass(&HeaderMap::new()).unwrap(), GovernanceBypass::Absent);
    }

    proptest! {
        #[test]
        fn any_headers_are_read_or_refused(value: Vec<u8>) {
            let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
            for name in [MODE, RETAIN_UNTIL, LEGAL_HOLD, BYPASS] {
                let headers: HeaderMap = [(HeaderName::from_static(name), value.clone())].into_iter().collect();
                let _ = (lock_from_headers(&headers, NOW), bypass(&headers), header_conditions(&headers, NOW));
            }
        }
    }
}
