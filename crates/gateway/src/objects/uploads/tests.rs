//! Uploads begin, and are listed while they are alive.

use larder_model::hash::id64;
use larder_model::objects::UploadState;

use super::super::buckets::testing::new_caller;
use super::super::commit::testing::{BUCKET, run};
use super::super::list::Listed;
use super::super::{Caller, Error};
use super::testing::{Bench, create_of};
use super::*;

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

/// A line as text: a prefix, or a key with its upload.
type Line = (Bytes, Option<UploadId>);

/// Every page, one after another.
async fn all(bench: &Bench, mut query: ListUploads) -> Vec<Line> {
    let mut lines = Vec::new();
    for _ in 0..1000 {
        let (page, upload) = bench.desk.objects.list_uploads(&bench.desk.owner, &query).await.unwrap();
        assert!(page.lines.len() <= query.objects.max);
        lines.extend(page.lines.into_iter().map(|line| match line {
            Listed::Key(key, (id, _)) => (key, Some(id)),
            Listed::Prefix(prefix) => (prefix, None),
        }));
        let Some(next) = page.next else { return lines };
        query.objects.after = next;
        query.upload = upload;
    }
    panic!("the listing does not end");
}

/// The same from all uploads there are.
fn model(uploads: &[(&str, UploadId)], prefix: &str, delimiter: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
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
fn pages_of_uploads_are_what_a_model_says() {
    run(async {
        let bench = Bench::new().await;
        let keys = ["a", "a/b", "a/b/c", "a/c", "aa", "b/", "b/x", "b/y", "c"];
        let mut uploads = Vec::new();
        for at in 0..40_u64 {
            let key = keys[(id64(&[&at.to_be_bytes()]) % keys.len() as u64) as usize];
            let id = bench.begin_at(key).await;
            // Ended ones are not listed.
            if at % 7 == 0 {
                let head = bench.desk.objects.read_upload(id).await.unwrap().unwrap();
                assert!(bench.desk.objects.give_up_upload(head).await.unwrap());
            } else {
                uploads.push((key, id));
            }
        }
        uploads.sort();
        for prefix in ["", "a", "a/", "b/", "z"] {
            for delimiter in ["", "/", "b"] {
                for max in [1, 2, 3, 7, 1000] {
                    let lines = all(&bench, query(prefix, delimiter, max)).await;
                    assert_eq!(lines, model(&uploads, prefix, delimiter), "{prefix:?} {delimiter:?} {max}");
                }
            }
        }
        let (none, next) = bench.desk.objects.list_uploads(&bench.desk.owner, &query("", "", 0)).await.unwrap();
        assert!(none.lines.is_empty() && none.next.is_none() && next.is_none());
    });
}

#[test]
fn markers_leave_out_what_is_before_them() {
    run(async {
        let bench = Bench::new().await;
        let (first, second, third) = (bench.begin_at("k").await, bench.begin_at("k").await, bench.begin_at("l").await);
        let behind = |upload| {
            let mut behind = query("", "", 10);
            behind.objects.after = Bytes::from_static(b"k");
            behind.upload = upload;
            behind
        };
        let ids = |lines: Vec<Line>| lines.into_iter().filter_map(|(_, id)| id).collect::<Vec<_>>();
        assert_eq!(ids(all(&bench, query("", "", 10)).await), [first, second, third]);
        assert_eq!(ids(all(&bench, behind(None)).await), [third]);
        assert_eq!(ids(all(&bench, behind(Some(first))).await), [second, third]);
        let mut without_key = behind(Some(first));
        without_key.objects.after = Bytes::new();
        assert_eq!(ids(all(&bench, without_key).await), [first, second, third], "an upload marker needs a key marker");
    });
}

#[test]
fn an_upload_says_who_began_it_and_when_it_is_given_up() {
    run(async {
        let bench = Bench::new().await;
        let objects = &bench.desk.objects;
        let rule = larder_model::objects::lifecycle::LifecycleRule {
            id: "old".into(),
            enabled: true,
            abort_uploads_days: Some(2),
            ..Default::default()
        };
        let lifecycle = larder_model::objects::lifecycle::Lifecycle { rules: vec![rule] };
        let change = |bucket: &mut Bucket| {
            bucket.lifecycle = Some(lifecycle.clone());
            Ok(())
        };
        objects.configure(&bench.desk.owner, BUCKET, "s3:PutLifecycleConfiguration", change).await.unwrap();
        let (id, date) = objects.create_upload(&bench.desk.owner, create_of("k")).await.unwrap();
        let (when, rule) = date.unwrap();
        let head = objects.read_upload(id).await.unwrap().unwrap();
        assert_eq!(rule, "old");
        assert!(
            when >= head.upload.initiated + 2 * 86_400_000_000 && when <= head.upload.initiated + 3 * 86_400_000_000
        );
        assert_eq!(head.upload.state, UploadState::Open);
        assert_eq!((&*head.upload.initiator, &*head.upload.owner), (bench.desk.owner.id(), bench.desk.owner.id()));
    });
}

#[test]
fn strangers_begin_and_list_nothing() {
    run(async {
        let bench = Bench::new().await;
        let stranger = new_caller(&bench.desk.objects, "stranger").await;
        for caller in [stranger, Caller::default()] {
            let refused = bench.desk.objects.create_upload(&caller, create_of("k")).await;
            assert!(matches!(refused, Err(Error::AccessDenied)));
            let refused = bench.desk.objects.list_uploads(&caller, &query("", "", 1)).await;
            assert!(matches!(refused, Err(Error::AccessDenied)));
        }
        let mut nowhere = create_of("k");
        nowhere.bucket = "nowhere".into();
        let refused = bench.desk.objects.create_upload(&bench.desk.owner, nowhere).await;
        assert!(matches!(refused, Err(Error::NoSuchBucket(_))));
        let long = create_of(&"k".repeat(1025));
        let refused = bench.desk.objects.create_upload(&bench.desk.owner, long).await;
        assert!(matches!(refused, Err(Error::KeyTooLong(1025))));
    });
}
