//! The words on the admin socket.
//!
//! ```text
//! request    length u32 big-endian | JSON array of strings: the words behind `kv-admin`
//! progress   length u32 big-endian | JSON object: progress: {seconds, percent or null, text}
//! answer     length u32 big-endian | JSON object: stdout, stderr, exit
//! ```
//! One connection carries one command. Progress comes before the answer, any number of times, and only to who asked for it
//! with the word `--progress`: clients that do not know of it meet an answer as ever. Who asked for progress and hangs up ends
//! the command.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Answer;
use super::progress::Report;

/// Longest request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 1024 * 1024;
/// Most words of a request.
pub const WORDS_MAX: usize = 1024;
/// Bytes taken at a time, so that a length alone costs no memory.
const CHUNK_BYTES: usize = 16 * 1024;

/// A request that could not be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// It broke off.
    #[error("the request broke off")]
    Short,
    /// It is longer than it may be.
    #[error("the request has {0} bytes, more than {REQUEST_BYTES_MAX}")]
    Long(usize),
    /// It has too many words.
    #[error("the request has {0} words, more than {WORDS_MAX}")]
    Words(usize),
    /// It is not a JSON array of strings.
    #[error("the request is not a JSON array of strings")]
    Malformed,
}

/// Reads one request to its end. Takes no more memory than bytes came.
///
/// # Errors
/// [`BadRequest`]: there is no such request in what came.
pub async fn read_request(from: &mut (impl AsyncRead + Unpin)) -> Result<Vec<String>, BadRequest> {
    let length = from.read_u32().await.map_err(|_| BadRequest::Short)?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > REQUEST_BYTES_MAX {
        return Err(BadRequest::Long(length));
    }
    let mut body = Vec::with_capacity(length.min(CHUNK_BYTES));
    let mut rest = from.take(length as u64);
    rest.read_to_end(&mut body).await.map_err(|_| BadRequest::Short)?;
    if body.len() < length { Err(BadRequest::Short) } else { decode_words(&body) }
}

/// Reads the words of a request.
///
/// # Errors
/// [`BadRequest::Malformed`] or [`BadRequest::Words`].
pub fn decode_words(body: &[u8]) -> Result<Vec<String>, BadRequest> {
    let words: Vec<String> = serde_json::from_slice(body).map_err(|_| BadRequest::Malformed)?;
    if words.len() > WORDS_MAX { Err(BadRequest::Words(words.len())) } else { Ok(words) }
}

/// Writes the answer.
///
/// # Errors
/// The other side is gone.
pub async fn write_answer(to: &mut (impl AsyncWrite + Unpin), answer: &Answer) -> std::io::Result<()> {
    write(to, &encode_answer(answer)).await?;
    to.shutdown().await
}

/// Writes how far the command has come.
///
/// # Errors
/// The other side is gone.
pub async fn write_progress(to: &mut (impl AsyncWrite + Unpin), report: &Report) -> std::io::Result<()> {
    let Report { seconds, percent, text } = report;
    let json = serde_json::json!({ "progress": { "seconds": seconds, "percent": percent, "text": text } });
    write(to, json.to_string().as_bytes()).await
}

async fn write(to: &mut (impl AsyncWrite + Unpin), body: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(body.len()).map_err(|_| std::io::ErrorKind::InvalidData)?;
    to.write_all(&length.to_be_bytes()).await?;
    to.write_all(body).await
}

/// Waits until the other side has hung up. What it still says is not listened to.
pub async fn gone(from: &mut (impl AsyncRead + Unpin)) {
    let mut unheard = [0; 64];
    while from.read(&mut unheard).await.is_ok_and(|count| count > 0) {}
}

/// Takes what is left of a malformed request: a socket closed over unread bytes would break the answer off.
///
/// # Errors
/// The other side is gone.
pub async fn skip_rest(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<u64> {
    tokio::io::copy(&mut from.take(REQUEST_BYTES_MAX as u64), &mut tokio::io::sink()).await
}

fn encode_answer(answer: &Answer) -> Vec<u8> {
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
    fn requests_that_are_none() {
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
                request(serde_json::json!(vec![""; WORDS_MAX + 1]).to_string().as_bytes()),
                BadRequest::Words(WORDS_MAX + 1),
            ),
        ] {
            assert_eq!(read(&bytes), Err(bad));
        }
    }

    proptest! {
        #[test]
        fn words_come_back(words: Vec<String>) {
            prop_assert_eq!(read(&request(serde_json::json!(words).to_string().as_bytes())), Ok(words));
        }

        #[test]
        fn any_bytes_are_words_or_refused(bytes: Vec<u8>) {
            let _ = decode_words(&bytes);
            let _ = read(&bytes);
            let _ = read(&request(&bytes));
        }

        #[test]
        fn any_answer_is_one_json_object(stdout: String, stderr: String, exit: u8) {
            let bytes = encode_answer(&Answer { stdout: stdout.clone(), stderr, exit });
            let read: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            prop_assert_eq!(read["stdout"].as_str(), Some(stdout.as_str()));
            prop_assert_eq!(read["exit"].as_u64(), Some(exit.into()));
        }
    }
}
