//! The body of a data type as Riak stores it: what a read of its key as an object shows, so that a move can read it from here.
//!
//! ```text
//! 45 02 · u32 length · module · tag · version · term        riak_dt_pncounter 47 02 [{Actor, Up, Down}]
//! riak_dt_orswot 4b 01 {Clock, [{Member, Dots}], []}        riak_dt_gset 52 01 [Member]
//! riak_dt_map    4d 01 {Clock, [{{Name, Module}, {[{Dot, Value}], Removed}}], []}
//! ```
//! An actor is its eight bytes, its clock the number of its last write, and the stamp of a row the number of the write that left it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_core::rules::external_term::TermWriter;
use larder_core::rules::props::Datatype;
use larder_core::rules::refusals::DatatypeError;
use larder_rows::codec::DecodeError;
use larder_rows::{ActorId, Row, Timestamp};

use super::head::{CounterResets, CounterSum, CounterTotals, DatatypeHead, NamedIncrement};
use super::row_name::{DatatypeLeaf, DatatypeRowName, EmbeddedType, FieldName};
use super::source_datatype::register_content;

/// The first bytes of every body.
const FORM: [u8; 2] = [69, 2];
/// Before the id of an increment that its id names.
const NAMED: &[u8] = b"id ";

/// A write: the actor, and the stamp of its rows.
type WriteDot = (ActorId, Timestamp);

/// Collects the rows of a value in the order of their names.
#[derive(Debug)]
pub struct RiakForm<'a> {
    datatype: Datatype,
    head: &'a DatatypeHead,
    root: FormNode,
    bytes: usize,
    bytes_max: usize,
}

/// A value: the whole one, or that of a field.
#[derive(Debug, Default)]
struct FormNode {
    /// The writes that say that the field is there.
    presence: BTreeSet<WriteDot>,
    elements: BTreeMap<Bytes, Vec<WriteDot>>,
    registers: BTreeMap<WriteDot, (Timestamp, Bytes)>,
    flags: Vec<WriteDot>,
    counter: CounterSum,
    /// The last write of each actor to the counter.
    counted: BTreeMap<ActorId, Timestamp>,
    named: Vec<(Bytes, i128)>,
    fields: BTreeMap<FieldName, FormNode>,
}

impl<'a> RiakForm<'a> {
    /// A value of this type below this head, of at most so many bytes of names and values.
    #[must_use]
    pub fn new(datatype: Datatype, head: &'a DatatypeHead, bytes_max: usize) -> Self {
        Self { datatype, head, root: FormNode::default(), bytes: 0, bytes_max }
    }

    /// Whether values of this type have such a body. The registers of a HyperLogLog are of another hash than Riak's.
    #[must_use]
    pub fn has_one(datatype: Datatype) -> bool {
        datatype != Datatype::Hll
    }

    /// Takes the next row.
    ///
    /// # Errors
    /// [`DatatypeError::ValueTooLarge`], [`DatatypeError::Damaged`].
    pub fn add(&mut self, row: Row) -> Result<(), DatatypeError> {
        self.bytes += row.name.len() + row.value.len();
        if self.bytes > self.bytes_max {
            return Err(DatatypeError::ValueTooLarge { max: self.bytes_max });
        }
        let DatatypeRowName::Data(path, leaf) = DatatypeRowName::decode(&row.name)? else {
            return Err(DecodeError::Invalid("row of a value").into());
        };
        if self.head.is_dead(&path, &leaf, row.stamp) {
            return Ok(());
        }
        let node = path.fields()?.into_iter().fold(&mut self.root, |node, field| node.fields.entry(field).or_default());
        node.add(leaf, row)
    }

    /// The body.
    #[must_use]
    pub fn finish(self) -> Bytes {
        let mut term = TermWriter::default();
        let clock: Vec<WriteDot> = self.head.clocks.iter().map(|(actor, clock)| (*actor, *clock)).collect();
        let (module, tag, version) = match self.datatype {
            Datatype::Counter => ("riak_dt_pncounter", b'G', 2),
            Datatype::Set => ("riak_dt_orswot", b'K', 1),
            Datatype::Map => ("riak_dt_map", b'M', 1),
            Datatype::Gset | Datatype::Hll => ("riak_dt_gset", b'R', 1),
        };
        match self.datatype {
            Datatype::Counter => self.root.write_counter(&mut term),
            Datatype::Set => self.root.write_set(&mut term, &clock),
            Datatype::Map => self.root.write_map(&mut term, &clock),
            Datatype::Gset | Datatype::Hll => term.list(self.root.elements.len(), |term| {
                self.root.elements.keys().for_each(|element| term.binary(element));
            }),
        }
        let length = (module.len() as u32).to_be_bytes();
        [&FORM[..], &length, module.as_bytes(), &[tag, version], &term.finish()].concat().into()
    }
}

impl FormNode {
    fn add(&mut self, leaf: DatatypeLeaf, row: Row) -> Result<(), DatatypeError> {
        let stamp = row.stamp;
        match leaf {
            DatatypeLeaf::Presence(actor) => drop(self.presence.insert((actor, stamp))),
            DatatypeLeaf::Element(element, actor) => self.elements.entry(element).or_default().push((actor, stamp)),
            DatatypeLeaf::Register(actor) => {
                self.registers.insert((actor, stamp), register_content(stamp, &row.value));
            }
            DatatypeLeaf::Flag(actor) => self.flags.push((actor, stamp)),
            DatatypeLeaf::Counter(source) => {
                let totals = CounterTotals::decode(row.value)?;
                if totals.operations > 0 {
                    self.counter.add_source(source, totals);
                    let last = self.counted.entry(source.actor).or_default();
                    *last = stamp.max(*last);
                }
            }
            DatatypeLeaf::Resets(_) => self.counter.add_resets(CounterResets::decode(row.value)?),
            DatatypeLeaf::Increment(id) => self.named.push((id, NamedIncrement::decode(row.value)?.amount)),
            DatatypeLeaf::Request(_) | DatatypeLeaf::Chunk(..) => {}
        }
        Ok(())
    }

    /// Whether it shows its field.
    fn is_live(&self) -> bool {
        let is_own = !self.presence.is_empty() || !self.elements.is_empty() || !self.registers.is_empty();
        is_own || !self.flags.is_empty() || self.counter.is_live() || self.fields.values().any(Self::is_live)
    }

    /// The writes that made its field: those of its presence and of its registers, or any that left something.
    fn field_dots(&self) -> BTreeSet<WriteDot> {
        let mut dots: BTreeSet<WriteDot> = self.presence.iter().chain(self.registers.keys()).copied().collect();
        if dots.is_empty() {
            dots.extend(self.elements.values().flatten().chain(&self.flags));
            dots.extend(self.counted.iter().map(|(actor, stamp)| (*actor, *stamp)));
            dots.extend(self.fields.values().flat_map(Self::field_dots));
        }
        dots
    }

    fn write_counter(&self, term: &mut TermWriter) {
        let shares: Vec<_> = self.counter.shares().collect();
        term.list(shares.len() + self.named.len(), |term| {
            for (source, plus, minus) in shares {
                term.tuple(3);
                term.binary(&[source.actor.0.to_be_bytes(), source.birth.0.to_be_bytes()].concat());
                term.integer(plus);
                term.integer(minus);
            }
            for (id, amount) in &self.named {
                term.tuple(3);
                term.binary(&[NAMED, id].concat());
                term.integer((*amount).max(0));
                term.integer((-*amount).max(0));
            }
        });
    }

    fn write_set(&self, term: &mut TermWriter, clock: &[WriteDot]) {
        term.tuple(3);
        write_dots(term, clock);
        term.list(self.elements.len(), |term| {
            for (element, dots) in &self.elements {
                term.tuple(2);
                term.binary(element);
                write_dots(term, dots);
            }
        });
        term.list(0, |_| {});
    }

    fn write_map(&self, term: &mut TermWriter, clock: &[WriteDot]) {
        term.tuple(3);
        write_dots(term, clock);
        let fields: Vec<_> = self.fields.iter().filter(|(_, node)| node.is_live()).collect();
        term.list(fields.len(), |term| {
            for (field, node) in fields {
                term.tuple(2);
                term.tuple(2);
                term.binary(&field.name);
                term.atom(field.embedded.riak_module());
                term.tuple(2);
                let dots = node.field_dots();
                term.list(dots.len(), |term| {
                    for (at, dot) in dots.iter().enumerate() {
                        term.tuple(2);
                        write_dot(term, *dot);
                        node.write_value(term, field.embedded, *dot, (at == 0).then_some(clock));
                    }
                });
                Self::default().write_value(term, field.embedded, (ActorId(0), Timestamp::ZERO), None);
            }
        });
        term.list(0, |_| {});
    }

    /// The value that a write left in a field. All of it stands with the first one; without a clock it is an empty one.
    fn write_value(&self, term: &mut TermWriter, embedded: EmbeddedType, dot: WriteDot, clock: Option<&[WriteDot]>) {
        if embedded == EmbeddedType::Register {
            let unset = (Timestamp::ZERO, Bytes::new());
            let (time, value) = self.registers.get(&dot).unwrap_or(&unset);
            term.tuple(2);
            term.binary(value);
            term.integer(time.0.into());
            return;
        }
        let empty = Self::default();
        let (node, clock) = clock.map_or((&empty, &[][..]), |clock| (self, clock));
        match embedded {
            EmbeddedType::Register => {}
            EmbeddedType::Set => node.write_set(term, clock),
            EmbeddedType::Map => node.write_map(term, clock),
            EmbeddedType::Flag => {
                term.tuple(3);
                write_dots(term, clock);
                write_dots(term, &node.flags);
                term.list(0, |_| {});
            }
            EmbeddedType::Counter => {
                term.tuple(2);
                write_dots(term, clock);
                node.write_counts(term);
            }
        }
    }

    /// The counts of a counter of a map, one for each actor.
    fn write_counts(&self, term: &mut TermWriter) {
        let mut sums = BTreeMap::<ActorId, (i128, i128)>::new();
        for (source, plus, minus) in self.counter.shares() {
            let sum = sums.entry(source.actor).or_default();
            *sum = (sum.0 + plus, sum.1 + minus);
        }
        term.list(sums.len(), |term| {
            for (actor, (plus, minus)) in sums {
                term.tuple(2);
                term.binary(&actor.0.to_be_bytes());
                term.tuple(3);
                term.integer(self.counted.get(&actor).copied().unwrap_or_default().0.into());
                term.integer(plus);
                term.integer(minus);
            }
        });
    }
}

fn write_dots(term: &mut TermWriter, dots: &[WriteDot]) {
    term.list(dots.len(), |term| dots.iter().for_each(|dot| write_dot(term, *dot)));
}

fn write_dot(term: &mut TermWriter, (actor, stamp): WriteDot) {
    term.tuple(2);
    term.binary(&actor.0.to_be_bytes());
    term.integer(stamp.0.into());
}
