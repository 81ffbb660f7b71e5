//! Licences, sources and bans of the dependencies: the rules of `deny.toml`, which `cargo deny` reads too.
//!
//! The facts are those of `cargo metadata`, so that every machine can check them. Advisories are not among them.

use std::fs;

use serde_json::Value;
use spdx::{Expression, ParseMode};
use toml::Table;

use crate::shell::{Result, Shell};

/// The file with the rules.
const RULES: &str = "deny.toml";

/// Checks every package that a build of the workspace can contain.
///
/// # Errors
/// The packages that break a rule, a line each.
pub(crate) fn deny(shell: &Shell) -> Result<()> {
    let rules = fs::read_to_string(shell.path(RULES)).map_err(|error| format!("{RULES}: {error}"))?;
    let rules = DependencyRules::parse(&rules)?;
    let printed = shell.output("cargo", &["metadata", "--format-version", "1", "--all-features", "--locked"])?;
    let metadata: Value = serde_json::from_str(&printed).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let problems: Vec<String> = packages.iter().flat_map(|package| rules.problems(package)).collect();
    if problems.is_empty() {
        println!("deny: {} packages, no problems", packages.len());
        return Ok(());
    }
    Err(format!("{}\ndeny: {} problems", problems.join("\n"), problems.len()))
}

/// The rules of `deny.toml` that can be checked without a database.
#[derive(Debug)]
struct DependencyRules {
    /// Licences, some with an exception, as SPDX names them.
    licences: Vec<Expression>,
    /// Names of packages.
    banned: Vec<String>,
}

impl DependencyRules {
    fn parse(text: &str) -> Result<Self> {
        let table: Table = text.parse().map_err(|error| format!("{RULES}: {error}"))?;
        let list = |section: &str, key: &str| {
            let found = table.get(section).and_then(|section| section.get(key)?.as_array());
            found.ok_or_else(|| format!("{RULES}: no list `{key}` in [{section}]"))
        };
        let licence = |name: &toml::Value| {
            let name = name.as_str().unwrap_or_default();
            Expression::parse(name).map_err(|error| format!("{RULES}: {error}"))
        };
        let licences = list("licenses", "allow")?.iter().map(licence).collect::<Result<_>>()?;
        let banned = list("bans", "deny")?.iter().filter_map(|ban| Some(ban.get("crate")?.as_str()?.to_owned()));
        Ok(Self { licences, banned: banned.collect() })
    }

    fn problems(&self, package: &Value) -> Vec<String> {
        let name = package["name"].as_str().unwrap_or_default();
        let is_ours = package["source"].is_null();
        let mut problems = Vec::new();
        if self.banned.iter().any(|banned| banned == name) {
            problems.push("is banned".to_owned());
        }
        if package["source"].as_str().is_some_and(|source| !source.starts_with("registry+")) {
            problems.push(format!("comes from {}", package["source"]));
        }
        if is_ours {
            let dependencies = package["dependencies"].as_array().into_iter().flatten();
            let open = dependencies.filter(|one| one["req"] == "*" && one["path"].is_null());
            problems.extend(open.map(|one| format!("names no version of {}", one["name"])));
        } else if !self.allows(package["license"].as_str()) {
            problems.push(format!("has the licence {}", package["license"]));
        }
        problems.into_iter().map(|what| format!("{name}: {what}")).collect()
    }

    fn allows(&self, licence: Option<&str>) -> bool {
        let allowed = |wanted: &spdx::LicenseReq| {
            self.licences.iter().any(|licence| licence.requirements().any(|allowed| allowed.req == *wanted))
        };
        let parsed = licence.and_then(|licence| Expression::parse_mode(licence, ParseMode::LAX).ok());
        parsed.is_some_and(|licence| licence.evaluate(allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[licenses]\nallow = [\"MIT\", \"Apache-2.0\", \"Apache-2.0 WITH LLVM-exception\"]\n\
                        [bans]\ndeny = [{ crate = \"bad\" }]\n";

    fn problems(name: &str, licence: &str, source: &str) -> Vec<String> {
        let package = serde_json::json!({"name": name, "license": licence, "source": source});
        DependencyRules::parse(TEXT).unwrap().problems(&package)
    }

    #[test]
    fn one_allowed_licence_of_several_is_enough() {
        for licence in
            ["MIT", "MIT OR GPL-3.0", "GPL-2.0/MIT", "(MIT AND Apache-2.0)", "Apache-2.0 WITH LLVM-exception"]
        {
            assert_eq!(problems("a", licence, "registry+x"), [""; 0], "{licence}");
        }
        for licence in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "MIT WITH LLVM-exception", "", "own"] {
            assert_eq!(problems("a", licence, "registry+x"), [format!("a: has the licence \"{licence}\"")]);
        }
    }

    #[test]
    fn banned_packages_and_other_sources_are_named() {
        assert_eq!(problems("bad", "MIT", "registry+x"), ["bad: is banned"]);
        assert_eq!(problems("a", "MIT", "git+x"), ["a: comes from \"git+x\""]);
    }

    #[test]
    fn a_dependency_of_ours_without_a_version_is_named() {
        let dependencies =
            serde_json::json!([{"name": "a", "req": "*", "path": null}, {"name": "b", "req": "*", "path": "/b"}]);
        let package = serde_json::json!({"name": "larder-x", "source": null, "dependencies": dependencies});
        let problems = DependencyRules::parse(TEXT).unwrap().problems(&package);
        assert_eq!(problems, ["larder-x: names no version of \"a\""]);
    }
}
