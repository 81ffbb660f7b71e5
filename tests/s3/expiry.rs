//! Lifecycle rules that expire objects, and a disk that fills up.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{Home, LarderNode, SplitMix64, TestEngine, element, figure};

/// The longest time until the lifecycle worker has removed expired objects.
const EXPIRED_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn the_lifecycle_worker_removes_expired_objects() {
    let node = LarderNode::s3(&["--durability", "buffered", "--s3-lifecycle-interval", "500ms"]);
    let mut s3 = node.s3_admin();
    s3.put("/aging", "").expect(200);
    for key in ["logs/one", "logs/two", "kept"] {
        s3.put(&format!("/aging/{key}"), key).expect(200);
    }
    let rules = "<LifecycleConfiguration><Rule><ID>past</ID><Filter><Prefix>logs/</Prefix></Filter><Status>Enabled</Status>\
                 <Expiration><Date>2020-01-01T00:00:00Z</Date></Expiration></Rule></LifecycleConfiguration>";
    s3.call("PUT", "/aging?lifecycle", &[], rules).expect(200);
    let deadline = Instant::now() + EXPIRED_WITHIN;
    while s3.get("/aging/logs/one").status != 404 || s3.get("/aging/logs/two").status != 404 {
        assert!(Instant::now() < deadline, "expired objects are still there\n{}", node.log());
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(s3.get("/aging/kept").expect(200).text(), "kept");
    let listed = s3.get("/aging").expect(200).text();
    assert_eq!(element(&listed, "Key"), Some("kept"), "{listed}");
}

/// A small tmpfs, unmounted with its value.
struct SmallFilesystem<'a>(&'a Path);

impl<'a> SmallFilesystem<'a> {
    fn mounted(at: &'a Path) -> Option<Self> {
        std::fs::create_dir_all(at).expect("a directory can be made");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=224m", "larder-test"]).arg(at);
        mount.output().is_ok_and(|done| done.status.success()).then_some(Self(at))
    }
}

impl Drop for SmallFilesystem<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).output();
    }
}

#[test]
fn a_put_on_a_full_disk_is_refused_and_leaves_no_partial_object() {
    if !TestEngine::is_local_for("a disk of its own that is full") {
        return;
    }
    let home = Home::new();
    let data = home.data();
    let Some(_small) = SmallFilesystem::mounted(&data) else {
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    let mut node = LarderNode::start_in(home, &["--s3", "127.0.0.1:0", "--durability", "buffered"]);
    let mut s3 = node.s3_admin();
    s3.put("/full", "").expect(200);
    let body = SplitMix64::new(1).bytes(16 * 1024 * 1024);
    let mut stored = 0;
    let refused = loop {
        let answer = s3.put(&format!("/full/{stored}"), body.clone());
        if answer.status != 200 {
            break answer;
        }
        stored += 1;
        assert!(stored < 20, "the disk is never full");
    };
    assert!([503, 507].contains(&refused.status), "{} {}", refused.status, refused.text());
    s3.get(&format!("/full/{stored}")).expect(404);
    for number in 0..stored {
        assert!(s3.get(&format!("/full/{number}")).expect(200).body == body, "object {number}");
        s3.delete(&format!("/full/{number}")).expect(204);
    }
    s3.put("/full/again", body.clone()).expect(200);
    assert!(s3.get("/full/again").expect(200).body == body);
    assert_eq!(node.terminate().code, Some(0));
    figure("S3: full disk", &format!("{}, {stored} objects whole, room again after deleting", refused.status));
}
