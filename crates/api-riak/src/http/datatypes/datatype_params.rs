//! The query parameters of requests to data types (Riak KV HTTP reference §9.1), and those for large sets, which Riak lacks.

use std::time::Duration;

use bytes::Bytes;
use larder_kv::Quorums;
use larder_kv::datatypes::DatatypeBegin;

use super::json_update::field_name;
use super::value_reply::begin_after;
use crate::http::errors::RiakFault;
use crate::http::params::{boolean, integer, quorum_params};
use crate::http::path::{QueryParams, listed_bytes};

/// The parameters of a request to a data type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) struct DatatypeParams {
    /// Replica counts.
    pub quorums: Quorums,
    /// The request's own deadline.
    pub timeout: Option<Duration>,
    /// Whether an update returns the value.
    pub return_body: bool,
    /// Whether a value comes with its context.
    pub include_context: bool,
    /// The part of the value to show.
    pub part: ValuePart,
}

/// The part of a value that a read asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) enum ValuePart {
    /// All of it.
    Whole,
    /// Whether a set has this element.
    Element(Bytes),
    /// The number of its elements or fields.
    Size,
    /// Some elements of a set, or fields of a map.
    Page {
        /// The first one.
        begin: PageBegin,
        /// Most elements or fields.
        max_results: Option<u64>,
    },
}

/// The begin of a page, as a request names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) enum PageBegin {
    /// The text of the element or field that it begins at; the data type says which.
    Start(Bytes),
    /// The begin of the value, or the place after another page.
    Known(DatatypeBegin),
}

impl PageBegin {
    /// The begin in a set or a map.
    ///
    /// # Errors
    /// 400 for a start that names no field of a map, and for a continuation of the other type.
    pub(in crate::http) fn within(self, is_map: bool) -> Result<DatatypeBegin, RiakFault> {
        let begin = match self {
            // An element and a field are named as a read shows them.
            Self::Start(text) if is_map => {
                let text = std::str::from_utf8(&text).map_err(|_| RiakFault::bad("start is not UTF-8\n"))?;
                DatatypeBegin::AtField(field_name(text).map_err(|refused| RiakFault::bad(refused.to_string()))?)
            }
            Self::Start(text) => DatatypeBegin::AtElement(listed_bytes(&text)),
            Self::Known(begin) => begin,
        };
        let is_of_field = matches!(begin, DatatypeBegin::AtField(_) | DatatypeBegin::AfterField(_));
        match is_of_field == is_map || begin == DatatypeBegin::First {
            true => Ok(begin),
            false => Err(foreign_continuation()),
        }
    }
}

impl DatatypeParams {
    /// Parses and checks the parameters.
    ///
    /// # Errors
    /// 400 with the texts of the first group with invalid parameters.
    pub(in crate::http) fn from_query(query: &QueryParams<'_>) -> Result<Self, RiakFault> {
        let timeout = timeout(query)?;
        let mut quorums = quorum_params(query)?;
        let (mut bad, mut return_body, mut include_context) = (String::new(), None, None);
        for (name, place) in [
            ("basic_quorum", &mut quorums.basic_quorum),
            ("notfound_ok", &mut quorums.notfound_ok),
            ("returnbody", &mut return_body),
            ("include_context", &mut include_context),
        ] {
            boolean(query, name, place, &mut bad);
        }
        if !bad.is_empty() {
            return Err(RiakFault::bad(bad));
        }
        Ok(Self {
            quorums,
            timeout,
            return_body: return_body.unwrap_or(false),
            include_context: include_context.unwrap_or(true),
            part: part(query)?,
        })
    }
}

/// The `timeout` parameter; zero asks for none of its own, so that the server's applies.
fn timeout(query: &QueryParams<'_>) -> Result<Option<Duration>, RiakFault> {
    let Some(value) = query.get("timeout") else { return Ok(None) };
    let invalid = |bounds: &str| {
        let value = String::from_utf8_lossy(value);
        RiakFault::bad(format!(
            "timeout query parameter must be an integer greater than 0{bounds}, {value} is invalid\n"
        ))
    };
    match integer(value).ok_or_else(|| invalid(""))? {
        0 => Ok(None),
        millis => match u64::try_from(millis) {
            Ok(millis) => Ok(Some(Duration::from_millis(millis))),
            Err(_) => Err(invalid(" (or 0 for disabled)")),
        },
    }
}

fn part(query: &QueryParams<'_>) -> Result<ValuePart, RiakFault> {
    let asked = [&["element"][..], &["size"], &["start", "max_results", "continuation"]];
    let asked = asked.into_iter().filter(|names| names.iter().any(|name| query.get(name).is_some()));
    if asked.count() > 1 {
        return Err(RiakFault::bad("element, size and pages cannot be asked for together\n"));
    }
    if let Some(element) = query.get("element") {
        // As a read shows it.
        return Ok(ValuePart::Element(listed_bytes(element)));
    }
    let (mut size, mut bad) = (None, String::new());
    boolean(query, "size", &mut size, &mut bad);
    if !bad.is_empty() {
        return Err(RiakFault::bad(bad));
    }
    if size == Some(true) {
        return Ok(ValuePart::Size);
    }
    let max_results = query.get("max_results").map(max_results).transpose()?;
    let begin = match (query.get("continuation"), query.get("start")) {
        (Some(continuation), _) => PageBegin::Known(begin_after(continuation).ok_or_else(foreign_continuation)?),
        (None, Some(start)) => PageBegin::Start(Bytes::copy_from_slice(start)),
        (None, None) if max_results.is_none() => return Ok(ValuePart::Whole),
        (None, None) => PageBegin::Known(DatatypeBegin::First),
    };
    Ok(ValuePart::Page { begin, max_results })
}

/// 400 for a continuation that no page of such a value has.
fn foreign_continuation() -> RiakFault {
    RiakFault::bad("continuation query parameter is invalid\n")
}

fn max_results(value: &[u8]) -> Result<u64, RiakFault> {
    let number = integer(value).and_then(|number| u64::try_from(number).ok()).filter(|number| *number > 0);
    number.ok_or_else(|| {
        let value = String::from_utf8_lossy(value);
        RiakFault::bad(format!("max_results query parameter must be an integer greater than 0, {value} is invalid\n"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_core::rules::props::Quorum;
    use larder_kv::rules::datatypes::{EmbeddedType, FieldName};
    use proptest::prelude::*;

    fn taken(query: &str) -> DatatypeParams {
        DatatypeParams::from_query(&QueryParams::parse(Some(query))).unwrap()
    }

    #[track_caller]
    fn refused(query: &str, text: &str) {
        assert_eq!(DatatypeParams::from_query(&QueryParams::parse(Some(query))).unwrap_err().text(), text, "{query}");
    }

    #[test]
    fn valid_parameters_are_parsed() {
        let none = DatatypeParams::from_query(&QueryParams::parse(None)).unwrap();
        assert!(none.include_context && !none.return_body && none.part == ValuePart::Whole);
        let params = taken("r=1&w=all&returnbody=TRUE&include_context=false&timeout=50&notfound_ok=true");
        assert_eq!((params.quorums.r, params.quorums.w), (Some(Quorum::Count(1)), Some(Quorum::All)));
        assert_eq!((params.return_body, params.include_context), (true, false));
        assert_eq!((params.timeout, params.quorums.notfound_ok), (Some(Duration::from_millis(50)), Some(true)));
        assert_eq!(taken("timeout=0").timeout, None, "zero asks for no deadline of its own");
    }

    #[test]
    fn parts_of_large_values_are_asked_for_by_name() {
        assert_eq!(taken("element=").part, ValuePart::Element(Bytes::new()));
        assert_eq!(taken("element=a%2Fb").part, ValuePart::Element("a/b".into()));
        assert_eq!(taken("element=%EF%BF%BD%25FF").part, ValuePart::Element(Bytes::from_static(b"\xff")));
        assert_eq!(taken("element=%FF").part, ValuePart::Element(Bytes::from_static(b"\xff")));
        assert_eq!(taken("size=true").part, ValuePart::Size);
        assert_eq!(taken("size=false").part, ValuePart::Whole);
        let page = |begin, max_results| ValuePart::Page { begin, max_results };
        assert_eq!(taken("max_results=7").part, page(PageBegin::Known(DatatypeBegin::First), Some(7)));
        assert_eq!(taken("start=b").part, page(PageBegin::Start("b".into()), None));
        let mut window = super::super::value_reply::PageWindow::new(Some(1));
        window.take(["k", "l"].map(|element| larder_kv::rules::datatypes::ValuePiece::Element(element.into())).into());
        let continuation = window.continuation().unwrap();
        let query = format!("continuation={continuation}&max_results=1&start=b");
        let after = PageBegin::Known(DatatypeBegin::AfterElement("k".into()));
        assert_eq!(taken(&query).part, page(after.clone(), Some(1)), "a continuation goes on");
        assert!(after.within(true).is_err(), "a map's page has no element");
        let at = |start: &'static str, is_map| PageBegin::Start(start.into()).within(is_map);
        assert_eq!(at("b", false).unwrap(), DatatypeBegin::AtElement("b".into()));
        let field = FieldName::new("b", EmbeddedType::Counter);
        assert_eq!(at("b_counter", true).unwrap(), DatatypeBegin::AtField(field));
        assert!(at("b", true).is_err(), "a field has a type");
    }

    #[test]
    fn every_invalid_parameter_is_named() {
        let words = "query parameter must be an integer or one of the following words: 'one', 'quorum' or 'all'\n";
        refused("r=foo", &format!("r {words}"));
        refused("include_context=zz", "include_context query parameter must be true or false\n");
        refused("returnbody=1", "returnbody query parameter must be true or false\n");
        refused("timeout=x", "timeout query parameter must be an integer greater than 0, x is invalid\n");
        refused(
            "timeout=-1",
            "timeout query parameter must be an integer greater than 0 (or 0 for disabled), -1 is invalid\n",
        );
        refused("max_results=0", "max_results query parameter must be an integer greater than 0, 0 is invalid\n");
        refused("continuation=AAA", "continuation query parameter is invalid\n");
    }

    proptest! {
        #[test]
        fn arbitrary_parameters_parse_without_a_panic(
            name in "(timeout|r|element|start|max_results|continuation|include_context)",
            value: Vec<u8>,
        ) {
            let mut query = format!("{name}=").into_bytes();
            crate::http::path::quote_form(&value, &mut query);
            let query = String::from_utf8(query).unwrap();
            let _ = DatatypeParams::from_query(&QueryParams::parse(Some(&query)));
        }
    }
}
