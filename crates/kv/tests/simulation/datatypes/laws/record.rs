//! The record of a schedule, and the answers that it allows.
//!
//! The record knows requests by the moments of their begin and end, and nothing of rows, actors or clocks. An effect *must* be in
//! a read if it was acknowledged before the read and no request that may have seen it may have removed it. It *may* be there
//! unless a request that must have seen it has removed it. Everything between is concurrent, and either answer is right.

use bytes::Bytes;

use super::edits::{EffectKind, LawEdit, RemovalTarget};
use super::facts::{FieldPath, ValueFacts, digits};

/// The end of a request that has none: its effects may still come.
const NEVER: u64 = u64::MAX;

/// Bytes of a context that may name as many rows as it can: a hundred of nine bytes.
const FULL_CONTEXT_BYTES: usize = 900;

/// The answer of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LawAnswer {
    /// It was made.
    Acknowledged,
    /// It was made or not, or will be.
    Unknown,
    /// Nothing of it was made: what it was to remove was not there.
    Refused,
}

/// An update or a delete.
#[derive(Debug)]
struct LawRequest {
    edit: LawEdit,
    /// The read whose context it carries.
    context: Option<usize>,
    begun: u64,
    ended: u64,
    answer: LawAnswer,
}

#[derive(Debug)]
struct LawRead {
    begun: u64,
    ended: u64,
    facts: ValueFacts,
    /// Whether its context has no room for the names of further rows, so that a removal may leave what it showed.
    is_full: bool,
}

/// All requests to one key.
#[derive(Debug, Default)]
pub(super) struct LawRecord {
    moment: u64,
    requests: Vec<LawRequest>,
    reads: Vec<LawRead>,
}

/// An effect with its request.
#[derive(Clone, Copy)]
struct RecordedEffect<'a> {
    request: &'a LawRequest,
    path: &'a FieldPath,
    kind: &'a EffectKind,
}

impl LawRecord {
    /// The next moment.
    pub(super) fn now(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Notes the begin of a request; the number to end it with.
    pub(super) fn begin(&mut self, edit: LawEdit, context: Option<usize>) -> usize {
        let begun = self.now();
        self.requests.push(LawRequest { edit, context, begun, ended: NEVER, answer: LawAnswer::Unknown });
        self.requests.len() - 1
    }

    /// Notes the answer of a request.
    pub(super) fn end(&mut self, number: usize, answer: LawAnswer) {
        let now = self.now();
        let request = &mut self.requests[number];
        request.answer = answer;
        request.ended = if answer == LawAnswer::Unknown { NEVER } else { now };
    }

    /// Notes a read that began then; its number.
    pub(super) fn note_read(&mut self, begun: u64, facts: ValueFacts, context: Option<&Bytes>) -> usize {
        let ended = self.now();
        let is_full = context.is_some_and(|context| context.len() >= FULL_CONTEXT_BYTES);
        self.reads.push(LawRead { begun, ended, facts, is_full });
        self.reads.len() - 1
    }

    /// Whether a request had no answer.
    pub(super) fn has_unknown_fates(&self) -> bool {
        self.requests.iter().any(|request| request.answer == LawAnswer::Unknown)
    }

    /// Checks every read and every refusal.
    ///
    /// # Errors
    /// The law that is broken.
    pub(super) fn check(&self) -> Result<(), String> {
        for read in &self.reads {
            self.check_read(read).map_err(|wrong| format!("{wrong}: {read:?} after {:?}", self.requests))?;
        }
        for request in &self.requests {
            self.check_answer(request).map_err(|wrong| format!("{wrong}: {request:?} in {:?}", self.requests))?;
        }
        Ok(())
    }

    fn check_read(&self, read: &LawRead) -> Result<(), String> {
        let effects: Vec<RecordedEffect<'_>> = self.effects().collect();
        let may = |of: &dyn Fn(&RecordedEffect<'_>) -> bool| {
            effects.iter().any(|effect| of(effect) && self.may_be_in(effect, read.begun, read.ended))
        };
        let must = |of: &dyn Fn(&RecordedEffect<'_>) -> bool| {
            effects.iter().any(|effect| of(effect) && self.must_be_in(effect, read.begun, read.ended))
        };
        let judge =
            |what: &dyn std::fmt::Debug, is_shown: bool, of: &dyn Fn(&RecordedEffect<'_>) -> bool| match is_shown {
                true if !may(of) => Err(format!("{what:?} is back, or was never sent")),
                false if must(of) => Err(format!("{what:?} is lost")),
                _ => Ok(()),
            };
        let facts = &read.facts;
        judge(&"the key", facts.exists, &|effect| *effect.kind == EffectKind::Touched)?;
        let known = effects.iter().flat_map(|effect| (1..=effect.path.len()).map(|end| effect.path[..end].to_vec()));
        let fields: std::collections::BTreeSet<FieldPath> = known.chain(facts.fields.iter().cloned()).collect();
        for field in &fields {
            let is_below = |effect: &RecordedEffect<'_>| effect.path.starts_with(field);
            judge(field, facts.fields.contains(field), &is_below)?;
        }
        for effect in &effects {
            let is_same = |other: &RecordedEffect<'_>| other.path == effect.path && other.kind == effect.kind;
            match effect.kind {
                EffectKind::Element(_) | EffectKind::Enabled => {
                    judge(&(effect.path, effect.kind), facts.shows(effect.path, effect.kind), &is_same)?;
                }
                EffectKind::Increment { digit, negative } => {
                    let total = facts.counters.get(effect.path).copied().unwrap_or(0);
                    let all = digits(total).ok_or_else(|| format!("an increment counts twice in {total}"))?;
                    let sign = if *negative { -1 } else { 1 };
                    if all[*digit] != 0 && all[*digit] != sign {
                        return Err(format!("an increment counts twice in {total}"));
                    }
                    judge(&(effect.path, effect.kind), all[*digit] != 0, &is_same)?;
                }
                EffectKind::Touched
                | EffectKind::Present
                | EffectKind::Nothing
                | EffectKind::Assigned(_)
                | EffectKind::Hashed(_) => {}
            }
        }
        self.check_strangers(&effects, facts)?;
        self.check_registers(&effects, read)?;
        self.check_estimate(&effects, read)
    }

    /// Checks that the read shows nothing that no request sent.
    fn check_strangers(&self, effects: &[RecordedEffect<'_>], facts: &ValueFacts) -> Result<(), String> {
        let is_sent = |path: &FieldPath, kind: &EffectKind| {
            effects.iter().any(|effect| effect.path == path && effect.kind == kind)
        };
        let mut strange =
            facts.elements.iter().filter(|(path, element)| !is_sent(path, &EffectKind::Element(element.clone())));
        if let Some(element) = strange.next() {
            return Err(format!("{element:?} was never sent"));
        }
        for (path, total) in &facts.counters {
            let all = digits(*total).ok_or_else(|| format!("an increment counts twice in {total}"))?;
            for (digit, sign) in all.into_iter().enumerate().filter(|(_, sign)| *sign != 0) {
                if !is_sent(path, &EffectKind::Increment { digit, negative: sign < 0 }) {
                    return Err(format!("increment {digit} of {path:?} was never sent, in {total}"));
                }
            }
        }
        Ok(())
    }

    fn check_registers(&self, effects: &[RecordedEffect<'_>], read: &LawRead) -> Result<(), String> {
        for (path, shown) in &read.facts.registers {
            let assigned: Vec<&RecordedEffect<'_>> = effects
                .iter()
                .filter(|effect| effect.path == path && matches!(effect.kind, EffectKind::Assigned(_)))
                .collect();
            let Some(value) = shown else {
                if assigned.iter().any(|effect| self.must_be_in(effect, read.begun, read.ended)) {
                    return Err(format!("{path:?} is unset"));
                }
                continue;
            };
            let of_value = assigned.iter().find(|effect| *effect.kind == EffectKind::Assigned(value.clone()));
            let Some(effect) = of_value else { return Err(format!("{value:?} was never assigned")) };
            let is_replaced = assigned.iter().any(|later| {
                let is_known = later.request.answer == LawAnswer::Acknowledged && later.request.ended < read.begun;
                is_known && later.request.begun > effect.request.ended
            });
            if is_replaced || !self.may_be_in(effect, read.begun, read.ended) {
                return Err(format!("{path:?} has {value:?}, which was replaced"));
            }
        }
        Ok(())
    }

    /// The number of different elements of a HyperLogLog is exact where they are so few.
    fn check_estimate(&self, effects: &[RecordedEffect<'_>], read: &LawRead) -> Result<(), String> {
        let hashed = effects.iter().filter_map(|effect| match effect.kind {
            EffectKind::Hashed(element) => Some((element, effect)),
            _ => None,
        });
        let (mut least, mut most) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        for (element, effect) in hashed {
            if self.must_be_in(effect, read.begun, read.ended) {
                least.insert(element.clone());
            }
            if self.may_be_in(effect, read.begun, read.ended) {
                most.insert(element.clone());
            }
        }
        let estimate = read.facts.estimate as usize;
        match (least.len()..=most.len()).contains(&estimate) {
            true => Ok(()),
            false => Err(format!("{estimate} elements, but there are {least:?} and at most {most:?}")),
        }
    }

    /// Checks that a refused request met an absent part, and an acknowledged one did not.
    fn check_answer(&self, request: &LawRequest) -> Result<(), String> {
        // The second removal of a request sees the first one.
        let [target] = &request.edit.removals[..] else { return Ok(()) };
        if request.edit.removes_itself
            || request.context.is_some()
            || !(target.must_be_there() || *target == RemovalTarget::Key)
        {
            return Ok(());
        }
        // A key is there by its own effect, a field by those of any part.
        let is_same_target = |effect: &RecordedEffect<'_>| match target {
            RemovalTarget::Key => *effect.kind == EffectKind::Touched,
            _ => target.takes(effect.path, effect.kind),
        };
        let others = || self.effects().filter(|effect| !std::ptr::eq(effect.request, request));
        match request.answer {
            LawAnswer::Refused => {
                let is_there = others()
                    .any(|effect| is_same_target(&effect) && self.must_be_in(&effect, request.begun, request.ended));
                if is_there { Err(format!("{target:?} was refused as absent")) } else { Ok(()) }
            }
            LawAnswer::Acknowledged if *target != RemovalTarget::Key => {
                let may_be = others()
                    .any(|effect| is_same_target(&effect) && self.may_be_in(&effect, request.begun, request.ended));
                if may_be { Ok(()) } else { Err(format!("{target:?} was absent, and its removal was not refused")) }
            }
            LawAnswer::Acknowledged | LawAnswer::Unknown => Ok(()),
        }
    }

    fn effects(&self) -> impl Iterator<Item = RecordedEffect<'_>> {
        let made = self.requests.iter().filter(|request| request.answer != LawAnswer::Refused);
        made.flat_map(|request| {
            request.edit.effects.iter().map(move |(path, kind)| RecordedEffect { request, path, kind })
        })
    }

    /// The requests other than its own that remove such an effect.
    fn removers<'a>(&'a self, effect: &RecordedEffect<'a>) -> impl Iterator<Item = &'a LawRequest> {
        let effect = *effect;
        self.requests.iter().filter(move |request| {
            let takes = |target: &RemovalTarget| target.takes(effect.path, effect.kind);
            let is_other = !std::ptr::eq(*request, effect.request) && request.answer != LawAnswer::Refused;
            is_other && request.edit.removals.iter().any(takes)
        })
    }

    fn must_be_in(&self, effect: &RecordedEffect<'_>, begun: u64, ended: u64) -> bool {
        let is_stored = effect.request.answer == LawAnswer::Acknowledged && effect.request.ended < begun;
        let may_take = |remover: &LawRequest| remover.begun < ended && self.may_have_seen(remover, effect);
        is_stored && !self.removers(effect).any(may_take)
    }

    fn may_be_in(&self, effect: &RecordedEffect<'_>, begun: u64, ended: u64) -> bool {
        let has_taken = |remover: &LawRequest| {
            let is_done = remover.answer == LawAnswer::Acknowledged && remover.ended < begun;
            is_done && self.must_have_seen(remover, effect)
        };
        effect.request.begun < ended && !self.removers(effect).any(has_taken)
    }

    /// Whether a removal may take the effect: without a context what its gateway found, with one what its client was shown.
    fn may_have_seen(&self, remover: &LawRequest, effect: &RecordedEffect<'_>) -> bool {
        match remover.context.map(|read| &self.reads[read]) {
            Some(read) => effect.request.begun < read.ended && read.facts.shows(effect.path, effect.kind),
            None => effect.request.begun < remover.ended,
        }
    }

    fn must_have_seen(&self, remover: &LawRequest, effect: &RecordedEffect<'_>) -> bool {
        if remover.context.is_some_and(|read| self.reads[read].is_full) {
            return false;
        }
        let until = remover.context.map_or(remover.begun, |read| self.reads[read].begun);
        let was_stored = |request: &LawRequest| request.answer == LawAnswer::Acknowledged && request.ended < until;
        // A total has no parts: one that grew after the context stays whole. Registers of a HyperLogLog are such totals, too.
        let is_total = match effect.kind {
            EffectKind::Increment { .. } | EffectKind::Nothing => remover.context.is_some(),
            EffectKind::Hashed(_) => true,
            _ => false,
        };
        let grew = || {
            let is_part = |other: &RecordedEffect<'_>| {
                let is_total =
                    matches!(other.kind, EffectKind::Increment { .. } | EffectKind::Nothing | EffectKind::Hashed(_));
                is_total && other.path == effect.path
            };
            self.effects()
                .any(|other| is_part(&other) && other.request.begun < remover.ended && !was_stored(other.request))
        };
        was_stored(effect.request) && !(is_total && grew())
    }
}
