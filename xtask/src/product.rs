//! The environment of the product tests: the paths of the programs and of the clients.

use crate::clients;
use crate::shell::Shell;

/// The shell with a variable for the path of each program and of each installed client.
pub(crate) fn with_product_paths(shell: Shell) -> Shell {
    let (larder, admin) = (shell.path("target/release/larder"), shell.path("target/release/kv-admin"));
    clients::with_places(shell).with_variable("LARDER_BIN", larder).with_variable("LARDER_KV_ADMIN_BIN", admin)
}
