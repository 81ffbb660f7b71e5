//! The S3 side of the console over HTTP: each change, and what it refuses.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use larder_s3::users::{AttachmentChange, PolicyHolder};
use larder_testkit::http::HttpResponse;

use crate::support::{TestBrowser, TestConsole, encoded, field};

/// A console with the bucket `cellar`, and its browser.
pub(crate) fn with_bucket() -> (TestConsole, TestBrowser) {
    let console = TestConsole::start(false);
    let mut browser = console.browser();
    let created = browser.post("/s3/create", &[("bucket", b"cellar")]);
    assert_eq!(created.expect(303).header("location"), Some("/s3/bucket?bucket=cellar&done=bucket%2Dcreated"));
    (console, browser)
}

/// Stores a file below `racks/`.
pub(crate) fn store(browser: &mut TestBrowser, name: &str, value: &[u8]) -> HttpResponse {
    let csrf = browser.csrf.clone();
    browser.post_file("/s3/object/store?bucket=cellar&prefix=racks%2F", &csrf, name, value)
}

#[test]
fn a_bucket_is_created_and_deleted_after_its_name_is_typed_again() {
    let (console, mut browser) = with_bucket();
    let refused = browser.post("/s3/create", &[("bucket", b"No Name!")]).expect(400).text();
    assert!(refused.contains("name=\"bucket\" value=\"No Name!\""), "what was typed is not lost: {refused}");
    browser.post("/s3/create", &[("bucket", b"cellar")]).expect(409);
    browser.post("/s3/delete?bucket=cellar", &[("confirm", b"cellars")]).expect(400);
    store(&mut browser, "cask", b"oak").expect(303);
    browser.post("/s3/delete?bucket=cellar", &[("confirm", b"cellar")]).expect(409);
    browser.post("/s3/object/delete?bucket=cellar&key=racks%2Fcask", &[]).expect(303);
    browser.post("/s3/delete?bucket=cellar", &[("confirm", b"cellar")]).expect(303);
    assert!(browser.page("/s3").contains("No buckets."));
    for line in [
        "console CreateBucket cellar done",
        "console StoreObject cellar/racks/cask done",
        "console DeleteBucket cellar done",
    ] {
        assert!(console.audit_lines().iter().any(|written| written == line), "{line}: {:?}", console.audit_lines());
    }
    console.stop();
}

#[test]
fn a_file_is_stored_shown_shared_tagged_and_downloaded() {
    let (console, mut browser) = with_bucket();
    let csrf = browser.csrf.clone();
    store(&mut browser, "C:\\folder\\list.json", br#"{"a":[1,2]}"#).expect(303);
    assert!(browser.page("/s3/bucket?bucket=cellar&prefix=racks%2F").contains(">list.json<"));
    let page = browser.page("/s3/object?bucket=cellar&key=racks%2Flist.json");
    assert!(page.contains("text/plain") && page.contains("&quot;a&quot;: [\n    1,\n    2\n  ]"), "{page}");
    let download = browser.get("/s3/object/download?bucket=cellar&key=racks%2Flist.json").expect(200);
    assert_eq!(download.header("content-disposition"), Some("attachment; filename*=UTF-8''list%2Ejson"));
    assert_eq!(download.header("content-type"), Some("application/octet-stream"));
    assert_eq!(download.text(), r#"{"a":[1,2]}"#);
    browser.get("/s3/object/preview?bucket=cellar&key=racks%2Flist.json").expect(404);
    let shared = browser.post("/s3/object/share?bucket=cellar&key=racks%2Flist.json", &[("seconds", b"86400")]);
    assert!(shared.expect(200).text().contains("http://s3/cellar/racks/list.json?by=ADMIN-KEY&amp;for=86400"));
    browser.post("/s3/object/share?bucket=cellar&key=none", &[("seconds", b"86400")]).expect(404);
    browser
        .post("/s3/object/tags?bucket=cellar&key=racks%2Flist.json", &[("tags", b"kind = list\r\na%3Db=c%20\r\n")])
        .expect(303);
    let page = browser.page("/s3/object?bucket=cellar&key=racks%2Flist.json");
    assert!(page.contains("Tag <code>kind</code></dt><dd>list</dd>"), "{page}");
    // What the form shows is what it stores.
    assert!(page.contains("\nkind=list\na%3Db=c%20</textarea>"), "{page}");
    let refused = browser.post("/s3/object/tags?bucket=cellar&key=racks%2Flist.json", &[("tags", b"aws:x=1")]);
    assert!(refused.expect(400).text().contains("aws:x=1"), "what was typed is not lost");
    // 1 MiB that is no text: a download in pieces.
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
    browser.post_file("/s3/object/store?bucket=cellar&key=bytes%00", &csrf, "x", &bytes).expect(303);
    assert_eq!(browser.get("/s3/object/download?bucket=cellar&key=bytes%00").expect(200).body, bytes);
    assert!(!browser.page("/s3/object?bucket=cellar&key=bytes%00").contains("Preview"));
    console.stop();
}

#[test]
fn a_file_without_the_token_of_its_session_is_not_stored() {
    let (console, mut browser) = with_bucket();
    let other = console.browser().csrf;
    for csrf in ["", "0", &other] {
        browser.post_file("/s3/object/store?bucket=cellar&prefix=", csrf, "cask", b"oak").expect(403);
    }
    let csrf = browser.csrf.clone();
    browser.post("/s3/object/store?bucket=cellar&prefix=", &[]).expect(400);
    browser.post_file("/s3/object/store?bucket=cellar&prefix=", &csrf, "", b"").expect(400);
    browser.post_file("/s3/object/store?bucket=none&prefix=", &csrf, "cask", b"oak").expect(404);
    assert!(browser.page("/s3/bucket?bucket=cellar").contains("No objects."));
    console.stop();
}

#[test]
fn an_upload_in_parts_becomes_an_object_only_when_it_is_whole() {
    let (console, mut browser) = with_bucket();
    let csrf = browser.csrf.clone();
    let id = browser.post("/s3/upload/begin?bucket=cellar&key=cask", &[("media", b"text/plain")]).expect(200).text();
    let at = format!("bucket=cellar&key=cask&upload={}", encoded(id.as_bytes()));
    let first = vec![b'a'; 5 << 20];
    browser.post_file(&format!("/s3/upload/part?{at}&number=1"), &csrf, "part", &first).expect(200);
    browser.post_file(&format!("/s3/upload/part?{at}&number=2"), &csrf, "part", b"end").expect(200);
    for number in ["0", "10001", "x", ""] {
        browser.post_file(&format!("/s3/upload/part?{at}&number={number}"), &csrf, "part", b"end").expect(400);
    }
    browser.post(&format!("/s3/upload/complete?{at}"), &[("length", b"7")]).expect(400);
    browser.post(&format!("/s3/upload/complete?{at}"), &[]).expect(400);
    // The second time, as when the first answer was lost.
    for _ in 0..2 {
        browser.post(&format!("/s3/upload/complete?{at}"), &[("length", b"5242883")]).expect(200);
    }
    let whole = browser.get("/s3/object/download?bucket=cellar&key=cask").expect(200).body;
    assert_eq!((whole.len(), &whole[whole.len() - 4..]), (5_242_883, &b"aend"[..]));
    browser.post_file("/s3/object/store?bucket=cellar&key=cask", &csrf, "cask", b"another").expect(303);
    browser.post(&format!("/s3/upload/complete?{at}"), &[("length", b"5242883")]).expect(404);
    console.stop();
}

#[test]
fn the_settings_of_a_bucket_are_changed() {
    let (console, mut browser) = with_bucket();
    browser.post("/s3/settings/versioning?bucket=cellar", &[("versioning", b"enabled")]).expect(303);
    browser.post("/s3/settings/versioning?bucket=cellar", &[("versioning", b"off")]).expect(400);
    browser.post("/s3/settings/quota?bucket=cellar", &[("objects", b"3"), ("bytes", b"10 MiB")]).expect(303);
    browser.post("/s3/settings/quota?bucket=cellar", &[("objects", b"many")]).expect(400);
    browser.post("/s3/settings/quota?bucket=cellar", &[("bytes", b"99999999999999999 PiB")]).expect(400);
    let rule: [(&str, &[u8]); 3] = [("id", b"old"), ("prefix", b"logs/"), ("days", b"30")];
    browser.post("/s3/settings/lifecycle/add?bucket=cellar", &rule).expect(303);
    browser.post("/s3/settings/lifecycle/add?bucket=cellar", &rule).expect(400);
    let policy = br#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::cellar/*"}]}"#;
    browser.post("/s3/settings/policy?bucket=cellar", &[("policy", policy)]).expect(303);
    let refused =
        browser.post("/s3/settings/policy?bucket=cellar", &[("policy", b"{\"Version\":1}")]).expect(400).text();
    assert!(refused.contains("{&quot;Version&quot;:1}"), "what was typed is not lost: {refused}");
    for (name, value) in [("cask", "oak"), ("cask", "ash"), ("barrel", "x")] {
        store(&mut browser, name, value.as_bytes()).expect(303);
    }
    store(&mut browser, "fourth", b"x").expect(403);
    let page = browser.page("/s3/settings?bucket=cellar");
    for text in [
        "Enabled: every put adds a version.",
        "3<span class=\"unit\"> of 3</span>",
        "7 B<span class=\"unit\"> of 10.0 MiB</span>",
        "objects expire after 30 days (only keys from logs/)",
        ">public<",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let page = browser.page("/s3/object?bucket=cellar&key=racks%2Fcask");
    assert_eq!(page.matches(">Download</a>").count(), 3, "the object and its two versions");
    browser.post("/s3/settings/lifecycle/remove?bucket=cellar", &[("id", b"old")]).expect(303);
    browser.post("/s3/settings/policy?bucket=cellar", &[("policy", b"")]).expect(303);
    let page = browser.page("/s3/settings?bucket=cellar");
    assert!(page.contains("No rules") && page.contains("No policy"), "{page}");
    console.stop();
}

#[test]
fn users_and_keys_are_made_and_their_secrets_shown_once() {
    let (console, mut browser) = with_bucket();
    let page = browser.post("/s3/users/create", &[("name", b"Ann"), ("email", b"ann@example.org")]).expect(200).text();
    let shown = |page: &str, id: &str| {
        let (_, after) = page.split_once(&format!("id=\"{id}\">")).unwrap_or_else(|| panic!("{id}: {page}"));
        after.split('<').next().unwrap().to_owned()
    };
    let (key, secret) = (shown(&page, "key-id"), shown(&page, "secret"));
    assert!(secret.len() >= 20);
    browser.post("/s3/users/create", &[("name", b"Ann"), ("email", b"ann@example.org")]).expect(409);
    let users = browser.page("/s3/users");
    assert!(users.contains(&key) && !users.contains(&secret));
    let limited: [(&str, &[u8]); 5] =
        [("id", key.as_bytes()), ("buckets", b"cellar"), ("prefix", b"a/"), ("days", b"7"), ("rights", b"reads")];
    let further = shown(&browser.post("/s3/keys/create", &limited).expect(200).text(), "key-id");
    assert!(browser.page("/s3/users").contains("reads only; buckets cellar; prefixes a/; expires "));
    let far = [("id", key.as_bytes()), ("days", &b"213503983"[..]), ("rights", b"all")];
    browser.post("/s3/keys/create", &far).expect(400);
    browser.post("/s3/keys/revoke", &[("id", key.as_bytes())]).expect(400);
    browser.post("/s3/keys/revoke", &[("id", further.as_bytes())]).expect(303);
    let users = Arc::clone(&console.objects.users);
    let attach = users.change_policies(PolicyHolder::User(&key), &["readonly"], AttachmentChange::Attach);
    console.background.run(attach).unwrap();
    assert!(browser.page("/s3/users").contains("<dt>Policies</dt><dd><code>readonly</code></dd>"));
    let rotated = browser.post("/s3/users/rotate", &[("id", key.as_bytes())]).expect(200).text();
    assert_ne!(shown(&rotated, "secret"), secret);
    let switch = |to: &'static [u8]| [("id", key.as_bytes()), ("switch", to)];
    // A second click of the same button changes nothing.
    for _ in 0..2 {
        browser.post("/s3/users/switch", &switch(b"off")).expect(303);
        assert!(browser.page("/s3/users").contains(">disabled<"));
    }
    browser.post("/s3/users/switch", &switch(b"")).expect(400);
    browser.post("/s3/users/switch", &switch(b"on")).expect(303);
    assert!(!browser.page("/s3/users").contains(">disabled<"));
    browser.post("/s3/users/delete", &[("id", b"ADMIN-KEY")]).expect(400);
    browser.post("/s3/users/delete", &[("id", key.as_bytes())]).expect(303);
    browser.post("/s3/users/delete", &[("id", key.as_bytes())]).expect(404);
    assert!(!console.audit_lines().iter().any(|line| line.contains(&secret)));
    console.stop();
}

#[test]
fn a_read_only_console_changes_nothing_of_s3() {
    let console = TestConsole::start(true);
    let mut browser = console.browser();
    let csrf = browser.csrf.clone();
    browser.post("/s3/create", &[("bucket", b"cellar")]).expect(403);
    browser.post_file("/s3/object/store?bucket=cellar&prefix=", &csrf, "cask", b"oak").expect(403);
    browser.post("/s3/users/create", &[("name", b"Ann"), ("email", b"ann@example.org")]).expect(403);
    let page = browser.page("/s3");
    assert!(page.contains("No buckets.") && !page.contains("Create a bucket"));
    assert_eq!(field(&page, "csrf"), browser.csrf, "that of signing out is the only form");
    console.stop();
}

#[test]
fn keys_that_no_client_could_name_are_refused_and_a_long_path_has_few_links() {
    let (console, mut browser) = with_bucket();
    let csrf = browser.csrf.clone();
    let long = "k".repeat(1025);
    for key in ["%ff", &long] {
        browser.post_file(&format!("/s3/object/store?bucket=cellar&key={key}"), &csrf, "x", b"v").expect(400);
        browser.post(&format!("/s3/upload/begin?bucket=cellar&key={key}"), &[("media", b"text/plain")]).expect(400);
    }
    browser.post_file("/s3/object/store?bucket=cellar&prefix=%ff", &csrf, "x", b"v").expect(400);
    browser.post("/s3/upload/begin?bucket=cellar", &[("media", b"text/plain")]).expect(400);
    browser.post("/s3/upload/begin?bucket=cellar&key=k", &[("media", b"a\r\nb")]).expect(400);
    browser.post(&format!("/s3/object/delete?bucket=cellar&key={long}"), &[]).expect(400);
    browser.get(&format!("/s3/bucket?bucket=cellar&prefix={}", "/".repeat(60_000))).expect(400);
    let page = browser.page(&format!("/s3/bucket?bucket=cellar&prefix={}", "/".repeat(1024)));
    assert!(page.len() < 100_000, "{}", page.len());
    assert!(browser.page("/s3/bucket?bucket=cellar").contains("No objects."));
    browser.post_file("/s3/object/store?bucket=cellar&key=a%2F..%2Fb", &csrf, "x", b"v").expect(303);
    browser.post("/s3/object/share?bucket=cellar&key=a%2F..%2Fb", &[("seconds", b"3600")]).expect(400);
    console.stop();
}

#[test]
fn a_form_that_another_page_made_is_not_offered_again() {
    let (console, mut browser) = with_bucket();
    let refused = browser.post_with("/s3/create", b"0", &[("bucket", b"planted")]).expect(403).text();
    assert!(!refused.contains("planted"), "{refused}");
    let refused = browser.post("/s3/delete?bucket=cellar&x%26key=evil", &[("confirm", b"no")]).expect(400).text();
    assert!(refused.contains("x%26key=evil"), "the name of a parameter stays one: {refused}");
    console.stop();
}
