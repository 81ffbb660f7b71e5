//! The headers that a write must not drop: a write that ignored one would do something else than its client asked for.

use hyper::header::{
    CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderName, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE,
};
use larder_core::Error;
use larder_kv::rules::causality::FailedCondition;

use super::errors::RiakFault;
use super::headers::{IF_NOT_MODIFIED, REQUEST_ID, conditions, since};
use super::reply::VCLOCK;

/// How a write takes a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeaderRule {
    /// In one line.
    Once,
    /// In one line, which is a date.
    Date,
    /// Not at all.
    Never,
}

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// The headers of every write that have a rule.
static RULES: [(HeaderName, HeaderRule); 9] = [
    (CONTENT_TYPE, HeaderRule::Once),
    (CONTENT_ENCODING, HeaderRule::Once),
    (CONTENT_MD5, HeaderRule::Once),
    (VCLOCK, HeaderRule::Once),
    (IF_NOT_MODIFIED, HeaderRule::Once),
    (REQUEST_ID, HeaderRule::Once),
    (IF_MODIFIED_SINCE, HeaderRule::Date),
    (IF_UNMODIFIED_SINCE, HeaderRule::Date),
    // A part would replace the whole value (RFC 9110 §14.5).
    (CONTENT_RANGE, HeaderRule::Never),
];

/// Checks the headers of any write.
///
/// # Errors
/// 400 with the name of the first header that the write cannot obey.
pub(super) fn check_write(headers: &HeaderMap) -> Result<(), RiakFault> {
    for (name, rule) in &RULES {
        let mut lines = headers.get_all(name).iter();
        let Some(first) = lines.next() else { continue };
        if *rule == HeaderRule::Never {
            return Err(takes_no("A write", name));
        }
        if lines.next().is_some() {
            return Err(RiakFault::bad(format!("Only one value may be set for the header {name}\n")));
        }
        if *rule == HeaderRule::Date && since(first).is_none() {
            return Err(RiakFault::bad(format!("The header {name} is not an HTTP date\n")));
        }
    }
    Ok(())
}

/// Checks the headers of a write of an object.
///
/// # Errors
/// As [`check_write`]; 400 for an id, which only an update of a data type has.
pub(super) fn check_object_write(headers: &HeaderMap) -> Result<(), RiakFault> {
    check_write(headers)?;
    refuse("An object", headers, &[REQUEST_ID])
}

/// Checks the headers of a write of properties.
///
/// # Errors
/// As [`check_write`] and [`refuse_conditions`]; 400 for a header of objects or data types.
pub(super) fn check_props_write(headers: &HeaderMap) -> Result<(), RiakFault> {
    check_write(headers)?;
    refuse_conditions(headers)?;
    refuse("A write of properties", headers, &[IF_NOT_MODIFIED, REQUEST_ID])
}

/// Refuses a write with conditions of a resource that exists and has no entity tag and no time: it meets none.
///
/// # Errors
/// [`FailedCondition::Precondition`].
pub(super) fn refuse_conditions(headers: &HeaderMap) -> Result<(), RiakFault> {
    match conditions(headers).is_empty() {
        true => Ok(()),
        false => Err(Error::Condition(FailedCondition::Precondition).into()),
    }
}

fn refuse(what: &str, headers: &HeaderMap, names: &[HeaderName]) -> Result<(), RiakFault> {
    match names.iter().find(|name| headers.contains_key(*name)) {
        Some(name) => Err(takes_no(what, name)),
        None => Ok(()),
    }
}

/// 400 with the name of a header that this kind of request does not have.
#[must_use]
pub(super) fn takes_no(what: &str, name: &HeaderName) -> RiakFault {
    RiakFault::bad(format!("{what} takes no header {name}\n"))
}
