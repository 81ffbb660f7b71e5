//! The table of settings as the manual shows it.

use std::fmt::Write as _;

use super::table::SETTINGS;

/// The table in Markdown.
#[must_use]
pub fn settings() -> String {
    let mut out = String::from("| Flag | Environment | Default | Meaning |\n|---|---|---|---|\n");
    for setting in SETTINGS {
        let value = setting.kind.placeholder().replace('|', "\\|");
        let (flag, variable) = (setting.flag(), setting.variable());
        let default = setting.shown_default().map_or_else(|| "–".to_owned(), |default| format!("`{default}`"));
        let _ = writeln!(out, "| `{flag}` *{value}* | `{variable}` | {default} | {} |", setting.help);
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_manual_shows_the_settings_as_they_are() {
        let manual = include_str!("../../../../docs/manual.md");
        assert!(
            manual.contains(&super::settings()),
            "put the output of `larder settings --markdown` into docs/manual.md, section Settings"
        );
    }
}
