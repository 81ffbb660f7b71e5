//! The command line, made from the table.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::raw::{RawSettings, SettingSource, flag};
use super::table::{CONFIG_VARIABLE, SETTINGS};
use super::{ServerSettings, SettingError, manual, minio};
use crate::healthcheck::{HealthTarget, HealthUrl};
use crate::inspect::InspectCommand;

const CONFIG: &str = "config";
const CHECK: &str = "check";
const REPAIR: &str = "repair";
const HEALTHCHECK: &str = "healthcheck";
const URL: &str = "url";
const DATA_DIR: &str = "data-dir";
const INTO: &str = "into";
const ENCRYPTION_KEYS: &str = "encryption-keys";
const LEAVE_OUT_OLDER: &str = "leave-out-older";

/// The action that the command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invocation {
    /// Serve.
    Serve(Box<ServerSettings>),
    /// Inspect a data directory and end.
    Inspect(InspectCommand),
    /// Ask a running server whether it is ready, and end.
    CheckHealth(HealthTarget),
    /// Print this text and end.
    Print(String),
}

/// Parses the arguments (with the program's name), the environment and the settings file.
///
/// # Errors
/// The first invalid setting, as one line.
pub fn read(
    arguments: impl IntoIterator<Item = OsString>,
    variables: &[(OsString, OsString)],
    read_file: impl FnOnce(&Path) -> std::io::Result<String>,
) -> Result<Invocation, SettingError> {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return Ok(Invocation::Print(error.render().to_string()));
        }
        Err(error) => return Err(one_line(&error)),
    };
    match matches.subcommand() {
        Some((CHECK, words)) => return Ok(Invocation::Inspect(inspection(words, None))),
        Some((REPAIR, words)) => {
            let into = words.get_one::<PathBuf>(INTO).cloned();
            return Ok(Invocation::Inspect(inspection(words, into)));
        }
        // It takes the address from the settings of the server, unless it is given one.
        Some((HEALTHCHECK, words)) => {
            if let Some(url) = words.get_one::<String>(URL) {
                let target = HealthUrl::parse(url).map(HealthTarget::Url);
                return target.map(Invocation::CheckHealth).map_err(SettingError::new);
            }
        }
        Some((minio::SERVER, _)) | None => {}
        Some(_) => return Ok(Invocation::Print(manual::settings())),
    }
    let mut raw = RawSettings::default();
    let file = matches.get_one::<String>(CONFIG).map(PathBuf::from).or_else(|| config_variable(variables));
    if let Some(file) = file {
        let text = read_file(&file)
            .map_err(|error| SettingError::new(format!("cannot read the settings file {}: {error}", file.display())))?;
        raw.set_file(&file, &text)?;
    }
    raw.set_variables(variables.iter().cloned())?;
    minio::set_aliases(&mut raw, variables)?;
    set_flags(&mut raw, &matches);
    let server = matches.subcommand_matches(minio::SERVER);
    if let Some(words) = server {
        set_flags(&mut raw, words);
        minio::set_server(&mut raw, words, variables)?;
    }
    let settings = ServerSettings { is_minio_server: server.is_some(), ..ServerSettings::resolve(&raw)? };
    if matches.subcommand_matches(HEALTHCHECK).is_some() {
        return HealthTarget::from_settings(&settings).map(Invocation::CheckHealth).map_err(SettingError::new);
    }
    Ok(Invocation::Serve(Box::new(settings)))
}

fn set_flags(raw: &mut RawSettings, words: &ArgMatches) {
    for &setting in SETTINGS {
        // The data directory is no flag of every command.
        if let Ok(Some(text)) = words.try_get_one::<String>(setting.name) {
            raw.set(setting, text.clone(), SettingSource::Flag);
        }
    }
}

fn inspection(words: &ArgMatches, into: Option<PathBuf>) -> InspectCommand {
    let dir = words.get_one::<PathBuf>(DATA_DIR).cloned().unwrap_or_default();
    let leave_out_older = into.is_some() && words.get_flag(LEAVE_OUT_OLDER);
    let encryption_keys = words.get_one::<PathBuf>(ENCRYPTION_KEYS).cloned();
    InspectCommand { dir, into, leave_out_older, encryption_keys }
}

fn config_variable(variables: &[(OsString, OsString)]) -> Option<PathBuf> {
    variables.iter().find(|(name, _)| name == CONFIG_VARIABLE).map(|(_, file)| file.into())
}

/// The command line for clap.
#[must_use]
pub fn command() -> Command {
    let config = Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE")
        .help(format!("A TOML file of settings; its keys are the flags without dashes. [{CONFIG_VARIABLE}]"));
    let settings = Command::new("settings").about("Print the table of settings").arg(
        Arg::new("markdown")
            .long("markdown")
            .action(ArgAction::SetTrue)
            .help("In Markdown, as in the manual; the only form"),
    );
    let directory = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("DIR").required(true).value_parser(clap::value_parser!(PathBuf)).help(help)
    };
    let keys = Arg::new(ENCRYPTION_KEYS)
        .long(ENCRYPTION_KEYS)
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help("The file of master keys, if it is not in the data directory: encrypted rows name their bodies with it");
    let older = "Leave out a key of which a newer version may be lost, instead of copying the version that was found";
    let check = Command::new(CHECK)
        .about("Read every byte of a data directory that no server has open, and list what is damaged; changes nothing")
        .after_help("Ends with 0 when all is whole, with 1 when something is damaged, with 2 when it could not look.")
        .arg(directory(DATA_DIR, "The data directory"))
        .arg(keys.clone());
    let repair = Command::new(REPAIR)
        .about("Copy all that can be read of a data directory into a new one, and list what could not be copied")
        .after_help(
            "Ends with 0 when all was copied, with 1 when something is damaged, with 2 when it could not be done.",
        )
        .arg(directory(DATA_DIR, "The data directory; nothing in it is changed"))
        .arg(directory(INTO, "The new one: not there yet, or empty"))
        .arg(keys)
        .arg(Arg::new(LEAVE_OUT_OLDER).long(LEAVE_OUT_OLDER).action(ArgAction::SetTrue).help(older));
    let healthcheck = Command::new(HEALTHCHECK)
        .about("Ask a running server whether it is ready; for containers without an HTTP client")
        .after_help(
            "Ends with 0 when it is ready, with 1 otherwise. Settings of the server go before the word healthcheck.",
        )
        .arg(
            Arg::new(URL)
                .long(URL)
                .value_name("URL")
                .help("The address to ask; /health/ready at the address of --http, or of --s3, when not given"),
        );
    Command::new("larder")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A drop-in server for Riak KV, Riak CS and S3. Without arguments it serves, with its data in ./data.")
        .after_help("A flag wins over its environment variable, that over the settings file, that over the default.")
        .disable_help_subcommand(true)
        .subcommands([minio::command(), check, repair, healthcheck, settings])
        .arg(config)
        .args(SETTINGS.iter().map(|setting| flag(setting)))
}

/// The first paragraph of clap's error, with its suggestion.
fn one_line(error: &clap::Error) -> SettingError {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect::<Vec<_>>();
    let what = lines.join(" ").trim_start_matches("error: ").to_owned();
    let hint = match error.get(ContextKind::SuggestedArg) {
        Some(near) => format!(" (did you mean {near}?)"),
        None => "; `larder --help` lists the settings".to_owned(),
    };
    SettingError::usage(what + &hint)
}
