//! The command line, made from the table.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, ArgAction, Command};

use super::raw::{Raw, Source};
use super::table::{CONFIG_VARIABLE, Kind, SETTINGS, Setting};
use super::{SettingError, Settings, manual};

const CONFIG: &str = "config";

/// What the command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invocation {
    /// Serve.
    Serve(Box<Settings>),
    /// Print this and end.
    Print(String),
}

/// Understands arguments (with the program's name in front), environment and the settings file.
///
/// # Errors
/// The first thing that does not hold, as one line.
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
    if let Some(("settings", _)) = matches.subcommand() {
        return Ok(Invocation::Print(manual::settings()));
    }
    let mut raw = Raw::default();
    let file = matches.get_one::<String>(CONFIG).map(PathBuf::from).or_else(|| config_variable(variables));
    if let Some(file) = file {
        let text = read_file(&file)
            .map_err(|error| SettingError::new(format!("cannot read the settings file {}: {error}", file.display())))?;
        raw.give_file(&file, &text)?;
    }
    raw.give_variables(variables.iter().cloned())?;
    for &setting in SETTINGS {
        if let Some(text) = matches.get_one::<String>(setting.name) {
            raw.give(setting, text.clone(), Source::Flag);
        }
    }
    Ok(Invocation::Serve(Box::new(Settings::resolve(&raw)?)))
}

fn config_variable(variables: &[(OsString, OsString)]) -> Option<PathBuf> {
    variables.iter().find(|(name, _)| name == CONFIG_VARIABLE).map(|(_, file)| file.into())
}

/// The command as clap understands it.
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
    Command::new("larder")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A drop-in server for Riak KV. Without arguments it serves, with its data in ./data.")
        .after_help("A flag wins over its environment variable, that over the settings file, that over the default.")
        .disable_help_subcommand(true)
        .subcommand(settings)
        .arg(config)
        .args(SETTINGS.iter().map(|setting| argument(setting)))
}

fn argument(setting: &'static Setting) -> Arg {
    let help = format!("{} [{}; default {}]", setting.help, setting.variable(), setting.default);
    let argument = Arg::new(setting.name).long(setting.name).value_name(setting.kind.placeholder()).help(help);
    match setting.kind {
        Kind::Switch => argument.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => argument.num_args(1),
    }
}

/// The first line of clap's error with its suggestion.
fn one_line(error: &clap::Error) -> SettingError {
    let text = error.render().to_string();
    let what = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let hint = match error.get(ContextKind::SuggestedArg) {
        Some(near) => format!(" (did you mean {near}?)"),
        None => "; `larder --help` lists the settings".to_owned(),
    };
    SettingError::usage(what + &hint)
}
