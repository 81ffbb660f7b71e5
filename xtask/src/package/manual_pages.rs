//! The man pages of both programs, made from the tables that the programs print.

use std::fmt::Write as _;
use std::path::Path;

use crate::shell::{Result, Shell};

/// One setting, as `larder settings --markdown` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SettingRow {
    /// The flag, such as `--data-dir`.
    pub(super) flag: String,
    /// The form of its value.
    pub(super) value: String,
    pub(super) variable: String,
    pub(super) default: String,
    pub(super) meaning: String,
}

/// One command, as `kv-admin help` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AdminRow {
    pub(super) usage: String,
    pub(super) meaning: String,
}

/// The tables of both programs.
#[derive(Debug, Clone)]
pub(super) struct ProgramTables {
    pub(super) settings: Vec<SettingRow>,
    pub(super) commands: Vec<AdminRow>,
    /// The text after the commands of `kv-admin help`.
    pub(super) admin_tail: String,
}

impl ProgramTables {
    /// Asks the programs in this folder.
    ///
    /// # Errors
    /// A program does not run, or prints no table.
    pub(super) fn read(shell: &Shell, binaries: &Path) -> Result<Self> {
        let run = |name: &str, words: &[&str]| shell.output(&binaries.join(name).to_string_lossy(), words);
        let settings = settings_of(&run("larder", &["settings", "--markdown"])?);
        let (commands, admin_tail) = commands_of(&run("kv-admin", &["help"])?);
        if settings.is_empty() || commands.is_empty() {
            return Err(format!("the programs in {} print no tables", binaries.display()));
        }
        Ok(Self { settings, commands, admin_tail })
    }
}

fn settings_of(markdown: &str) -> Vec<SettingRow> {
    let row = |line: &str| {
        // A bar inside a cell is escaped.
        let line = line.replace("\\|", "\u{1}");
        let cells: Vec<String> = line.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect();
        let [_, flag, variable, default, meaning, _] = cells.as_slice() else { return None };
        let (flag, value) = flag.split_once("` *")?;
        let bare = |text: &str| text.trim_matches('`').to_owned();
        Some(SettingRow {
            flag: bare(flag),
            value: value.trim_end_matches('*').to_owned(),
            variable: bare(variable),
            default: bare(default),
            meaning: meaning.clone(),
        })
    };
    markdown.lines().filter_map(row).collect()
}

fn commands_of(help: &str) -> (Vec<AdminRow>, String) {
    let (_, rest) = help.split_once("Commands:\n").unwrap_or_default();
    let (listed, tail) = rest.split_once("\n\n").unwrap_or((rest, ""));
    let mut rows: Vec<AdminRow> = Vec::new();
    for line in listed.lines() {
        let line = line.trim_end();
        match (line.strip_prefix("    ").filter(|rest| !rest.starts_with(' ')), rows.last_mut()) {
            (Some(line), _) => {
                let (usage, meaning) = line.split_once("  ").or_else(|| split_short(line)).unwrap_or((line, ""));
                rows.push(AdminRow { usage: usage.trim().to_owned(), meaning: meaning.trim().to_owned() });
            }
            (None, Some(last)) => last.meaning = line.trim().to_owned(),
            (None, None) => {}
        }
    }
    (rows, tail.to_owned())
}

/// A usage that fills its column, with one blank before its meaning.
fn split_short(line: &str) -> Option<(&str, &str)> {
    const COLUMN: usize = 31;
    line.is_char_boundary(COLUMN - 1)
        .then(|| line.split_at_checked(COLUMN - 1))
        .flatten()
        .filter(|(usage, _)| usage.ends_with('>'))
}

/// `larder(8)`.
pub(super) fn larder(tables: &ProgramTables, version: &str) -> String {
    let mut page = head("LARDER", "larder \\- a server for clients of Riak KV, Riak CS and S3", version);
    page.push_str(".SH SYNOPSIS\n.B larder\n.RI [ SETTINGS ]\n.br\n.B larder server\n.I DIR\n.RI [ SETTINGS ]\n.br\n");
    page.push_str(".B larder check\n\\-\\-data\\-dir\n.I DIR\n.br\n.B larder repair\n\\-\\-data\\-dir\n.I DIR\n\\-\\-into\n.I DIR\n.br\n.B larder healthcheck\n.br\n.B larder settings \\-\\-markdown\n");
    page.push_str(".SH DESCRIPTION\nWithout a command it serves, with its data in ./data. A flag wins over its environment variable,\nthat over the settings file, that over the default.\n.SH SETTINGS\n");
    for row in &tables.settings {
        let _ = writeln!(page, ".TP\n.BI {} \" {}\"", escaped(&row.flag), escaped(&row.value));
        let _ = writeln!(
            page,
            "{}\nVariable {}; default {}.",
            escaped(&row.meaning),
            escaped(&row.variable),
            escaped(&row.default)
        );
    }
    page.push_str(".SH FILES\n.TP\n.I /etc/larder/larder.toml\nSettings of the service: keys are the flags without dashes.\n.TP\n.I /var/lib/larder\nThe data of the service.\n.TP\n.I /run/larder/admin.sock\nThe socket of the service for kv\\-admin.\n.SH SEE ALSO\n.BR kv\\-admin (8)\n");
    page
}

/// `kv-admin(8)`.
pub(super) fn kv_admin(tables: &ProgramTables, version: &str) -> String {
    let mut page = head("KV\\-ADMIN", "kv\\-admin \\- administers a running larder", version);
    page.push_str(".SH SYNOPSIS\n.B kv\\-admin\n[\\-\\-socket PATH]\n.I command\n[\\-\\-json]\n.SH COMMANDS\n");
    for row in &tables.commands {
        let _ = writeln!(page, ".TP\n.B {}\n{}", escaped(&row.usage), escaped(&row.meaning));
    }
    let _ = writeln!(page, ".SH NOTES\n.nf\n{}\n.fi\n.SH SEE ALSO\n.BR larder (8)", escaped(&tables.admin_tail));
    page
}

fn head(title: &str, name: &str, version: &str) -> String {
    format!(".TH {title} 8 \"\" \"Larder {version}\"\n.SH NAME\n{name}\n")
}

/// Text for troff: no line begins a request, dashes are those that a reader can copy.
fn escaped(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-").replace('"', "\\(dq");
    let line = |line: &str| if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() };
    escaped.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn tables() -> ProgramTables {
        let settings = "| Flag | Environment | Default | Meaning |\n|---|---|---|---|\n\
                        | `--http` *HOST:PORT\\|off* | `LARDER_HTTP` | `127.0.0.1:8098` | Where it listens. |\n";
        let help = "Usage: kv-admin\n\nCommands:\n    s3 user create <email> <name>\n                                   \
                    Create an S3 user\n    s3 user disable <key or email> Refuse an S3 user\n    ping                           Whether the server answers\n\nOptions:\n";
        let (commands, admin_tail) = commands_of(help);
        ProgramTables { settings: settings_of(settings), commands, admin_tail }
    }

    #[test]
    fn the_tables_of_the_programs_are_read_whole() {
        let tables = tables();
        let setting = &tables.settings[0];
        assert_eq!(
            (tables.settings.len(), setting.flag.as_str(), setting.value.as_str()),
            (1, "--http", "HOST:PORT|off")
        );
        assert_eq!((setting.variable.as_str(), setting.default.as_str()), ("LARDER_HTTP", "127.0.0.1:8098"));
        let rows: Vec<_> = tables.commands.iter().map(|row| (row.usage.as_str(), row.meaning.as_str())).collect();
        assert_eq!(
            rows,
            [
                ("s3 user create <email> <name>", "Create an S3 user"),
                ("s3 user disable <key or email>", "Refuse an S3 user"),
                ("ping", "Whether the server answers"),
            ]
        );
        assert_eq!(tables.admin_tail, "Options:\n");
    }

    #[test]
    fn a_page_has_every_row_and_no_line_of_it_is_a_request_by_accident() {
        let tables = tables();
        let page = larder(&tables, "1.0");
        assert!(page.contains(".BI \\-\\-http \" HOST:PORT|off\"\nWhere it listens.\n"), "{page}");
        assert!(kv_admin(&tables, "1.0").contains(".TP\n.B ping\nWhether the server answers\n"));
        assert_eq!(escaped(".a\n'b\\c"), "\\&.a\n\\&'b\\ec");
    }
}
