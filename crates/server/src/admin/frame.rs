//! The frames on the admin socket.
//!
//! ```text
//! request    length u32 big-endian | JSON array of strings: the arguments after `kv-admin`
//! progress   length u32 big-endian | JSON object: progress: {seconds, percent or null, text}
//! answer     length u32 big-endian | JSON object: stdout, stderr, exit
//! ```
//! One connection carries one command. Progress comes before the answer, any number of times, and only if the request has the
//! argument `--progress`: older clients get the answer alone. A client that asked for progress and hangs up ends the command.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::AdminAnswer;
use super::progress::ProgressReport;

/// Longest request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 1024 * 1024;
/// Most arguments of a request.
pub const ARGS_MAX: usize = 1024;
/// Bytes allocated at a time, so that a large length alone takes no memory.
const CHUNK_BYTES: usize = 16 * 1024;

/// A malformed request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// The request broke off.
    #[error("the request broke off")]
    Short,
    /// The request exceeds [`REQUEST_BYTES_MAX`].
    #[error("the request has {0} bytes, more than {REQUEST_BYTES_MAX}")]
    Long(usize),
    /// The request has more than [`ARGS_MAX`] arguments.
    #[error("the request has {0} words, more than {ARGS_MAX}")]
    TooManyArgs(usize),
    /// The request is not a JSON array of strings.
    #[error("the request is not a JSON array of strings")]
    Malformed,
}

/// Reads one request to its end. It allocates no more than the bytes received, whatever the length says.
///
/// # Errors
/// [`BadRequest`]: the bytes are no request.
pub async fn read_request(from: &mut (impl AsyncRead + Unpin)) -> Result<Vec<String>, BadRequest> {
    let length = from.read_u32().await.map_err(|_| BadRequest::Short)?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > REQUEST_BYTES_MAX {
        return Err(BadRequest::Long(length));
    }
    let mut body = Vec::with_capacity(length.min(CHUNK_BYTES));
    let mut rest = from.take(length as u64);
    rest.read_to_end(&mut body).await.map_err(|_| BadRequest::Short)?;
    if body.len() < length { Err(BadRequest::Short) } else { decode_args(&body) }
}

/// Decodes the arguments of a request.
///
/// # Errors
/// [`BadRequest::Malformed`] or [`BadRequest::TooManyArgs`].
pub fn decode_args(body: &[u8]) -> Result<Vec<String>, BadRequest> {
    let args: Vec<String> = serde_json::from_slice(body).map_err(|_| BadRequest::Malformed)?;
    if args.len() > ARGS_MAX { Err(BadRequest::TooManyArgs(args.len())) } else { Ok(args) }
}

/// Writes the answer.
///
/// # Errors
/// The client closed the connection.
pub async fn write_answer(to: &mut (impl AsyncWrite + Unpin), answer: &AdminAnswer) -> std::io::Result<()> {
    write(to, &encode_answer(answer)).await?;
    to.shutdown().await
}

/// Writes a progress report.
///
/// # Errors
/// The client closed the connection.
pub async fn write_progress(to: &mut (impl AsyncWrite + Unpin), report: &ProgressReport) -> std::io::Result<()> {
    let ProgressReport { seconds, percent, text } = report;
    let json = serde_json::json!({ "progress": { "seconds": seconds, "percent": percent, "text": text } });
    write(to, json.to_string().as_bytes()).await
}

async fn write(to: &mut (impl AsyncWrite + Unpin), body: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(body.len()).map_err(|_| std::io::ErrorKind::InvalidData)?;
    to.write_all(&length.to_be_bytes()).await?;
    to.write_all(body).await
}

/// Waits until the client hangs up, and drops what it still sends.
pub async fn wait_for_hangup(from: &mut (impl AsyncRead + Unpin)) {
    let mut unheard = [0; 64];
    while from.read(&mut unheard).await.is_ok_and(|count| count > 0) {}
}

/// Reads the rest of a malformed request: closing over unread bytes would reset the connection and lose the answer.
///
/// # Errors
/// The client closed the connection.
pub async fn skip_rest(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<u64> {
    tokio::io::copy(&mut from.take(REQUEST_BYTES_MAX as u64), &mut tokio::io::sink()).await
}

fn encode_answer(answer: &AdminAnswer) -> Vec<u8> {
    serde_json::json!({ "stdout": answer.stdout, "stderr": answer.stderr, "exit": answer.exit })
        .to_string()
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<Vec<String>, BadRequest> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { read_request(&mut &bytes[..]).await })
    }

    fn request(body: &[u8]) -> Vec<u8> {
        [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], body].concat()
    }

    #[test]
    fn malformed_requests_are_refused() {
        for (bytes, bad) in [
            (vec![], BadRequest::Short),
            (vec![0, 0], BadRequest::Short),
            (vec![0xff; 8], BadRequest::Long(0xffff_ffff)),
            (vec![0, 0, 0, 9, b'['], BadRequest::Short),
            (request(b""), BadRequest::Malformed),
            (request(b"{}"), BadRequest::Malformed),
            (request(b"[1]"), BadRequest::Malformed),
            (request(b"[\"\xff\"]"), BadRequest::Malformed),
            (request(&[b'['; 100_000]), BadRequest::Malformed),
            (
                request(serde_json::json!(vec![""; ARGS_MAX + 1]).to_string().as_bytes()),
                BadRequest::TooManyArgs(ARGS_MAX + 1),
            ),
        ] {
            assert_eq!(read(&bytes), Err(bad));
        }
    }

    proptest! {
        #[test]
        fn a_request_decodes_to_its_arguments(args: Vec<String>) {
            prop_assert_eq!(read(&request(serde_json::json!(args).to_string().as_bytes())), Ok(args));
        }

        #[test]
        fn arbitrary_bytes_decode_or_fail_without_a_panic(bytes: Vec<u8>) {
            let _ = decode_args(&bytes);
            let _ = read(&bytes);
            let _ = read(&request(&bytes));
        }

        #[test]
        fn any_answer_encodes_as_one_json_object(stdout: String, stderr: String, exit: u8) {
            let bytes = encode_answer(&AdminAnswer { stdout: stdout.clone(), stderr, exit });
            let read: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            prop_assert_eq!(read["stdout"].as_str(), Some(stdout.as_str()));
            prop_assert_eq!(read["exit"].as_u64(), Some(exit.into()));
        }
    }
}
