//! Parses the JSON of a policy, statement by statement.

use larder_rows::limits::POLICY_BYTES_MAX;
use serde_json::{Map, Value as Json};

use super::super::action::{ActionScope, S3Action};
use super::condition::PolicyCondition;
use super::pattern::{DistinctNames, Pattern, PatternSyntax, matches_wildcards};
use super::principal::Principals;
use super::{PatternSet, PolicyError, PolicyStatement};

/// The names that a document may have.
const DOCUMENT_NAMES: &[&str] = &["Version", "Id", "Statement"];

/// The names that a statement may have, in the policy of a bucket also those of principals.
const STATEMENT_NAMES: &[&str] = &["Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"];
const PRINCIPAL_NAMES: [&str; 2] = ["Principal", "NotPrincipal"];

type JsonObject = Map<String, Json>;
type PolicyResult<T> = Result<T, PolicyError>;

/// The things that a policy is about.
#[derive(Debug, Clone, Copy)]
pub(super) enum PolicySubject<'a> {
    /// The bucket of this name, and the principals of each statement.
    Bucket(&'a str),
    /// The requests of its caller, in all buckets. Statements have no principals.
    Caller,
}

/// Parses the statements of a policy.
pub(super) fn parse_statements(subject: PolicySubject<'_>, text: &str) -> PolicyResult<Vec<PolicyStatement>> {
    // Bound: every request to the bucket evaluates the policy.
    if text.len() > POLICY_BYTES_MAX {
        return refuse(format!("A policy may have at most {POLICY_BYTES_MAX} bytes."));
    }
    let Ok(Json::Object(document)) = serde_json::from_str(text) else {
        return refuse("A policy is a JSON object; this is none.");
    };
    // The first parser keeps the last of two equal names: a condition would be lost without this one.
    if let Err(error) = serde_json::from_str::<DistinctNames>(text) {
        return refuse(format!("In a policy every name is there once: {error}."));
    }
    check_names(&document, DOCUMENT_NAMES)?;
    let variables = match document.get("Version") {
        None => false,
        Some(Json::String(version)) if version == "2008-10-17" => false,
        Some(Json::String(version)) if version == "2012-10-17" => true,
        Some(_) => return refuse("The Version of a policy is 2008-10-17 or 2012-10-17."),
    };
    if document.get("Id").is_some_and(|id| !id.is_string()) {
        return refuse("The Id of a policy is a string.");
    }
    let list = match document.get("Statement") {
        Some(Json::Array(list)) if !list.is_empty() => list.as_slice(),
        Some(statement @ Json::Object(_)) => std::slice::from_ref(statement),
        _ => return refuse("A policy needs a Statement, or a list of some."),
    };
    check_sids(list)?;
    let parser = StatementParser { subject, variables };
    list.iter().map(|statement| parser.statement(statement)).collect()
}

/// Parses the statements of one document.
#[derive(Clone, Copy)]
struct StatementParser<'a> {
    subject: PolicySubject<'a>,
    /// Whether `${…}` is a variable in this version of the language.
    variables: bool,
}

impl StatementParser<'_> {
    fn statement(self, json: &Json) -> PolicyResult<PolicyStatement> {
        let Json::Object(json) = json else { return refuse("A Statement is a JSON object.") };
        check_names(json, &self.statement_names())?;
        let allow = match json.get("Effect").and_then(Json::as_str) {
            Some("Allow") => true,
            Some("Deny") => false,
            _ => return refuse("A Statement needs an Effect, Allow or Deny."),
        };
        let principals = self.principals(json)?;
        let (actions, negated) = either(json, "Action", "NotAction")?;
        let actions = PatternSet { patterns: self.each(actions, "Action", |text| self.action(text))?, negated };
        let (resources, negated) = either(json, "Resource", "NotResource")?;
        let resources = PatternSet { patterns: self.each(resources, "Resource", |text| self.resource(text))?, negated };
        let conditions = self.conditions(json.get("Condition"))?;
        Ok(PolicyStatement { allow, principals, actions, resources, conditions })
    }

    fn statement_names(self) -> Vec<&'static str> {
        let principals = PRINCIPAL_NAMES.iter().filter(|_| matches!(self.subject, PolicySubject::Bucket(_)));
        STATEMENT_NAMES.iter().chain(principals).copied().collect()
    }

    fn principals(self, json: &JsonObject) -> PolicyResult<Principals> {
        match self.subject {
            PolicySubject::Caller => Ok(Principals::everybody()),
            PolicySubject::Bucket(_) => {
                let (principal, negated) = either(json, "Principal", "NotPrincipal")?;
                let refused = || PolicyError { message: "A Principal of the policy is not valid.".to_owned() };
                Principals::parse(principal, negated).ok_or_else(refused)
            }
        }
    }

    /// An action: a service with letters or wildcards, or `*`. The policy of a bucket cannot name one on no bucket.
    fn action(self, text: &str) -> Option<Pattern> {
        let is_foreign =
            |action: &S3Action| action.scope() == ActionScope::Account && action.name().eq_ignore_ascii_case(text);
        let foreign = matches!(self.subject, PolicySubject::Bucket(_)) && S3Action::ALL.iter().any(is_foreign);
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'*' | b'?'))
        };
        let services: &[&str] = match self.subject {
            PolicySubject::Bucket(_) => &["s3"],
            PolicySubject::Caller => &["s3", "sts"],
        };
        let ours = text.split_once(':').is_some_and(|(service, name)| {
            services.iter().any(|known| known.eq_ignore_ascii_case(service)) && is_name(name)
        });
        let syntax = PatternSyntax { wildcards: true, variables: false };
        (!foreign && (text == "*" || ours)).then(|| Pattern::parse(text, syntax)).flatten()
    }

    /// `arn:aws:s3:::bucket`, `arn:aws:s3:::bucket/key`, or `*`. The pattern follows the fifth colon.
    fn resource(self, text: &str) -> Option<Pattern> {
        let path = if text == "*" { text } else { s3_path(text)? };
        let name = path.split_once('/').map_or(path, |(name, _)| name);
        // A policy of one bucket must not speak of others.
        let is_ours = match self.subject {
            PolicySubject::Bucket(bucket) => name == bucket || matches_wildcards(name, bucket, false),
            PolicySubject::Caller => true,
        };
        let syntax = PatternSyntax { wildcards: true, variables: self.variables };
        is_ours.then(|| Pattern::parse(path, syntax)).flatten()
    }

    /// The patterns of a string or a list of strings, each parsed by `read`.
    fn each(self, json: &Json, what: &str, read: impl Fn(&str) -> Option<Pattern>) -> PolicyResult<Vec<Pattern>> {
        let list = match json {
            Json::Array(list) if !list.is_empty() => list.as_slice(),
            value @ Json::String(_) => std::slice::from_ref(value),
            _ => return refuse(format!("A Statement needs a {what}, a string or a list of some.")),
        };
        let place = match self.subject {
            PolicySubject::Bucket(_) => "the policy of this bucket",
            PolicySubject::Caller => "a policy of users, groups or sessions",
        };
        let read = |item: &Json| match item.as_str().map(|text| (text, read(text))) {
            Some((_, Some(pattern))) => Ok(pattern),
            Some((text, None)) => {
                let shown: String = text.chars().take(200).collect();
                refuse(format!("The {what} {shown} cannot be in {place}."))
            }
            None => refuse(format!("A Statement needs a {what}, a string or a list of some.")),
        };
        list.iter().map(read).collect()
    }

    fn conditions(self, json: Option<&Json>) -> PolicyResult<Vec<PolicyCondition>> {
        let operators = match json {
            None => return Ok(Vec::new()),
            Some(Json::Object(operators)) => operators,
            Some(_) => return refuse("A Condition is a JSON object."),
        };
        let mut conditions = Vec::new();
        for (operator, keys) in operators {
            let Json::Object(keys) = keys else {
                return refuse(format!("The condition {operator} needs an object of keys and values."));
            };
            for (key, values) in keys {
                let condition = PolicyCondition::parse(operator, key, values, self.variables);
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

/// The value of exactly one of two names, and whether it is that of the second.
fn either<'a>(json: &'a JsonObject, name: &str, negated: &str) -> PolicyResult<(&'a Json, bool)> {
    match (json.get(name), json.get(negated)) {
        (Some(value), None) => Ok((value, false)),
        (None, Some(value)) => Ok((value, true)),
        _ => refuse(format!("A Statement needs either {name} or {negated}.")),
    }
}

fn check_names(json: &JsonObject, known: &[&str]) -> PolicyResult<()> {
    match json.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(unknown) => refuse(format!("A policy has no field {}.", unknown.chars().take(100).collect::<String>())),
    }
}

fn check_sids(statements: &[Json]) -> PolicyResult<()> {
    let mut names = Vec::new();
    for name in statements.iter().filter_map(|statement| statement.get("Sid")) {
        match name.as_str() {
            None => return refuse("The Sid of a Statement is a string."),
            Some(name) => names.push(name),
        }
    }
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return refuse("The Sids of a policy's Statements have to differ.");
    }
    Ok(())
}

fn refuse<T>(message: impl Into<String>) -> PolicyResult<T> {
    Err(PolicyError { message: message.into() })
}
