//! Conditions on a read or a write (RFC 9110 §13, and Riak's `if_not_modified`), as the Riak KV HTTP reference orders them.

use larder_core::rules::refusals::FailedCondition;

use super::context::Context;

/// The value of an `If-Match` or `If-None-Match` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtagMatcher {
    /// `*`: any live value.
    Any,
    /// One of these entity tags, without quotes.
    Tags(Vec<String>),
}

/// The conditions of one request; all must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conditions {
    /// `If-Match`.
    pub if_match: Option<EtagMatcher>,
    /// `If-Unmodified-Since`, in seconds since 1970.
    pub if_unmodified_since: Option<u64>,
    /// `If-None-Match`.
    pub if_none_match: Option<EtagMatcher>,
    /// `If-Modified-Since`, in seconds since 1970.
    pub if_modified_since: Option<u64>,
    /// `X-Riak-If-Not-Modified`, PB `if_not_modified`: the live writes must still be those of this context.
    pub if_not_modified: Option<Context>,
}

/// The state of the key that conditions are checked against.
#[derive(Debug, Clone, Copy)]
pub struct CurrentValue<'a> {
    /// Entity tag, `None` when there is no live value.
    pub etag: Option<&'a str>,
    /// Last modification in seconds since 1970.
    pub modified: u64,
    /// The context that a read returns.
    pub context: &'a Context,
}

impl EtagMatcher {
    fn matches(&self, etag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Tags(tags) => tags.iter().any(|tag| tag == etag),
        }
    }
}

impl Conditions {
    /// Whether there are no conditions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a write has to read first. By the reference's pre-read rule, `If-Modified-Since` alone never fails a write.
    #[must_use]
    pub fn needs_read(&self) -> bool {
        self.if_match.is_some()
            || self.if_unmodified_since.is_some()
            || self.if_none_match.is_some()
            || self.if_not_modified.is_some()
    }

    /// Checks all conditions in the reference's order. `now` is in seconds since 1970; a later `If-Modified-Since` is ignored.
    ///
    /// # Errors
    /// The first condition that fails.
    pub fn check(&self, current: CurrentValue<'_>, reading: bool, now: u64) -> Result<(), FailedCondition> {
        if let Some(seen) = &self.if_not_modified {
            match current.etag {
                None => return Err(FailedCondition::Missing),
                Some(_) if !seen.has_same_live_dots(current.context) => return Err(FailedCondition::Modified),
                Some(_) => {}
            }
        }
        // Without a live value there is no tag to match, and only `If-Match` demands one.
        let Some(etag) = current.etag else {
            return if self.if_match.is_some() { Err(FailedCondition::Precondition) } else { Ok(()) };
        };
        if self.if_match.as_ref().is_some_and(|wanted| !wanted.matches(etag)) {
            return Err(FailedCondition::Precondition);
        }
        if self.if_unmodified_since.is_some_and(|since| current.modified > since) {
            return Err(FailedCondition::Precondition);
        }
        if self.if_none_match.as_ref().is_some_and(|unwanted| unwanted.matches(etag)) {
            return Err(if reading { FailedCondition::NotModified } else { FailedCondition::Precondition });
        }
        // A date in the future says nothing about the past, so it is ignored (RFC 9110).
        let unmodified = self.if_modified_since.is_some_and(|since| since <= now && current.modified <= since);
        if reading && self.if_none_match.is_none() && unmodified { Err(FailedCondition::NotModified) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(conditions: Conditions, etag: Option<&str>, reading: bool) -> Result<(), FailedCondition> {
        let context = Context::default();
        conditions.check(CurrentValue { etag, modified: 100, context: &context }, reading, 1000)
    }

    fn tags(tag: &str) -> Option<EtagMatcher> {
        Some(EtagMatcher::Tags(vec![tag.into()]))
    }

    #[test]
    fn if_match_fails_without_the_current_tag() {
        let wanted = |matcher| Conditions { if_match: matcher, ..Conditions::default() };
        assert_eq!(check(wanted(tags("a")), Some("a"), false), Ok(()));
        assert_eq!(check(wanted(tags("b")), Some("a"), false), Err(FailedCondition::Precondition));
        assert_eq!(check(wanted(Some(EtagMatcher::Any)), Some("a"), false), Ok(()));
        assert_eq!(check(wanted(Some(EtagMatcher::Any)), None, false), Err(FailedCondition::Precondition));
    }

    #[test]
    fn if_none_match_is_304_for_reads_and_412_for_writes() {
        let unwanted = |matcher| Conditions { if_none_match: matcher, ..Conditions::default() };
        assert_eq!(check(unwanted(tags("a")), Some("a"), true), Err(FailedCondition::NotModified));
        assert_eq!(check(unwanted(Some(EtagMatcher::Any)), Some("a"), false), Err(FailedCondition::Precondition));
        assert_eq!(check(unwanted(Some(EtagMatcher::Any)), None, false), Ok(()));
        assert_eq!(check(unwanted(tags("b")), Some("a"), true), Ok(()));
    }

    #[test]
    fn dates_compare_by_the_second_and_the_future_is_ignored() {
        let since = |since| Conditions { if_modified_since: Some(since), ..Conditions::default() };
        assert_eq!(check(since(100), Some("a"), true), Err(FailedCondition::NotModified));
        assert_eq!(check(since(99), Some("a"), true), Ok(()));
        assert_eq!(check(since(5000), Some("a"), true), Ok(()));
        let unmodified = Conditions { if_unmodified_since: Some(99), ..Conditions::default() };
        assert_eq!(check(unmodified, Some("a"), false), Err(FailedCondition::Precondition));
    }

    #[test]
    fn if_not_modified_fails_on_a_missing_value() {
        let seen = Conditions { if_not_modified: Some(Context::default()), ..Conditions::default() };
        assert_eq!(check(seen.clone(), None, false), Err(FailedCondition::Missing));
        assert_eq!(check(seen, Some("a"), false), Ok(()));
    }
}
