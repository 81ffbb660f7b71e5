//! The client's end of the admin socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_kv_admin::frame::{
    ANSWER_BYTES_MAX, AdminAnswer, AdminReply, AdminRequest, BadFrame, LENGTH_BYTES, body_length,
};
use larder_kv_admin::progress_bar::ProgressBar;

/// The one command whose name the client knows: it also waits for the start of the server. A server that does not run yet
/// cannot say which commands wait, and scripts written for `riak-admin` give no option.
const WAITS_FOR_START: &str = "wait-for-service";
/// The socket of a server that was started in the current folder.
pub(crate) const SOCKET_DEFAULT: &str = "./data/admin.sock";
/// The socket of the installed service.
const SOCKET_OF_SERVICE: &str = "/run/larder/admin.sock";
/// Longest wait for a frame: longer than the server stays silent.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(150);
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// The pause between two tries to reach a starting server, and their number: a minute in all.
const START_POLL: Duration = Duration::from_millis(200);
const STARTS_MAX: u32 = 300;
/// A server of another version is the usual cause of an answer that cannot be used.
const VERSION_HINT: &str = "does it have the version of this kv-admin?";

/// The socket to ask on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SocketChoice {
    /// The operator named it, and so trusts who listens there.
    Named(PathBuf),
    /// [`SOCKET_DEFAULT`], or [`SOCKET_OF_SERVICE`] where that alone is there.
    Unnamed,
}

impl SocketChoice {
    /// The path, and whether this user trusts who listens there. Attack: a folder that others can write to may have a socket of
    /// theirs below it; only root makes folders below `/run`.
    fn path(&self) -> (&Path, bool) {
        let (default_path, service) = (Path::new(SOCKET_DEFAULT), Path::new(SOCKET_OF_SERVICE));
        match self {
            Self::Named(path) => (path, true),
            Self::Unnamed if !default_path.exists() && service.exists() => (service, true),
            Self::Unnamed => (default_path, false),
        }
    }
}

/// The reason why there is no answer, printed as one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminRequestError {
    /// No server listens on the socket.
    #[error("Node is not running! (nobody answers on {}; another socket: --socket PATH)", .0.display())]
    NotRunning(PathBuf),
    /// Another user listens on a socket that was not named.
    #[error("the server on {} runs as user {}, not as this one: to trust it, name the socket (--socket PATH)", .0.display(), .1)]
    Foreign(PathBuf, u32),
    /// The socket is another user's.
    #[error("only root and the user of the server may open {}: run kv-admin as one of them (sudo kv-admin)", .0.display())]
    NotAllowed(PathBuf),
    /// An error of the system.
    #[error("cannot talk to the server on {}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// The command does not fit into a frame.
    #[error("the command {0}")]
    BadRequest(BadFrame),
    /// The bytes that came are no answer.
    #[error("the server's answer {0}: {VERSION_HINT}")]
    BadAnswer(BadFrame),
    /// No answer came in time.
    #[error("the server's answer did not come in time: {VERSION_HINT}")]
    Late,
}

/// As [`ask`]; [`WAITS_FOR_START`] also waits for the start of the server.
///
/// # Errors
/// [`AdminRequestError`].
pub(crate) fn ask_when_started(
    socket: &SocketChoice,
    request: &AdminRequest,
) -> Result<AdminAnswer, AdminRequestError> {
    let waits = request.args.first().is_some_and(|arg| arg.replace('_', "-") == WAITS_FOR_START);
    for _ in 0..if waits { STARTS_MAX } else { 0 } {
        match ask(socket, request) {
            Err(AdminRequestError::NotRunning(_)) => std::thread::sleep(START_POLL),
            other => return other,
        }
    }
    ask(socket, request)
}

/// Sends a command and waits for its answer.
///
/// # Errors
/// [`AdminRequestError`].
fn ask(socket: &SocketChoice, request: &AdminRequest) -> Result<AdminAnswer, AdminRequestError> {
    let (socket, is_trusted) = socket.path();
    ask_at(socket, is_trusted, request)
}

/// As [`ask`], on this socket; one that is not trusted must be of this user or of root.
fn ask_at(socket: &Path, is_trusted: bool, request: &AdminRequest) -> Result<AdminAnswer, AdminRequestError> {
    let frame = request.encode().map_err(AdminRequestError::BadRequest)?;
    let stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AdminRequestError::NotRunning(socket.to_owned()),
        io::ErrorKind::PermissionDenied => AdminRequestError::NotAllowed(socket.to_owned()),
        _ => AdminRequestError::Io(socket.to_owned(), error),
    })?;
    // Before the first byte: a request may hold a password.
    if let (false, Some(user)) =
        (is_trusted, foreign_user(&stream).map_err(|error| AdminRequestError::Io(socket.to_owned(), error))?)
    {
        return Err(AdminRequestError::Foreign(socket.to_owned(), user));
    }
    let exchanged = exchange(&stream, &frame).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AdminRequestError::Late,
        io::ErrorKind::UnexpectedEof => AdminRequestError::BadAnswer(BadFrame::Short),
        _ => AdminRequestError::Io(socket.to_owned(), error),
    })?;
    exchanged.map_err(AdminRequestError::BadAnswer)
}

/// The user who listens, unless that is this one or root.
fn foreign_user(stream: &UnixStream) -> io::Result<Option<u32>> {
    let user = rustix::net::sockopt::socket_peercred(stream)?.uid;
    Ok(Some(user).filter(|user| !user.is_root() && *user != rustix::process::geteuid()).map(|user| user.as_raw()))
}

fn exchange(mut stream: &UnixStream, frame: &[u8]) -> io::Result<Result<AdminAnswer, BadFrame>> {
    stream.set_write_timeout(Some(REQUEST_TIME_MAX))?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    stream.write_all(frame)?;
    let mut bar: Option<ProgressBar> = None;
    loop {
        match read_reply(&mut stream)? {
            Ok(AdminReply::Progress(progress)) => bar.get_or_insert_default().show(&progress),
            Ok(AdminReply::Answer(answer)) => return Ok(Ok(answer)),
            Err(bad) => return Ok(Err(bad)),
        }
    }
}

/// Reads one frame. It allocates no more than the bytes received, whatever the length says.
fn read_reply(from: &mut impl Read) -> io::Result<Result<AdminReply, BadFrame>> {
    let mut prefix = [0; LENGTH_BYTES];
    from.read_exact(&mut prefix)?;
    let length = match body_length(prefix, ANSWER_BYTES_MAX) {
        Ok(length) => length,
        Err(bad) => return Ok(Err(bad)),
    };
    let mut body = Vec::new();
    from.take(length as u64).read_to_end(&mut body)?;
    Ok(if body.len() < length { Err(BadFrame::Short) } else { AdminReply::decode(&body) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    fn request(args: &[&str]) -> AdminRequest {
        AdminRequest { args: args.iter().map(|&arg| arg.to_owned()).collect(), progress: true, ..Default::default() }
    }

    /// Asks a server that sends these bytes after it has read a request; returns the outcome and that request.
    fn asked(args: &[&str], sent: Vec<u8>) -> (Result<AdminAnswer, AdminRequestError>, AdminRequest) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut prefix = [0; LENGTH_BYTES];
            stream.read_exact(&mut prefix).unwrap();
            let mut body = vec![0; body_length(prefix, 1000).unwrap()];
            stream.read_exact(&mut body).unwrap();
            stream.write_all(&sent).unwrap();
            AdminRequest::decode(&body).unwrap()
        });
        let outcome = ask_at(&path, false, &request(args));
        (outcome, server.join().unwrap())
    }

    #[test]
    fn a_missing_server_is_reported_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join("left.sock");
        drop(UnixListener::bind(&left).unwrap());
        for socket in [left, dir.path().join("none.sock")] {
            let line = ask(&SocketChoice::Named(socket), &request(&["ping"])).unwrap_err().to_string();
            assert!(line.starts_with("Node is not running! ") && !line.contains('\n'), "{line}");
        }
    }

    const LISTENER: &str = "LARDER_TEST_LISTENER";

    /// The other user of the next test: this program again, as the user `nobody`.
    #[test]
    fn listener_of_another_user() {
        let Some(path) = std::env::var_os(LISTENER) else { return };
        let listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        // The test that began this program may have ended.
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(30));
            std::process::exit(1);
        });
        let mut received = Vec::new();
        let _ = listener.accept().unwrap().0.read_to_end(&mut received);
        assert_eq!(received, b"", "a request came");
    }

    #[test]
    fn a_socket_of_another_user_in_the_current_folder_once_got_a_password() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can start a program of another user");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let (path, program) = (dir.path().join("admin.sock"), dir.path().join("other"));
        // The other user must reach the file.
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut other = Command::new(&program);
        other.args(["--exact", "client::tests::listener_of_another_user"]).env(LISTENER, &path).uid(65534).gid(65534);
        let mut other = other.stdout(Stdio::null()).spawn().unwrap();
        let secret = request(&["security", "add-user", "u", "password=p"]);
        let refused = (0..500).find_map(|_| match ask_at(&path, false, &secret) {
            Err(AdminRequestError::NotRunning(_)) => {
                std::thread::sleep(Duration::from_millis(20));
                None
            }
            other => Some(other),
        });
        let refused = refused.expect("it listens").unwrap_err().to_string();
        assert!(refused.contains("runs as user 65534"), "{refused}");
        assert!(other.wait().unwrap().success(), "nothing was sent");
    }

    #[test]
    fn progress_comes_before_the_answer() {
        let progress = |percent| larder_kv_admin::progress_bar::Progress { seconds: 1.5, percent, text: "half".into() };
        let answer = AdminAnswer::done("done");
        let frames = [
            AdminReply::Progress(progress(Some(42))),
            AdminReply::Progress(progress(None)),
            AdminReply::Answer(answer.clone()),
        ];
        let (outcome, received) = asked(&["export", "/d"], frames.iter().flat_map(AdminReply::encode).collect());
        assert_eq!(outcome.unwrap(), answer);
        assert_eq!(received, request(&["export", "/d"]));
    }

    #[test]
    fn an_answer_that_cannot_be_used_is_one_line() {
        const OLD: &[u8] = b"\0\0\0\x28{\"stdout\":\"pong\\n\",\"stderr\":\"\",\"exit\":0}";
        for (sent, line) in [
            (&b""[..], "the server's answer broke off: does it have the version of this kv-admin?"),
            (b"\0\0\0\x09{", "the server's answer broke off: does it have the version of this kv-admin?"),
            (OLD, "the server's answer cannot be read: does it have the version of this kv-admin?"),
            (
                &[0xff; 4],
                "the server's answer has 4294967295 bytes, more than 67108864: does it have the version of this kv-admin?",
            ),
        ] {
            let (outcome, _) = asked(&["ping"], sent.to_vec());
            assert_eq!(outcome.unwrap_err().to_string(), line);
        }
    }

    #[test]
    fn a_server_that_closes_the_socket_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || drop(listener.accept().unwrap()));
        let problem = ask(&SocketChoice::Named(path), &request(&["ping"])).unwrap_err().to_string();
        assert!(problem.contains("broke off") || problem.starts_with("cannot talk to the server"), "{problem}");
        server.join().unwrap();
    }

    #[test]
    fn a_command_that_is_too_long_is_not_sent() {
        let long = request(&[&"x".repeat(larder_kv_admin::frame::REQUEST_BYTES_MAX)]);
        let line = ask(&SocketChoice::Named("/no/such/socket".into()), &long).unwrap_err().to_string();
        assert_eq!(line, "the command has 1048632 bytes, more than 1048576");
    }
}
