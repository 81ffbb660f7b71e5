//! Values with their metadata, from clients and to them.
//!
//! ```text
//! RpbGetResp, RpbPutResp   1 content, once per sibling · 2 vclock · 3 key (of a put that named none)
//! RpbContent               1 value · 2 … 11 metadata
//! ```
//! A frame begins with its length, and the lengths of all values are known before their bytes are. So large values go out in
//! pieces, and no answer is in memory as a whole.

use bytes::{Bytes, BytesMut};
use larder_core::Error;
use larder_core::body::GetBody;
use larder_kv::rules::causality::Sibling;
use larder_kv::rules::terms;
use larder_kv::{FetchedObject, SingleObject};
use larder_net::PIECE_BYTES_MAX;
use larder_rows::content::{KvContent, Link};
use prost::encoding::encoded_len_varint;

use super::fault::PbFault;
use super::frame::put_head;
use super::messages::{RpbContent, RpbLink, RpbPair};
use super::metadata::{ShownMetadata, put_field};
use super::reply_piece::ReplyPiece;

const CONTENT: u32 = 1;
const VCLOCK: u32 = 2;
const NEW_KEY: u32 = 3;
const VALUE: u32 = 1;

/// The metadata of a content as the gateway stores it.
///
/// # Errors
/// Index fields or terms are invalid; all of them are named.
pub(super) fn stored_content(content: RpbContent) -> Result<KvContent, PbFault> {
    let link = |link: RpbLink| Link {
        bucket: link.bucket.unwrap_or_default(),
        key: link.key.unwrap_or_default(),
        tag: link.tag.unwrap_or_default(),
    };
    let pair = |pair: RpbPair| (pair.key.unwrap_or_default(), pair.value.unwrap_or_default());
    let (mut stored_terms, mut refused) = (Vec::new(), Vec::new());
    for (field, value) in content.indexes.into_iter().map(pair) {
        match terms::parse(&field, &value) {
            Ok(term) => stored_terms.push(term),
            Err(error) => refused.push(error.erlang()),
        }
    }
    if !refused.is_empty() {
        return Err(PbFault::Text(format!("{{precommit_fail,[{}]}}", refused.join(","))));
    }
    Ok(KvContent {
        content_type: content.content_type,
        charset: content.charset,
        encoding: content.content_encoding,
        meta: content.usermeta.into_iter().map(pair).collect(),
        links: content.links.into_iter().map(link).collect(),
        terms: stored_terms,
        ..KvContent::default()
    })
}

/// Appends a message with a context, and the key of an object that the server named, as they are given.
pub(super) fn put_fields(output: &mut BytesMut, code: u8, context: Option<&[u8]>, new_key: Option<&[u8]>) {
    put_head(output, code, fields_len(context, new_key));
    put_fields_after(output, context, new_key);
}

/// Appends a message with all siblings of an object, without their values if `blank`. `new_key` as in [`put_fields`].
/// Returns what follows the output: none where all values are in memory.
///
/// # Errors
/// `TooLarge`: all values together exceed a frame.
pub(super) fn put_object(
    output: &mut BytesMut,
    code: u8,
    object: FetchedObject,
    blank: bool,
    new_key: Option<Bytes>,
) -> Result<Vec<ReplyPiece>, PbFault> {
    let content = |sibling| EncodedContent::new(sibling, blank);
    let contents: Vec<_> = object.versions.siblings.iter().map(content).collect();
    let (context, new_key) = (object.context.as_deref(), new_key.as_deref());
    let contents_len: u64 = contents.iter().map(EncodedContent::field_len).sum();
    let length = contents_len + fields_len(context, new_key) as u64;
    if length >= u64::from(u32::MAX) {
        return Err(Error::TooLarge { bytes: length, max: u64::from(u32::MAX) }.into());
    }
    put_head(output, code, length as usize);
    let mut pieces = Vec::new();
    let mut bodies = object.bodies.into_iter();
    for content in contents {
        let place = last_bytes(output, &mut pieces);
        content.put_head(place);
        match bodies.next().filter(|_| !blank) {
            Some(GetBody::Bytes(value)) => place.extend_from_slice(&value),
            Some(blob) => pieces.push(ReplyPiece::Body(blob)),
            None => {}
        }
        content.metadata.put(last_bytes(output, &mut pieces));
    }
    put_fields_after(last_bytes(output, &mut pieces), context, new_key);
    Ok(pieces)
}

/// Bytes of a message with all siblings of an object.
pub(super) fn object_len(object: &FetchedObject) -> u64 {
    let contents = object.versions.siblings.iter().map(|sibling| EncodedContent::new(sibling, false).field_len());
    contents.sum::<u64>() + fields_len(object.context.as_deref(), None) as u64
}

/// Appends the message of [`object_len`], with the values that are read now.
///
/// # Errors
/// A value cannot be read: the output ends within the message.
pub(super) async fn put_read_object(output: &mut BytesMut, object: FetchedObject) -> Result<(), Error> {
    for (sibling, mut body) in object.versions.siblings.iter().zip(object.bodies) {
        let content = EncodedContent::new(sibling, false);
        content.put_head(output);
        let mut offset = 0;
        while offset < content.value_len {
            let piece = body.piece(offset, PIECE_BYTES_MAX).await?;
            if piece.is_empty() {
                return Err(Error::Damaged("a value is shorter than its row says".into()));
            }
            output.extend_from_slice(&piece);
            offset += piece.len() as u64;
        }
        content.metadata.put(output);
    }
    put_fields_after(output, object.context.as_deref(), None);
    Ok(())
}

/// Appends a message with an object of one value, without the value if `blank`: as [`put_object`], the value copied once.
pub(super) fn put_single(output: &mut BytesMut, code: u8, object: &SingleObject, blank: bool) {
    let value: &[u8] = if blank { &[] } else { &object.value };
    let content = EncodedContent { value_len: value.len() as u64, metadata: ShownMetadata::new(&object.sibling) };
    let context = Some(object.encoded_context.as_ref());
    put_head(output, code, content.field_len() as usize + fields_len(context, None));
    content.put_head(output);
    output.extend_from_slice(value);
    content.metadata.put(output);
    put_fields_after(output, context, None);
}

/// The buffer for the next bytes of an answer: the output, until a large value interrupts it.
fn last_bytes<'a>(output: &'a mut BytesMut, pieces: &'a mut Vec<ReplyPiece>) -> &'a mut BytesMut {
    if matches!(pieces.last(), Some(ReplyPiece::Body(_))) {
        pieces.push(ReplyPiece::Bytes(BytesMut::new()));
    }
    match pieces.last_mut() {
        Some(ReplyPiece::Bytes(bytes)) => bytes,
        _ => output,
    }
}

/// A content whose value is not in memory.
struct EncodedContent<'a> {
    value_len: u64,
    metadata: ShownMetadata<'a>,
}

impl<'a> EncodedContent<'a> {
    fn new(sibling: &'a Sibling, blank: bool) -> Self {
        let value_len = if blank { 0 } else { sibling.content.body.length() };
        Self { value_len, metadata: ShownMetadata::new(sibling) }
    }

    fn len(&self) -> u64 {
        1 + encoded_len_varint(self.value_len) as u64 + self.value_len + self.metadata.len()
    }

    /// Bytes of the content as a field of its message.
    fn field_len(&self) -> u64 {
        1 + encoded_len_varint(self.len()) as u64 + self.len()
    }

    /// Appends all up to the value.
    fn put_head(&self, output: &mut BytesMut) {
        put_field(output, CONTENT, self.len());
        put_field(output, VALUE, self.value_len);
    }
}

fn fields_len(context: Option<&[u8]>, new_key: Option<&[u8]>) -> usize {
    let field = |bytes: &[u8]| 1 + encoded_len_varint(bytes.len() as u64) + bytes.len();
    context.map_or(0, field) + new_key.map_or(0, field)
}

fn put_fields_after(output: &mut BytesMut, context: Option<&[u8]>, new_key: Option<&[u8]>) {
    for (field, bytes) in [(VCLOCK, context), (NEW_KEY, new_key)] {
        if let Some(bytes) = bytes {
            put_field(output, field, bytes.len() as u64);
            output.extend_from_slice(bytes);
        }
    }
}
