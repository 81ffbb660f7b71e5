//! The body of a data type as Riak stores it: what a read of its key as an object shows, so that a move can read it from here.
//!
//! ```text
//! 45 02 · u32 length · module · tag · version · term        riak_dt_pncounter 47 02 [{Actor, Up, Down}]
//! riak_dt_orswot 4b 01 {Clock, [{Member, Dots}], []}        riak_dt_gset 52 01 [Member]
//! riak_dt_map    4d 01 {Clock, [{{Name, Module}, {[{Dot, Value}], Removed}}], []}
//! riak_kv_hll    56 01 {hyper, Precision, {hyper_binary, {dense, Registers, [], 0, Threshold}}}
//! ```
//! An actor is its eight bytes, its clock the number of its last write, and the stamp of a row the number of the write that left it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_core::rules::external_term::TermWriter;
use larder_core::rules::props::{Datatype, HLL_PRECISION_DEFAULT};
use larder_core::rules::refusals::DatatypeError;
use larder_rows::codec::DecodeError;
use larder_rows::{ActorId, Row, Timestamp};

use super::head::{CounterResets, CounterSum, CounterTotals, DatatypeHead, NamedIncrement};
use super::hll::{HllChunk, HllForm, HllRegisters};
use super::import_plan::ImportRecord;
use super::row_name::{CounterSource, DatatypeLeaf, DatatypeRowName, EmbeddedType, FieldName};
use super::source_datatype::{register_content, source_actor};

/// The first bytes of every body.
const FORM: [u8; 2] = [69, 2];
/// Before the id of an increment that its id names.
const NAMED: &[u8] = b"id ";

/// A write: the actor, and the stamp of its rows.
type WriteDot = (ActorId, Timestamp);

/// The names at the source of a move for the actors that stand for its writers; an actor without one is its eight bytes.
type WriterNames = BTreeMap<ActorId, Bytes>;

/// Collects the rows of a value in the order of their names.
#[derive(Debug)]
pub struct RiakForm<'a> {
    datatype: Datatype,
    head: &'a DatatypeHead,
    names: WriterNames,
    /// Whether the source of a move takes it back.
    is_for_source: bool,
    /// The last reset of a counter.
    reset: Timestamp,
    root: FormNode,
    registers: HllRegisters,
    bytes: usize,
    bytes_max: usize,
}

/// How writers are written.
#[derive(Clone, Copy)]
struct FormWriters<'a> {
    names: &'a WriterNames,
    is_for_source: bool,
    reset: Timestamp,
}

/// The clock of a value.
#[derive(Clone, Copy)]
struct FormClock<'a> {
    dots: &'a [WriteDot],
    writers: FormWriters<'a>,
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
        Self {
            datatype,
            head,
            names: WriterNames::new(),
            is_for_source: false,
            reset: Timestamp::ZERO,
            root: FormNode::default(),
            registers: HllRegisters::default(),
            bytes: 0,
            bytes_max,
        }
    }

    /// The same, in which the writers of the source of a move have their names and their totals there: merged there, it counts
    /// nothing twice.
    #[must_use]
    pub fn for_source(self) -> Self {
        let record = self.head.import.as_ref();
        let named = |record: &ImportRecord| {
            let incarnation = record.incarnation;
            record.clock.keys().map(|name| (source_actor(name, incarnation), name.clone())).collect()
        };
        Self { names: record.map(named).unwrap_or_default(), is_for_source: true, ..self }
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
        if let DatatypeLeaf::Resets(_) = leaf {
            self.reset = self.reset.max(row.stamp);
        }
        if let DatatypeLeaf::Chunk(form, chunk, _) = leaf {
            self.registers.merge(form, chunk, &HllChunk::decode(row.value, form)?);
            return Ok(());
        }
        let node = path.fields()?.into_iter().fold(&mut self.root, |node, field| node.fields.entry(field).or_default());
        node.add(leaf, row)
    }

    /// The writes that the value has seen.
    fn clock(&self) -> BTreeMap<ActorId, Timestamp> {
        let mut clock = self.head.clocks.clone();
        if !self.is_for_source {
            return clock;
        }
        // What imports have seen of the source and is not here was removed here, by clients whose delete took the clocks as well.
        if let Some(record) = &self.head.import {
            for (name, count) in &record.clock {
                let known = clock.entry(source_actor(name, record.incarnation)).or_default();
                *known = Timestamp(*count).max(*known);
            }
        }
        if self.reset > Timestamp::ZERO {
            clock.insert(ActorId::RESETS, self.reset);
        }
        clock
    }

    /// The body; `None` for a HyperLogLog with registers of a hash that Riak does not have.
    #[must_use]
    pub fn finish(self) -> Option<Bytes> {
        let mut term = TermWriter::default();
        let dots: Vec<WriteDot> = self.clock().into_iter().collect();
        let writers = FormWriters { names: &self.names, is_for_source: self.is_for_source, reset: self.reset };
        let clock = FormClock { dots: &dots, writers };
        let (module, tag, version) = match self.datatype {
            Datatype::Counter => ("riak_dt_pncounter", b'G', 2),
            Datatype::Set => ("riak_dt_orswot", b'K', 1),
            Datatype::Map => ("riak_dt_map", b'M', 1),
            Datatype::Gset => ("riak_dt_gset", b'R', 1),
            Datatype::Hll => ("riak_kv_hll", b'V', 1),
        };
        match self.datatype {
            Datatype::Counter => self.root.write_counter(&mut term, writers),
            Datatype::Set => self.root.write_set(&mut term, clock),
            Datatype::Map => self.root.write_map(&mut term, clock),
            Datatype::Gset => term.list(self.root.elements.len(), |term| {
                self.root.elements.keys().for_each(|element| term.binary(element));
            }),
            Datatype::Hll => {
                let (form, registers) = self.registers.in_riaks_form(HLL_PRECISION_DEFAULT)?;
                write_registers(&mut term, form, &registers);
            }
        }
        let length = (module.len() as u32).to_be_bytes();
        Some([&FORM[..], &length, module.as_bytes(), &[tag, version], &term.finish()].concat().into())
    }
}

/// The registers of a HyperLogLog, of six bits each, with the number of additions that Riak collects before it merges them.
fn write_registers(term: &mut TermWriter, form: HllForm, registers: &[u8]) {
    let packed = |four: &[u8]| {
        let bits = four.iter().fold(0, |bits: u32, rank| bits << 6 | u32::from(rank & 0x3f));
        bits.to_be_bytes().into_iter().skip(1)
    };
    // The number of registers is a multiple of 16.
    let dense: Vec<u8> = registers.chunks(4).flat_map(packed).collect();
    term.tuple(3);
    term.atom("hyper");
    term.integer(form.precision().into());
    term.tuple(2);
    term.atom("hyper_binary");
    term.tuple(5);
    term.atom("dense");
    term.binary(&dense);
    term.list(0, |_| {});
    term.integer(0);
    term.integer((registers.len() / 20).max(16) as i128);
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

    fn write_counter(&self, term: &mut TermWriter, writers: FormWriters<'_>) {
        let shares = self.shares(writers);
        term.list(shares.len() + self.named.len(), |term| {
            for (source, plus, minus) in shares {
                term.tuple(3);
                match writers.names.get(&source.actor) {
                    Some(name) => term.binary(name),
                    None => term.binary(&[source.actor.0.to_be_bytes(), source.birth.0.to_be_bytes()].concat()),
                }
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

    fn shares(&self, writers: FormWriters<'_>) -> Vec<(CounterSource, i128, i128)> {
        match writers.is_for_source {
            true => self.counter.shares_for_source(),
            false => self.counter.shares().collect(),
        }
    }

    fn write_set(&self, term: &mut TermWriter, clock: FormClock<'_>) {
        term.tuple(3);
        clock.write(term);
        term.list(self.elements.len(), |term| {
            for (element, dots) in &self.elements {
                term.tuple(2);
                term.binary(element);
                FormClock { dots, ..clock }.write(term);
            }
        });
        term.list(0, |_| {});
    }

    fn write_map(&self, term: &mut TermWriter, clock: FormClock<'_>) {
        term.tuple(3);
        clock.write(term);
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
                        clock.write_dot(term, *dot);
                        node.write_value(term, field.embedded, *dot, (at == 0).then_some(clock));
                    }
                });
                Self::default().write_value(term, field.embedded, (ActorId(0), Timestamp::ZERO), None);
            }
        });
        term.list(0, |_| {});
    }

    /// The value that a write left in a field. All of it stands with the first one; without a clock it is an empty one.
    fn write_value(&self, term: &mut TermWriter, embedded: EmbeddedType, dot: WriteDot, clock: Option<FormClock<'_>>) {
        if embedded == EmbeddedType::Register {
            let unset = (Timestamp::ZERO, Bytes::new());
            let (time, value) = self.registers.get(&dot).unwrap_or(&unset);
            term.tuple(2);
            term.binary(value);
            term.integer(time.0.into());
            return;
        }
        let (empty, nobody) = (Self::default(), WriterNames::new());
        let writers = FormWriters { names: &nobody, is_for_source: false, reset: Timestamp::ZERO };
        let (node, clock) = clock.map_or((&empty, FormClock { dots: &[], writers }), |clock| (self, clock));
        match embedded {
            EmbeddedType::Register => {}
            EmbeddedType::Set => node.write_set(term, clock),
            EmbeddedType::Map => node.write_map(term, clock),
            EmbeddedType::Flag => {
                term.tuple(3);
                clock.write(term);
                FormClock { dots: &node.flags, ..clock }.write(term);
                term.list(0, |_| {});
            }
            EmbeddedType::Counter => {
                term.tuple(2);
                clock.write(term);
                node.write_counts(term, clock.writers);
            }
        }
    }

    /// The counts of a counter of a map, one for each actor.
    fn write_counts(&self, term: &mut TermWriter, writers: FormWriters<'_>) {
        let mut sums = BTreeMap::<ActorId, (i128, i128)>::new();
        for (source, plus, minus) in self.shares(writers) {
            let sum = sums.entry(source.actor).or_default();
            *sum = (sum.0 + plus, sum.1 + minus);
        }
        term.list(sums.len(), |term| {
            for (actor, (plus, minus)) in sums {
                term.tuple(2);
                let counted =
                    if actor == ActorId::RESETS { Some(writers.reset) } else { self.counted.get(&actor).copied() };
                writers.write_actor(term, actor);
                term.tuple(3);
                term.integer(counted.unwrap_or_default().0.into());
                term.integer(plus);
                term.integer(minus);
            }
        });
    }
}

impl FormClock<'_> {
    fn write(self, term: &mut TermWriter) {
        term.list(self.dots.len(), |term| self.dots.iter().for_each(|dot| self.write_dot(term, *dot)));
    }

    fn write_dot(self, term: &mut TermWriter, (actor, stamp): WriteDot) {
        term.tuple(2);
        self.writers.write_actor(term, actor);
        term.integer(stamp.0.into());
    }
}

impl FormWriters<'_> {
    fn write_actor(self, term: &mut TermWriter, actor: ActorId) {
        match self.names.get(&actor) {
            Some(name) => term.binary(name),
            None => term.binary(&actor.0.to_be_bytes()),
        }
    }
}
