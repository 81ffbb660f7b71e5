//! A job that is not started, and the reason: Riak's texts.

use larder_core::rules::erlang::{binary, string};
use serde_json::Value;

/// Longest document that an error text repeats, in bytes.
const SHOWN_BYTES_MAX: usize = 8 * 1024;

/// Why a document is no job that can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobRefusal {
    /// The document is not JSON, for this reason.
    NotJson(String),
    /// The document is no Erlang term of a job; Riak's reason.
    NotTerm(&'static str),
    /// The document is JSON, but no object.
    NotObject,
    /// `inputs` or `query` is missing.
    MissingField,
    /// The member `inputs` is not valid, for this reason.
    Inputs(String),
    /// The member `query` is not valid, for this reason.
    Query(String),
    /// The member `timeout` is not valid, for this reason.
    Timeout(String),
    /// A phase names a function that does not exist.
    Phase(PhaseRefusal),
    /// A key filter does not exist, or has other arguments.
    BadFilter(BadKeyFilter),
    /// The inputs are of a search, which does not exist.
    Search,
}

/// A phase whose function does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseRefusal {
    /// The number of the phase, from 0.
    pub phase: usize,
    /// The reason.
    pub error: String,
}

/// A key filter that is not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadKeyFilter {
    /// The name of the filter.
    pub name: String,
    /// The reason, where the name is known.
    pub reason: Option<String>,
}

impl JobRefusal {
    /// The text of an answer over HTTP to a document that was not understood.
    #[must_use]
    pub fn http_text(&self) -> String {
        match self {
            Self::NotJson(reason) => {
                format!("The POST body was not valid JSON.\nThe error from the parser was:\n{reason}\n")
            }
            Self::NotTerm(reason) => format!("{reason}\n"),
            Self::NotObject => "The POST body was not a JSON object.\n".into(),
            Self::MissingField => "The post body was missing the \"inputs\" or \"query\" field.\n".into(),
            Self::Inputs(reason) => format!("An error occurred parsing the \"inputs\" field.\n{reason}"),
            Self::Query(reason) => format!("An error occurred parsing the \"query\" field.\n{reason}"),
            Self::Timeout(reason) => format!("An error occurred parsing the \"timeout\" field.\n{reason}"),
            Self::Phase(PhaseRefusal { error, .. }) => error.clone(),
            Self::BadFilter(bad) => bad.json().to_string(),
            Self::Search => "Not available yet: search\n".into(),
        }
    }

    /// The error text of protocol buffers.
    #[must_use]
    pub fn pb_text(&self) -> String {
        let pair = |tag: &str, reason: &str| format!("{{{tag},{}}}", string(reason));
        match self {
            Self::NotJson(reason) => pair("invalid_json", reason),
            Self::NotTerm(reason) => (*reason).into(),
            Self::NotObject => "not_json".into(),
            Self::MissingField => "missing_field".into(),
            Self::Inputs(reason) => pair("inputs", reason),
            Self::Query(reason) => pair("query", reason),
            Self::Timeout(reason) => pair("timeout", reason),
            Self::Phase(PhaseRefusal { phase, error }) => format!("Phase {phase}: {error}"),
            Self::BadFilter(bad) => {
                format!("Error sending inputs: {{bad_filter,{}}}", binary(&bad.name))
            }
            Self::Search => "Not available yet: search".into(),
        }
    }
}

/// A part of a document in an error text: its JSON, or its length if that is long.
pub(super) fn shown(part: &Value) -> String {
    match part.to_string() {
        long if long.len() > SHOWN_BYTES_MAX => format!("({} bytes)", long.len()),
        json => json,
    }
}

impl PhaseRefusal {
    /// The answer over HTTP.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({ "phase": self.phase, "error": self.error })
    }
}

impl BadKeyFilter {
    /// The answer over HTTP.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        let mut json = serde_json::json!({ "bad_filter": self.name });
        if let Some(reason) = &self.reason {
            json["reason"] = reason.as_str().into();
        }
        json
    }
}
