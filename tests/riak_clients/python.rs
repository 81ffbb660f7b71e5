//! The Python client `riak`, over HTTP and over protocol buffers.

use std::process::Command;

use crate::harness::client_place;

use crate::riak_clients::scripts;
use crate::riak_clients::secured::{check_with_certificate, check_with_password};

/// The protocols, as the client names them.
const BOTH: &[&str] = &["http", "pbc"];

/// Runs one script over both protocols.
#[track_caller]
fn check(script: &str) {
    check_with(crate::riak_clients::check, script, BOTH);
}

/// Runs one script over these protocols with this function.
#[track_caller]
fn check_with(run: fn(&str, &mut Command), script: &str, protocols: &[&str]) {
    let Some(python) = client_place("LARDER_PYTHON", "Python client of Riak") else { return };
    let folder = scripts("python");
    for protocol in protocols {
        let mut command = Command::new(&python);
        command
            .arg("-W")
            .arg("ignore::DeprecationWarning")
            .arg(folder.join(script))
            .env("PYTHONPATH", folder.join("shim"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")
            .env("LARDER_PROTOCOL", protocol);
        run(&format!("{script} over {protocol}"), &mut command);
    }
}

#[test]
fn it_stores_reads_and_deletes_objects() {
    check("objects.py");
}

#[test]
fn it_sees_and_resolves_siblings() {
    check("siblings.py");
}

#[test]
fn it_reads_sets_and_clears_properties() {
    check("props.py");
}

#[test]
fn it_lists_keys_and_buckets() {
    check("listing.py");
}

#[test]
fn it_updates_and_reads_data_types() {
    check("datatypes.py");
}

#[test]
fn it_queries_indexes() {
    check("indexes.py");
}

#[test]
fn it_runs_map_reduce_jobs() {
    check("mapreduce.py");
}

#[test]
fn it_logs_in_with_a_password() {
    check_with(check_with_password, "security.py", BOTH);
}

#[test]
fn it_logs_in_with_a_certificate() {
    // Certificates prove users over protocol buffers alone.
    check_with(check_with_certificate, "security.py", &["pbc"]);
}

#[test]
fn it_reports_what_is_refused() {
    check("refused.py");
}
