//! `bucket-type`: create, activate, list, status, update.

use bytes::Bytes;
use larder_core::Error;
use larder_core::rules::props::effective::body_props;
use larder_core::rules::props::types::DEFAULT_TYPE;
use larder_core::rules::props::{PropsBodyError, display};
use larder_core::types::{TypeStage, TypeStateError, TypeStatus};
use larder_kv_admin::frame::AdminAnswer;
use serde_json::{Map, Value as Json, json};

use super::command::{CommandCall, CommandResult, reasons, shown};

pub(super) async fn list(call: CommandCall<'_>) -> CommandResult {
    let types = call.gateway().types().list().await;
    let types =
        types.map_err(|error| AdminAnswer::failed(format!("Error listing bucket types:\n{}", reasons(&error))))?;
    if call.json {
        let list = types.iter().map(|(name, active)| json!({ "name": text(name), "active": active }));
        return Ok(AdminAnswer::json(&list.collect()));
    }
    let line = |(name, active): &(Bytes, bool)| {
        format!("{} ({})\n", shown(name), if *active { "active" } else { "not active" })
    };
    Ok(AdminAnswer::done(types.iter().map(line).collect::<String>()))
}

pub(super) async fn status(call: CommandCall<'_>) -> CommandResult {
    let name = call.args[0];
    let status = call.gateway().types().status(&bytes(name)).await;
    let status = status.map_err(|error| failed(name, "showing", &error))?;
    let text = if call.json { status_json(name, &status) } else { status_text(name, &status) };
    match status.stage {
        TypeStage::Created => Err(AdminAnswer::negative(text)),
        TypeStage::Ready | TypeStage::Active => Ok(AdminAnswer::done(text)),
    }
}

pub(super) async fn activate(call: CommandCall<'_>) -> CommandResult {
    let name = call.args[0];
    if name.as_bytes() == DEFAULT_TYPE {
        return Ok(AdminAnswer::done(stage_line(name, TypeStage::Active)));
    }
    call.gateway().types().activate(&bytes(name)).await.map_err(|error| match error {
        Error::Type(TypeStateError::NotReady) => AdminAnswer::failed(stage_line(name, TypeStage::Created)),
        error => failed(name, "activating", &error),
    })?;
    Ok(AdminAnswer::done(format!("{} has been activated", shown(name.as_bytes()))))
}

pub(super) async fn create(call: CommandCall<'_>) -> CommandResult {
    let name = call.args[0];
    let props = props(&call, "Cannot create bucket type")?;
    let created = call.gateway().types().create(&bytes(name), &props).await;
    created.map_err(|error| change_failed(name, "creating", &error))?;
    Ok(AdminAnswer::done(format!("{} created", shown(name.as_bytes()))))
}

pub(super) async fn update(call: CommandCall<'_>) -> CommandResult {
    let name = call.args[0];
    let props = props(&call, "Cannot update bucket type:")?;
    let types = &call.gateway().types();
    if let Err(error) = types.update(&bytes(name), &props).await {
        // Of a type that does not exist, the refusal says that it is not active.
        return Err(match types.status(&bytes(name)).await {
            Err(unknown) => failed(name, "updating", &unknown),
            Ok(_) => change_failed(name, "updating", &error),
        });
    }
    Ok(AdminAnswer::done(format!("{} updated", shown(name.as_bytes()))))
}

/// The properties in the arguments after a type's name: JSON that the shell may have split, or files. No argument means no
/// property. A refusal of invalid JSON begins with `invalid`.
fn props(call: &CommandCall<'_>, invalid: &str) -> Result<Map<String, Json>, AdminAnswer> {
    let (name, words) = (call.args[0], &call.args[1..]);
    if words.is_empty() {
        return Ok(Map::new());
    }
    let texts: Result<Vec<&str>, &String> = words.iter().map(|word| call.content(word)).collect();
    let text = texts.map_err(AdminAnswer::failed)?.join(" ");
    body_props(text.as_bytes()).map_err(|error| {
        let begin = match error {
            PropsBodyError::InvalidJson => invalid,
            // Also for an update: the text is Riak's own.
            PropsBodyError::NoProps => "Cannot create bucket type",
        };
        AdminAnswer::failed(format!("{begin} {}: {}", shown(name.as_bytes()), error.text()))
    })
}

fn status_text(name: &str, status: &TypeStatus) -> String {
    format!("{}\n\n{}", stage_line(name, status.stage), display::console_lines(&status.props).join("\n"))
}

fn status_json(name: &str, status: &TypeStatus) -> String {
    let stage = match status.stage {
        TypeStage::Created => "created",
        TypeStage::Ready => "ready",
        TypeStage::Active => "active",
    };
    json!({ "name": name, "stage": stage, "props": display::to_json(&status.props) }).to_string()
}

fn stage_line(name: &str, stage: TypeStage) -> String {
    let name = shown(name.as_bytes());
    match stage {
        TypeStage::Created => format!("{name} has been created and is not ready to activate"),
        TypeStage::Ready => format!("{name} has been created and may be activated"),
        TypeStage::Active => format!("{name} is active"),
    }
}

fn change_failed(name: &str, doing: &str, error: &Error) -> AdminAnswer {
    AdminAnswer::failed(format!("Error {doing} bucket type {}:\n{}", shown(name.as_bytes()), reasons(error)))
}

fn failed(name: &str, doing: &str, error: &Error) -> AdminAnswer {
    match error {
        Error::Type(TypeStateError::Unknown) | Error::UnknownType(_) => {
            AdminAnswer::failed(format!("{} is not an existing bucket type", shown(name.as_bytes())))
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
