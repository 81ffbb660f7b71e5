//! The banner of a server that is ready: its addresses, and the first commands to try.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::private::write_private;
use crate::settings::table;

/// The file in the data directory that holds the S3 admin's new key.
const ADMIN_KEY_FILE: &str = "s3-admin-key";

/// The line of a MinIO server with one disk that is ready.
const MINIO_STATUS: &str = "Status:         1 Online, 0 Offline. ";

/// The content of the banner.
pub(crate) struct Banner<'a> {
    /// The node's name.
    pub(crate) name: &'a str,
    /// The bound addresses.
    pub(crate) at: ListenAddresses<'a>,
    /// The place of the data.
    pub(crate) data: &'a str,
    /// Notes for the operator.
    pub(crate) notes: &'a [String],
    /// The S3 admin's key, if this start created it.
    pub(crate) admin: Option<AdminKey>,
    /// The command that runs `kv-admin`.
    pub(crate) kv_admin: String,
    /// Whether the server was started as MinIO is.
    pub(crate) is_minio_server: bool,
    /// A link that signs in to the console, for a terminal; elsewhere it might be stored and read by others.
    pub(crate) console_link: Option<String>,
}

/// The key that a first start creates for the S3 admin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AdminKey {
    /// Standard output is a terminal: the banner shows the key.
    Shown {
        /// The access key.
        key: String,
        /// Its secret.
        secret: String,
    },
    /// Standard output may be stored and read by others: the key is in this file.
    InFile(PathBuf),
    /// The file could not be written, so the secret of this key is lost.
    Lost {
        /// The access key.
        key: String,
        /// The reason, with the file.
        why: String,
    },
}

impl AdminKey {
    /// Shows the key on a terminal; otherwise writes it to a file in `dir` that only its owner may read.
    pub(crate) fn hand_over(key: String, secret: String, dir: &Path) -> Self {
        if std::io::stdout().is_terminal() {
            return Self::Shown { key, secret };
        }
        let file = dir.join(ADMIN_KEY_FILE);
        match write_private(&file, &export_lines(&key, &secret)) {
            Ok(()) => Self::InFile(file),
            Err(error) => Self::Lost { key, why: format!("{}: {error}", file.display()) },
        }
    }
}

/// The key as lines for a shell.
fn export_lines(key: &str, secret: &str) -> String {
    format!("export AWS_ACCESS_KEY_ID={key}\nexport AWS_SECRET_ACCESS_KEY={secret}\n")
}

/// The addresses of the protocols.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListenAddresses<'a> {
    /// Riak's HTTP.
    pub(crate) http: Option<SocketAddr>,
    /// The same with TLS.
    pub(crate) https: Option<SocketAddr>,
    /// Riak's protocol buffers.
    pub(crate) pb: Option<SocketAddr>,
    /// The same with TLS.
    pub(crate) pb_tls: Option<SocketAddr>,
    /// S3.
    pub(crate) s3: Option<SocketAddr>,
    /// The same with TLS.
    pub(crate) s3_https: Option<SocketAddr>,
    /// The console.
    pub(crate) console: Option<SocketAddr>,
    /// The socket of `kv-admin`.
    pub(crate) admin: &'a Path,
}

impl Banner<'_> {
    /// The banner as text.
    pub(crate) fn text(&self) -> String {
        let mut out = format!("Larder {} is ready as {}\n\n", env!("CARGO_PKG_VERSION"), self.name);
        let ListenAddresses { http, https, pb, pb_tls, s3, s3_https, .. } = self.at;
        let _ = writeln!(out, "  Riak HTTP   {}", places([place("http://", http), place("https://", https)]));
        let _ = writeln!(out, "  Riak PB     {}", places([place("", pb), place("TLS ", pb_tls)]));
        let _ = writeln!(out, "  S3          {}", places([place("http://", s3), place("https://", s3_https)]));
        let _ = writeln!(out, "  console     {}", places([place("http://", self.at.console), None]));
        let _ = writeln!(out, "  kv-admin    {}", self.at.admin.display());
        let _ = writeln!(out, "  data        {}", self.data);
        for note in self.notes {
            let _ = writeln!(out, "  note        {note}");
        }
        if let Some(link) = &self.console_link {
            let _ = writeln!(out, "\nThe console, with a link that signs in once within 15 minutes:\n  {link}");
        } else if self.at.console.is_some() {
            let _ = writeln!(out, "\nA link that signs in to the console:\n  {} console link", self.kv_admin);
        }
        if self.is_minio_server {
            // Programs that start MinIO in tests wait for this line, to the blank.
            let _ = writeln!(out, "\n{MINIO_STATUS}");
        } else {
            let _ = writeln!(out, "\nTry a bucket type, and an object in it:");
            let _ = writeln!(out, "  {} bucket-type create drinks", self.kv_admin);
            let _ = writeln!(out, "  {} bucket-type activate drinks", self.kv_admin);
        }
        if let Some(at) = self.at.http.filter(|_| !self.is_minio_server) {
            let url = format!("http://{}/types/drinks/buckets/teas/keys/sencha", reachable(at));
            let _ = writeln!(out, "  curl -X PUT {url} -H 'Content-Type: text/plain' -d 'green'");
            let _ = writeln!(out, "  curl {url}");
        }
        if let Some(at) = self.at.s3 {
            out.push_str(&self.s3(at));
        }
        let _ = writeln!(out, "\nAll commands: {} help. All settings: larder --help. Ctrl-C stops.", self.kv_admin);
        out
    }

    fn s3(&self, at: SocketAddr) -> String {
        let endpoint = format!("--endpoint-url http://{}", reachable(at));
        let mut out = String::new();
        match &self.admin {
            Some(AdminKey::Shown { key, secret }) => {
                out.push_str("\nThe S3 admin's key, shown this once:\n");
                for line in export_lines(key, secret).lines() {
                    let _ = writeln!(out, "  {line}");
                }
                out.push_str("Try a bucket, and an object in it:\n");
            }
            Some(AdminKey::InFile(file)) => {
                out.push_str("\nThe S3 admin's key is in a file that only this user may read:\n");
                let _ = writeln!(out, "  . {}", quoted(file.as_os_str()));
                out.push_str("Try a bucket, and an object in it:\n");
            }
            Some(AdminKey::Lost { key, why }) => {
                let _ = writeln!(out, "\nThe S3 admin's key was made, and not written: {why}\nMake its secret anew:");
                let _ = writeln!(out, "  {} s3 user rotate-key {key}", self.kv_admin);
                out.push_str("Then a bucket, and an object in it:\n");
            }
            None => {
                out.push_str("\nAn S3 user of your own, then a bucket and an object in it:\n");
                let _ = writeln!(out, "  {} s3 user create you@example.com You", self.kv_admin);
            }
        }
        let _ = writeln!(out, "  aws {endpoint} s3 mb s3://cellar");
        let _ = writeln!(out, "  aws {endpoint} s3 cp README.md s3://cellar/");
        out
    }
}

/// Where a listener is reached, with its scheme.
fn place(scheme: &str, at: Option<SocketAddr>) -> Option<String> {
    at.map(|at| format!("{scheme}{at}"))
}

/// The places of a protocol, plain and encrypted.
fn places(plain_and_encrypted: [Option<String>; 2]) -> String {
    match plain_and_encrypted {
        [Some(plain), Some(encrypted)] => format!("{plain}, {encrypted}"),
        [plain, encrypted] => plain.or(encrypted).unwrap_or_else(|| "off".to_owned()),
    }
}

/// The address for a client on this machine, where the listener has the unspecified address.
pub(crate) fn reachable(at: SocketAddr) -> SocketAddr {
    match at {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => SocketAddr::from(([127, 0, 0, 1], v4.port())),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, v6.port())),
        _ => at,
    }
}

/// The environment of the person who started this server, which decides how to call `kv-admin`.
pub(crate) struct LaunchContext {
    /// Whether cargo started the server.
    pub(crate) cargo: bool,
    /// The variable `PATH`.
    pub(crate) path: Option<OsString>,
    /// The server's own file.
    pub(crate) program: Option<PathBuf>,
}

impl LaunchContext {
    /// The environment of this process.
    pub(crate) fn current() -> Self {
        let program = std::env::current_exe().ok();
        Self { cargo: std::env::var_os("CARGO").is_some(), path: std::env::var_os("PATH"), program }
    }

    /// The command that runs `kv-admin`, with `--socket` only where it is needed.
    pub(crate) fn kv_admin(&self, socket: &Path) -> String {
        let program = self.program();
        let default = Path::new(table::DATA_DIR.default).join(table::ADMIN_SOCKET_NAME);
        if socket == default { program } else { format!("{program} --socket {}", quoted(socket.as_os_str())) }
    }

    fn program(&self) -> String {
        const NAME: &str = "kv-admin";
        if self.cargo {
            return format!("cargo {NAME}");
        }
        let is_on_path =
            self.path.as_ref().is_some_and(|path| std::env::split_paths(path).any(|dir| dir.join(NAME).is_file()));
        let beside = self.program.as_ref().map(|program| program.with_file_name(NAME)).filter(|file| file.is_file());
        match beside {
            Some(file) if !is_on_path => quoted(file.as_os_str()),
            _ => NAME.to_owned(),
        }
    }
}

/// A word quoted for a shell.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    if word.chars().all(plain) { word.into_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(cargo: bool) -> LaunchContext {
        LaunchContext { cargo, path: Some("/no/such/dir".into()), program: Some("/no/such/dir/larder".into()) }
    }

    #[test]
    fn the_kv_admin_command_fits_the_way_the_server_was_started() {
        let default = Path::new("./data/admin.sock");
        assert_eq!(caller(true).kv_admin(default), "cargo kv-admin");
        assert_eq!(caller(false).kv_admin(default), "kv-admin");
        assert_eq!(caller(false).kv_admin(Path::new("/my data/s")), "kv-admin --socket '/my data/s'");
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("kv-admin"), "").unwrap();
        let beside = LaunchContext { program: Some(dir.path().join("larder")), ..caller(false) };
        assert_eq!(beside.kv_admin(default), dir.path().join("kv-admin").display().to_string());
        let installed = LaunchContext { path: Some(dir.path().into()), ..beside };
        assert_eq!(installed.kv_admin(default), "kv-admin");
    }

    #[test]
    fn the_banner_shows_addresses_and_first_commands() {
        let (name, data, socket) = ("larder@here", "./data (engine local)", Path::new("./data/admin.sock"));
        let notes = ["one copy until there are more nodes".to_owned()];
        let at = |port| Some(SocketAddr::from(([0, 0, 0, 0], port)));
        let admin = Some(AdminKey::Shown { key: "KEY".to_owned(), secret: "SECRET".to_owned() });
        let off = ListenAddresses {
            http: None,
            https: None,
            pb: None,
            pb_tls: None,
            s3: None,
            s3_https: None,
            console: None,
            admin: socket,
        };
        let both = ListenAddresses { http: at(1234), pb: at(2345), s3: at(5678), console: at(8099), ..off };
        let banner = |at, admin| {
            let kv_admin = "kv-admin".to_owned();
            Banner { name, at, data, notes: &notes, admin, kv_admin, is_minio_server: false, console_link: None }.text()
        };
        let text = banner(both, admin);
        for line in [
            "  Riak HTTP   http://0.0.0.0:1234",
            "  Riak PB     0.0.0.0:2345",
            "  data        ./data (engine local)",
            "  console     http://0.0.0.0:8099",
            "  kv-admin console link",
            "  note        one copy until there are more nodes",
            "  kv-admin bucket-type activate drinks",
            "  curl http://127.0.0.1:1234/types/drinks/buckets/teas/keys/sencha",
            "  S3          http://0.0.0.0:5678",
            "  export AWS_SECRET_ACCESS_KEY=SECRET",
            "  aws --endpoint-url http://127.0.0.1:5678 s3 mb s3://cellar",
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line} in\n{text}");
        }
        let again = banner(both, None);
        assert!(
            again.contains("  kv-admin s3 user create you@example.com You\n") && !again.contains("SECRET"),
            "{again}"
        );
        let in_file = banner(both, Some(AdminKey::InFile("/my data/s3-admin-key".into())));
        assert!(in_file.contains("  . '/my data/s3-admin-key'\n") && !in_file.contains("user create"), "{in_file}");
        let lost = banner(both, Some(AdminKey::Lost { key: "KEY".into(), why: "/d: full".into() }));
        assert!(lost.contains("not written: /d: full\n") && lost.contains("rotate-key KEY\n"), "{lost}");
        let encrypted = banner(ListenAddresses { https: at(8443), pb_tls: at(8487), pb: at(2345), ..off }, None);
        assert!(
            encrypted.contains("  Riak HTTP   https://0.0.0.0:8443\n  Riak PB     0.0.0.0:2345, TLS 0.0.0.0:8487\n")
        );
        let off = banner(off, None);
        assert!(off.contains("  Riak HTTP   off\n  Riak PB     off\n  S3          off\n  console     off\n"), "{off}");
        assert!(!off.contains("console link"), "{off}");
        assert!(!off.contains("curl") && !off.contains("aws"), "{off}");
    }
}
