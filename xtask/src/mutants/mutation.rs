//! One mutation: an edit of the sources that takes a rule out, and the test that has to notice.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use crate::shell::Result;

/// The word in a replacement that stands for the switch.
const SWITCH: &str = "MUTANT";

/// A mutation as its file describes it.
#[derive(Debug, Clone)]
pub(crate) struct Mutation {
    /// The file's name without its end.
    pub(crate) name: String,
    /// The rule that it takes out.
    pub(crate) rule: String,
    /// The race that the rule is for.
    pub(crate) race: String,
    /// The test target with the test.
    pub(super) target: TestTarget,
    /// The test that fails without the rule.
    pub(crate) test: String,
    /// The schedules of a test that walks random ones; its own number unless given.
    pub(crate) schedules: Option<i64>,
    edits: Vec<Edit>,
}

/// A target of `cargo test`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TestTarget {
    pub(super) package: String,
    /// A file of `tests`, or `lib`.
    pub(super) target: String,
}

/// Lines of one file and their replacement.
#[derive(Debug, Clone)]
struct Edit {
    file: String,
    lines: String,
    mutant: String,
}

/// All mutations of a directory, by name.
///
/// # Errors
/// A file that cannot be read or is no mutation.
pub(crate) fn read_all(directory: &Path) -> Result<Vec<Mutation>> {
    let shown = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(shown)? {
        let path = entry.map_err(shown)?.path();
        if path.extension().is_some_and(|end| end == "toml") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).map_err(shown)?;
            found.push(Mutation::parse(&name, &text)?);
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

impl Mutation {
    fn parse(name: &str, text: &str) -> Result<Self> {
        let table: Table = text.parse().map_err(|error| format!("{name}.toml: {error}"))?;
        let edits = table.get("edit").and_then(Value::as_array).ok_or_else(|| format!("{name}.toml: no [[edit]]"))?;
        let edit = |value: &Value| {
            let edit = value.as_table().ok_or_else(|| format!("{name}.toml: `edit` is no table"))?;
            let text = |key| string(name, edit, key);
            Ok(Edit { file: text("file")?, lines: text("lines")?, mutant: text("mutant")? })
        };
        let edits: Vec<Edit> = edits.iter().map(edit).collect::<Result<_>>()?;
        if edits.iter().all(|edit| !edit.mutant.contains(SWITCH)) {
            return Err(format!("{name}.toml: no replacement asks for {SWITCH}"));
        }
        let text = |key| string(name, &table, key);
        let target = TestTarget { package: text("package")?, target: text("target")? };
        let schedules = table.get("schedules").and_then(Value::as_integer);
        let [rule, race, test] = [text("rule")?, text("race")?, text("test")?];
        Ok(Self { name: name.to_owned(), rule, race, target, test, schedules, edits })
    }

    /// The files it edits, each once.
    pub(crate) fn files(&self) -> Vec<&str> {
        let mut files: Vec<&str> = self.edits.iter().map(|edit| edit.file.as_str()).collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// The text of a file with the mutation behind its switch.
    ///
    /// # Errors
    /// The file has the lines of an edit not exactly once.
    pub(crate) fn applied(&self, file: &str, mut text: String) -> Result<String> {
        let switch = format!("std::env::var_os(\"{VARIABLE}\").is_some_and(|name| name == \"{}\")", self.name);
        for edit in self.edits.iter().filter(|edit| edit.file == file) {
            let found = text.matches(&edit.lines).count();
            if found != 1 {
                let name = &self.name;
                return Err(format!("{name}.toml: {file} has these lines {found} times, not once:\n{}", edit.lines));
            }
            text = text.replace(&edit.lines, &edit.mutant.replace(SWITCH, &switch));
        }
        Ok(text)
    }
}

/// The variable that switches a mutation on.
pub(super) const VARIABLE: &str = "LARDER_MUTANT";

fn string(name: &str, table: &Table, key: &str) -> Result<String> {
    let found = table.get(key).and_then(Value::as_str);
    found.map(str::to_owned).ok_or_else(|| format!("{name}.toml: no text `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
rule = "r"
race = "w"
package = "p"
target = "lib"
test = "t"
[[edit]]
file = "a.rs"
lines = "check(x)?;"
mutant = "if !(MUTANT) { check(x)?; }"
"#;

    #[test]
    fn an_edit_is_behind_a_switch_of_its_name() {
        let mutation = Mutation::parse("no-check", TEXT).unwrap();
        let applied = mutation.applied("a.rs", "fn f() { check(x)?; }".to_owned()).unwrap();
        let switch = r#"std::env::var_os("LARDER_MUTANT").is_some_and(|name| name == "no-check")"#;
        assert_eq!(applied, format!("fn f() {{ if !({switch}) {{ check(x)?; }} }}"));
        assert_eq!(mutation.files(), ["a.rs"]);
    }

    #[test]
    fn lines_that_are_gone_or_stand_twice_are_an_error() {
        let mutation = Mutation::parse("no-check", TEXT).unwrap();
        for text in ["", "check(x)?; check(x)?;"] {
            assert!(mutation.applied("a.rs", text.to_owned()).unwrap_err().contains("not once"));
        }
    }

    #[test]
    fn a_file_that_lacks_something_is_named() {
        let missing = Mutation::parse("n", &TEXT.replace("race", "rice")).unwrap_err();
        assert_eq!(missing, "n.toml: no text `race`");
        assert!(Mutation::parse("n", &TEXT.replace("MUTANT", "true")).unwrap_err().contains("MUTANT"));
    }
}
