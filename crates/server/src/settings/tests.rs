//! Precedence and errors of settings, one row each.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use larder_store_cassandra::Replication;

use super::cli::{Invocation, read};
use super::*;

/// Reads a command line, `NAME=VALUE` variables and the content of the file named by `--config`.
fn run(arguments: &str, variables: &str, file: &str) -> Result<Invocation, SettingError> {
    let arguments = std::iter::once("larder").chain(arguments.split_whitespace()).map(OsString::from);
    let variables: Vec<(OsString, OsString)> = variables
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='))
        .map(|(n, v)| (n.into(), v.into()))
        .collect();
    read(arguments, &variables, |path: &Path| match path.to_str() {
        Some("missing.toml") => Err(io::Error::from(io::ErrorKind::NotFound)),
        _ => Ok(file.to_owned()),
    })
}

fn settings(arguments: &str, variables: &str, file: &str) -> ServerSettings {
    match run(arguments, variables, file).unwrap() {
        Invocation::Serve(settings) => *settings,
        other => panic!("no server is started: {other:?}"),
    }
}

fn at(text: &str) -> Listener {
    Listener::At(text.into())
}

#[test]
fn without_settings_the_defaults_hold() {
    let settings = settings("", "HOME=/root PATH=/bin", "");
    assert_eq!(settings.data_dir, Path::new("./data"));
    assert_eq!(settings.http, at("127.0.0.1:8098"));
    assert_eq!(settings.admin_socket, Path::new("./data/admin.sock"));
    assert_eq!(settings.engine, EngineKind::Local);
    assert_eq!(settings.durability, DurabilitySetting::Disk);
    assert_eq!(settings.cache_bytes, 256 << 20);
    assert_eq!(settings.object_bytes_max, larder_rows::limits::OBJECT_BYTES_MAX);
    assert_eq!(settings.siblings_max, larder_rows::limits::SIBLINGS_MAX);
    assert_eq!(settings.delete_mode, DeleteMode::After(Duration::from_secs(3)));
    assert_eq!(settings.request_timeout, Duration::from_secs(60));
    assert!(!settings.accept_damaged_journal);
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let file = "http = \"f:1\"\npb = \"f:1\"\ns3 = \"off\"\nsiblings-max = 7\naccept-damaged-journal = true";
    let settings = settings("--config x.toml --http a:1", "LARDER_HTTP=e:1 LARDER_PB=e:1", file);
    assert_eq!((settings.http, settings.pb, settings.s3), (at("a:1"), at("e:1"), Listener::Off));
    assert_eq!(settings.siblings_max, 7);
    assert!(settings.accept_damaged_journal);
}

#[test]
fn the_file_may_be_named_in_the_environment() {
    assert_eq!(settings("", "LARDER_CONFIG=x.toml", "http = \"off\"").http, Listener::Off);
}

#[test]
fn the_socket_follows_the_data_directory_unless_it_is_set() {
    assert_eq!(settings("--data-dir /d", "", "").admin_socket, Path::new("/d/admin.sock"));
    assert_eq!(settings("--data-dir /d", "LARDER_ADMIN_SOCKET=/s", "").admin_socket, Path::new("/s"));
}

#[test]
fn a_switch_needs_no_value() {
    assert!(settings("--accept-damaged-journal", "", "").accept_damaged_journal);
    assert!(
        !settings("--accept-damaged-journal=false", "LARDER_ACCEPT_DAMAGED_JOURNAL=true", "").accept_damaged_journal
    );
}

#[test]
fn a_bad_setting_is_reported_in_one_line_with_its_source() {
    const FILE: &str = "--config x.toml";
    for (arguments, variables, file, exit, message) in [
        ("--htp a:1", "", "", 2, "unexpected argument '--htp' found (did you mean --http?)"),
        ("extra", "", "", 2, "unrecognized subcommand 'extra'; `larder --help` lists the settings"),
        (
            "--http",
            "",
            "",
            2,
            "a value is required for '--http <HOST:PORT|off>' but none was supplied; `larder --help` lists the settings",
        ),
        ("--http 1", "", "", 2, r#"--http is "1": expected HOST:PORT, such as 127.0.0.1:8098 or [::1]:8098, or off"#),
        ("", "LARDER_ENGINE=big", "", 1, r#"LARDER_ENGINE is "big": expected local, memory or cassandra"#),
        ("", "LARDER_HTPP=1", "", 1, "LARDER_HTPP is not a setting (did you mean LARDER_HTTP?)"),
        ("", "LARDER_UNHEARD_OF=1", "", 1, "LARDER_UNHEARD_OF is not a setting; `larder --help` lists them"),
        (FILE, "", "siblings-max = 0", 1, r#"siblings-max in x.toml is "0": expected a number from 1 to 100"#),
        (FILE, "", "sibling-max = 1", 1, "sibling-max in x.toml is not a setting (did you mean siblings-max?)"),
        (FILE, "", "http = [1]", 1, "http in x.toml: expected text, a whole number, true or false"),
        ("--config missing.toml", "", "", 1, "cannot read the settings file missing.toml: entity not found"),
    ] {
        let error = run(arguments, variables, file).unwrap_err();
        assert_eq!((error.message.as_str(), error.exit), (message, exit), "{arguments} {variables} {file}");
    }
}

#[test]
fn a_cluster_is_named_by_its_nodes_and_has_a_keyspace_of_its_own() {
    let all = settings("--engine cassandra --cassandra a,b:19042", "LARDER_CASSANDRA_KEYSPACE=test", "");
    let expected = CassandraSettings {
        nodes: vec!["a:9042".into(), "b:19042".into()],
        keyspace: "test".into(),
        replication: Replication::Simple,
        login: None,
        tls: None,
    };
    assert_eq!((all.engine, all.cassandra, all.node_name), (EngineKind::Cassandra, Some(expected), None));
    let file = "engine = \"cassandra\"\ncassandra = \"a\"\nnode-name = \"n@a\"\ncassandra-datacenter = \"east\"";
    let all = settings("--config x.toml", "LARDER_CASSANDRA_DATACENTERS=west,east", file);
    let replication = all.cassandra.map(|cassandra| cassandra.replication);
    let named = Replication::Datacenters { local: "east".into(), all: vec!["west".into(), "east".into()] };
    assert_eq!(replication, Some(named));
    assert_eq!(all.node_name.as_deref(), Some("n@a"));
    assert_eq!(settings("", "", "").node_name.as_deref(), Some("larder@127.0.0.1"));
}

#[test]
fn the_table_has_the_words_of_every_choice() {
    fn words<T: ValueEnum>() -> String {
        T::value_variants().iter().map(choice_word).collect::<Vec<_>>().join("|")
    }
    assert_eq!(table::ENGINE.kind.placeholder(), words::<EngineKind>());
    assert_eq!(table::DURABILITY.kind.placeholder(), words::<DurabilitySetting>());
    assert_eq!(table::LOG_FORMAT.kind.placeholder(), words::<LogFormat>());
}

#[test]
fn settings_of_a_cluster_are_checked_against_each_other() {
    const CASSANDRA: &str = "--engine cassandra --cassandra a";
    for (arguments, variables, message) in [
        ("--cassandra a", "", "--cassandra is given, but the engine is local: it goes with --engine cassandra"),
        (
            "--engine memory",
            "LARDER_CASSANDRA_USER=u",
            "LARDER_CASSANDRA_USER is given, but the engine is memory: it goes with --engine cassandra",
        ),
        (
            "--engine cassandra",
            "",
            "the engine is cassandra, but nobody says where the cluster is: give a node or more, such as --cassandra 127.0.0.1:9042",
        ),
        (
            "--https 127.0.0.1:8443",
            "LARDER_TLS_CERT=c",
            "https needs tls-key, which is missing; `kv-admin tls self-signed <directory>` makes a certificate for trying",
        ),
        (
            "",
            "LARDER_TLS_CLIENT_CA=c",
            "LARDER_TLS_CLIENT_CA is given, but no listener is encrypted: it goes with --https, --pb-tls or --s3-https",
        ),
        (
            "--https 127.0.0.1:8443 --tls-client-crl r",
            "LARDER_TLS_CERT=c LARDER_TLS_KEY=k",
            "tls-client-crl needs tls-client-ca, which is missing",
        ),
        (CASSANDRA, "LARDER_CASSANDRA_USER=u", "cassandra-user needs cassandra-password-file, which is missing"),
        (
            CASSANDRA,
            "LARDER_CASSANDRA_PASSWORD_FILE=f",
            "cassandra-password-file needs cassandra-user, which is missing",
        ),
        (CASSANDRA, "LARDER_CASSANDRA_TLS_CERT=c", "cassandra-tls-cert needs cassandra-tls-key, which is missing"),
        (
            CASSANDRA,
            "LARDER_CASSANDRA_TLS_CERT=c LARDER_CASSANDRA_TLS_KEY=k",
            "cassandra-tls-cert needs cassandra-tls-ca, which is missing",
        ),
        (
            CASSANDRA,
            "LARDER_CASSANDRA_DATACENTERS=a,b",
            "cassandra-datacenters needs cassandra-datacenter, which is missing",
        ),
        (
            CASSANDRA,
            "LARDER_CASSANDRA_DATACENTERS=a,b LARDER_CASSANDRA_DATACENTER=c",
            "cassandra-datacenter is \"c\", which is not among cassandra-datacenters",
        ),
    ] {
        let error = run(arguments, variables, "").unwrap_err();
        assert_eq!((error.message.as_str(), error.exit), (message, 1), "{arguments} {variables}");
    }
}

#[test]
fn a_file_that_is_not_toml_is_reported_with_its_line() {
    let error = run("--config x.toml", "", "http = \"off\"\npb = \n").unwrap_err();
    assert!(error.message.starts_with("x.toml, line 2: ") && !error.message.contains('\n'), "{error}");
}

#[test]
fn check_and_repair_name_their_directories() {
    let inspect = |arguments: &str| match run(arguments, "", "") {
        Ok(Invocation::Inspect(command)) => (command.dir, command.into, command.leave_out_older),
        other => panic!("{other:?}"),
    };
    assert_eq!(inspect("check --data-dir d"), ("d".into(), None, false));
    assert_eq!(inspect("repair --data-dir d --into n"), ("d".into(), Some("n".into()), false));
    assert_eq!(inspect("repair --data-dir d --into n --leave-out-older"), ("d".into(), Some("n".into()), true));
    for wrong in ["check", "repair --data-dir d", "check --data-dir d --into n", "repair --into n"] {
        assert_eq!(run(wrong, "", "").unwrap_err().exit, 2, "{wrong}");
    }
}

#[test]
fn help_version_and_the_table_are_printed() {
    let printed = |arguments: &str| match run(arguments, "LARDER_NOT_A_SETTING=1", "") {
        Ok(Invocation::Print(text)) => text,
        other => panic!("{other:?}"),
    };
    let help = printed("--help");
    for setting in table::SETTINGS {
        assert!(help.contains(&setting.flag()) && help.contains(&setting.variable()), "{}", setting.name);
    }
    assert_eq!(printed("--version"), format!("larder {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(printed("settings --markdown"), manual::settings());
}
