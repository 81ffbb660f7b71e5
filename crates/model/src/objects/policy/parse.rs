//! The JSON of a policy, statement by statement.

use serde_json::{Map, Value as Json};

use crate::limits::POLICY_BYTES_MAX;

use super::condition::Condition;
use super::distinct::Distinct;
use super::pattern::{Pattern, Syntax, simple_fits};
use super::principal::Principals;
use super::{Matcher, PolicyError, Statement};

/// What a document may have.
const DOCUMENT: &[&str] = &["Version", "Id", "Statement"];

/// What a statement may have.
const STATEMENT: &[&str] =
    &["Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition"];

/// Actions that are about no bucket, so that no bucket's policy can be about them.
const FOREIGN_ACTIONS: &[&str] = &["s3:CreateBucket", "s3:ListAllMyBuckets"];

type Object = Map<String, Json>;
type Result<T> = std::result::Result<T, PolicyError>;

/// The statements of a policy for `bucket`.
pub(super) fn statements(bucket: &str, text: &str) -> Result<Vec<Statement>> {
    if text.len() > POLICY_BYTES_MAX {
        return fault(format!("A policy may have at most {POLICY_BYTES_MAX} bytes."));
    }
    let Ok(Json::Object(document)) = serde_json::from_str(text) else {
        return fault("A policy is a JSON object; this is none.");
    };
    if let Err(error) = serde_json::from_str::<Distinct>(text) {
        return fault(format!("In a policy every name is there once: {error}."));
    }
    only(&document, DOCUMENT)?;
    let variables = match document.get("Version") {
        None => false,
        Some(Json::String(version)) if version == "2008-10-17" => false,
        Some(Json::String(version)) if version == "2012-10-17" => true,
        Some(_) => return fault("The Version of a policy is 2008-10-17 or 2012-10-17."),
    };
    if document.get("Id").is_some_and(|id| !id.is_string()) {
        return fault("The Id of a policy is a string.");
    }
    let list = match document.get("Statement") {
        Some(Json::Array(list)) if !list.is_empty() => list.as_slice(),
        Some(one @ Json::Object(_)) => std::slice::from_ref(one),
        _ => return fault("A policy needs a Statement, or a list of some."),
    };
    unique_names(list)?;
    let reader = Reader { bucket, variables };
    list.iter().map(|statement| reader.statement(statement)).collect()
}

/// Reads the statements of one document.
#[derive(Clone, Copy)]
struct Reader<'a> {
    bucket: &'a str,
    /// Whether `${…}` has a meaning in this version.
    variables: bool,
}

impl Reader<'_> {
    fn statement(self, json: &Json) -> Result<Statement> {
        let Json::Object(json) = json else { return fault("A Statement is a JSON object.") };
        only(json, STATEMENT)?;
        let allow = match json.get("Effect").and_then(Json::as_str) {
            Some("Allow") => true,
            Some("Deny") => false,
            _ => return fault("A Statement needs an Effect, Allow or Deny."),
        };
        let (principal, negated) = either(json, "Principal", "NotPrincipal")?;
        let Some(principals) = Principals::parse(principal, negated) else {
            return fault("A Principal of the policy is not valid.");
        };
        let (actions, negated) = either(json, "Action", "NotAction")?;
        let actions = Matcher { patterns: each(actions, "Action", action)?, negated };
        let (resources, negated) = either(json, "Resource", "NotResource")?;
        let resources = Matcher { patterns: each(resources, "Resource", |text| self.resource(text))?, negated };
        let conditions = self.conditions(json.get("Condition"))?;
        Ok(Statement { allow, principals, actions, resources, conditions })
    }

    /// `arn:aws:s3:::bucket`, `arn:aws:s3:::bucket/key`, or `*`; what follows the fifth colon is the pattern.
    fn resource(self, text: &str) -> Option<Pattern> {
        let path = if text == "*" { text } else { s3_path(text)? };
        let name = path.split_once('/').map_or(path, |(name, _)| name);
        let here = name == self.bucket || simple_fits(name, self.bucket, false);
        let syntax = Syntax { wildcards: true, variables: self.variables };
        here.then(|| Pattern::parse(path, syntax)).flatten()
    }

    fn conditions(self, json: Option<&Json>) -> Result<Vec<Condition>> {
        let operators = match json {
            None => return Ok(Vec::new()),
            Some(Json::Object(operators)) => operators,
            Some(_) => return fault("A Condition is a JSON object."),
        };
        let mut conditions = Vec::new();
        for (operator, keys) in operators {
            let Json::Object(keys) = keys else {
                return fault(format!("The condition {operator} needs an object of keys and values."));
            };
            for (key, values) in keys {
                let condition = Condition::parse(operator, key, values, self.variables);
                conditions.push(condition.map_err(|message| PolicyError { message })?);
            }
        }
        Ok(conditions)
    }
}

fn s3_path(arn: &str) -> Option<&str> {
    let mut fields = arn.splitn(6, ':');
    let (arn, partition, service) = (fields.next()?, fields.next()?, fields.next()?);
    let path = fields.nth(2)?;
    (arn == "arn" && partition.starts_with("aws") && service == "s3").then_some(path)
}

/// `s3:` and letters or wildcards, or `*`.
fn action(text: &str) -> Option<Pattern> {
    let foreign = FOREIGN_ACTIONS.iter().any(|action| action.eq_ignore_ascii_case(text));
    let named = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'*' | b'?'))
    };
    let ours = text.get(..3).is_some_and(|service| service.eq_ignore_ascii_case("s3:")) && named(&text[3..]);
    let syntax = Syntax { wildcards: true, variables: false };
    (!foreign && (text == "*" || ours)).then(|| Pattern::parse(text, syntax)).flatten()
}

/// A string or a list of some, each read by `read`.
fn each(json: &Json, what: &str, read: impl Fn(&str) -> Option<Pattern>) -> Result<Vec<Pattern>> {
    let list = match json {
        Json::Array(list) if !list.is_empty() => list.as_slice(),
        one @ Json::String(_) => std::slice::from_ref(one),
        _ => return fault(format!("A Statement needs a {what}, a string or a list of some.")),
    };
    let read = |item: &Json| match item.as_str().map(|text| (text, read(text))) {
        Some((_, Some(pattern))) => Ok(pattern),
        Some((text, None)) => {
            let shown: String = text.chars().take(200).collect();
            fault(format!("The {what} {shown} cannot be in the policy of this bucket."))
        }
        None => fault(format!("A Statement needs a {what}, a string or a list of some.")),
    };
    list.iter().map(read).collect()
}

/// The value of one of two names, and whether it is the second's.
fn either<'a>(json: &'a Object, name: &str, negated: &str) -> Result<(&'a Json, bool)> {
    match (json.get(name), json.get(negated)) {
        (Some(value), None) => Ok((value, false)),
        (None, Some(value)) => Ok((value, true)),
        _ => fault(format!("A Statement needs either {name} or {negated}.")),
    }
}

fn only(json: &Object, known: &[&str]) -> Result<()> {
    match json.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(unknown) => fault(format!("A policy has no field {}.", unknown.chars().take(100).collect::<String>())),
    }
}

fn unique_names(statements: &[Json]) -> Result<()> {
    let mut names = Vec::new();
    for name in statements.iter().filter_map(|statement| statement.get("Sid")) {
        match name.as_str() {
            None => return fault("The Sid of a Statement is a string."),
            Some(name) => names.push(name),
        }
    }
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return fault("The Sids of a policy's Statements have to differ.");
    }
    Ok(())
}

fn fault<T>(message: impl Into<String>) -> Result<T> {
    Err(PolicyError { message: message.into() })
}
