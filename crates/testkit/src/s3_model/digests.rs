//! Digests as S3 writes them.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};
use sha2::Sha256;

pub(super) fn base64_md5(bytes: &[u8]) -> String {
    STANDARD.encode(Md5::digest(bytes))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn md5_hex(bytes: &[u8]) -> String {
    hex(&Md5::digest(bytes))
}

pub(super) fn base64_sha256(bytes: &[u8]) -> String {
    STANDARD.encode(Sha256::digest(bytes))
}
