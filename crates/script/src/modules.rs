//! The modules of `--js-dir`: its files that end in `.js`, in the order of their names.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::worker_process::{MODULE_BYTES_MAX, MODULES_MAX};

/// One file of functions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JsModule {
    /// Its file name.
    pub(crate) name: String,
    /// Its text.
    pub(crate) source: String,
}

/// The modules of a folder; none without one.
///
/// # Errors
/// The file that cannot be read, as one line.
pub(crate) fn read_modules(dir: Option<&Path>) -> Result<Vec<JsModule>, String> {
    let mut bytes_left = MODULE_BYTES_MAX;
    let read = |path: PathBuf| {
        let failed = |why: String| format!("{}: {why}", path.display());
        let bytes = std::fs::metadata(&path).map_err(|error| failed(error.to_string()))?.len();
        // Bound: the sizes are checked before a byte is read.
        bytes_left = bytes_left
            .checked_sub(bytes)
            .ok_or_else(|| failed(format!("the modules have over {MODULE_BYTES_MAX} bytes")))?;
        let source = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(JsModule { name, source })
    };
    dir.map_or_else(|| Ok(Vec::new()), module_files)?.into_iter().map(read).collect()
}

/// A number that differs when a file of the folder was added, removed or changed; `None` while it cannot be read.
pub(crate) fn fingerprint(dir: &Path) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    for file in module_files(dir).ok()? {
        let metadata = std::fs::metadata(&file).ok()?;
        (file, metadata.len(), metadata.modified().ok()).hash(&mut hasher);
    }
    Some(hasher.finish())
}

fn module_files(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        // An editor's hidden copy of a module would load twice.
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.extension().is_some_and(|extension| extension == "js") && !hidden && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    match files.len() > MODULES_MAX {
        true => Err(format!("{}: more than {MODULES_MAX} modules", dir.display())),
        false => Ok(files),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_the_visible_js_files_in_the_order_of_their_names() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("b.js", "2"), ("a.js", "1"), ("c.txt", "no"), (".b.js", "no")] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let read = read_modules(Some(dir.path())).unwrap();
        let names: Vec<_> = read.iter().map(|module| (&*module.name, &*module.source)).collect();
        assert_eq!(names, [("a.js", "1"), ("b.js", "2")]);
        assert_eq!(read_modules(None).unwrap(), []);
        let missing = read_modules(Some(&dir.path().join("missing"))).unwrap_err();
        assert!(missing.contains("missing"), "{missing}");
    }

    #[test]
    fn a_changed_an_added_and_a_removed_file_change_the_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let mut seen = vec![fingerprint(dir.path())];
        std::fs::write(dir.path().join("a.js"), "1").unwrap();
        seen.push(fingerprint(dir.path()));
        std::fs::write(dir.path().join("a.js"), "longer").unwrap();
        seen.push(fingerprint(dir.path()));
        std::fs::remove_file(dir.path().join("a.js")).unwrap();
        assert_eq!(fingerprint(dir.path()), seen[0]);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 3);
        assert_eq!(fingerprint(&dir.path().join("missing")), None);
    }
}
