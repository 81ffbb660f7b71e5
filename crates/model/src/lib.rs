//! What things are: addresses, properties, causality and the rows they become.
//!
//! Everything here is pure: no IO, no async, no clock, no randomness. Bytes and times are handed in, values come out, so a
//! property test can walk every order of events. The layers above decide *when*; this crate decides *what*.
//!
//! ```text
//! address   type / bucket / key           props      the table of bucket properties and its rules
//! causality dots, contexts, siblings      content    one stored value with its metadata
//! keyspace  every table and partition     rows       one versioned codec per table
//! ```

pub mod address;
pub mod causality;
pub mod codec;
pub mod content;
pub mod hash;
pub mod keyspace;
pub mod limits;
pub mod objects;
pub mod props;
pub mod rows;
