//! The client's end of the admin socket.
//!
//! ```text
//! request    length u32 big-endian | JSON array of strings
//! progress   length u32 big-endian | JSON object: progress: {seconds, percent or null, text}; only after `--progress`
//! answer     length u32 big-endian | JSON object: stdout, stderr, exit
//! ```

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_progress_bar::{Progress, ProgressBar};
use serde_json::Value as Json;

/// Commands that take long: for them the client asks for progress.
const LONG_COMMANDS: &[&str] = &["export", "import"];
/// The argument that asks for progress.
const PROGRESS_FLAG: &str = "--progress";
/// Longest wait for a frame: longer than the server stays silent.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(150);
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// The pause between two tries to reach a starting server, and their number: a minute in all.
const START_POLL: Duration = Duration::from_millis(200);
const STARTS_MAX: u32 = 300;
/// Longest request that the server takes, in bytes.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;
/// Longest answer that the client takes, in bytes.
const ANSWER_BYTES_MAX: u32 = 64 * 1024 * 1024;

/// The server's answer: two texts to print, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerAnswer {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) exit: u8,
}

impl ServerAnswer {
    pub(crate) fn done(stdout: String) -> Self {
        Self { stdout, stderr: String::new(), exit: 0 }
    }

    pub(crate) fn failed(line: &str) -> Self {
        Self { stdout: String::new(), stderr: format!("{line}\n"), exit: 1 }
    }
}

/// One frame from the server.
#[derive(Debug, Clone, PartialEq)]
enum AnswerFrame {
    Progress(Progress),
    Answer(ServerAnswer),
}

/// The reason why there is no answer, printed as one line.
#[derive(Debug)]
pub(crate) enum AdminRequestError {
    /// No server listens on the socket.
    NotRunning(PathBuf),
    /// An error of the system.
    Io(PathBuf, io::Error),
    /// The request exceeds [`REQUEST_BYTES_MAX`].
    TooLong(usize),
    /// The bytes that came are no answer.
    NoAnswer(&'static str),
}

impl fmt::Display for AdminRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning(socket) => {
                write!(
                    f,
                    "Node is not running! (nobody answers on {}; another socket: --socket PATH)",
                    socket.display()
                )
            }
            Self::Io(socket, error) => write!(f, "cannot talk to the server on {}: {error}", socket.display()),
            Self::TooLong(bytes) => write!(f, "the command has {bytes} bytes, more than {REQUEST_BYTES_MAX}"),
            Self::NoAnswer(what) => write!(f, "the server's answer {what}: does it have the version of this kv-admin?"),
        }
    }
}

/// As [`ask`]; a command that waits for a service also waits for the start of the server.
///
/// # Errors
/// [`AdminRequestError`].
pub(crate) fn ask_when_started(socket: &Path, args: &[String]) -> Result<ServerAnswer, AdminRequestError> {
    let waits = args.first().is_some_and(|arg| arg.replace('_', "-") == "wait-for-service");
    for _ in 0..if waits { STARTS_MAX } else { 0 } {
        match ask(socket, args) {
            Err(AdminRequestError::NotRunning(_)) => std::thread::sleep(START_POLL),
            other => return other,
        }
    }
    ask(socket, args)
}

/// Sends a command and waits for its answer.
///
/// # Errors
/// [`AdminRequestError`].
fn ask(socket: &Path, args: &[String]) -> Result<ServerAnswer, AdminRequestError> {
    let long = args.first().is_some_and(|arg| LONG_COMMANDS.contains(&arg.as_str()));
    let asked: Vec<&str> = args.iter().map(String::as_str).chain(long.then_some(PROGRESS_FLAG)).collect();
    let body = serde_json::json!(asked).to_string();
    if body.len() > REQUEST_BYTES_MAX {
        return Err(AdminRequestError::TooLong(body.len()));
    }
    let stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AdminRequestError::NotRunning(socket.to_owned()),
        _ => AdminRequestError::Io(socket.to_owned(), error),
    })?;
    exchange(&stream, body.as_bytes()).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AdminRequestError::NoAnswer("did not come in time"),
        io::ErrorKind::UnexpectedEof => AdminRequestError::NoAnswer("broke off"),
        _ => AdminRequestError::Io(socket.to_owned(), error),
    })?
}

fn exchange(mut stream: &UnixStream, body: &[u8]) -> io::Result<Result<ServerAnswer, AdminRequestError>> {
    stream.set_write_timeout(Some(REQUEST_TIME_MAX))?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    let length = u32::try_from(body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&length.to_be_bytes(), body].concat())?;
    let mut bar = ProgressBar::new();
    loop {
        match read_frame(&mut stream)? {
            Ok(AnswerFrame::Progress(progress)) => bar.show(&progress),
            Ok(AnswerFrame::Answer(answer)) => return Ok(Ok(answer)),
            Err(problem) => return Ok(Err(problem)),
        }
    }
}

/// Reads one frame. It allocates no more than the bytes received, whatever the length says.
fn read_frame(from: &mut impl Read) -> io::Result<Result<AnswerFrame, AdminRequestError>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > ANSWER_BYTES_MAX {
        return Ok(Err(AdminRequestError::NoAnswer("is too long")));
    }
    let mut body = Vec::new();
    from.take(length.into()).read_to_end(&mut body)?;
    if body.len() < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(decode(&body).ok_or(AdminRequestError::NoAnswer("cannot be read")))
}

fn decode(body: &[u8]) -> Option<AnswerFrame> {
    let json: Json = serde_json::from_slice(body).ok()?;
    if let Some(progress) = json.get("progress") {
        let seconds = progress.get("seconds")?.as_f64()?;
        let percent = progress.get("percent")?.as_u64().and_then(|percent| percent.try_into().ok());
        let text = progress.get("text")?.as_str()?.to_owned();
        return Some(AnswerFrame::Progress(Progress { seconds, percent, text }));
    }
    let text = |name: &str| json.get(name)?.as_str().map(str::to_owned);
    let exit = json.get("exit")?.as_u64()?.try_into().ok()?;
    Some(AnswerFrame::Answer(ServerAnswer { stdout: text("stdout")?, stderr: text("stderr")?, exit }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_missing_server_is_reported_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join("left.sock");
        drop(UnixListener::bind(&left).unwrap());
        for socket in [left, dir.path().join("none.sock")] {
            let line = ask(&socket, &["ping".into()]).unwrap_err().to_string();
            assert!(line.starts_with("Node is not running! ") && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn a_command_and_its_answer_cross_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4 + 8];
            stream.read_exact(&mut request).unwrap();
            let answer = br#"{"stdout":"pong\n","stderr":"","exit":0}"#;
            stream.write_all(&[&u32::try_from(answer.len()).unwrap().to_be_bytes(), &answer[..]].concat()).unwrap();
            request
        });
        assert_eq!(ask(&path, &["ping".into()]).unwrap(), ServerAnswer::done("pong\n".into()));
        assert_eq!(&server.join().unwrap(), b"\0\0\0\x08[\"ping\"]");
    }

    #[test]
    fn progress_comes_before_the_answer_of_a_long_command() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let args = br#"["export","/d","--progress"]"#;
            let mut request = [0; 4 + 28];
            stream.read_exact(&mut request).unwrap();
            for frame in [
                r#"{"progress":{"seconds":1.5,"percent":42,"text":"half"}}"#,
                r#"{"progress":{"seconds":2,"percent":null,"text":"who knows"}}"#,
                r#"{"stdout":"done\n","stderr":"","exit":0}"#,
            ] {
                let length = u32::try_from(frame.len()).unwrap().to_be_bytes();
                stream.write_all(&[&length, frame.as_bytes()].concat()).unwrap();
            }
            request[4..] == args[..]
        });
        let args = ["export".to_owned(), "/d".to_owned()];
        assert_eq!(ask(&path, &args).unwrap(), ServerAnswer::done("done\n".into()));
        assert!(server.join().unwrap(), "the request has no --progress");
    }

    #[test]
    fn a_server_that_closes_the_socket_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || drop(listener.accept().unwrap()));
        let problem = ask(&path, &["ping".into()]).unwrap_err().to_string();
        assert!(problem.contains("broke off") || problem.starts_with("cannot talk to the server"), "{problem}");
        server.join().unwrap();
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_decode_or_fail_without_a_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes);
            let _ = read_frame(&mut &bytes[..]);
            let framed = [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], &bytes].concat();
            let _ = read_frame(&mut &framed[..]);
        }

        #[test]
        fn an_encoded_answer_decodes_to_itself(stdout: String, stderr: String, exit: u8) {
            let body = serde_json::json!({ "stdout": stdout, "stderr": stderr, "exit": exit }).to_string();
            prop_assert_eq!(decode(body.as_bytes()), Some(AnswerFrame::Answer(ServerAnswer { stdout, stderr, exit })));
        }
    }
}
