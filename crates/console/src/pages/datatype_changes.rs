//! Edits of data types: a form for each kind of value, and the update that it means. An edit of a map names one of its fields.

use bytes::Bytes;
use larder_kv::Quorums;
use larder_kv::datatypes::DatatypeChange;
use larder_kv::rules::datatypes::{
    Datatype, DatatypeUpdate, EmbeddedType, EmbeddedUpdate, FieldEdit, FieldName, MapEdits, SetEdit,
};
use larder_rows::address::Address;
use maud::{Markup, html};

use super::kv_links::{READ_TIMEOUT, object_address, object_path, to_object};
use crate::call::ConsoleCall;
use crate::faults::ConsoleFault;
use crate::frame::csrf;
use crate::reply::{ConsoleReply, redirect};

/// The types of a map's fields that a form edits. A map within a map is left to applications.
const FIELD_TYPES: &[EmbeddedType] =
    &[EmbeddedType::Register, EmbeddedType::Counter, EmbeddedType::Set, EmbeddedType::Flag];

/// The form that edits a value of this type; it also makes one that is not there.
pub(super) fn edit_form(call: &ConsoleCall<'_>, address: &Address, datatype: Datatype) -> Markup {
    html! {
        @if call.may_change() {
            section.panel {
                h2 { "Change the value" }
                form.fields method="post" action=(object_path("/object/update", &address.bucket, &address.key).text()) {
                    (csrf(call.session))
                    @match datatype {
                        Datatype::Counter => {
                            label { "Add; a number below 0 subtracts" input name="amount" type="number" value="1" required; }
                            button type="submit" { "Add" }
                        }
                        Datatype::Hll | Datatype::Gset => {
                            label { "Element" input name="element" autocomplete="off" spellcheck="false"; }
                            button type="submit" { "Add" }
                        }
                        Datatype::Set => {
                            label { "Element" input name="element" autocomplete="off" spellcheck="false"; }
                            (choice("Edit", &[("add", "add"), ("remove", "remove")]))
                            button type="submit" { "Store" }
                        }
                        Datatype::Map => {
                            label { "Field" input name="field" required autocomplete="off" spellcheck="false"; }
                            label {
                                "Its type"
                                select name="kind" { @for kind in FIELD_TYPES { option value=(kind.name()) { (kind.name()) } } }
                            }
                            label { "Value: of a register, an amount, an element, true or false" input name="value" autocomplete="off" spellcheck="false"; }
                            (choice("Edit", &[("add", "assign, add or set"), ("remove", "remove the element of a set"), ("drop", "remove the field")]))
                            button type="submit" { "Store" }
                        }
                    }
                }
            }
        }
    }
}

fn choice(label: &str, edits: &[(&str, &str)]) -> Markup {
    html! { label { (label) select name="edit" { @for (value, text) in edits { option value=(value) { (text) } } } } }
}

/// `POST /object/update`.
pub(super) async fn update(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let address = object_address(call)?;
    let to = to_object(&address.bucket, &address.key);
    let datatype = call.gateway().kv.bucket_datatype(&address.bucket, Some(READ_TIMEOUT)).await?;
    let update = form_update(call, datatype)?;
    let change = DatatypeChange {
        address,
        update,
        // Without a context a removal takes what this gateway sees now, which is what the page showed or newer.
        context: None,
        request_id: None,
        quorums: Quorums::default(),
        timeout: Some(READ_TIMEOUT),
    };
    call.gateway().kv.update_datatype(change).await?;
    Ok(redirect(to.with("done", b"edited")))
}

fn form_update(call: &ConsoleCall<'_>, datatype: Datatype) -> Result<DatatypeUpdate, ConsoleFault> {
    let element = call.form.bytes("element");
    Ok(match datatype {
        Datatype::Counter => DatatypeUpdate::Counter(amount(&call.form.text("amount"))?),
        Datatype::Gset => DatatypeUpdate::Gset(vec![element]),
        Datatype::Hll => DatatypeUpdate::Hll(vec![element]),
        Datatype::Set => {
            let removes = call.form.word("edit", &["add", "remove"])? == "remove";
            DatatypeUpdate::Set(vec![set_edit(element, removes)])
        }
        Datatype::Map => DatatypeUpdate::Map(map_edits(call)?),
    })
}

fn map_edits(call: &ConsoleCall<'_>) -> Result<MapEdits, ConsoleFault> {
    let (name, value) = (call.form.bytes("field"), call.form.bytes("value"));
    let kind = call.form.text("kind");
    let kind = FIELD_TYPES.iter().copied().find(|known| known.name() == kind);
    let kind = kind.ok_or_else(|| ConsoleFault::bad("The field has no such type."))?;
    let removes = match call.form.word("edit", &["add", "remove", "drop"])? {
        "drop" => return Ok(MapEdits { removes: vec![FieldName::new(name, kind)], ..MapEdits::default() }),
        "remove" if kind != EmbeddedType::Set => return Err(ConsoleFault::bad("Only a set has elements to remove.")),
        edit => edit == "remove",
    };
    let update = match kind {
        EmbeddedType::Counter => EmbeddedUpdate::Counter(amount(&call.form.text("value"))?),
        EmbeddedType::Set => EmbeddedUpdate::Set(vec![set_edit(value, removes)]),
        EmbeddedType::Flag => EmbeddedUpdate::Flag(truth(&value)?),
        EmbeddedType::Register | EmbeddedType::Map => EmbeddedUpdate::Register(value),
    };
    Ok(MapEdits { updates: vec![FieldEdit { name, update }], ..MapEdits::default() })
}

fn set_edit(element: Bytes, removes: bool) -> SetEdit {
    if removes { SetEdit::Remove(element) } else { SetEdit::Add(element) }
}

fn amount(text: &str) -> Result<i64, ConsoleFault> {
    text.trim().parse().map_err(|_| ConsoleFault::bad("The amount is no whole number."))
}

fn truth(value: &[u8]) -> Result<bool, ConsoleFault> {
    match value {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(ConsoleFault::bad("A flag is true or false.")),
    }
}
