//! Patterns: `*` for any text, `?` for one character, `${key}` for the value of a condition key.

use std::fmt;

use super::context::ConditionContext;
use super::glyphs::{ANY, glyphs, match_glyphs, text_of};
use super::work::PolicyWork;

/// A pattern, in pieces. The values of variables come from the request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Pattern {
    pieces: Vec<PatternPiece>,
}

impl fmt::Display for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            PatternPiece::Glyphs(glyphs) => out.write_str(&text_of(glyphs)),
            PatternPiece::Variable(key) => write!(out, "${{{key}}}"),
        })
    }
}

/// A piece of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum PatternPiece {
    /// Bytes, [`ANY`] and [`ONE`].
    Glyphs(Vec<u16>),
    /// A variable: a condition key in lower case.
    Variable(String),
}

/// The special forms in the text of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PatternSyntax {
    /// `*` and `?`.
    pub(super) wildcards: bool,
    /// `${…}`: only from version 2012-10-17 on.
    pub(super) variables: bool,
}

impl Pattern {
    /// Parses a pattern; `None` when a variable has no end.
    pub(super) fn parse(text: &str, syntax: PatternSyntax) -> Option<Self> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while syntax.variables
            && let Some((before, after)) = rest.split_once("${")
        {
            let (name, after) = after.split_once('}')?;
            pieces.push(PatternPiece::Glyphs(glyphs(before, syntax.wildcards)));
            pieces.push(match name {
                // The escaped form of these characters.
                "*" | "?" | "$" => PatternPiece::Glyphs(glyphs(name, false)),
                _ => PatternPiece::Variable(name.trim().to_ascii_lowercase()),
            });
            rest = after;
        }
        pieces.push(PatternPiece::Glyphs(glyphs(rest, syntax.wildcards)));
        Some(Self { pieces })
    }

    /// The condition keys of its variables.
    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            PatternPiece::Glyphs(_) => None,
            PatternPiece::Variable(key) => Some(key.as_str()),
        })
    }

    /// Whether it matches one text only.
    pub(super) fn is_literal(&self) -> bool {
        self.pieces.iter().all(|piece| match piece {
            PatternPiece::Glyphs(glyphs) => glyphs.iter().all(|glyph| *glyph < ANY),
            PatternPiece::Variable(_) => false,
        })
    }

    /// Whether `text` matches after its variables are filled in. A pattern with a variable without value matches no text.
    pub(super) fn matches(&self, text: &[u8], context: &ConditionContext<'_>) -> bool {
        self.matches_with(text, context, false)
    }

    /// As [`Self::matches`], ignoring the case of ASCII letters.
    pub(super) fn matches_ignoring_case(&self, text: &[u8], context: &ConditionContext<'_>) -> bool {
        self.matches_with(text, context, true)
    }

    fn matches_with(&self, text: &[u8], context: &ConditionContext<'_>, ignore_case: bool) -> bool {
        let filled = self.fill_in(text.len(), context);
        filled.is_some_and(|glyphs| match_glyphs(&glyphs, text, ignore_case, &context.context.work))
    }

    /// Whether it matches this action. Actions ignore case and have no variables.
    pub(super) fn matches_action(&self, action: &str) -> bool {
        matches!(self.pieces.as_slice(), [PatternPiece::Glyphs(glyphs)] if match_glyphs(glyphs, action.as_bytes(), true, &PolicyWork::default()))
    }

    /// Whether it can match this text, whatever the values of its variables are.
    pub(super) fn can_match(&self, text: &str) -> bool {
        match self.pieces.as_slice() {
            [PatternPiece::Glyphs(glyphs)] => match_glyphs(glyphs, text.as_bytes(), false, &PolicyWork::default()),
            _ => true,
        }
    }

    /// Whether it can match a text with a slash: only a slash, a star or a variable does.
    pub(super) fn can_match_path(&self) -> bool {
        self.pieces.iter().any(|piece| match piece {
            PatternPiece::Glyphs(glyphs) => glyphs.iter().any(|glyph| *glyph == ANY || *glyph == u16::from(b'/')),
            PatternPiece::Variable(_) => true,
        })
    }

    /// The glyphs with the values of variables; `None` where no text of this length matches them.
    fn fill_in(&self, length: usize, context: &ConditionContext<'_>) -> Option<std::borrow::Cow<'_, [u16]>> {
        if let [PatternPiece::Glyphs(glyphs)] = self.pieces.as_slice() {
            return Some(glyphs.into());
        }
        let mut filled = Vec::new();
        let mut taken = 0;
        for piece in &self.pieces {
            let glyphs = match piece {
                PatternPiece::Glyphs(glyphs) => std::borrow::Cow::Borrowed(glyphs.as_slice()),
                PatternPiece::Variable(key) => match context.values(key).as_slice() {
                    [value] => value.bytes().map(u16::from).collect::<Vec<_>>().into(),
                    // Without exactly one value the pattern matches nothing: it must not match an empty text.
                    _ => return None,
                },
            };
            // Bound: each glyph but a star takes a byte of the text, so a header that many variables name fills no memory.
            taken += glyphs.iter().filter(|glyph| **glyph != ANY).count();
            if taken > length {
                return None;
            }
            filled.extend_from_slice(&glyphs);
        }
        Some(filled.into())
    }
}

/// Whether `text` matches a pattern with `*` and `?` and without variables. `ignore_case` ignores the case of ASCII letters.
pub(super) fn matches_wildcards(pattern: &str, text: &str, ignore_case: bool) -> bool {
    match_glyphs(&glyphs(pattern, true), text.as_bytes(), ignore_case, &PolicyWork::default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition of a match, in exponential time.
    fn slow(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.first(), text.first()) {
            (None, None) => true,
            (Some(b'*'), _) => slow(&pattern[1..], text) || (!text.is_empty() && slow(pattern, &text[1..])),
            (Some(b'?'), Some(_)) => slow(&pattern[1..], &text[1..]),
            (Some(one), Some(other)) => one == other && slow(&pattern[1..], &text[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn wildcards_match_as_defined(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(matches_wildcards(&pattern, &text, false), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }

    #[test]
    fn a_question_mark_matches_a_character_not_a_byte() {
        assert!(matches_wildcards("t?e", "tée", false));
        assert!(!matches_wildcards("t??e", "tée", false));
        assert!(matches_wildcards("*é", "tééé", false));
    }

    #[test]
    fn case_is_ignored_only_on_request() {
        assert!(matches_wildcards("S3:get*", "s3:GetObject", true));
        assert!(!matches_wildcards("S3:get*", "s3:GetObject", false));
    }
}
