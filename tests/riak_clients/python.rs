//! The Python client `riak`, over HTTP and over protocol buffers.

use std::process::Command;

use larder_tests::client_place;

use crate::scripts;

/// Runs one script over both protocols.
#[track_caller]
fn check(script: &str) {
    check_with(crate::check, script);
}

/// Runs one script over both protocols with this function.
#[track_caller]
fn check_with(run: fn(&str, &mut Command), script: &str) {
    let Some(python) = client_place("LARDER_PYTHON", "Python client of Riak") else { return };
    let folder = scripts("python");
    for protocol in ["http", "pbc"] {
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
    crate::check_datatypes(check, "datatypes.py");
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
    check_with(crate::check_secured, "security.py");
}

#[test]
fn it_reports_what_is_refused() {
    check("refused.py");
}
