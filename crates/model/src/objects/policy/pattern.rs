//! Patterns: `*` for anything, `?` for one character, `${key}` for what the request says about itself.

use super::context::Context;

/// A glyph that stands for any bytes, none included.
const ANY: u16 = 256;
/// A glyph that stands for one character.
const ONE: u16 = 257;

/// A pattern, in pieces: variables are filled in when a request is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pieces: Vec<Piece>,
}

/// A piece of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// Bytes, [`ANY`] and [`ONE`].
    Glyphs(Vec<u16>),
    /// A condition key, in lower case.
    Variable(String),
}

/// What of a text has a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Syntax {
    /// `*` and `?`.
    pub(super) wildcards: bool,
    /// `${…}`: since version 2012-10-17 only.
    pub(super) variables: bool,
}

impl Pattern {
    /// Reads a pattern; `None` when a variable has no end.
    pub(super) fn parse(text: &str, syntax: Syntax) -> Option<Self> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while syntax.variables
            && let Some((before, behind)) = rest.split_once("${")
        {
            let (name, behind) = behind.split_once('}')?;
            pieces.push(Piece::Glyphs(glyphs(before, syntax.wildcards)));
            pieces.push(match name {
                // How wildcards are written that stand for themselves.
                "*" | "?" | "$" => Piece::Glyphs(glyphs(name, false)),
                _ => Piece::Variable(name.trim().to_ascii_lowercase()),
            });
            rest = behind;
        }
        pieces.push(Piece::Glyphs(glyphs(rest, syntax.wildcards)));
        Some(Self { pieces })
    }

    /// Whether it is one text and no other.
    pub(super) fn is_literal(&self) -> bool {
        self.pieces.iter().all(|piece| match piece {
            Piece::Glyphs(glyphs) => glyphs.iter().all(|glyph| *glyph < ANY),
            Piece::Variable(_) => false,
        })
    }

    /// Whether `text` is as the pattern says, its variables filled in; no text is where one of them has no value.
    pub(super) fn fits(&self, text: &[u8], context: &Context<'_>) -> bool {
        self.filled(context).is_some_and(|glyphs| fits(&glyphs, text, false))
    }

    /// The same, upper and lower case of ASCII letters being one.
    pub(super) fn fits_ignoring_case(&self, text: &[u8], context: &Context<'_>) -> bool {
        self.filled(context).is_some_and(|glyphs| fits(&glyphs, text, true))
    }

    /// Whether it is about this action; case is nothing, and variables are not looked at.
    pub(super) fn fits_action(&self, action: &str) -> bool {
        matches!(self.pieces.as_slice(), [Piece::Glyphs(glyphs)] if fits(glyphs, action.as_bytes(), true))
    }

    fn filled(&self, context: &Context<'_>) -> Option<std::borrow::Cow<'_, [u16]>> {
        if let [Piece::Glyphs(glyphs)] = self.pieces.as_slice() {
            return Some(glyphs.into());
        }
        let mut filled = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Glyphs(glyphs) => filled.extend_from_slice(glyphs),
                Piece::Variable(key) => match context.values(key).as_slice() {
                    [value] => filled.extend(value.bytes().map(u16::from)),
                    _ => return None,
                },
            }
        }
        Some(filled.into())
    }
}

/// Whether `text` fits a pattern of bytes, `*` and `?` without variables, ASCII case being nothing where `ignore_case`.
pub(super) fn simple_fits(pattern: &str, text: &str, ignore_case: bool) -> bool {
    fits(&glyphs(pattern, true), text.as_bytes(), ignore_case)
}

fn glyphs(text: &str, wildcards: bool) -> Vec<u16> {
    let glyph = |byte| match byte {
        b'*' if wildcards => ANY,
        b'?' if wildcards => ONE,
        byte => u16::from(byte),
    };
    text.bytes().map(glyph).collect()
}

/// On a mismatch the last `*` takes one byte more: no pattern costs more than its length times that of the text.
fn fits(pattern: &[u16], text: &[u8], ignore_case: bool) -> bool {
    let (mut at, mut seen) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match pattern.get(at) {
            Some(&ANY) => {
                at += 1;
                retry = Some((at, seen));
                continue;
            }
            None if seen == text.len() => return true,
            Some(&glyph) if seen < text.len() => {
                if let Some(taken) = takes(glyph, &text[seen..], ignore_case) {
                    at += 1;
                    seen += taken;
                    continue;
                }
            }
            _ => {}
        }
        let Some((star, from)) = retry.filter(|(_, from)| *from < text.len()) else { return false };
        (at, seen, retry) = (star, from + 1, Some((star, from + 1)));
    }
}

/// How many bytes of `text`, which is not empty, the glyph takes.
fn takes(glyph: u16, text: &[u8], ignore_case: bool) -> Option<usize> {
    if glyph == ONE {
        let more = text[1..].iter().take_while(|byte| **byte & 0xc0 == 0x80).count();
        return Some(1 + more);
    }
    let byte = u8::try_from(glyph).ok()?;
    (byte == text[0] || ignore_case && byte.eq_ignore_ascii_case(&text[0])).then_some(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, slow and plain.
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
        fn fits_as_defined(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(simple_fits(&pattern, &text, false), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }

    #[test]
    fn one_is_a_character_not_a_byte() {
        assert!(simple_fits("t?e", "tée", false));
        assert!(!simple_fits("t??e", "tée", false));
        assert!(simple_fits("*é", "tééé", false));
    }

    #[test]
    fn case() {
        assert!(simple_fits("S3:get*", "s3:GetObject", true));
        assert!(!simple_fits("S3:get*", "s3:GetObject", false));
    }

    #[test]
    fn a_nasty_pattern_ends_soon() {
        let (pattern, text) = ("*a".repeat(5_000) + "b", "a".repeat(1_024));
        assert!(!simple_fits(&pattern, &text, false));
    }
}
