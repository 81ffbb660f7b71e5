//! The failure of a request, and the answer to every error of the gateway. The match has no wildcard: a new error does not
//! compile without an answer. The texts are Riak's; errors that Riak does not have get plain sentences. (Riak KV HTTP
//! reference §1.2, §1.3, §3.)

use bytes::Bytes;
use hyper::header::{HeaderValue, RETRY_AFTER, VARY};
use hyper::{Method, StatusCode};
use larder_core::types::TypeStateError;
use larder_core::{Error, Feature, PrecommitRefusal, QuorumParam};
use larder_kv::rules::causality::FailedCondition;
use larder_kv::rules::datatypes::DatatypeError;

use super::reply::{RiakResponse, VARY_ENCODING, empty, json, page, text};

/// A request's failure: an error of the gateway, or a finished refusal.
#[derive(Debug)]
pub(super) enum RiakFault {
    /// An error of the gateway.
    Gateway(Error),
    /// A refusal of this crate.
    Response(Box<RiakResponse>),
}

impl From<Error> for RiakFault {
    fn from(error: Error) -> Self {
        Self::Gateway(error)
    }
}

impl From<RiakResponse> for RiakFault {
    fn from(reply: RiakResponse) -> Self {
        Self::Response(Box::new(reply))
    }
}

impl RiakFault {
    /// The failure of a write by this method.
    pub(super) fn from_write(error: Error, method: &Method) -> Self {
        match &error {
            Error::Precommit(refusal) => Self::status_text(StatusCode::FORBIDDEN, precommit(refusal, method.as_str())),
            _ => Self::Gateway(error),
        }
    }

    /// 400 with a text.
    pub(super) fn bad(text: impl Into<Bytes>) -> Self {
        Self::status_text(StatusCode::BAD_REQUEST, text)
    }

    /// This status with a text.
    pub(super) fn status_text(status: StatusCode, body: impl Into<Bytes>) -> Self {
        text(status, body).into()
    }

    /// This status with its default page.
    #[must_use]
    pub(super) fn page(status: StatusCode) -> Self {
        page(status).into()
    }

    /// Adds `Vary` to a failure after the request's checks: Riak has chosen a media type by then. Failures of the checks
    /// themselves, and failures of the server, which must be logged, stay unchanged.
    #[must_use]
    pub(super) fn after_checks(self) -> Self {
        if let Self::Gateway(error) = &self {
            use Error::{BadAddress, BrokenBody, Context, Damaged, Internal, UnknownType};
            if matches!(error, BadAddress(_) | BrokenBody(_) | Context(_) | Damaged(_) | Internal(_) | UnknownType(_)) {
                return self;
            }
        }
        let mut reply = self.into_reply();
        reply.headers_mut().insert(VARY, VARY_ENCODING);
        reply.into()
    }

    /// The answer.
    #[must_use]
    pub(super) fn into_reply(self) -> RiakResponse {
        match self {
            Self::Gateway(error) => error_response(&error),
            Self::Response(reply) => *reply,
        }
    }
}

/// The answer to an error of the gateway.
#[must_use]
pub(super) fn error_response(error: &Error) -> RiakResponse {
    use StatusCode as S;
    match error {
        Error::UnknownType(name) => text(S::NOT_FOUND, unknown_type(name)),
        Error::BadAddress(error) => text(S::BAD_REQUEST, format!("{error}\n")),
        Error::QuorumAboveN { n_val } => text(
            S::BAD_REQUEST,
            format!("Specified w/dw/pw/node_confirms values invalid for bucket n value of {n_val}\n"),
        ),
        Error::Unsatisfied { which, got, wanted } => text(S::SERVICE_UNAVAILABLE, unsatisfied(*which, *got, *wanted)),
        Error::NodeConfirms { got, wanted, reading: true } => {
            text(S::SERVICE_UNAVAILABLE, format!("Error:\n{{insufficient_nodes,{got},need,{wanted}}}\n"))
        }
        Error::NodeConfirms { got, wanted, reading: false } => {
            text(S::SERVICE_UNAVAILABLE, format!("node_confirms-value unsatisfied: {got}/{wanted}\n"))
        }
        Error::Condition(failed) => failed_condition(*failed),
        Error::Superseded => empty(S::PRECONDITION_FAILED),
        Error::Context(error) => text(S::BAD_REQUEST, format!("{error}\n")),
        Error::TooLarge { bytes, max: _ } => text(S::PAYLOAD_TOO_LARGE, format!("Error:\n{{too_large,{bytes}}}\n")),
        Error::MetadataTooLarge { bytes: _, max: _ } => text(S::REQUEST_HEADER_FIELDS_TOO_LARGE, sentence(error)),
        Error::IndexTooLarge { .. } => text(S::BAD_REQUEST, sentence(error)),
        Error::TooManySiblings { count } => text(S::CONFLICT, format!("Error:\n{{too_many_siblings,{count}}}\n")),
        Error::Datatype(DatatypeError::NotPresent(absent)) => {
            text(S::INTERNAL_SERVER_ERROR, format!("Error:\n{absent}\n"))
        }
        Error::Datatype(refused) => text(S::BAD_REQUEST, format!("{refused}\n")),
        Error::NotDatatype | Error::DatatypePut => text(S::FORBIDDEN, sentence(error)),
        Error::DatatypeNeedsSiblings => text(S::FORBIDDEN, "Bucket must be allow_mult=true\n"),
        Error::BrokenBody(reason) => text(S::BAD_REQUEST, format!("{reason}\n")),
        Error::Precommit(refusal) => text(S::FORBIDDEN, precommit(refusal, "PUT")),
        Error::NotBuilt(feature) => text(S::NOT_IMPLEMENTED, format!("Not available yet: {}\n", feature.name())),
        Error::Refused(refused) => json(S::BAD_REQUEST, refused.http_json().to_string()),
        Error::Type(refusal) => json(S::BAD_REQUEST, refused(*refusal).to_string()),
        Error::TimedOut => text(S::SERVICE_UNAVAILABLE, "request timed out\n"),
        Error::Changed => overloaded(1),
        Error::Overloaded { retry_after } => overloaded(*retry_after),
        Error::NotReady(_) => retry_after(1, sentence(error)),
        Error::DiskFull => text(S::INSUFFICIENT_STORAGE, sentence(error)),
        Error::Damaged(_) | Error::Internal(_) => {
            text(S::INTERNAL_SERVER_ERROR, format!("Error:\n{}", sentence(error)))
        }
    }
}

/// The answer to a condition that does not hold. Riak has chosen a media type by then.
fn failed_condition(failed: FailedCondition) -> RiakResponse {
    let mut reply = match failed {
        FailedCondition::Precondition => page(StatusCode::PRECONDITION_FAILED),
        FailedCondition::NotModified => empty(StatusCode::NOT_MODIFIED),
        FailedCondition::Modified | FailedCondition::Missing => page(StatusCode::CONFLICT),
    };
    reply.headers_mut().insert(VARY, VARY_ENCODING);
    reply
}

/// 503 with the seconds until the client should retry.
fn retry_after(seconds: u32, body: impl Into<Bytes>) -> RiakResponse {
    let mut reply = text(StatusCode::SERVICE_UNAVAILABLE, body);
    reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    reply
}

fn overloaded(seconds: u32) -> RiakResponse {
    retry_after(seconds, "Error:\noverload\n")
}

/// Riak's text for a type that does not exist or is not active.
#[must_use]
pub(super) fn unknown_type(name: &[u8]) -> String {
    format!("Unknown bucket type: {}", String::from_utf8_lossy(name))
}

fn unsatisfied(which: QuorumParam, got: u32, required: u32) -> String {
    let name = match which {
        QuorumParam::R => "R",
        QuorumParam::Pr => "PR",
        QuorumParam::W => return "Too Many write failures to satisfy W/DW\n".into(),
        QuorumParam::Dw => "DW",
        QuorumParam::Pw => "PW",
    };
    format!("{name}-value unsatisfied: {got}/{required}\n")
}

fn refused(refusal: TypeStateError) -> serde_json::Value {
    let text = match refusal {
        TypeStateError::Unknown => "no_type",
        TypeStateError::NotReady => "not_ready",
    };
    serde_json::Value::from(text)
}

/// Riak's text for a refusal of a precommit hook; a refusal without a reason names the method.
fn precommit(refusal: &PrecommitRefusal, method: &str) -> String {
    match refusal {
        PrecommitRefusal::Fail => format!("{method} aborted by pre-commit hook."),
        PrecommitRefusal::Reason(text) | PrecommitRefusal::Term(text) => text.clone(),
    }
}

fn sentence(error: &Error) -> String {
    format!("{error}\n")
}

#[cfg(test)]
impl RiakFault {
    /// The answer's body, for tests.
    pub(super) fn text(self) -> String {
        let body = self.into_reply().into_body();
        String::from_utf8(body.into_full().unwrap_or_default().to_vec()).unwrap_or_default()
    }
}

/// 501 with the name of the feature.
///
/// # Errors
/// Always [`Error::NotBuilt`].
pub(super) fn answer(feature: Feature) -> Result<RiakResponse, RiakFault> {
    Err(Error::NotBuilt(feature).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_core::Feature;
    use larder_core::rules::props::reason::InvalidReason;
    use larder_core::rules::props::{InvalidProp, TypeRefusal};
    use larder_kv::rules::causality::ContextError;

    #[track_caller]
    fn check(error: Error, status: u16, body: &str) {
        let answer = error_response(&error);
        assert_eq!(answer.status().as_u16(), status);
        assert_eq!(RiakFault::from(answer).text(), body);
    }

    #[test]
    fn the_texts_are_riaks() {
        check(Error::UnknownType("nosuch".into()), 404, "Unknown bucket type: nosuch");
        check(
            Error::QuorumAboveN { n_val: 3 },
            400,
            "Specified w/dw/pw/node_confirms values invalid for bucket n value of 3\n",
        );
        check(Error::Unsatisfied { which: QuorumParam::Pr, got: 1, wanted: 2 }, 503, "PR-value unsatisfied: 1/2\n");
        check(
            Error::Unsatisfied { which: QuorumParam::W, got: 1, wanted: 2 },
            503,
            "Too Many write failures to satisfy W/DW\n",
        );
        check(Error::NodeConfirms { got: 1, wanted: 2, reading: false }, 503, "node_confirms-value unsatisfied: 1/2\n");
        check(Error::TooLarge { bytes: 105, max: 100 }, 413, "Error:\n{too_large,105}\n");
        check(Error::TooManySiblings { count: 101 }, 409, "Error:\n{too_many_siblings,101}\n");
        check(Error::TimedOut, 503, "request timed out\n");
        check(Error::Refused(TypeRefusal::NoDefaultUpdate.into()), 400, r#""no_default_update""#);
        check(Error::Type(TypeStateError::Unknown), 400, r#""no_type""#);
        check(Error::NotBuilt(Feature::DatatypeHooks), 501, "Not available yet: commit hooks of data types\n");
        check(Error::Precommit(PrecommitRefusal::Fail), 403, "PUT aborted by pre-commit hook.");
        check(Error::Precommit(PrecommitRefusal::Reason("too big".into())), 403, "too big");
        check(Error::Superseded, 412, "");
        check(Error::Context(ContextError::Foreign), 400, "The vclock was not issued by this server or is damaged\n");
    }

    #[test]
    fn each_invalid_property_is_named() {
        let invalid_prop = |prop: &str, reason| InvalidProp { prop: prop.into(), reason };
        let invalid =
            vec![invalid_prop("r", InvalidReason::NotValidQuorum), invalid_prop("n_val", InvalidReason::NotInteger)];
        check(Error::Refused(invalid.into()), 400, r#"{"r":"not_valid_quorum","n_val":"not_integer"}"#);
    }

    #[test]
    fn a_retry_comes_with_its_seconds() {
        let seconds = |error| error_response(&error).headers()[RETRY_AFTER].clone();
        assert_eq!(seconds(Error::Overloaded { retry_after: 7 }), "7");
        assert_eq!(seconds(Error::NotReady("old".into())), "1");
    }
}
