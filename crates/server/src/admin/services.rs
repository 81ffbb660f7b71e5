//! The commands about this server alone: whether it answers, its version, its services, and the wait for one of them.

use std::time::Duration;

use larder_kv_admin::frame::AdminAnswer;

use super::command::{CommandCall, CommandResult, shown};

/// The services that other programs wait for.
const SERVICES: [&str; 2] = ["riak_kv", "riak_pipe"];
const SERVICE_TRIES: u32 = 20;
const SERVICE_PAUSE: Duration = Duration::from_secs(3);

pub(super) async fn services(call: CommandCall<'_>) -> CommandResult {
    Ok(AdminAnswer::done(running(&call)))
}

fn running(call: &CommandCall<'_>) -> String {
    if call.gateway().is_ready() { format!("[{}]", SERVICES.join(",")) } else { "[]".to_owned() }
}

pub(super) async fn wait_for_service(call: CommandCall<'_>) -> CommandResult {
    let service = shown(call.args[0].as_bytes());
    let mut waited = String::new();
    for turn in 0..SERVICE_TRIES {
        if call.gateway().is_ready() && SERVICES.contains(&call.args[0]) {
            return Ok(AdminAnswer::done(format!("{waited}{service} is up")));
        }
        waited.push_str(&format!("{service} is not up: {}\n", running(&call)));
        if !SERVICES.contains(&call.args[0]) {
            break;
        }
        if turn + 1 < SERVICE_TRIES {
            tokio::time::sleep(SERVICE_PAUSE).await;
        }
    }
    Err(AdminAnswer::failed(waited))
}

pub(super) async fn ping(_: CommandCall<'_>) -> CommandResult {
    Ok(AdminAnswer::done("pong"))
}

pub(super) async fn version(_: CommandCall<'_>) -> CommandResult {
    Ok(AdminAnswer::done(env!("CARGO_PKG_VERSION")))
}
