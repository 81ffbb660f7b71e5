//! Settings as MinIO's users write them: the command `server DIR`, and MinIO's environment variables as aliases of our own.
//!
//! An alias is read wherever its own variable is; the own one wins, and two that differ are refused. With `server` the interface
//! of S3 listens where MinIO does, and the Riak interface is off: flags alone say otherwise, since the environment of an image has the
//! listeners of the plain command.

use std::ffi::OsString;
use std::net::Ipv4Addr;

use clap::{Arg, ArgMatches, Command};

use super::raw::{RawSettings, SettingSource, flag};
use super::table::{self, MINIO_PORT, SETTINGS, Setting};
use super::{SettingError, events};

/// The word of the command.
pub(super) const SERVER: &str = "server";

const DIR: &str = "dir";
const ADDRESS: &str = "address";
const CONSOLE_ADDRESS: &str = "console-address";
const LISTENER_OFF: &str = "off";
/// Variables of event targets, of which webhooks are offered.
const NOTIFY: &str = "MINIO_NOTIFY_";

/// A variable of MinIO's that sets a setting of ours.
#[derive(Debug)]
pub struct VariableAlias {
    /// The variable.
    pub variable: &'static str,
    /// The setting.
    pub setting: &'static Setting,
}

/// All aliases. An empty variable counts as one that is not set, as in compose files.
pub static ALIASES: &[VariableAlias] = &[
    VariableAlias { variable: "MINIO_ROOT_USER", setting: &table::S3_ADMIN_KEY },
    VariableAlias { variable: "MINIO_ROOT_PASSWORD", setting: &table::S3_ADMIN_SECRET },
    VariableAlias { variable: "MINIO_DEFAULT_BUCKETS", setting: &table::S3_BUCKETS },
    VariableAlias { variable: "MINIO_REGION", setting: &table::S3_REGION },
    VariableAlias { variable: "MINIO_SERVER_URL", setting: &table::S3_PUBLIC_URL },
    VariableAlias { variable: "MINIO_PROMETHEUS_AUTH_TYPE", setting: &table::S3_METRICS },
    VariableAlias { variable: "MINIO_DOMAIN", setting: &table::S3_HOST },
];

/// Beginnings of variables whose features are not offered. With `server` they are refused: a server that leaves out the
/// encryption or the login that its operator configured must not start.
const REFUSED: &[&str] = &[
    "MINIO_KMS_",
    "MINIO_IDENTITY_",
    "MINIO_POLICY_",
    "MINIO_AUDIT_",
    NOTIFY,
    "MINIO_COMPRESSION_",
    "MINIO_ROOT_USER_FILE",
    "MINIO_ROOT_PASSWORD_FILE",
];

/// The command line of `larder server`.
pub(super) fn command() -> Command {
    let dir = Arg::new(DIR).value_name("DIR").required(true).num_args(1..).help("The data directory");
    let address = Arg::new(ADDRESS).long(ADDRESS).value_name("[HOST]:PORT").help(format!(
        "Where the S3 interface listens, as --s3; :{MINIO_PORT} when not given, and without a host everywhere"
    ));
    let console = Arg::new(CONSOLE_ADDRESS)
        .long(CONSOLE_ADDRESS)
        .value_name("[HOST]:PORT")
        .help("Where the web console listens, as --console; off when not given");
    let settings = SETTINGS.iter().filter(|setting| setting.name != table::DATA_DIR.name);
    Command::new(SERVER)
        .about("Serve as `minio server DIR` does: S3 at --address; the Riak interface is off unless --http or --pb is given")
        .after_help("Each flag of larder may be given here, too.")
        .args([dir, address, console])
        .args(settings.map(|setting| flag(setting)))
}

/// Takes MinIO's variables, after the own ones.
///
/// # Errors
/// A variable is not UTF-8, or names another value than the own variable of its setting.
pub(super) fn set_aliases(raw: &mut RawSettings, variables: &[(OsString, OsString)]) -> Result<(), SettingError> {
    for alias in ALIASES {
        let Some((_, text)) = variables.iter().find(|(name, _)| name == alias.variable) else { continue };
        let not_utf8 = || SettingError::new(format!("{} is not UTF-8", alias.variable));
        let text = text.to_str().ok_or_else(not_utf8)?;
        if text.is_empty() {
            continue;
        }
        set_alias(raw, alias.variable, alias.setting, text)?;
    }
    if let Some((targets, tokens)) = events::minio_webhooks(variables).map_err(SettingError::new)? {
        set_alias(raw, "MINIO_NOTIFY_WEBHOOK_ENDPOINT", &table::S3_EVENT_TARGETS, &targets)?;
        set_alias(raw, "MINIO_NOTIFY_WEBHOOK_AUTH_TOKEN", &table::S3_EVENT_TOKENS, &tokens)?;
    }
    Ok(())
}

fn set_alias(
    raw: &mut RawSettings,
    name: &'static str,
    setting: &'static Setting,
    text: &str,
) -> Result<(), SettingError> {
    match raw.variable(setting) {
        // The values may be secrets: the message has the names alone.
        Some(value) if value != text => {
            Err(SettingError::new(format!("{name} and {} differ: give one of them", setting.variable())))
        }
        Some(_) => Ok(()),
        None => {
            raw.set(setting, text.to_owned(), SettingSource::Alias(name));
            Ok(())
        }
    }
}

/// Takes the words of `larder server`, after all other sources.
///
/// # Errors
/// A word asks for something that is not offered, or contradicts a setting.
pub(super) fn set_server(
    raw: &mut RawSettings,
    words: &ArgMatches,
    variables: &[(OsString, OsString)],
) -> Result<(), SettingError> {
    check_variables(variables)?;
    let dirs: Vec<&String> = words.get_many(DIR).into_iter().flatten().collect();
    match dirs.as_slice() {
        [dir] if !dir.contains("...") && !dir.contains("://") => {
            if raw.is_flag(&table::DATA_DIR) {
                return Err(SettingError::usage("DIR and --data-dir name the data directory: give one of them".into()));
            }
            raw.set(&table::DATA_DIR, (*dir).clone(), SettingSource::Flag);
        }
        _ => {
            let message = "sets of directories and of servers are not offered: name one DIR. For many machines see --engine cassandra";
            return Err(SettingError::usage(message.to_owned()));
        }
    }
    set_address(raw, words, ADDRESS, &table::S3)?;
    set_address(raw, words, CONSOLE_ADDRESS, &table::CONSOLE)?;
    if !raw.is_flag(&table::S3) && !words.contains_id(ADDRESS) {
        raw.set(&table::S3, everywhere(&format!(":{MINIO_PORT}")), SettingSource::Default);
    }
    let console = Some(&table::CONSOLE).filter(|_| !words.contains_id(CONSOLE_ADDRESS));
    for other in [&table::HTTP, &table::PB].into_iter().chain(console) {
        if !raw.is_flag(other) {
            raw.set(other, LISTENER_OFF.to_owned(), SettingSource::Default);
        }
    }
    Ok(())
}

fn check_variables(variables: &[(OsString, OsString)]) -> Result<(), SettingError> {
    let is_refused =
        |name: &&str| REFUSED.iter().any(|prefix| name.starts_with(prefix)) && events::webhook_part(name).is_none();
    // The first by name, whatever the order of the environment.
    let refused = variables.iter().filter(|(_, text)| !text.is_empty()).filter_map(|(name, _)| name.to_str());
    match refused.filter(is_refused).min() {
        Some(name) => {
            Err(SettingError::new(format!("{name} asks for a feature of MinIO that is not offered: unset it")))
        }
        None => Ok(()),
    }
}

/// Sets a listener by a flag of MinIO's.
fn set_address(
    raw: &mut RawSettings,
    words: &ArgMatches,
    flag: &'static str,
    setting: &'static Setting,
) -> Result<(), SettingError> {
    let Some(text) = words.get_one::<String>(flag) else { return Ok(()) };
    if raw.is_flag(setting) {
        return Err(SettingError::usage(format!(
            "--{flag} and {} are the same setting: give one of them",
            setting.flag()
        )));
    }
    raw.set(
        setting,
        everywhere(text),
        SettingSource::Alias(if flag == ADDRESS { "--address" } else { "--console-address" }),
    );
    Ok(())
}

/// An address with its host: without one, MinIO listens on all addresses.
fn everywhere(text: &str) -> String {
    if text.starts_with(':') { format!("{}{text}", Ipv4Addr::UNSPECIFIED) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::cli::{Invocation, read};
    use super::super::{Listener, ServerSettings};
    use super::*;

    fn run(arguments: &str, variables: &str) -> Result<ServerSettings, String> {
        let arguments = std::iter::once("larder").chain(arguments.split_whitespace()).map(OsString::from);
        let pair = |pair: &str| pair.split_once('=').map(|(name, text)| (name.into(), text.into()));
        let variables: Vec<(OsString, OsString)> = variables.split_whitespace().filter_map(pair).collect();
        match read(arguments, &variables, |_| unreachable!("no file is named")) {
            Ok(Invocation::Serve(settings)) => Ok(*settings),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.message),
        }
    }

    fn everywhere_at(port: u16) -> Listener {
        Listener::At(format!("{}:{port}", Ipv4Addr::UNSPECIFIED))
    }

    #[test]
    fn the_command_of_minio_serves_s3_where_minio_does() {
        let plain = run("server /data", "").unwrap();
        assert_eq!((plain.data_dir.as_path(), &plain.s3), (Path::new("/data"), &everywhere_at(MINIO_PORT)));
        assert_eq!((&plain.http, &plain.pb, plain.is_minio_server), (&Listener::Off, &Listener::Off, true));
        assert_eq!(plain.admin_socket, Path::new("/data/admin.sock"));
        let imaged = run("server /data", "LARDER_HTTP=1.2.3.4:1 LARDER_S3=1.2.3.4:2").unwrap();
        assert_eq!((&imaged.s3, &imaged.http), (&plain.s3, &Listener::Off), "listeners of an image's environment");
        let placed =
            run("server --address 127.0.0.1:9100 /data", "LARDER_DATA_DIR=/elsewhere LARDER_S3=1.2.3.4:1").unwrap();
        assert_eq!(placed.s3, Listener::At("127.0.0.1:9100".into()));
        assert_eq!(run("server /data --address :9100", "").unwrap().s3, everywhere_at(9100));
        let both = run("--durability buffered server /data --http 127.0.0.1:1 --s3-region eu", "").unwrap();
        assert_eq!((both.http, both.s3_region.as_str()), (Listener::At("127.0.0.1:1".into()), "eu"));
        assert!(!run("", "").unwrap().is_minio_server);
    }

    #[test]
    fn an_option_of_minio_that_is_not_offered_is_refused_by_name() {
        for (arguments, variables, named) in [
            ("server", "", "<DIR>"),
            ("server /a /b", "", "name one DIR"),
            ("server http://host{1...4}/data", "", "name one DIR"),
            ("server /a --certs-dir /c", "", "--certs-dir"),
            ("server /a --data-dir /b", "", "--data-dir"),
            ("--data-dir /b server /a", "", "--data-dir"),
            ("server /a --address :1 --s3 127.0.0.1:2", "", "--address and --s3"),
            ("server /a --address 9000", "", "--address is \"9000\""),
            ("server /a", "MINIO_KMS_SECRET_KEY=k", "MINIO_KMS_SECRET_KEY"),
            ("server /a", "MINIO_ROOT_PASSWORD_FILE=/f", "MINIO_ROOT_PASSWORD_FILE"),
        ] {
            let message = run(arguments, variables).unwrap_err();
            assert!(message.contains(named) && !message.contains('\n'), "{arguments} {variables}: {message}");
        }
        let console = run("server /a --console-address :9001", "").unwrap().console;
        assert!(matches!(&console, Listener::At(at) if at.ends_with(":9001")), "{console:?}");
        assert_eq!(run("server /a", "").unwrap().console, Listener::Off);
        assert!(run("", "MINIO_KMS_SECRET_KEY=k").is_ok(), "it may be meant for another program");
    }

    #[test]
    fn variables_of_minio_set_our_settings_and_the_own_name_wins() {
        let variables = "MINIO_ROOT_USER=minioadmin MINIO_ROOT_PASSWORD=minio-secret MINIO_DEFAULT_BUCKETS=teas,leaflets:public \
                         MINIO_REGION=auto MINIO_SERVER_URL=https://s3.example.com MINIO_DOMAIN=s3.example.com";
        let all = run("", variables).unwrap();
        assert_eq!(all.s3_admin, Some(("minioadmin".into(), "minio-secret".into())));
        assert_eq!((all.s3_buckets.len(), all.s3_region.as_str()), (2, "auto"));
        assert_eq!(all.s3_public_url.unwrap().to_string(), "https://s3.example.com");
        assert_eq!(all.s3_hosts, ["s3.example.com"]);
        assert_eq!(run("--s3-region eu", variables).unwrap().s3_region, "eu", "a flag wins over the environment");
        assert_eq!(run("", "LARDER_S3_REGION=eu MINIO_REGION=eu").unwrap().s3_region, "eu");
        assert_eq!(run("", "LARDER_S3_REGION=eu MINIO_REGION=").unwrap().s3_region, "eu");
        assert_eq!(
            run("", "LARDER_S3_REGION=eu MINIO_REGION=us").unwrap_err(),
            "MINIO_REGION and LARDER_S3_REGION differ: give one of them"
        );
        let secret = "MINIO_ROOT_PASSWORD=hidden1 LARDER_S3_ADMIN_SECRET=hidden2";
        assert!(!run("", secret).unwrap_err().contains("hidden"), "secrets are not shown");
        let bad = run("", "MINIO_DEFAULT_BUCKETS=a:rw").unwrap_err();
        assert!(bad.starts_with("MINIO_DEFAULT_BUCKETS is \"a:rw\""), "{bad}");
    }
}
