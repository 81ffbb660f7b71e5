//! Refusals of precommit hooks.

use crate::rules::erlang;

/// Why a precommit hook refused a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrecommitRefusal {
    /// The hook said `fail`, or could not be run.
    Fail,
    /// The hook gave this reason.
    Reason(String),
    /// The hook returned something else; an Erlang term.
    Term(String),
}

impl PrecommitRefusal {
    /// Riak's error term, as its protocol buffers show it.
    #[must_use]
    pub fn erlang(&self) -> String {
        match self {
            Self::Fail => "precommit_fail".into(),
            Self::Reason(reason) => format!("{{precommit_fail,{}}}", erlang::binary(reason)),
            Self::Term(term) => format!("{{precommit_fail,{term}}}"),
        }
    }
}
