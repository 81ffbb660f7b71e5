//! Commands of `kv-admin` over the server's admin socket.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use larder_kv_admin::frame::{ANSWER_BYTES_MAX, AdminAnswer, AdminReply, AdminRequest, LENGTH_BYTES, body_length};

/// The longest wait for an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// Runs a command of `kv-admin`.
///
/// # Errors
///
/// When the socket does not answer, or the command fails.
pub(crate) fn run_command(socket: &Path, args: &[&str]) -> Result<()> {
    let answer = ask(socket, args).with_context(|| format!("asking {}", socket.display()))?;
    if answer.exit != 0 {
        bail!("`{}` failed: {}{}", args.join(" "), answer.stdout, answer.stderr);
    }
    Ok(())
}

fn ask(socket: &Path, args: &[&str]) -> Result<AdminAnswer> {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    stream.write_all(&AdminRequest { args, ..AdminRequest::default() }.encode()?)?;
    loop {
        let mut prefix = [0; LENGTH_BYTES];
        stream.read_exact(&mut prefix)?;
        let mut body = vec![0; body_length(prefix, ANSWER_BYTES_MAX)?];
        stream.read_exact(&mut body)?;
        if let AdminReply::Answer(answer) = AdminReply::decode(&body)? {
            return Ok(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_command_fails_with_the_servers_text() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut prefix = [0; LENGTH_BYTES];
            stream.read_exact(&mut prefix).unwrap();
            let mut body = vec![0; body_length(prefix, 1_000).unwrap()];
            stream.read_exact(&mut body).unwrap();
            stream.write_all(&AdminReply::Answer(AdminAnswer::failed("no more types")).encode()).unwrap();
            AdminRequest::decode(&body).unwrap().args
        });
        let error = run_command(&socket, &["security", "enable"]).unwrap_err().to_string();
        assert!(error.contains("security enable") && error.contains("no more types"), "{error}");
        assert_eq!(server.join().unwrap(), ["security", "enable"]);
    }
}
