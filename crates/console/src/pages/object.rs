//! One object: its siblings side by side, with metadata, indexes and the beginning of each value.
//!
//! The changes of an object: a sibling is chosen, a value edited, the object deleted. Each carries the context of its page: where
//! the bucket keeps siblings, a value that was written since then stays beside the new one. A bucket that keeps the newest alone
//! refuses a changed value or choice, and deletes whatever is there.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::StatusCode;
use larder_core::Error;
use larder_core::body::{BodyError, ByteStream, GetBody, PutBody};
use larder_kv::rules::causality::{Conditions, Sibling};
use larder_kv::{FetchedObject, Gateway, KvDelete, KvDeleteOutcome, KvGet, KvPut, Quorums};
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::KvContent;
use maud::{Markup, PreEscaped, html};

use super::datatype;
use super::keys::{READ_TIMEOUT, above, object_path, to_object};
use crate::call::ConsoleCall;
use crate::escaped::{shown, shown_lines};
use crate::faults::ConsoleFault;
use crate::frame::{ConsoleSection, csrf, framed, trail};
use crate::reply::{ConsoleReply, page, redirect};
use crate::units;

/// Longest value that the page edits, in bytes.
pub(super) const EDITED_BYTES_MAX: usize = 64 * 1024;
/// Bytes of each value that are shown, where there are several.
const SIBLING_BYTES_SHOWN: usize = 8 * 1024;
/// Most siblings that are shown; the page says how many more there are.
const SIBLINGS_SHOWN: usize = 20;

/// `GET /object`.
pub(super) async fn object(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let address = object_address(call)?;
    let body = if datatype::is_datatype(call.gateway(), &address).await? {
        datatype::shown_value(call, &address).await?
    } else {
        object_body(call, &address).await?
    };
    let name = shown(&address.key);
    let body = html! {
        (trail(&above(&address.bucket, true), &name))
        h1 { (name) }
        (body)
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::Keys, &name, &body)))
}

/// The address in the link of a page or a change.
pub(super) fn object_address(call: &ConsoleCall<'_>) -> Result<Address, ConsoleFault> {
    let query = &call.query;
    let bucket = BucketAddress::new(query.bytes("type"), query.bytes("bucket")).map_err(Error::from)?;
    Ok(Address::new(bucket, query.bytes("key")).map_err(Error::from)?)
}

/// Reads an object with its bodies.
pub(super) async fn fetch(gateway: &Gateway, address: &Address) -> Result<FetchedObject, ConsoleFault> {
    let address = address.clone();
    let get = KvGet { address, quorums: Quorums::default(), bodies: true, timeout: Some(READ_TIMEOUT) };
    Ok(gateway.kv.get(get).await?)
}

async fn object_body(call: &ConsoleCall<'_>, address: &Address) -> Result<Markup, ConsoleFault> {
    let mut found = fetch(call.gateway(), address).await?;
    let count = found.versions.siblings.len();
    if count == 0 {
        let text = if found.versions.deleted { "The object is deleted." } else { "There is no object with this key." };
        return Ok(html! { p { (text) } });
    }
    let bytes_shown = if count == 1 { EDITED_BYTES_MAX } else { SIBLING_BYTES_SHOWN };
    let mut values = Vec::new();
    for body in found.bodies.iter_mut().take(SIBLINGS_SHOWN) {
        values.push(ShownBody::read(body, bytes_shown).await?);
    }
    let context = found.context.as_ref().map(|context| STANDARD.encode(context)).unwrap_or_default();
    let siblings: Vec<_> = found.versions.siblings.iter().zip(&values).collect();
    Ok(html! {
        @if count > 1 {
            div.problem { p { strong { (count) " siblings." } } p { "Writers did not see each other. Keep one value, or let an application merge them." } }
        }
        @if count > SIBLINGS_SHOWN { p { "The newest " (SIBLINGS_SHOWN) " are shown." } }
        @if found.downgraded { p { "Fewer replicas answered than this bucket asks for: others may have newer values." } }
        div.siblings { @for (sibling, value) in &siblings { (sibling_card(call, address, (sibling, value), &context, count)) } }
        @if let [(sibling, value)] = siblings[..] { (edit_form(call, address, (sibling, value), &context)) }
        @if call.may_change() { (delete_form(call, address, &context)) }
        details { summary { "Context" } pre { (context) } }
    })
}

/// The beginning of a value.
struct ShownBody {
    bytes: Bytes,
    length: u64,
}

impl ShownBody {
    async fn read(body: &mut GetBody, max: usize) -> Result<Self, ConsoleFault> {
        Ok(Self { length: body.length(), bytes: body.piece(0, max).await? })
    }

    /// The whole value as text that a form gives back unchanged. Forms write each line end as CR LF, and a text with invisible
    /// characters would be changed unseen.
    fn editable(&self) -> Option<&str> {
        let is_whole = self.bytes.len() as u64 == self.length && self.bytes.len() <= EDITED_BYTES_MAX;
        let is_text = |text: &&str| shown_lines(text.as_bytes()) == **text;
        std::str::from_utf8(&self.bytes).ok().filter(|_| is_whole).filter(is_text)
    }
}

fn sibling_card(
    call: &ConsoleCall<'_>,
    address: &Address,
    (sibling, value): (&Sibling, &ShownBody),
    context: &str,
    count: usize,
) -> Markup {
    let vtag = sibling.vtag().to_string();
    html! {
        article.card {
            (metadata(sibling, value.length, &vtag))
            h3 { "Value" }
            pre tabindex="0" { (shown_lines(&value.bytes)) }
            @if (value.bytes.len() as u64) < value.length {
                p.unit { "The first " (units::bytes(value.bytes.len() as u64)) " of " (units::bytes(value.length)) "." }
            }
            @if count > 1 && call.may_change() {
                form method="post" action=(object_path("/object/resolve", &address.bucket, &address.key).text()) {
                    (csrf(call.session))
                    input type="hidden" name="context" value=(context);
                    input type="hidden" name="vtag" value=(vtag);
                    button type="submit" { "Keep this value" }
                }
            }
        }
    }
}

fn metadata(sibling: &Sibling, length: u64, vtag: &str) -> Markup {
    let content = &sibling.content;
    let media = content.content_type.as_ref().map_or_else(|| "–".to_owned(), |media| shown(media));
    html! {
        dl.rows {
            div { dt { "Written" } dd { (units::moment(sibling.modified())) " UTC" } }
            div { dt { "Media type" } dd { (media) } }
            div { dt { "Size" } dd { (units::bytes(length)) } }
            div { dt { "Tag" } dd { code { (vtag) } } }
            @if let Some(charset) = &content.charset { div { dt { "Charset" } dd { (shown(charset)) } } }
            @if let Some(encoding) = &content.encoding { div { dt { "Encoding" } dd { (shown(encoding)) } } }
            @for (name, value) in &content.meta { div { dt { (shown(name)) } dd { (shown(value)) } } }
            @for term in &content.terms { div { dt { "Index " code { (shown(&term.field)) } } dd { (shown(&term.value)) } } }
            @for link in &content.links {
                div { dt { "Link " code { (shown(&link.tag)) } } dd { (shown(&link.bucket)) " / " (shown(&link.key)) } }
            }
        }
    }
}

fn edit_form(
    call: &ConsoleCall<'_>,
    address: &Address,
    (sibling, value): (&Sibling, &ShownBody),
    context: &str,
) -> Markup {
    let Some(text) = value.editable().filter(|_| call.may_change()) else { return html! {} };
    html! {
        details {
            summary { "Edit the value" }
            form.fields method="post" action=(object_path("/object/edit", &address.bucket, &address.key).text()) {
                (csrf(call.session))
                input type="hidden" name="context" value=(context);
                input type="hidden" name="vtag" value=(sibling.vtag().to_string());
                label for="value" { "Value" }
                // The first line end after the tag belongs to the markup.
                textarea id="value" name="value" rows="12" spellcheck="false" { (PreEscaped("\n")) (text) }
                button type="submit" { "Store" }
            }
        }
    }
}

fn delete_form(call: &ConsoleCall<'_>, address: &Address, context: &str) -> Markup {
    html! {
        details {
            summary { "Delete the object" }
            form method="post" action=(object_path("/object/delete", &address.bucket, &address.key).text()) {
                (csrf(call.session))
                input type="hidden" name="context" value=(context);
                p { "All values that this page shows are deleted." }
                button.danger type="submit" { "Delete" }
            }
        }
    }
}

/// Bytes of a copied value in memory at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// `POST /object/resolve`: the chosen sibling replaces all that the page showed.
pub(super) async fn resolve(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let address = object_address(call)?;
    let (content, body) = chosen(call, &address).await?;
    let length = Some(body.length());
    let upload = PutBody::Stream { stream: Box::new(StoredBody { body, offset: 0 }), length };
    put(call, address, content, upload, b"resolved").await
}

/// `POST /object/edit`: another value with the metadata of the shown one.
pub(super) async fn edit(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let address = object_address(call)?;
    let (content, _) = chosen(call, &address).await?;
    let value = without_carriage_returns(&call.form.bytes("value"));
    if value.len() > EDITED_BYTES_MAX {
        return Err(ConsoleFault::bad("The value is longer than 64 KiB: an application has to write it."));
    }
    put(call, address, content, PutBody::Bytes(value), b"edited").await
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
        context: Some(form_context(call)?),
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

fn form_context(call: &ConsoleCall<'_>) -> Result<Bytes, ConsoleFault> {
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
