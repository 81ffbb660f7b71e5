//! The table of properties in the manual.

use std::fmt::Write as _;

use super::table::{Defaults, PROPS, PropMutability};

/// The table in Markdown, sorted by name.
fn properties() -> String {
    let mut out =
        String::from("| Property | In `default` | In a new type | May change | Meaning |\n|---|---|---|---|---|\n");
    let mut props: Vec<_> = PROPS.iter().collect();
    props.sort_by_key(|prop| prop.name);
    for prop in props {
        let default_in = |defaults| prop.preset(defaults).map_or("–".into(), |preset| preset().console());
        let (default, custom) = (default_in(Defaults::DefaultType), default_in(Defaults::CustomType));
        let change = match prop.mutability {
            PropMutability::Anytime => "any time",
            PropMutability::OnlyDown => "only down",
            PropMutability::OnlyAtCreation => "only at creation",
            PropMutability::ReadOnly => "never",
        };
        let _ = writeln!(out, "| `{}` | {default} | {custom} | {change} | {} |", prop.name, prop.help);
    }
    out
}

#[test]
fn the_manual_has_the_current_table_of_properties() {
    let manual = include_str!("../../../../../docs/manual.md");
    let table = properties();
    assert!(manual.contains(&table), "put this into docs/manual.md, section Properties:\n{table}");
}
