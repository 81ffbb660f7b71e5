//! The options of a new or altered user or group: words of the form `key=value`.

use std::fmt;

use larder_rows::limits::{ROLE_LIST_MAX, ROLE_OPTION_BYTES_MAX};

use super::SecurityRefusal;
use super::name::folded;

/// The options of a user or group.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RoleOptions {
    /// A new password, in clear.
    pub password: Option<String>,
    /// The groups that it is to be in.
    pub groups: Option<Vec<String>>,
    /// All other options, which have no effect.
    pub others: Vec<(String, String)>,
}

/// Shows no value: one of them may be a password.
impl fmt::Debug for RoleOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoleOptions").field("groups", &self.groups).finish_non_exhaustive()
    }
}

impl RoleOptions {
    /// Reads the words after a name.
    ///
    /// # Errors
    /// [`SecurityRefusal::BadOption`], [`SecurityRefusal::TooLong`], [`SecurityRefusal::TooMany`].
    pub fn parse(words: &[&str]) -> Result<Self, SecurityRefusal> {
        let mut options = Self::default();
        if words.len() > ROLE_LIST_MAX {
            return Err(SecurityRefusal::TooMany { things: "options", max: ROLE_LIST_MAX });
        }
        for word in words {
            let (key, value) = word
                .split_once('=')
                .filter(|(key, _)| !key.is_empty())
                .ok_or_else(|| SecurityRefusal::BadOption((*word).to_owned()))?;
            match key {
                "groups" => options.groups = Some(list(value)),
                _ if word.len() > ROLE_OPTION_BYTES_MAX => {
                    return Err(SecurityRefusal::TooLong("option", ROLE_OPTION_BYTES_MAX));
                }
                "password" => options.password = Some(value.to_owned()),
                _ => options.others.push((key.to_owned(), value.to_owned())),
            }
        }
        Ok(options)
    }
}

/// The names of a list with commas, in lower case.
pub(super) fn list(text: &str) -> Vec<String> {
    text.split(',').filter(|name| !name.is_empty()).map(folded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_pairs_and_a_password_may_hold_any_character() {
        let options = RoleOptions::parse(&["password=a=b:c", "groups=A,b", "Note=x"]).unwrap();
        assert_eq!(options.password.as_deref(), Some("a=b:c"));
        assert_eq!(options.groups, Some(vec!["a".into(), "b".into()]));
        assert_eq!(options.others, [("Note".into(), "x".into())]);
        assert!(!format!("{options:?}").contains("a=b"));
        for word in ["x", "=x", ""] {
            assert_eq!(RoleOptions::parse(&[word]), Err(SecurityRefusal::BadOption(word.into())));
        }
        let long = format!("password={}", "x".repeat(ROLE_OPTION_BYTES_MAX));
        assert!(RoleOptions::parse(&[&long]).is_err());
    }
}
