//! The changes of an object: it is created, a sibling is chosen, a value edited, the object deleted. All but the first carry the
//! context of their page: where the bucket keeps siblings, a value that was written since then stays beside the new one. A bucket
//! that keeps the newest alone refuses a changed value or choice, and deletes whatever is there.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use hyper::header::HeaderValue;
use larder_core::Error;
use larder_core::body::{BodyError, ByteStream, GetBody, PutBody};
use larder_kv::rules::causality::{Conditions, EtagMatcher};
use larder_kv::{FetchedObject, Gateway, KvDelete, KvDeleteOutcome, KvGet, KvPut, Quorums};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::KvContent;
use maud::{Markup, html};

use super::kv_links::{READ_TIMEOUT, object_address, object_path, to_object};
use crate::call::ConsoleCall;
use crate::faults::ConsoleFault;
use crate::frame::csrf;
use crate::href::Href;
use crate::reply::{self, ConsoleReply, PIECE_BYTES, redirect};

/// Longest value that the page edits, in bytes.
pub(super) const EDITED_BYTES_MAX: usize = 64 * 1024;
/// Reads an object with its bodies.
pub(super) async fn fetch(gateway: &Gateway, address: &Address) -> Result<FetchedObject, ConsoleFault> {
    let address = address.clone();
    let get = KvGet { address, quorums: Quorums::default(), bodies: true, timeout: Some(READ_TIMEOUT) };
    Ok(gateway.kv.get(get).await?)
}

/// A form that writes an object which is not there yet: under this key, or under one that is typed.
pub(super) fn create_form(call: &ConsoleCall<'_>, bucket: &BucketAddress, key: Option<&Bytes>) -> Markup {
    let action = match key {
        Some(key) => object_path("/object/create", bucket, key),
        None => Href::to("/object/create").with("type", &bucket.bucket_type).with("bucket", &bucket.bucket),
    };
    html! {
        details {
            summary { "Create an object" }
            form.fields method="post" action=(action.text()) {
                (csrf(call.session))
                @if key.is_none() { label { "Key" input name="key" required autocomplete="off" spellcheck="false"; } }
                label { "Media type" input name="media" value="text/plain" autocomplete="off" spellcheck="false"; }
                label for="new-value" { "Value" }
                textarea id="new-value" name="value" rows="6" spellcheck="false" {}
                button type="submit" { "Create" }
            }
        }
    }
}

/// `POST /object/create`: an object under a key that has none.
pub(super) async fn create(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let bucket = BucketAddress::new(call.query.bytes("type"), call.query.bytes("bucket")).map_err(Error::from)?;
    let key = call.query.given("key").unwrap_or_else(|| call.form.bytes("key"));
    let address = Address::new(bucket, key).map_err(Error::from)?;
    let value = without_carriage_returns(&call.form.bytes("value"));
    let content = KvContent { content_type: call.form.given("media"), ..KvContent::default() };
    let conditions = Conditions { if_none_match: Some(EtagMatcher::Any), ..Conditions::default() };
    put(call, NewValue { address, content, upload: PutBody::Bytes(value), context: None, conditions }, b"edited").await
}

/// `POST /object/resolve`: the chosen sibling replaces all that the page showed.
pub(super) async fn resolve(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let address = object_address(call)?;
    let (content, body) = chosen(call, &address).await?;
    let length = Some(body.length());
    let upload = PutBody::Stream { stream: Box::new(StoredBody { body, offset: 0 }), length };
    let (context, conditions) = (Some(form_context(call)?), Conditions::default());
    put(call, NewValue { address, content, upload, context, conditions }, b"resolved").await
}

/// `POST /object/edit`: another value with the metadata of the shown one.
pub(super) async fn edit(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let address = object_address(call)?;
    let (content, _) = chosen(call, &address).await?;
    let value = without_carriage_returns(&call.form.bytes("value"));
    if value.len() > EDITED_BYTES_MAX {
        return Err(ConsoleFault::bad("The value is longer than 64 KiB: an application has to write it."));
    }
    let (context, conditions) = (Some(form_context(call)?), Conditions::default());
    put(call, NewValue { address, content, upload: PutBody::Bytes(value), context, conditions }, b"edited").await
}

/// `POST /object/delete`.
pub(super) async fn delete(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let address = object_address(call)?;
    let to = to_object(&address.bucket, &address.key);
    let (context, conditions, quorums) = (Some(form_context(call)?), Conditions::default(), Quorums::default());
    let request = KvDelete { address, context, conditions, quorums, timeout: Some(READ_TIMEOUT) };
    match call.gateway().kv.delete(request).await? {
        KvDeleteOutcome::Done | KvDeleteOutcome::NotFound(_) => Ok(redirect(to.with("done", b"deleted"))),
    }
}

/// The sibling that the form names, if it is still there.
async fn chosen(call: &ConsoleCall<'_>, address: &Address) -> Result<(KvContent, GetBody), ConsoleFault> {
    sibling(call, address, &call.form.bytes("vtag")).await
}

async fn sibling(call: &ConsoleCall<'_>, address: &Address, vtag: &[u8]) -> Result<(KvContent, GetBody), ConsoleFault> {
    let mut fetched = fetch(call.gateway(), address).await?;
    let at = fetched.versions.siblings.iter().position(|sibling| sibling.vtag().as_bytes() == vtag);
    let at = at.filter(|at| *at < fetched.bodies.len()).ok_or(Error::Changed)?;
    Ok((fetched.versions.siblings.swap_remove(at).content, fetched.bodies.swap_remove(at)))
}

/// A value to be written.
struct NewValue {
    address: Address,
    content: KvContent,
    upload: PutBody,
    context: Option<Bytes>,
    conditions: Conditions,
}

async fn put(call: &ConsoleCall<'_>, new: NewValue, done: &[u8]) -> Result<ConsoleReply, ConsoleFault> {
    let NewValue { address, content, upload, context, conditions } = new;
    let to = to_object(&address.bucket, &address.key);
    let request = KvPut {
        address,
        context,
        conditions,
        if_not_modified: None,
        content,
        upload,
        quorums: Quorums::default(),
        return_body: false,
        timeout: Some(READ_TIMEOUT),
    };
    call.gateway().kv.put(request).await?;
    Ok(redirect(to.with("done", done)))
}

/// `GET /object/value`: the value of a sibling, to be saved.
pub(super) async fn value(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let address = object_address(call)?;
    let (_, body) = sibling(call, &address, &call.query.bytes("vtag")).await?;
    let length = body.length();
    let pieces = stream::unfold((body, 0_u64), |(mut body, offset)| async move {
        match body.piece(offset, PIECE_BYTES).await {
            Ok(piece) if piece.is_empty() => None,
            Ok(piece) => {
                let offset = offset + piece.len() as u64;
                Some((Ok(piece), (body, offset)))
            }
            Err(error) => Some((Err(std::io::Error::other(error.to_string())), (body, offset))),
        }
    });
    // Whatever type the object names, the browser saves it and runs nothing.
    let media = HeaderValue::from_static("application/octet-stream");
    Ok(reply::object(Box::pin(pieces), length, &media, Some(&address.key)))
}

/// The context that the page of the form had.
///
/// # Errors
/// A form without one.
pub(super) fn form_context(call: &ConsoleCall<'_>) -> Result<Bytes, ConsoleFault> {
    let context = STANDARD.decode(call.form.bytes("context")).ok().filter(|context| !context.is_empty());
    context.map(Bytes::from).ok_or_else(|| ConsoleFault::bad("The form has no context. Load the page again."))
}

/// The text as it was before the form wrote its line ends as CR LF.
fn without_carriage_returns(value: &[u8]) -> Bytes {
    value.iter().copied().filter(|byte| *byte != b'\r').collect::<Vec<u8>>().into()
}

/// A stored value as the body of a put.
struct StoredBody {
    body: GetBody,
    offset: u64,
}

#[async_trait]
impl ByteStream for StoredBody {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        match self.body.piece(self.offset, PIECE_BYTES).await {
            Ok(piece) if piece.is_empty() => None,
            Ok(piece) => {
                self.offset += piece.len() as u64;
                Some(Ok(piece))
            }
            Err(error) => Some(Err(BodyError(error.to_string()))),
        }
    }
}
