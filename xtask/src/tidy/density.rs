//! How densely code explains its steps: `//` comments per 100 lines of code. The figure is shown, not judged.

use std::collections::BTreeMap;

use super::SourceFile;

/// The crate of test harnesses, which is not counted.
const TESTKIT: &str = "crates/testkit/";

/// The counted lines of a crate.
#[derive(Debug, Default, Clone, Copy)]
struct CommentCount {
    code: usize,
    comments: usize,
}

/// One line: every crate with its comments per 100 lines of code, tests left out.
pub(super) fn summary(files: &[SourceFile]) -> String {
    let mut crates: BTreeMap<&str, CommentCount> = BTreeMap::new();
    let is_product = |file: &&SourceFile| file.is_rust() && !file.is_test() && !file.path.starts_with(TESTKIT);
    for file in files.iter().filter(is_product) {
        if let Some((folder, _)) = file.path.split_once("/src/") {
            count(file, crates.entry(folder.trim_start_matches("crates/")).or_default());
        }
    }
    let shown: Vec<String> = crates.iter().map(|(name, count)| format!("{name} {}", per_hundred(*count))).collect();
    format!("comments per 100 lines of code: {}", shown.join(", "))
}

fn count(file: &SourceFile, count: &mut CommentCount) {
    for (_, line) in file.code() {
        let line = line.trim_start();
        let is_doc = line.starts_with("///") || line.starts_with("//!");
        if line.starts_with("//") {
            count.comments += usize::from(!is_doc);
        } else if !line.is_empty() {
            count.code += 1;
        }
    }
}

/// With one decimal, rounded down.
fn per_hundred(count: CommentCount) -> String {
    let tenths = count.comments * 1000 / count.code.max(1);
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    #[test]
    fn comments_count_against_code_without_docs_and_tests() {
        let code =
            "//! A module.\n\n/// A function.\nfn a() {\n    // Why.\n    b();\n}\n".to_owned() + &"c();\n".repeat(27);
        let files = [
            file("crates/a/src/a.rs", &(code + "#[cfg(test)]\nmod tests {\n    // Not counted.\n}\n")),
            file("crates/a/tests/a.rs", "// Not counted.\n"),
            file("crates/testkit/src/a.rs", "// Not counted.\nfn a() {}\n"),
            file("xtask/src/main.rs", "fn main() {}\n"),
        ];
        assert_eq!(summary(&files), "comments per 100 lines of code: a 3.3, xtask 0.0");
    }
}
