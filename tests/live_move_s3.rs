//! A move from an S3 store, live: clients write there throughout, and the server that copies is killed again and again. At the end
//! both show the same buckets, objects and versions, and what clients wrote at the new place stays.
//!
//! `LARDER_TEST_SCALE=soak` kills it 20 times instead of 3.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking and runs in real time"
)]

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use larder_testkit::http::HttpResponse;

use crate::harness::{
    Home, HttpClient, LarderNode, S3_KEY, S3_SECRET, S3Client, Scale, SplitMix64, TestAuthority, element,
};
use crate::live_move::{await_status, verify};

const WRITERS: u64 = 3;
const KEYS: usize = 40;
/// Objects are as long, at most; some are blobs.
const BYTES_MAX: usize = 40_000;
/// A bucket without versioning, one with, and one with object lock, which nobody writes to.
const BUCKETS: [&str; 3] = ["plain", "kept", "locked"];
const PART: usize = 5 << 20;
const ODD: &str = "a%20%2B%3F%25%26/%C3%BC~";

#[test]
fn every_object_moves_while_clients_write_and_the_mover_is_killed() {
    let rounds = Scale::current().pick(3, 20);
    let source = LarderNode::s3(&["--durability", "buffered"]);
    fill(&mut source.s3_admin());
    let mut destination = LarderNode::s3(&["--durability", "buffered"]);
    start(&destination, &source, S3_KEY);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..WRITERS {
            let (stop, source) = (&stop, &source);
            scope.spawn(move || write(&mut source.s3_admin(), &mut SplitMix64::new(number), stop));
        }
        let mut random = SplitMix64::new(7);
        for _ in 0..rounds {
            // From the creation of buckets on.
            thread::sleep(Duration::from_millis(20 + random.below(600) as u64));
            destination.kill();
            destination.restart();
        }
        await_status(&destination, "it follows", |status| {
            status["phase"] == "follow" && status["sweeps"].as_u64() >= Some(2)
        });
        let mut client = destination.s3_admin();
        client.put("/plain/k0", "mine").expect(200);
        client.put("/plain/mine", "mine").expect(200);
        stop.store(true, Ordering::Relaxed);
    });
    let verified = verify(&destination);
    assert_eq!((verified["differs"].as_u64(), verified["changed_here"].as_u64()), (Some(0), Some(1)), "{verified}");
    assert!(verified["keys"].as_u64() > Some(KEYS as u64), "{verified}");
    compare(&mut source.s3_admin(), &mut destination.s3_admin());
    let verified = verify(&destination);
    assert_eq!(verified["changed_there"].as_u64(), Some(0), "{verified}");
    destination.admin().output(&["move", "finish"]);
    await_status(&destination, "it is finished", |status| status["phase"] == "done");
    let mut client = destination.s3_admin();
    assert_eq!((client.get("/plain/k0").text(), client.get("/plain/mine").text()), ("mine".into(), "mine".into()));
    locks_came_along(&mut client);
}

#[test]
fn a_source_that_refuses_the_key_is_waited_for_and_named() {
    let (source, destination) = (LarderNode::s3(&[]), LarderNode::s3(&[]));
    start(&destination, &source, "nobody");
    await_status(&destination, "it says why it waits", |status| {
        status["error"].as_str().is_some_and(|error| error.contains("InvalidAccessKeyId"))
    });
    assert!(!destination.admin().output(&["move", "status", "--json"]).contains(S3_SECRET), "the secret is shown");
    destination.admin().output(&["move", "cancel"]);
    await_status(&destination, "it is cancelled", |status| status["phase"] == "done");
    destination.admin().refused(
        &["move", "start", &format!("s3://{S3_KEY}@{}", source.s3_at())],
        "--secret-file names the file with the key's secret\n",
    );
}

/// Keys of the source of a slow move, most of which clients ask for before their turn.
const SLOW_KEYS: usize = 90;

#[test]
fn clients_that_came_before_their_objects_once_found_nothing() {
    let source = LarderNode::s3(&["--durability", "buffered"]);
    let mut there = source.s3_admin();
    for bucket in ["plain", "kept"] {
        there.call("PUT", &format!("/{bucket}"), &[], "").expect(200);
    }
    there.put("/kept?versioning", ENABLED).expect(200);
    let body = |key: usize| format!("body {key} ").repeat(1 + key * 10);
    for key in 0..SLOW_KEYS {
        there.call("PUT", &format!("/plain/d{}/k{key}", key % 3), &[("x-amz-tagging", "a=b")], body(key)).expect(200);
        there.put(&format!("/kept/k{key}"), "old").expect(200);
        there.put(&format!("/kept/k{key}"), body(key)).expect(200);
    }
    let mut destination = LarderNode::s3(&["--durability", "buffered"]);
    let address = format!("s3://{S3_KEY}@{}", source.s3_at());
    start_at(&destination, &address, "25");
    await_status(&destination, "the buckets are there", |status| status["phase"] == "seed");
    let mut here = destination.s3_admin();
    // From the last keys on, to which the pass has not come.
    for key in (0..SLOW_KEYS).rev().take(12) {
        let path = format!("/plain/d{}/k{key}", key % 3);
        match key % 6 {
            0 => assert!(here.get(&path).expect(200).text() == body(key), "{path}"),
            1 => assert!(here.get(&format!("{path}?tagging")).expect(200).text().contains("<Key>a</Key>"), "{path}"),
            2 => drop(here.delete(&path).expect(204)),
            3 => assert_eq!(here.call("PUT", &path, &[("If-None-Match", "*")], "mine").status, 412, "{path}"),
            4 => {
                let from = [("x-amz-copy-source", path.as_str())];
                here.call("PUT", &format!("/plain/copy{key}"), &from, "").expect(200);
            }
            _ => drop(here.put(&path, "mine").expect(200)),
        }
        assert_eq!(here.get(&format!("/kept/k{key}")).expect(200).text(), body(key));
    }
    let listed = |client: &mut S3Client| elements(&client.get("/plain?prefix=d").expect(200).text(), "Key");
    let deleted = |key: &String| key.rsplit('k').next().and_then(|key| key.parse::<usize>().ok());
    let deleted = |key: &String| deleted(key).is_some_and(|key| key % 6 == 2 && key >= SLOW_KEYS - 12);
    let expected: BTreeSet<String> = listed(&mut there).into_iter().filter(|key| !deleted(key)).collect();
    assert_eq!(listed(&mut here), expected, "in the midst of the move");
    await_status(&destination, "the keys were brought", |status| status["counts"]["brought"].as_u64() >= Some(4));
    destination.kill();
    destination.restart();
    let mut here = destination.s3_admin();
    assert_eq!(listed(&mut here), expected, "after a kill");
    destination.admin().output(&["move", "cancel"]);
    await_status(&destination, "it is cancelled", |status| status["phase"] == "done");
    start_at(&destination, &address, "2000");
    let verified = verify(&destination);
    assert_eq!((verified["differs"].as_u64(), verified["changed_here"].as_u64()), (Some(0), Some(4)), "{verified}");
    assert_eq!(listed(&mut here), expected, "at the end");
    destination.admin().output(&["move", "finish"]);
    await_status(&destination, "it is finished", |status| status["phase"] == "done");
    assert_eq!(listed(&mut here), expected, "without the source");
    for key in elements(&here.get("/plain").expect(200).text(), "Key") {
        here.delete(&format!("/plain/{key}")).expect(204);
    }
    here.delete("/plain").expect(204);
}

const EVERYBODY: &str = r#"uri="http://acs.amazonaws.com/groups/global/AllUsers""#;

#[test]
fn acls_come_along_where_their_users_are_here() {
    let source = LarderNode::s3(&["--durability", "buffered"]);
    let destination = LarderNode::s3(&["--durability", "buffered"]);
    for node in [&source, &destination] {
        make_user(node, "guest");
    }
    make_user(&source, "stranger");
    let mut there = source.s3_admin();
    let [guest, stranger] = ["guest", "stranger"].map(|name| format!("id=\"{}\"", canonical_id(name)));
    there.call("PUT", "/public", &[("x-amz-acl", "public-read")], "").expect(200);
    there.call("PUT", "/shared", &[("x-amz-grant-write", &*format!("{guest}, {stranger}"))], "").expect(200);
    there.call("PUT", "/public/page", &[("x-amz-grant-read", &*format!("{EVERYBODY}, {guest}"))], "page").expect(200);
    there.put("/public/own", "own").expect(200);
    let mut of_guest = S3Client::new(source.s3_at(), "guestguestguest1", GUEST_SECRET);
    of_guest.put("/shared/theirs", "theirs").expect(200);
    start_with(&destination, &format!("s3://{S3_KEY}@{}", source.s3_at()), &["--acls"]);
    let verified = verify(&destination);
    assert_eq!((verified["keys"].as_u64(), verified["equal"].as_u64()), (Some(3), Some(3)), "{verified}");
    let mut here = destination.s3_admin();
    for target in ["/public?acl", "/public/page?acl", "/public/own?acl"] {
        assert_eq!(grants(&mut there, target), grants(&mut here, target), "{target}");
    }
    let mut left_out = grants(&mut there, "/shared?acl");
    left_out.retain(|grant| !grant.contains(&canonical_id("stranger")));
    assert_eq!(grants(&mut here, "/shared?acl"), left_out);
    let status = destination.admin().output(&["move", "status"]);
    let note = format!("grants to users who are not here are left out, such as {}", canonical_id("stranger"));
    assert!(status.contains(&note) && !status.contains("ACLs do not move"), "{status}");
    let mut anonymous = HttpClient::new(destination.s3_at());
    assert_eq!(anonymous.get("/public/page").text(), "page");
    assert_eq!(anonymous.get("/public/own").status, 403);
    let mut of_guest = S3Client::new(destination.s3_at(), "guestguestguest1", GUEST_SECRET);
    assert_eq!(of_guest.get("/shared/theirs").expect(200).text(), "theirs", "who wrote it there may read it here");
    assert_eq!(of_guest.get("/public/own").status, 403);
}

/// The secret of every user of [`make_user`].
const GUEST_SECRET: &str = "guest-secret-guest-secret";

/// Makes a user whose canonical id and keys are the same on each node.
fn make_user(node: &LarderNode, name: &str) {
    let secret = node.home().data().with_file_name("user-secret");
    fs::write(&secret, GUEST_SECRET).unwrap();
    let (email, key, id) = (format!("{name}@example.com"), format!("{name}{name}{name}1"), canonical_id(name));
    let options = ["--key", &key, "--secret-file", secret.to_str().unwrap(), "--id", &id];
    node.admin().output(&[&["s3", "user", "create", &email, name], &options[..]].concat());
}

fn canonical_id(name: &str) -> String {
    name.bytes()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>()
        .repeat(64 / name.len())
        .chars()
        .take(64)
        .collect()
}

/// The grants of an ACL, with the owner as one name on all nodes.
fn grants(client: &mut S3Client, target: &str) -> BTreeSet<String> {
    let document = client.get(target).expect(200).text();
    let owner = element(&document, "ID").unwrap().to_owned();
    let of_list = document.split("<Grant>").skip(1);
    let grantee = |grant: &str| element(grant, "ID").or(element(grant, "URI")).unwrap().replace(&owner, "the owner");
    of_list.map(|grant| format!("{} {}", grantee(grant), element(grant, "Permission").unwrap())).collect()
}

#[test]
fn a_source_moves_over_tls_with_the_authority_that_was_named() {
    let home = Home::new();
    let authority = TestAuthority::make(home.path());
    let pair = authority.sign("source").write(home.path(), "source");
    let listeners = ["--durability", "buffered", "--s3", "127.0.0.1:0", "--s3-https", "127.0.0.1:0"];
    let source = LarderNode::start_in(home, &[&listeners[..], &pair.args()].concat());
    let mut client = source.s3_admin();
    client.put("/teas", "").expect(200);
    client.put("/teas/sencha", "green").expect(200);
    client.put("/teas/large", vec![b'x'; 3 << 20]).expect(200);
    let address = format!("s3s://{S3_KEY}@{}", source.s3_https());
    let destination = LarderNode::s3(&["--durability", "buffered", "--webhook-ca", authority.file()]);
    start_at(&destination, &address, "800");
    let verified = verify(&destination);
    assert_eq!((verified["equal"].as_u64(), verified["differs"].as_u64()), (Some(2), Some(0)), "{verified}");
    let mut client = destination.s3_admin();
    assert_eq!(client.get("/teas/sencha").text(), "green");
    assert!(client.get("/teas/large").body == vec![b'x'; 3 << 20]);
}

/// Starts the move with this access key.
fn start(destination: &LarderNode, source: &LarderNode, key: &str) {
    start_at(destination, &format!("s3://{key}@{}", source.s3_at()), "800");
}

/// Starts the move from this address, at most as many requests in a second.
fn start_at(destination: &LarderNode, address: &str, rate: &str) {
    start_with(destination, address, &["--rate", rate]);
}

fn start_with(destination: &LarderNode, address: &str, options: &[&str]) {
    let secret = destination.home().data().with_file_name("source-secret");
    fs::write(&secret, format!("{S3_SECRET}\n")).unwrap();
    let secret = secret.to_str().unwrap();
    destination.admin().output(&[&["move", "start", address, "--secret-file", secret], options].concat());
}

/// What is there before the move.
fn fill(client: &mut S3Client) {
    for bucket in BUCKETS {
        let lock: &[_] = if bucket == "locked" { &[("x-amz-bucket-object-lock-enabled", "true")] } else { &[] };
        client.call("PUT", &format!("/{bucket}"), lock, "").expect(200);
    }
    client.put("/kept?versioning", ENABLED).expect(200);
    client
        .put("/plain?tagging", "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>")
        .expect(204);
    client.put("/plain?policy", POLICY).expect(204);
    let headers = [("Content-Type", "text/x"), ("x-amz-meta-farm", "uji"), ("x-amz-tagging", "year=2026&kin=a%20b")];
    for bucket in ["plain", "kept"] {
        for key in (0..KEYS).map(|key| format!("k{key}")).chain([ODD.to_owned()]) {
            client.call("PUT", &format!("/{bucket}/{key}"), &headers, format!("first {key}")).expect(200);
        }
    }
    let upload = client.begin("/plain/parts");
    let parts = [(1, vec![b'x'; PART]), (2, b"end".to_vec())];
    let parts = parts.map(|(number, body)| (number, client.part("/plain/parts", &upload, number, body)));
    client.complete("/plain/parts", &upload, &parts).expect(200);
    let retention = [
        ("x-amz-object-lock-mode", "COMPLIANCE"),
        ("x-amz-object-lock-retain-until-date", "2099-01-01T00:00:00Z"),
        ("Content-MD5", "TO8vMKx9M0GdAMHZOgkAlQ=="),
    ];
    client.call("PUT", "/locked/k", &retention, "locked").expect(200);
}

const ENABLED: &str = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
const POLICY: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["*"]},"Action":["s3:GetObject"],"Resource":["arn:aws:s3:::plain/*"]}]}"#;

/// Puts and deletes at the source. The first keys of a bucket are those of the writers at the destination.
fn write(client: &mut S3Client, random: &mut SplitMix64, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let (bucket, key) = (random.pick(&["plain", "kept"]), 1 + random.below(KEYS + 20));
        let path = format!("/{bucket}/k{key}");
        match random.below(6) {
            0 => drop(client.delete(&path)),
            1 => drop(client.call("PUT", &path, &[("x-amz-meta-number", &random.number().to_string())], "")),
            _ => {
                let length = random.below(BYTES_MAX);
                drop(client.put(&path, random.bytes(length)));
            }
        }
        thread::sleep(Duration::from_millis(3));
    }
}

/// Compares both as a client sees them.
fn compare(source: &mut S3Client, destination: &mut S3Client) {
    for bucket in BUCKETS {
        let is_mine = |line: &String| line.starts_with("mine ") || line.starts_with("k0 ");
        let listed = |client: &mut S3Client| -> Vec<String> {
            let listed = client.get(&format!("/{bucket}?versions")).expect(200).text();
            versions(&listed).into_iter().filter(|line| bucket != "plain" || !is_mine(line)).collect()
        };
        let (there, here) = (listed(source), listed(destination));
        assert_eq!(there, here, "{bucket}");
        let keys = source.get(&format!("/{bucket}")).expect(200).text();
        for key in elements(&keys, "Key").iter().filter(|key| bucket != "plain" || *key != "k0") {
            let path = format!("/{bucket}/{}", if key.starts_with("a ") { ODD } else { key });
            let (there, here) = (source.get(&path).expect(200), destination.get(&path).expect(200));
            assert_eq!(shown(&there), shown(&here), "{path}");
            assert!(there.body == here.body, "{path}: other bytes");
            let tags = format!("{path}?tagging");
            assert_eq!(source.get(&tags).text(), destination.get(&tags).text(), "{path}");
        }
        for document in ["versioning", "tagging", "policy", "object-lock"] {
            let target = format!("/{bucket}?{document}");
            let (there, here) = (source.get(&target), destination.get(&target));
            assert_eq!(there.status, here.status, "{target}");
            assert!(there.status != 200 || there.text() == here.text(), "{target}: {} {}", there.text(), here.text());
        }
    }
}

fn locks_came_along(client: &mut S3Client) {
    let version = client.get("/locked/k").header("x-amz-version-id").unwrap().to_owned();
    let removal = client.delete(&format!("/locked/k?versionId={version}"));
    assert_eq!(removal.status, 403, "{}", removal.text());
}

/// The versions of a listing, one a line, without their ids.
fn versions(listing: &str) -> Vec<String> {
    let entries = listing.split("<Version>").flat_map(|text| text.split("<DeleteMarker>")).skip(1);
    let line = |entry: &str| {
        let part = |name| element(entry, name).unwrap_or_default();
        ["Key", "IsLatest", "LastModified", "ETag", "Size"].map(part).join(" ")
    };
    entries.map(line).collect()
}

fn elements(document: &str, name: &str) -> BTreeSet<String> {
    document
        .split(&format!("<{name}>"))
        .skip(1)
        .filter_map(|rest| rest.split_once("</"))
        .map(|(text, _)| text.to_owned())
        .collect()
}

/// The headers of an object that clients see.
fn shown(found: &HttpResponse) -> Vec<String> {
    let is_kept = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.starts_with("x-amz-meta")
            || name.starts_with("x-amz-object-lock")
            || ["etag", "last-modified", "content-type", "content-length", "x-amz-tagging-count"].contains(&&*name)
    };
    let kept = found.headers.iter().filter(|(name, _)| is_kept(name));
    let mut lines: Vec<_> = kept.map(|(name, value)| format!("{}: {value}", name.to_ascii_lowercase())).collect();
    lines.sort();
    lines
}
