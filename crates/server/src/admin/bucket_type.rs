//! `bucket-type`: create, activate, list, status, update.

use bytes::Bytes;
use serde_json::{Map, Value as Json, json};

use larder_gateway::Error;
use larder_gateway::types::{Refusal, Stage, TypeStatus};
use larder_model::props::set::props_of;
use larder_model::props::types::DEFAULT_TYPE;
use larder_model::props::{BadBody, display};

use super::Answer;
use super::answer::{reasons, shown};
use super::table::Call;

pub(super) async fn list(call: Call<'_>) -> Answer {
    let types = match call.gateway.list_types().await {
        Ok(types) => types,
        Err(error) => return Answer::failed(format!("Error listing bucket types:\n{}", reasons(&error))),
    };
    if call.json {
        let list = types.iter().map(|(name, active)| json!({ "name": text(name), "active": active }));
        return Answer::json(&list.collect());
    }
    let line = |(name, active): &(Bytes, bool)| {
        format!("{} ({})\n", shown(name), if *active { "active" } else { "not active" })
    };
    Answer::done(types.iter().map(line).collect::<String>())
}

pub(super) async fn status(call: Call<'_>) -> Answer {
    let name = call.args[0];
    let status = match call.gateway.type_status(&bytes(name)).await {
        Ok(status) => status,
        Err(error) => return failed(name, "showing", &error),
    };
    let text = if call.json { status_json(name, &status) } else { status_text(name, &status) };
    match status.stage {
        Stage::Created => Answer::negative(text),
        Stage::Ready | Stage::Active => Answer::done(text),
    }
}

pub(super) async fn activate(call: Call<'_>) -> Answer {
    let name = call.args[0];
    if name.as_bytes() == DEFAULT_TYPE {
        return Answer::done(stage_line(name, Stage::Active));
    }
    match call.gateway.activate_type(&bytes(name)).await {
        Ok(()) => Answer::done(format!("{} has been activated", shown(name.as_bytes()))),
        Err(Error::Type(Refusal::NotReady)) => Answer::failed(stage_line(name, Stage::Created)),
        Err(error) => failed(name, "activating", &error),
    }
}

pub(super) async fn create(call: Call<'_>) -> Answer {
    let (name, words) = (call.args[0], &call.args[1..]);
    let props = match props(words) {
        Ok(props) => props,
        Err(reason) => {
            return Answer::failed(format!("Cannot create bucket type {}: {reason}", shown(name.as_bytes())));
        }
    };
    match call.gateway.create_type(&bytes(name), &props).await {
        Ok(()) => Answer::done(format!("{} created", shown(name.as_bytes()))),
        Err(error) => change_failed(name, "creating", &error),
    }
}

pub(super) async fn update(call: Call<'_>) -> Answer {
    const INVALID_JSON: &str = BadBody::InvalidJson.text();
    let (name, words) = (call.args[0], &call.args[1..]);
    let props = match props(words) {
        Ok(props) => props,
        // Both texts are Riak's own, the colon too much and the wrong verb included.
        Err(INVALID_JSON) => {
            return Answer::failed(format!("Cannot update bucket type: {}: {INVALID_JSON}", shown(name.as_bytes())));
        }
        Err(reason) => {
            return Answer::failed(format!("Cannot create bucket type {}: {reason}", shown(name.as_bytes())));
        }
    };
    match call.gateway.update_type(&bytes(name), &props).await {
        Ok(()) => Answer::done(format!("{} updated", shown(name.as_bytes()))),
        Err(error) => change_failed(name, "updating", &error),
    }
}

/// The properties in the words behind a type's name: JSON that the shell may have split; nothing means no property.
fn props(words: &[&str]) -> Result<Map<String, Json>, &'static str> {
    if words.is_empty() {
        return Ok(Map::new());
    }
    props_of(words.join(" ").as_bytes()).map_err(BadBody::text)
}

fn status_text(name: &str, status: &TypeStatus) -> String {
    format!("{}\n\n{}", stage_line(name, status.stage), display::console(&status.props).join("\n"))
}

fn status_json(name: &str, status: &TypeStatus) -> String {
    let stage = match status.stage {
        Stage::Created => "created",
        Stage::Ready => "ready",
        Stage::Active => "active",
    };
    json!({ "name": name, "stage": stage, "props": display::to_json(&status.props) }).to_string()
}

fn stage_line(name: &str, stage: Stage) -> String {
    let name = shown(name.as_bytes());
    match stage {
        Stage::Created => format!("{name} has been created and is not ready to activate"),
        Stage::Ready => format!("{name} has been created and may be activated"),
        Stage::Active => format!("{name} is active"),
    }
}

fn change_failed(name: &str, doing: &str, error: &Error) -> Answer {
    Answer::failed(format!("Error {doing} bucket type {}:\n{}", shown(name.as_bytes()), reasons(error)))
}

fn failed(name: &str, doing: &str, error: &Error) -> Answer {
    match error {
        Error::Type(Refusal::Unknown) | Error::UnknownType(_) => {
            Answer::failed(format!("{} is not an existing bucket type", shown(name.as_bytes())))
        }
        _ => change_failed(name, doing, error),
    }
}

fn bytes(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

fn text(name: &Bytes) -> String {
    String::from_utf8(name.to_vec()).unwrap_or_else(|_| shown(name))
}
