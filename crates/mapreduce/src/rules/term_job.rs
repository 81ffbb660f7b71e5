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
use crate::rules::external_term::{ExternalTerm as Term, big};

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
        let term = Term::decode(document).map_err(|_| JobRefusal::NotTerm("badarg"))?;
        let Term::List(members) = term else { return Err(JobRefusal::NotTerm("function_clause")) };
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
        let missing = || Term::Atom(b"undefined");
        let inputs = parse_inputs(inputs.unwrap_or_else(missing))?;
        let phases = parse_query(query.unwrap_or_else(missing))?;
        finish(inputs, phases, timeout.map(json).as_ref())
    }
}

/// The elements of a tuple of this many.
fn tuple<const N: usize>(term: Term<'_>) -> Option<[Term<'_>; N]> {
    match term {
        Term::Tuple(elements) => elements.try_into().ok(),
        _ => None,
    }
}

fn parse_inputs(inputs: Term<'_>) -> Result<UncompiledInputs, JobRefusal> {
    let ready = UncompiledInputs::Ready;
    match inputs {
        Term::Binary(bucket) => Ok(ready(JobInputs::Bucket(address(DEFAULT_TYPE, bucket)?))),
        Term::List(targets) => {
            targets.into_iter().map(target).collect::<Result<_, _>>().map(JobInputs::Keys).map(ready)
        }
        Term::Tuple(parts) => match parts.as_slice() {
            [Term::Binary(of_type), Term::Binary(bucket)] => Ok(ready(JobInputs::Bucket(address(of_type, bucket)?))),
            [Term::Binary(bucket), Term::List(filters)] => {
                let filters = filters.iter().cloned().map(json).collect();
                Ok(UncompiledInputs::Filtered(address(DEFAULT_TYPE, bucket)?, filters))
            }
            [Term::Atom(b"index"), bucket, field, key] => index(bucket, field, key, key).map(ready),
            [Term::Atom(b"index"), bucket, field, start, end] => index(bucket, field, start, end).map(ready),
            [Term::Atom(b"search"), _, _] | [Term::Atom(b"search"), _, _, _] => Err(JobRefusal::Search),
            [Term::Atom(b"modfun"), Term::Atom(_), Term::Atom(_), _] => Err(JobRefusal::Inputs(NO_FUNCTION.to_owned())),
            _ => Err(JobRefusal::Inputs(refused(INPUTS, &Term::Tuple(parts)))),
        },
        invalid => Err(JobRefusal::Inputs(refused(INPUTS, &invalid))),
    }
}

/// A key, perhaps with its type and a datum.
fn target(term: Term<'_>) -> Result<JobInput, JobRefusal> {
    let invalid = |term: &Term<'_>| JobRefusal::Inputs(refused(TARGETS, &Term::List(vec![term.clone()])));
    let Term::Tuple(parts) = &term else { return Err(invalid(&term)) };
    let (of_key, key_data) = match parts.as_slice() {
        [Term::Binary(bucket), Term::Binary(key)] => (Some((DEFAULT_TYPE, *bucket, *key)), None),
        [Term::Tuple(of_key), data] => (typed_key(of_key), Some(data)),
        _ => (None, None),
    };
    let Some((of_type, bucket, key)) = of_key else { return Err(invalid(&term)) };
    let address = Address::new(address(of_type, bucket)?, Bytes::copy_from_slice(key));
    let key_data = key_data.filter(|data| data.as_atom() != Some("undefined")).cloned().map(json);
    Ok(JobInput { address: address.map_err(|error| bad_address(&error))?, key_data })
}

/// The type, bucket and key of `{B,K}` or `{{T,B},K}`.
fn typed_key<'a>(parts: &[Term<'a>]) -> Option<(&'a [u8], &'a [u8], &'a [u8])> {
    match parts {
        [Term::Binary(bucket), Term::Binary(key)] => Some((DEFAULT_TYPE, bucket, key)),
        [Term::Tuple(bucket), Term::Binary(key)] => match bucket.as_slice() {
            [Term::Binary(of_type), Term::Binary(bucket)] => Some((of_type, bucket, key)),
            _ => None,
        },
        _ => None,
    }
}

fn index(bucket: &Term<'_>, field: &Term<'_>, start: &Term<'_>, end: &Term<'_>) -> Result<JobInputs, JobRefusal> {
    let invalid = |term: &Term<'_>| JobRefusal::Inputs(refused(INPUTS, term));
    let bucket = match bucket {
        Term::Binary(bucket) => address(DEFAULT_TYPE, bucket)?,
        Term::Tuple(parts) => match parts.as_slice() {
            [Term::Binary(of_type), Term::Binary(bucket)] => address(of_type, bucket)?,
            _ => return Err(invalid(bucket)),
        },
        _ => return Err(invalid(bucket)),
    };
    let Term::Binary(field) = field else { return Err(invalid(field)) };
    let field = Bytes::from(field.to_ascii_lowercase());
    let value = |term: &Term<'_>| {
        let text = match term {
            Term::Binary(bytes) => Bytes::copy_from_slice(bytes),
            Term::Integer(number) => number.to_string().into(),
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

fn parse_query(query: Term<'_>) -> Result<Vec<ParsedPhase>, JobRefusal> {
    let steps = match query {
        Term::List(steps) => steps,
        invalid => return Err(JobRefusal::Query(refused(QUERY, &invalid))),
    };
    if steps.len() > JOB_PHASES_MAX {
        let text = format!("The query has more than {JOB_PHASES_MAX} phases.\n");
        return Err(JobRefusal::Query(text));
    }
    steps.into_iter().map(parse_phase).collect::<Result<Vec<_>, _>>().map(keep_last)
}

fn parse_phase(step: Term<'_>) -> Result<ParsedPhase, JobRefusal> {
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
fn link_part(term: &Term<'_>) -> Option<Option<Bytes>> {
    match term {
        Term::Atom(b"_") | Term::Binary(b"_") => Some(None),
        Term::Binary(name) => Some(Some(Bytes::copy_from_slice(name))),
        _ => None,
    }
}

fn parse_function(function: Term<'_>, is_map: bool) -> Option<ParsedStep> {
    let Term::Tuple(parts) = function else { return None };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(match parts.as_slice() {
        [Term::Atom(b"modfun"), Term::Atom(module), Term::Atom(function)] => {
            ParsedStep::Erlang { is_map, function: ErlangFunction::Module(text(module), text(function)) }
        }
        [Term::Atom(b"strfun"), _] => ParsedStep::Erlang { is_map, function: ErlangFunction::Source },
        [Term::Atom(b"qfun"), _] => ParsedStep::Erlang { is_map, function: ErlangFunction::Fun },
        [Term::Atom(b"jsfun"), Term::Binary(name)] => {
            ParsedStep::Script { is_map, script: PhaseScript::Named(text(name)) }
        }
        [Term::Atom(b"jsanon"), Term::Binary(source)] => {
            ParsedStep::Script { is_map, script: PhaseScript::Source(text(source)) }
        }
        [Term::Atom(b"jsanon"), Term::Tuple(stored)] => match stored.as_slice() {
            [Term::Binary(bucket), Term::Binary(key)] => {
                ParsedStep::Script { is_map, script: PhaseScript::Stored(text(bucket), text(key)) }
            }
            _ => return None,
        },
        _ => return None,
    })
}

/// A term as functions see it: `{struct,[…]}`, a map and a list of pairs are objects, an atom is a text.
fn json(term: Term<'_>) -> Value {
    let text = |bytes: &[u8]| Value::from(String::from_utf8_lossy(bytes).into_owned());
    match term {
        Term::Atom(b"true") => true.into(),
        Term::Atom(b"false") => false.into(),
        Term::Atom(b"null" | b"undefined") => Value::Null,
        Term::Atom(bytes) | Term::Binary(bytes) => text(bytes),
        Term::Integer(number) => number.into(),
        Term::Big(is_negative, digits) => {
            big(is_negative, digits).and_then(Number::from_i128).map_or(Value::Null, Value::Number)
        }
        Term::Float(number) => number.into(),
        Term::Bytes(bytes) => bytes.iter().map(|byte| Value::from(*byte)).collect(),
        Term::List(list) => match list.iter().all(is_pair) && !list.is_empty() {
            true => object(list.into_iter().filter_map(tuple)),
            false => list.into_iter().map(json).collect(),
        },
        Term::Tuple(mut parts) => match parts.as_slice() {
            [Term::Atom(b"struct"), Term::List(members)] if members.iter().all(is_pair) => {
                let members = parts.pop().and_then(Term::into_list).unwrap_or_default();
                object(members.into_iter().filter_map(tuple))
            }
            _ => parts.into_iter().map(json).collect(),
        },
        Term::Map(members) => {
            let mut members = members.into_iter();
            object(std::iter::from_fn(|| Some([members.next()?, members.next()?])))
        }
        Term::Fun => "#Fun".into(),
    }
}

fn is_pair(term: &Term<'_>) -> bool {
    matches!(term, Term::Tuple(parts) if matches!(parts.as_slice(), [Term::Atom(_) | Term::Binary(_), _]))
}

fn object<'a>(members: impl Iterator<Item = [Term<'a>; 2]>) -> Value {
    let name = |name: Term<'_>| match name {
        Term::Atom(bytes) | Term::Binary(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        // Attack: the text of a map as a name in a map doubles with each level.
        other @ (Term::Integer(_) | Term::Big(..) | Term::Float(_)) => json(other).to_string(),
        _ => "#Term".to_owned(),
    };
    Value::Object(members.map(|[key, value]| (name(key), json(value))).collect::<Map<_, _>>())
}

/// The reason, with the term unless it is long.
fn refused(text: &str, term: &Term<'_>) -> String {
    match size(term) > SHOWN_MAX {
        true => format!("{text} (a long term)\n"),
        false => format!("{text} {}\n", term.shown()),
    }
}

/// The elements and bytes of a term, in hundreds.
fn size(term: &Term<'_>) -> usize {
    match term {
        Term::List(list) | Term::Tuple(list) | Term::Map(list) => list.iter().map(size).sum::<usize>() + 1,
        Term::Binary(bytes) | Term::Bytes(bytes) | Term::Atom(bytes) => 1 + bytes.len() / 100,
        Term::Integer(_) | Term::Big(..) | Term::Float(_) | Term::Fun => 1,
    }
}

#[cfg(test)]
mod tests;
