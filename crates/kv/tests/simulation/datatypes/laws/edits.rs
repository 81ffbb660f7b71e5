//! Random updates, each with its effects: facts with a name of their own, and what it removes.

use std::sync::LazyLock;

use bytes::Bytes;
use larder_kv::rules::datatypes::{
    DatatypeUpdate, EmbeddedType, EmbeddedUpdate, FieldEdit, FieldName, HllPlace, MapEdits, SetEdit,
};
use larder_testkit::SplitMix64;

use super::facts::{DIGITS_MAX, FieldPath, increment};

const NAMES: [&str; 2] = ["a", "b"];
const ELEMENTS: [&str; 4] = ["w", "x", "y", "z"];
/// Maps in the outermost one.
const DEPTH: usize = 2;
/// Elements of a HyperLogLog, so few that its estimate is exact.
const HASHED: usize = 12;
/// The default precision of buckets.
const PRECISION: u8 = 14;
/// Elements whose names fill more than a removal may name one by one.
const LONG_ELEMENTS: usize = 80;
const LONG_BYTES: usize = 8000;

/// The effect of an update on one part of the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EffectKind {
    /// The key is there.
    Touched,
    /// The field is there.
    Present,
    Element(Bytes),
    /// An increment with a digit of its own in the total.
    Increment {
        digit: usize,
        negative: bool,
    },
    /// An increment by zero.
    Nothing,
    Assigned(Bytes),
    Enabled,
    /// An element of a HyperLogLog.
    Hashed(Bytes),
}

/// The part of the value that a removal takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RemovalTarget {
    /// Everything, with the key.
    Key,
    Field(FieldPath),
    Element(FieldPath, Bytes),
    Flag(FieldPath),
}

/// The effects and removals of one request.
#[derive(Debug, Clone, Default)]
pub(super) struct LawEdit {
    pub(super) effects: Vec<(FieldPath, EffectKind)>,
    pub(super) removals: Vec<RemovalTarget>,
    /// Whether a removal took what the request itself had done.
    pub(super) removes_itself: bool,
}

/// Draws the updates of a schedule.
pub(super) struct EditDraw<'a> {
    pub(super) dice: &'a mut SplitMix64,
    /// Increments with a digit until now.
    pub(super) digits: &'a mut usize,
    /// The number of the request, which makes its registers unique.
    pub(super) number: usize,
    /// Whether its removals are those of a context, which covers nothing of the request itself.
    pub(super) has_context: bool,
    /// Whether elements are so many and long that a removal needs a marker.
    pub(super) is_large: bool,
    edit: LawEdit,
}

impl RemovalTarget {
    pub(super) fn takes(&self, path: &FieldPath, kind: &EffectKind) -> bool {
        match self {
            Self::Key => true,
            Self::Field(field) => path.starts_with(field) && *kind != EffectKind::Touched,
            Self::Element(set, element) => path == set && *kind == EffectKind::Element(element.clone()),
            Self::Flag(flag) => path == flag && *kind == EffectKind::Enabled,
        }
    }

    /// Whether its removal without a context is refused when it is absent.
    pub(super) fn must_be_there(&self) -> bool {
        matches!(self, Self::Field(_) | Self::Element(..))
    }
}

impl<'a> EditDraw<'a> {
    pub(super) fn new(dice: &'a mut SplitMix64, digits: &'a mut usize, number: usize) -> Self {
        Self { dice, digits, number, has_context: false, is_large: false, edit: LawEdit::default() }
    }

    /// An update of a key of this kind.
    pub(super) fn update(mut self, kind: &str) -> (DatatypeUpdate, LawEdit) {
        let update = match kind {
            "counter" => DatatypeUpdate::Counter(self.increment(&Vec::new())),
            "set" => DatatypeUpdate::Set(self.set(&Vec::new())),
            "gset" => DatatypeUpdate::Gset(self.grown()),
            "hll" => DatatypeUpdate::Hll(self.hashed()),
            _ => DatatypeUpdate::Map(self.map(&Vec::new(), DEPTH)),
        };
        self.add(&Vec::new(), EffectKind::Touched);
        (update, self.edit)
    }

    fn add(&mut self, path: &FieldPath, kind: EffectKind) {
        self.edit.effects.push((path.clone(), kind));
    }

    /// Notes a removal. Without a context it takes also what the request did until now.
    fn remove(&mut self, target: RemovalTarget) {
        if !self.has_context {
            let before = self.edit.effects.len();
            self.edit.effects.retain(|(path, kind)| !target.takes(path, kind));
            self.edit.removes_itself |= self.edit.effects.len() < before;
        }
        self.edit.removals.push(target);
    }

    fn increment(&mut self, path: &FieldPath) -> i64 {
        if *self.digits == DIGITS_MAX || self.dice.below(8) == 0 {
            self.add(path, EffectKind::Nothing);
            return 0;
        }
        let (digit, negative) = (*self.digits, self.dice.below(3) == 0);
        *self.digits += 1;
        self.add(path, EffectKind::Increment { digit, negative });
        increment(digit, negative)
    }

    fn set(&mut self, path: &FieldPath) -> Vec<SetEdit> {
        if self.is_large && self.dice.below(2) == 0 {
            let long = |at| Bytes::from(format!("{at:03}{}", "x".repeat(LONG_BYTES)));
            return (0..LONG_ELEMENTS).map(|at| self.added(path, long(at))).collect();
        }
        let mut edits = Vec::new();
        for _ in 0..self.dice.below(4) {
            let element = Bytes::from(*self.dice.pick(&ELEMENTS));
            let target = RemovalTarget::Element(path.clone(), element.clone());
            // Of two removals without context the second would find nothing, and refuse the request.
            if self.dice.below(5) < 3 || self.edit.removals.contains(&target) {
                edits.push(self.added(path, element));
            } else {
                self.remove(target);
                edits.push(SetEdit::Remove(element));
            }
        }
        edits
    }

    fn added(&mut self, path: &FieldPath, element: Bytes) -> SetEdit {
        self.add(path, EffectKind::Element(element.clone()));
        SetEdit::Add(element)
    }

    fn grown(&mut self) -> Vec<Bytes> {
        let count = self.dice.below(4);
        let elements: Vec<Bytes> = (0..count).map(|_| Bytes::from(*self.dice.pick(&ELEMENTS))).collect();
        elements.iter().for_each(|element| self.add(&Vec::new(), EffectKind::Element(element.clone())));
        elements
    }

    fn hashed(&mut self) -> Vec<Bytes> {
        let count = self.dice.below(4);
        let elements: Vec<Bytes> = (0..count).map(|_| self.dice.pick(&HASHED_POOL).clone()).collect();
        elements.iter().for_each(|element| self.add(&Vec::new(), EffectKind::Hashed(element.clone())));
        elements
    }

    fn map(&mut self, path: &FieldPath, depth: usize) -> MapEdits {
        let mut edits = MapEdits::default();
        for _ in 0..[0, 0, 1, 2][self.dice.below(4)] {
            let field = FieldName::new(*self.dice.pick(&NAMES), *self.dice.pick(&EmbeddedType::ALL));
            let child = [&path[..], std::slice::from_ref(&field)].concat();
            let target = RemovalTarget::Field(child);
            if !self.edit.removals.contains(&target) {
                self.remove(target);
                edits.removes.push(field);
            }
        }
        for _ in 0..1 + self.dice.below(2) {
            let types = if depth > 0 { &EmbeddedType::ALL[..] } else { &FLAT };
            let field = FieldName::new(*self.dice.pick(&NAMES), *self.dice.pick(types));
            let child = [&path[..], std::slice::from_ref(&field)].concat();
            self.add(&child, EffectKind::Present);
            let update = match field.embedded {
                EmbeddedType::Counter => EmbeddedUpdate::Counter(self.increment(&child)),
                EmbeddedType::Set => EmbeddedUpdate::Set(self.set(&child)),
                EmbeddedType::Register => EmbeddedUpdate::Register(self.assign(&child)),
                EmbeddedType::Flag => EmbeddedUpdate::Flag(self.flag(&child)),
                EmbeddedType::Map => EmbeddedUpdate::Map(self.map(&child, depth - 1)),
            };
            edits.updates.push(FieldEdit { name: field.name, update });
        }
        edits
    }

    fn assign(&mut self, path: &FieldPath) -> Bytes {
        let value = Bytes::from(format!("v{}-{}", self.number, self.edit.effects.len()));
        // The later assignment of a request is the one that stays.
        self.edit.effects.retain(|(at, kind)| at != path || !matches!(kind, EffectKind::Assigned(_)));
        self.add(path, EffectKind::Assigned(value.clone()));
        value
    }

    fn flag(&mut self, path: &FieldPath) -> bool {
        let enabled = self.dice.below(2) == 0;
        match enabled {
            true => self.add(path, EffectKind::Enabled),
            false => self.remove(RemovalTarget::Flag(path.clone())),
        }
        enabled
    }
}

/// Types without fields in them.
const FLAT: [EmbeddedType; 4] = [EmbeddedType::Counter, EmbeddedType::Register, EmbeddedType::Flag, EmbeddedType::Set];

/// Elements in registers of their own.
static HASHED_POOL: LazyLock<Vec<Bytes>> = LazyLock::new(|| {
    let mut places = std::collections::BTreeSet::new();
    let mut is_new = |element: &Bytes| {
        let HllPlace { chunk, register, .. } = HllPlace::for_element(element, PRECISION);
        // All in one chunk of the stored form: adds meet in one row.
        chunk == 0 && places.insert(register)
    };
    (0_u64..).map(|at| Bytes::from(format!("h{at}"))).filter(|element| is_new(element)).take(HASHED).collect()
});
