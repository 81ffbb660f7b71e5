//! Servers with security on, for clients that log in over TLS: each has the users `clients` and `others`, and grants for the
//! first one.

use std::process::Command;

use crate::harness::{Home, LarderNode, SignedFiles, TestAuthority};

/// Listeners for both protocols, with TLS.
const LISTENERS: &[&str] = &["--durability", "buffered", "--pb", "127.0.0.1:0", "--https", "127.0.0.1:0"];

/// Runs a script, which must succeed, against a server whose users have passwords. The script trusts its certificate.
#[track_caller]
pub(crate) fn check_with_password(script: &str, command: &mut Command) {
    let first = LarderNode::buffered();
    let directory = first.home().path().join("tls");
    first.admin().output(&["tls", "self-signed", directory.to_str().unwrap()]);
    let files = SignedFiles { certificate: directory.join("cert.pem"), key: directory.join("key.pem") };
    command.env("LARDER_CA", &files.certificate);
    check(first.into_home(), &files.args(), "password", script, command);
}

/// Runs a script, which must succeed, against a server whose users have certificates. The script trusts the authority, and has
/// the certificate of `clients` alone.
#[track_caller]
pub(crate) fn check_with_certificate(script: &str, command: &mut Command) {
    let home = Home::new();
    let authority = TestAuthority::make(home.path());
    let server = authority.sign("localhost").write(home.path(), "server");
    let client = authority.sign("clients").write(home.path(), "clients");
    let args = [&["--tls-client-ca", authority.file()][..], &server.args()].concat();
    command.env("LARDER_CA", authority.file()).env("LARDER_CERT", &client.certificate).env("LARDER_KEY", &client.key);
    check(home, &args, "certificate", script, command);
}

#[track_caller]
fn check(home: Home, args: &[&str], source: &str, script: &str, command: &mut Command) {
    let node = LarderNode::start_in(home, &[LISTENERS, args].concat());
    for line in [
        "add-user clients password=Test1234",
        "add-user others password=Other1234",
        &format!("add-source all 127.0.0.1/32 {source}"),
        &format!("add-source all ::1/128 {source}"),
        "grant riak_kv.get,riak_kv.put,riak_kv.list_keys on any to clients",
        "enable",
    ] {
        node.admin().output(&[&["security"][..], &line.split(' ').collect::<Vec<_>>()].concat());
    }
    command.env("LARDER_HTTP_PORT", node.https().port().to_string());
    crate::riak_clients::check_over(&node, script, command);
}
