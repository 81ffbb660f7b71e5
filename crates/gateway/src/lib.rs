//! Placeholder head; the crate's owner writes it.
