//! The size of a put besides its value, taken from the bytes of the message.
//!
//! A field of two bytes may become a hundred in memory. So a message is measured before it is decoded, and the parts that
//! multiply are bounded.

use prost::encoding::{WireType, decode_key, decode_varint};

const PUT_CONTENT: u32 = 4;
const CONTENT_VALUE: u32 = 1;

/// Bytes of a put's message that are not the value of its content; `None`: the message is no sequence of fields.
pub(super) fn bytes_besides_value(message: &[u8]) -> Option<usize> {
    let mut besides = 0;
    for field in fields(message) {
        let (number, bytes) = field?;
        besides += match number {
            PUT_CONTENT => content_besides_value(bytes)?,
            _ => bytes.len() + 2,
        };
    }
    Some(besides)
}

fn content_besides_value(content: &[u8]) -> Option<usize> {
    let mut besides = 0;
    for field in fields(content) {
        let (number, bytes) = field?;
        besides += if number == CONTENT_VALUE { 2 } else { bytes.len() + 2 };
    }
    Some(besides)
}

/// The fields of a message with their bytes; `None` once, at bytes that are no field.
pub(super) fn fields(mut rest: &[u8]) -> impl Iterator<Item = Option<(u32, &[u8])>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = take_field(&mut rest);
        if field.is_none() {
            rest = &[];
        }
        Some(field)
    })
}

fn take_field<'a>(rest: &mut &'a [u8]) -> Option<(u32, &'a [u8])> {
    let (number, wire_type) = decode_key(rest).ok()?;
    let length = match wire_type {
        WireType::Varint => {
            decode_varint(rest).ok()?;
            0
        }
        WireType::SixtyFourBit => 8,
        WireType::ThirtyTwoBit => 4,
        WireType::LengthDelimited => usize::try_from(decode_varint(rest).ok()?).ok()?,
        // Groups, which no message of Riak has.
        WireType::StartGroup | WireType::EndGroup => return None,
    };
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some((number, bytes))
}

#[cfg(test)]
mod tests {
    use super::super::messages::{RpbContent, RpbLink, RpbPutReq};
    use super::*;
    use proptest::prelude::*;
    use prost::Message as _;

    fn put(value: usize, links: usize) -> Vec<u8> {
        let content = RpbContent {
            value: Some(vec![7; value].into()),
            links: vec![RpbLink::default(); links],
            ..RpbContent::default()
        };
        RpbPutReq { bucket: Some("b".into()), content: Some(content), ..RpbPutReq::default() }.encode_to_vec()
    }

    #[test]
    fn all_but_the_value_is_counted() {
        assert_eq!(bytes_besides_value(&put(1_000_000, 0)), Some(5));
        assert_eq!(bytes_besides_value(&put(10, 1000)), Some(2005));
        let twice = [put(0, 1000), put(0, 1000)].concat();
        assert_eq!(bytes_besides_value(&twice), Some(4010), "contents of repeated fields add up");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_measured_or_refused(message: Vec<u8>) {
            let _ = bytes_besides_value(&message);
        }

        #[test]
        fn every_message_that_decodes_without_groups_is_measured(value in 0..300_usize, links in 0..9_usize, cut in 0..400_usize) {
            let whole = put(value, links);
            let message = &whole[..cut.min(whole.len())];
            prop_assert!(RpbPutReq::decode(message).is_err() || bytes_besides_value(message).is_some());
        }
    }
}
