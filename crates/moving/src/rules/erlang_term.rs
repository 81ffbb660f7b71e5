//! Terms of Erlang, as Riak stores them.

use bytes::Bytes;
use larder_core::rules::external_term::{ExternalTerm, ExternalTermError, TermBounds, big};

use super::riak_bytes::{INFLATED_BYTES_MAX, RiakBytes, RiakFormError, inflate_zlib};

/// A term of Erlang.
pub type ErlangTerm = ExternalTerm<Bytes>;

/// A cell of a dictionary is a list that ends with its value.
const BOUNDS: TermBounds = TermBounds { depth: 128, has_improper: true };
/// The version of a term, and the tag of a compressed one.
const COMPRESSED: &[u8] = b"\x83P";

/// Decodes a term, and takes it apart; each error names the part of an object.
pub(super) trait RiakTerm: Sized {
    /// Decodes what `term_to_binary` made, compressed or not.
    ///
    /// # Errors
    /// [`RiakFormError`]: also for terms that no stored object has, as references, and for those beyond the bounds.
    fn from_stored(bytes: Bytes) -> Result<Self, RiakFormError>;

    /// The elements of a proper list. A text is a list of its bytes.
    fn into_items(self, part: &'static str) -> Result<Vec<Self>, RiakFormError>;

    /// The elements of a tuple of this size.
    fn into_tuple<const SIZE: usize>(self, part: &'static str) -> Result<[Self; SIZE], RiakFormError>;

    /// The bytes of a binary or a text. The empty text is the empty list.
    fn into_bytes(self, part: &'static str) -> Result<Bytes, RiakFormError>;

    /// The number of an integer that fits.
    fn to_number<N: TryFrom<i128>>(&self, part: &'static str) -> Result<N, RiakFormError>;

    /// Whether it is this atom.
    fn is_atom(&self, name: &str) -> bool;
}

impl RiakTerm for ErlangTerm {
    fn from_stored(bytes: Bytes) -> Result<Self, RiakFormError> {
        if !bytes.starts_with(COMPRESSED) {
            return Self::decode(bytes, BOUNDS).map_err(form_error);
        }
        let mut rest = RiakBytes(bytes.slice(COMPRESSED.len()..));
        let length = usize::try_from(rest.u32("length of a compressed term")?).unwrap_or(usize::MAX);
        if length > INFLATED_BYTES_MAX {
            return Err(RiakFormError::TooLarge("inflated form"));
        }
        let inflated = inflate_zlib(&rest.rest(), INFLATED_BYTES_MAX)?;
        if inflated.len() != length {
            return Err(RiakFormError::Invalid("length of a compressed term"));
        }
        Self::decode_content(inflated, BOUNDS).map_err(form_error)
    }

    fn into_items(self, part: &'static str) -> Result<Vec<Self>, RiakFormError> {
        self.into_list().ok_or(RiakFormError::Invalid(part))
    }

    fn into_tuple<const SIZE: usize>(self, part: &'static str) -> Result<[Self; SIZE], RiakFormError> {
        match self {
            Self::Tuple(items) => items.try_into().map_err(|_| RiakFormError::Invalid(part)),
            _ => Err(RiakFormError::Invalid(part)),
        }
    }

    fn into_bytes(self, part: &'static str) -> Result<Bytes, RiakFormError> {
        match self {
            Self::Binary(bytes) | Self::Bytes(bytes) => Ok(bytes),
            Self::List(items) if items.is_empty() => Ok(Bytes::new()),
            _ => Err(RiakFormError::Invalid(part)),
        }
    }

    fn to_number<N: TryFrom<i128>>(&self, part: &'static str) -> Result<N, RiakFormError> {
        let number = match self {
            Self::Integer(number) => Some(i128::from(*number)),
            Self::Big(is_negative, digits) => big(*is_negative, digits),
            _ => return Err(RiakFormError::Invalid(part)),
        };
        number.and_then(|number| N::try_from(number).ok()).ok_or(RiakFormError::TooLarge(part))
    }

    fn is_atom(&self, name: &str) -> bool {
        matches!(self, Self::Atom(atom) if atom == name)
    }
}

fn form_error(error: ExternalTermError) -> RiakFormError {
    match error {
        ExternalTermError::Truncated(part) => RiakFormError::Truncated(part),
        ExternalTermError::Invalid(part) => RiakFormError::Invalid(part),
        ExternalTermError::TooLarge(part) => RiakFormError::TooLarge(part),
        ExternalTermError::Trailing => RiakFormError::Trailing,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(bytes: &[u8]) -> Result<ErlangTerm, RiakFormError> {
        ErlangTerm::from_stored(Bytes::copy_from_slice(bytes))
    }

    fn integer(number: i64) -> ErlangTerm {
        ErlangTerm::Integer(number)
    }

    #[test]
    fn the_forms_of_term_to_binary_decode() {
        let atom = |name: &'static str| ErlangTerm::Atom(Bytes::from_static(name.as_bytes()));
        let list = ErlangTerm::List;
        let binary = |bytes: &'static [u8]| ErlangTerm::Binary(Bytes::from_static(bytes));
        for (bytes, term) in [
            (&b"\x83a\xff"[..], integer(255)),
            (b"\x83b\xff\xff\xff\xfe", integer(-2)),
            (b"\x83n\x05\x00\x1ePw\xe4\x0e", integer(63_962_566_686)),
            (b"\x83n\x01\x01\x02", integer(-2)),
            (b"\x83o\0\0\0\x01\0\x07", integer(7)),
            (b"\x83F\x3f\xf8\0\0\0\0\0\0", ErlangTerm::Float(1.5)),
            (b"\x83d\0\x04dict", atom("dict")),
            (b"\x83s\x02ok", atom("ok")),
            (b"\x83v\0\x02ok", atom("ok")),
            (b"\x83w\x02ok", atom("ok")),
            (b"\x83m\0\0\0\x02ab", binary(b"ab")),
            (b"\x83k\0\x02ab", ErlangTerm::Bytes(Bytes::from_static(b"ab"))),
            (b"\x83j", list(Vec::new())),
            (b"\x83l\0\0\0\x01a\x01j", list(vec![integer(1)])),
            (b"\x83l\0\0\0\x01a\x01a\x02", ErlangTerm::Improper(vec![integer(1), integer(2)])),
            (b"\x83h\x02a\x01a\x02", ErlangTerm::Tuple(vec![integer(1), integer(2)])),
            (b"\x83i\0\0\0\x01a\x01", ErlangTerm::Tuple(vec![integer(1)])),
            (b"\x83t\0\0\0\x01a\x01a\x02", ErlangTerm::Map(vec![integer(1), integer(2)])),
        ] {
            assert_eq!(decode(bytes), Ok(term), "{bytes:?}");
        }
    }

    #[test]
    fn a_lying_length_costs_nothing() {
        for bytes in [
            &b"\x83l\x40\0\0\0j"[..],
            b"\x83i\x40\0\0\0j",
            b"\x83t\x40\0\0\0j",
            b"\x83m\x40\0\0\0j",
            b"\x83o\x40\0\0\0\0j",
            b"\x83k\xff\xffj",
        ] {
            assert!(matches!(decode(bytes), Err(RiakFormError::Truncated(_))), "{bytes:?}");
        }
        let zeros = miniz_oxide::deflate::compress_to_vec_zlib(&vec![0; 65 << 20], 1);
        let bomb = [b"\x83P\0\0\0\x01", &zeros[..]].concat();
        assert_eq!(decode(&bomb), Err(RiakFormError::TooLarge("inflated form")));
        assert_eq!(decode(b"\x83P\x40\0\0\0junk"), Err(RiakFormError::TooLarge("inflated form")));
    }

    #[test]
    fn depth_and_number_of_terms_are_bounded() {
        let deep = [b"\x83".to_vec(), b"h\x01".repeat(100_000), b"j".to_vec()].concat();
        assert_eq!(decode(&deep), Err(RiakFormError::TooLarge("depth of terms")));
        let count = 3_000_000_u32;
        let wide = [b"\x83l".to_vec(), count.to_be_bytes().to_vec(), vec![b'j'; count as usize + 1]].concat();
        assert_eq!(decode(&wide), Err(RiakFormError::TooLarge("number of terms")));
    }

    #[test]
    fn foreign_terms_and_trailing_bytes_are_refused() {
        assert_eq!(decode(b"\x83a\x01x"), Err(RiakFormError::Trailing));
        assert_eq!(decode(b"\x82a\x01"), Err(RiakFormError::Invalid("version of a term")));
        assert_eq!(decode(b"\x83g"), Err(RiakFormError::Invalid("tag of a term")));
        let long = decode(&[b"\x83n\x20\x00".to_vec(), vec![1; 32]].concat()).unwrap();
        assert_eq!(long.to_number::<i128>("count"), Err(RiakFormError::TooLarge("count")));
        assert_eq!(decode(b""), Err(RiakFormError::Truncated("version of a term")));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = decode(&[b"\x83", &bytes[..]].concat());
            let _ = decode(&bytes);
        }
    }
}
