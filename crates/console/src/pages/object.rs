//! One object: its siblings side by side, with metadata, indexes and the beginning of each value.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::StatusCode;
use larder_core::body::GetBody;
use larder_kv::rules::causality::Sibling;
use larder_rows::address::Address;
use maud::{Markup, PreEscaped, html};

use super::datatype;
use super::datatype_changes;
use super::kv_links::{above, object_address, object_path};
use super::object_changes::{EDITED_BYTES_MAX, create_form, fetch};
use crate::call::ConsoleCall;
use crate::escaped::{shown, shown_lines};
use crate::faults::ConsoleFault;
use crate::frame::{ConsoleSection, csrf, framed, trail};
use crate::href::Href;
use crate::json_layout::indented;
use crate::reply::{ConsoleReply, page};
use crate::units;

/// Bytes of each value that are shown, where there are several.
const SIBLING_BYTES_SHOWN: usize = 8 * 1024;
/// Most siblings that are shown; the page says how many more there are.
const SIBLINGS_SHOWN: usize = 20;

/// `GET /object`.
pub(super) async fn object(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let address = object_address(call)?;
    let body = match datatype::bucket_datatype(call.gateway(), &address.bucket).await? {
        Some(datatype) => {
            let value = datatype::shown_value(call, &address).await?;
            html! { (value.markup) (datatype_changes::edit_form(call, &address, datatype, &value)) }
        }
        None => object_body(call, &address).await?,
    };
    let name = shown(&address.key);
    let body = html! {
        (trail(&above(&address.bucket, true), &name))
        h1 { (name) }
        (body)
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::Keys, &name, &body)))
}

async fn object_body(call: &ConsoleCall<'_>, address: &Address) -> Result<Markup, ConsoleFault> {
    let mut found = fetch(call.gateway(), address).await?;
    let count = found.versions.siblings.len();
    if count == 0 {
        let text = if found.versions.deleted { "The object is deleted." } else { "There is no object with this key." };
        return Ok(
            html! { p { (text) } @if call.may_change() { (create_form(call, &address.bucket, Some(&address.key))) } },
        );
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
        div.siblings { @for (sibling, value) in &siblings { (sibling_card(call, address, sibling, value, &context, count)) } }
        @if let [(sibling, value)] = siblings[..] { (edit_form(call, address, sibling, value, &context)) }
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

    fn is_whole(&self) -> bool {
        self.bytes.len() as u64 == self.length
    }

    /// JSON as indented lines.
    fn laid_out(&self) -> Option<String> {
        let is_document = self.is_whole() && matches!(self.bytes.trim_ascii_start().first(), Some(b'{' | b'['));
        if is_document { indented(&self.bytes) } else { None }
    }

    /// The whole value as text that a form gives back unchanged. Forms write each line end as CR LF, and a text with invisible
    /// characters would be changed unseen.
    fn editable(&self) -> Option<&str> {
        let is_whole = self.is_whole() && self.bytes.len() <= EDITED_BYTES_MAX;
        let is_text = |text: &&str| shown_lines(text.as_bytes()) == **text;
        std::str::from_utf8(&self.bytes).ok().filter(|_| is_whole).filter(is_text)
    }
}

fn sibling_card(
    call: &ConsoleCall<'_>,
    address: &Address,
    sibling: &Sibling,
    value: &ShownBody,
    context: &str,
    count: usize,
) -> Markup {
    let vtag = sibling.vtag().to_string();
    html! {
        article.card {
            (metadata(address, sibling, value.length, &vtag))
            h3 { "Value" }
            pre tabindex="0" { (value.laid_out().unwrap_or_else(|| shown_lines(&value.bytes))) }
            @if !value.is_whole() {
                p.unit { "The first " (units::bytes(value.bytes.len() as u64)) " of " (units::bytes(value.length)) "." }
            }
            @let link = object_path("/object/value", &address.bucket, &address.key).with("vtag", vtag.as_bytes());
            p { a href=(link.text()) { "Download the value" } }
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

fn metadata(address: &Address, sibling: &Sibling, length: u64, vtag: &str) -> Markup {
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
                div {
                    dt { "Link " code { (shown(&link.tag)) } }
                    dd { a href=(linked(address, &link.bucket, &link.key).text()) { (shown(&link.bucket)) " / " (shown(&link.key)) } }
                }
            }
        }
    }
}

/// The page of an object that a link names: links stay within a bucket type.
fn linked(address: &Address, bucket: &[u8], key: &[u8]) -> Href {
    Href::to("/object").with("type", &address.bucket.bucket_type).with("bucket", bucket).with("key", key)
}

fn edit_form(call: &ConsoleCall<'_>, address: &Address, sibling: &Sibling, value: &ShownBody, context: &str) -> Markup {
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
