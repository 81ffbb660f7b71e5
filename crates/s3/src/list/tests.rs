//! Listings against a simple model: all keys in a map, filtered and grouped by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use larder_rows::Timestamp;

use super::super::buckets::testing::{S3TestStore, anonymous, new_caller, version, write_versions};
use super::*;
use crate::acl_choice::AclChoice;
use crate::rules::{Bucket, S3Action, Version};
use crate::{Caller, Error, Objects, RequestArgument};

/// A line: its name, and for keys a text of the version.
type ListedLine = (Bytes, Option<String>);

/// A seeded random generator.
struct ListingRng(u64);

impl ListingRng {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        larder_rows::hash::id64(&[&self.0.to_be_bytes()]) % below
    }

    fn text(&mut self, alphabet: &[u8], max: u64) -> Bytes {
        let length = self.roll(max + 1);
        (0..length).map(|_| alphabet[self.roll(alphabet.len() as u64) as usize]).collect::<Vec<_>>().into()
    }
}

struct ListingFixture {
    objects: Arc<Objects>,
    caller: Caller,
    bucket: Arc<Bucket>,
    /// Versions of each key, newest first.
    keys: BTreeMap<Bytes, Vec<Version>>,
}

impl ListingFixture {
    async fn new() -> Self {
        let objects = S3TestStore::new().gateway().await;
        let caller = new_caller(&objects, "foo").await;
        objects.buckets.create(&caller, "tea", AclChoice::Private, None).await.unwrap();
        let bucket = objects.buckets.find("tea").await.unwrap();
        Self { objects, caller, bucket, keys: BTreeMap::new() }
    }

    async fn write(&mut self, key: &Bytes, versions: Vec<Version>) {
        write_versions(&self.objects, &self.bucket, key, &versions).await;
        self.keys.insert(key.clone(), versions);
    }

    /// Random keys, some with a delete marker, some without versions.
    async fn random(seed: u64, count: u64) -> Self {
        let mut fixture = Self::new().await;
        let mut dice = ListingRng(seed << 32);
        for _ in 0..count {
            let mut key = vec![b"ab/\xff"[dice.roll(4) as usize]];
            key.extend_from_slice(&dice.text(b"ab/\x00\xff", 6));
            let versions = (0..dice.roll(5)).map(|age| {
                let length = (dice.roll(4) > 0).then(|| dice.roll(9) as usize);
                version(Timestamp(100 - age * 10), dice.roll(6) == 0, length)
            });
            let mut versions: Vec<_> = versions.collect();
            let mut nulls = 0;
            for version in &mut versions {
                nulls += u32::from(version.null);
                version.null &= nulls < 2;
            }
            fixture.write(&key.into(), versions).await;
        }
        fixture
    }

    fn request(&self, dice: &mut ListingRng) -> ListObjects {
        ListObjects {
            bucket: "tea".into(),
            prefix: dice.text(b"ab/\xff", 2),
            delimiter: match dice.roll(4) {
                0 => Bytes::new(),
                1 => Bytes::from_static(b"ab"),
                _ => Bytes::from_static(b"/"),
            },
            after: match dice.roll(3) {
                0 => dice.text(b"ab/\xff", 5),
                _ => Bytes::new(),
            },
            max: dice.roll(8) as usize + 1,
        }
    }

    /// The expected lines after `request.after`.
    fn expected(&self, request: &ListObjects, show: impl Fn(&[Version]) -> Vec<String>) -> Vec<ListedLine> {
        let mut lines: Vec<ListedLine> = Vec::new();
        for (key, versions) in &self.keys {
            let (Some(rest), texts) = (key.strip_prefix(&request.prefix[..]), show(versions)) else { continue };
            if texts.is_empty() {
                continue;
            }
            let delimiter = &request.delimiter[..];
            let cut = (0..rest.len()).find(|&at| !delimiter.is_empty() && rest[at..].starts_with(delimiter));
            match cut {
                Some(at) => {
                    let prefix = key.slice(..request.prefix.len() + at + delimiter.len());
                    let listed =
                        !request.after.is_empty() && (request.after >= prefix || request.after.starts_with(&prefix));
                    if !listed && !lines.contains(&(prefix.clone(), None)) {
                        lines.push((prefix, None));
                    }
                }
                None if *key > request.after => lines.extend(texts.into_iter().map(|text| (key.clone(), Some(text)))),
                None => {}
            }
        }
        lines
    }
}

fn lines<T>(listed: &[KeyOrPrefix<T>], text: impl Fn(&T) -> String) -> Vec<ListedLine> {
    let line = |entry: &KeyOrPrefix<T>| match entry {
        KeyOrPrefix::Key(key, shown) => (key.clone(), Some(text(shown))),
        KeyOrPrefix::Prefix(prefix) => (prefix.clone(), None),
    };
    listed.iter().map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn pages_of_keys_match_a_model() {
    for seed in 0..40 {
        let fixture = ListingFixture::random(seed, 60).await;
        let mut dice = ListingRng(seed);
        for _ in 0..40 {
            let mut request = fixture.request(&mut dice);
            let current = |versions: &[Version]| {
                let object = versions.first().and_then(|version| version.object.as_ref());
                object.map(|object| object.length().to_string()).into_iter().collect()
            };
            let mut expected = fixture.expected(&request, current);
            expected.reverse();
            loop {
                let page = fixture.objects.list(&fixture.caller, &request).await.unwrap();
                assert!(page.lines.len() <= request.max);
                let text = |entry: &ListingEntry| entry.object.as_ref().map_or(0, |object| object.length).to_string();
                for line in lines(&page.lines, text) {
                    assert_eq!(Some(line), expected.pop(), "{request:?}");
                }
                assert_eq!(page.next.is_some(), !expected.is_empty(), "{request:?}");
                let Some(next) = page.next else { break };
                assert_eq!(page.lines.len(), request.max);
                request.after = next;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pages_of_versions_match_a_model() {
    for seed in 0..40 {
        let fixture = ListingFixture::random(seed, 40).await;
        let mut dice = ListingRng(seed);
        for _ in 0..30 {
            let mut request = ListVersions { objects: fixture.request(&mut dice), version: None };
            let mut expected = fixture.expected(&request.objects, |versions| {
                let text = |(at, version): (usize, &Version)| {
                    let id = if version.null { "null".to_owned() } else { version.id.text() };
                    let length = version.object.as_ref().map(|object| object.length());
                    format!("{id} {length:?} {}", at == 0)
                };
                versions.iter().enumerate().map(text).collect()
            });
            expected.reverse();
            loop {
                let page = fixture.objects.list_versions(&fixture.caller, &request).await.unwrap();
                let text = |listed_version: &ListedVersion| {
                    let length = listed_version.version.object.as_ref().map(|object| object.length());
                    format!("{} {length:?} {}", listed_version.version_id, listed_version.latest)
                };
                for line in lines(&page.lines, text) {
                    assert_eq!(Some(line), expected.pop(), "{request:?}");
                }
                assert_eq!(page.next.is_some(), !expected.is_empty(), "{request:?}");
                let Some((key, version)) = page.next else { break };
                assert_eq!(page.lines.len(), request.objects.max);
                (request.objects.after, request.version) = (key, version);
            }
        }
    }
}

fn versions_request(prefix: &str) -> ListVersions {
    let objects =
        ListObjects { bucket: "tea".into(), prefix: prefix.to_owned().into(), max: 1000, ..ListObjects::default() };
    ListVersions { objects, version: None }
}

#[tokio::test(start_paused = true)]
async fn many_versions_of_one_key_are_paged_even_if_the_marker_is_removed() {
    let mut fixture = ListingFixture::new().await;
    let all: Vec<_> = (0..200).map(|age| version(Timestamp(1000 - age), false, Some(1))).collect();
    let key = Bytes::from_static(b"key");
    fixture.write(&key, all.clone()).await;
    let mut request = versions_request("");
    let ids = |page: &VersionsPage| {
        let id = |line: &KeyOrPrefix<ListedVersion>| match line {
            KeyOrPrefix::Key(_, listed_version) => listed_version.version.id,
            KeyOrPrefix::Prefix(_) => panic!("no delimiter was given"),
        };
        page.lines.iter().map(id).collect::<Vec<_>>()
    };
    let page = fixture.objects.list_versions(&fixture.caller, &request).await.unwrap();
    assert_eq!(ids(&page), all.iter().map(|version| version.id).collect::<Vec<_>>());
    assert_eq!(page.next, None);
    request.objects.max = 50;
    let page = fixture.objects.list_versions(&fixture.caller, &request).await.unwrap();
    let Some((after, version)) = page.next else { panic!("there are more") };
    (request.objects.after, request.version) = (after, version);
    // All listed versions go, and the next one becomes current.
    fixture.write(&key, all[50..].to_vec()).await;
    let page = fixture.objects.list_versions(&fixture.caller, &request).await.unwrap();
    assert_eq!(ids(&page), all[50..100].iter().map(|version| version.id).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn version_markers_are_checked() {
    let fixture = ListingFixture::new().await;
    let refused = async |after: &'static str, version: &str| {
        let mut request = versions_request("");
        request.objects.after = after.into();
        request.version = Some(version.into());
        match fixture.objects.list_versions(&fixture.caller, &request).await {
            Err(Error::InvalidArgument { argument, .. }) => Some(argument),
            Err(other) => panic!("{other}"),
            Ok(_) => None,
        }
    };
    assert_eq!(refused("", "null").await, Some(RequestArgument::VersionMarker));
    assert_eq!(refused("key", "").await, Some(RequestArgument::VersionMarker));
    assert_eq!(refused("key", "xyz").await, Some(RequestArgument::VersionMarker));
    assert_eq!(refused("key", "null").await, None);
    assert_eq!(refused("key", &version(Timestamp(1), false, None).id.text()).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_listed_version_has_no_bytes() {
    let mut fixture = ListingFixture::new().await;
    fixture.write(&Bytes::from_static(b"key"), vec![version(Timestamp(9), false, Some(700))]).await;
    let page = fixture.objects.list_versions(&fixture.caller, &versions_request("")).await.unwrap();
    let Some(KeyOrPrefix::Key(_, listed)) = page.lines.first() else { panic!("one version is there") };
    let object = listed.version.object.as_ref().unwrap();
    assert_eq!(object.length(), 700);
    assert!(!matches!(object.body, crate::rules::ObjectBody::Inline(_)));
}

#[tokio::test(start_paused = true)]
async fn listings_need_permission() {
    let fixture = ListingFixture::new().await;
    let request = versions_request("").objects;
    let keys = anonymous(S3Action::ListBucket);
    assert!(matches!(fixture.objects.list(&keys, &request).await, Err(Error::AccessDenied)));
    let versions = anonymous(S3Action::ListBucketVersions);
    assert!(matches!(fixture.objects.list_versions(&versions, &versions_request("")).await, Err(Error::AccessDenied)));
    let missing = ListObjects { bucket: "milk".into(), ..request.clone() };
    assert!(matches!(fixture.objects.list(&fixture.caller, &missing).await, Err(Error::NoSuchBucket(_))));
    let none = ListObjects { max: 0, ..request };
    assert!(fixture.objects.list(&fixture.caller, &none).await.unwrap().next.is_none());
}
