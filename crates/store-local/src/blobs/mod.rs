//! Bodies too large for a row.
