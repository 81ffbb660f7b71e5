//! A job as an Erlang term, which Riak's Erlang client sends over protocol buffers.
//!
//! ```text
//! [{inputs, <<B>> | {<<T>>,<<B>>} | [{<<B>>,<<K>>} | {{<<B>>,<<K>>},D} | {{{<<T>>,<<B>>},<<K>>},D}]
//!           | {<<B>>,[FILTER]} | {index,B,<<FIELD>>,KEY} | {index,B,<<FIELD>>,START,END}},
//!  {query,  [{map,FUN,ARG,KEEP} | {reduce,FUN,ARG,KEEP} | {link,<<B>> | '_',<<TAG>> | '_',KEEP}]},
//!  {timeout, MILLISECONDS}]
//! FUN: {modfun,M,F} · {jsfun,<<NAME>>} · {jsanon,<<SOURCE>>} · {jsanon,{<<B>>,<<K>>}}
//! ```

use bytes::Bytes;
use larder_core::rules::external_term::{ExternalTerm, TermBounds, big};
use larder_kv::rules::links::LinkFilter;
use larder_rows::address::{Address, BucketAddress, DEFAULT_TYPE};
use larder_rows::limits::JOB_PHASES_MAX;
use serde_json::{Map, Number, Value};

use super::Job;
use super::inputs::{IndexInputs, JobInputs, NO_FUNCTION, UncompiledInputs, bad_address};
use super::job::finish;
use super::phase::{ErlangFunction, ParsedPhase, ParsedStep, PhaseScript, keep_last};
use super::refusal::JobRefusal;
use super::value::JobInput;

/// A term of a document.
type JobTerm<'a> = ExternalTerm<&'a [u8]>;

/// No job has a list that does not end with the empty list.
pub(super) const BOUNDS: TermBounds = TermBounds { depth: 64, has_improper: false };

const INPUTS: &str = "Inputs must be a binary bucket, a tuple of bucket and key-filters, a list of target tuples, or a \
                      search, index, or modfun tuple:";
const TARGETS: &str = "Inputs target tuples must be {B,K} or {{B,K},KeyData}:";
const QUERY: &str = "Query takes a list of step tuples:";
/// Elements of a term that an error text repeats.
const SHOWN_MAX: usize = 100;

impl Job {
    /// Reads a document that is an Erlang term.
    ///
    /// # Errors
    /// [`JobRefusal`], the first reason in Riak's order.
    pub fn parse_term(document: &[u8]) -> Result<Self, JobRefusal> {
        let term = JobTerm::decode(document, BOUNDS).map_err(|_| JobRefusal::NotTerm("badarg"))?;
        let JobTerm::List(members) = term else { return Err(JobRefusal::NotTerm("function_clause")) };
        let (mut inputs, mut query, mut timeout) = (None, None, None);
        for member in members {
            let Some([name, value]) = tuple(member) else { continue };
            let place = match name.as_atom() {
                Some("inputs") => &mut inputs,
                Some("query") => &mut query,
                Some("timeout") => &mut timeout,
                _ => continue,
            };
            // The first one counts, as in a list of properties.
            place.get_or_insert(value);
        }
        let missing = || JobTerm::Atom(b"undefined");
        let inputs = parse_inputs(inputs.unwrap_or_else(missing))?;
        let phases = parse_query(query.unwrap_or_else(missing))?;
        finish(inputs, phases, timeout.map(json).as_ref())
    }
}

/// The elements of a tuple of this many.
fn tuple<const N: usize>(term: JobTerm<'_>) -> Option<[JobTerm<'_>; N]> {
    match term {
        JobTerm::Tuple(elements) => elements.try_into().ok(),
        _ => None,
    }
}

fn parse_inputs(inputs: JobTerm<'_>) -> Result<UncompiledInputs, JobRefusal> {
    let ready = UncompiledInputs::Ready;
    match inputs {
        JobTerm::Binary(bucket) => Ok(ready(JobInputs::Bucket(address(DEFAULT_TYPE, bucket)?))),
        JobTerm::List(targets) => {
            targets.into_iter().map(target).collect::<Result<_, _>>().map(JobInputs::Keys).map(ready)
        }
        JobTerm::Tuple(parts) => match parts.as_slice() {
            [JobTerm::Binary(of_type), JobTerm::Binary(bucket)] => {
                Ok(ready(JobInputs::Bucket(address(of_type, bucket)?)))
            }
            [JobTerm::Binary(bucket), JobTerm::List(filters)] => {
                let filters = filters.iter().cloned().map(json).collect();
                Ok(UncompiledInputs::Filtered(address(DEFAULT_TYPE, bucket)?, filters))
            }
            [JobTerm::Atom(b"index"), bucket, field, key] => index(bucket, field, key, key).map(ready),
            [JobTerm::Atom(b"index"), bucket, field, start, end] => index(bucket, field, start, end).map(ready),
            [JobTerm::Atom(b"search"), _, _] | [JobTerm::Atom(b"search"), _, _, _] => Err(JobRefusal::Search),
            [JobTerm::Atom(b"modfun"), JobTerm::Atom(_), JobTerm::Atom(_), _] => {
                Err(JobRefusal::Inputs(NO_FUNCTION.to_owned()))
            }
            _ => Err(JobRefusal::Inputs(refused(INPUTS, &JobTerm::Tuple(parts)))),
        },
        invalid => Err(JobRefusal::Inputs(refused(INPUTS, &invalid))),
    }
}

/// A key, perhaps with its type and a datum.
fn target(term: JobTerm<'_>) -> Result<JobInput, JobRefusal> {
    let invalid = |term: &JobTerm<'_>| JobRefusal::Inputs(refused(TARGETS, &JobTerm::List(vec![term.clone()])));
    let JobTerm::Tuple(parts) = &term else { return Err(invalid(&term)) };
    let (of_key, key_data) = match parts.as_slice() {
        [JobTerm::Binary(bucket), JobTerm::Binary(key)] => (Some((DEFAULT_TYPE, *bucket, *key)), None),
        [JobTerm::Tuple(of_key), data] => (typed_key(of_key), Some(data)),
        _ => (None, None),
    };
    let Some((of_type, bucket, key)) = of_key else { return Err(invalid(&term)) };
    let address = Address::new(address(of_type, bucket)?, Bytes::copy_from_slice(key));
    let key_data = key_data.filter(|data| data.as_atom() != Some("undefined")).cloned().map(json);
    Ok(JobInput { address: address.map_err(|error| bad_address(&error))?, key_data })
}

/// The type, bucket and key of `{B,K}` or `{{T,B},K}`.
fn typed_key<'a>(parts: &[JobTerm<'a>]) -> Option<(&'a [u8], &'a [u8], &'a [u8])> {
    match parts {
        [JobTerm::Binary(bucket), JobTerm::Binary(key)] => Some((DEFAULT_TYPE, bucket, key)),
        [JobTerm::Tuple(bucket), JobTerm::Binary(key)] => match bucket.as_slice() {
            [JobTerm::Binary(of_type), JobTerm::Binary(bucket)] => Some((of_type, bucket, key)),
            _ => None,
        },
        _ => None,
    }
}

fn index(
    bucket: &JobTerm<'_>,
    field: &JobTerm<'_>,
    start: &JobTerm<'_>,
    end: &JobTerm<'_>,
) -> Result<JobInputs, JobRefusal> {
    let invalid = |term: &JobTerm<'_>| JobRefusal::Inputs(refused(INPUTS, term));
    let bucket = match bucket {
        JobTerm::Binary(bucket) => address(DEFAULT_TYPE, bucket)?,
        JobTerm::Tuple(parts) => match parts.as_slice() {
            [JobTerm::Binary(of_type), JobTerm::Binary(bucket)] => address(of_type, bucket)?,
            _ => return Err(invalid(bucket)),
        },
        _ => return Err(invalid(bucket)),
    };
    let JobTerm::Binary(field) = field else { return Err(invalid(field)) };
    let field = Bytes::from(field.to_ascii_lowercase());
    let value = |term: &JobTerm<'_>| {
        let text = match term {
            JobTerm::Binary(bytes) => Bytes::copy_from_slice(bytes),
            JobTerm::Integer(number) => number.to_string().into(),
            _ => return Err(invalid(term)),
        };
        super::inputs::check_term(&field, text)
    };
    let (start, end) = (value(start)?, value(end)?);
    Ok(JobInputs::Index(IndexInputs { bucket, field, start, end }))
}

fn address(of_type: &[u8], bucket: &[u8]) -> Result<BucketAddress, JobRefusal> {
    BucketAddress::new(Bytes::copy_from_slice(of_type), Bytes::copy_from_slice(bucket))
        .map_err(|error| bad_address(&error))
}

fn parse_query(query: JobTerm<'_>) -> Result<Vec<ParsedPhase>, JobRefusal> {
    let steps = match query {
        JobTerm::List(steps) => steps,
        invalid => return Err(JobRefusal::Query(refused(QUERY, &invalid))),
    };
    if steps.len() > JOB_PHASES_MAX {
        let text = format!("The query has more than {JOB_PHASES_MAX} phases.\n");
        return Err(JobRefusal::Query(text));
    }
    steps.into_iter().map(parse_phase).collect::<Result<Vec<_>, _>>().map(keep_last)
}

fn parse_phase(step: JobTerm<'_>) -> Result<ParsedPhase, JobRefusal> {
    let invalid = JobRefusal::Query(refused(QUERY, &step));
    let Some([kind, function, arg, keep]) = tuple(step) else { return Err(invalid) };
    let keep = match keep.as_atom() {
        Some("true") => true,
        Some("false") => false,
        _ => return Err(invalid),
    };
    let is_map = match kind.as_atom() {
        Some("map") => true,
        Some("reduce") => false,
        Some("link") => {
            let (Some(bucket), Some(tag)) = (link_part(&function), link_part(&arg)) else { return Err(invalid) };
            return Ok(ParsedPhase { keep, arg: None, step: ParsedStep::Link(LinkFilter { bucket, tag }) });
        }
        _ => return Err(invalid),
    };
    let Some(step) = parse_function(function, is_map) else { return Err(invalid) };
    let arg = Some(arg).filter(|arg| !matches!(arg.as_atom(), Some("none" | "undefined"))).map(json);
    Ok(ParsedPhase { keep, arg, step })
}

/// The name that a link must have; `None` inside: any.
fn link_part(term: &JobTerm<'_>) -> Option<Option<Bytes>> {
    match term {
        JobTerm::Atom(b"_") | JobTerm::Binary(b"_") => Some(None),
        JobTerm::Binary(name) => Some(Some(Bytes::copy_from_slice(name))),
        _ => None,
    }
}

fn parse_function(function: JobTerm<'_>, is_map: bool) -> Option<ParsedStep> {
    let JobTerm::Tuple(parts) = function else { return None };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(match parts.as_slice() {
        [JobTerm::Atom(b"modfun"), JobTerm::Atom(module), JobTerm::Atom(function)] => {
            ParsedStep::Erlang { is_map, function: ErlangFunction::Module(text(module), text(function)) }
        }
        [JobTerm::Atom(b"strfun"), _] => ParsedStep::Erlang { is_map, function: ErlangFunction::Source },
        [JobTerm::Atom(b"qfun"), _] => ParsedStep::Erlang { is_map, function: ErlangFunction::Fun },
        [JobTerm::Atom(b"jsfun"), JobTerm::Binary(name)] => {
            ParsedStep::Script { is_map, script: PhaseScript::Named(text(name)) }
        }
        [JobTerm::Atom(b"jsanon"), JobTerm::Binary(source)] => {
            ParsedStep::Script { is_map, script: PhaseScript::Source(text(source)) }
        }
        [JobTerm::Atom(b"jsanon"), JobTerm::Tuple(stored)] => match stored.as_slice() {
            [JobTerm::Binary(bucket), JobTerm::Binary(key)] => {
                ParsedStep::Script { is_map, script: PhaseScript::Stored(text(bucket), text(key)) }
            }
            _ => return None,
        },
        _ => return None,
    })
}

/// A term as functions see it: `{struct,[…]}`, a map and a list of pairs are objects, an atom is a text.
fn json(term: JobTerm<'_>) -> Value {
    let text = |bytes: &[u8]| Value::from(String::from_utf8_lossy(bytes).into_owned());
    match term {
        JobTerm::Atom(b"true") => true.into(),
        JobTerm::Atom(b"false") => false.into(),
        JobTerm::Atom(b"null" | b"undefined") => Value::Null,
        JobTerm::Atom(bytes) | JobTerm::Binary(bytes) => text(bytes),
        JobTerm::Integer(number) => number.into(),
        JobTerm::Big(is_negative, digits) => {
            big(is_negative, digits).and_then(Number::from_i128).map_or(Value::Null, Value::Number)
        }
        JobTerm::Float(number) => number.into(),
        JobTerm::Bytes(bytes) => bytes.iter().map(|byte| Value::from(*byte)).collect(),
        JobTerm::Improper(list) => list.into_iter().map(json).collect(),
        JobTerm::List(list) => match list.iter().all(is_pair) && !list.is_empty() {
            true => object(list.into_iter().filter_map(tuple)),
            false => list.into_iter().map(json).collect(),
        },
        JobTerm::Tuple(mut parts) => match parts.as_slice() {
            [JobTerm::Atom(b"struct"), JobTerm::List(members)] if members.iter().all(is_pair) => {
                let members = parts.pop().and_then(JobTerm::into_list).unwrap_or_default();
                object(members.into_iter().filter_map(tuple))
            }
            _ => parts.into_iter().map(json).collect(),
        },
        JobTerm::Map(members) => {
            let mut members = members.into_iter();
            object(std::iter::from_fn(|| Some([members.next()?, members.next()?])))
        }
        JobTerm::Fun => "#Fun".into(),
    }
}

fn is_pair(term: &JobTerm<'_>) -> bool {
    matches!(term, JobTerm::Tuple(parts) if matches!(parts.as_slice(), [JobTerm::Atom(_) | JobTerm::Binary(_), _]))
}

fn object<'a>(members: impl Iterator<Item = [JobTerm<'a>; 2]>) -> Value {
    let name = |name: JobTerm<'_>| match name {
        JobTerm::Atom(bytes) | JobTerm::Binary(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        // Attack: the text of a map as a name in a map doubles with each level.
        other @ (JobTerm::Integer(_) | JobTerm::Big(..) | JobTerm::Float(_)) => json(other).to_string(),
        _ => "#JobTerm".to_owned(),
    };
    Value::Object(members.map(|[key, value]| (name(key), json(value))).collect::<Map<_, _>>())
}

/// The reason, with the term unless it is long.
fn refused(text: &str, term: &JobTerm<'_>) -> String {
    match size(term) > SHOWN_MAX {
        true => format!("{text} (a long term)\n"),
        false => format!("{text} {}\n", term.shown()),
    }
}

/// The elements and bytes of a term, in hundreds.
fn size(term: &JobTerm<'_>) -> usize {
    match term {
        JobTerm::List(list) | JobTerm::Improper(list) | JobTerm::Tuple(list) | JobTerm::Map(list) => {
            list.iter().map(size).sum::<usize>() + 1
        }
        JobTerm::Binary(bytes) | JobTerm::Bytes(bytes) | JobTerm::Atom(bytes) => 1 + bytes.len() / 100,
        JobTerm::Integer(_) | JobTerm::Big(..) | JobTerm::Float(_) | JobTerm::Fun => 1,
    }
}

#[cfg(test)]
mod tests;
