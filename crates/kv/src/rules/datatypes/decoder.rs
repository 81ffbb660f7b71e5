//! Turns the rows of a value into its pieces, one row after the other: memory does not grow with the value.

use bytes::Bytes;
use larder_core::rules::props::Datatype;
use larder_core::rules::refusals::DatatypeError;
use larder_rows::codec::DecodeError;
use larder_rows::{Row, Timestamp};

use super::context::DatatypeContext;
use super::head::{CounterResets, CounterSum, CounterTotals, DatatypeHead, NamedIncrement};
use super::hll::{HllChunk, HllRegisters};
use super::row_name::{DatatypeLeaf, DatatypePath, DatatypeRowName, EmbeddedType, FieldName};
use super::source_datatype::register_content;
use super::value::ValuePiece;

/// Reads the rows of a key's data in the order of their names.
#[derive(Debug)]
pub struct ValueDecoder {
    datatype: Datatype,
    head: DatatypeHead,
    context: DatatypeContext,
    /// The place of the last row.
    path: DatatypePath,
    fields: Vec<FieldName>,
    /// The fields that have begun, outermost first.
    open: Vec<FieldName>,
    last_element: Option<Bytes>,
    counter: CounterSum,
    register: Option<(Timestamp, Bytes)>,
    flag: bool,
    registers: HllRegisters,
}

impl ValueDecoder {
    /// A decoder of the rows below this head.
    #[must_use]
    pub fn new(datatype: Datatype, head: DatatypeHead) -> Self {
        let mut context = DatatypeContext::new(head.confirmed.clone());
        // A clock beyond what a quorum is known to have covers no rows; named, it tells a delete what it may take.
        for (actor, clock) in &head.clocks {
            context.note_shown(&DatatypeRowName::Clock(*actor).encode(), *actor, *clock);
        }
        Self {
            datatype,
            context,
            head,
            path: DatatypePath::root(),
            fields: Vec::new(),
            open: Vec::new(),
            last_element: None,
            counter: CounterSum::default(),
            register: None,
            flag: false,
            registers: HllRegisters::default(),
        }
    }

    /// Takes the next row, and appends the pieces that it completes.
    ///
    /// # Errors
    /// [`DatatypeError::Damaged`].
    pub fn add(&mut self, row: Row, pieces: &mut Vec<ValuePiece>) -> Result<(), DatatypeError> {
        let DatatypeRowName::Data(path, leaf) = DatatypeRowName::decode(&row.name)? else {
            return Err(DecodeError::Invalid("row of a value").into());
        };
        if self.head.is_dead(&path, &leaf, row.stamp) {
            return Ok(());
        }
        if let Some(actor) = leaf.actor() {
            self.context.note_shown(&row.name, actor, row.stamp);
        }
        if path != self.path {
            self.end_value(pieces);
            self.fields = path.fields()?;
            self.path = path;
        }
        match leaf {
            DatatypeLeaf::Presence(_) => self.open_fields(pieces),
            DatatypeLeaf::Element(element, _) => {
                self.open_fields(pieces);
                // Rows of one element by several actors are neighbours.
                if self.last_element.as_ref() != Some(&element) {
                    self.last_element = Some(element.clone());
                    pieces.push(ValuePiece::Element(element));
                }
            }
            DatatypeLeaf::Register(_) => {
                self.register = self.register.take().max(Some(register_content(row.stamp, &row.value)));
            }
            DatatypeLeaf::Flag(_) => self.flag = true,
            DatatypeLeaf::Increment(_) => {
                let increment = NamedIncrement::decode(row.value)?;
                self.context.note_shown(&row.name, increment.actor, increment.clock);
                self.counter.add_named(increment);
            }
            DatatypeLeaf::Counter(source) => self.counter.add_source(source, CounterTotals::decode(row.value)?),
            DatatypeLeaf::Resets(_) => self.counter.add_resets(CounterResets::decode(row.value)?),
            DatatypeLeaf::Request(_) => {}
            DatatypeLeaf::Chunk(form, chunk, _) => {
                let registers = HllChunk::decode(row.value, form)?;
                self.registers.merge(form, chunk, &registers);
            }
        }
        Ok(())
    }

    /// The last pieces, after the last row.
    pub fn finish(&mut self, pieces: &mut Vec<ValuePiece>) {
        match self.datatype {
            Datatype::Counter => pieces.push(ValuePiece::Counter(self.counter.value())),
            Datatype::Hll => pieces.push(ValuePiece::Estimate(self.registers.estimate())),
            Datatype::Set | Datatype::Gset | Datatype::Map => self.end_value(pieces),
        }
        self.close_to(0, pieces);
    }

    /// The context of everything shown so far.
    #[must_use]
    pub fn context(&self) -> &DatatypeContext {
        &self.context
    }

    /// Ends the value at the current path.
    fn end_value(&mut self, pieces: &mut Vec<ValuePiece>) {
        let counter = std::mem::take(&mut self.counter);
        let (register, flag) = (self.register.take(), std::mem::take(&mut self.flag));
        self.last_element = None;
        let Some(field) = self.fields.last() else { return };
        let embedded = field.embedded;
        if counter.is_live() || register.is_some() || flag {
            self.open_fields(pieces);
        }
        // A field that no row shows is not there: its rows were reset.
        if self.open.len() < self.fields.len() || self.open[..self.fields.len()] != self.fields[..] {
            return;
        }
        match embedded {
            EmbeddedType::Counter => pieces.push(ValuePiece::Counter(counter.value())),
            EmbeddedType::Flag => pieces.push(ValuePiece::Flag(flag)),
            EmbeddedType::Register => pieces.extend(register.map(|(_, value)| ValuePiece::Register(value))),
            EmbeddedType::Set | EmbeddedType::Map => {}
        }
    }

    /// Ends fields that are not around the current value, and begins those that are.
    fn open_fields(&mut self, pieces: &mut Vec<ValuePiece>) {
        let same = self.open.iter().zip(&self.fields).take_while(|(open, field)| open == field).count();
        self.close_to(same, pieces);
        for field in &self.fields[same..] {
            pieces.push(ValuePiece::Field(field.clone()));
            self.open.push(field.clone());
        }
    }

    fn close_to(&mut self, depth: usize, pieces: &mut Vec<ValuePiece>) {
        while self.open.len() > depth {
            self.open.pop();
            pieces.push(ValuePiece::EndField);
        }
    }
}
