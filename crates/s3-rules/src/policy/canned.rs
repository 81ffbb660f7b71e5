//! The policies that every store has by the names of MinIO, and the names of those that an administrator makes.

use super::PolicyError;

/// Longest name of a policy or a group, in characters.
const NAME_MAX: usize = 128;

/// The canned policies with their documents. `consoleAdmin` allows everything in S3: administration is no part of S3 here.
const CANNED: &[(&str, &str)] = &[
    (
        "consoleAdmin",
        r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:*"],"Resource":["arn:aws:s3:::*"]}]}"#,
    ),
    (
        "readonly",
        r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetBucketLocation","s3:GetObject"],"Resource":["arn:aws:s3:::*"]}]}"#,
    ),
    (
        "readwrite",
        r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:*"],"Resource":["arn:aws:s3:::*"]}]}"#,
    ),
    (
        "writeonly",
        r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:PutObject"],"Resource":["arn:aws:s3:::*"]}]}"#,
    ),
];

/// A canned policy of MinIO about what S3 does not have, with the reason of its refusal.
const NOT_OFFERED: (&str, &str) = (
    "diagnostics",
    "The policy diagnostics of MinIO allows calls of its admin API alone, which is not offered: see kv-admin.",
);

/// The document of the canned policy of this name.
#[must_use]
pub fn canned_document(name: &str) -> Option<&'static str> {
    CANNED.iter().find(|(canned, _)| *canned == name).map(|(_, document)| *document)
}

/// The names of the canned policies.
pub fn canned_names() -> impl Iterator<Item = &'static str> {
    CANNED.iter().map(|(name, _)| *name)
}

/// Checks the name of a policy that is to be made.
///
/// # Errors
/// [`PolicyError`] for a name of no policy, and for that of a canned one.
pub fn check_new_policy_name(name: &str) -> Result<(), PolicyError> {
    check_offered(name)?;
    if canned_document(name).is_some() {
        return Err(PolicyError { message: format!("The policy {name} is built in: choose another name.") });
    }
    if is_valid_iam_name(name) { Ok(()) } else { Err(PolicyError { message: invalid_name("a policy") }) }
}

/// Refuses the canned policy of MinIO that is not offered.
///
/// # Errors
/// [`PolicyError`] with the reason.
pub fn check_offered(name: &str) -> Result<(), PolicyError> {
    let (refused, message) = NOT_OFFERED;
    if name == refused { Err(PolicyError { message: message.to_owned() }) } else { Ok(()) }
}

/// Whether this can be the name of a policy or a group, as in IAM.
#[must_use]
pub fn is_valid_iam_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte);
    // An option of a command begins with a hyphen.
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('-')
}

/// The refusal of such a name.
#[must_use]
pub fn invalid_name(what: &str) -> String {
    format!(
        "The name of {what} has 1 to {NAME_MAX} letters, digits and characters of +=,.@_-, and begins with no hyphen."
    )
}

#[cfg(test)]
mod tests {
    use super::super::IdentityPolicy;
    use super::*;

    #[test]
    fn canned_policies_are_policies_and_nobody_may_take_their_names() {
        for name in canned_names() {
            IdentityPolicy::parse_new(canned_document(name).unwrap()).expect(name);
            assert!(check_new_policy_name(name).is_err() && is_valid_iam_name(name), "{name}");
        }
        assert!(check_new_policy_name("diagnostics").is_err() && check_offered("diagnostics").is_err());
        assert_eq!(canned_document("diagnostics"), None);
    }

    #[test]
    fn names_are_those_of_iam() {
        for good in ["a", "app-1", "Team+Tea=Milk,x.y@z_w", &"a".repeat(128)] {
            assert!(is_valid_iam_name(good) && check_new_policy_name(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a/b", "é", "--json", "a\n", &"a".repeat(129)] {
            assert!(!is_valid_iam_name(bad) && check_new_policy_name(bad).is_err(), "{bad}");
        }
    }
}
