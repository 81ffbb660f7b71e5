//! Keys of the server, and what is sealed with them: bodies in chunks, and all rows and bodies of a store.
//!
//! ```text
//! key_ring     the master keys               sealed_body  chunks of a body, each opened alone
//! secret_key   wraps and derives keys        sealed_blob  a blob read chunk by chunk
//! at_rest      a store that seals what it hands to an engine
//! ```
//! Products decide whose bytes are sealed; nothing here knows an object.

pub mod at_rest;
pub mod key_ring;
mod sealed_blob;
pub mod sealed_body;
pub mod secret_key;

pub use sealed_blob::SealedBlob;
pub use secret_key::{BadKey, MasterKeyId, SecretKey, WRAPPED_KEY_BYTES};
