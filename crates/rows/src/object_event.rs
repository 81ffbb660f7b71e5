//! Events of S3 objects: what a notice of one stores, and the JSON that a receiver gets, which is that of MinIO.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::Timestamp;
use crate::address::Address;
use crate::codec::{DecodeError, FieldDecoder, FieldEncoder, coded};
use crate::text::rfc3339_millis;

coded! {
    /// The name of an event: those of AWS, and MinIO's where AWS has none or another.
    pub enum EventName {
        /// A put.
        CreatedPut = 1, "s3:ObjectCreated:Put";
        /// A put by a form.
        CreatedPost = 2, "s3:ObjectCreated:Post";
        /// A copy.
        CreatedCopy = 3, "s3:ObjectCreated:Copy";
        /// A completed upload.
        CreatedComplete = 4, "s3:ObjectCreated:CompleteMultipartUpload";
        /// A version that a client removed.
        RemovedDelete = 5, "s3:ObjectRemoved:Delete";
        /// A delete marker of a client.
        RemovedMarker = 6, "s3:ObjectRemoved:DeleteMarkerCreated";
        /// A version that a lifecycle rule removed.
        ExpiredDelete = 7, "s3:LifecycleExpiration:Delete";
        /// A delete marker of a lifecycle rule.
        ExpiredMarker = 8, "s3:LifecycleExpiration:DeleteMarkerCreated";
        /// New tags.
        TaggingPut = 9, "s3:ObjectTagging:Put";
        /// Removed tags.
        TaggingDelete = 10, "s3:ObjectTagging:Delete";
        /// Another ACL.
        AclPut = 11, "s3:ObjectAcl:Put";
        /// A retention.
        RetentionPut = 12, "s3:ObjectRetention:Put";
        /// MinIO's name of new tags.
        MinioTaggingPut = 13, "s3:ObjectCreated:PutTagging";
        /// MinIO's name of removed tags.
        MinioTaggingDelete = 14, "s3:ObjectCreated:DeleteTagging";
        /// MinIO's name of a retention.
        MinioRetentionPut = 15, "s3:ObjectCreated:PutRetention";
        /// MinIO's name of a legal hold.
        MinioLegalHoldPut = 16, "s3:ObjectCreated:PutLegalHold";
        /// MinIO's name of a delete marker that a lifecycle rule removed.
        MinioMarkerExpired = 17, "s3:LifecycleDelMarkerExpiration:Delete";
    }
}

/// An event of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectEvent {
    /// Its name.
    pub name: EventName,
    /// When it happened, by the clock of clients.
    pub happened: Timestamp,
    /// The id of the rule that asked for it.
    pub rule: String,
    /// The region of the server.
    pub region: String,
    /// Canonical id of the owner of the bucket.
    pub owner: String,
    /// The access key of the caller; empty for an anonymous one, and for a lifecycle rule.
    pub principal: String,
    /// The address of the caller; empty for a lifecycle rule.
    pub source: String,
    /// The program of the caller.
    pub agent: String,
    /// The id of the request; empty for a lifecycle rule.
    pub request: String,
    /// The id of the version, unless it is `null`.
    pub version: Option<String>,
    /// The object; `None` where it is removed.
    pub object: Option<EventObject>,
}

/// An object as an event shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventObject {
    /// The length of its body in bytes.
    pub size: u64,
    /// Its entity tag, without quotes.
    pub etag: String,
    /// Its content type, if it has one.
    pub content_type: Option<Bytes>,
    /// Its user metadata: names after `x-amz-meta-` in lower case, and values.
    pub meta: Vec<(String, Bytes)>,
}

impl ObjectEvent {
    /// Appends the event.
    pub(crate) fn put(&self, out: &mut FieldEncoder) {
        out.u8(self.name.code());
        out.u64(self.happened.0);
        let texts = [&self.rule, &self.region, &self.owner, &self.principal, &self.source, &self.agent, &self.request];
        texts.into_iter().for_each(|text| out.text(text));
        out.optional(self.version.as_ref(), |out, version| out.text(version));
        out.optional(self.object.as_ref(), |out, object| object.put(out));
    }

    /// Reads the event.
    pub(crate) fn take(rest: &mut FieldDecoder) -> Result<Self, DecodeError> {
        Ok(Self {
            name: EventName::from_code(rest.u8()?).ok_or(DecodeError::Invalid("event name"))?,
            happened: Timestamp(rest.u64()?),
            rule: rest.text()?,
            region: rest.text()?,
            owner: rest.text()?,
            principal: rest.text()?,
            source: rest.text()?,
            agent: rest.text()?,
            request: rest.text()?,
            version: rest.optional(FieldDecoder::text)?,
            object: rest.optional(EventObject::take)?,
        })
    }

    /// Bytes of its names and texts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let texts = [&self.rule, &self.region, &self.owner, &self.principal, &self.source, &self.agent, &self.request];
        let texts: usize = texts.into_iter().chain(&self.version).map(String::len).sum();
        texts + self.object.as_ref().map_or(0, EventObject::bytes)
    }

    /// The body of the request to a receiver: one record, as MinIO makes it. `time` is the clock of the change.
    #[must_use]
    pub fn to_json(&self, at: &Address, time: Timestamp) -> Value {
        let bucket = String::from_utf8_lossy(&at.bucket.bucket);
        let record = json!({
            "eventVersion": "2.0",
            "eventSource": "minio:s3",
            "awsRegion": self.region,
            "eventTime": rfc3339_millis(self.happened),
            "eventName": self.name.name(),
            "userIdentity": {"principalId": self.principal},
            "requestParameters": {
                "principalId": self.principal,
                "region": self.region,
                "sourceIPAddress": self.source,
            },
            "responseElements": {"x-amz-id-2": self.request, "x-amz-request-id": self.request},
            "s3": {
                "s3SchemaVersion": "1.0",
                "configurationId": self.rule,
                "bucket": {
                    "name": bucket,
                    "ownerIdentity": {"principalId": self.owner},
                    "arn": format!("arn:aws:s3:::{bucket}"),
                },
                "object": self.object_json(&at.key, time),
            },
            "source": {"host": self.source, "port": "", "userAgent": self.agent},
        });
        json!({
            "EventName": self.name.name(),
            "Key": format!("{bucket}/{}", String::from_utf8_lossy(&at.key)),
            "Records": [record],
        })
    }

    fn object_json(&self, key: &[u8], time: Timestamp) -> Value {
        let mut json = Map::new();
        json.insert("key".into(), form_encoded(key).into());
        if let Some(object) = &self.object {
            json.insert("size".into(), object.size.into());
            json.insert("eTag".into(), object.etag.clone().into());
            if let Some(content_type) = &object.content_type {
                json.insert("contentType".into(), String::from_utf8_lossy(content_type).into());
            }
            json.insert("userMetadata".into(), object.metadata_json());
        }
        if let Some(version) = &self.version {
            json.insert("versionId".into(), version.clone().into());
        }
        // Of equal length, so that the greater text is the later event of a key.
        json.insert("sequencer".into(), format!("{:016X}", time.0).into());
        json.into()
    }
}

impl EventObject {
    fn put(&self, out: &mut FieldEncoder) {
        out.varint(self.size);
        out.text(&self.etag);
        out.optional(self.content_type.as_ref(), |out, content_type| out.bytes(content_type));
        out.list(&self.meta, |out, (name, value)| {
            out.text(name);
            out.bytes(value);
        });
    }

    fn take(rest: &mut FieldDecoder) -> Result<Self, DecodeError> {
        let (size, etag) = (rest.varint()?, rest.text()?);
        let content_type = rest.optional(FieldDecoder::bytes)?;
        let meta = rest.list(|rest| Ok((rest.text()?, rest.bytes()?)))?;
        Ok(Self { size, etag, content_type, meta })
    }

    fn bytes(&self) -> usize {
        let meta: usize = self.meta.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.etag.len() + self.content_type.as_ref().map_or(0, Bytes::len) + meta
    }

    fn metadata_json(&self) -> Value {
        let mut json = Map::new();
        if let Some(content_type) = &self.content_type {
            json.insert("content-type".into(), String::from_utf8_lossy(content_type).into());
        }
        for (name, value) in &self.meta {
            json.insert(format!("X-Amz-Meta-{}", capitalized(name)), String::from_utf8_lossy(value).into());
        }
        json.into()
    }
}

/// A name of a header as Go writes it: `file-name` is `File-Name`.
fn capitalized(name: &str) -> String {
    let part = |part: &str| {
        let mut letters = part.chars();
        letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
    };
    name.split('-').map(part).collect::<Vec<_>>().join("-")
}

/// A key as forms encode it, but for the slash.
fn form_encoded(key: &[u8]) -> String {
    let mut out = String::with_capacity(key.len());
    for byte in key {
        match byte {
            b' ' => out.push('+'),
            byte if byte.is_ascii_alphanumeric() || b"-_.*/".contains(byte) => out.push(char::from(*byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::address::BucketAddress;

    pub(crate) fn event() -> ObjectEvent {
        ObjectEvent {
            name: EventName::CreatedPut,
            happened: Timestamp(1_000_001),
            rule: "r".into(),
            region: "g".into(),
            owner: "o".into(),
            principal: "p".into(),
            source: "s".into(),
            agent: "a".into(),
            request: "q".into(),
            version: Some("v".into()),
            object: Some(EventObject {
                size: 300,
                etag: "e".into(),
                content_type: Some("c".into()),
                meta: vec![("file-name".into(), "m".into())],
            }),
        }
    }

    fn shown(event: &ObjectEvent, key: &str) -> Value {
        let bucket = BucketAddress { bucket_type: Bytes::new(), bucket: "teas".into() };
        event.to_json(&Address { bucket, key: Bytes::copy_from_slice(key.as_bytes()) }, Timestamp(0x1_0000))
    }

    #[test]
    fn a_receiver_of_minio_finds_what_it_reads() {
        let json = shown(&event(), "a b/ü@*.txt");
        assert_eq!(json["EventName"], "s3:ObjectCreated:Put");
        assert_eq!(json["Key"], "teas/a b/ü@*.txt");
        assert_eq!(json["Records"].as_array().map(Vec::len), Some(1));
        let record = &json["Records"][0];
        assert_eq!(record["eventTime"], "1970-01-01T00:00:01.000Z");
        assert_eq!(record["s3"]["bucket"]["arn"], "arn:aws:s3:::teas");
        let object = json!({
            "key": "a+b/%C3%BC%40*.txt", "size": 300, "eTag": "e", "contentType": "c",
            "userMetadata": {"content-type": "c", "X-Amz-Meta-File-Name": "m"}, "versionId": "v",
            "sequencer": "0000000000010000",
        });
        assert_eq!(record["s3"]["object"], object);
    }

    #[test]
    fn a_removed_object_has_neither_size_nor_tag() {
        let gone = ObjectEvent { name: EventName::RemovedDelete, version: None, object: None, ..event() };
        let object = json!({"key": "k", "sequencer": "0000000000010000"});
        assert_eq!(shown(&gone, "k")["Records"][0]["s3"]["object"], object);
    }

    #[test]
    fn event_names_are_distinct() {
        let names: std::collections::BTreeSet<_> = EventName::ALL.into_iter().map(EventName::name).collect();
        assert_eq!(names.len(), EventName::ALL.len());
    }
}
