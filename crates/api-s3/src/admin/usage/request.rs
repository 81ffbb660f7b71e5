//! The parameters of a usage report, in the path or in the query.

use larder_rows::Timestamp;

use super::super::DocumentFormat;
use crate::dates::parse_basic;
use crate::target::S3Query;

/// Length of a slice, and most slices of a report.
const HOUR: u64 = 3_600_000_000;
const SLICES_MAX: u64 = 744;

/// A decoded request for a usage report.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UsageRequest {
    /// The access key id of the user.
    pub(super) key_id: String,
    /// Whether accesses are requested.
    pub(super) access: bool,
    /// Whether storage is requested.
    pub(super) storage: bool,
    /// The format of the report.
    pub(super) format: DocumentFormat,
    /// Start of the report.
    pub(super) from: Timestamp,
    /// End of the report.
    pub(super) to: Timestamp,
}

impl UsageRequest {
    /// Parses `/KEY/abj/START/END` or `KEY.abj.START.END`, in which all but the key is optional, and the parameters
    /// `a`, `b`, `j`, `x`, `s`, `e`. `default` is the format when none is named.
    pub(super) fn parse(
        path: &str,
        query: &S3Query,
        default: DocumentFormat,
        now: Timestamp,
    ) -> Result<Self, &'static str> {
        let mut segments = path.split(['/', '.']).filter(|segment| !segment.is_empty());
        let key_id = segments.next().unwrap_or_default().to_owned();
        let options = segments.next().unwrap_or_default();
        let is_set = |option: char| options.contains(option) || query.get(&option.to_string()).is_some_and(is_true);
        let time = |segment: Option<&str>, name: &str| match segment.or(query.non_empty(name)) {
            Some(text) => {
                parse_basic(text).map(Some).ok_or("The start or end time is not of the form yyyymmddThhmmssZ")
            }
            None => Ok(None),
        };
        let from = time(segments.next(), "s")?.unwrap_or(now);
        let to = time(segments.next(), "e")?.unwrap_or(from);
        if to < from {
            return Err("The end time is before the start time");
        }
        if to.0 / HOUR - from.0 / HOUR >= SLICES_MAX {
            return Err("Too much time requested");
        }
        let format = match (is_set('j'), is_set('x')) {
            (true, _) => DocumentFormat::Json,
            (false, true) => DocumentFormat::Xml,
            (false, false) => default,
        };
        Ok(Self { key_id, access: is_set('a'), storage: is_set('b'), format, from, to })
    }
}

/// Riak CS accepts several words for true, and a parameter without a value.
fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "" | "t" | "true" | "1" | "y" | "yes")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(1_289_422_114_000_000);

    fn parsed(path: &str, query: &str) -> Result<UsageRequest, &'static str> {
        UsageRequest::parse(path, &S3Query::parse(Some(query)), DocumentFormat::Json, NOW)
    }

    #[test]
    fn path_and_query_can_request_the_same_report() {
        let from = parse_basic("20101110T000000Z").unwrap();
        let to = parse_basic("20101110T120000Z").unwrap();
        let expected =
            UsageRequest { key_id: "K-_".into(), access: true, storage: true, format: DocumentFormat::Xml, from, to };
        for (path, query) in [
            ("/K-_/abx/20101110T000000Z/20101110T120000Z", ""),
            ("K-_.abx.20101110T000000Z.20101110T120000Z", ""),
            ("/K-_", "a&b=yes&x=t&s=20101110T000000Z&e=20101110T120000Z"),
        ] {
            assert_eq!(parsed(path, query).unwrap(), expected, "{path} {query}");
        }
    }

    #[test]
    fn defaults_and_refusals() {
        let expected = UsageRequest {
            key_id: "K".into(),
            access: false,
            storage: false,
            format: DocumentFormat::Json,
            from: NOW,
            to: NOW,
        };
        assert_eq!(parsed("/K", "a=no&b=0").unwrap(), expected);
        assert!(parsed("/K/a/soon", "").is_err());
        assert!(parsed("/K", "s=20101110T120000Z&e=20101110T000000Z").is_err());
        assert_eq!(parsed("/K", "s=20101001T000000Z&e=20101101T000000Z"), Err("Too much time requested"));
        assert!(parsed("/K", "s=20101001T000000Z&e=20101031T235959Z").is_ok());
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(path: String, query: String) {
            let _ = parsed(&path, &query);
        }
    }
}
