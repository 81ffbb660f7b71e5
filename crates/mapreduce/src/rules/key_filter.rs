//! Key filters: a pipeline of transforms and predicates over a key.
//!
//! A key passes when the pipeline ends in true. A transform that a key does not fit, such as `string_to_int` of a text, ends
//! its pipeline in false.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use larder_rows::limits::{KEY_FILTERS_MAX, KEY_REGEX_BYTES_MAX, KEY_REGEXES_MAX, REGEX_TEXT_MAX};
use regex::bytes::{Regex, RegexBuilder};
use serde_json::Value;

use super::refusal::BadKeyFilter;

/// A compiled list of filters.
#[derive(Debug, Clone)]
pub struct KeyFilter(Vec<FilterStep>);

#[derive(Debug, Clone)]
enum FilterStep {
    IntToString,
    StringToInt,
    FloatToString,
    StringToFloat,
    ToUpper,
    ToLower,
    /// The separators, and the number of the token from 1.
    Tokenize(Vec<u8>, usize),
    UrlDecode,
    GreaterThan(FilterValue),
    LessThan(FilterValue),
    GreaterThanEq(FilterValue),
    LessThanEq(FilterValue),
    /// The ends, and whether they are within.
    Between(FilterValue, FilterValue, bool),
    Matches(Regex),
    Neq(FilterValue),
    Eq(FilterValue),
    SetMember(BTreeSet<Vec<u8>>),
    /// The text, and the most edits between it and a key.
    SimilarTo(Vec<u8>, usize),
    StartsWith(Vec<u8>),
    EndsWith(Vec<u8>),
    And(Vec<KeyFilter>),
    Or(Vec<KeyFilter>),
    Not(Box<KeyFilter>),
}

/// The texts that distances are computed for: longer ones are never similar.
const SIMILAR_BYTES_MAX: usize = 256;
/// Most lists around a filter.
const DEPTH_MAX: usize = 32;

impl KeyFilter {
    /// Compiles a list of filters.
    ///
    /// # Errors
    /// The first filter that does not exist, or has other arguments.
    pub fn compile(filters: &[Value]) -> Result<Self, BadKeyFilter> {
        FilterCompiler { count: 0, regexes: 0 }.list(filters, 0)
    }

    /// Whether a key passes.
    #[must_use]
    pub fn passes(&self, key: &[u8]) -> bool {
        self.apply(FilterValue::Text(key.to_vec())) == Some(FilterValue::Truth(true))
    }

    fn apply(&self, value: FilterValue) -> Option<FilterValue> {
        self.0.iter().try_fold(value, |value, step| step.apply(value))
    }

    fn holds(&self, value: &FilterValue) -> bool {
        self.apply(value.clone()) == Some(FilterValue::Truth(true))
    }
}

impl FilterStep {
    /// The next value; `None`: the value does not fit.
    fn apply(&self, value: FilterValue) -> Option<FilterValue> {
        let text = |bytes: Vec<u8>| Some(FilterValue::Text(bytes));
        let truth = match self {
            Self::IntToString => match value {
                FilterValue::Integer(_) => return text(value.text()),
                _ => return None,
            },
            Self::FloatToString => match value {
                FilterValue::Float(_) => return text(value.text()),
                _ => return None,
            },
            Self::StringToInt => return integer(&value.text()).map(FilterValue::Integer),
            Self::StringToFloat => return float(&value.text()).map(FilterValue::Float),
            Self::ToUpper => return text(value.text().to_ascii_uppercase()),
            Self::ToLower => return text(value.text().to_ascii_lowercase()),
            Self::Tokenize(separators, number) => return text(token(&value.text(), separators, *number)?),
            Self::UrlDecode => return text(url_decoded(&value.text())),
            Self::GreaterThan(bound) => value.order(bound).is_gt(),
            Self::LessThan(bound) => value.order(bound).is_lt(),
            Self::GreaterThanEq(bound) => value.order(bound).is_ge(),
            Self::LessThanEq(bound) => value.order(bound).is_le(),
            Self::Between(low, high, true) => value.order(low).is_ge() && value.order(high).is_le(),
            Self::Between(low, high, false) => value.order(low).is_gt() && value.order(high).is_lt(),
            Self::Matches(regex) => regex.is_match(&value.text()),
            Self::Neq(other) => value != *other,
            Self::Eq(other) => value == *other,
            Self::SetMember(set) => set.contains(&value.text()),
            Self::SimilarTo(other, edits) => is_similar(&value.text(), other, *edits),
            Self::StartsWith(begin) => value.text().starts_with(begin),
            Self::EndsWith(end) => value.text().ends_with(end),
            Self::And(filters) => filters.iter().all(|filter| filter.holds(&value)),
            Self::Or(filters) => filters.iter().any(|filter| filter.holds(&value)),
            Self::Not(filter) => !filter.holds(&value),
        };
        Some(FilterValue::Truth(truth))
    }
}

/// Compiles filters, and counts them.
struct FilterCompiler {
    count: usize,
    regexes: usize,
}

impl FilterCompiler {
    fn list(&mut self, filters: &[Value], depth: usize) -> Result<KeyFilter, BadKeyFilter> {
        filters.iter().map(|filter| self.step(filter, depth)).collect::<Result<_, _>>().map(KeyFilter)
    }

    fn step(&mut self, filter: &Value, depth: usize) -> Result<FilterStep, BadKeyFilter> {
        let parts = filter.as_array().map(Vec::as_slice).unwrap_or_default();
        let Some((name, args)) = parts.split_first() else {
            return Err(BadKeyFilter { name: filter.to_string(), reason: Some("a filter is a list".into()) });
        };
        let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
        let bad = |reason: String| BadKeyFilter { name: name.clone(), reason: Some(reason) };
        self.count += 1;
        self.regexes += usize::from(name == "matches");
        if self.regexes > KEY_REGEXES_MAX {
            return Err(bad(format!("there are more than {KEY_REGEXES_MAX} regular expressions")));
        }
        if self.count > KEY_FILTERS_MAX || depth > DEPTH_MAX {
            return Err(bad(format!("there are more than {KEY_FILTERS_MAX} filters, or more than {DEPTH_MAX} lists")));
        }
        let compiled = match name.as_str() {
            "and" | "or" => self.lists(args, depth).map(|lists| lists.map(list_filter(&name))),
            "not" => self.lists(args, depth).map(|lists| Some(FilterStep::Not(lists?.into_iter().next()?.into()))),
            _ => simple(&name, args).map_err(|problem| match problem {
                FilterProblem::Unknown => BadKeyFilter { name: name.clone(), reason: None },
                FilterProblem::Regex(reason) => bad(reason),
            }),
        };
        compiled?.ok_or_else(|| bad("its arguments are not valid".into()))
    }

    /// The lists of filters among the arguments; `None`: an argument is no list.
    fn lists(&mut self, args: &[Value], depth: usize) -> Result<Option<Vec<KeyFilter>>, BadKeyFilter> {
        let Some(lists) = args.iter().map(Value::as_array).collect::<Option<Vec<_>>>() else { return Ok(None) };
        lists.into_iter().map(|list| self.list(list, depth + 1)).collect::<Result<_, _>>().map(Some)
    }
}

fn list_filter(name: &str) -> fn(Vec<KeyFilter>) -> FilterStep {
    if name == "and" { FilterStep::And } else { FilterStep::Or }
}

/// The problem of a filter.
enum FilterProblem {
    Unknown,
    Regex(String),
}

/// A filter without filters within; `None`: its arguments are not valid.
fn simple(name: &str, args: &[Value]) -> Result<Option<FilterStep>, FilterProblem> {
    use FilterStep as S;
    let value = |at: usize| args.get(at).and_then(FilterValue::from_json);
    let text = |at: usize| value(at).map(|value| value.text());
    let number = |at: usize| args.get(at).and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok());
    let both = |at: usize| value(at).zip(value(at + 1));
    Ok(match name {
        "int_to_string" => Some(S::IntToString),
        "string_to_int" => Some(S::StringToInt),
        "float_to_string" => Some(S::FloatToString),
        "string_to_float" => Some(S::StringToFloat),
        "to_upper" => Some(S::ToUpper),
        "to_lower" => Some(S::ToLower),
        "urldecode" => Some(S::UrlDecode),
        "tokenize" => {
            text(0).zip(number(1)).filter(|(_, number)| *number > 0).map(|(by, number)| S::Tokenize(by, number))
        }
        "greater_than" => value(0).map(S::GreaterThan),
        "less_than" => value(0).map(S::LessThan),
        "greater_than_eq" => value(0).map(S::GreaterThanEq),
        "less_than_eq" => value(0).map(S::LessThanEq),
        "between" => {
            let inclusive = args.get(2).is_none_or(|inclusive| *inclusive == Value::Bool(true));
            both(0).map(|(low, high)| S::Between(low, high, inclusive))
        }
        "matches" => match args.first().and_then(Value::as_str) {
            Some(pattern) => Some(S::Matches(regex(pattern).map_err(FilterProblem::Regex)?)),
            None => None,
        },
        "neq" => value(0).map(S::Neq),
        "eq" => value(0).map(S::Eq),
        "set_member" => (0..args.len()).map(text).collect::<Option<_>>().map(S::SetMember),
        "similar_to" => text(0).zip(number(1)).map(|(text, edits)| S::SimilarTo(text, edits)),
        "starts_with" => text(0).map(S::StartsWith),
        "ends_with" => text(0).map(S::EndsWith),
        _ => return Err(FilterProblem::Unknown),
    })
}

/// A regular expression that matches in linear time.
fn regex(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > REGEX_TEXT_MAX {
        return Err(format!("the expression is longer than {REGEX_TEXT_MAX} bytes"));
    }
    let mut builder = RegexBuilder::new(pattern);
    let built = builder.unicode(false).size_limit(KEY_REGEX_BYTES_MAX).dfa_size_limit(KEY_REGEX_BYTES_MAX).build();
    built.map_err(|error| format!("look-around and back-references are not available: {error}"))
}

fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A float: Erlang's have digits around their point.
fn float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let (before, after) = text.split_once('.')?;
    let is_digit = |char: Option<char>| char.is_some_and(|char| char.is_ascii_digit());
    let has_digits = is_digit(before.chars().next_back()) && is_digit(after.chars().next());
    text.parse().ok().filter(|float: &f64| has_digits && float.is_finite())
}

/// The token with this number: separators in a row are one.
fn token(text: &[u8], separators: &[u8], number: usize) -> Option<Vec<u8>> {
    let tokens = text.split(|byte| separators.contains(byte)).filter(|token| !token.is_empty());
    tokens.skip(number - 1).map(<[u8]>::to_vec).next()
}

/// A form value, up to a character that ends one.
fn url_decoded(text: &[u8]) -> Vec<u8> {
    let end = text.iter().position(|byte| matches!(byte, b'&' | b';')).unwrap_or(text.len());
    let (mut rest, mut out) = (&text[..end], Vec::with_capacity(end));
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let escaped = after.get(..2).filter(|_| byte == b'%').and_then(hex_byte);
        match (byte, escaped) {
            (_, Some(decoded)) => {
                out.push(decoded);
                rest = &after[2..];
            }
            (b'+', None) => out.push(b' '),
            (byte, None) => out.push(byte),
        }
    }
    out
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()
}

/// Whether at most `edits` insertions, deletions and replacements of a byte lie between two texts.
fn is_similar(a: &[u8], b: &[u8], edits: usize) -> bool {
    if a.len().abs_diff(b.len()) > edits {
        return false;
    }
    // Bound: the distance takes the product of the lengths, for every key.
    if a.len() > SIMILAR_BYTES_MAX || b.len() > SIMILAR_BYTES_MAX {
        return a == b;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (at, from) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (to_at, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[to_at + 1];
            row[to_at + 1] = replaced.min(diagonal + 1).min(row[to_at] + 1);
        }
    }
    row[b.len()] <= edits
}

/// A value within a pipeline of filters.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FilterValue {
    /// A text of any bytes.
    Text(Vec<u8>),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Float(f64),
    /// The result of a predicate.
    Truth(bool),
}

impl FilterValue {
    /// The value of an argument; `None`: no key can be one.
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        Some(match value {
            Value::String(text) => Self::Text(text.clone().into_bytes()),
            Value::Bool(truth) => Self::Truth(*truth),
            Value::Number(number) => match number.as_i64() {
                Some(integer) => Self::Integer(integer),
                None => Self::Float(number.as_f64().filter(|float| float.is_finite())?),
            },
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        })
    }

    /// The value as text.
    pub(super) fn text(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone(),
            Self::Integer(integer) => integer.to_string().into_bytes(),
            Self::Float(float) => float_text(*float).into_bytes(),
            Self::Truth(truth) => truth.to_string().into_bytes(),
        }
    }

    /// The order of Erlang: numbers, truth, texts.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        use FilterValue::{Float, Integer, Text, Truth};
        match (self, other) {
            (Integer(a), Integer(b)) => a.cmp(b),
            (Integer(a), Float(b)) => (*a as f64).total_cmp(b),
            (Float(a), Integer(b)) => a.total_cmp(&(*b as f64)),
            (Float(a), Float(b)) => a.total_cmp(b),
            (Truth(a), Truth(b)) => a.cmp(b),
            (Text(a), Text(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Integer(_) | Self::Float(_) => 0,
            Self::Truth(_) => 1,
            Self::Text(_) => 2,
        }
    }
}

/// A float as Erlang writes it: 20 digits and an exponent.
pub(super) fn float_text(float: f64) -> String {
    let text = format!("{float:.20e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod filter_value_tests {
    use super::*;

    #[test]
    fn the_order_is_erlangs() {
        let ordered = [
            FilterValue::Float(-0.5),
            FilterValue::Integer(1),
            FilterValue::Float(1.5),
            FilterValue::Integer(2),
            FilterValue::Truth(false),
            FilterValue::Truth(true),
            FilterValue::Text(Vec::new()),
            FilterValue::Text(b"10".to_vec()),
            FilterValue::Text(b"2".to_vec()),
        ];
        assert!(ordered.is_sorted_by(|a, b| a.order(b) == Ordering::Less));
    }

    #[test]
    fn floats_are_written_with_an_exponent() {
        assert_eq!(float_text(1.5), "1.50000000000000000000e+00");
        assert_eq!(float_text(-0.25), "-2.50000000000000000000e-01");
        assert_eq!(float_text(1e100).split_once('e').unwrap().1, "+100");
    }
}
