//! Rows of the catalogue: bucket types, properties set on buckets, epochs of buckets, S3 buckets, quotas of S3 users, and security. The values are JSON after a
//! version byte: they are few and read whole, and an operator who restores a store can read them.

use bytes::Bytes;
use larder_rows::address::BucketAddress;
use larder_rows::codec::{DecodeError, FieldDecoder, FieldEncoder, put_ordered, take_ordered};

use crate::rules::security::SecurityKey;

const VERSION: u8 = 1;
const TYPE: u8 = 1;
const BUCKET: u8 = 2;
const S3_BUCKET: u8 = 3;
const EPOCHS: u8 = 4;
const SECURITY: u8 = 5;
const S3_USER_QUOTA: u8 = 6;

/// Name of a row of the catalogue. The head has the empty name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogueKey {
    /// The bucket type of this name.
    Type(Bytes),
    /// The properties set on this bucket.
    Bucket(BucketAddress),
    /// The S3 bucket of this name.
    S3Bucket(Bytes),
    /// The epochs of this bucket, where it has more than one.
    Epochs(BucketAddress),
    /// A user, a group or the settings of security.
    Security(SecurityKey),
    /// The quota of all S3 buckets of the user with this canonical id.
    S3UserQuota(String),
}

impl CatalogueKey {
    /// The row name.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut name = Vec::new();
        match self {
            Self::Type(bucket_type) => {
                name.push(TYPE);
                put_ordered(&mut name, bucket_type);
            }
            Self::Bucket(address) | Self::Epochs(address) => {
                name.push(if matches!(self, Self::Bucket(_)) { BUCKET } else { EPOCHS });
                put_ordered(&mut name, &address.bucket_type);
                put_ordered(&mut name, &address.bucket);
            }
            Self::S3Bucket(bucket) => {
                name.push(S3_BUCKET);
                put_ordered(&mut name, bucket);
            }
            Self::S3UserQuota(user) => {
                name.push(S3_USER_QUOTA);
                put_ordered(&mut name, user.as_bytes());
            }
            Self::Security(key) => {
                let (kind, of) = key.parts();
                name.push(SECURITY);
                put_ordered(&mut name, &[kind]);
                put_ordered(&mut name, of.as_bytes());
            }
        }
        name.into()
    }

    /// Reads a row name.
    ///
    /// # Errors
    /// [`DecodeError`] for a name of another form.
    pub fn decode(name: &[u8]) -> Result<Self, DecodeError> {
        let (&kind, rest) = name.split_first().ok_or(DecodeError::Truncated)?;
        let (first, rest) = take_ordered(rest)?;
        match kind {
            TYPE if rest.is_empty() => Ok(Self::Type(first.into())),
            S3_BUCKET if rest.is_empty() => Ok(Self::S3Bucket(first.into())),
            S3_USER_QUOTA if rest.is_empty() => {
                String::from_utf8(first).map(Self::S3UserQuota).map_err(|_| DecodeError::Invalid("canonical id"))
            }
            BUCKET | EPOCHS | SECURITY => {
                let (bucket, rest) = take_ordered(rest)?;
                if !rest.is_empty() {
                    return Err(DecodeError::Trailing);
                }
                if kind == SECURITY {
                    return SecurityKey::from_parts(&first, &bucket).map(Self::Security);
                }
                let address = BucketAddress { bucket_type: first.into(), bucket: bucket.into() };
                Ok(if kind == BUCKET { Self::Bucket(address) } else { Self::Epochs(address) })
            }
            _ => Err(DecodeError::Invalid("catalogue row")),
        }
    }
}

/// Value of a row of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogueRow(pub serde_json::Value);

impl CatalogueRow {
    /// The stored form of a row with this value.
    #[must_use]
    pub fn encode(json: &serde_json::Value) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 64);
        out.raw(json.to_string().as_bytes());
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let rest = FieldDecoder::versioned(value, VERSION)?;
        serde_json::from_slice(&rest.rest()).map(Self).map_err(|_| DecodeError::Invalid("JSON"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_decode_to_their_keys(bucket_type: Vec<u8>, bucket: Vec<u8>) {
            let key = CatalogueKey::Type(bucket_type.clone().into());
            prop_assert_eq!(CatalogueKey::decode(&key.encode()), Ok(key));
            let key = CatalogueKey::S3Bucket(bucket.clone().into());
            prop_assert_eq!(CatalogueKey::decode(&key.encode()), Ok(key));
            let key = CatalogueKey::S3UserQuota(String::from_utf8_lossy(&bucket).into_owned());
            prop_assert_eq!(CatalogueKey::decode(&key.encode()), Ok(key));
            let address = BucketAddress { bucket_type: bucket_type.into(), bucket: bucket.into() };
            for key in [CatalogueKey::Bucket(address.clone()), CatalogueKey::Epochs(address)] {
                prop_assert_eq!(CatalogueKey::decode(&key.encode()), Ok(key));
            }
        }

        #[test]
        fn names_of_security_decode_to_their_keys(name: String) {
            let keys =
                [SecurityKey::Settings, SecurityKey::All, SecurityKey::User(name.clone()), SecurityKey::Group(name)];
            for key in keys.map(CatalogueKey::Security) {
                prop_assert_eq!(CatalogueKey::decode(&key.encode()), Ok(key));
            }
        }

        #[test]
        fn random_bytes_decode_or_fail_without_panic(bytes: Vec<u8>) {
            let _ = CatalogueKey::decode(&bytes);
            let _ = CatalogueRow::decode(bytes.into());
        }
    }

    #[test]
    fn the_golden_catalogue_row_still_decodes() {
        let golden = Bytes::from_static(b"\x01{\"n_val\":3}");
        let row = CatalogueRow(serde_json::json!({"n_val": 3}));
        assert_eq!(CatalogueRow::encode(&row.0), golden);
        assert_eq!(CatalogueRow::decode(golden), Ok(row));
        assert_eq!(CatalogueKey::Type(Bytes::from_static(b"t")).encode().as_ref(), b"\x01t\x00\x01");
        let user = CatalogueKey::Security(SecurityKey::User("u".into()));
        assert_eq!(user.encode().as_ref(), b"\x05u\x00\x01u\x00\x01");
    }
}
