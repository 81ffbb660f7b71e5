//! When a statement holds: operators, and what they compare.

use std::net::IpAddr;

use serde_json::Value as Json;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime, PrimitiveDateTime};

use super::context::Context;
use super::pattern::{Pattern, Syntax};

/// One key under one operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    /// The condition key, in lower case.
    key: String,
    test: Test,
    /// Whether the operator says what must not be.
    negated: bool,
    /// Whether it also holds when the request does not have the key.
    if_exists: bool,
    quantifier: Quantifier,
    /// The values to compare with: one of them has to do.
    operands: Vec<Operand>,
}

/// How the values of a key that has several count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantifier {
    /// Nothing was said: some value does what the operator says, or none does what it says must not be.
    Plain,
    /// At least one value does.
    Any,
    /// All values do, also when there is none.
    All,
}

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    Text,
    TextIgnoringCase,
    Like,
    Number(Order),
    Date(Order),
    Bool,
    Address,
    /// Whether the key is absent.
    Null,
}

/// How a value stands to the operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A value of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Operand {
    Text(Pattern),
    Number(Number),
    Bool(bool),
    Net(Net),
}

/// Millionths, exactly: of counts, or of seconds since 1970.
type Number = i128;

/// Addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Net {
    address: IpAddr,
    bits: u32,
}

/// Operators: name, comparison, and whether it is turned round.
const OPERATORS: &[(&str, Test, bool)] = &[
    ("StringEquals", Test::Text, false),
    ("StringNotEquals", Test::Text, true),
    ("StringEqualsIgnoreCase", Test::TextIgnoringCase, false),
    ("StringNotEqualsIgnoreCase", Test::TextIgnoringCase, true),
    ("StringLike", Test::Like, false),
    ("StringNotLike", Test::Like, true),
    ("ArnEquals", Test::Like, false),
    ("ArnNotEquals", Test::Like, true),
    ("ArnLike", Test::Like, false),
    ("ArnNotLike", Test::Like, true),
    ("NumericEquals", Test::Number(Order::Equal), false),
    ("NumericNotEquals", Test::Number(Order::Equal), true),
    ("NumericLessThan", Test::Number(Order::Less), false),
    ("NumericLessThanEquals", Test::Number(Order::LessOrEqual), false),
    ("NumericGreaterThan", Test::Number(Order::Greater), false),
    ("NumericGreaterThanEquals", Test::Number(Order::GreaterOrEqual), false),
    ("DateEquals", Test::Date(Order::Equal), false),
    ("DateNotEquals", Test::Date(Order::Equal), true),
    ("DateLessThan", Test::Date(Order::Less), false),
    ("DateLessThanEquals", Test::Date(Order::LessOrEqual), false),
    ("DateGreaterThan", Test::Date(Order::Greater), false),
    ("DateGreaterThanEquals", Test::Date(Order::GreaterOrEqual), false),
    ("Bool", Test::Bool, false),
    ("IpAddress", Test::Address, false),
    ("NotIpAddress", Test::Address, true),
    ("Null", Test::Null, false),
];

/// Keys that say who or from where a caller is; a policy with fixed values for one of them is not for the public.
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

impl Condition {
    /// Reads one key under one operator with its values.
    ///
    /// # Errors
    /// What is wrong, for the client.
    pub(super) fn parse(operator: &str, key: &str, values: &Json, variables: bool) -> Result<Self, String> {
        let (quantifier, name) = quantified(operator);
        let (name, if_exists) = name.strip_suffix("IfExists").map_or((name, false), |name| (name, true));
        let known = OPERATORS.iter().find(|(known, ..)| *known == name);
        let &(_, test, negated) = known.ok_or_else(|| format!("There is no condition operator {operator}."))?;
        if test == Test::Null && (if_exists || quantifier != Quantifier::Plain) {
            return Err(format!("There is no condition operator {operator}."));
        }
        let lower = key.to_ascii_lowercase();
        if !(lower.starts_with("aws:") || lower.starts_with("s3:")) {
            return Err(format!("There is no condition key {key}."));
        }
        let bad = || format!("The condition {operator} on {key} has a value that does not fit it.");
        let operands = match values {
            Json::Array(list) if list.is_empty() => return Err(bad()),
            Json::Array(list) => list.iter().map(|value| operand(value, test, variables)).collect::<Option<Vec<_>>>(),
            one => operand(one, test, variables).map(|operand| vec![operand]),
        };
        let operands = operands.ok_or_else(bad)?;
        Ok(Self { key: lower, test, negated, if_exists, quantifier, operands })
    }

    /// Whether it holds for this request.
    pub(super) fn holds(&self, context: &Context<'_>) -> bool {
        let values = context.values(&self.key);
        if self.test == Test::Null {
            return self.operands.contains(&Operand::Bool(values.is_empty()));
        }
        if values.is_empty() {
            return match self.quantifier {
                Quantifier::Plain => self.if_exists || self.negated,
                Quantifier::Any => self.if_exists,
                Quantifier::All => true,
            };
        }
        let equal = |value: &String| self.operands.iter().any(|operand| self.compares(value, operand, context));
        let does = |value: &String| equal(value) != self.negated;
        match self.quantifier {
            Quantifier::Plain if self.negated => values.iter().all(does),
            Quantifier::Plain | Quantifier::Any => values.iter().any(does),
            Quantifier::All => values.iter().all(does),
        }
    }

    /// Whether only callers known by who or where they are can meet it.
    pub(super) fn narrows_callers(&self) -> bool {
        let fixed = |operand: &Operand| match operand {
            Operand::Text(pattern) => pattern.is_literal(),
            Operand::Net(net) => net.is_narrow(),
            Operand::Number(_) | Operand::Bool(_) => false,
        };
        let demanded = !self.negated && !self.if_exists && self.quantifier != Quantifier::All;
        demanded && NARROWING.contains(&self.key.as_str()) && self.operands.iter().all(fixed)
    }

    fn compares(&self, value: &str, operand: &Operand, context: &Context<'_>) -> bool {
        match (self.test, operand) {
            (Test::TextIgnoringCase, Operand::Text(pattern)) => pattern.fits_ignoring_case(value.as_bytes(), context),
            (_, Operand::Text(pattern)) => pattern.fits(value.as_bytes(), context),
            (Test::Number(order), Operand::Number(right)) => number(value).is_some_and(|left| order.is(left, *right)),
            (Test::Date(order), Operand::Number(right)) => date(value).is_some_and(|left| order.is(left, *right)),
            (_, Operand::Bool(right)) => boolean(value) == Some(*right),
            (_, Operand::Net(net)) => value.parse().is_ok_and(|address: IpAddr| net.holds(address)),
            (_, Operand::Number(_)) => false,
        }
    }
}

impl Order {
    fn is(self, left: Number, right: Number) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }
}

impl Net {
    /// `10.0.0.0/8`, `2001:db8::/32`, or one address.
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
            None => most,
        };
        (bits <= most).then_some(Self { address, bits })
    }

    fn holds(self, other: IpAddr) -> bool {
        let differ =
            |left: u128, right: u128, most: u32| (left ^ right).checked_shr(most - self.bits).unwrap_or(0) != 0;
        match (self.address, other.to_canonical()) {
            (IpAddr::V4(left), IpAddr::V4(right)) => {
                !differ(u128::from(left.to_bits()), u128::from(right.to_bits()), 32)
            }
            (IpAddr::V6(left), IpAddr::V6(right)) => !differ(left.to_bits(), right.to_bits(), 128),
            _ => false,
        }
    }

    /// Whether it is a small part of all addresses, by AWS's measure.
    fn is_narrow(self) -> bool {
        self.bits >= if self.address.is_ipv4() { 8 } else { 32 }
    }
}

fn quantified(operator: &str) -> (Quantifier, &str) {
    match operator.split_once(':') {
        Some(("ForAnyValue", name)) => (Quantifier::Any, name),
        Some(("ForAllValues", name)) => (Quantifier::All, name),
        _ => (Quantifier::Plain, operator),
    }
}

fn operand(value: &Json, test: Test, variables: bool) -> Option<Operand> {
    let text = match value {
        Json::String(text) => text.clone(),
        Json::Bool(_) | Json::Number(_) => value.to_string(),
        _ => return None,
    };
    let pattern = |wildcards| Pattern::parse(&text, Syntax { wildcards, variables });
    Some(match test {
        Test::Text | Test::TextIgnoringCase => Operand::Text(pattern(false)?),
        Test::Like => Operand::Text(pattern(true)?),
        Test::Number(_) => Operand::Number(number(&text)?),
        Test::Date(_) => Operand::Number(date(&text)?),
        Test::Bool | Test::Null => Operand::Bool(boolean(&text)?),
        Test::Address => Operand::Net(Net::parse(&text)?),
    })
}

fn boolean(text: &str) -> Option<bool> {
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    if is("true") { Some(true) } else { is("false").then_some(false) }
}

/// A number with at most six decimals, in millionths: no rounding can make two of them equal.
fn number(text: &str) -> Option<Number> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || whole.len() > 18 || decimals.len() > 6 {
        return None;
    }
    let millionths = whole.parse::<Number>().ok()? * 1_000_000 + format!("{decimals:0<6}").parse::<Number>().ok()?;
    Some(if negative { -millionths } else { millionths })
}

/// A moment, in microseconds since 1970: ISO 8601, also a day, month or year at its beginning, or seconds.
fn date(text: &str) -> Option<Number> {
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
        Err(_) => number(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact() {
        assert_eq!(number("1000"), Some(1_000_000_000));
        assert_eq!(number("-0.5"), Some(-500_000));
        assert_eq!(number("999999999999999999.999999"), Some(999_999_999_999_999_999_999_999));
        for bad in ["", "-", ".", "1.", ".5", "+1", "1e3", "0x1", "1.0000000", "1234567890123456789", "NaN", "١"] {
            assert_eq!(number(bad), None, "{bad}");
        }
    }

    #[test]
    fn dates_in_all_their_forms() {
        let expected = Some(1_372_550_400_000_000);
        for same in
            ["2013-06-30T00:00:00Z", "2013-06-30T00:00Z", "2013-06-30", "2013-06-30T02:00:00.000+02:00", "1372550400"]
        {
            assert_eq!(date(same), expected, "{same}");
        }
        assert_eq!((date("2013"), date("2013-06")), (date("2013-01-01"), date("2013-06-01")));
        for bad in ["", "today", "now", "2013-13-01", "2013-13", "2013-06-30T25:00:00Z"] {
            assert_eq!(date(bad), None, "{bad}");
        }
    }

    #[test]
    fn nets() {
        let holds = |net: &str, address: &str| Net::parse(net).unwrap().holds(address.parse().unwrap());
        for (net, address) in [
            ("10.0.0.0/8", "10.255.0.1"),
            ("10.1.2.3/8", "10.9.9.9"),
            ("10.1.2.3", "10.1.2.3"),
            ("10.1.2.3", "::ffff:10.1.2.3"),
            ("0.0.0.0/0", "1.2.3.4"),
            ("::/0", "2001:db8::1"),
            ("2001:db8::/32", "2001:db8:ffff::"),
            ("::1", "::1"),
        ] {
            assert!(holds(net, address), "{net} {address}");
        }
        for (net, address) in [
            ("10.0.0.0/8", "11.0.0.0"),
            ("10.1.2.3/32", "10.1.2.2"),
            ("10.1.2.3/31", "10.1.2.1"),
            ("0.0.0.0/0", "::1"),
            ("::/0", "1.2.3.4"),
            ("2001:db8::/32", "2001:db9::"),
        ] {
            assert!(!holds(net, address), "{net} {address}");
        }
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8", "10.0.0/8", "a", "10.0.0.0/8/8"] {
            assert_eq!(Net::parse(bad), None, "{bad}");
        }
    }
}
