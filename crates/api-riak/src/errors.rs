//! The HTTP answer to every error of the gateway. The match has no wildcard: a new error does not compile without an answer.
//! The texts are Riak's; errors that Riak does not have get plain sentences. (Riak KV HTTP reference §1.2, §1.3, §3.)
//!
//! Protocol buffers get a function beside [`http`] when that protocol is built.

use std::fmt::Write as _;

use hyper::StatusCode;

use larder_gateway::types::TypeStateError;
use larder_gateway::{Error, QuorumParam};
use larder_model::causality::FailedCondition;

/// The form of an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyForm {
    /// text/plain.
    Text,
    /// application/json.
    Json,
    /// The status's default page.
    Page,
    /// No body.
    Empty,
}

/// An error over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    /// The status.
    pub status: StatusCode,
    /// The form of the body.
    pub form: BodyForm,
    /// The body.
    pub body: String,
    /// Seconds until the client should retry.
    pub retry_after: Option<u32>,
}

impl HttpAnswer {
    fn text(status: StatusCode, body: impl Into<String>) -> Self {
        Self { status, form: BodyForm::Text, body: body.into(), retry_after: None }
    }

    fn json(status: StatusCode, body: &serde_json::Value) -> Self {
        Self { status, form: BodyForm::Json, body: body.to_string(), retry_after: None }
    }

    fn bare(status: StatusCode, form: BodyForm) -> Self {
        Self { status, form, body: String::new(), retry_after: None }
    }

    fn after(self, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }
}

/// The HTTP answer to `error`.
#[must_use]
pub fn http(error: &Error) -> HttpAnswer {
    use StatusCode as S;
    match error {
        Error::UnknownType(name) => HttpAnswer::text(S::NOT_FOUND, unknown_type(name)),
        Error::BadAddress(error) => HttpAnswer::text(S::BAD_REQUEST, format!("{error}\n")),
        Error::QuorumAboveN { n_val } => HttpAnswer::text(
            S::BAD_REQUEST,
            format!("Specified w/dw/pw/node_confirms values invalid for bucket n value of {n_val}\n"),
        ),
        Error::Unsatisfied { which, got, wanted } => {
            HttpAnswer::text(S::SERVICE_UNAVAILABLE, unsatisfied(*which, *got, *wanted))
        }
        Error::NodeConfirms { got, wanted, reading: true } => {
            HttpAnswer::text(S::SERVICE_UNAVAILABLE, format!("Error:\n{{insufficient_nodes,{got},need,{wanted}}}\n"))
        }
        Error::NodeConfirms { got, wanted, reading: false } => {
            HttpAnswer::text(S::SERVICE_UNAVAILABLE, format!("node_confirms-value unsatisfied: {got}/{wanted}\n"))
        }
        Error::Condition(FailedCondition::Precondition) => HttpAnswer::bare(S::PRECONDITION_FAILED, BodyForm::Page),
        Error::Condition(FailedCondition::NotModified) => HttpAnswer::bare(S::NOT_MODIFIED, BodyForm::Empty),
        Error::Condition(FailedCondition::Modified) => HttpAnswer::bare(S::CONFLICT, BodyForm::Page),
        Error::Superseded => HttpAnswer::bare(S::PRECONDITION_FAILED, BodyForm::Empty),
        Error::Context(error) => HttpAnswer::text(S::BAD_REQUEST, format!("{error}\n")),
        Error::TooLarge { bytes, max: _ } => {
            HttpAnswer::text(S::PAYLOAD_TOO_LARGE, format!("Error:\n{{too_large,{bytes}}}\n"))
        }
        Error::MetadataTooLarge { bytes: _, max: _ } => {
            HttpAnswer::text(S::REQUEST_HEADER_FIELDS_TOO_LARGE, sentence(error))
        }
        Error::TooManySiblings { count } => {
            HttpAnswer::text(S::CONFLICT, format!("Error:\n{{too_many_siblings,{count}}}\n"))
        }
        Error::BrokenBody(reason) => HttpAnswer::text(S::BAD_REQUEST, format!("{reason}\n")),
        Error::NotBuilt(feature) => {
            HttpAnswer::text(S::NOT_IMPLEMENTED, format!("Not available yet: {}\n", feature.name()))
        }
        Error::Refused(refused) => HttpAnswer::json(S::BAD_REQUEST, &refused.http_json()),
        Error::Type(refusal) => HttpAnswer::json(S::BAD_REQUEST, &refused(*refusal)),
        Error::TimedOut => HttpAnswer::text(S::SERVICE_UNAVAILABLE, "request timed out\n"),
        Error::Changed => HttpAnswer::text(S::SERVICE_UNAVAILABLE, "Error:\noverload\n").after(1),
        Error::Overloaded { retry_after } => {
            HttpAnswer::text(S::SERVICE_UNAVAILABLE, "Error:\noverload\n").after(*retry_after)
        }
        Error::NotReady(_) => HttpAnswer::text(S::SERVICE_UNAVAILABLE, sentence(error)).after(1),
        Error::DiskFull => HttpAnswer::text(S::INSUFFICIENT_STORAGE, sentence(error)),
        Error::Damaged(_) | Error::Internal(_) => {
            HttpAnswer::text(S::INTERNAL_SERVER_ERROR, format!("Error:\n{}", sentence(error)))
        }
    }
}

/// Riak's text for a type that does not exist or is not active.
#[must_use]
pub fn unknown_type(name: &[u8]) -> String {
    format!("Unknown bucket type: {}", String::from_utf8_lossy(name))
}

fn unsatisfied(which: QuorumParam, got: u32, wanted: u32) -> String {
    let name = match which {
        QuorumParam::R => "R",
        QuorumParam::Pr => "PR",
        QuorumParam::W => return "Too Many write failures to satisfy W/DW\n".into(),
        QuorumParam::Dw => "DW",
        QuorumParam::Pw => "PW",
    };
    format!("{name}-value unsatisfied: {got}/{wanted}\n")
}

fn refused(refusal: TypeStateError) -> serde_json::Value {
    let text = match refusal {
        TypeStateError::Unknown => "no_type",
        TypeStateError::NotReady => "not_ready",
    };
    serde_json::Value::from(text)
}

fn sentence(error: &Error) -> String {
    let mut text = error.to_string();
    // Writing to a string does not fail.
    let _ = text.write_char('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_gateway::Feature;
    use larder_model::causality::ContextError;
    use larder_model::props::reason::InvalidReason;
    use larder_model::props::{InvalidProp, TypeRefusal};

    #[track_caller]
    fn check(error: Error, status: u16, body: &str) {
        let answer = http(&error);
        assert_eq!((answer.status.as_u16(), answer.body.as_str()), (status, body));
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
        check(Error::NotBuilt(Feature::Hooks), 501, "Not available yet: commit hooks\n");
        check(Error::Superseded, 412, "");
        check(Error::Context(ContextError::Foreign), 400, "The vclock was not issued by this server or is damaged\n");
    }

    #[test]
    fn each_invalid_property_is_named() {
        let one = |prop: &str, reason| InvalidProp { prop: prop.into(), reason };
        let invalid = vec![one("r", InvalidReason::NotValidQuorum), one("n_val", InvalidReason::NotInteger)];
        check(Error::Refused(invalid.into()), 400, r#"{"r":"not_valid_quorum","n_val":"not_integer"}"#);
    }

    #[test]
    fn a_retry_comes_with_its_seconds() {
        assert_eq!(http(&Error::Overloaded { retry_after: 7 }).retry_after, Some(7));
        assert_eq!(http(&Error::NotReady("old".into())).retry_after, Some(1));
    }
}
