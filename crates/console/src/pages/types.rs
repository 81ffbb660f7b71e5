//! Bucket types: their list, their properties beside the defaults, and their creation, activation and update.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderValue, REFRESH};
use larder_core::rules::props::effective::body_props;
use larder_core::rules::props::{Datatype, Defaults, Prop, PropMutability, Value};
use larder_core::types::{TypeStage, TypeStatus};
use larder_rows::address::DEFAULT_TYPE;
use maud::{Markup, html};
use serde_json::{Map, Value as Json};

use crate::call::ConsoleCall;
use crate::escaped::shown;
use crate::faults::ConsoleFault;
use crate::frame::{ConsoleSection, csrf, framed, trail};
use crate::href::Href;
use crate::reply::{ConsoleReply, page, redirect};

/// A kind of values that the form of a new type offers.
struct ValueKind {
    /// Its word in the form.
    word: &'static str,
    label: &'static str,
    /// The properties it stands for.
    props: &'static [(&'static str, PresetValue)],
}

const fn kind(word: &'static str, label: &'static str, props: &'static [(&'static str, PresetValue)]) -> ValueKind {
    ValueKind { word, label, props }
}

const KINDS: &[ValueKind] = &[
    kind("objects", "Objects, with siblings", &[]),
    kind(
        "last",
        "Objects, the last write wins",
        &[("allow_mult", PresetValue::Flag(false)), ("last_write_wins", PresetValue::Flag(true))],
    ),
    kind("once", "Objects, written once", &[("write_once", PresetValue::Flag(true))]),
    kind("consistent", "Objects, strongly consistent", &[("consistent", PresetValue::Flag(true))]),
    kind("counter", "Counters", &[("datatype", PresetValue::Datatype(Datatype::Counter))]),
    kind("set", "Sets", &[("datatype", PresetValue::Datatype(Datatype::Set))]),
    kind("gset", "Grow-only sets", &[("datatype", PresetValue::Datatype(Datatype::Gset))]),
    kind("map", "Maps", &[("datatype", PresetValue::Datatype(Datatype::Map))]),
    kind("hll", "HyperLogLogs", &[("datatype", PresetValue::Datatype(Datatype::Hll))]),
];

/// The value of a property in [`KINDS`].
#[derive(Debug, Clone, Copy)]
enum PresetValue {
    Flag(bool),
    Datatype(Datatype),
}

/// `GET /types`.
pub(super) async fn list(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let types = call.gateway().types().list().await?;
    let body = html! {
        h1 { "Bucket types" }
        div.scroll {
            table {
                thead { tr { th { "Type" } th { "State" } th { "Content" } } }
                tbody {
                    @for (name, is_active) in &types {
                        tr {
                            td { a href=(to_type(name).text()) { (shown(name)) } }
                            td { (state_tag(if *is_active { TypeStage::Active } else { TypeStage::Created })) }
                            td { @if *is_active { a href=(Href::to("/keys").with("type", name).text()) { "Buckets" } } }
                        }
                    }
                }
            }
        }
        @if call.may_change() { (creation_form(call)) }
    };
    Ok(page(StatusCode::OK, framed(call, ConsoleSection::Types, "Bucket types", &body)))
}

/// `GET /type`.
pub(super) async fn show(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let name = call.query.bytes("type");
    let status = call.gateway().types().status(&name).await?;
    let title = format!("Type {}", shown(&name));
    let is_default = name == DEFAULT_TYPE;
    let body = html! {
        (trail(&[(Href::to("/types"), "Types".to_owned())], &shown(&name)))
        div.head { h1 { (shown(&name)) } (state_tag(status.stage)) }
        (stage_advice(call, &name, status.stage))
        (property_table(&status, is_default))
        @if call.may_change() && !is_default && status.stage != TypeStage::Created {
            (update_form(call, &name, status.stage))
        }
    };
    let mut reply = page(StatusCode::OK, framed(call, ConsoleSection::Types, &title, &body));
    if status.stage == TypeStage::Created {
        // Also without JavaScript, the page shows the type as ready once it is.
        reply.headers_mut().insert(REFRESH, HeaderValue::from_static("2"));
    }
    Ok(reply)
}

/// `POST /types/create`.
pub(super) async fn create(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let name = call.form.bytes("type");
    let word = call.form.text("kind");
    let Some(kind) = KINDS.iter().find(|kind| kind.word == word) else {
        return Err(ConsoleFault::bad("The form has no such kind of values."));
    };
    let mut props: Map<String, Json> =
        kind.props.iter().map(|(name, value)| ((*name).to_owned(), json(*value))).collect();
    props.extend(given_props(call)?);
    call.gateway().types().create(&name, &props).await?;
    Ok(redirect(to_type(&name).with("done", b"created")))
}

/// `POST /type/activate`.
pub(super) async fn activate(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let name = call.query.bytes("type");
    call.gateway().types().activate(&name).await?;
    Ok(redirect(to_type(&name).with("done", b"activated")))
}

/// `POST /type/update`. A type that is not active yet is replaced, as `bucket-type create` does.
pub(super) async fn update(call: &ConsoleCall<'_>) -> Result<ConsoleReply, ConsoleFault> {
    let name = call.query.bytes("type");
    let props = given_props(call)?;
    if props.is_empty() {
        return Err(ConsoleFault::bad("The form names no property."));
    }
    let types = &call.gateway().types();
    match types.status(&name).await?.stage {
        TypeStage::Active => types.update(&name, &props).await?,
        TypeStage::Created | TypeStage::Ready => types.create(&name, &props).await?,
    }
    Ok(redirect(to_type(&name).with("done", b"updated")))
}

/// The properties in the form's JSON: an object of them, with or without `props` around it.
fn given_props(call: &ConsoleCall<'_>) -> Result<Map<String, Json>, ConsoleFault> {
    let Some(text) = call.form.given("props") else { return Ok(Map::new()) };
    if text.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    let bare = || match serde_json::from_slice(&text) {
        Ok(Json::Object(object)) if !object.contains_key("props") => Some(object),
        _ => None,
    };
    let props = body_props(&text).ok().or_else(bare);
    props.ok_or_else(|| {
        ConsoleFault::bad("The properties are no JSON object, such as {\"n_val\": 3, \"allow_mult\": false}.")
    })
}

fn json(value: PresetValue) -> Json {
    match value {
        PresetValue::Flag(flag) => flag.into(),
        PresetValue::Datatype(datatype) => datatype.name().into(),
    }
}

fn to_type(name: &[u8]) -> Href {
    Href::to("/type").with("type", name)
}

fn state_tag(stage: TypeStage) -> Markup {
    match stage {
        TypeStage::Active => html! { span.tag.good { "active" } },
        TypeStage::Ready => html! { span.tag { "ready" } },
        TypeStage::Created => html! { span.tag { "not active" } },
    }
}

/// The next step of a type's life. A type that is on its way to all nodes is looked at again by itself.
fn stage_advice(call: &ConsoleCall<'_>, name: &Bytes, stage: TypeStage) -> Markup {
    html! {
        @match stage {
            TypeStage::Active => {}
            TypeStage::Created => {
                p role="status" { "The type is on its way to all running nodes. This page looks again every two seconds." }
            }
            TypeStage::Ready => {
                p { "All running nodes have the type. Its kind of values cannot change after the activation." }
                @if call.may_change() {
                    form method="post" action=(Href::to("/type/activate").with("type", name).text()) {
                        (csrf(call.session))
                        button type="submit" { "Activate" }
                    }
                }
            }
        }
    }
}

fn property_table(status: &TypeStatus, is_default: bool) -> Markup {
    let defaults = if is_default { Defaults::DefaultType } else { Defaults::CustomType };
    let rows: Vec<_> = status.props.iter().map(|(name, value)| property_row(name, value, defaults)).collect();
    let changed = rows.iter().filter(|row| row.differs).count();
    html! {
        h2 { "Properties" }
        p.unit {
            @match changed {
                0 => "All have their defaults.",
                1 => "One differs from the default.",
                _ => { (changed) " differ from the defaults." }
            }
        }
        div.scroll {
            table.props {
                thead { tr { th { "Property" } th { "Value" } th { "Default" } th { "Meaning" } } }
                tbody {
                    @for row in rows.iter().filter(|row| row.differs).chain(rows.iter().filter(|row| !row.differs)) {
                        tr.differs[row.differs] {
                            th scope="row" {
                                code { (row.name) }
                                @if row.differs { " " span.tag.changed { "changed" } }
                            }
                            td { code { (row.value) } }
                            td { code { (row.default) } }
                            td.help { (row.help) }
                        }
                    }
                }
            }
        }
    }
}

/// A line of the table of properties.
struct PropertyRow {
    name: &'static str,
    value: String,
    default: String,
    help: &'static str,
    differs: bool,
}

fn property_row(name: &'static str, value: &Value, defaults: Defaults) -> PropertyRow {
    let prop = Prop::named(name);
    let default = prop.and_then(|prop| prop.preset(defaults)).map(|preset| preset());
    let own = prop.is_some_and(|prop| prop.mutability == PropMutability::ReadOnly);
    PropertyRow {
        name,
        value: shown(value.to_json().to_string().as_bytes()),
        default: default.as_ref().map_or_else(|| "–".to_owned(), |default| default.to_json().to_string()),
        help: prop.map_or("", |prop| prop.help),
        // The name, the state and the claimant follow from the type itself.
        differs: !own && default.as_ref() != Some(value),
    }
}

fn creation_form(call: &ConsoleCall<'_>) -> Markup {
    html! {
        section.panel aria-labelledby="create" {
            h2 id="create" { "New type" }
            form.fields method="post" action="/types/create" {
                (csrf(call.session))
                label for="type-name" { "Name" }
                input id="type-name" name="type" required autocomplete="off" spellcheck="false" maxlength="255";
                label for="type-kind" { "Values" }
                select id="type-kind" name="kind" {
                    @for kind in KINDS { option value=(kind.word) { (kind.label) } }
                }
                label for="type-props" { "Further properties, as JSON" }
                textarea id="type-props" name="props" rows="3" spellcheck="false" placeholder=r#"{"n_val": 3}"# {}
                button type="submit" { "Create" }
            }
        }
    }
}

fn update_form(call: &ConsoleCall<'_>, name: &Bytes, stage: TypeStage) -> Markup {
    let is_active = stage == TypeStage::Active;
    html! {
        section.panel aria-labelledby="update" {
            h2 id="update" { @if is_active { "Change properties" } @else { "Set the properties anew" } }
            @if !is_active { p { "Properties that the form does not name take their defaults again." } }
            form.fields method="post" action=(Href::to("/type/update").with("type", name).text()) {
                (csrf(call.session))
                label for="props" { "Properties, as JSON" }
                textarea id="props" name="props" rows="4" required spellcheck="false"
                    placeholder=r#"{"allow_mult": true, "r": 2}"# {}
                button type="submit" { @if is_active { "Change" } @else { "Set" } }
            }
        }
    }
}
