//! The socket in front of a gateway: a malformed request gets an answer, and other clients are served at the same time.

use larder_kv_admin::frame::AdminReply;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::super::socket::AdminSocket;
use super::*;

async fn ask(path: &std::path::Path, bytes: &[u8]) -> AdminAnswer {
    let mut stream = UnixStream::connect(path).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let length = usize::try_from(u32::from_be_bytes(answer[..4].try_into().unwrap())).unwrap();
    assert_eq!(answer.len(), 4 + length);
    match AdminReply::decode(&answer[4..]) {
        Ok(AdminReply::Answer(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

fn request(word: &str) -> Vec<u8> {
    AdminRequest { args: vec![word.to_owned()], ..AdminRequest::default() }.encode().unwrap()
}

#[tokio::test]
async fn every_malformed_request_gets_an_answer() {
    const OTHER_VERSION: &str = concat!(
        "the request cannot be read: does kv-admin have the version of this server, ",
        env!("CARGO_PKG_VERSION"),
        "?\n"
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("admin.sock");
    let socket = AdminSocket::bind(&path).await.unwrap();
    let (down, shutdown) = watch::channel(false);
    let serving = tokio::spawn(socket.serve(node().await.context(), shutdown));

    let silent = UnixStream::connect(&path).await.unwrap();
    for (bytes, stderr) in [
        (&request("ping")[..], ""),
        (b"", "the request broke off\n"),
        (b"\0\0\0\x09[\"ping\"]", "the request broke off\n"),
        (b"GET / HTTP/1.1\r\n\r\n", "the request has 1195725856 bytes, more than 1048576\n"),
        (b"\0\0\0\x08[\"ping\"]", OTHER_VERSION),
        (&request("nonsense"), "nonsense is not a command; `kv-admin help` lists them\n"),
    ] {
        let answer = ask(&path, bytes).await;
        assert_eq!((answer.stderr.as_str(), answer.exit), (stderr, u8::from(!stderr.is_empty())));
    }
    drop(silent);
    down.send_replace(true);
    serving.await.unwrap();
    assert!(!path.exists());
}
