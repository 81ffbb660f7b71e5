//! The query parameters of object requests. Every method checks all of them, with Riak's text for each error.

use std::time::Duration;

use larder_core::Error;
use larder_core::rules::props::Quorum;
use larder_kv::Quorums;

use super::errors::RiakFault;
use super::path::QueryParams;

/// The parameters of an object request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ObjectParams {
    /// Replica counts.
    pub quorums: Quorums,
    /// The request's own deadline.
    pub timeout: Option<Duration>,
    /// Whether a put returns the object.
    pub return_body: bool,
}

impl ObjectParams {
    /// Parses and checks the parameters.
    ///
    /// # Errors
    /// 400 with the texts of the first group with invalid parameters; a deadline that has already passed.
    pub(super) fn from_query(query: &QueryParams<'_>) -> Result<Self, RiakFault> {
        if query.is_empty() {
            return Ok(Self::default());
        }
        let timeout = timeout(query)?;
        let mut quorums = quorum_params(query)?;
        sync_on_write(query, &mut quorums)?;
        booleans(query, &mut quorums)?;
        if timeout == Some(Duration::ZERO) {
            return Err(Error::TimedOut.into());
        }
        Ok(Self { quorums, timeout, return_body: query.is("returnbody", "true") })
    }
}

/// The `timeout` parameter; a negative one counts as zero.
///
/// # Errors
/// 400: not a number.
pub(super) fn timeout(query: &QueryParams<'_>) -> Result<Option<Duration>, RiakFault> {
    let Some(value) = query.get("timeout") else { return Ok(None) };
    match integer(value) {
        Some(millis) => Ok(Some(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))),
        None => Err(RiakFault::bad(format!("Bad timeout value {}\n", printed(value)))),
    }
}

/// The replica counts.
///
/// # Errors
/// 400 with a text for each that is none.
pub(super) fn quorum_params(query: &QueryParams<'_>) -> Result<Quorums, RiakFault> {
    let mut quorums = Quorums::default();
    let mut bad = String::new();
    for (name, place) in [
        ("r", &mut quorums.r),
        ("w", &mut quorums.w),
        ("dw", &mut quorums.dw),
        ("rw", &mut quorums.rw),
        ("pw", &mut quorums.pw),
        ("pr", &mut quorums.pr),
        ("node_confirms", &mut quorums.node_confirms),
    ] {
        let Some(value) = query.get(name) else { continue };
        match quorum(value) {
            Some(quorum) => *place = quorum,
            None => {
                bad.push_str(name);
                bad.push_str(
                    " query parameter must be an integer or one of the following words: 'one', 'quorum' or 'all'\n",
                );
            }
        }
    }
    if bad.is_empty() { Ok(quorums) } else { Err(RiakFault::bad(bad)) }
}

/// A replica count; the inner `None` is the bucket's default. Riak accepts negative numbers, which also mean the default.
fn quorum(value: &[u8]) -> Option<Option<Quorum>> {
    match value {
        b"default" | b"backend" => Some(None),
        b"one" => Some(Some(Quorum::One)),
        b"quorum" => Some(Some(Quorum::Quorum)),
        b"all" => Some(Some(Quorum::All)),
        number => match integer(number)? {
            ..0 => Some(None),
            count => Some(Some(Quorum::Count(u32::try_from(count).unwrap_or(u32::MAX)))),
        },
    }
}

/// `sync_on_write`: how many replicas must have the write on disk, which is the meaning of dw here.
fn sync_on_write(query: &QueryParams<'_>, quorums: &mut Quorums) -> Result<(), RiakFault> {
    let Some(value) = query.get("sync_on_write") else { return Ok(()) };
    match value.to_ascii_lowercase().as_slice() {
        b"default" | b"backend" => {}
        b"one" if quorums.dw == Some(Quorum::Count(0)) => quorums.dw = Some(Quorum::One),
        b"one" => {}
        b"all" => quorums.dw = Some(Quorum::All),
        _ => {
            return Err(RiakFault::bad(
                "sync_on_write query parameter must be one of the following words: [default,backend,one,all]\n",
            ));
        }
    }
    Ok(())
}

fn booleans(query: &QueryParams<'_>, quorums: &mut Quorums) -> Result<(), RiakFault> {
    let mut bad = String::new();
    // `asis` is checked and then ignored: the server creates all contexts.
    let mut asis = None;
    for (name, place) in
        [("basic_quorum", &mut quorums.basic_quorum), ("notfound_ok", &mut quorums.notfound_ok), ("asis", &mut asis)]
    {
        boolean(query, name, place, &mut bad);
    }
    if bad.is_empty() { Ok(()) } else { Err(RiakFault::bad(bad)) }
}

/// Reads a boolean parameter into `place`, or appends the text of its refusal to `bad`.
pub(super) fn boolean(query: &QueryParams<'_>, name: &str, place: &mut Option<bool>, bad: &mut String) {
    let Some(value) = query.get(name) else { return };
    match value.to_ascii_lowercase().as_slice() {
        b"true" => *place = Some(true),
        b"false" => *place = Some(false),
        b"default" => *place = None,
        _ => {
            bad.push_str(name);
            bad.push_str(" query parameter must be true or false\n");
        }
    }
}

/// A decimal number with an optional sign; one that does not fit is cut to the largest.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // A number too long for 64 bits still is one, so it is cut instead of refused.
    let value = std::str::from_utf8(digits).ok()?.parse().unwrap_or(i64::MAX);
    Some(if text.starts_with(b"-") { -value } else { value })
}

/// A value in Riak's error texts: quoted text, or a list of bytes for anything else.
pub(super) fn printed(value: &[u8]) -> String {
    if !value.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return format!("{value:?}").replace(' ', "");
    }
    let text = String::from_utf8_lossy(value).replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn refused(query: &str, text: &str) {
        let fault = ObjectParams::from_query(&QueryParams::parse(Some(query))).unwrap_err();
        assert_eq!(fault.text(), text, "{query}");
    }

    fn taken(query: &str) -> ObjectParams {
        ObjectParams::from_query(&QueryParams::parse(Some(query))).unwrap()
    }

    #[test]
    fn every_invalid_parameter_is_named() {
        let words = "query parameter must be an integer or one of the following words: 'one', 'quorum' or 'all'\n";
        refused("r=foo", &format!("r {words}"));
        refused("r=", &format!("r {words}"));
        refused("r=Quorum&w=2&pr=x", &format!("r {words}pr {words}"));
        refused("timeout=abc&r=foo", "Bad timeout value \"abc\"\n");
        refused("timeout=%22%00", "Bad timeout value [34,0]\n");
        refused(
            "notfound_ok=no&asis=1",
            "notfound_ok query parameter must be true or false\nasis query parameter must be true or false\n",
        );
        refused(
            "sync_on_write=two",
            "sync_on_write query parameter must be one of the following words: [default,backend,one,all]\n",
        );
    }

    #[test]
    fn valid_parameters_are_parsed() {
        let params = taken("r=1&w=all&dw=0&pr=default&notfound_ok=TRUE&returnbody=true&timeout=50&foo=bar");
        assert_eq!(params.quorums.r, Some(Quorum::Count(1)));
        assert_eq!(params.quorums.w, Some(Quorum::All));
        assert_eq!(params.quorums.dw, Some(Quorum::Count(0)));
        assert_eq!((params.quorums.pr, params.quorums.notfound_ok), (None, Some(true)));
        assert_eq!((params.return_body, params.timeout), (true, Some(Duration::from_millis(50))));
        assert_eq!(taken("r=-1").quorums.r, None);
        assert_eq!(taken("r=99999999999999999999").quorums.r, Some(Quorum::Count(u32::MAX)));
        assert!(!taken("returnbody=TRUE").return_body);
        assert_eq!(taken("dw=0&sync_on_write=one").quorums.dw, Some(Quorum::One));
    }

    #[test]
    fn a_timeout_of_zero_times_out_at_once() {
        for query in ["timeout=0", "timeout=-5"] {
            refused(query, "request timed out\n");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_parameters_parse_without_a_panic(name in "(timeout|r|dw|asis|sync_on_write)", value: Vec<u8>) {
            let mut query = format!("{name}=").into_bytes();
            crate::http::path::quote_form(&value, &mut query);
            let query = String::from_utf8(query).unwrap();
            let _ = ObjectParams::from_query(&QueryParams::parse(Some(&query)));
        }
    }
}
