//! The tree of files as it is installed, and the files that control a package for Debian.

use std::fs;
use std::path::{Path, PathBuf};

use super::manual_pages::ProgramTables;
use super::program::set_mode;
use super::{completions, manual_pages, text};
use crate::shell::{Result, Shell};

/// Files of the repository, their places in the tree, and their modes.
const FILES: &[(&str, &str, u32)] = &[
    ("packaging/larder.service", "usr/lib/systemd/system/larder.service", 0o644),
    ("packaging/deb/sysusers.conf", "usr/lib/sysusers.d/larder.conf", 0o644),
    ("packaging/deb/larder.toml", "etc/larder/larder.toml", 0o644),
    ("LICENSE", "usr/share/doc/larder/copyright", 0o644),
    ("CHANGELOG.md", "usr/share/doc/larder/CHANGELOG.md", 0o644),
    ("docs/manual.md", "usr/share/doc/larder/manual.md", 0o644),
    ("docs/operations.md", "usr/share/doc/larder/operations.md", 0o644),
];
/// Files that dpkg reads: all but the control file itself.
const CONTROL: &[(&str, u32)] = &[("conffiles", 0o644), ("postinst", 0o755), ("prerm", 0o755), ("postrm", 0o755)];

const FILE_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

/// The tree below a folder.
pub(super) struct PackageTree {
    root: PathBuf,
}

impl PackageTree {
    /// An empty tree.
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// A folder of the tree, made where it is missing.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn folder(&self, path: &str) -> Result<PathBuf> {
        let mut folder = self.root.clone();
        for part in Path::new(path).components() {
            folder.push(part);
            // The umask of the person who packs must not reach the machine of the one who installs.
            fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            set_mode(&folder, FOLDER_MODE)?;
        }
        set_mode(&self.root, FOLDER_MODE)?;
        Ok(folder)
    }

    /// Lays out all files but the programs.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(super) fn lay_out(&self, shell: &Shell, tables: &ProgramTables) -> Result<()> {
        for (from, to, mode) in FILES {
            self.copy(&shell.path(from), to, *mode)?;
        }
        let version = env!("CARGO_PKG_VERSION");
        for (page, content) in [
            ("larder.8", manual_pages::larder(tables, version)),
            ("kv-admin.8", manual_pages::kv_admin(tables, version)),
        ] {
            let place = self.write(&format!("usr/share/man/man8/{page}"), &content)?;
            // Without the time and the name, so that the same sources make the same package.
            shell.run(Path::new("gzip"), &["--best", "--no-name", text(&place)?])?;
        }
        let bash = completions::bash(tables);
        for name in ["larder", "kv-admin"] {
            self.write(&format!("usr/share/bash-completion/completions/{name}"), &bash)?;
        }
        self.write("usr/share/zsh/vendor-completions/_larder", completions::zsh())?;
        self.write("usr/share/fish/vendor_completions.d/larder.fish", &completions::fish(tables))?;
        Ok(())
    }

    /// Adds the files that dpkg reads.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(super) fn add_control(&self, shell: &Shell, version: &str, architecture: &str) -> Result<()> {
        let size = kib_of(&self.root)?.to_string();
        let template = read(&shell.path("packaging/deb/control.in"))?;
        let control =
            template.replace("@VERSION@", version).replace("@ARCHITECTURE@", architecture).replace("@SIZE@", &size);
        self.write("DEBIAN/control", &control)?;
        CONTROL.iter().try_for_each(|(name, mode)| {
            self.copy(&shell.path(&format!("packaging/deb/{name}")), &format!("DEBIAN/{name}"), *mode)
        })
    }

    fn copy(&self, from: &Path, to: &str, mode: u32) -> Result<()> {
        let place = self.write(to, &read(from)?)?;
        set_mode(&place, mode)
    }

    fn write(&self, to: &str, content: &str) -> Result<PathBuf> {
        let (folder, name) = to.rsplit_once('/').unwrap_or(("", to));
        let place = self.folder(folder)?.join(name);
        fs::write(&place, content).map_err(|error| format!("{}: {error}", place.display()))?;
        set_mode(&place, FILE_MODE)?;
        Ok(place)
    }
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// The size of a folder in KiB.
fn kib_of(folder: &Path) -> Result<u64> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut sum = 0;
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let found = entry.metadata().map_err(failed)?;
        sum += if found.is_dir() { kib_of(&entry.path())? } else { found.len().div_ceil(1024) };
    }
    Ok(sum)
}
