//! The frames on the admin socket, as bytes: `kv-admin` and the server use them, and each does its own IO on the socket.
//!
//! ```text
//! request    length u32 big-endian | JSON object: args: [text], files: {arg: text}, unreadable: {arg: reason}, progress: bool,
//!            folders: {arg: {path, device, inode}}
//! progress   length u32 big-endian | JSON object: progress: {seconds, percent or null, text}
//! answer     length u32 big-endian | JSON object: answer: {stdout, stderr, exit}
//! ```
//! One connection carries one command. Progress comes before the answer, any number of times, and only if the request has
//! `progress` and the command reports it. A client that asked for progress and hangs up ends such a command.
//!
//! The format has no version number: a frame of another format is [`BadFrame::Malformed`], and both sides say so in a line.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::progress_bar::Progress;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// Bytes of the length, which comes first in a frame.
pub const LENGTH_BYTES: usize = 4;
/// Longest request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 1024 * 1024;
/// Most arguments of a request.
pub const ARGS_MAX: usize = 1024;
/// Longest progress or answer, in bytes.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A frame that cannot be sent or read. Its text follows a subject: "the request", "the answer".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// It ends before its length.
    #[error("broke off")]
    Short,
    /// It exceeds the bound of its kind.
    #[error("has {bytes} bytes, more than {max}")]
    Long {
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// It has more than [`ARGS_MAX`] arguments.
    #[error("has {0} words, more than {ARGS_MAX}")]
    TooManyArgs(usize),
    /// It has another format.
    #[error("cannot be read")]
    Malformed,
}

/// One command for the server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AdminRequest {
    /// The arguments after `kv-admin`.
    pub args: Vec<String>,
    /// The content of FILE for each argument `@FILE`. The command decides which arguments may name files; others may begin
    /// with `@`, too.
    pub files: BTreeMap<String, String>,
    /// The reason why FILE cannot be read, for each other argument `@FILE`.
    pub unreadable: BTreeMap<String, String>,
    /// Whether the client shows progress.
    pub progress: bool,
    /// The nearest folder that exists for the client, for each argument that is a whole path. A service may see other
    /// folders there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub folders: BTreeMap<String, SeenFolder>,
}

/// A folder, as one process sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenFolder {
    /// Its path.
    pub path: PathBuf,
    /// The device of its file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

impl SeenFolder {
    /// The nearest existing folder on the way to this path; `None`: the process may not look.
    #[must_use]
    pub fn nearest(path: &Path) -> Option<Self> {
        let exists = |error: &io::Error| error.kind() != io::ErrorKind::NotFound;
        for folder in path.ancestors() {
            match fs::metadata(folder) {
                Ok(metadata) => {
                    return Some(Self { path: folder.to_owned(), device: metadata.dev(), inode: metadata.ino() });
                }
                Err(error) if exists(&error) => return None,
                Err(_) => {}
            }
        }
        None
    }
}

impl AdminRequest {
    /// The frame.
    ///
    /// # Errors
    /// [`BadFrame::Long`]: the body exceeds [`REQUEST_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, BadFrame> {
        framed(self, REQUEST_BYTES_MAX)
    }

    /// The request in the body of a frame.
    ///
    /// # Errors
    /// [`BadFrame::Malformed`] or [`BadFrame::TooManyArgs`].
    pub fn decode(body: &[u8]) -> Result<Self, BadFrame> {
        let json = decode_object(body)?;
        let args = json.get("args").and_then(Json::as_array).map_or(0, Vec::len);
        if args > ARGS_MAX {
            return Err(BadFrame::TooManyArgs(args));
        }
        typed(json)
    }
}

/// One frame from the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AdminReply {
    /// The progress of a command that runs.
    Progress(Progress),
    /// The end of the command.
    Answer(AdminAnswer),
}

impl AdminReply {
    /// The frame. A failure that says so replaces an answer longer than [`ANSWER_BYTES_MAX`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let too_long = |bad| Self::Answer(AdminAnswer::failed(format!("the answer {bad}"))).encode();
        framed(self, ANSWER_BYTES_MAX).unwrap_or_else(too_long)
    }

    /// The reply in the body of a frame.
    ///
    /// # Errors
    /// [`BadFrame::Malformed`].
    pub fn decode(body: &[u8]) -> Result<Self, BadFrame> {
        typed(decode_object(body)?)
    }
}

/// Text for standard output, text for standard error, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AdminAnswer {
    /// For standard output.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
    /// 0 when the command succeeded, 1 when it did not.
    pub exit: u8,
}

impl AdminAnswer {
    /// Success, with this text.
    #[must_use]
    pub fn done(text: impl Into<String>) -> Self {
        Self { stdout: lines(text.into()), ..Self::default() }
    }

    /// Failure, with this text as the reason.
    #[must_use]
    pub fn failed(text: impl Into<String>) -> Self {
        Self { stderr: lines(text.into()), exit: 1, ..Self::default() }
    }

    /// A negative answer: on standard output, with exit code 1.
    #[must_use]
    pub fn negative(text: impl Into<String>) -> Self {
        Self { exit: 1, ..Self::done(text) }
    }

    /// The usage line of a command, as a failure.
    #[must_use]
    pub fn usage(usage: &str) -> Self {
        Self::failed(format!("Usage: kv-admin {usage}"))
    }

    /// Success, with a value as JSON on one line.
    #[must_use]
    pub fn json(value: &serde_json::Value) -> Self {
        Self::done(value.to_string())
    }
}

fn lines(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The length of the body that follows these bytes.
///
/// # Errors
/// [`BadFrame::Long`]: it is longer than `max`.
pub fn body_length(prefix: [u8; LENGTH_BYTES], max: usize) -> Result<usize, BadFrame> {
    let bytes = usize::try_from(u32::from_be_bytes(prefix)).unwrap_or(usize::MAX);
    if bytes > max { Err(BadFrame::Long { bytes, max }) } else { Ok(bytes) }
}

/// A whole frame: the length and the body.
fn framed(body: &impl Serialize, max: usize) -> Result<Vec<u8>, BadFrame> {
    let body = serde_json::to_vec(body).map_err(|_| BadFrame::Malformed)?;
    match u32::try_from(body.len()) {
        Ok(length) if body.len() <= max => Ok([&length.to_be_bytes()[..], &body].concat()),
        _ => Err(BadFrame::Long { bytes: body.len(), max }),
    }
}

fn decode_object(body: &[u8]) -> Result<Map<String, Json>, BadFrame> {
    serde_json::from_slice(body).map_err(|_| BadFrame::Malformed)
}

/// The frame of an object. Numbers of a [`Json`] keep all digits; those read from text directly lose some.
fn typed<T: DeserializeOwned>(object: Map<String, Json>) -> Result<T, BadFrame> {
    serde_json::from_value(Json::Object(object)).map_err(|_| BadFrame::Malformed)
}

#[cfg(test)]
mod tests;
