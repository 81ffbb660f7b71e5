//! Quotas from outside: `kv-admin` sets them, clients are refused by them, a restart keeps them.

use crate::harness::{KvAdmin, LarderNode};

fn quota(admin: &KvAdmin, words: &str) -> String {
    admin.output(&[&["s3", "quota"][..], &words.split(' ').collect::<Vec<_>>()].concat())
}

#[test]
fn a_full_bucket_refuses_clients_until_there_is_room_also_after_a_restart() {
    let node = LarderNode::s3(&[]);
    let (admin, mut client) = (node.admin(), node.s3_admin());
    client.put("/teas", "").expect(200);
    let set = quota(&admin, "set bucket teas --objects 2 --bytes 1KiB");
    assert_eq!(set, "bucket teas may hold 2 objects, 1024 bytes\n");
    client.put("/teas/one", "x".repeat(1000)).expect(200);
    let refused = client.put("/teas/two", "x".repeat(25)).expect(403);
    assert_eq!(refused.element("Code"), Some("QuotaExceeded"));
    assert_eq!(refused.element("Message"), Some("The quota of the bucket teas is used up: 2 objects, 1024 bytes."));
    client.put("/teas/two", "x".repeat(24)).expect(200);
    assert_eq!(quota(&admin, "show bucket teas"), "objects: 2, at most 2\nbytes: 1024, at most 1024\n");
    assert_eq!(quota(&admin, "list"), "bucket teas: 2 objects, 1024 bytes\n");
    let node = LarderNode::start_in(node.into_home(), &["--s3", "127.0.0.1:0"]);
    let (admin, mut client) = (node.admin(), node.s3_admin());
    client.put("/teas/three", "").expect(403);
    client.get("/teas/one").expect(200);
    client.delete("/teas/one").expect(204);
    crate::harness::wait("the room of the deleted object is free", std::time::Duration::from_secs(30), || {
        client.put("/teas/three", "").status == 200
    });
    assert_eq!(quota(&admin, "clear bucket teas"), "bucket teas has no quota\n");
    client.put("/teas/four", "x".repeat(5000)).expect(200);
    assert_eq!(quota(&admin, "list"), "\n");
}

#[test]
fn quotas_of_users_and_wrong_words_are_named() {
    let node = LarderNode::s3(&[]);
    let admin = node.admin();
    admin.output(&["s3", "user", "create", "ann@example.com", "Ann"]);
    let set = quota(&admin, "set user ann@example.com --objects 0");
    assert_eq!(set, "user ann@example.com may hold 0 objects\n");
    let json = quota(&admin, "show user ann@example.com --json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json,
        serde_json::json!({"holder": "user", "name": "ann@example.com", "objects_max": 0, "bytes_max": null, "objects": 0, "bytes": 0})
    );
    for (words, problem) in [
        ("set bucket none --objects 1", "There is no S3 bucket none"),
        ("set user nobody --objects 1", "There is no S3 user nobody"),
        ("set key nobody --objects 1", "A quota is that of a bucket or of a user"),
        ("set user ann@example.com", "A quota needs --objects, --bytes or both"),
        ("set user ann@example.com --objects many", "--objects needs a number of objects, such as 100000"),
        ("set user ann@example.com --bytes 1.5GiB", "--bytes needs a number of bytes, such as 1048576, 64KiB"),
        ("show bucket none", "There is no S3 bucket none"),
    ] {
        let ended = admin.run(&[&["s3", "quota"][..], &words.split(' ').collect::<Vec<_>>()].concat());
        assert!(ended.code == Some(1) && ended.stderr.contains(problem), "{words}: {ended:?}");
    }
}
