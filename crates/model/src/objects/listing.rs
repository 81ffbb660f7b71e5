//! Pages of keys and common prefixes.
