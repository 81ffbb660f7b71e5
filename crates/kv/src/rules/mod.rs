//! Values and rules of key-value. Pure: callers pass bytes and times in and get values back, so a property test can try every
//! order of events. The layers above decide *when* something happens; this folder decides *what*.
//!
//! ```text
//! causality dots, contexts, siblings          datatypes   counters, sets, maps, HyperLogLogs
//! index     rows and queries of secondary indexes         terms       sizes of terms
//! links     which links a step follows        object_json an object as hooks and jobs see it
//! object_row      the form of an object's row        import_result  what became of an import
//! ```

pub mod causality;
pub mod datatypes;
pub mod import_result;
pub mod index;
pub mod links;
pub mod object_json;
pub mod object_row;
pub mod terms;
