//! The flag of a setting, for each command that has it.

use clap::Arg;

use super::table::{Setting, SettingKind};

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
