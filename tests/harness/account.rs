//! An account of its own for the commands of the pages: a reader of these is an ordinary user of his machine.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The numbers of which an account takes a free one: those of people and of services are below, those that systemd gives above.
const NUMBERS: std::ops::Range<u32> = 50_000..60_000;

/// Opens the folders above the programs `$2..` to all, and runs the command `$1` as the account `$0`. The folders are opened on overlays
/// of a namespace of its own: those of this machine stay as they are.
const OPENED: &str = r#"
open() {
    [ "$1" = / ] || open "$(dirname "$1")"
    case $(stat --format %A "$1") in *x|*t) return ;; esac
    case "$1" in
    "$opened"/*) ;;
    *)
        opened=$1 number=$((number + 1))
        mkdir "/mnt/$number" "/mnt/$number/upper" "/mnt/$number/work"
        mount -t overlay overlay -o "lowerdir=$1,upperdir=/mnt/$number/upper,workdir=/mnt/$number/work" "$1"
        ;;
    esac
    chmod o+x "$1"
}
set -e
account=$0 script=$1 number=0 opened=/none
shift
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
for program in "$@"; do
    open "$(dirname "$program")"
    open "$(dirname "$(readlink -f "$program")")"
done
cd .
exec setpriv --reuid "$account" --regid "$account" --clear-groups bash -c "$script"
"#;

/// An account without rights, without groups, and without a name: its number is that of no other user.
#[derive(Debug, Clone, Copy)]
pub struct FreshAccount {
    number: u32,
}

impl FreshAccount {
    /// A new account. `None` where this process is not root: it runs as an ordinary account itself, and can make no other.
    #[must_use]
    pub fn new() -> Option<Self> {
        rustix::process::geteuid().is_root().then_some(())?;
        let taken = ["/etc/passwd", "/etc/group"].map(|file| fs::read_to_string(file).unwrap_or_default()).concat();
        // Tests at the same time have different processes.
        let first = std::process::id() % (NUMBERS.end - NUMBERS.start);
        let mut numbers = (NUMBERS.start + first..NUMBERS.end).chain(NUMBERS);
        let number = numbers.find(|number| !taken.contains(&format!(":{number}:")));
        Some(Self { number: number.expect("a number that no user has") })
    }

    /// Runs the command as this account.
    pub fn runs(self, command: &mut Command) {
        command.uid(self.number).gid(self.number);
    }

    /// Gives a file, or a folder with all in it, to this account.
    ///
    /// # Panics
    /// When it cannot be given away.
    pub fn takes(self, path: &Path) {
        chown(path, Some(self.number), Some(self.number)).expect("root gives its files away");
        if path.is_dir() {
            let entries = fs::read_dir(path).expect("a folder of this test");
            entries.for_each(|entry| self.takes(&entry.expect("a file of this test").path()));
        }
    }

    /// A shell of this account that runs the script, and may run these programs: the folders above them may be closed to it.
    #[must_use]
    pub fn shell(self, script: &str, programs: &[PathBuf]) -> Command {
        if programs.iter().all(|program| self.can_run(program)) {
            let mut shell = Command::new("bash");
            self.runs(shell.args(["-c", script]));
            return shell;
        }
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "bash", "-c", OPENED]).arg(self.number.to_string()).arg(script).args(programs);
        shell
    }

    /// Whether this account may run the program.
    fn can_run(self, program: &Path) -> bool {
        let mut probe = Command::new("test");
        self.runs(probe.arg("-x").arg(program).current_dir("/"));
        probe.status().is_ok_and(|status| status.success())
    }
}

#[test]
fn a_fresh_account_runs_programs_of_closed_folders_and_reads_nothing_else() {
    let Some(account) = FreshAccount::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (closed, program) = (folder.path().join("closed"), folder.path().join("closed/inner/program"));
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::write(&program, "#!/bin/sh\nid -u\n").unwrap();
    fs::write(folder.path().join("secret"), "a secret").unwrap();
    for (path, mode) in [(&program, 0o755), (&program.parent().unwrap().to_owned(), 0o700), (&closed, 0o700)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(folder.path().join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!account.can_run(&program));
    let script = format!("'{}' && cat '{}'", program.display(), folder.path().join("secret").display());
    let ended = account.shell(&script, std::slice::from_ref(&program)).output().unwrap();
    let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert_eq!((printed, ended.status.success()), (format!("{}\n", account.number), false), "{ended:?}");
    assert!(!account.can_run(&program), "the folders of this machine stay closed");
}
