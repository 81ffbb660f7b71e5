//! Conditions of statements: operators, and the values that they compare.

use std::net::IpAddr;

use larder_rows::ip_network::IpNetwork;
use serde_json::Value as Json;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime, PrimitiveDateTime};

use super::context::{ConditionContext, is_existing_tag};
use super::pattern::{Pattern, PatternSyntax};

/// One condition key under one operator.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PolicyCondition {
    /// The condition key, in lower case.
    key: String,
    operator: ConditionOperator,
    /// Whether the operator is a `Not` operator.
    negated: bool,
    /// Whether the condition also holds when the request does not have the key.
    if_exists: bool,
    quantifier: Quantifier,
    /// The values to compare with. A match with one of them suffices.
    operands: Vec<Operand>,
}

/// How several values of a key count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Quantifier {
    /// No quantifier: some value satisfies the operator, or, for a `Not` operator, all values do.
    Plain,
    /// `ForAnyValue`: at least one value satisfies the operator.
    Any,
    /// `ForAllValues`: all values satisfy the operator, also when there are none.
    All,
}

/// The comparison of a value with an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ConditionOperator {
    Text,
    TextIgnoringCase,
    Like,
    Number(Relation),
    Date(Relation),
    Bool,
    Address,
    /// Tests whether the key is absent.
    Null,
}

/// The relation between a value and an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Relation {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A value in the policy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Operand {
    Text(Pattern),
    Number(Millionths),
    Bool(bool),
    Net(IpNetwork),
}

/// Exact millionths, of a count or of seconds since 1970.
type Millionths = i128;

/// Operators: name, comparison, and whether it is negated.
const OPERATORS: &[(&str, ConditionOperator, bool)] = &[
    ("StringEquals", ConditionOperator::Text, false),
    ("StringNotEquals", ConditionOperator::Text, true),
    ("StringEqualsIgnoreCase", ConditionOperator::TextIgnoringCase, false),
    ("StringNotEqualsIgnoreCase", ConditionOperator::TextIgnoringCase, true),
    ("StringLike", ConditionOperator::Like, false),
    ("StringNotLike", ConditionOperator::Like, true),
    ("ArnEquals", ConditionOperator::Like, false),
    ("ArnNotEquals", ConditionOperator::Like, true),
    ("ArnLike", ConditionOperator::Like, false),
    ("ArnNotLike", ConditionOperator::Like, true),
    ("NumericEquals", ConditionOperator::Number(Relation::Equal), false),
    ("NumericNotEquals", ConditionOperator::Number(Relation::Equal), true),
    ("NumericLessThan", ConditionOperator::Number(Relation::Less), false),
    ("NumericLessThanEquals", ConditionOperator::Number(Relation::LessOrEqual), false),
    ("NumericGreaterThan", ConditionOperator::Number(Relation::Greater), false),
    ("NumericGreaterThanEquals", ConditionOperator::Number(Relation::GreaterOrEqual), false),
    ("DateEquals", ConditionOperator::Date(Relation::Equal), false),
    ("DateNotEquals", ConditionOperator::Date(Relation::Equal), true),
    ("DateLessThan", ConditionOperator::Date(Relation::Less), false),
    ("DateLessThanEquals", ConditionOperator::Date(Relation::LessOrEqual), false),
    ("DateGreaterThan", ConditionOperator::Date(Relation::Greater), false),
    ("DateGreaterThanEquals", ConditionOperator::Date(Relation::GreaterOrEqual), false),
    ("Bool", ConditionOperator::Bool, false),
    ("IpAddress", ConditionOperator::Address, false),
    ("NotIpAddress", ConditionOperator::Address, true),
    ("Null", ConditionOperator::Null, false),
];

/// Keys that identify the caller or the caller's origin. A policy with fixed values for one of them is not public.
const NARROWING: &[&str] = &[
    "aws:principalaccount",
    "aws:principalarn",
    "aws:principalorgid",
    "aws:sourceaccount",
    "aws:sourcearn",
    "aws:sourceip",
    "aws:sourcevpc",
    "aws:sourcevpce",
    "aws:userid",
    "aws:username",
];

impl PolicyCondition {
    /// Parses one condition key under one operator with its values.
    ///
    /// # Errors
    /// The reason, for the client.
    pub(super) fn parse(operator: &str, key: &str, values: &Json, variables: bool) -> Result<Self, String> {
        let (quantifier, name) = split_quantifier(operator);
        let (name, if_exists) = name.strip_suffix("IfExists").map_or((name, false), |name| (name, true));
        let known = OPERATORS.iter().find(|(known, ..)| *known == name);
        let &(_, comparison, negated) = known.ok_or_else(|| format!("There is no condition operator {operator}."))?;
        // `Null` asks for the absence itself, so a default for an absent key means nothing.
        if comparison == ConditionOperator::Null && (if_exists || quantifier != Quantifier::Plain) {
            return Err(format!("There is no condition operator {operator}."));
        }
        let lower = key.to_ascii_lowercase();
        if !(lower.starts_with("aws:") || lower.starts_with("s3:")) {
            return Err(format!("There is no condition key {key}."));
        }
        let bad = || format!("The condition {operator} on {key} has a value that does not fit it.");
        let operands = match values {
            Json::Array(list) if list.is_empty() => return Err(bad()),
            Json::Array(list) => {
                list.iter().map(|value| parse_operand(value, comparison, variables)).collect::<Option<Vec<_>>>()
            }
            value => parse_operand(value, comparison, variables).map(|operand| vec![operand]),
        };
        let operands = operands.ok_or_else(bad)?;
        Ok(Self { key: lower, operator: comparison, negated, if_exists, quantifier, operands })
    }

    /// The condition key, in lower case.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// The condition keys of the variables in its values.
    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        self.operands.iter().flat_map(|operand| match operand {
            Operand::Text(pattern) => pattern.variables().collect(),
            Operand::Number(_) | Operand::Bool(_) | Operand::Net(_) => Vec::new(),
        })
    }

    /// Whether the condition holds for this request.
    pub(super) fn holds(&self, context: &ConditionContext<'_>) -> bool {
        // The tags of an object are another one's at each key.
        match self.reads(is_existing_tag) {
            true => self.is_met(context),
            false => context.context.work.decide(self, || self.is_met(context)),
        }
    }

    /// Whether it reads a condition key like this, itself or in a variable.
    pub(super) fn reads(&self, is_like: impl Fn(&str) -> bool) -> bool {
        is_like(&self.key) || self.variables().any(is_like)
    }

    fn is_met(&self, context: &ConditionContext<'_>) -> bool {
        let values = context.values(&self.key);
        if self.operator == ConditionOperator::Null {
            return self.operands.contains(&Operand::Bool(values.is_empty()));
        }
        if values.is_empty() {
            // An absent key satisfies `ForAllValues`, as in AWS; a negated test holds without a value.
            return match self.quantifier {
                Quantifier::Plain => self.if_exists || self.negated,
                Quantifier::Any => self.if_exists,
                Quantifier::All => true,
            };
        }
        let has_match = |value: &String| self.operands.iter().any(|operand| self.compare(value, operand, context));
        let satisfies = |value: &String| has_match(value) != self.negated;
        match self.quantifier {
            Quantifier::Plain if self.negated => values.iter().all(satisfies),
            Quantifier::Plain | Quantifier::Any => values.iter().any(satisfies),
            Quantifier::All => values.iter().all(satisfies),
        }
    }

    /// Whether only identified callers, or callers from known addresses, can satisfy it.
    pub(super) fn narrows_callers(&self) -> bool {
        let is_fixed = |operand: &Operand| match operand {
            Operand::Text(pattern) => pattern.is_literal(),
            Operand::Net(net) => net.is_narrow(),
            Operand::Number(_) | Operand::Bool(_) => false,
        };
        // Only a test that must hold for a fixed value limits the callers; all others may let everyone pass.
        let is_required = !self.negated && !self.if_exists && self.quantifier != Quantifier::All;
        is_required && NARROWING.contains(&self.key.as_str()) && self.operands.iter().all(is_fixed)
    }

    fn compare(&self, value: &str, operand: &Operand, context: &ConditionContext<'_>) -> bool {
        match (self.operator, operand) {
            (ConditionOperator::TextIgnoringCase, Operand::Text(pattern)) => {
                pattern.matches_ignoring_case(value.as_bytes(), context)
            }
            (_, Operand::Text(pattern)) => pattern.matches(value.as_bytes(), context),
            (ConditionOperator::Number(relation), Operand::Number(right)) => {
                parse_number(value).is_some_and(|left| relation.holds(left, *right))
            }
            (ConditionOperator::Date(relation), Operand::Number(right)) => {
                parse_date(value).is_some_and(|left| relation.holds(left, *right))
            }
            (_, Operand::Bool(right)) => parse_bool(value) == Some(*right),
            (_, Operand::Net(net)) => value.parse().is_ok_and(|address: IpAddr| net.contains(address)),
            (_, Operand::Number(_)) => false,
        }
    }
}

impl Relation {
    fn holds(self, left: Millionths, right: Millionths) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }
}

fn split_quantifier(operator: &str) -> (Quantifier, &str) {
    match operator.split_once(':') {
        Some(("ForAnyValue", name)) => (Quantifier::Any, name),
        Some(("ForAllValues", name)) => (Quantifier::All, name),
        _ => (Quantifier::Plain, operator),
    }
}

fn parse_operand(value: &Json, operator: ConditionOperator, variables: bool) -> Option<Operand> {
    let text = match value {
        Json::String(text) => text.clone(),
        Json::Bool(_) | Json::Number(_) => value.to_string(),
        _ => return None,
    };
    let pattern = |wildcards| Pattern::parse(&text, PatternSyntax { wildcards, variables });
    Some(match operator {
        ConditionOperator::Text | ConditionOperator::TextIgnoringCase => Operand::Text(pattern(false)?),
        ConditionOperator::Like => Operand::Text(pattern(true)?),
        ConditionOperator::Number(_) => Operand::Number(parse_number(&text)?),
        ConditionOperator::Date(_) => Operand::Number(parse_date(&text)?),
        ConditionOperator::Bool | ConditionOperator::Null => Operand::Bool(parse_bool(&text)?),
        ConditionOperator::Address => Operand::Net(IpNetwork::parse(&text)?),
    })
}

fn parse_bool(text: &str) -> Option<bool> {
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    if is("true") { Some(true) } else { is("false").then_some(false) }
}

/// Parses a number with at most six decimals. Millionths are exact, so no rounding makes two numbers equal.
fn parse_number(text: &str) -> Option<Millionths> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    // Bound: the product below must not overflow.
    if !digits(whole) || !digits(decimals) || whole.len() > 18 || decimals.len() > 6 {
        return None;
    }
    let millionths =
        whole.parse::<Millionths>().ok()? * 1_000_000 + format!("{decimals:0<6}").parse::<Millionths>().ok()?;
    Some(if negative { -millionths } else { millionths })
}

/// Parses a time into microseconds since 1970: ISO 8601, a year, month or day for its beginning, or seconds since 1970.
fn parse_date(text: &str) -> Option<Millionths> {
    let text = match text.len() {
        4 => &format!("{text}-01-01"),
        7 => &format!("{text}-01"),
        _ => text,
    };
    let minutes = format_description!("[year]-[month]-[day]T[hour]:[minute]Z");
    let day = format_description!("[year]-[month]-[day]");
    let moment = OffsetDateTime::parse(text, &Rfc3339)
        .or_else(|_| PrimitiveDateTime::parse(text, &minutes).map(PrimitiveDateTime::assume_utc))
        .or_else(|_| Date::parse(text, &day).map(|date| date.midnight().assume_utc()));
    match moment {
        Ok(moment) => Some(moment.unix_timestamp_nanos() / 1_000),
        Err(_) => parse_number(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact() {
        assert_eq!(parse_number("1000"), Some(1_000_000_000));
        assert_eq!(parse_number("-0.5"), Some(-500_000));
        assert_eq!(parse_number("999999999999999999.999999"), Some(999_999_999_999_999_999_999_999));
        for bad in ["", "-", ".", "1.", ".5", "+1", "1e3", "0x1", "1.0000000", "1234567890123456789", "NaN", "١"] {
            assert_eq!(parse_number(bad), None, "{bad}");
        }
    }

    #[test]
    fn dates_parse_in_all_their_forms() {
        let expected = Some(1_372_550_400_000_000);
        for same in
            ["2013-06-30T00:00:00Z", "2013-06-30T00:00Z", "2013-06-30", "2013-06-30T02:00:00.000+02:00", "1372550400"]
        {
            assert_eq!(parse_date(same), expected, "{same}");
        }
        assert_eq!(parse_date("2013"), parse_date("2013-01-01"));
        assert_eq!(parse_date("2013-06"), parse_date("2013-06-01"));
        for bad in ["", "today", "now", "2013-13-01", "2013-13", "2013-06-30T25:00:00Z"] {
            assert_eq!(parse_date(bad), None, "{bad}");
        }
    }
}
