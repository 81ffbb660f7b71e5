//! The principals of a statement.

use serde_json::Value as Json;

use super::super::user::User;

/// The callers that a statement applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Principals {
    named: Vec<Principal>,
    /// Whether the statement applies to all callers but these: `NotPrincipal`.
    negated: bool,
}

/// A principal of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Principal {
    /// All callers, anonymous ones included.
    Everybody,
    /// A user by canonical id or access key id.
    Id(String),
    /// A user by the name after `user/` in an ARN: the e-mail address or one of the ids.
    User(String),
}

impl Principals {
    /// Parses the value of `Principal`, or of `NotPrincipal` if `negated`. `None` for an unknown or empty form.
    pub(super) fn parse(json: &Json, negated: bool) -> Option<Self> {
        let named = match json {
            Json::String(text) if text == "*" => vec![Principal::Everybody],
            Json::Object(kinds) if !kinds.is_empty() => {
                let each = kinds.iter().map(|(kind, value)| parse_kind(kind, value));
                each.collect::<Option<Vec<_>>>()?.concat()
            }
            _ => return None,
        };
        Some(Self { named, negated })
    }

    /// All callers, anonymous ones included.
    pub(super) fn everybody() -> Self {
        Self { named: vec![Principal::Everybody], negated: false }
    }

    /// Whether the statement applies to `user` (`None`: anonymous).
    pub(super) fn include(&self, user: Option<&User>) -> bool {
        self.named.iter().any(|principal| principal.is(user)) != self.negated
    }

    /// Whether it is a `NotPrincipal`.
    pub(super) fn is_negated(&self) -> bool {
        self.negated
    }

    /// Whether it includes anonymous callers.
    pub(super) fn is_public(&self) -> bool {
        self.negated || self.named.contains(&Principal::Everybody)
    }
}

impl Principal {
    fn is(&self, user: Option<&User>) -> bool {
        match (self, user) {
            (Self::Everybody, _) => true,
            (_, None) => false,
            (Self::Id(id), Some(user)) => *id == user.id || user.key_ids().any(|key_id| key_id == id),
            // Never by the user's name: names are not unique, so two users would share a right.
            (Self::User(name), Some(user)) => {
                *name == user.id || user.key_ids().any(|key_id| key_id == name) || user.trusted_email() == Some(name)
            }
        }
    }
}

fn parse_kind(kind: &str, value: &Json) -> Option<Vec<Principal>> {
    let read: fn(&str) -> Option<Principal> = match kind {
        "AWS" => parse_aws,
        "CanonicalUser" => |text| is_exact(text).then(|| Principal::Id(text.to_owned())),
        _ => return None,
    };
    match value {
        Json::String(text) => Some(vec![read(text)?]),
        Json::Array(list) if !list.is_empty() => list.iter().map(|item| read(item.as_str()?)).collect(),
        _ => None,
    }
}

/// `*`, an ARN of a user or an account, or an id.
fn parse_aws(text: &str) -> Option<Principal> {
    if text == "*" {
        return Some(Principal::Everybody);
    }
    if !text.starts_with("arn:") {
        return is_exact(text).then(|| Principal::Id(text.to_owned()));
    }
    let mut fields = text.splitn(6, ':');
    let (_, partition, service, _) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let (account, resource) = (fields.next()?, fields.next()?);
    if !partition.starts_with("aws") || service != "iam" || !is_exact(resource) {
        return None;
    }
    match resource.strip_prefix("user/") {
        // A path may precede the name.
        Some(name) => {
            let name = name.rsplit('/').next().filter(|name| !name.is_empty())?;
            Some(Principal::User(name.to_owned()))
        }
        None => (resource == "root" && is_exact(account)).then(|| Principal::Id(account.to_owned())),
    }
}

/// Whether the text names one principal. IAM does not expand wildcards in names, so a name with one is refused.
fn is_exact(text: &str) -> bool {
    !text.is_empty() && !text.contains(['*', '?'])
}
