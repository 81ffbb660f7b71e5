//! Rows of the outbox: notices for webhooks, and the JSON that a receiver gets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::Timestamp;
use crate::address::{Address, BucketAddress};
use crate::codec::{DecodeError, FieldDecoder, FieldEncoder, coded};

const VERSION: u8 = 1;

coded! {
    /// The write that a notice is about.
    pub enum NoticeEvent {
        /// A put.
        Put = 1, "put";
        /// A delete.
        Delete = 2, "delete";
    }
}

/// A notice for one receiver about one write. It does not have the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeRow {
    /// The id by which a receiver knows a notice that comes again.
    pub id: String,
    /// The address of the receiver.
    pub url: String,
    /// The write.
    pub event: NoticeEvent,
    /// The object.
    pub address: Address,
    /// The clock of the write.
    pub time: Timestamp,
    /// Of a put: the content type, if there is one.
    pub content_type: Option<Bytes>,
    /// Of a put: the length of the value.
    pub bytes: u64,
}

impl NoticeRow {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let BucketAddress { bucket_type, bucket } = &self.address.bucket;
        let names = bucket_type.len() + bucket.len() + self.address.key.len();
        let mut out = FieldEncoder::versioned(VERSION, names + self.url.len() + 96);
        out.text(&self.id);
        out.text(&self.url);
        out.u8(self.event.code());
        [bucket_type, bucket, &self.address.key].iter().for_each(|name| out.bytes(name));
        out.u64(self.time.0);
        out.optional(self.content_type.as_ref(), |out, content_type| out.bytes(content_type));
        out.varint(self.bytes);
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::versioned(value, VERSION)?;
        let (id, url) = (rest.text()?, rest.text()?);
        let event = NoticeEvent::from_code(rest.u8()?).ok_or(DecodeError::Invalid("event"))?;
        let bucket = BucketAddress { bucket_type: rest.bytes()?, bucket: rest.bytes()? };
        let address = Address { bucket, key: rest.bytes()? };
        let time = Timestamp(rest.u64()?);
        let content_type = rest.optional(FieldDecoder::bytes)?;
        let row = Self { id, url, event, address, time, content_type, bytes: rest.varint()? };
        rest.finish()?;
        Ok(row)
    }

    /// The body of the request to the receiver. A name that is not UTF-8 is base64 under its member's name with `_base64`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut json = Map::new();
        json.insert("id".into(), self.id.clone().into());
        json.insert("event".into(), self.event.name().into());
        let BucketAddress { bucket_type, bucket } = &self.address.bucket;
        add_name(&mut json, "bucket_type", bucket_type);
        add_name(&mut json, "bucket", bucket);
        add_name(&mut json, "key", &self.address.key);
        json.insert("time".into(), crate::text::rfc3339(self.time).into());
        if self.event == NoticeEvent::Put {
            match &self.content_type {
                Some(content_type) => add_name(&mut json, "content_type", content_type),
                None => drop(json.insert("content_type".into(), Value::Null)),
            }
            json.insert("bytes".into(), self.bytes.into());
        }
        json.into()
    }
}

fn add_name(json: &mut Map<String, Value>, member: &str, name: &[u8]) {
    match std::str::from_utf8(name) {
        Ok(text) => json.insert(member.to_owned(), text.into()),
        Err(_) => json.insert(format!("{member}_base64"), STANDARD.encode(name).into()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row() -> NoticeRow {
        let bucket = BucketAddress { bucket_type: "t".into(), bucket: "b".into() };
        NoticeRow {
            id: "i".into(),
            url: "u".into(),
            event: NoticeEvent::Put,
            address: Address { bucket, key: "k".into() },
            time: Timestamp(1_000_001),
            content_type: Some("c".into()),
            bytes: 300,
        }
    }

    proptest! {
        #[test]
        fn random_bytes_decode_or_fail_without_panic(bytes: Vec<u8>) {
            let _ = NoticeRow::decode(bytes.into());
        }
    }

    #[test]
    fn the_golden_notice_still_decodes() {
        let golden = Bytes::from_static(b"\x01\x01i\x01u\x01\x01t\x01b\x01k\0\0\0\0\0\x0f\x42\x41\x01\x01c\xac\x02");
        assert_eq!(row().encode(), golden);
        assert_eq!(NoticeRow::decode(golden), Ok(row()));
    }

    #[test]
    fn a_name_that_is_no_text_is_base64_and_a_delete_has_no_value() {
        let shown = |row: &NoticeRow| row.to_json().to_string();
        assert_eq!(
            shown(&row()),
            r#"{"id":"i","event":"put","bucket_type":"t","bucket":"b","key":"k","time":"1970-01-01T00:00:01.000001Z","content_type":"c","bytes":300}"#
        );
        let mut delete = NoticeRow { event: NoticeEvent::Delete, content_type: None, bytes: 0, ..row() };
        delete.address.key = Bytes::from_static(b"\xff");
        assert_eq!(
            shown(&delete),
            r#"{"id":"i","event":"delete","bucket_type":"t","bucket":"b","key_base64":"/w==","time":"1970-01-01T00:00:01.000001Z"}"#
        );
    }
}
