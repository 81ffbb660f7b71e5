//! The changes of an object: a sibling is chosen, a value edited, the object deleted. Each carries the context of its page: where
//! the bucket keeps siblings, a value that was written since then stays beside the new one. A bucket that keeps the newest alone
//! refuses a changed value or choice, and deletes whatever is there.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use larder_core::body::{BodyError, ByteStream, GetBody, PutBody};
use larder_kv::rules::causality::Conditions;
use larder_kv::{KvDelete, KvDeleteOutcome, KvPut, Quorums};
use larder_rows::address::Address;
use larder_rows::content::KvContent;

use super::keys::{READ_TIMEOUT, to_object};
use super::object::{EDITED_BYTES_MAX, address_of, fetch};
use crate::call::ConsoleCall;
use crate::faults::ConsoleFault;
use crate::reply::{ConsoleReply, redirect};

/// Bytes of a copied value in memory at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// `POST /object/resolve`: the chosen sibling replaces all that the page showed.
pub(super) async fn resolve(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let address = address_of(call)?;
    let (content, body) = chosen(call, &address).await?;
    let length = Some(body.length());
    let upload = PutBody::Stream { stream: Box::new(StoredBody { body, offset: 0 }), length };
    put(call, address, content, upload, b"resolved").await
}

/// `POST /object/edit`: another value with the metadata of the shown one.
pub(super) async fn edit(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let address = address_of(call)?;
    let (content, _) = chosen(call, &address).await?;
    let value = without_carriage_returns(&call.form.bytes("value"));
    if value.len() > EDITED_BYTES_MAX {
        return Err(ConsoleFault::bad("The value is longer than 64 KiB: an application has to write it."));
    }
    put(call, address, content, PutBody::Bytes(value), b"edited").await
}

/// `POST /object/delete`.
pub(super) async fn delete(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let address = address_of(call)?;
    let to = to_object(&address.bucket, &address.key);
    let (context, conditions, quorums) = (Some(context_of(call)?), Conditions::default(), Quorums::default());
    let request = KvDelete { address, context, conditions, quorums, timeout: Some(READ_TIMEOUT) };
    match call.gateway().kv.delete(request).await? {
        KvDeleteOutcome::Done | KvDeleteOutcome::NotFound(_) => Ok(redirect(to.with("done", b"deleted"))),
    }
}

/// The sibling that the form names, if it is still there.
async fn chosen(call: &ConsoleCall<'_>, address: &Address) -> Result<(KvContent, GetBody), ConsoleFault> {
    let vtag = call.form.bytes("vtag");
    let mut found = fetch(call.gateway(), address).await?;
    let at = found.versions.siblings.iter().position(|one| one.vtag().as_bytes() == &vtag[..]);
    let at = at.filter(|at| *at < found.bodies.len()).ok_or(larder_core::Error::Changed)?;
    Ok((found.versions.siblings.swap_remove(at).content, found.bodies.swap_remove(at)))
}

async fn put(
    call: &ConsoleCall<'_>,
    address: Address,
    content: KvContent,
    upload: PutBody,
    done: &[u8],
) -> Result<ConsoleReply, ConsoleFault> {
    let to = to_object(&address.bucket, &address.key);
    let request = KvPut {
        address,
        context: Some(context_of(call)?),
        conditions: Conditions::default(),
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

fn context_of(call: &ConsoleCall<'_>) -> Result<Bytes, ConsoleFault> {
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
