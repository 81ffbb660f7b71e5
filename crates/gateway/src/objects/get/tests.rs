//! Windows and conditions.

use larder_model::objects::{BucketId, Etag, Object, ObjectBody};

use super::*;
use crate::objects::put::WriteConditions;

const SECOND: u64 = 1_000_000;

fn version() -> Version {
    let object = Object {
        body: ObjectBody::Inline(Bytes::from_static(b"0123456789")),
        etag: Etag::of_md5([7; 16]),
        headers: Vec::new(),
        meta: Vec::new(),
        tags: Vec::new(),
        acl: None,
        checksum: None,
        upload: None,
    };
    Version { id: VersionId([1; 16]), null: true, modified: 10 * SECOND + 5, owner: "o".into(), object: Some(object) }
}

fn tags(tags: &[&str]) -> Option<Vec<String>> {
    Some(tags.iter().map(|&tag| tag.to_owned()).collect())
}

fn outcome(conditions: ReadConditions) -> &'static str {
    let bucket = Bucket::new("bucket", BucketId([0; 16]), "o", 0);
    match conditions.check(&bucket, &version()) {
        Ok(()) => "",
        Err(Error::PreconditionFailed(header)) => header,
        Err(Error::NotModified { .. }) => "304",
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn windows_are_cut_to_the_object() {
    let range = |window| conditions::range(window, 10).ok();
    assert_eq!(range(Window::Whole), Some(0..10));
    assert_eq!(range(Window::Range(2, Some(4))), Some(2..5));
    assert_eq!(range(Window::Range(2, Some(u64::MAX))), Some(2..10));
    assert_eq!(range(Window::Range(9, None)), Some(9..10));
    assert_eq!(range(Window::Range(10, None)), None);
    assert_eq!(range(Window::Range(5, Some(4))), None);
    assert_eq!(range(Window::Last(3)), Some(7..10));
    assert_eq!(range(Window::Last(30)), Some(0..10));
    assert_eq!(range(Window::Last(0)), None);
    assert_eq!(range(Window::Part(1)), Some(0..10));
    assert_eq!(range(Window::Part(2)), None);
    assert!(conditions::range(Window::Range(0, None), 0).is_err());
    assert!(conditions::range(Window::Last(1), 0).is_err());
    assert_eq!(conditions::range(Window::Whole, 0).ok(), Some(0..0));
}

#[test]
fn entity_tags_come_before_dates() {
    let (right, wrong) = (format!("\"{}\"", Etag::of_md5([7; 16])), format!("{}", Etag::of_md5([8; 16])));
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
    assert_eq!(outcome(of(&[&right], &[], None, before)), "", "a tag that holds settles the date");
    assert_eq!(outcome(of(&[], &[], None, before)), "If-Unmodified-Since");
    assert_eq!(outcome(of(&[], &[], None, same)), "", "clients know whole seconds");
    assert_eq!(outcome(of(&[], &[&right], before, None)), "304");
    assert_eq!(outcome(of(&[], &[&format!("W/{right}")], None, None)), "304");
    assert_eq!(outcome(of(&[], &[&wrong], after, None)), "", "a tag that is given settles the date");
    assert_eq!(outcome(of(&[], &[], same, None)), "304");
    assert_eq!(outcome(of(&[], &[], before, None)), "");
    let copy = ReadConditions { always_precondition: true, ..of(&[], &[&right], None, None) };
    assert_eq!(outcome(copy), "If-None-Match");
}

#[test]
fn a_range_of_another_object_is_all_of_this_one() {
    let (right, wrong) = (format!("\"{}\"", Etag::of_md5([7; 16])), Etag::of_md5([8; 16]).to_string());
    let range = Window::Range(1, None);
    let window = |if_range, window| ReadConditions { if_range, ..ReadConditions::default() }.window(&version(), window);
    assert_eq!(window(None, range), range);
    assert_eq!(window(Some(IfRange::Tag(right)), range), range);
    assert_eq!(window(Some(IfRange::Modified(10 * SECOND + 1)), Window::Last(2)), Window::Last(2));
    for other in [IfRange::Tag(wrong), IfRange::Tag("*".into()), IfRange::Modified(11 * SECOND), IfRange::Nothing] {
        assert_eq!(window(Some(other.clone()), range), Window::Whole);
        assert_eq!(window(Some(other), Window::Part(1)), Window::Part(1), "a part is no range");
    }
}

#[test]
fn a_delete_marker_counts_as_absent_for_a_write() {
    let (there, marker) = (version(), Version { object: None, ..version() });
    let check =
        |if_match, if_none_match, current: Option<&Version>| WriteConditions { if_match, if_none_match }.check(current);
    assert!(check(tags(&["*"]), None, Some(&there)).is_ok());
    assert!(matches!(check(tags(&["*"]), None, Some(&marker)), Err(Error::NoSuchKey)));
    assert!(matches!(check(tags(&["x"]), None, Some(&there)), Err(Error::PreconditionFailed("If-Match"))));
    assert!(matches!(check(None, tags(&["*"]), Some(&there)), Err(Error::PreconditionFailed("If-None-Match"))));
    assert!(check(None, tags(&["*"]), Some(&marker)).is_ok());
    assert!(check(None, tags(&["*"]), None).is_ok());
    assert!(check(None, tags(&["00000000000000000000000000000000"]), Some(&there)).is_ok());
}

mod over_a_store {
    use super::super::super::commit::testing::{BUCKET, Desk, bytes, get_of, id, put_of, read_all, run};
    use super::super::super::uploads::testing::{Bench, KEY, Trap};
    use super::*;
    use crate::objects::buckets::testing::new_caller;
    use crate::objects::delete::Deleted;
    use larder_model::objects::Versioning;
    use larder_model::objects::lifecycle::{Expiration, Lifecycle, LifecycleRule};

    #[test]
    fn every_window_of_every_kind_of_body_is_read_as_it_was_written() {
        run(async {
            let desk = Desk::new().await;
            let sizes = [3000, 0, 1, 2500, 0, 700];
            let parts: Vec<Bytes> = sizes.iter().enumerate().map(|(at, size)| bytes(at as u64, *size)).collect();
            let whole: Bytes = parts.concat().into();
            desk.put_parts("parts", &parts).await;
            desk.put("blob", &whole).await;
            desk.put("inline", &whole.slice(..1000)).await;
            for (key, length) in [("parts", whole.len()), ("blob", whole.len()), ("inline", 1000)] {
                for seed in 0..60_u64 {
                    let from = bytes(seed, 8).iter().fold(0, |sum, byte| sum * 31 + usize::from(*byte)) % length;
                    let last = from + seed as usize * seed as usize;
                    let window = Window::Range(from as u64, Some(last as u64));
                    let (found, got) = desk.find(GetObject { window, ..get_of(key) }).await.unwrap();
                    assert_eq!(got, whole.slice(from..(last + 1).min(length)), "{key} {window:?}");
                    assert!(found.partial);
                }
                let last = desk.find(GetObject { window: Window::Last(5), ..get_of(key) }).await.unwrap().1;
                assert_eq!(last, whole.slice(length - 5..length));
                let beyond = GetObject { window: Window::Range(length as u64, None), ..get_of(key) };
                assert!(
                    matches!(desk.find(beyond).await, Err(Error::InvalidRange { length: l }) if l == length as u64)
                );
            }
        });
    }

    #[test]
    fn a_part_is_read_by_its_number() {
        run(async {
            let desk = Desk::new().await;
            // More than a row of the manifest.
            let parts: Vec<Bytes> = (0..300).map(|at| bytes(at, at as usize % 5)).collect();
            desk.put_parts("key", &parts).await;
            for number in [1, 2, 5, 256, 257, 300] {
                let request = GetObject { window: Window::Part(number), ..get_of("key") };
                let (found, got) = desk.find(request).await.unwrap();
                assert_eq!((got, found.part.unwrap().count), (parts[usize::from(number) - 1].clone(), Some(300)));
            }
            for number in [0, 301] {
                let request = GetObject { window: Window::Part(number), ..get_of("key") };
                assert!(matches!(desk.find(request).await, Err(Error::InvalidPartNumber)));
            }
            desk.put("simple", &bytes(1, 10)).await;
            let (found, got) = desk.find(GetObject { window: Window::Part(1), ..get_of("simple") }).await.unwrap();
            assert_eq!((got.len(), found.part.and_then(|part| part.count)), (10, None));
        });
    }

    #[test]
    fn versions_are_found_by_their_ids() {
        run(async {
            let desk = Desk::new().await;
            let null = desk.put("key", &bytes(0, 10)).await;
            desk.versioning(Versioning::Enabled).await;
            let (one, two) = (desk.put("key", &bytes(1, 10)).await, desk.put("key", &bytes(2, 10)).await);
            let Deleted { version_id: marker, .. } = desk.delete("key", &VersionSpec::Current).await;
            assert_eq!(desk.get("key", id("null")).await.unwrap(), bytes(0, 10));
            assert_eq!(desk.get("key", id(&one.version_id.unwrap())).await.unwrap(), bytes(1, 10));
            assert_eq!(desk.get("key", id(&two.version_id.unwrap())).await.unwrap(), bytes(2, 10));
            let hidden = id(&null.version.id.text());
            assert!(matches!(desk.get("key", hidden).await, Err(Error::NoSuchVersion(_))), "it is called null");
            assert!(matches!(desk.get("key", id("nonsense")).await, Err(Error::BadVersionId(_))));
            let unknown = id(&VersionId([5; 16]).text());
            assert!(matches!(desk.get("key", unknown).await, Err(Error::NoSuchVersion(_))));
            let met = desk.get("key", VersionSpec::Current).await;
            assert!(matches!(met, Err(Error::DeleteMarker { current: true, .. })));
            let met = desk.get("key", id(&marker.unwrap())).await;
            assert!(matches!(met, Err(Error::DeleteMarker { current: false, .. })));
        });
    }

    #[test]
    fn what_is_not_there_is_hidden_from_who_may_not_list() {
        run(async {
            let desk = Desk::new().await;
            desk.put("key", &bytes(0, 10)).await;
            let other = new_caller(&desk.objects, "other").await;
            for caller in [&Caller::default(), &other] {
                for key in ["key", "nothing"] {
                    assert!(matches!(desk.objects.head(caller, &get_of(key)).await, Err(Error::AccessDenied)));
                }
            }
            assert!(matches!(desk.objects.head(&desk.owner, &get_of("nothing")).await, Err(Error::NoSuchKey)));
            let nowhere = GetObject { bucket: "nowhere".into(), ..get_of("key") };
            assert!(matches!(desk.objects.head(&other, &nowhere).await, Err(Error::NoSuchBucket(_))));
            assert_eq!(BUCKET, get_of("key").bucket);
        });
    }

    #[test]
    fn what_is_being_read_stays_readable() {
        run(async {
            let desk = Desk::new().await;
            let parts = [bytes(1, 3000), bytes(2, 3000)];
            desk.put_parts("parts", &parts).await;
            desk.put("blob", &parts[0]).await;
            let (_, mut of_parts) = desk.objects.get(&desk.owner, &get_of("parts")).await.unwrap();
            let (_, mut of_blob) = desk.objects.get(&desk.owner, &get_of("blob")).await.unwrap();
            let first = of_parts.next(100).await.unwrap();
            of_blob.next(100).await.unwrap();
            for key in ["parts", "blob"] {
                desk.put(key, &bytes(3, 10)).await;
                desk.blobs().await;
            }
            let rest = read_all(of_parts, 1000).await.unwrap();
            assert_eq!([first, rest].concat(), parts.concat());
            assert_eq!(read_all(of_blob, 1000).await.unwrap().len(), 2900);
            // What was spared goes with the next change.
            assert_eq!(desk.blobs().await.len(), 2);
            desk.put("parts", &bytes(4, 10)).await;
            assert!(desk.blobs().await.is_empty());
        });
    }

    #[test]
    fn a_reader_that_stands_still_anywhere_reads_something_whole() {
        for of_parts in [true, false] {
            for step in 0.. {
                if !run(stand_still(of_parts, step)) {
                    assert!(step > 0);
                    break;
                }
            }
        }
    }

    /// The object is replaced while its reader stands still at a call of the store.
    async fn stand_still(of_parts: bool, step: usize) -> bool {
        let (bench, old, new) = (Bench::new().await, [bytes(1, 3000), bytes(2, 3000)], bytes(3, 2000));
        match of_parts {
            true => drop(bench.desk.put_parts(KEY, &old).await),
            false => drop(bench.desk.put(KEY, &old.concat().into()).await),
        }
        bench.gate.set(Trap::Stop, step);
        let read = async {
            let (_, reader) = bench.slow.get(&bench.desk.owner, &get_of(KEY)).await?;
            read_all(reader, 1000).await
        };
        let replace = async {
            bench.gate.reached().await;
            // Through the same gateway: pins are in its memory.
            bench.slow.put(&bench.desk.owner, put_of(KEY, &new)).await.unwrap();
            bench.desk.blobs().await;
            bench.gate.open();
        };
        let both = async { tokio::join!(read, replace) };
        let Ok((read, ())) = tokio::time::timeout(std::time::Duration::from_secs(60), both).await else { return false };
        let read = read.unwrap_or_else(|error| panic!("step {step}: {error}"));
        assert!(read == old.concat() || read == new, "step {step}");
        true
    }

    #[test]
    fn parts_that_went_before_they_were_pinned_are_not_read() {
        run(async {
            let desk = Desk::new().await;
            desk.put_parts(KEY, &[bytes(1, 3000)]).await;
            let key = Bytes::from_static(KEY.as_bytes());
            let located = desk.objects.locate(&desk.owner, BUCKET, &key, &VersionSpec::Current, READ).await.unwrap();
            desk.put(KEY, &bytes(2, 10)).await;
            let pin = desk.objects.pin(&located.version);
            assert!(pin.is_some());
            assert!(desk.objects.open(&located, 0..3000, pin).await.unwrap().is_none());
        });
    }

    #[test]
    fn bytes_that_are_missing_are_never_made_up() {
        run(async {
            let desk = Desk::new().await;
            desk.put("blob", &bytes(1, 3000)).await;
            desk.put_parts("parts", &[bytes(1, 3000), bytes(2, 3000)]).await;
            for blob in desk.blobs().await {
                desk.objects.gateway.releases.discard(blob).await;
            }
            for key in ["blob", "parts"] {
                let read = desk.get(key, VersionSpec::Current).await;
                assert!(matches!(read, Err(Error::Gateway(crate::Error::Damaged(_)))), "{key}");
                desk.objects.head(&desk.owner, &get_of(key)).await.unwrap();
            }
            assert!(desk.objects.gateway.metrics_text().contains("\nlarder_s3_damaged_reads_total 2\n"));
        });
    }

    #[test]
    fn the_current_version_says_when_it_expires() {
        run(async {
            let desk = Desk::new().await;
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
            let configured = desk.objects.configure(&desk.owner, BUCKET, "s3:PutLifecycleConfiguration", change);
            configured.await.unwrap();
            let old = desk.put(KEY, &bytes(1, 10)).await.version_id.unwrap();
            desk.put(KEY, &bytes(2, 10)).await;
            let expires = async |version| {
                let request = GetObject { version, ..get_of(KEY) };
                desk.objects.head(&desk.owner, &request).await.unwrap().expires
            };
            assert!(matches!(expires(VersionSpec::Current).await, Some((_, rule)) if rule == "r"));
            assert_eq!(expires(id(&old)).await, None);
        });
    }

    #[cfg(feature = "rules")]
    #[test]
    fn without_its_rule_a_reader_loses_its_parts() {
        run(async {
            let desk = Desk::with(crate::Rules::without(Rule::PinReaders)).await;
            desk.put_parts("parts", &[bytes(1, 3000), bytes(2, 3000)]).await;
            let (_, reader) = desk.objects.get(&desk.owner, &get_of("parts")).await.unwrap();
            desk.put("parts", &bytes(3, 10)).await;
            assert!(desk.blobs().await.is_empty());
            assert!(read_all(reader, 1000).await.is_err());
        });
    }
}
