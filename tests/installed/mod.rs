//! The package as it is installed, under systemd and its unit: a copy of this machine that is thrown away gets it, and the pages for
//! users are followed there, at the usual ports, by an account without rights. `LARDER_PACKAGE` names the package; `cargo xtask test`
//! makes it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test fails by panicking, and reads the place of the package from the environment"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::{Process, S3_KEY, S3_SECRET};
use crate::manual::{self, ManualExample};

/// How long a machine may take, from its start to its end.
const PATIENCE: Duration = Duration::from_secs(240);
/// Before the output of each command.
const MARK: char = '\u{1e}';
/// The begin of each script, which root runs: it waits for the server.
const PROLOGUE: &str = r#"
exec > /mnt/trial.out 2> /mnt/trial.err
trap 'systemctl exit 0' EXIT
for second in $(seq 30); do command kv-admin ping > /dev/null 2>&1 && break; sleep 1; done
[ $second -lt 30 ] || { systemctl status larder --no-pager --full >&2; journalctl --no-pager | tail -20 >&2; exit 1; }
export HOME=/root
kv-admin() { command kv-admin "$@" 2>&1; }
"#;
/// Follows the page as a new user. `as-root` stands for `sudo`, which this machine may not have.
const AS_VISITOR: &str = r"
useradd --create-home --shell /bin/bash visitor
install --mode 4755 /usr/bin/env /usr/local/bin/as-root
install --owner visitor --mode 600 /mnt/page.sh /home/visitor/page.sh
cd /home/visitor
setpriv --reuid visitor --regid visitor --init-groups --reset-env bash page.sh
";
/// The commands of the pages. As docs/operations.md says, the administrator alone may use kv-admin; all others are the visitor's own.
const PAGE_PROLOGUE: &str = r#"
[ "$(id -u)" -ge 1000 ] && [ "$HOME" = /home/visitor ] || exit 1
kv-admin() { as-root kv-admin "$@" 2>&1; }
larder() { ! command larder "$@" 2>&1; }
cargo() { shift; kv-admin "$@"; }
"#;

/// A copy of this machine with the package.
struct InstalledMachine {
    folder: tempfile::TempDir,
}

impl InstalledMachine {
    /// The copy; `None`, with a line that says so, where this machine cannot have one.
    fn new() -> Option<Self> {
        let skip = |why: &str| {
            eprintln!("skipped: {why}");
            None
        };
        let Some(package) = std::env::var_os("LARDER_PACKAGE").map(PathBuf::from) else {
            return skip("LARDER_PACKAGE names no package");
        };
        if !rustix::process::geteuid().is_root() || !Path::new("/lib/systemd/systemd").exists() {
            return skip("a copy of this machine needs root, and systemd on it");
        }
        let folder = tempfile::tempdir().unwrap();
        let probe = "mount -t tmpfs t $1 && mkdir $1/u $1/w $1/m && \
                     mount -t overlay o -o lowerdir=/,upperdir=$1/u,workdir=$1/w $1/m && ip link set lo up";
        let mut probing = Command::new("unshare");
        probing.args(["--mount", "--net", "sh", "-c", probe, "sh"]).arg(folder.path());
        if !probing.output().is_ok_and(|ended| ended.status.success()) {
            return skip("this machine has no unshare, overlays or ip");
        }
        for name in ["copy", "shared"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::copy(package, folder.path().join("shared/larder.deb")).unwrap();
        let settings = format!("s3-admin-key = \"{S3_KEY}\"\ns3-admin-secret = \"{S3_SECRET}\"\n");
        fs::write(folder.path().join("shared/larder.toml"), settings).unwrap();
        Some(Self { folder })
    }

    /// Boots, runs a script, and ends; returns what it printed.
    fn run(&self, script: &str) -> String {
        let shared = self.folder.path().join("shared");
        fs::write(shared.join("trial.sh"), format!("{PROLOGUE}{script}")).unwrap();
        let mut booting = Command::new("sh");
        booting
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("installed/machine.sh"))
            .arg(self.folder.path().join("copy"))
            .arg(&shared);
        let ended = Process::start(&mut booting).wait_for_end(PATIENCE);
        let read = |name: &str| fs::read_to_string(shared.join(name));
        // Shown with a failure.
        eprintln!("{}", read("trial.err").unwrap_or_default());
        read("trial.out").unwrap_or_else(|_| panic!("the script did not run: {ended:?}"))
    }
}

/// Follows a page on a machine of its own.
fn follow(page: &str) {
    let Some(machine) = InstalledMachine::new() else { return };
    let examples: Vec<ManualExample> = manual::page_examples(page).into_iter().filter(is_plain).collect();
    assert!(!examples.is_empty(), "{page} has examples");
    let command = |example: &ManualExample| format!("printf '\\036'\n{}\n[ $? = 0 ] || exit 1\n", example.command);
    let commands: String = examples.iter().map(command).collect();
    fs::write(machine.folder.path().join("shared/page.sh"), format!("{PAGE_PROLOGUE}{commands}")).unwrap();
    let printed = machine.run(AS_VISITOR);
    let outputs: Vec<&str> = printed.split(MARK).skip(1).collect();
    for (example, output) in examples.iter().zip(&outputs) {
        assert!(manual::fits(example, output), "{page}: {output:?} instead of {example:?}");
    }
    let last = outputs.len().checked_sub(1).map(|last| &examples[last].command);
    assert_eq!(outputs.len(), examples.len(), "{page}: {last:?} ended it");
}

/// Whether an example needs nothing but the package and curl. The others run beside another test's server.
fn is_plain(example: &ManualExample) -> bool {
    !["import riak", "aws ", "python3", "/stats", "README.md"].iter().any(|word| example.command.contains(word))
}

#[test]
fn the_readme_holds_on_the_installed_package() {
    follow("README.md");
}

#[test]
fn the_manual_holds_on_the_installed_package() {
    follow("docs/manual.md");
}

#[test]
fn the_page_of_security_holds_on_the_installed_package() {
    follow("docs/security.md");
}

#[test]
fn the_pages_of_features_hold_on_the_installed_package() {
    for page in ["docs/indexes.md", "docs/links.md", "docs/mapreduce.md", "docs/data-types.md"] {
        follow(page);
    }
}

#[test]
fn the_unit_keeps_exports_backups_and_logs_where_the_operator_sees_them() {
    let Some(machine) = InstalledMachine::new() else { return };
    let printed = machine.run(
        r#"
        setpriv --reuid nobody --regid nogroup --clear-groups kv-admin ping 2>&1
        systemctl show larder -p ActiveState,PrivateTmp,ProtectSystem --value | tr '\n' ' '
        curl -s -X PUT http://127.0.0.1:8098/buckets/teas/keys/sencha -d green
        kv-admin export /var/tmp/lost | sed 's/^/export: /'
        kv-admin export /var/lib/larder-exports/all | sed -n '1s/ as .*//p'
        kv-admin backup /var/lib/larder-exports/backup > /dev/null; [ -n "$(ls /var/lib/larder-exports/backup)" ] && echo backup kept
        stat --format '%U %a' /var/lib/larder /etc/larder/larder.toml
        systemctl kill --signal=SIGKILL larder; sleep 3
        curl -s http://127.0.0.1:8098/buckets/teas/keys/sencha; echo
        systemctl reload larder && systemctl is-active larder
        systemctl stop larder; systemctl show larder -p Result --value
        "#,
    );
    for expected in [
        "only root and the user of the server may open /run/larder/admin.sock: run kv-admin as one of them (sudo kv-admin)\n",
        "yes strict active ",
        "export: /var/tmp is another folder for the server than for kv-admin",
        "exported into /var/lib/larder-exports/all",
        "backup kept",
        "larder 700\n",
        "root 640\n",
        "\ngreen\nactive\nsuccess\n",
    ] {
        assert!(printed.contains(expected), "{expected:?} in\n{printed}");
    }
}
