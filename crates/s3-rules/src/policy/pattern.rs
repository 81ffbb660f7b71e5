//! Patterns: `*` for any text, `?` for one character, `${key}` for the value of a condition key.
//!
//! Glyphs of patterns, and their match in bounded time: the policies of a request have a number of steps.
//!
//! Most patterns are decided by a few steps of a greedy match, in which the last `*` takes one byte more at each mismatch. A hostile
//! one needs the product of both lengths, so after a budget of steps the rest is decided by sets of states, 64 in a word:
//!
//! ```text
//! pattern  a * b      states 0 1 2 3: before a, before *, before b, at the end
//! text     a x b      {0} ─a─▶ {1,2} ─x─▶ {1,2} ─b─▶ {1,2,3}: state 3 is the match
//! ```

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::context::ConditionContext;
use super::work::PolicyWork;

/// A pattern, in pieces. The values of variables come from the request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Pattern {
    pieces: Vec<PatternPiece>,
}

impl fmt::Display for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            PatternPiece::Glyphs(glyphs) => out.write_str(&glyph_text(glyphs)),
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

    /// Whether it can match a text without a slash, such as the name of a bucket.
    pub(super) fn can_match_name(&self) -> bool {
        !self.pieces.iter().any(|piece| match piece {
            PatternPiece::Glyphs(glyphs) => glyphs.contains(&u16::from(b'/')),
            PatternPiece::Variable(_) => false,
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

/// The glyph for any bytes, none included.
pub(super) const ANY: u16 = 256;
/// The glyph for one character.
pub(super) const ONE: u16 = 257;

/// Steps of the greedy match for each byte of pattern and text.
const STEPS_PER_BYTE: usize = 4;

/// The glyphs of a text.
pub(super) fn glyphs(text: &str, wildcards: bool) -> Vec<u16> {
    let glyph = |byte| match byte {
        b'*' if wildcards => ANY,
        b'?' if wildcards => ONE,
        byte => u16::from(byte),
    };
    text.bytes().map(glyph).collect()
}

/// The text of glyphs.
pub(super) fn glyph_text(glyphs: &[u16]) -> String {
    let byte = |glyph: &u16| match *glyph {
        ANY => b'*',
        ONE => b'?',
        byte => u8::try_from(byte).unwrap_or(b'?'),
    };
    String::from_utf8_lossy(&glyphs.iter().map(byte).collect::<Vec<_>>()).into_owned()
}

/// Whether a text matches. `ignore_case` ignores the case of ASCII letters. Beyond the steps of the request no text matches.
pub(super) fn match_glyphs(pattern: &[u16], text: &[u8], ignore_case: bool, work: &PolicyWork) -> bool {
    let mut steps = STEPS_PER_BYTE * (pattern.len() + text.len()) + 64;
    let most = steps;
    let matched = match_greedily(pattern, text, ignore_case, &mut steps);
    if !work.take(most - steps + 1) {
        return false;
    }
    matched.unwrap_or_else(|| {
        let words = pattern.len() / 64 + 1;
        work.take(words * (text.len() + 256)) && StateSets::new(pattern, ignore_case).match_text(pattern, text)
    })
}

/// The greedy match, which takes its steps; `None` when it is undecided after them.
fn match_greedily(pattern: &[u16], text: &[u8], ignore_case: bool, steps: &mut usize) -> Option<bool> {
    let (mut at, mut seen) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while *steps > 0 {
        *steps -= 1;
        match pattern.get(at) {
            Some(&ANY) => {
                at += 1;
                retry = Some((at, seen));
                continue;
            }
            None if seen == text.len() => return Some(true),
            Some(&glyph) if seen < text.len() => {
                if let Some(taken) = matched_bytes(glyph, &text[seen..], ignore_case) {
                    at += 1;
                    seen += taken;
                    continue;
                }
            }
            _ => {}
        }
        // Only the last star is tried again: what stands before it matches at its first place already.
        let Some((star, from)) = retry.filter(|(_, from)| *from < text.len()) else { return Some(false) };
        (at, seen, retry) = (star, from + 1, Some((star, from + 1)));
    }
    None
}

/// The number of bytes at the beginning of `text`, which is not empty, that the glyph matches.
fn matched_bytes(glyph: u16, text: &[u8], ignore_case: bool) -> Option<usize> {
    if glyph == ONE {
        let more = text[1..].iter().take_while(|byte| is_continuation(**byte)).count();
        return Some(1 + more);
    }
    let byte = u8::try_from(glyph).ok()?;
    (byte == text[0] || ignore_case && byte.eq_ignore_ascii_case(&text[0])).then_some(1)
}

/// Whether a byte is part of the character before it.
fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// The states of a match as sets of bits: state N is before the glyph N.
struct StateSets {
    words: usize,
    /// For each byte the states whose glyph it is.
    of_byte: Vec<Vec<u64>>,
    any: Vec<u64>,
    one: Vec<u64>,
}

impl StateSets {
    fn new(pattern: &[u16], ignore_case: bool) -> Self {
        let words = pattern.len() / 64 + 1;
        let empty = vec![0; words];
        let mut sets = Self { words, of_byte: vec![Vec::new(); 256], any: empty.clone(), one: empty.clone() };
        for (state, glyph) in pattern.iter().enumerate() {
            match u8::try_from(*glyph) {
                Err(_) if *glyph == ANY => insert(&mut sets.any, state),
                Err(_) => insert(&mut sets.one, state),
                Ok(byte) => {
                    let cases = [byte, byte.to_ascii_lowercase(), byte.to_ascii_uppercase()];
                    for byte in if ignore_case { &cases[..] } else { &cases[..1] } {
                        let of_byte = &mut sets.of_byte[usize::from(*byte)];
                        of_byte.resize(words, 0);
                        insert(of_byte, state);
                    }
                }
            }
        }
        sets
    }

    fn match_text(&self, pattern: &[u16], text: &[u8]) -> bool {
        let (mut states, mut next, mut begun) = (vec![0; self.words], vec![0; self.words], vec![0; self.words]);
        insert(&mut states, 0);
        self.pass_stars(&mut states);
        for (at, byte) in text.iter().enumerate() {
            let of_byte = &self.of_byte[usize::from(*byte)];
            let ends_character = text.get(at + 1).is_none_or(|next| !is_continuation(*next));
            let mut carry = (0, 0);
            for word in 0..self.words {
                let taken = states[word] & of_byte.get(word).copied().unwrap_or(0);
                // A character that a `?` began ends with its last byte.
                begun[word] |= states[word] & self.one[word];
                let ended = if ends_character { std::mem::take(&mut begun[word]) } else { 0 };
                next[word] = (states[word] & self.any[word]) | (taken << 1) | carry.0 | (ended << 1) | carry.1;
                carry = (taken >> 63, ended >> 63);
            }
            std::mem::swap(&mut states, &mut next);
            self.pass_stars(&mut states);
        }
        states[pattern.len() / 64] >> (pattern.len() % 64) & 1 == 1
    }

    /// Adds the states behind stars: a star takes nothing, too.
    fn pass_stars(&self, states: &mut [u64]) {
        let mut carry = 0;
        for (word, set) in states.iter_mut().enumerate() {
            *set |= carry;
            // One addition carries a state over all stars in a row.
            let stars = *set & self.any[word];
            let (sum, overflows) = stars.overflowing_add(self.any[word]);
            *set |= (sum ^ self.any[word]) | stars << 1;
            carry = u64::from(overflows) | stars >> 63;
        }
    }
}

fn insert(set: &mut [u64], state: usize) {
    set[state / 64] |= 1 << (state % 64);
}

/// Any JSON whose objects have distinct names. It keeps none of the values.
#[derive(Debug)]
pub(super) struct DistinctNames;

impl<'de> Deserialize<'de> for DistinctNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DistinctNamesVisitor)
    }
}

struct DistinctNamesVisitor;

impl<'de> Visitor<'de> for DistinctNamesVisitor {
    type Value = DistinctNames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DistinctNames, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            map.next_value::<DistinctNames>()?;
            if let Some(twice) = names.replace(name) {
                return Err(A::Error::custom(format_args!("{twice} is there twice")));
            }
        }
        Ok(DistinctNames)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<DistinctNames, A::Error> {
        while list.next_element::<DistinctNames>()?.is_some() {}
        Ok(DistinctNames)
    }

    fn visit_bool<E>(self, _: bool) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }

    fn visit_i64<E>(self, _: i64) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }

    fn visit_u64<E>(self, _: u64) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }

    fn visit_f64<E>(self, _: f64) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }

    fn visit_str<E>(self, _: &str) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }

    fn visit_unit<E>(self) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }
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
            (Some(byte), Some(other)) => byte == other && slow(&pattern[1..], &text[1..]),
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

#[cfg(test)]
mod glyphs_tests {
    use proptest::prelude::*;

    use super::*;

    fn by_sets(pattern: &str, text: &str, ignore_case: bool) -> bool {
        let pattern = glyphs(pattern, true);
        StateSets::new(&pattern, ignore_case).match_text(&pattern, text.as_bytes())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn both_matches_decide_alike(
            pattern in "[abé*?]{0,12}", text in "[abAé]{0,12}", long in "[ab*?]{50,140}", stars in 0..140_usize, case: bool,
        ) {
            let greedy = |pattern: &str| match_greedily(&glyphs(pattern, true), text.as_bytes(), case, &mut usize::MAX.clone());
            prop_assert_eq!(Some(by_sets(&pattern, &text, case)), greedy(&pattern));
            let text = long.replace(['*', '?'], "a");
            let greedy = |pattern: &str| match_greedily(&glyphs(pattern, true), text.as_bytes(), case, &mut usize::MAX.clone());
            let starred = "*".repeat(stars) + &long;
            for pattern in [&long, &starred] {
                prop_assert_eq!(Some(by_sets(pattern, &text, case)), greedy(pattern), "{} {}", pattern, text);
            }
        }
    }

    #[test]
    fn a_policy_of_hostile_patterns_made_one_request_take_a_minute() {
        let text = "a".repeat(1_024);
        for pattern in ["*".to_owned() + &"a".repeat(499) + "b", "*a".repeat(250) + "b", "*?a".repeat(166) + "b"] {
            let pattern = glyphs(&pattern, true);
            let mut budget = STEPS_PER_BYTE * (pattern.len() + text.len()) + 64;
            // Beyond the budget the cost is that of the text and the words of the pattern.
            let greedy = match_greedily(&pattern, text.as_bytes(), false, &mut budget);
            assert!(greedy.is_none_or(|matches| !matches));
            let ample = PolicyWork::default();
            assert!(!match_glyphs(&pattern, text.as_bytes(), false, &ample));
            assert!(match_glyphs(&pattern, (text.clone() + "b").as_bytes(), false, &ample));
            assert!(!ample.is_spent());
        }
    }
}

#[cfg(test)]
mod distinct_tests {
    use super::*;

    #[test]
    fn a_duplicate_name_is_found_on_every_level() {
        for good in ["{}", r#"{"a":1,"b":{"a":[-1.5,true,null,"a",{"a":1e99}]}}"#, r#"{"a":1,"A":1}"#, "7"] {
            assert!(serde_json::from_str::<DistinctNames>(good).is_ok(), "{good}");
        }
        for bad in [r#"{"a":1,"a":1}"#, r#"[{"b":{"a":1,"\u0061":2}}]"#, "{", "[1,]"] {
            assert!(serde_json::from_str::<DistinctNames>(bad).is_err(), "{bad}");
        }
    }
}
