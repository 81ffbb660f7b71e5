//! The table of properties as the manual shows it.

use std::fmt::Write as _;

use super::table::{Change, Defaults, PROPS};

/// The table in Markdown, by name.
fn properties() -> String {
    let mut out =
        String::from("| Property | In `default` | In a new type | May change | Meaning |\n|---|---|---|---|---|\n");
    let mut props: Vec<_> = PROPS.iter().collect();
    props.sort_by_key(|prop| prop.name);
    for prop in props {
        let shown = |defaults| prop.preset(defaults).map_or("–".into(), |preset| preset.value().console());
        let (default, custom) = (shown(Defaults::DefaultType), shown(Defaults::CustomType));
        let change = match prop.change {
            Change::Anytime => "any time",
            Change::OnlyDown => "only down",
            Change::OnlyAtCreation => "only at creation",
            Change::ReadOnly => "never",
        };
        let _ = writeln!(out, "| `{}` | {default} | {custom} | {change} | {} |", prop.name, prop.help);
    }
    out
}

#[test]
fn the_manual_shows_the_properties_as_they_are() {
    let manual = include_str!("../../../../docs/manual.md");
    let table = properties();
    assert!(manual.contains(&table), "put this into docs/manual.md, section Properties:\n{table}");
}
