//! Rows of the outbox: notices for webhooks and targets of S3 events, and the JSON that a receiver gets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::Timestamp;
use crate::address::{Address, BucketAddress};
use crate::codec::{DecodeError, FieldDecoder, FieldEncoder, coded};
use crate::object_event::ObjectEvent;

/// The version of a notice about a key-value write.
const KV_VERSION: u8 = 1;
/// The version of a notice about an S3 object.
const EVENT_VERSION: u8 = 2;

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
    /// The receiver: the address of a webhook, or the name of a target of events.
    pub receiver: String,
    /// The object. That of S3 has no bucket type.
    pub address: Address,
    /// The clock of the write.
    pub time: Timestamp,
    /// What the receiver is told.
    pub content: NoticeContent,
}

/// What a receiver is told of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoticeContent {
    /// A write of a key-value object.
    Kv(KvWrite),
    /// An event of an S3 object.
    Event(Box<ObjectEvent>),
}

/// A write of a key-value object, as its receivers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvWrite {
    /// Its kind.
    pub event: NoticeEvent,
    /// Of a put: the content type, if there is one.
    pub content_type: Option<Bytes>,
    /// Of a put: the length of the value.
    pub bytes: u64,
}

impl NoticeRow {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let room = self.bytes() + 96;
        match &self.content {
            NoticeContent::Kv(write) => self.encode_kv(write, FieldEncoder::versioned(KV_VERSION, room)),
            NoticeContent::Event(event) => {
                let mut out = FieldEncoder::versioned(EVENT_VERSION, room);
                out.text(&self.id);
                out.text(&self.receiver);
                [&self.address.bucket.bucket, &self.address.key].iter().for_each(|name| out.bytes(name));
                out.u64(self.time.0);
                event.put(&mut out);
                out.finish()
            }
        }
    }

    fn encode_kv(&self, write: &KvWrite, mut out: FieldEncoder) -> Bytes {
        let BucketAddress { bucket_type, bucket } = &self.address.bucket;
        out.text(&self.id);
        out.text(&self.receiver);
        out.u8(write.event.code());
        [bucket_type, bucket, &self.address.key].iter().for_each(|name| out.bytes(name));
        out.u64(self.time.0);
        out.optional(write.content_type.as_ref(), |out, content_type| out.bytes(content_type));
        out.varint(write.bytes);
        out.finish()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`DecodeError`] as for every row.
    pub fn decode(value: Bytes) -> Result<Self, DecodeError> {
        let mut rest = FieldDecoder::new(value);
        let row = match rest.u8()? {
            KV_VERSION => Self::take_kv(&mut rest)?,
            EVENT_VERSION => Self::take_event(&mut rest)?,
            version => return Err(DecodeError::UnknownVersion(version)),
        };
        rest.finish()?;
        Ok(row)
    }

    fn take_kv(rest: &mut FieldDecoder) -> Result<Self, DecodeError> {
        let (id, receiver) = (rest.text()?, rest.text()?);
        let event = NoticeEvent::from_code(rest.u8()?).ok_or(DecodeError::Invalid("event"))?;
        let bucket = BucketAddress { bucket_type: rest.bytes()?, bucket: rest.bytes()? };
        let address = Address { bucket, key: rest.bytes()? };
        let time = Timestamp(rest.u64()?);
        let content_type = rest.optional(FieldDecoder::bytes)?;
        let content = NoticeContent::Kv(KvWrite { event, content_type, bytes: rest.varint()? });
        Ok(Self { id, receiver, address, time, content })
    }

    fn take_event(rest: &mut FieldDecoder) -> Result<Self, DecodeError> {
        let (id, receiver) = (rest.text()?, rest.text()?);
        let bucket = BucketAddress { bucket_type: Bytes::new(), bucket: rest.bytes()? };
        let address = Address { bucket, key: rest.bytes()? };
        let time = Timestamp(rest.u64()?);
        let content = NoticeContent::Event(Box::new(ObjectEvent::take(rest)?));
        Ok(Self { id, receiver, address, time, content })
    }

    /// Bytes of its names and texts, in memory and in the store.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let names = &self.address;
        let content = match &self.content {
            NoticeContent::Kv(write) => write.content_type.as_ref().map_or(0, Bytes::len),
            NoticeContent::Event(event) => event.bytes(),
        };
        names.bucket.bucket_type.len() + names.bucket.bucket.len() + names.key.len() + self.receiver.len() + content
    }

    /// The name of its event.
    #[must_use]
    pub fn event_name(&self) -> &'static str {
        match &self.content {
            NoticeContent::Kv(write) => write.event.name(),
            NoticeContent::Event(event) => event.name.name(),
        }
    }

    /// The body of the request to the receiver.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match &self.content {
            NoticeContent::Kv(write) => self.kv_json(write),
            NoticeContent::Event(event) => event.to_json(&self.address, self.time),
        }
    }

    /// The body about a key-value write. A name that is not UTF-8 is base64 under its member's name with `_base64`.
    fn kv_json(&self, write: &KvWrite) -> Value {
        let mut json = Map::new();
        json.insert("id".into(), self.id.clone().into());
        json.insert("event".into(), write.event.name().into());
        let BucketAddress { bucket_type, bucket } = &self.address.bucket;
        add_name(&mut json, "bucket_type", bucket_type);
        add_name(&mut json, "bucket", bucket);
        add_name(&mut json, "key", &self.address.key);
        json.insert("time".into(), crate::text::rfc3339(self.time).into());
        if write.event == NoticeEvent::Put {
            match &write.content_type {
                Some(content_type) => add_name(&mut json, "content_type", content_type),
                None => drop(json.insert("content_type".into(), Value::Null)),
            }
            json.insert("bytes".into(), write.bytes.into());
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
            receiver: "u".into(),
            address: Address { bucket, key: "k".into() },
            time: Timestamp(1_000_001),
            content: NoticeContent::Kv(KvWrite { event: NoticeEvent::Put, content_type: Some("c".into()), bytes: 300 }),
        }
    }

    fn event_row() -> NoticeRow {
        let bucket = BucketAddress { bucket_type: Bytes::new(), bucket: "b".into() };
        let content = NoticeContent::Event(Box::new(crate::object_event::tests::event()));
        NoticeRow { address: Address { bucket, key: "k".into() }, content, ..row() }
    }

    proptest! {
        #[test]
        fn random_bytes_decode_or_fail_without_panic(bytes: Vec<u8>) {
            let _ = NoticeRow::decode([&[EVENT_VERSION], &bytes[..]].concat().into());
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
    fn the_golden_event_still_decodes() {
        let golden = Bytes::from_static(
            b"\x02\x01i\x01u\x01b\x01k\0\0\0\0\0\x0f\x42\x41\
            \x01\0\0\0\0\0\x0f\x42\x41\x01r\x01g\x01o\x01p\x01s\x01a\x01q\x01\x01v\x01\xac\x02\x01e\x01\x01c\x01\x09file-name\x01m",
        );
        assert_eq!(event_row().encode(), golden);
        assert_eq!(NoticeRow::decode(golden), Ok(event_row()));
        assert_eq!(NoticeRow::decode(Bytes::from_static(b"\x03")), Err(DecodeError::UnknownVersion(3)));
    }

    #[test]
    fn a_name_that_is_no_text_is_base64_and_a_delete_has_no_value() {
        let shown = |row: &NoticeRow| row.to_json().to_string();
        assert_eq!(
            shown(&row()),
            r#"{"id":"i","event":"put","bucket_type":"t","bucket":"b","key":"k","time":"1970-01-01T00:00:01.000001Z","content_type":"c","bytes":300}"#
        );
        let content = NoticeContent::Kv(KvWrite { event: NoticeEvent::Delete, content_type: None, bytes: 0 });
        let mut delete = NoticeRow { content, ..row() };
        delete.address.key = Bytes::from_static(b"\xff");
        assert_eq!(
            shown(&delete),
            r#"{"id":"i","event":"delete","bucket_type":"t","bucket":"b","key_base64":"/w==","time":"1970-01-01T00:00:01.000001Z"}"#
        );
    }
}
