//! The failure of a request: its status, and a sentence for the operator. The match of the gateway's errors has no wildcard: a
//! new one does not compile without an answer.

use hyper::StatusCode;
use larder_core::Error;
use larder_core::security::SecurityError;
use larder_core::types::TypeStateError;

/// A request that was not carried out.
#[derive(Debug)]
pub(crate) struct ConsoleFault {
    /// The status of the answer.
    pub(crate) status: StatusCode,
    /// The reasons, one sentence each.
    pub(crate) reasons: Vec<String>,
    /// Whether the fault is the server's, so that the log has a line.
    pub(crate) of_server: bool,
}

impl ConsoleFault {
    /// A refusal with this reason.
    pub(crate) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reasons: vec![reason.into()], of_server: false }
    }

    /// A form or a link that this console does not make.
    pub(crate) fn bad(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason)
    }

    /// A form without the token of its session.
    pub(crate) fn foreign_form() -> Self {
        Self::new(StatusCode::FORBIDDEN, "The form was not made by this session. Load the page again.")
    }

    /// A refusal with a message as its reason, made a sentence.
    pub(crate) fn sentence(message: &str) -> Self {
        Self::bad(sentence(message))
    }

    /// A defect of the server.
    pub(crate) fn panicked() -> Self {
        let reason = "The page ended in a panic, a defect of the server. A change may or may not be made.";
        Self { of_server: true, ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, reason) }
    }

    /// Nothing is there.
    pub(crate) fn not_found(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, reason)
    }
}

impl From<Error> for ConsoleFault {
    fn from(error: Error) -> Self {
        use StatusCode as S;
        let status = match &error {
            Error::UnknownType(_) | Error::Type(TypeStateError::Unknown) => S::NOT_FOUND,
            Error::BadAddress(_)
            | Error::QuorumAboveN { .. }
            | Error::Context(_)
            | Error::MetadataTooLarge { .. }
            | Error::IndexTooLarge { .. }
            | Error::BrokenBody(_)
            | Error::Datatype(_)
            | Error::NotDatatype
            | Error::DatatypePut
            | Error::DatatypeNeedsSiblings
            | Error::Refused(_) => S::BAD_REQUEST,
            Error::Precommit(_) => S::FORBIDDEN,
            Error::TooLarge { .. } => S::PAYLOAD_TOO_LARGE,
            Error::Condition(_)
            | Error::Superseded
            | Error::TooManySiblings { .. }
            | Error::Changed
            | Error::Type(TypeStateError::NotReady) => S::CONFLICT,
            Error::NotBuilt(_) => S::NOT_IMPLEMENTED,
            Error::Unsatisfied { .. }
            | Error::NodeConfirms { .. }
            | Error::TimedOut
            | Error::Overloaded { .. }
            | Error::NotReady(_) => S::SERVICE_UNAVAILABLE,
            Error::DiskFull => S::INSUFFICIENT_STORAGE,
            Error::Damaged(_) | Error::Internal(_) => S::INTERNAL_SERVER_ERROR,
        };
        let reasons = match &error {
            Error::Refused(refused) => refused.console(),
            Error::Changed | Error::Superseded => {
                vec!["The object changed since this page was loaded. Load it again, and decide again.".to_owned()]
            }
            Error::TimedOut => vec!["The request timed out: the change may or may not be made. Look again.".to_owned()],
            _ => vec![sentence(&error.to_string())],
        };
        Self { status, reasons, of_server: status == S::INTERNAL_SERVER_ERROR }
    }
}

impl From<larder_s3::Error> for ConsoleFault {
    fn from(error: larder_s3::Error) -> Self {
        use larder_s3::Error as E;
        let status = match &error {
            E::Gateway(error) => return error.clone().into(),
            E::NotMovedYet => StatusCode::SERVICE_UNAVAILABLE,
            E::AccessDenied | E::Locked | E::UserDisabled | E::QuotaExceeded(_) => StatusCode::FORBIDDEN,
            E::NoSuchBucket(_)
            | E::NoSuchKey
            | E::NoSuchVersion(_)
            | E::NoSuchUpload
            | E::NoConfiguration(_)
            | E::UnknownEmail(_)
            | E::UnknownKey(_) => StatusCode::NOT_FOUND,
            E::OperationAborted
            | E::ConditionalConflict
            | E::BucketExists { .. }
            | E::BucketNotEmpty
            | E::InvalidBucketState(_)
            | E::TooManyBuckets { .. }
            | E::UserExists
            | E::UserHasBuckets
            | E::DeleteMarker { .. }
            | E::PreconditionFailed(_)
            | E::OtherInitiationTime
            | E::NotModified { .. } => StatusCode::CONFLICT,
            E::InvalidBucketName(_)
            | E::BadVersionId(_)
            | E::KeyTooLong(_)
            | E::InvalidRange { .. }
            | E::InvalidPartNumber
            | E::BadDigest
            | E::BadChecksum(_)
            | E::EntityTooLarge { .. }
            | E::EntityTooSmall { .. }
            | E::BrokenBody(_)
            | E::InvalidPart { .. }
            | E::InvalidPartOrder
            | E::InvalidRequest(_)
            | E::InvalidArgument { .. }
            | E::MalformedPolicy(_)
            | E::AclsNotSupported
            | E::AclUnderEnforcedOwnership
            | E::InvalidTag(_)
            | E::Encryption(_)
            | E::InvalidToken
            | E::InvalidUser(_) => StatusCode::BAD_REQUEST,
        };
        Self::new(status, sentence(&error.to_string()))
    }
}

impl From<SecurityError> for ConsoleFault {
    fn from(error: SecurityError) -> Self {
        match error {
            SecurityError::Refused(refusal) => Self::sentence(&refusal.to_string()),
            SecurityError::Gateway(error) => error.into(),
        }
    }
}

/// A text with a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let capital = chars.next().map(char::to_uppercase).into_iter().flatten();
    let whole: String = capital.chain(chars).collect();
    if whole.ends_with(['.', '!', '?']) { whole } else { format!("{whole}.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_sentences_with_a_status() {
        let fault = ConsoleFault::from(larder_s3::Error::from(Error::DiskFull));
        assert_eq!((fault.status.as_u16(), &*fault.reasons[0]), (507, "The disk is full."));
        let fault = ConsoleFault::from(larder_s3::Error::NoSuchUpload);
        assert_eq!((fault.status.as_u16(), &*fault.reasons[0]), (404, "No such upload."));
        assert!(ConsoleFault::from(Error::Internal("x".into())).of_server);
        assert_eq!(ConsoleFault::from(Error::Superseded).status, StatusCode::CONFLICT);
    }
}
