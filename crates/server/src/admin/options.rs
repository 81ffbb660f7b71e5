//! The options of a command among its arguments: `--name VALUE`, `--name=VALUE`, or `--name` alone.

use std::collections::BTreeMap;

use larder_kv_admin::frame::{AdminAnswer, AdminRequest};

/// An option that a command takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandOption {
    /// Its name, with the hyphens.
    pub(super) name: &'static str,
    /// How often it may be given, and whether with a value.
    pub(super) kind: OptionKind,
}

/// The form of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionKind {
    /// Without a value.
    Flag,
    /// With a value, once.
    Value,
    /// With a value, any number of times.
    Values,
}

/// The arguments of a command, sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedArgs<'a> {
    /// The arguments that are no options.
    pub(super) plain: Vec<&'a str>,
    options: BTreeMap<&'static str, Vec<&'a str>>,
}

impl<'a> ParsedArgs<'a> {
    /// Sorts the arguments.
    ///
    /// # Errors
    /// A line about an option that the command does not take, or not so.
    pub(super) fn parse(args: &[&'a str], known: &[CommandOption]) -> Result<Self, String> {
        let mut parsed = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if !arg.starts_with("--") {
                parsed.plain.push(arg);
                continue;
            }
            let (name, value) = arg.split_once('=').map_or((*arg, None), |(name, value)| (name, Some(value)));
            let option = known.iter().find(|option| option.name == name);
            let CommandOption { name, kind } = option.ok_or_else(|| format!("There is no option {name}"))?;
            let value = match (kind, value) {
                (OptionKind::Flag, None) => "",
                (OptionKind::Flag, Some(_)) => return Err(format!("{name} takes no value")),
                (_, Some(value)) => value,
                (_, None) => args.next().ok_or_else(|| format!("{name} needs a value"))?,
            };
            let values = parsed.options.entry(name).or_default();
            if *kind != OptionKind::Values && !values.is_empty() {
                return Err(format!("{name} is there twice"));
            }
            values.push(value);
        }
        Ok(parsed)
    }

    /// Whether the option is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.options.contains_key(name)
    }

    /// The value of an option that may be there once.
    pub(super) fn value(&self, name: &str) -> Option<&'a str> {
        self.options.get(name).and_then(|values| values.first().copied())
    }

    /// All values of an option.
    pub(super) fn values(&self, name: &str) -> Vec<String> {
        self.options.get(name).into_iter().flatten().map(|value| (*value).to_owned()).collect()
    }

    /// The secret in the file that `--secret-file` names, without the end of its line.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub(super) fn secret(&self, request: &AdminRequest) -> Result<Option<String>, AdminAnswer> {
        let Some(file) = self.value("--secret-file") else { return Ok(None) };
        match (request.files.get(file), request.unreadable.get(file)) {
            (Some(secret), _) => Ok(Some(secret.trim_end_matches(['\n', '\r']).to_owned())),
            (None, Some(reason)) => Err(AdminAnswer::failed(reason)),
            (None, None) => Err(AdminAnswer::failed("--secret-file needs the path of a file")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[CommandOption] = &[
        CommandOption { name: "--all", kind: OptionKind::Flag },
        CommandOption { name: "--one", kind: OptionKind::Value },
        CommandOption { name: "--many", kind: OptionKind::Values },
    ];

    fn parse<'a>(line: &'a str) -> Result<ParsedArgs<'a>, String> {
        ParsedArgs::parse(&line.split(' ').collect::<Vec<_>>(), KNOWN)
    }

    #[test]
    fn options_stand_anywhere_and_are_checked() {
        let parsed = parse("--many=a=b x --all --one --all y --many c").unwrap();
        assert_eq!((parsed.plain.as_slice(), parsed.has("--all")), (&["x", "y"][..], true));
        assert_eq!((parsed.value("--one"), parsed.values("--many")), (Some("--all"), vec!["a=b".into(), "c".into()]));
        assert_eq!((parsed.value("--none"), parsed.has("--none")), (None, false));
        for (line, problem) in [
            ("--other", "There is no option --other"),
            ("--all=1", "--all takes no value"),
            ("x --one", "--one needs a value"),
            ("--one a --one=b", "--one is there twice"),
        ] {
            assert_eq!(parse(line), Err(problem.to_owned()), "{line}");
        }
    }
}
