//! Texts of several commands: the reasons of errors, and names.

use larder_core::Error;
use larder_rows::text::escaped;

/// The gateway's reasons for an error, one per line.
pub(super) fn reasons(error: &Error) -> String {
    match error {
        Error::Refused(refused) => refused.console().join("\n"),
        Error::TimedOut => "timeout: it may or may not have been done; ask for the status".to_owned(),
        Error::Overloaded { retry_after } => format!("overload: try again in {retry_after} s"),
        Error::UnknownType(_)
        | Error::BadAddress(_)
        | Error::QuorumAboveN { .. }
        | Error::Unsatisfied { .. }
        | Error::NodeConfirms { .. }
        | Error::Condition(_)
        | Error::Superseded
        | Error::Changed
        | Error::Context(_)
        | Error::TooLarge { .. }
        | Error::MetadataTooLarge { .. }
        | Error::IndexTooLarge { .. }
        | Error::TooManySiblings { .. }
        | Error::BrokenBody(_)
        | Error::Datatype(_)
        | Error::NotDatatype
        | Error::DatatypePut
        | Error::DatatypeNeedsSiblings
        | Error::Precommit(_)
        | Error::NotBuilt(_)
        | Error::Type(_)
        | Error::NotReady(_)
        | Error::DiskFull
        | Error::Damaged(_)
        | Error::Internal(_) => error.to_string(),
    }
}

/// A name for the console. Text of any script stays readable; control characters and bytes that are no text become `\x{..}`,
/// so that a line stays a line.
pub(super) fn shown(name: &[u8]) -> String {
    escaped(name, |c| !c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_print_as_text_on_one_line() {
        for (name, text) in [
            (&b"plain"[..], "plain"),
            ("пример".as_bytes(), "пример"),
            (b"a\nb", "a\\x{A}b"),
            (b"\xffz", "\\x{FF}z"),
            (b"", ""),
        ] {
            assert_eq!(shown(name), text);
        }
    }
}
