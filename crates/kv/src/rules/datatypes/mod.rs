//! Data types: counters, sets, maps and HyperLogLogs whose concurrent updates merge by themselves.
//!
//! A value is not one row but many, and an update touches its own rows only. Every row belongs to one actor, which stamps it with
//! its clock; the row at its stamp is the *dot* of the update that wrote it. Nothing is merged at a write: the engine keeps the
//! newest version of each row, and a read puts the rows of all actors together.
//!
//! ```text
//!   set "tags" of key k            stamp        GET k -> tea, milk; context {A: 20, B: 30}
//!   clock   A                        20         add oats through A at 40: rows (oats, A)@40, clock A@40
//!   clock   B                        30         remove tea with that context, through B at 50: its rows not newer than the
//!   element milk, B                  30           context are removed at their own stamps, and clock B@50 is written
//!   element tea,  A                  20         add tea through A at 45 is not covered, so it survives: the add wins
//! ```
//!
//! - A **clock row** stands in every batch of its actor, so a reader of clocks knows what it has seen. It says also that the key
//!   exists: an empty set has clock rows.
//! - A **context** is these clocks. It covers every row that is not newer, so its size does not depend on the value.
//! - **Presence rows** say that a field of a map is there; every update below a field writes them anew.
//! - **Counters** are totals by source. A removed counter is zeroed by its own writer and *reset* for others: the totals that the
//!   remover saw are subtracted, and a concurrent increment stays.
//! - A **marker** removes a part with more rows than one batch may name.
//!
//! `value` is what requests and answers say; `row_name`, `head`, `hll` are the rows; `needs`, `editor`
//! and `apply` make the batch of updates; `decoder` reads; `context` is the wire form. `source_datatype` is a value as the source of a
//! move has it, and `import_plan` says what of it an import writes; `riak_form` is
//! the body in which a move reads a value from here.

mod apply;
mod context;
mod decoder;
mod editor;
mod head;
mod hll;
mod import_plan;
mod needs;
mod riak_form;
mod row_name;
mod source_datatype;
mod value;

pub use context::{ActorClocks, DatatypeContext};
pub use decoder::ValueDecoder;
pub use editor::{DatatypeEditor, EditorMark, EditorTerms};
pub use head::{ClockValue, CounterResets, CounterSum, CounterTotals, DatatypeHead, NamedIncrement, RemovalMarker};
pub use hll::{CHUNK_REGISTERS, HllChunk, HllForm, HllPlace, HllRegisters};
pub use import_plan::{ImportChanges, ImportDifference, ImportPlan, ImportRecord, ImportTerms};
pub use larder_core::rules::props::Datatype;
pub use larder_core::rules::refusals::DatatypeError;
pub use needs::{AbsentTarget, NeededRows};
pub use riak_form::RiakForm;
pub use row_name::{CounterSource, DatatypeLeaf, DatatypePath, DatatypeRowName, EmbeddedType, FieldName};
pub use source_datatype::{SourceClock, SourceDatatype, SourceDot, source_actor};
pub use value::{
    DatatypeUpdate, DatatypeValue, EmbeddedUpdate, EmbeddedValue, FieldEdit, FieldValue, MapEdits, SetEdit,
    ValueBuilder, ValuePiece,
};
