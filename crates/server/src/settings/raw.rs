//! The settings as given, with their sources, before they are parsed. Flags win over the environment, and that over the file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Arg;

use super::SettingError;
use super::parse::ParseResult;
use super::table::{self, CONFIG_VARIABLE, SETTINGS, Setting, SettingKind, VARIABLE_PREFIX};

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingSource {
    /// The command line.
    Flag,
    /// The environment.
    Variable,
    /// A name that another server has for the setting: a variable, or a flag of its command.
    Alias(&'static str),
    /// This settings file.
    File(PathBuf),
    /// No source: the default.
    Default,
}

impl SettingSource {
    /// The name of `setting` in this source.
    fn name(&self, setting: &Setting) -> String {
        match self {
            Self::Flag => setting.flag(),
            Self::Variable => setting.variable(),
            Self::Alias(name) => (*name).to_owned(),
            Self::File(file) => format!("{} in {}", setting.name, file.display()),
            Self::Default => format!("the default of {}", setting.name),
        }
    }
}

/// The texts of all given settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawSettings {
    given: BTreeMap<&'static str, (String, SettingSource)>,
}

impl RawSettings {
    /// Sets a value and replaces an earlier one: call with the weakest source first.
    pub fn set(&mut self, setting: &'static Setting, text: String, source: SettingSource) {
        self.given.insert(setting.name, (text, source));
    }

    /// Whether a source gives the setting.
    #[must_use]
    pub fn is_given(&self, setting: &Setting) -> bool {
        self.given.contains_key(setting.name)
    }

    /// Whether a flag of the command line gives the setting.
    pub(super) fn is_flag(&self, setting: &Setting) -> bool {
        self.given.get(setting.name).is_some_and(|(_, source)| *source == SettingSource::Flag)
    }

    /// The value of the setting's own variable, if it gives the setting.
    pub(super) fn variable(&self, setting: &Setting) -> Option<&str> {
        let given = self.given.get(setting.name).filter(|(_, source)| *source == SettingSource::Variable);
        given.map(|(text, _)| text.as_str())
    }

    /// The setting's name in its source, if one gives it.
    pub(super) fn given_as(&self, setting: &Setting) -> Option<String> {
        self.given.get(setting.name).map(|(_, source)| source.name(setting))
    }

    /// The value, or the error that names the setting, its source, its text and what was expected.
    pub(super) fn value<T>(
        &self,
        setting: &Setting,
        read: impl FnOnce(&str) -> ParseResult<T>,
    ) -> Result<T, SettingError> {
        let (text, source) = match self.given.get(setting.name) {
            Some((text, source)) => (text.as_str(), source),
            None => (setting.default, &SettingSource::Default),
        };
        read(text).map_err(|expected| {
            let message = format!("{} is {text:?}: expected {expected}", source.name(setting));
            if *source == SettingSource::Flag { SettingError::usage(message) } else { SettingError::new(message) }
        })
    }

    /// Takes the variables with the prefix `LARDER_`.
    ///
    /// # Errors
    /// A variable is no setting, or is not UTF-8.
    pub fn set_variables(
        &mut self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<(), SettingError> {
        for (name, text) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with(VARIABLE_PREFIX)) else { continue };
            if name == CONFIG_VARIABLE || is_of_kubernetes(name) {
                continue;
            }
            let Some(setting) = SETTINGS.iter().find(|setting| setting.variable() == name) else {
                return Err(unknown(name, name, SETTINGS.iter().map(|setting| setting.variable())));
            };
            let text = text.into_string().map_err(|_| SettingError::new(format!("{name} is not UTF-8")))?;
            self.set(setting, text, SettingSource::Variable);
        }
        Ok(())
    }

    /// Takes the keys of a settings file.
    ///
    /// # Errors
    /// The text is not TOML, a key is no setting, or a value is neither text nor number nor boolean.
    pub fn set_file(&mut self, file: &Path, text: &str) -> Result<(), SettingError> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            let reason = error.message().lines().next().unwrap_or_default();
            SettingError::new(format!("{}, line {line}: {reason}", file.display()))
        })?;
        for (key, value) in table {
            let place = format!("{key} in {}", file.display());
            let Some(setting) = table::named(&key) else {
                return Err(unknown(&place, &key, SETTINGS.iter().map(|setting| setting.name.to_owned())));
            };
            let text = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Boolean(flag) => flag.to_string(),
                _ => return Err(SettingError::new(format!("{place}: expected text, a whole number, true or false"))),
            };
            self.set(setting, text, SettingSource::File(file.to_owned()));
        }
        Ok(())
    }
}

fn unknown(place: &str, name: &str, names: impl Iterator<Item = String>) -> SettingError {
    let near = names.map(|known| (distance(name, &known), known)).min();
    let hint = match near {
        Some((apart, known)) if apart <= 2 => format!(" (did you mean {known}?)"),
        _ => "; `larder --help` lists them".to_owned(),
    };
    SettingError::new(format!("{place} is not a setting{hint}"))
}

/// The edit distance: letters changed, added or removed.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, &y) in b.iter().enumerate() {
            let changed = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Kubernetes sets such variables in every container next to a service called "larder".
fn is_of_kubernetes(variable: &str) -> bool {
    ["LARDER_SERVICE_HOST", "LARDER_SERVICE_PORT", "LARDER_PORT"].iter().any(|prefix| variable.starts_with(prefix))
}

/// The flag of a setting.
pub(super) fn flag(setting: &'static Setting) -> Arg {
    let default = setting.shown_default().map_or_else(String::new, |default| format!("; default {default}"));
    let help = format!("{} [{}{default}]", setting.help, setting.variable());
    let argument = Arg::new(setting.name).long(setting.name).value_name(setting.kind.placeholder()).help(help);
    match setting.kind {
        SettingKind::Switch => argument.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => argument.num_args(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edit_distance_counts_changed_letters() {
        for (a, b, apart) in [("http", "http", 0), ("htpp", "http", 1), ("", "pb", 2), ("abc", "cab", 2)] {
            assert_eq!(distance(a, b), apart, "{a} {b}");
        }
    }
}
