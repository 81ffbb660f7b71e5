//! The Node client `basho-riak-client`, over protocol buffers.

use std::process::Command;

use crate::harness::client_place;

use crate::riak_clients::scripts;
use crate::riak_clients::secured::{check_with_certificate, check_with_password};

/// Runs one of the scripts of `tests/node`.
#[track_caller]
fn check(script: &str) {
    check_with(crate::riak_clients::check, script);
}

/// Runs one of the scripts with this function.
#[track_caller]
fn check_with(run: fn(&str, &mut Command), script: &str) {
    let Some(packages) = client_place("LARDER_NODE_CLIENT", "Node client of Riak") else { return };
    let mut command = Command::new("node");
    command.arg("--no-warnings").arg(scripts("node").join(script)).env("NODE_PATH", packages);
    run(script, &mut command);
}

#[test]
fn it_stores_reads_and_deletes_objects() {
    check("objects.js");
}

#[test]
fn it_sees_and_resolves_siblings() {
    check("siblings.js");
}

#[test]
fn it_reads_sets_and_resets_properties() {
    check("props.js");
}

#[test]
fn it_lists_keys_and_buckets() {
    check("listing.js");
}

#[test]
fn it_shares_a_pool_of_connections() {
    check("pool.js");
}

#[test]
fn it_updates_and_reads_data_types() {
    check("datatypes.js");
}

#[test]
fn it_queries_indexes() {
    check("indexes.js");
}

#[test]
fn it_runs_map_reduce_jobs() {
    check("mapreduce.js");
}

#[test]
fn it_logs_in_with_a_password() {
    check_with(check_with_password, "security.js");
}

#[test]
fn it_logs_in_with_a_certificate() {
    check_with(check_with_certificate, "security.js");
}

#[test]
fn it_reports_what_is_refused() {
    check("refused.js");
}
