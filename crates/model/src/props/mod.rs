//! Bucket properties.
