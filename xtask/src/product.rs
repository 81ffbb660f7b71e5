//! The environment of the product tests: the paths of the programs and of the clients.

use crate::clients;
use crate::python;
use crate::shell::Shell;

/// The shell with a variable for the path of each program and of each installed client.
pub(crate) fn with_product_paths(shell: Shell) -> Shell {
    let (larder, admin) = (shell.path("target/release/larder"), shell.path("target/release/kv-admin"));
    let shell =
        clients::with_paths(shell).with_variable("LARDER_BIN", larder).with_variable("LARDER_KV_ADMIN_BIN", admin);
    match python::interpreter(&shell) {
        Some(python) => shell.with_variable("LARDER_PYTHON", python),
        None => shell,
    }
}
