//! The key of one encrypted object or upload, and what is derived from it.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use larder_encryption::sealed_body::BodyCipher;
use larder_encryption::{BadKey, SecretKey, WRAPPED_KEY_BYTES};

use super::encryption::ObjectEncryption;

/// What keys are derived for: a key for one purpose says nothing about another.
const BODY: &[u8] = b"larder s3 body 1";
const ETAG: &[u8] = b"larder s3 etag 1";
const CUSTOMER: &[u8] = b"larder s3 customer object 1";
const VERIFIER: &[u8] = b"larder s3 customer verifier 1";
/// The purpose of a wrapped object key.
const WRAPPED: &[u8] = b"larder s3 wrapped key 1";

/// The encryption of a new object by a key of the server, with its object key. Key and nonce must be random.
///
/// # Errors
/// None in practice.
pub fn server_encryption(master: &SecretKey, key: &SecretKey, nonce: [u8; 12]) -> Result<ObjectEncryption, BadKey> {
    Ok(ObjectEncryption::Server { master_key: master.master_id(), wrapped_key: master.wrap(WRAPPED, key, nonce)? })
}

/// The object key that a master key wraps.
///
/// # Errors
/// [`BadKey`] where this key did not wrap it, or it is damaged.
pub fn server_object_key(master: &SecretKey, wrapped: &[u8; WRAPPED_KEY_BYTES]) -> Result<SecretKey, BadKey> {
    master.unwrap_key(WRAPPED, wrapped)
}

/// The encryption of a new object by a key of a customer, and its object key.
///
/// # Errors
/// None in practice.
pub fn customer_encryption(customer: &SecretKey, salt: [u8; 32]) -> Result<(ObjectEncryption, SecretKey), BadKey> {
    let verifier = customer.derive(&salt, &[VERIFIER])?;
    let key = SecretKey::new(customer.derive(&salt, &[CUSTOMER])?);
    Ok((ObjectEncryption::Customer { salt, verifier }, key))
}

/// The object key of an object that was encrypted by a customer's key, if it is this one.
///
/// # Errors
/// [`BadKey`] for another key.
pub fn customer_object_key(customer: &SecretKey, salt: &[u8; 32], verifier: &[u8; 32]) -> Result<SecretKey, BadKey> {
    let derived: [u8; 32] = customer.derive(salt, &[VERIFIER])?;
    verify_slices_are_equal(&derived, verifier).map_err(|_| BadKey)?;
    Ok(SecretKey::new(customer.derive(salt, &[CUSTOMER])?))
}

/// The cipher of one body of an object with this key. `body` is the id of its blob, or empty for bytes in the row of the object.
///
/// # Errors
/// None in practice.
pub fn body_cipher(key: &SecretKey, body: &[u8]) -> Result<BodyCipher, BadKey> {
    BodyCipher::new(&SecretKey::new(key.derive(&[], &[BODY, body])?))
}

/// An entity tag in the place of the MD5 of the bytes, which says nothing about them.
///
/// # Errors
/// None in practice.
pub fn hidden_etag(key: &SecretKey, body: &[u8], md5: &[u8; 16]) -> Result<[u8; 16], BadKey> {
    key.derive(&[], &[ETAG, body, md5])
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SecretKey = SecretKey::new([1; 32]);
    const B: SecretKey = SecretKey::new([2; 32]);

    #[test]
    fn a_customer_key_opens_its_objects_alone() {
        let (encryption, key) = customer_encryption(&A, [3; 32]).unwrap();
        let ObjectEncryption::Customer { salt, verifier } = encryption else { panic!("{encryption:?}") };
        assert_eq!(customer_object_key(&A, &salt, &verifier), Ok(key));
        assert_eq!(customer_object_key(&B, &salt, &verifier), Err(BadKey));
        let (_, other) = customer_encryption(&A, [4; 32]).unwrap();
        assert_ne!(key, other, "each object has a key of its own");
        assert_ne!(key.bytes(), &verifier);
    }

    #[test]
    fn derived_values_differ_by_purpose_and_body() {
        let tag = hidden_etag(&A, b"1", &[5; 16]).unwrap();
        assert_ne!(tag, hidden_etag(&A, b"2", &[5; 16]).unwrap());
        assert_ne!(tag, hidden_etag(&B, b"1", &[5; 16]).unwrap());
        assert_ne!(tag, [5; 16]);
    }

    /// What is derived is stored with every object: a change here loses them. The values are those of other implementations of HKDF and
    /// AES-GCM.
    #[test]
    fn the_golden_derivations() {
        assert_eq!(hex::encode(hidden_etag(&A, b"b", &[0; 16]).unwrap()), "70aff2a08b567a149f7883b2a2afd803");
        let (encryption, key) = customer_encryption(&A, [0; 32]).unwrap();
        let ObjectEncryption::Customer { verifier, .. } = encryption else { panic!("{encryption:?}") };
        assert_eq!(hex::encode(verifier), "9c8375db876497fc78e2e9924b8dc6e138c23e5d63aa44700f51343369155ae2");
        assert_eq!(hex::encode(key.bytes()), "45f5a881e992024ee0ace4ff722560c44e76bd4c067d9101bce1c332640e3e5f");
        let sealed = body_cipher(&A, b"b").unwrap().seal(0, true, b"tea").unwrap();
        assert_eq!(hex::encode(sealed), "16cf9e5837d9c9ead195229df33e8b94df3686");
    }
}
