//! Answers with the value of a data type: written as its pages are read, and sent once the length of the frame is known.

use bytes::{Bytes, BytesMut};
use larder_core::Error;
use larder_kv::datatypes::DatatypeReader;
use larder_kv::rules::datatypes::{Datatype, DatatypeError};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use super::pb_value::{PbValueWriter, ValueMessage, datatype_code, put_bytes, put_number};
use crate::pb::fault::PbFault;
use crate::pb::frame::put_head;

const FETCH_RESP: u8 = 81;
const UPDATE_RESP: u8 = 83;
const FETCHED_CONTEXT: u32 = 1;
const FETCHED_TYPE: u32 = 2;
const FETCHED_VALUE: u32 = 3;
const UPDATED_KEY: u32 = 1;
const UPDATED_CONTEXT: u32 = 2;
/// A value of fewer bytes is read at once, in the memory of its connection.
const SHORT_BYTES: usize = 8 * 1024;

/// A value that is being read, and the message around it.
pub(in crate::pb) struct PbValueAnswer {
    reader: DatatypeReader,
    writer: Option<PbValueWriter>,
    message: ValueMessage,
    /// The key that the server made, of an update.
    key: Option<Bytes>,
    bytes_max: u64,
}

impl PbValueAnswer {
    /// The value of this reader as `message`; one of more than `bytes_max` bytes is refused.
    pub(super) fn new(reader: DatatypeReader, message: ValueMessage, key: Option<Bytes>, bytes_max: u64) -> Self {
        let writer = Some(PbValueWriter::new(reader.datatype(), message));
        Self { reader, writer, message, key, bytes_max }
    }

    /// Appends the answer if it is short. A longer one is returned: the connection reads on in its client's memory.
    ///
    /// # Errors
    /// The gateway's.
    pub(super) async fn begin(mut self, output: &mut BytesMut) -> Result<Option<Box<Self>>, PbFault> {
        while self.held() < SHORT_BYTES {
            if !self.next(output).await? {
                return Ok(None);
            }
        }
        Ok(Some(Box::new(self)))
    }

    fn held(&self) -> usize {
        self.writer.as_ref().map_or(0, PbValueWriter::memory)
    }

    /// Bytes of memory that the value holds, besides a page.
    pub(in crate::pb) fn memory(&self) -> u64 {
        // Once more as it is copied into the frame.
        2 * self.held() as u64
    }

    /// Reads the next page. After the last it appends the whole frame, and says `false`.
    ///
    /// # Errors
    /// The gateway's, and a value above the bound.
    pub(in crate::pb) async fn next(&mut self, output: &mut BytesMut) -> Result<bool, PbFault> {
        let page = self.reader.next_page().await?;
        let Some(writer) = &mut self.writer else { return Ok(false) };
        let Some(pieces) = page else {
            self.put_frame(output);
            return Ok(false);
        };
        for piece in &pieces {
            writer.add(piece);
            // Bound: a frame holds its value whole, and a value has any number of elements.
            if writer.memory() as u64 > self.bytes_max {
                let max = usize::try_from(self.bytes_max).unwrap_or(usize::MAX);
                return Err(Error::from(DatatypeError::ValueTooLarge { max }).into());
            }
        }
        Ok(true)
    }

    fn put_frame(&mut self, output: &mut BytesMut) {
        let Some(value) = self.writer.take().map(PbValueWriter::finish) else { return };
        let (code, mut begin) = (self.code(), BytesMut::new());
        let context = self.reader.context();
        if self.message == ValueMessage::Updated {
            put_field(UPDATED_KEY, self.key.as_ref(), &mut begin);
            put_field(UPDATED_CONTEXT, context.as_ref(), &mut begin);
        } else {
            put_field(FETCHED_CONTEXT, context.as_ref(), &mut begin);
            put_number(FETCHED_TYPE, datatype_code(self.reader.datatype()), &mut begin);
            // Also for an empty value: without the field a client sees no value at all.
            encode_key(FETCHED_VALUE, WireType::LengthDelimited, &mut begin);
            encode_varint(value.len() as u64, &mut begin);
        }
        put_head(output, code, begin.len() + value.len());
        output.extend_from_slice(&begin);
        output.extend_from_slice(&value);
    }

    fn code(&self) -> u8 {
        match self.message {
            ValueMessage::Fetched => FETCH_RESP,
            ValueMessage::Updated => UPDATE_RESP,
        }
    }
}

/// Appends the answer to a fetch of a key that does not exist: the type alone.
pub(super) fn put_absent(datatype: Datatype, output: &mut BytesMut) {
    let code = datatype_code(datatype);
    put_head(output, FETCH_RESP, 1 + encoded_len_varint(code));
    put_number(FETCHED_TYPE, code, output);
}

/// Appends the answer to an update that returns no value.
pub(super) fn put_updated(key: Option<&Bytes>, output: &mut BytesMut) {
    let mut fields = BytesMut::new();
    put_field(UPDATED_KEY, key, &mut fields);
    put_head(output, UPDATE_RESP, fields.len());
    output.extend_from_slice(&fields);
}

/// Appends the answer to an update whose value was deleted before it was read, or before a repeat of it: the empty value.
pub(super) fn put_updated_to_nothing(datatype: Datatype, key: Option<&Bytes>, output: &mut BytesMut) {
    let mut fields = BytesMut::new();
    put_field(UPDATED_KEY, key, &mut fields);
    fields.extend_from_slice(&PbValueWriter::new(datatype, ValueMessage::Updated).finish());
    put_head(output, UPDATE_RESP, fields.len());
    output.extend_from_slice(&fields);
}

fn put_field(number: u32, bytes: Option<&Bytes>, out: &mut BytesMut) {
    if let Some(bytes) = bytes {
        put_bytes(number, bytes, out);
    }
}
