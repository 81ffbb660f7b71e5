//! Whom a statement is about.

use serde_json::Value as Json;

use super::super::user::User;

/// Whom a statement is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Principals {
    named: Vec<Principal>,
    /// Whether it is about all but these.
    negated: bool,
}

/// Somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Principal {
    /// Everybody, anonymous or not.
    Everybody,
    /// By canonical id or access key id.
    Id(String),
    /// By what stands behind `user/`: e-mail address or one of the ids.
    User(String),
}

impl Principals {
    /// Reads the value of `Principal`, or of `NotPrincipal` if `negated`; `None` when it names nobody in a known way.
    pub(super) fn parse(json: &Json, negated: bool) -> Option<Self> {
        let named = match json {
            Json::String(text) if text == "*" => vec![Principal::Everybody],
            Json::Object(kinds) if !kinds.is_empty() => {
                let each = kinds.iter().map(|(kind, value)| of_kind(kind, value));
                each.collect::<Option<Vec<_>>>()?.concat()
            }
            _ => return None,
        };
        Some(Self { named, negated })
    }

    /// Whether the statement is about `user`.
    pub(super) fn include(&self, user: Option<&User>) -> bool {
        self.named.iter().any(|principal| principal.is(user)) != self.negated
    }

    /// Whether they are everybody but some.
    pub(super) fn are_all_but_some(&self) -> bool {
        self.negated
    }

    /// Whether people unknown are among them.
    pub(super) fn are_open(&self) -> bool {
        self.negated || self.named.contains(&Principal::Everybody)
    }
}

impl Principal {
    fn is(&self, user: Option<&User>) -> bool {
        match (self, user) {
            (Self::Everybody, _) => true,
            (_, None) => false,
            (Self::Id(id), Some(user)) => *id == user.id || *id == user.key_id,
            // Never by the name: people choose theirs, and not only once.
            (Self::User(name), Some(user)) => [&user.id, &user.key_id, &user.email].contains(&name),
        }
    }
}

fn of_kind(kind: &str, value: &Json) -> Option<Vec<Principal>> {
    let read: fn(&str) -> Option<Principal> = match kind {
        "AWS" => aws,
        "CanonicalUser" => |text| is_exact(text).then(|| Principal::Id(text.to_owned())),
        _ => return None,
    };
    match value {
        Json::String(text) => Some(vec![read(text)?]),
        Json::Array(list) if !list.is_empty() => list.iter().map(|item| read(item.as_str()?)).collect(),
        _ => None,
    }
}

/// `*`, an ARN of a user or an account, or an id as it is.
fn aws(text: &str) -> Option<Principal> {
    if text == "*" {
        return Some(Principal::Everybody);
    }
    if !text.starts_with("arn:") {
        return is_exact(text).then(|| Principal::Id(text.to_owned()));
    }
    let mut fields = text.splitn(6, ':');
    let (_, partition, service, _) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let (account, who) = (fields.next()?, fields.next()?);
    if !partition.starts_with("aws") || service != "iam" || !is_exact(who) {
        return None;
    }
    match who.strip_prefix("user/") {
        // A path may stand before the name.
        Some(name) => {
            let name = name.rsplit('/').next().filter(|name| !name.is_empty())?;
            Some(Principal::User(name.to_owned()))
        }
        None => (who == "root" && is_exact(account)).then(|| Principal::Id(account.to_owned())),
    }
}

/// Whether this names one somebody: wildcards would seem to mean more than they do.
fn is_exact(text: &str) -> bool {
    !text.is_empty() && !text.contains(['*', '?'])
}
