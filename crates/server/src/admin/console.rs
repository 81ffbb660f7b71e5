//! `console link`: a link that signs in to the web console.

use larder_kv_admin::frame::AdminAnswer;

use super::command::{CommandCall, CommandResult};
use crate::settings::table;

pub(super) async fn link(call: CommandCall<'_>) -> CommandResult {
    let Some(links) = &call.context.console else {
        return Err(AdminAnswer::failed(format!(
            "this server has no console: it runs with {} off",
            table::CONSOLE.flag()
        )));
    };
    Ok(AdminAnswer::done(links.issue(call.gateway().context().monotonic())))
}
