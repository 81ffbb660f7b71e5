//! A second evaluator of policies, written from AWS's published rules ("Policy evaluation logic", "IAM JSON policy elements")
//! and from nothing of the product: it reads the JSON of a policy each time, and is as slow and as plain as the rules.

#![allow(clippy::expect_used, clippy::panic, reason = "a harness fails a test by panicking")]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "numbers of tests are small")]

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value as Json;

/// The decision of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A statement denies.
    Deny,
    /// A statement allows, and none denies.
    Allow,
    /// No statement applies.
    Implicit,
}

/// A request as the rules see it.
#[derive(Debug, Clone, Default)]
pub struct RequestFacts {
    /// The names of the caller in principals; none for an anonymous one.
    pub principals: Vec<String>,
    /// `s3:…`
    pub action: String,
    /// `arn:aws:s3:::bucket/key`
    pub resource: String,
    /// The values of the context keys, by name in lower case.
    pub context: BTreeMap<String, Vec<String>>,
}

/// An explicit deny wins; else an allow; else the implicit deny.
///
/// # Panics
/// For a policy that no store takes.
#[must_use]
pub fn evaluate(policy: &Json, facts: &RequestFacts) -> Verdict {
    let variables = policy["Version"] == "2012-10-17";
    let applying: Vec<&Json> =
        list(&policy["Statement"]).into_iter().filter(|statement| applies(statement, facts, variables)).collect();
    let has = |effect: &str| applying.iter().any(|statement| statement["Effect"] == effect);
    match (has("Deny"), has("Allow")) {
        (true, _) => Verdict::Deny,
        (_, true) => Verdict::Allow,
        _ => Verdict::Implicit,
    }
}

/// Everything about the rights of a caller in one bucket without grants.
#[derive(Debug, Clone)]
pub struct Rights<'a> {
    /// The policies of the user and its groups; `None`: it has neither, and the rights of an owner.
    pub identity: Option<&'a [Json]>,
    /// The policies that bound it: of its session.
    pub boundaries: &'a [Json],
    /// The policy of the bucket.
    pub bucket: Option<&'a Json>,
    /// Whether the caller owns the bucket.
    pub is_owner: bool,
    /// Whether the caller is an administrator.
    pub is_admin: bool,
}

/// Whether a request is allowed, by the order of "Determining whether a request is allowed or denied within an account": a deny of
/// any policy ends it, then an allow of the identity or of the resource is enough, and a session has to allow it, too. Beside AWS's
/// rules stand two of this product: an owner without policies may do anything in its bucket, and one whom its policies let correct
/// the bucket's policy can do so whatever that says.
///
/// # Panics
/// For a policy that no store takes.
#[must_use]
pub fn is_allowed(rights: &Rights<'_>, facts: &RequestFacts) -> bool {
    let verdicts = |policies: &[Json]| policies.iter().map(|policy| evaluate(policy, facts)).collect::<Vec<_>>();
    let within = verdicts(rights.boundaries).iter().all(|verdict| *verdict == Verdict::Allow);
    if rights.is_admin || !within {
        return within;
    }
    let bucket = rights.bucket.map_or(Verdict::Implicit, |policy| evaluate(policy, facts));
    let identity = rights.identity.map(verdicts);
    let denied_by_identity = identity.iter().flatten().any(|verdict| *verdict == Verdict::Deny);
    let allowed_by_identity = match &identity {
        None => rights.is_owner,
        Some(verdicts) => verdicts.contains(&Verdict::Allow),
    };
    let corrects_policy = rights.is_owner && facts.action.ends_with("BucketPolicy");
    let denied = denied_by_identity || (bucket == Verdict::Deny && !(corrects_policy && allowed_by_identity));
    !denied && (allowed_by_identity || bucket == Verdict::Allow)
}

fn applies(statement: &Json, facts: &RequestFacts, variables: bool) -> bool {
    let element =
        |name: &str, matches: &dyn Fn(&str) -> bool| match (&statement[name], &statement[format!("Not{name}")]) {
            (Json::Null, negated) => !texts(negated).iter().any(|text| matches(text)),
            (plain, _) => texts(plain).iter().any(|text| matches(text)),
        };
    let principal = match (&statement["Principal"], &statement["NotPrincipal"]) {
        (Json::Null, negated) => !is_principal(negated, facts),
        (plain, _) => is_principal(plain, facts),
    };
    let action =
        element("Action", &|pattern| matches_tokens(&wildcards(&pattern.to_lowercase()), &facts.action.to_lowercase()));
    let resource = element("Resource", &|pattern| {
        tokens(pattern, true, variables, facts).is_some_and(|tokens| matches_tokens(&tokens, &facts.resource))
    });
    let conditions = statement["Condition"].as_object().into_iter().flatten();
    let mut tests = conditions.flat_map(|(operator, keys)| {
        keys.as_object().into_iter().flatten().map(move |(key, values)| (operator, key, values))
    });
    principal
        && action
        && resource
        && tests.all(|(operator, key, values)| holds((operator, key, values), facts, variables))
}

fn is_principal(principal: &Json, facts: &RequestFacts) -> bool {
    let is = |text: &str| {
        let name = text.rsplit(['/', ':']).next().unwrap_or(text);
        text == "*" || facts.principals.iter().any(|own| own == text || (text.starts_with("arn:") && own == name))
    };
    match principal {
        Json::String(text) => is(text),
        kinds => kinds.as_object().into_iter().flatten().any(|(_, value)| texts(value).iter().any(|text| is(text))),
    }
}

/// One condition: an operator, a key, and the values of which one has to match, or, under a negated operator, none.
fn holds((operator, key, operands): (&str, &str, &Json), facts: &RequestFacts, variables: bool) -> bool {
    let (set, operator) = operator.split_once(':').map_or(("", operator), |(set, operator)| (set, operator));
    let (operator, if_exists) = operator.strip_suffix("IfExists").map_or((operator, false), |plain| (plain, true));
    let values = facts.context.get(&key.to_lowercase()).cloned().unwrap_or_default();
    if operator == "Null" {
        return texts(operands).iter().any(|text| (text == "true") == values.is_empty());
    }
    let negated = operator.contains("Not");
    let positive = operator.replace("Not", "");
    let satisfies = |value: &String| {
        let matches = |operand: &String| compare(&positive, value, operand, facts, variables);
        texts(operands).iter().any(matches) != negated
    };
    match (set, values.is_empty()) {
        // "Also returns true if there are no keys in the request."
        ("ForAllValues", _) => values.iter().all(satisfies),
        // "For no matching key, the condition returns false", but IfExists passes.
        ("ForAnyValue", true) => if_exists,
        ("ForAnyValue", false) => values.iter().any(satisfies),
        // A missing key fails, unless the operator is negated or asks for it only if it exists.
        (_, true) => negated || if_exists,
        (_, false) => values.iter().any(satisfies),
    }
}

fn compare(operator: &str, value: &str, operand: &str, facts: &RequestFacts, variables: bool) -> bool {
    let text = |wildcards: bool, value: &str, operand: &str| {
        tokens(operand, wildcards, variables, facts).is_some_and(|tokens| matches_tokens(&tokens, value))
    };
    match operator {
        "StringEquals" => text(false, value, operand),
        "StringEqualsIgnoreCase" => tokens(operand, false, variables, facts).is_some_and(|tokens| {
            let lower = |token: Token| match token {
                Token::Char(one) => Token::Char(one.to_ascii_lowercase()),
                other => other,
            };
            let tokens: Vec<Token> = tokens.into_iter().map(lower).collect();
            matches_tokens(&tokens, &value.to_ascii_lowercase())
        }),
        "StringLike" => text(true, value, operand),
        "Bool" => value.eq_ignore_ascii_case(operand),
        "IpAddress" => contains(operand, value),
        _ => {
            let (number, relation) = match operator.strip_prefix("Numeric") {
                Some(relation) => (decimal as fn(&str) -> f64, relation),
                None => (seconds as fn(&str) -> f64, operator.strip_prefix("Date").expect("an operator")),
            };
            let (left, right) = (number(value), number(operand));
            match relation {
                "Equals" => (left - right).abs() < 1e-9,
                "LessThan" => left < right,
                "LessThanEquals" => left <= right,
                "GreaterThan" => left > right,
                "GreaterThanEquals" => left >= right,
                other => panic!("no operator {other}"),
            }
        }
    }
}

/// A character of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Char(char),
    One,
    Many,
}

fn wildcards(pattern: &str) -> Vec<Token> {
    let token = |one| match one {
        '*' => Token::Many,
        '?' => Token::One,
        one => Token::Char(one),
    };
    pattern.chars().map(token).collect()
}

fn literal(text: &str) -> Vec<Token> {
    text.chars().map(Token::Char).collect()
}

/// The pattern with the values of its variables, which have no wildcards; `None` when one has no value.
fn tokens(pattern: &str, with_wildcards: bool, variables: bool, facts: &RequestFacts) -> Option<Vec<Token>> {
    let plain: fn(&str) -> Vec<Token> = if with_wildcards { wildcards } else { literal };
    let Some((before, rest)) = pattern.split_once("${").filter(|_| variables) else { return Some(plain(pattern)) };
    let (name, after) = rest.split_once('}')?;
    let value = match name {
        "*" | "?" | "$" => name.to_owned(),
        name => facts.context.get(&name.to_lowercase()).filter(|values| values.len() == 1)?[0].clone(),
    };
    Some([plain(before), literal(&value), tokens(after, with_wildcards, variables, facts)?].concat())
}

/// Whether the whole text matches: by the rows of the textbook's table.
fn matches_tokens(pattern: &[Token], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let mut row = vec![false; text.len() + 1];
    row[0] = true;
    for token in pattern {
        let before = row.clone();
        row[0] = before[0] && *token == Token::Many;
        for at in 1..=text.len() {
            row[at] = match token {
                Token::Many => before[at] || row[at - 1],
                Token::One => before[at - 1],
                Token::Char(one) => before[at - 1] && *one == text[at - 1],
            };
        }
    }
    row[text.len()]
}

fn contains(net: &str, address: &str) -> bool {
    let bits = |address: &str| match address.parse().expect("an address") {
        IpAddr::V4(address) => address.octets().iter().map(|byte| format!("{byte:08b}")).collect::<String>(),
        IpAddr::V6(address) => address.octets().iter().map(|byte| format!("{byte:08b}")).collect::<String>(),
    };
    let (base, length) = net.split_once('/').map_or((net, None), |(base, length)| (base, Some(length)));
    let (base, address) = (bits(base), bits(address));
    let length = length.map_or(base.len(), |length| length.parse().expect("a length"));
    base.len() == address.len() && base[..length] == address[..length]
}

fn decimal(text: &str) -> f64 {
    text.parse().expect("a number")
}

/// Seconds since 1970 of a time in UTC, of a day, or as a number.
fn seconds(text: &str) -> f64 {
    if let Ok(number) = text.parse() {
        return number;
    }
    let (day, time) = text.split_once('T').unwrap_or((text, "00:00:00Z"));
    let fields = |text: &str, by: char| text.split(by).map(decimal).collect::<Vec<f64>>();
    let (day, time) = (fields(day, '-'), fields(time.trim_end_matches('Z'), ':'));
    days(day[0], day[1], day[2]) * 86_400.0 + time[0] * 3_600.0 + time[1] * 60.0 + time[2]
}

/// Days since 1970, counted one by one.
fn days(year: f64, month: f64, day: f64) -> f64 {
    let is_leap = |year: i64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let (year, month) = (year as i64, month as usize);
    let of_years: i64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let lengths = [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    of_years as f64 + lengths[..month - 1].iter().sum::<i64>() as f64 + day - 1.0
}

fn list(json: &Json) -> Vec<&Json> {
    json.as_array().map_or_else(|| vec![json], |list| list.iter().collect())
}

fn texts(json: &Json) -> Vec<String> {
    list(json).into_iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned)).collect()
}
