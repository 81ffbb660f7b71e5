//! Rows of cluster members: their heartbeats.

use bytes::Bytes;

use crate::Timestamp;
use crate::codec::{DecodeError, FieldDecoder, FieldEncoder};

const VERSION: u8 = 1;

/// The heartbeat that a running gateway writes every two seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRow {
    /// Its node name, such as `larder@127.0.0.1`.
    pub node: String,
    /// The address of its HTTP listener.
    pub address: String,
    /// Its program version.
    pub version: String,
    /// The version of the catalogue that it serves from.
    pub catalogue: Timestamp,
}

impl MemberRow {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = FieldEncoder::versioned(VERSION, 64);
        for text in [&self.node, &self.address, &self.version] {
            out.text(text);
        }
        out.u64(self.catalogue.0);
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let (node, address, version) = (rest.text()?, rest.text()?, rest.text()?);
        let row = Self { node, address, version, catalogue: Timestamp(rest.u64()?) };
        rest.finish()?;
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn member_rows_decode_to_themselves(node: String, address: String, version: String, catalogue: u64) {
            let row = MemberRow { node, address, version, catalogue: Timestamp(catalogue) };
            prop_assert_eq!(MemberRow::decode(row.encode()), Ok(row));
        }

        #[test]
        fn random_bytes_decode_or_fail_without_panic(bytes: Vec<u8>) {
            let _ = MemberRow::decode(bytes.into());
        }
    }

    #[test]
    fn the_golden_member_row_still_decodes() {
        let golden = Bytes::from_static(b"\x01\x01n\x01a\x01v\x00\x00\x00\x00\x00\x00\x00\x09");
        let row = MemberRow { node: "n".into(), address: "a".into(), version: "v".into(), catalogue: Timestamp(9) };
        assert_eq!(row.encode(), golden);
        assert_eq!(MemberRow::decode(golden), Ok(row));
    }
}
