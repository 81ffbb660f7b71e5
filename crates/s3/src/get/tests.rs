//! Windows and conditions.

use larder_rows::ids::VersionId;

use super::*;
use crate::put::WriteConditions;
use crate::rules::{BucketId, Etag, Object, ObjectBody, ObjectLock, S3Action};

const SECOND: u64 = 1_000_000;
const NOW: Timestamp = Timestamp(20 * SECOND);

fn version() -> Version {
    let object = Object {
        body: ObjectBody::Inline(Bytes::from_static(b"0123456789")),
        etag: Etag::from_md5([7; 16]),
        headers: Vec::new(),
        meta: Vec::new(),
        tags: Vec::new(),
        acl: None,
        checksum: None,
        upload: None,
        encryption: None,
        lock: ObjectLock::default(),
    };
    Version {
        id: VersionId([1; 16]),
        null: true,
        modified: Timestamp(10 * SECOND + 5),
        owner: "o".into(),
        object: Some(object),
    }
}

fn tags(tags: &[&str]) -> Option<Vec<String>> {
    Some(tags.iter().map(|&tag| tag.to_owned()).collect())
}

fn outcome(conditions: ReadConditions) -> &'static str {
    let bucket = Bucket::new("bucket", BucketId([0; 16]), "o", Timestamp::ZERO);
    match conditions.check(&bucket, &version(), || NOW) {
        Ok(()) => "",
        Err(Error::PreconditionFailed(header)) => header,
        Err(Error::NotModified { .. }) => "304",
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn windows_are_cut_to_the_object() {
    let range = |window| window_range(window, 10).ok();
    assert_eq!(range(ReadWindow::Whole), Some(0..10));
    assert_eq!(range(ReadWindow::Range(2, Some(4))), Some(2..5));
    assert_eq!(range(ReadWindow::Range(2, Some(u64::MAX))), Some(2..10));
    assert_eq!(range(ReadWindow::Range(9, None)), Some(9..10));
    assert_eq!(range(ReadWindow::Range(10, None)), None);
    assert_eq!(range(ReadWindow::Range(5, Some(4))), None);
    assert_eq!(range(ReadWindow::Last(3)), Some(7..10));
    assert_eq!(range(ReadWindow::Last(30)), Some(0..10));
    assert_eq!(range(ReadWindow::Last(0)), None);
    assert_eq!(range(ReadWindow::Part(1)), Some(0..10));
    assert_eq!(range(ReadWindow::Part(2)), None);
    assert!(window_range(ReadWindow::Range(0, None), 0).is_err());
    assert!(window_range(ReadWindow::Last(1), 0).is_err());
    assert_eq!(window_range(ReadWindow::Whole, 0).ok(), Some(0..0));
}

#[test]
fn entity_tags_override_dates() {
    let (right, wrong) = (format!("\"{}\"", Etag::from_md5([7; 16])), format!("{}", Etag::from_md5([8; 16])));
    let of = |if_match: &[&str], if_none_match: &[&str], modified_since, unmodified_since| ReadConditions {
        if_match: tags(if_match).filter(|tags| !tags.is_empty()),
        if_none_match: tags(if_none_match).filter(|tags| !tags.is_empty()),
        modified_since,
        unmodified_since,
        ..ReadConditions::default()
    };
    let (before, same, after) = (Some(9 * SECOND), Some(10 * SECOND), Some(11 * SECOND));
    assert_eq!(outcome(of(&[&wrong, &right], &[], None, None)), "");
    assert_eq!(outcome(of(&["*"], &[], None, None)), "");
    assert_eq!(outcome(of(&[&wrong], &[], None, None)), "If-Match");
    assert_eq!(outcome(of(&[&right], &[], None, before.map(Timestamp))), "", "a matching tag overrides the date");
    assert_eq!(outcome(of(&[], &[], None, before.map(Timestamp))), "If-Unmodified-Since");
    assert_eq!(outcome(of(&[], &[], None, same.map(Timestamp))), "", "HTTP dates have whole seconds");
    assert_eq!(outcome(of(&[], &[&right], before.map(Timestamp), None)), "304");
    assert_eq!(outcome(of(&[], &[&format!("W/{right}")], None, None)), "304");
    assert_eq!(outcome(of(&[], &[&wrong], after.map(Timestamp), None)), "", "a given tag overrides the date");
    assert_eq!(outcome(of(&[], &[], same.map(Timestamp), None)), "304");
    assert_eq!(outcome(of(&[], &[], before.map(Timestamp), None)), "");
    let (now, future) = (Some(NOW), Some(Timestamp(NOW.0 + SECOND)));
    assert_eq!(outcome(of(&[], &[], now, None)), "304");
    assert_eq!(outcome(of(&[], &[], future, None)), "", "a date in the future says nothing");
    let copy = ReadConditions { always_precondition: true, ..of(&[], &[&right], None, None) };
    assert_eq!(outcome(copy), "If-None-Match");
}

#[test]
fn a_failed_if_range_reads_the_whole_object() {
    let (right, wrong) = (format!("\"{}\"", Etag::from_md5([7; 16])), Etag::from_md5([8; 16]).to_string());
    let range = ReadWindow::Range(1, None);
    let window = |if_range, window| ReadConditions { if_range, ..ReadConditions::default() }.window(&version(), window);
    assert_eq!(window(None, range), range);
    assert_eq!(window(Some(IfRange::Tag(right)), range), range);
    assert_eq!(window(Some(IfRange::Modified(Timestamp(10 * SECOND + 1))), ReadWindow::Last(2)), ReadWindow::Last(2));
    for other in
        [IfRange::Tag(wrong), IfRange::Tag("*".into()), IfRange::Modified(Timestamp(11 * SECOND)), IfRange::Nothing]
    {
        assert_eq!(window(Some(other.clone()), range), ReadWindow::Whole);
        assert_eq!(window(Some(other), ReadWindow::Part(1)), ReadWindow::Part(1), "a part is no range");
    }
}

#[test]
fn a_delete_marker_counts_as_absent_for_a_write() {
    let (there, marker) = (version(), Version { object: None, ..version() });
    let check = |if_match, if_none_match, current: Option<&Version>| {
        WriteConditions { if_match, if_none_match, ..WriteConditions::default() }.check(current)
    };
    assert!(check(tags(&["*"]), None, Some(&there)).is_ok());
    assert!(matches!(check(tags(&["*"]), None, Some(&marker)), Err(Error::NoSuchKey)));
    assert!(matches!(check(tags(&["x"]), None, Some(&there)), Err(Error::PreconditionFailed("If-Match"))));
    assert!(matches!(check(None, tags(&["*"]), Some(&there)), Err(Error::PreconditionFailed("If-None-Match"))));
    assert!(check(None, tags(&["*"]), Some(&marker)).is_ok());
    assert!(check(None, tags(&["*"]), None).is_ok());
    assert!(check(None, tags(&["00000000000000000000000000000000"]), Some(&there)).is_ok());
}

mod over_a_store {
    use super::super::super::commit::testing::{
        BUCKET, BucketFixture, bytes, get_request, id, put_request, read_all, run,
    };
    use super::super::super::uploads::testing::{KEY, Trap, UploadSetup};
    use super::*;
    use crate::buckets::testing::new_caller;
    use crate::delete::DeletedObject;
    use crate::rules::Versioning;
    use crate::rules::lifecycle::{Expiration, Lifecycle, LifecycleRule};

    #[test]
    fn any_window_of_any_body_reads_as_written() {
        run(async {
            let fixture = BucketFixture::new().await;
            let sizes = [3000, 0, 1, 2500, 0, 700];
            let parts: Vec<Bytes> = sizes.iter().enumerate().map(|(at, size)| bytes(at as u64, *size)).collect();
            let whole: Bytes = parts.concat().into();
            fixture.put_parts("parts", &parts).await;
            fixture.put("blob", &whole).await;
            fixture.put("inline", &whole.slice(..1000)).await;
            for (key, length) in [("parts", whole.len()), ("blob", whole.len()), ("inline", 1000)] {
                for seed in 0..60_u64 {
                    let from = bytes(seed, 8).iter().fold(0, |sum, byte| sum * 31 + usize::from(*byte)) % length;
                    let last = from + seed as usize * seed as usize;
                    let window = ReadWindow::Range(from as u64, Some(last as u64));
                    let (found_object, got) = fixture.find(GetObject { window, ..get_request(key) }).await.unwrap();
                    assert_eq!(got, whole.slice(from..(last + 1).min(length)), "{key} {window:?}");
                    assert!(found_object.partial);
                }
                let last = fixture.find(GetObject { window: ReadWindow::Last(5), ..get_request(key) }).await.unwrap().1;
                assert_eq!(last, whole.slice(length - 5..length));
                let beyond = GetObject { window: ReadWindow::Range(length as u64, None), ..get_request(key) };
                assert!(
                    matches!(fixture.find(beyond).await, Err(Error::InvalidRange { length: l }) if l == length as u64)
                );
            }
        });
    }

    #[test]
    fn a_part_is_read_by_its_number() {
        run(async {
            let fixture = BucketFixture::new().await;
            // More parts than a manifest row holds.
            let parts: Vec<Bytes> = (0..300).map(|at| bytes(at, at as usize % 5)).collect();
            fixture.put_parts("key", &parts).await;
            for number in [1, 2, 5, 256, 257, 300] {
                let request = GetObject { window: ReadWindow::Part(number), ..get_request("key") };
                let (found_object, got) = fixture.find(request).await.unwrap();
                assert_eq!(
                    (got, found_object.part.unwrap().count),
                    (parts[usize::from(number) - 1].clone(), Some(300))
                );
            }
            for number in [0, 301] {
                let request = GetObject { window: ReadWindow::Part(number), ..get_request("key") };
                assert!(matches!(fixture.find(request).await, Err(Error::InvalidPartNumber)));
            }
            fixture.put("simple", &bytes(1, 10)).await;
            let (found_object, got) =
                fixture.find(GetObject { window: ReadWindow::Part(1), ..get_request("simple") }).await.unwrap();
            assert_eq!((got.len(), found_object.part.and_then(|part| part.count)), (10, None));
        });
    }

    #[test]
    fn versions_are_found_by_their_ids() {
        run(async {
            let fixture = BucketFixture::new().await;
            let null = fixture.put("key", &bytes(0, 10)).await;
            fixture.versioning(Versioning::Enabled).await;
            let (version_1, version_2) =
                (fixture.put("key", &bytes(1, 10)).await, fixture.put("key", &bytes(2, 10)).await);
            let DeletedObject { version_id: marker, .. } = fixture.delete("key", &VersionSpec::Current).await;
            assert_eq!(fixture.get("key", id("null")).await.unwrap(), bytes(0, 10));
            assert_eq!(fixture.get("key", id(&version_1.version_id.unwrap())).await.unwrap(), bytes(1, 10));
            assert_eq!(fixture.get("key", id(&version_2.version_id.unwrap())).await.unwrap(), bytes(2, 10));
            let hidden = id(&null.version.id.text());
            assert!(
                matches!(fixture.get("key", hidden).await, Err(Error::NoSuchVersion(_))),
                "its id for clients is null"
            );
            assert!(matches!(fixture.get("key", id("nonsense")).await, Err(Error::NoSuchVersion(_))));
            let unknown = id(&VersionId([5; 16]).text());
            assert!(matches!(fixture.get("key", unknown).await, Err(Error::NoSuchVersion(_))));
            let met = fixture.get("key", VersionSpec::Current).await;
            assert!(matches!(met, Err(Error::DeleteMarker { current: true, .. })));
            let met = fixture.get("key", id(&marker.unwrap())).await;
            assert!(matches!(met, Err(Error::DeleteMarker { current: false, .. })));
        });
    }

    #[test]
    fn a_missing_key_is_hidden_without_list_permission() {
        run(async {
            let fixture = BucketFixture::new().await;
            fixture.put("key", &bytes(0, 10)).await;
            let other = new_caller(&fixture.objects, "other").await;
            for caller in [Caller::default(), other.clone()] {
                let caller = caller.with_action(S3Action::GetObject);
                for key in ["key", "nothing"] {
                    assert!(matches!(fixture.objects.head(&caller, &get_request(key)).await, Err(Error::AccessDenied)));
                }
            }
            assert!(matches!(
                fixture.objects.head(&fixture.owner, &get_request("nothing")).await,
                Err(Error::NoSuchKey)
            ));
            let nowhere = GetObject { bucket: "nowhere".into(), ..get_request("key") };
            assert!(matches!(fixture.objects.head(&other, &nowhere).await, Err(Error::NoSuchBucket(_))));
            assert_eq!(BUCKET, get_request("key").bucket);
        });
    }

    #[test]
    fn an_open_reader_keeps_its_bytes() {
        run(async {
            let fixture = BucketFixture::new().await;
            let parts = [bytes(1, 3000), bytes(2, 3000)];
            fixture.put_parts("parts", &parts).await;
            fixture.put("blob", &parts[0]).await;
            let (_, mut of_parts) = fixture.objects.get(&fixture.owner, &get_request("parts")).await.unwrap();
            let (_, mut of_blob) = fixture.objects.get(&fixture.owner, &get_request("blob")).await.unwrap();
            let first = of_parts.next(100).await.unwrap();
            of_blob.next(100).await.unwrap();
            for key in ["parts", "blob"] {
                fixture.put(key, &bytes(3, 10)).await;
                fixture.blobs().await;
            }
            let rest = read_all(of_parts, 1000).await.unwrap();
            assert_eq!([first, rest].concat(), parts.concat());
            assert_eq!(read_all(of_blob, 1000).await.unwrap().len(), 2900);
            // The next change removes the pinned blobs.
            assert_eq!(fixture.blobs().await.len(), 2);
            fixture.put("parts", &bytes(4, 10)).await;
            assert!(fixture.blobs().await.is_empty());
        });
    }

    #[test]
    fn a_reader_paused_at_any_call_reads_one_whole_version() {
        for of_parts in [true, false] {
            for step in 0.. {
                if !run(stand_still(of_parts, step)) {
                    assert!(step > 0);
                    break;
                }
            }
        }
    }

    /// Replaces an object while its reader is paused at a store call.
    async fn stand_still(of_parts: bool, step: usize) -> bool {
        let (setup, old, new) = (UploadSetup::new().await, [bytes(1, 3000), bytes(2, 3000)], bytes(3, 2000));
        match of_parts {
            true => drop(setup.fixture.put_parts(KEY, &old).await),
            false => drop(setup.fixture.put(KEY, &old.concat().into()).await),
        }
        setup.gate.set(Trap::Stop, step);
        let read = async {
            let (_, reader) = setup.slow.get(&setup.fixture.owner, &get_request(KEY)).await?;
            read_all(reader, 1000).await
        };
        let replace = async {
            setup.gate.reached().await;
            // Through the same gateway: pins are in its memory.
            setup.slow.put(&setup.fixture.owner, put_request(KEY, &new)).await.unwrap();
            setup.fixture.blobs().await;
            setup.gate.open();
        };
        let both = async { tokio::join!(read, replace) };
        let Ok((read, ())) = tokio::time::timeout(std::time::Duration::from_secs(60), both).await else { return false };
        let read = read.unwrap_or_else(|error| panic!("step {step}: {error}"));
        assert!(read == old.concat() || read == new, "step {step}");
        true
    }

    #[test]
    fn parts_released_before_the_pin_are_not_read() {
        run(async {
            let fixture = BucketFixture::new().await;
            fixture.put_parts(KEY, &[bytes(1, 3000)]).await;
            let key = Bytes::from_static(KEY.as_bytes());
            let request = GetObject { key, ..get_request(KEY) };
            let mut read = fixture.objects.locate_and_check(&fixture.owner, &request).await.unwrap();
            // As if the pin came after the release.
            read.pin = None;
            fixture.put(KEY, &bytes(2, 10)).await;
            read.pin = fixture.objects.pin(&read.located.version);
            assert!(read.pin.is_some());
            assert!(fixture.objects.open(&mut read).await.unwrap().is_none());
        });
    }

    #[test]
    fn bytes_that_are_missing_are_never_made_up() {
        run(async {
            let fixture = BucketFixture::new().await;
            fixture.put("blob", &bytes(1, 3000)).await;
            fixture.put_parts("parts", &[bytes(1, 3000), bytes(2, 3000)]).await;
            for blob in fixture.blobs().await {
                fixture.objects.gateway.blobs().releases.remove_unnamed(blob).await;
            }
            for key in ["blob", "parts"] {
                let read = fixture.get(key, VersionSpec::Current).await;
                assert!(matches!(read, Err(Error::Gateway(larder_core::Error::Damaged(_)))), "{key}");
                fixture.objects.head(&fixture.owner, &get_request(key)).await.unwrap();
            }
            assert!(fixture.objects.gateway.metrics_text().contains("\nlarder_s3_damaged_reads_total 2\n"));
        });
    }

    #[test]
    fn only_the_current_version_has_an_expiry() {
        run(async {
            let fixture = BucketFixture::new().await;
            let rule = LifecycleRule {
                id: "r".into(),
                enabled: true,
                expiration: Some(Expiration::Days(1)),
                ..LifecycleRule::default()
            };
            let rules = Lifecycle { rules: vec![rule] };
            let change = |bucket: &mut Bucket| {
                bucket.lifecycle = Some(rules.clone());
                bucket.versioning = Versioning::Enabled;
                Ok(())
            };
            let configured = fixture.objects.buckets.configure(&fixture.owner, BUCKET, change);
            configured.await.unwrap();
            let old = fixture.put(KEY, &bytes(1, 10)).await.version_id.unwrap();
            fixture.put(KEY, &bytes(2, 10)).await;
            let expires = async |version| {
                let request = GetObject { version, ..get_request(KEY) };
                fixture.objects.head(&fixture.owner, &request).await.unwrap().expires
            };
            assert!(matches!(expires(VersionSpec::Current).await, Some((_, rule)) if rule == "r"));
            assert_eq!(expires(id(&old)).await, None);
        });
    }
}
