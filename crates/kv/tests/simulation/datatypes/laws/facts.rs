//! A value as a client reads it, taken apart into facts about single fields, elements and increments.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_kv::rules::datatypes::{DatatypeValue, EmbeddedValue, FieldName, FieldValue};

use super::edits::EffectKind;

/// A field with those around it, outermost first; none is the whole value.
pub(super) type FieldPath = Vec<FieldName>;

/// The facts of one read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ValueFacts {
    pub(super) exists: bool,
    pub(super) fields: BTreeSet<FieldPath>,
    pub(super) elements: BTreeSet<(FieldPath, Bytes)>,
    pub(super) counters: BTreeMap<FieldPath, i128>,
    pub(super) registers: BTreeMap<FieldPath, Option<Bytes>>,
    pub(super) flags: BTreeMap<FieldPath, bool>,
    pub(super) estimate: u64,
}

impl ValueFacts {
    /// The facts of a value; `None` is a key that is not there.
    pub(super) fn of(value: Option<DatatypeValue>) -> Self {
        let mut facts = Self { exists: value.is_some(), ..Self::default() };
        match value {
            None => {}
            Some(DatatypeValue::Counter(total)) => drop(facts.counters.insert(Vec::new(), total)),
            Some(DatatypeValue::Set(elements) | DatatypeValue::Gset(elements)) => facts.add_elements(&[], elements),
            Some(DatatypeValue::Hll(estimate)) => facts.estimate = estimate,
            Some(DatatypeValue::Map(fields)) => facts.add_fields(&[], fields),
        }
        facts
    }

    fn add_elements(&mut self, path: &[FieldName], elements: Vec<Bytes>) {
        self.elements.extend(elements.into_iter().map(|element| (path.to_vec(), element)));
    }

    fn add_fields(&mut self, around: &[FieldName], fields: Vec<FieldValue>) {
        for FieldValue { field, value } in fields {
            let path = [around, &[field]].concat();
            self.fields.insert(path.clone());
            match value {
                EmbeddedValue::Counter(total) => drop(self.counters.insert(path, total)),
                EmbeddedValue::Set(elements) => self.add_elements(&path, elements),
                EmbeddedValue::Register(value) => drop(self.registers.insert(path, value)),
                EmbeddedValue::Flag(enabled) => drop(self.flags.insert(path, enabled)),
                EmbeddedValue::Map(fields) => self.add_fields(&path, fields),
            }
        }
    }

    /// Whether the value shows that this effect may be in it.
    pub(super) fn shows(&self, path: &FieldPath, kind: &EffectKind) -> bool {
        match kind {
            EffectKind::Touched | EffectKind::Hashed(_) => self.exists,
            EffectKind::Present | EffectKind::Nothing => self.exists && (path.is_empty() || self.fields.contains(path)),
            EffectKind::Element(element) => self.elements.contains(&(path.clone(), element.clone())),
            EffectKind::Increment { digit, .. } => {
                // A total that no set of increments makes is found where it is read.
                self.counters.get(path).is_some_and(|total| digits(*total).is_none_or(|all| all[*digit] != 0))
            }
            EffectKind::Assigned(_) => self.registers.get(path).is_some_and(Option::is_some),
            EffectKind::Enabled => self.flags.get(path) == Some(&true),
        }
    }
}

/// The most increments that a total tells apart.
pub(super) const DIGITS_MAX: usize = 31;

/// The increment of a digit: totals are numbers of base 4, and each increment has a digit of its own.
pub(super) fn increment(digit: usize, negative: bool) -> i64 {
    let by = 1_i64 << (2 * digit);
    if negative { -by } else { by }
}

/// The digits of a total, each -1, 0 or 1; `None` if an increment is in it twice.
pub(super) fn digits(total: i128) -> Option<[i8; DIGITS_MAX]> {
    let (mut rest, mut digits) = (total, [0_i8; DIGITS_MAX]);
    for digit in &mut digits {
        *digit = match rest.rem_euclid(4) {
            0 => 0,
            1 => 1,
            3 => -1,
            _ => return None,
        };
        rest = (rest - i128::from(*digit)) / 4;
    }
    (rest == 0).then_some(digits)
}

#[test]
fn a_total_names_its_increments_and_a_repeated_one_is_seen() {
    let total = i128::from(increment(0, true)) + i128::from(increment(3, false)) + i128::from(increment(30, true));
    let found = digits(total).unwrap();
    assert_eq!((found[0], found[1], found[3], found[30]), (-1, 0, 1, -1));
    assert_eq!(digits(total + i128::from(increment(3, false))), None);
    assert_eq!(digits(i128::from(increment(30, false)) * 4), None);
}
