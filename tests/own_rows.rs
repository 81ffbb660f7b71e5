//! The server's own rows — types, buckets, users, members — outlive a damaged block: any flipped bit in a table that has them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use crate::damaged_files::{DirSnapshot, FILES, is_named, is_unchanged, start};
use crate::harness::{Home, LarderNode, TestEngine, figure};

/// The bytes between two flipped bits of a table.
const FLIP_STEP: usize = 700;

/// Starts a server with a bit flipped in one of the tables that have its own rows. It serves with the type, the bucket and the
/// users that it had, or the start is refused by name and changes nothing. Returns whether it was refused, or the violation.
fn serves_with_flip(home: &Home, path: &Path, at: usize) -> Result<bool, String> {
    let copy = home.copy();
    let file = copy.data().join(path);
    let mut bytes = fs::read(&file).unwrap();
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
    let before = DirSnapshot::read(&copy.data()).unwrap();
    let violation = |what: String| format!("{} with a bit flipped at {at}: {what}", path.display());
    let data = copy.data();
    let node = match start(copy, &["--s3", "127.0.0.1:0"]) {
        Ok(node) => node,
        Err(refused) => {
            is_unchanged(&before, &data, &refused.1).map_err(violation)?;
            return is_named(&refused.1, path).map(|()| true).map_err(violation);
        }
    };
    let put = node.client().put("/types/kept/buckets/b/keys/new", "x").status;
    let object = node.s3_admin().put("/teas/new", "x").status;
    let listed = node.s3_admin().get("/").text();
    let types = node.admin().output(&["bucket-type", "list"]);
    let is_served =
        put == 204 && object == 200 && listed.contains("<Name>teas</Name>") && types.contains("kept (active)");
    is_served.then_some(false).ok_or_else(|| violation(format!("{put} {object} {listed} {types} {}", node.log())))
}

#[test]
fn no_damaged_block_of_its_own_rows_stops_the_server() {
    if !TestEngine::is_local_for(FILES) {
        return;
    }
    let mut node = LarderNode::s3(&[]);
    node.admin().active_type("kept", r#"{"props":{}}"#);
    node.s3_admin().put("/teas", "").expect(200);
    for number in 0..40 {
        node.client().put(&format!("/types/kept/buckets/b/keys/{number}"), vec![b'x'; 300]).expect(204);
        node.s3_admin().put(&format!("/teas/{number}"), vec![b'x'; 300]).expect(200);
    }
    for _ in 0..2 {
        assert_eq!(node.terminate().code, Some(0));
        node.restart();
    }
    assert_eq!(node.terminate().code, Some(0));
    let home = node.into_home();
    let tree = DirSnapshot::read(&home.data()).unwrap();
    let is_own = |path: &Path| ["rows/wide/tables", "rows/mirror/tables"].iter().any(|folder| path.starts_with(folder));
    let (mut flips, mut refused, mut failed) = (0, 0, Vec::new());
    for (path, bytes) in tree.files().filter(|(path, _)| is_own(path)) {
        for at in (100..bytes.len()).step_by(FLIP_STEP) {
            flips += 1;
            match serves_with_flip(&home, path, at) {
                Ok(was_refused) => refused += usize::from(was_refused),
                Err(what) => failed.push(what),
            }
        }
    }
    figure("bits flipped in tables of the server's own rows", &format!("{flips}, starts refused {refused}"));
    assert!(failed.is_empty(), "{} of {flips} failed\n{}", failed.len(), failed.join("\n"));
    assert!(flips > 10 && refused < flips / 2, "of {flips} starts {refused} were refused");
}
