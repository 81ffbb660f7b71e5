//! `js-reload`: loads the modules again. As in Riak it prints nothing when all is well, and ignores the names of pools.

use larder_kv_admin::frame::AdminAnswer;

use super::command::{CommandCall, CommandResult};

pub(super) async fn js_reload(call: CommandCall<'_>) -> CommandResult {
    let Some(scripts) = call.gateway().core.scripts() else {
        return Err(AdminAnswer::failed("this server runs no scripts"));
    };
    // It waits for a worker that tries the modules.
    match tokio::task::spawn_blocking(move || scripts.reload()).await {
        Ok(Ok(_)) => Ok(AdminAnswer::default()),
        Ok(Err(fault)) => Err(AdminAnswer::failed(format!("modules not loaded, the old ones stay in use: {fault}"))),
        Err(_) => Err(AdminAnswer::failed("modules not loaded: the server ends")),
    }
}
