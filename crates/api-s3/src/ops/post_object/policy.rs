//! The POST policy: what the signer of a form allows in its fields.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_rows::Timestamp;
use larder_s3_rules::dates;
use serde_json::Value as Json;

use super::form::FormFields;
use crate::errors::{Code, S3Error};

/// Fields that need no condition.
const FREE: &[&str] = &["policy", "signature", "awsaccesskeyid", "x-amz-signature", "file"];

/// The permitted length of the file in bytes, bounds included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SizeRange {
    /// Least length.
    pub(super) least: u64,
    /// Greatest length.
    pub(super) most: u64,
}

/// A parsed policy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PostPolicy {
    expires: Timestamp,
    conditions: Vec<FieldCondition>,
    range: Option<SizeRange>,
}

/// A condition on a field; names are in lower case.
#[derive(Debug, PartialEq, Eq)]
enum FieldCondition {
    Is(String, String),
    StartsWith(String, String),
    /// A name without its `$`: AWS keeps the condition, which no form meets.
    Unmet {
        operator: &'static str,
        name: String,
        value: String,
    },
}

impl PostPolicy {
    /// Parses a policy, JSON in base64.
    ///
    /// # Errors
    /// 400 `InvalidPolicyDocument`.
    pub(super) fn parse(text: &str) -> Result<Self, S3Error> {
        let plain: String = text.chars().filter(|char| !char.is_ascii_whitespace()).collect();
        let json = STANDARD.decode(plain).map_err(|_| bad("Invalid Policy: it is not base64."))?;
        let json: Json = serde_json::from_slice(&json).map_err(|_| bad("Invalid Policy: Invalid JSON."))?;
        let expires = json.get("expiration").and_then(Json::as_str);
        let expires = expires.ok_or_else(|| bad("Policy missing expiration."))?;
        let expires = dates::parse_iso(expires).ok_or_else(|| bad("Invalid Policy: Invalid 'expiration' value."))?;
        let list = json.get("conditions").and_then(Json::as_array).ok_or_else(|| bad("Policy missing conditions."))?;
        let mut policy = Self { expires, conditions: Vec::new(), range: None };
        for condition in list {
            policy.add(condition).ok_or_else(|| bad("Invalid Policy: Invalid Simple-Condition."))?;
        }
        Ok(policy)
    }

    fn add(&mut self, condition: &Json) -> Option<()> {
        if let Some(pairs) = condition.as_object().filter(|pairs| !pairs.is_empty()) {
            // Names of fields are matched in lower case, as the form's are.
            for (name, value) in pairs {
                self.conditions.push(FieldCondition::Is(name.to_lowercase(), text(value)?));
            }
            return Some(());
        }
        let [operator, first, second] = condition.as_array()?.as_slice() else { return None };
        let condition = |operator, make: fn(String, String) -> FieldCondition| {
            let (given, value) = (first.as_str()?, text(second)?);
            Some(match given.strip_prefix('$') {
                Some(name) => make(name.to_lowercase(), value),
                None => FieldCondition::Unmet { operator, name: given.to_owned(), value },
            })
        };
        match operator.as_str()?.to_lowercase().as_str() {
            "eq" => self.conditions.push(condition("eq", FieldCondition::Is)?),
            "starts-with" => self.conditions.push(condition("starts-with", FieldCondition::StartsWith)?),
            "content-length-range" => {
                let (least, most) = (number(first)?, number(second)?);
                let range = (least <= most).then_some(SizeRange { least, most })?;
                // Several ranges all apply.
                let before = self.range.unwrap_or(range);
                self.range = Some(SizeRange { least: least.max(before.least), most: most.min(before.most) });
            }
            _ => return None,
        }
        Some(())
    }

    /// Checks the fields; the key includes the substituted file name. Returns the permitted length of the file.
    ///
    /// # Errors
    /// 403 `AccessDenied` if the policy has expired, a condition fails, or a field has no condition.
    pub(super) fn check(
        &self,
        fields: &FormFields,
        bucket: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<SizeRange>, S3Error> {
        if now > self.expires {
            return Err(denied("Invalid according to Policy: Policy expired."));
        }
        let value = |name: &str| match name {
            "bucket" => Some(bucket),
            "key" => Some(key),
            name => fields.get(name),
        };
        let fails = |condition: &&FieldCondition| match condition {
            FieldCondition::Is(name, expected) => value(name).unwrap_or_default() != expected,
            FieldCondition::StartsWith(name, start) => !value(name).unwrap_or_default().starts_with(start.as_str()),
            FieldCondition::Unmet { .. } => true,
        };
        if let Some(condition) = self.conditions.iter().find(fails) {
            return Err(denied(format!("Invalid according to Policy: Policy Condition failed: {}", condition.shown())));
        }
        let free = |name: &str| FREE.contains(&name) || name.starts_with("x-ignore-");
        let named = |name: &str| self.conditions.iter().any(|condition| condition.field() == Some(name));
        // The bucket counts as a field: a policy signed for one bucket must not be valid for all buckets of the signer.
        let mut names = std::iter::once("bucket").chain(fields.iter().map(|(name, _)| name));
        if let Some(name) = names.find(|name| !free(name) && !named(name)) {
            return Err(denied(format!("Invalid according to Policy: Extra input fields: {name}")));
        }
        Ok(self.range)
    }
}

impl FieldCondition {
    /// The field that it is about.
    fn field(&self) -> Option<&str> {
        match self {
            Self::Is(name, _) | Self::StartsWith(name, _) => Some(name),
            Self::Unmet { .. } => None,
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Is(name, value) => format!("[\"eq\", \"${name}\", \"{value}\"]"),
            Self::StartsWith(name, value) => format!("[\"starts-with\", \"${name}\", \"{value}\"]"),
            Self::Unmet { operator, name, value } => format!("[\"{operator}\", \"{name}\", \"{value}\"]"),
        }
    }
}

fn text(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn number(value: &Json) -> Option<u64> {
    text(value)?.trim().parse().ok()
}

fn bad(message: &'static str) -> S3Error {
    S3Error::new(Code::InvalidPolicyDocument, message)
}

fn denied(message: impl Into<std::borrow::Cow<'static, str>>) -> S3Error {
    S3Error::new(Code::AccessDenied, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(json: &str) -> Result<PostPolicy, &'static str> {
        PostPolicy::parse(&STANDARD.encode(json)).map_err(|error| error.code.name())
    }

    fn with(conditions: &str) -> Result<PostPolicy, &'static str> {
        parsed(&format!("{{\"expiration\":\"2030-01-01T00:00:00Z\",\"conditions\":[{conditions}]}}"))
    }

    #[test]
    fn invalid_policies_are_refused() {
        for json in [
            "",
            "[]",
            "{}",
            r#"{"expiration":"2030-01-01T00:00:00Z"}"#,
            r#"{"EXPIRATION":"2030-01-01T00:00:00Z","conditions":[]}"#,
            r#"{"expiration":"2030-01-01T00:00:00Z","CONDITIONS":[]}"#,
            r#"{"expiration":"soon","conditions":[]}"#,
            r#"{"expiration":7,"conditions":[]}"#,
        ] {
            assert_eq!(parsed(json), Err("InvalidPolicyDocument"), "{json}");
        }
        for condition in [
            "{}",
            "7",
            r#"["eq","$key"]"#,
            r#"["like","$key","k"]"#,
            r#"["content-length-range",-1,5]"#,
            r#"["content-length-range",5]"#,
            r#"["content-length-range",5,4]"#,
            r#"{"key":["k"]}"#,
        ] {
            assert_eq!(with(condition), Err("InvalidPolicyDocument"), "{condition}");
        }
        assert_eq!(PostPolicy::parse("%").unwrap_err().code.name(), "InvalidPolicyDocument");
    }

    #[test]
    fn every_condition_must_be_met() {
        let policy = with(
            r#"{"bucket":"b"},["starts-with","$Key","foo"],{"acl":"private"},["EQ","$Content-Type","text/plain"],
               ["content-length-range","1",1024]"#,
        )
        .unwrap();
        let check = |fields: &[(&str, &str)], bucket: &str, key: &str, now| {
            let outcome = policy.check(&FormFields::fixed(fields, ""), bucket, key, now);
            outcome.map_err(|error| (error.code.name(), error.message.into_owned()))
        };
        let good: &[(&str, &str)] =
            &[("key", "foo"), ("acl", "private"), ("content-type", "text/plain"), ("policy", "p"), ("x-ignore-a", "")];
        assert_eq!(check(good, "b", "foo.txt", Timestamp::ZERO), Ok(Some(SizeRange { least: 1, most: 1024 })));
        let refused = |outcome: Result<_, (&'static str, String)>, words: &str| {
            let (code, message) = outcome.unwrap_err();
            assert!(code == "AccessDenied" && message.contains(words), "{code} {message}");
        };
        refused(check(good, "c", "foo", Timestamp::ZERO), "[\"eq\", \"$bucket\", \"b\"]");
        refused(check(good, "b", "bar", Timestamp::ZERO), "[\"starts-with\", \"$key\", \"foo\"]");
        refused(check(&good[..2], "b", "foo", Timestamp::ZERO), "$content-type");
        refused(
            check(&[good, &[("x-amz-meta-a", "")]].concat(), "b", "foo", Timestamp::ZERO),
            "Extra input fields: x-amz-meta-a",
        );
        refused(check(good, "b", "foo", Timestamp::MAX), "expired");
    }

    #[test]
    fn a_condition_on_a_name_without_its_dollar_is_met_by_no_form() {
        let fields = FormFields::fixed(&[("key", "k")], "");
        for condition in [r#"["eq", "key", "k"]"#, r#"["starts-with", "key", ""]"#] {
            let refused = with(condition).unwrap().check(&fields, "b", "k", Timestamp::ZERO).unwrap_err();
            assert_eq!(refused.code.name(), "AccessDenied");
            assert!(refused.message.ends_with(condition), "{}", refused.message);
        }
    }

    #[test]
    fn a_policy_without_a_bucket_is_valid_for_none() {
        let fields = FormFields::fixed(&[("key", "k")], "");
        let outcome = |conditions: &str| {
            let outcome = with(conditions).unwrap().check(&fields, "b", "k", Timestamp::ZERO);
            outcome.map_err(|error| (error.code.name(), error.message.into_owned()))
        };
        let (code, message) = outcome(r#"["starts-with","$key",""]"#).unwrap_err();
        assert!(code == "AccessDenied" && message.ends_with("Extra input fields: bucket"), "{message}");
        assert_eq!(outcome(r#"["starts-with","$key",""],["starts-with","$bucket",""]"#), Ok(None));
    }

    #[test]
    fn several_length_ranges_all_apply() {
        let policy = with(r#"["content-length-range",0,10],["content-length-range",5,9000]"#).unwrap();
        assert_eq!(policy.range, Some(SizeRange { least: 5, most: 10 }));
    }

    proptest! {
        #[test]
        fn any_policy_is_read_or_refused(text: String, condition: String) {
            let _ = (PostPolicy::parse(&text), parsed(&text), with(&condition));
        }
    }
}
