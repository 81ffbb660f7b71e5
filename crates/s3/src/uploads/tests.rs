//! Uploads: begin and list.

use larder_rows::hash::id64;

use super::super::Error;
use super::super::buckets::testing::{anonymous, new_caller};
use super::super::commit::testing::{BUCKET, run};
use super::super::list::KeyOrPrefix;
use super::testing::{UploadSetup, create_request};
use super::*;
use crate::rules::{S3Action, UploadState};

fn query(prefix: &'static str, delimiter: &'static str, max: usize) -> ListUploads {
    let objects = ListObjects {
        bucket: BUCKET.into(),
        prefix: Bytes::from_static(prefix.as_bytes()),
        delimiter: Bytes::from_static(delimiter.as_bytes()),
        max,
        ..ListObjects::default()
    };
    ListUploads { objects, upload: None }
}

/// A line: a prefix, or a key with its upload.
type UploadLine = (Bytes, Option<UploadId>);

/// The lines of all pages.
async fn all(setup: &UploadSetup, mut query: ListUploads) -> Vec<UploadLine> {
    let mut lines = Vec::new();
    for _ in 0..1000 {
        let (page, upload) = setup.fixture.objects.uploads.list(&setup.fixture.owner, &query).await.unwrap();
        assert!(page.lines.len() <= query.objects.max);
        lines.extend(page.lines.into_iter().map(|line| match line {
            KeyOrPrefix::Key(key, (id, _)) => (key, Some(id)),
            KeyOrPrefix::Prefix(prefix) => (prefix, None),
        }));
        let Some(next) = page.next else { return lines };
        query.objects.after = next;
        query.upload = upload;
    }
    panic!("the listing does not end");
}

/// The expected lines, from all uploads.
fn model(uploads: &[(&str, UploadId)], prefix: &str, delimiter: &str) -> Vec<UploadLine> {
    let mut lines: Vec<UploadLine> = Vec::new();
    for (key, id) in uploads {
        let Some(rest) = key.strip_prefix(prefix) else { continue };
        let cut = if delimiter.is_empty() { None } else { rest.find(delimiter) };
        let line = match cut {
            Some(at) => (key[..prefix.len() + at + delimiter.len()].to_owned().into(), None),
            None => ((*key).to_owned().into(), Some(*id)),
        };
        if line.1.is_some() || lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    lines
}

#[test]
fn pages_of_uploads_match_a_model() {
    run(async {
        let setup = UploadSetup::new().await;
        let keys = ["a", "a/b", "a/b/c", "a/c", "aa", "b/", "b/x", "b/y", "c"];
        let mut uploads = Vec::new();
        for at in 0..40_u64 {
            let key = keys[(id64(&[&at.to_be_bytes()]) % keys.len() as u64) as usize];
            let id = setup.begin_at(key).await;
            // Ended uploads are not listed.
            if at % 7 == 0 {
                let head = setup.fixture.objects.heads.read_upload(id).await.unwrap().unwrap();
                assert!(setup.fixture.objects.uploads.abort_upload(head).await.unwrap());
            } else {
                uploads.push((key, id));
            }
        }
        uploads.sort();
        for prefix in ["", "a", "a/", "b/", "z"] {
            for delimiter in ["", "/", "b"] {
                for max in [1, 2, 3, 7, 1000] {
                    let lines = all(&setup, query(prefix, delimiter, max)).await;
                    assert_eq!(lines, model(&uploads, prefix, delimiter), "{prefix:?} {delimiter:?} {max}");
                }
            }
        }
        let (none, next) = setup.fixture.objects.uploads.list(&setup.fixture.owner, &query("", "", 0)).await.unwrap();
        assert!(none.lines.is_empty() && none.next.is_none() && next.is_none());
    });
}

#[test]
fn markers_skip_earlier_uploads() {
    run(async {
        let setup = UploadSetup::new().await;
        let (first, second, third) = (setup.begin_at("k").await, setup.begin_at("k").await, setup.begin_at("l").await);
        let after_marker = |upload| {
            let mut after_marker = query("", "", 10);
            after_marker.objects.after = Bytes::from_static(b"k");
            after_marker.upload = upload;
            after_marker
        };
        let ids = |lines: Vec<UploadLine>| lines.into_iter().filter_map(|(_, id)| id).collect::<Vec<_>>();
        assert_eq!(ids(all(&setup, query("", "", 10)).await), [first, second, third]);
        assert_eq!(ids(all(&setup, after_marker(None)).await), [third]);
        assert_eq!(ids(all(&setup, after_marker(Some(first))).await), [second, third]);
        let mut without_key = after_marker(Some(first));
        without_key.objects.after = Bytes::new();
        assert_eq!(ids(all(&setup, without_key).await), [first, second, third], "an upload marker needs a key marker");
    });
}

#[test]
fn an_upload_has_its_initiator_and_abort_date() {
    run(async {
        let setup = UploadSetup::new().await;
        let objects = &setup.fixture.objects;
        let rule = crate::rules::lifecycle::LifecycleRule {
            id: "old".into(),
            enabled: true,
            abort_uploads_days: Some(2),
            ..Default::default()
        };
        let lifecycle = crate::rules::lifecycle::Lifecycle { rules: vec![rule] };
        let change = |bucket: &mut Bucket| {
            bucket.lifecycle = Some(lifecycle.clone());
            Ok(())
        };
        objects.buckets.configure(&setup.fixture.owner, BUCKET, change).await.unwrap();
        let created = objects.uploads.create(&setup.fixture.owner, create_request("k")).await.unwrap();
        let (id, date) = (created.id, created.abort_date);
        let (when, rule) = date.unwrap();
        let head = objects.heads.read_upload(id).await.unwrap().unwrap();
        assert_eq!(rule, "old");
        assert!(
            when >= head.upload.initiated + 2 * 86_400_000_000 && when <= head.upload.initiated + 3 * 86_400_000_000
        );
        assert_eq!(head.upload.state, UploadState::Open);
        assert_eq!(
            (&*head.upload.initiator, &*head.upload.owner),
            (setup.fixture.owner.id(), setup.fixture.owner.id())
        );
    });
}

#[test]
fn uploads_need_permission() {
    run(async {
        let setup = UploadSetup::new().await;
        let stranger = new_caller(&setup.fixture.objects, "stranger").await;
        for caller in [stranger, anonymous(S3Action::PutObject)] {
            let refused = setup.fixture.objects.uploads.create(&caller, create_request("k")).await;
            assert!(matches!(refused, Err(Error::AccessDenied)));
            let caller = caller.with_action(S3Action::ListBucketMultipartUploads);
            let refused = setup.fixture.objects.uploads.list(&caller, &query("", "", 1)).await;
            assert!(matches!(refused, Err(Error::AccessDenied)));
        }
        let mut nowhere = create_request("k");
        nowhere.bucket = "nowhere".into();
        let refused = setup.fixture.objects.uploads.create(&setup.fixture.owner, nowhere).await;
        assert!(matches!(refused, Err(Error::NoSuchBucket(_))));
        let long = create_request(&"k".repeat(1025));
        let refused = setup.fixture.objects.uploads.create(&setup.fixture.owner, long).await;
        assert!(matches!(refused, Err(Error::KeyTooLong(1025))));
    });
}
