//! Export and import over the memory store, and clients that hang up during them.

use std::collections::BTreeMap;

use larder_kv_admin::frame::SeenFolder;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::super::is_transferring;
use super::super::socket::AdminSocket;
use super::*;

/// One test at a time: a process runs one transfer at a time.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test]
async fn an_import_brings_everything_of_another_server() {
    let _turn = TURN.lock().await;
    let (source, other, dir) = (node().await, node().await, tempfile::tempdir().unwrap());
    let dir = dir.path().join("export");
    let dir = dir.to_str().unwrap();
    source.run("bucket-type create t '{\"props\":{\"n_val\":2}}'").await;
    source.run("s3 user create ann@example.com Ann").await;
    source.run("test").await;
    let exported = source.run(&format!("export {dir}")).await;
    assert!(exported.exit == 0 && exported.stdout.starts_with(&format!("exported into {dir} as ")), "{exported:?}");
    let imported = other.run(&format!("import {dir}")).await;
    assert_eq!(imported.stderr, "");
    assert!(imported.stdout.contains("verified: counts and checksums are those of the export\n"), "{imported:?}");
    assert_eq!(other.run("s3 user list").await, source.run("s3 user list").await);
    assert_eq!(other.run("bucket-type list").await.stdout, "default (active)\nt (not active)\n");
    other.run("test").await;
    let differs = other.run(&format!("import {dir} --verify")).await;
    assert!(
        differs.exit == 0 || differs.stderr.starts_with("what is there is not what was exported:\n"),
        "{differs:?}"
    );
}

#[tokio::test]
async fn a_transfer_with_wrong_arguments_is_refused() {
    let _turn = TURN.lock().await;
    let node = node().await;
    let usage = "! Usage: kv-admin export <directory> [--verify]\n";
    for (line, answer) in [
        ("export a b", usage),
        ("export --verify", usage),
        ("import a", "! give the whole path of the directory: it is one of the server's machine\n"),
        ("import /no/such/place", "! there is no export in /no/such/place\n"),
        (
            "export /proc/none",
            "! /proc/none: No such file or directory (os error 2)\n! give the same command again to go on\n",
        ),
    ] {
        node.check(&format!("$ {line}\n{answer}")).await;
    }
}

/// The service has a `/tmp` of its own: the export was there, and its user found nothing.
#[tokio::test]
async fn an_export_into_a_folder_of_the_service_alone_once_was_lost() {
    let _turn = TURN.lock().await;
    let (node, dir) = (node().await, tempfile::tempdir().unwrap());
    let place = dir.path().join("sub/export");
    let arg = place.to_str().unwrap().to_owned();
    let ours = SeenFolder::nearest(&place).unwrap();
    assert_eq!(ours.path, dir.path());
    let request = |folder: SeenFolder| AdminRequest {
        args: vec!["export".into(), arg.clone()],
        folders: BTreeMap::from([(arg.clone(), folder)]),
        ..AdminRequest::default()
    };
    let theirs = SeenFolder { inode: ours.inode + 1, ..ours.clone() };
    let hidden = SeenFolder { path: place.clone(), ..ours.clone() };
    for other in [theirs, hidden] {
        let refused = node.run_request(&request(other)).await;
        assert!(refused.exit == 1 && refused.stderr.contains("is another folder for the server"), "{refused:?}");
        assert!(!dir.path().join("sub").exists());
    }
    let done = node.run_request(&request(ours)).await;
    assert_eq!(done.exit, 0, "{done:?}");
}

#[tokio::test]
async fn a_hangup_ends_an_export_and_lets_another_begin() {
    let _turn = TURN.lock().await;
    let (dir, node) = (tempfile::tempdir().unwrap(), node().await);
    let path = dir.path().join("admin.sock");
    let socket = AdminSocket::bind(&path).await.unwrap();
    let (down, shutdown) = watch::channel(false);
    let serving = tokio::spawn(socket.serve(node.context(), shutdown));
    let target = dir.path().join("export");
    // The test holds the folder's lock, so the command waits for it.
    std::fs::create_dir(&target).unwrap();
    let lock = std::fs::File::create(target.join("lock")).unwrap();
    lock.lock().unwrap();
    let args = vec!["export".to_owned(), target.to_str().unwrap().to_owned()];
    let request = AdminRequest { args, progress: true, ..AdminRequest::default() };
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream.write_all(&request.encode().unwrap()).await.unwrap();
    while !is_transferring() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(node.run("export /tmp/x").await.stderr, "another export or import is running\n");
    drop(stream);
    while is_transferring() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    drop(lock);
    down.send_replace(true);
    serving.await.unwrap();
}
