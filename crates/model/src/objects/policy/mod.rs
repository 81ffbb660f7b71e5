//! Bucket policies: who may do what to what, and when.
//!
//! ```text
//! parse       the JSON document into statements        pattern    * and ?, and ${variables}
//! principal   whom a statement is about                condition  when it holds
//! context     what a request says about itself         distinct   no name twice
//! ```
//! A statement that denies wins over any that allows, in whatever order they are written.

mod condition;
mod context;
mod distinct;
mod parse;
mod pattern;
mod principal;
#[cfg(test)]
mod tests;

use std::fmt;

use super::access::{Asked, Circumstances};
use super::user::User;

use condition::Condition;
use context::Context;
use pattern::Pattern;
use principal::Principals;

/// A policy: the text as it came, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The JSON as it came.
    pub text: String,
    statements: Vec<Statement>,
}

/// What a policy says to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It must not be done, whatever else allows it.
    Deny,
    /// It may be done.
    Allow,
    /// Nothing.
    Neutral,
}

/// One statement.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Statement {
    allow: bool,
    principals: Principals,
    actions: Matcher,
    resources: Matcher,
    conditions: Vec<Condition>,
}

/// What one of these patterns fits, or what none of them does.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Matcher {
    patterns: Vec<Pattern>,
    negated: bool,
}

/// Actions that policies of Riak CS name otherwise.
const ALIASES: &[(&str, &str)] = &[("s3:ListBucketVersions", "s3:ListObjectVersions")];

impl Policy {
    /// Reads a policy for `bucket`.
    ///
    /// # Errors
    /// [`PolicyError`] when it is longer than [`POLICY_BYTES_MAX`](crate::limits::POLICY_BYTES_MAX), is no JSON, or says anything that cannot be understood or is
    /// not about this bucket: a statement that is silently void would be worse.
    pub fn parse(bucket: &str, text: &str) -> Result<Self, PolicyError> {
        Ok(Self { text: text.to_owned(), statements: parse::statements(bucket, text)? })
    }

    /// What it says when `user` (nobody: anonymous) asks for something in `bucket`.
    #[must_use]
    pub fn verdict(
        &self,
        bucket: &str,
        user: Option<&User>,
        asked: &Asked<'_>,
        circumstances: &Circumstances,
    ) -> Verdict {
        let context = Context { user, asked, circumstances };
        let resource = match asked.key {
            None => bucket.as_bytes().to_vec(),
            Some(key) => [bucket.as_bytes(), b"/", key].concat(),
        };
        let mut verdict = Verdict::Neutral;
        for statement in &self.statements {
            // What could only allow again what is allowed already need not be looked at.
            let news = verdict == Verdict::Neutral || !statement.allow;
            if news && statement.applies(&context, &resource) {
                if !statement.allow {
                    return Verdict::Deny;
                }
                verdict = Verdict::Allow;
            }
        }
        verdict
    }

    /// Whether a statement allows with `NotPrincipal`. It is void here, and a policy with it is not taken.
    #[must_use]
    pub fn allows_all_but_some(&self) -> bool {
        self.statements.iter().any(Statement::allows_all_but_some)
    }

    /// Whether it allows anything to people unknown: to everybody, without a condition on who or from where they are.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.statements.iter().any(|statement| {
            statement.allow
                && statement.principals.are_open()
                && !statement.conditions.iter().any(Condition::narrows_callers)
        })
    }
}

impl Statement {
    /// Whether it allows everybody but some: nobody means that, and whoever is not asked for a name would be let in.
    fn allows_all_but_some(&self) -> bool {
        self.allow && self.principals.are_all_but_some()
    }

    fn applies(&self, context: &Context<'_>, resource: &[u8]) -> bool {
        !self.allows_all_but_some()
            && self.is_about_action(context.asked.action)
            && self.principals.include(context.user)
            && self.resources.fits(|pattern| pattern.fits(resource, context))
            && self.conditions.iter().all(|condition| condition.holds(context))
    }

    fn is_about_action(&self, action: &str) -> bool {
        let fits = |action: &str| self.actions.patterns.iter().any(|pattern| pattern.fits_action(action));
        let aliases = ALIASES.iter().filter(|(name, _)| *name == action).map(|(_, alias)| *alias);
        let named = std::iter::once(action).chain(aliases).any(fits);
        named != self.actions.negated
    }
}

impl Matcher {
    fn fits(&self, fits: impl Fn(&Pattern) -> bool) -> bool {
        self.patterns.iter().any(fits) != self.negated
    }
}

/// Why a policy is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError {
    /// What is wrong, for the client.
    pub message: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PolicyError {}
