//! Edits of data types: a form for each kind of value, and the update that it means. An edit of a map names one of its fields, or
//! one of a map within it. Removals carry the context of the page: what a client added since then stays.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use larder_kv::Quorums;
use larder_kv::datatypes::DatatypeChange;
use larder_kv::rules::datatypes::{
    Datatype, DatatypeUpdate, EmbeddedType, EmbeddedUpdate, EmbeddedValue, FieldEdit, FieldName, MapEdits, SetEdit,
};
use larder_rows::address::Address;
use maud::{Markup, html};

use super::datatype::{ShownDatatype, has_element, stored_fields};
use super::kv_links::{READ_TIMEOUT, object_address, object_path, to_object};
use super::map_path::MapPath;
use super::object_changes::form_context;
use crate::call::ConsoleCall;
use crate::faults::ConsoleFault;
use crate::frame::csrf;
use crate::reply::{ConsoleReply, redirect};

/// The types of a map's fields.
const FIELD_TYPES: &[EmbeddedType] =
    &[EmbeddedType::Register, EmbeddedType::Counter, EmbeddedType::Set, EmbeddedType::Flag, EmbeddedType::Map];

/// The form that edits a value of this type; it also makes one that is not there.
pub(super) fn edit_form(
    call: &ConsoleCall<'_>,
    address: &Address,
    datatype: Datatype,
    value: &ShownDatatype,
) -> Markup {
    html! {
        @if call.may_change() {
            section.panel {
                h2 { "Change the value" }
                form.fields method="post" action=(object_path("/object/update", &address.bucket, &address.key).text()) {
                    (csrf(call.session))
                    @if let Some(context) = &value.context { input type="hidden" name="context" value=(STANDARD.encode(context)); }
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
                        Datatype::Map => (map_fields(call, value)),
                    }
                }
            }
        }
    }
}

/// The fields of the form that edits a map.
fn map_fields(call: &ConsoleCall<'_>, value: &ShownDatatype) -> Markup {
    let (maps, more) = &value.maps;
    let chosen = call.query.text("within");
    html! {
        @if maps.len() > 1 {
            label {
                "In the map"
                select name="within" {
                    @for path in maps { option value=(path.text()) selected[path.text() == chosen] { (path.label()) } }
                }
            }
            @if *more { p.unit { "This map has more maps than are listed; applications edit the others." } }
        }
        label { "Field" input name="field" required autocomplete="off" spellcheck="false"; }
        label {
            "Its type"
            select name="kind" { @for kind in FIELD_TYPES { option value=(kind.name()) { (kind.name()) } } }
        }
        label { "Value: of a register, an amount, an element, true or false; none for a map" input name="value" autocomplete="off" spellcheck="false"; }
        (choice("Edit", &[("add", "assign, add or set"), ("remove", "remove the element of a set"), ("drop", "remove the field")]))
        button type="submit" { "Store" }
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
    let removes = call.form.given("edit").is_some_and(|edit| matches!(&edit[..], b"remove" | b"drop"));
    let context = match call.form.given("context") {
        None if !removes => None,
        _ => Some(form_context(call)?),
    };
    let update = form_update(call, &address, datatype).await?;
    let within = call.form.bytes("within");
    let quorums = Quorums::default();
    let change = DatatypeChange { address, update, context, request_id: None, quorums, timeout: Some(READ_TIMEOUT) };
    call.gateway().kv.update_datatype(change).await?;
    // The next edit is often one of the same map.
    let to = if within.is_empty() { to } else { to.with("within", &within) };
    Ok(redirect(to.with("done", b"edited")))
}

async fn form_update(
    call: &ConsoleCall<'_>,
    address: &Address,
    datatype: Datatype,
) -> Result<DatatypeUpdate, ConsoleFault> {
    let element = call.form.bytes("element");
    Ok(match datatype {
        Datatype::Counter => DatatypeUpdate::Counter(amount(&call.form.text("amount"))?),
        Datatype::Gset => DatatypeUpdate::Gset(vec![element]),
        Datatype::Hll => DatatypeUpdate::Hll(vec![element]),
        Datatype::Set => {
            let removes = call.form.word("edit", &["add", "remove"])? == "remove";
            if removes && !has_element(call, address, &element).await? {
                return Err(ConsoleFault::bad("The set has no such element."));
            }
            DatatypeUpdate::Set(vec![set_edit(element, removes)])
        }
        Datatype::Map => DatatypeUpdate::Map(map_edits(call, address).await?),
    })
}

async fn map_edits(call: &ConsoleCall<'_>, address: &Address) -> Result<MapEdits, ConsoleFault> {
    let path = MapPath::parse(&call.form.text("within"))?;
    let (name, value) = (call.form.bytes("field"), call.form.bytes("value"));
    let kind = call.form.text("kind");
    let kind = FIELD_TYPES.iter().copied().find(|known| known.name() == kind);
    let kind = kind.ok_or_else(|| ConsoleFault::bad("The field has no such type."))?;
    let field = FieldName::new(name.clone(), kind);
    let edit = call.form.word("edit", &["add", "remove", "drop"])?;
    if edit == "remove" && kind != EmbeddedType::Set {
        return Err(ConsoleFault::bad("Only a set has elements to remove."));
    }
    // A removal with a context passes over what is not there: a name that was mistyped would seem to be removed.
    if edit != "add" {
        let fields = stored_fields(call, address).await?;
        let found = path.find(&fields).and_then(|fields| fields.iter().find(|known| known.field == field));
        let found = found.ok_or_else(|| ConsoleFault::bad("The map has no such field."))?;
        if edit == "remove" && !matches!(&found.value, EmbeddedValue::Set(elements) if elements.contains(&value)) {
            return Err(ConsoleFault::bad("The set has no such element."));
        }
    }
    let edits = match edit {
        "drop" => MapEdits { removes: vec![field], ..MapEdits::default() },
        edit => {
            let update = field_update(call, kind, value, edit == "remove")?;
            MapEdits { updates: vec![FieldEdit { name, update }], ..MapEdits::default() }
        }
    };
    Ok(path.enclose(edits))
}

/// The update of a field of this type.
fn field_update(
    call: &ConsoleCall<'_>,
    kind: EmbeddedType,
    value: Bytes,
    removes: bool,
) -> Result<EmbeddedUpdate, ConsoleFault> {
    Ok(match kind {
        EmbeddedType::Counter => EmbeddedUpdate::Counter(amount(&call.form.text("value"))?),
        EmbeddedType::Set => EmbeddedUpdate::Set(vec![set_edit(value, removes)]),
        EmbeddedType::Flag => EmbeddedUpdate::Flag(truth(&value)?),
        EmbeddedType::Register => EmbeddedUpdate::Register(value),
        EmbeddedType::Map if value.is_empty() => EmbeddedUpdate::Map(MapEdits::default()),
        EmbeddedType::Map => return Err(ConsoleFault::bad("A map has no value: its fields have.")),
    })
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
