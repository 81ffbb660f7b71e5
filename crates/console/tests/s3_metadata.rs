//! The form of an S3 object's metadata over HTTP: what it stores, and what it refuses.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use async_trait::async_trait;
use bytes::Bytes;
use larder_core::body::{BodyError, ByteStream};
use larder_s3::Caller;
use larder_s3::acl::AclChoice;
use larder_s3::get::GetObject;
use larder_s3::put::{ChecksumWanted, ObjectMetadata, PutObject, UploadBody, WriteConditions};
use larder_s3_rules::{Bucket, BucketLock, ObjectLock, S3Action, SystemHeader};
use larder_testkit::http::HttpResponse;

use crate::s3_pages::{store, with_bucket};
use crate::support::TestBrowser;

const CASK: &str = "/s3/object?bucket=cellar&key=racks%2Fcask";

/// A body in one piece.
struct OneBody(Option<Bytes>);

#[async_trait]
impl ByteStream for OneBody {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        self.0.take().map(Ok)
    }
}

/// A put of an object that the form could not make.
fn cask(metadata: ObjectMetadata) -> PutObject {
    let stream = Box::new(OneBody(Some("oak".into())));
    PutObject {
        bucket: "cellar".into(),
        key: "racks/cask".into(),
        metadata,
        upload_body: UploadBody { stream, length: None, md5: None, checksum: ChecksumWanted::Default },
        conditions: WriteConditions::default(),
    }
}

/// The fields of the form for metadata on the page of an object, as a browser sends them back.
fn metadata_form(page: &str) -> Vec<(String, String)> {
    let (_, form) = page.split_once("action=\"/s3/object/metadata").unwrap_or_else(|| panic!("no form in\n{page}"));
    let form = form.split("</form>").next().unwrap();
    let text =
        |value: &str| value.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let inputs = form.split("name=\"").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once('"')?;
        let value = rest.strip_prefix(" value=\"")?.split('"').next()?;
        Some((name.to_owned(), text(value)))
    });
    let (_, meta) = form.split_once("spellcheck=\"false\">\n").unwrap();
    let meta = ("meta".to_owned(), text(meta.split("</textarea>").next().unwrap()));
    inputs.filter(|(name, _)| name != "csrf").chain([meta]).collect()
}

/// Sends the form of the page with other values.
fn edit_metadata(browser: &mut TestBrowser, page: &str, changes: &[(&str, &[u8])]) -> HttpResponse {
    let form = metadata_form(page);
    let mut fields: Vec<(&str, &[u8])> = form.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    for (name, value) in changes {
        fields.iter_mut().find(|(known, _)| known == name).unwrap().1 = value;
    }
    browser.post("/s3/object/metadata?bucket=cellar&key=racks%2Fcask", &fields)
}

#[test]
fn the_metadata_of_an_object_is_edited_and_its_bytes_and_tags_stay() {
    let (console, mut browser) = with_bucket();
    store(&mut browser, "cask", b"oak").expect(303);
    browser.post("/s3/object/tags?bucket=cellar&key=racks%2Fcask", &[("tags", b"kind=wood")]).expect(303);
    let page = browser.page(CASK);
    let changes: [(&str, &[u8]); 7] = [
        ("content-type", b"text/html; charset=utf-8"),
        ("cache-control", b"max-age=60"),
        ("content-disposition", b"attachment; filename=\"a cask.txt\""),
        ("content-encoding", b"gzip, aws-chunked"),
        ("content-language", b"de"),
        ("expires", b"never"),
        ("meta", "Origin = Jura\r\nnote=<b>a & \"b\"</b> \u{1f6e2}=1\r\n".as_bytes()),
    ];
    let stored = edit_metadata(&mut browser, &page, &changes).expect(303);
    assert_eq!(stored.header("location"), Some("/s3/object?bucket=cellar&key=racks%2Fcask&done=described"));
    let page = browser.page(CASK);
    for text in [
        "<dt>content-type</dt><dd>text/html; charset=utf-8</dd>",
        "<dt>content-encoding</dt><dd>gzip</dd>",
        "<dt>x-amz-meta-origin</dt><dd>Jura</dd>",
        "<dt>x-amz-meta-note</dt><dd>&lt;b&gt;a &amp; &quot;b&quot;&lt;/b&gt; \u{1f6e2}=1</dd>",
        "Tag <code>kind</code></dt><dd>wood</dd>",
        "oak",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    // The form without a change stores what is there.
    let before = metadata_form(&page);
    edit_metadata(&mut browser, &page, &[]).expect(303);
    let after = metadata_form(&browser.page(CASK));
    assert_eq!(before[1..], after[1..]);
    assert_ne!(before[0], after[0], "another version");
    assert!(console.audit_lines().iter().any(|line| line == "console EditMetadata cellar/racks/cask done"));
    console.stop();
}

#[test]
fn metadata_that_changed_since_its_page_was_shown_is_not_taken_back() {
    let (console, mut browser) = with_bucket();
    store(&mut browser, "cask", b"oak").expect(303);
    let stale = browser.page(CASK);
    edit_metadata(&mut browser, &stale, &[("meta", b"a=first")]).expect(303);
    let refused = edit_metadata(&mut browser, &stale, &[("meta", b"a=second")]).expect(409).text();
    assert!(refused.contains("changed since this page was loaded") && refused.contains("a=second"), "{refused}");
    let page = browser.page(CASK);
    assert!(page.contains(">first<") && !page.contains(">second<"), "{page}");
    // Tags stay in their version: those of a moment ago are kept.
    browser.post("/s3/object/tags?bucket=cellar&key=racks%2Fcask", &[("tags", b"kind=wood")]).expect(303);
    edit_metadata(&mut browser, &page, &[("meta", b"a=third")]).expect(303);
    let page = browser.page(CASK);
    assert!(page.contains("third") && page.contains("<dd>wood</dd>"), "{page}");
    store(&mut browser, "cask", b"oak").expect(303);
    edit_metadata(&mut browser, &page, &[]).expect(409);
    browser.post("/s3/object/delete?bucket=cellar&key=racks%2Fcask", &[]).expect(303);
    let refused = edit_metadata(&mut browser, &page, &[("meta", b"a=fourth")]).expect(409).text();
    assert!(refused.contains("a=fourth"), "{refused}");
    console.stop();
}

#[test]
fn metadata_that_s3_refuses_is_refused_with_what_was_typed() {
    let (console, mut browser) = with_bucket();
    store(&mut browser, "cask", b"oak").expect(303);
    let page = browser.page(CASK);
    let long = ["a=".as_bytes(), &[b'v'; 2048]].concat();
    for (name, value, reason) in [
        ("meta", &long[..], "2048"),
        ("meta", b"no pair", "is not name=value"),
        ("meta", b"<i>=1", "a name that no header can have"),
        ("meta", b"a=1\nb\xc3\xa4r=2", "a name that no header can have"),
        ("meta", b"a=1\nA=2", "stands twice"),
        ("meta", b"a=\x07", "a character that no header can have"),
        ("content-type", b"a\r\nx-evil: 1", "a character that no header can have"),
        ("meta", "a=gpj\u{202e}exe".as_bytes(), "an invisible character"),
        ("meta", "a=1\u{85}b=2".as_bytes(), "an invisible character"),
        ("content-type", b"\xff", "no UTF-8"),
        ("seen", b"", "names no version"),
        ("seen", b"null", "names no version"),
    ] {
        let refused = edit_metadata(&mut browser, &page, &[(name, value)]).expect(400).text();
        assert!(refused.contains(reason), "{reason}: {refused}");
        assert!(!refused.contains("<i>="), "{refused}");
        assert_eq!(refused.contains("What you entered"), value != b"\xff", "{refused}");
    }
    let refused = edit_metadata(&mut browser, &page, &[("meta", b"no pair")]).expect(400).text();
    assert!(refused.contains("<textarea name=\"meta\"") && refused.contains("no pair</textarea>"), "{refused}");
    edit_metadata(&mut browser, &page, &[("seen", b"00000000000000000000000000000000")]).expect(409);
    let fields = metadata_form(&page);
    let fields: Vec<(&str, &[u8])> = fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let at = "/s3/object/metadata?bucket=cellar&key=racks%2Fcask";
    browser.post_with(at, b"0", &fields).expect(403);
    browser.post("/s3/object/metadata?bucket=none&key=racks%2Fcask", &fields).expect(404);
    browser.post("/s3/object/metadata?bucket=cellar", &fields).expect(400);
    // A form that lacks a field would take its header away.
    for left in 0..fields.len() {
        let cut: Vec<(&str, &[u8])> =
            fields.iter().enumerate().filter(|(at, _)| *at != left).map(|(_, field)| *field).collect();
        browser.post(at, &cut).expect(400);
    }
    assert_eq!(metadata_form(&browser.page(CASK)), metadata_form(&page), "nothing is changed");
    console.stop();
}

#[test]
fn a_versioned_bucket_keeps_the_version_before_an_edit_of_metadata() {
    let (console, mut browser) = with_bucket();
    browser.post("/s3/settings/versioning?bucket=cellar", &[("versioning", b"enabled")]).expect(303);
    store(&mut browser, "cask", b"oak").expect(303);
    let page = browser.page(CASK);
    edit_metadata(&mut browser, &page, &[("meta", b"a=1")]).expect(303);
    let page = browser.page(CASK);
    assert_eq!(page.matches(">Download</a>").count(), 3, "the object and its two versions: {page}");
    console.stop();
}

#[test]
fn a_locked_version_is_not_deleted_and_its_bucket_keeps_versions() {
    let (console, mut browser) = with_bucket();
    browser.post("/s3/settings/versioning?bucket=cellar", &[("versioning", b"enabled")]).expect(303);
    let owner = console.admin(S3Action::PutBucketObjectLockConfiguration);
    let lock = |bucket: &mut Bucket| {
        bucket.object_lock = Some(BucketLock::default());
        Ok(())
    };
    console.background.run(console.objects.buckets.configure(&owner, "cellar", lock)).unwrap();
    let lock = ObjectLock { legal_hold: Some(true), ..ObjectLock::default() };
    let put = cask(ObjectMetadata { lock, ..ObjectMetadata::default() });
    let put = console.background.run(console.objects.put(&console.admin(S3Action::PutObject), put)).unwrap();
    assert!(browser.page(CASK).contains("<dt>Legal hold</dt><dd>on</dd>"));
    let delete = "/s3/object/delete?bucket=cellar&key=racks%2Fcask";
    browser.post(&format!("{delete}&version={}", put.version_id.unwrap()), &[]).expect(403);
    browser.post(delete, &[]).expect(303);
    let settings = browser.page("/s3/settings?bucket=cellar");
    assert!(settings.contains("Object lock keeps it enabled.") && !settings.contains("Suspend"), "{settings}");
    browser.post("/s3/settings/versioning?bucket=cellar", &[("versioning", b"suspended")]).expect(409);
    console.stop();
}

#[test]
fn an_edit_of_metadata_keeps_storage_class_and_grants() {
    let (console, mut browser) = with_bucket();
    let ann = console.background.run(console.objects.users.create("ann@example.org", "Ann", false, None)).unwrap();
    let acl = AclChoice::Canned("public-read".into());
    let class = vec![(SystemHeader::StorageClass, "GLACIER".into())];
    let metadata = ObjectMetadata { headers: class, acl, ..ObjectMetadata::default() };
    let put = cask(metadata);
    let policy = br#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::cellar/*"}]}"#;
    browser.post("/s3/settings/policy?bucket=cellar", &[("policy", policy)]).expect(303);
    let ann = Caller { user: Some(ann), action: Some(S3Action::PutObject), ..Caller::default() };
    console.background.run(console.objects.put(&ann, put)).unwrap();
    browser.post("/s3/settings/policy?bucket=cellar", &[("policy", b"")]).expect(303);
    let page = browser.page(CASK);
    edit_metadata(&mut browser, &page, &[("meta", b"a=1")]).expect(303);
    assert!(browser.page(CASK).contains("<dt>x-amz-storage-class</dt><dd>GLACIER</dd>"));
    let get = GetObject { bucket: "cellar".into(), key: "racks/cask".into(), ..GetObject::default() };
    for caller in
        [ann.with_action(S3Action::GetObject), Caller { action: Some(S3Action::GetObject), ..Caller::default() }]
    {
        let found = console.background.run(console.objects.head(&caller, &get)).unwrap();
        assert_eq!(found.version.object.unwrap().meta, [("a".to_owned(), "1".into())]);
    }
    console.stop();
}

#[test]
fn metadata_that_a_form_would_change_is_left_to_clients() {
    let (console, mut browser) = with_bucket();
    for (name, value) in [("a", &b"\xff"[..]), ("a", "gpj\u{202e}exe".as_bytes()), ("a", b" b"), ("a=b", b"c")] {
        let metadata =
            ObjectMetadata { meta: vec![(name.into(), Bytes::copy_from_slice(value))], ..ObjectMetadata::default() };
        let put = cask(metadata);
        console.background.run(console.objects.put(&console.admin(S3Action::PutObject), put)).unwrap();
        let page = browser.page(CASK);
        assert!(page.contains("does not give back unchanged") && !page.contains("/s3/object/metadata"), "{page}");
    }
    console.stop();
}
