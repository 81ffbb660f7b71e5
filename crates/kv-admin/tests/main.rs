//! `kv-admin` without a server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

fn kv_admin(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kv-admin")).args(args).env_remove("LARDER_ADMIN_SOCKET").output().unwrap()
}

#[test]
fn help_and_version_need_no_server() {
    for (args, start) in [(["help"], "kv-admin"), (["version"], env!("CARGO_PKG_VERSION"))] {
        let output = kv_admin(&args);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert!(String::from_utf8(output.stdout).unwrap().contains(start), "{args:?}");
    }
}

#[test]
fn a_command_without_a_server_fails_and_names_the_socket() {
    let output = kv_admin(&["--socket", "/nowhere/admin.sock", "ping"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("/nowhere/admin.sock"));
}
