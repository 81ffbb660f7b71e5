//! A source that is scripted: its pages, its refusals and its lies.

mod edge;

use async_trait::async_trait;
use larder_core::body::BodyError;
use std::collections::VecDeque;
use std::time::Duration;

use larder_testkit::VirtualClock;
use tokio::time::{Instant, sleep};

use super::*;
use crate::rules::SourceAddress;
use crate::source_http::SourceCall;

/// A body of an answer.
enum StubBody {
    Pieces(VecDeque<Result<Bytes, BodyError>>),
    /// The same piece again and again, each after a pause.
    Endless(Bytes, Duration),
}

#[async_trait]
impl ByteStream for StubBody {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        match self {
            Self::Pieces(pieces) => pieces.pop_front(),
            Self::Endless(piece, pause) => {
                sleep(*pause).await;
                Some(Ok(piece.clone()))
            }
        }
    }
}

type StubResult = Result<SourceAnswer, String>;
type StubScript = Box<dyn Fn(usize, &str) -> StubResult + Send + Sync>;

/// Answers each request by its number, from 0, and its path with its query.
struct StubSource {
    script: StubScript,
    /// Path and query of each request, and its authorization.
    log: Mutex<Vec<(String, String)>>,
}

#[async_trait]
impl SourceHttp for StubSource {
    async fn send(&self, call: SourceCall<'_>) -> StubResult {
        let target = call.url.strip_prefix("http://stub:9000").unwrap().to_owned();
        let header = |name: &str| call.headers.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone());
        let number = {
            let mut log = self.log.lock();
            log.push((target.clone(), header("authorization").unwrap()));
            log.len() - 1
        };
        assert_eq!((call.method, header("x-amz-date").unwrap().len()), (SourceRequest::Get, 16));
        (self.script)(number, &target)
    }
}

impl StubSource {
    fn targets(&self) -> Vec<String> {
        self.log.lock().iter().map(|(target, _)| target.clone()).collect()
    }
}

fn source(script: impl Fn(usize, &str) -> StubResult + Send + Sync + 'static) -> (Arc<S3Source>, Arc<StubSource>) {
    let stub = Arc::new(StubSource { script: Box::new(script), log: Mutex::default() });
    let SourceAddress::S3(address) = SourceAddress::parse("s3://KEY@stub:9000").unwrap() else { panic!() };
    let clock = Arc::new(VirtualClock::start());
    (Arc::new(S3Source::new(stub.clone(), clock, address, "secret".to_owned(), 100_000)), stub)
}

fn with_body(status: u16, headers: &[(&str, &str)], body: StubBody) -> StubResult {
    let mut all = SourceHeaders::default();
    headers.iter().for_each(|(name, value)| all.add(name.as_bytes(), value.as_bytes()));
    Ok(SourceAnswer { status, headers: all, body: Box::new(body) })
}

fn pieces(texts: &[&str]) -> StubBody {
    StubBody::Pieces(texts.iter().map(|text| Ok(Bytes::copy_from_slice(text.as_bytes()))).collect())
}

fn broken(text: &str) -> StubBody {
    StubBody::Pieces([Ok(Bytes::copy_from_slice(text.as_bytes())), Err(BodyError("reset".into()))].into())
}

fn ok(text: &str) -> StubResult {
    with_body(200, &[], pieces(&[text]))
}

fn error(status: u16, code: &str) -> StubResult {
    with_body(status, &[], pieces(&[&format!("<Error><Code>{code}</Code><Message>m</Message></Error>")]))
}

fn refused(status: u16, code: &str) -> SourceError {
    SourceError::Refused { status, text: format!("{code}: m") }
}

fn entry(name: &str, key: &str, id: &str) -> String {
    format!(
        "<{name}><Key>{key}</Key><VersionId>{id}</VersionId><IsLatest>true</IsLatest><LastModified>\
         2023-11-14T22:13:20.000Z</LastModified><Size>1</Size></{name}>"
    )
}

fn versions(key: &str, next: Option<(&str, &str)>) -> String {
    let next = next.map(|(key, id)| {
        format!("<NextKeyMarker>{key}</NextKeyMarker><NextVersionIdMarker>{id}</NextVersionIdMarker>")
    });
    let (is_truncated, next) = (next.is_some(), next.unwrap_or_default());
    let entry = entry("Version", key, "1");
    format!(
        "<ListVersionsResult><EncodingType>url</EncodingType><IsTruncated>{is_truncated}</IsTruncated>{next}{entry}\
         </ListVersionsResult>"
    )
}

fn objects(key: &str, is_truncated: bool) -> String {
    format!(
        "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>{is_truncated}</IsTruncated>{}\
         </ListBucketResult>",
        entry("Contents", key, "ignored")
    )
}

fn marker(key: &'static str, version: Option<&str>) -> SourceVersionMarker {
    SourceVersionMarker { key: Bytes::from_static(key.as_bytes()), version: version.map(str::to_owned) }
}

#[tokio::test]
async fn pages_of_versions_go_on_after_their_markers() {
    let (source, stub) = source(|number, _| match number {
        0 => ok(&versions("a%2F%20b", Some(("a%2F%20b", "v/1+")))),
        _ => ok(&versions("c", None)),
    });
    // A job runs on other threads.
    let first = tokio::spawn({
        let source = Arc::clone(&source);
        async move { source.list_versions("my box", None).await }
    });
    let first = first.await.unwrap().unwrap();
    assert_eq!(first.versions[0].key, "a/ b");
    assert_eq!(first.next, Some(marker("a/ b", Some("v/1+"))));
    let second = source.list_versions("my box", first.next.as_ref()).await.unwrap();
    assert_eq!((second.versions[0].version_id.as_deref(), second.next), (Some("1"), None));
    assert_eq!(
        stub.targets(),
        [
            "/my%20box?encoding-type=url&max-keys=1000&versions=",
            "/my%20box?encoding-type=url&key-marker=a%2F%20b&max-keys=1000&version-id-marker=v%2F1%2B&versions=",
        ]
    );
    assert_eq!(source.requests(), 2);
}

#[tokio::test]
async fn a_bucket_whose_versions_are_not_listed_shows_its_objects() {
    for (status, code) in
        [(501, "NotImplemented"), (400, "InvalidArgument"), (403, "AccessDenied"), (405, "Any"), (200, "")]
    {
        let (source, stub) = source(move |_, target| match (target.contains("versions="), status) {
            (true, 200) => ok(&objects("x", false)),
            (true, _) => error(status, code),
            (false, _) => {
                ok(&objects(if target.contains("marker=k%2F1") { "k2" } else { "k%2F1" }, !target.contains("marker")))
            }
        });
        let first = source.list_versions("b", None).await.unwrap();
        assert_eq!((first.versions[0].version_id.as_deref(), first.versions[0].is_latest), (None, true), "{status}");
        assert_eq!(first.next, Some(marker("k/1", None)));
        let second = source.list_versions("b", first.next.as_ref()).await.unwrap();
        assert_eq!((&second.versions[0].key[..], second.next), (b"k2".as_slice(), None));
        // The bucket is known by then.
        assert_eq!(
            stub.targets(),
            [
                "/b?encoding-type=url&max-keys=1000&versions=",
                "/b?encoding-type=url&max-keys=1000",
                "/b?encoding-type=url&marker=k%2F1&max-keys=1000",
            ]
        );
    }
}

#[tokio::test]
async fn a_refusal_after_versions_or_of_the_user_hides_no_versions() {
    for (status, code) in [(403, "AccessDenied"), (400, "InvalidArgument"), (501, "NotImplemented")] {
        let (source, stub) = source(move |_, _| error(status, code));
        let after = marker("k", Some("1"));
        assert_eq!(source.list_versions("b", Some(&after)).await, Err(refused(status, code)));
        assert_eq!(stub.targets().len(), 1);
    }
    for code in ["SignatureDoesNotMatch", "InvalidAccessKeyId", "RequestTimeTooSkewed"] {
        let (source, stub) = source(move |_, _| error(403, code));
        let failure = source.list_versions("b", None).await.unwrap_err();
        assert_eq!((failure.to_string(), stub.targets().len()), (format!("the source answers 403: {code}: m"), 1));
    }
    let (source, _) = source(|_, _| ok(&objects("k", false)));
    let after = marker("k", Some("1"));
    assert_eq!(source.list_versions("b", Some(&after)).await, Err(ListingError::Form.into()));
}

#[tokio::test]
async fn a_listing_that_does_not_go_on_is_an_error() {
    let (endless, _) = source(|_, _| ok(&versions("k", Some(("k", "1")))));
    let first = endless.list_versions("b", None).await.unwrap();
    assert_eq!(endless.list_versions("b", first.next.as_ref()).await, Err(ListingError::Endless.into()));
    let (back, _) = source(|_, _| ok(&versions("k", Some(("a", "1")))));
    assert_eq!(back.list_versions("b", first.next.as_ref()).await, Err(ListingError::Endless.into()));
    let (objects, _) = source(|_, target| match target.contains("versions=") {
        true => error(501, "NotImplemented"),
        false => ok(&objects("k", true)),
    });
    let first = objects.list_versions("b", None).await.unwrap();
    assert_eq!(objects.list_versions("b", first.next.as_ref()).await, Err(ListingError::Endless.into()));
    let buckets = |names: &str, token: &str| {
        let token = format!("<ContinuationToken>{token}</ContinuationToken>");
        ok(&format!("<ListAllMyBucketsResult><Buckets>{names}</Buckets>{token}</ListAllMyBucketsResult>"))
    };
    let (same, stub) = source(move |_, _| buckets("<Bucket><Name>b</Name></Bucket>", "t+/"));
    assert_eq!(same.list_buckets().await, Err(ListingError::Endless.into()));
    assert_eq!(stub.targets(), ["/", "/?continuation-token=t%2B%2F"]);
    let (empty, stub) = source(move |number, _| buckets("", &number.to_string()));
    assert_eq!(empty.list_buckets().await, Err(ListingError::Endless.into()));
    assert_eq!(stub.targets().len(), 1);
}

#[tokio::test]
async fn buckets_are_listed_to_the_last_page() {
    let (source, stub) = source(|number, _| {
        let token = if number == 0 { "<ContinuationToken>2</ContinuationToken>" } else { "" };
        let bucket = format!("<Buckets><Bucket><Name>b{number}</Name></Bucket></Buckets>");
        ok(&format!("<ListAllMyBucketsResult>{bucket}{token}</ListAllMyBucketsResult>"))
    });
    assert_eq!(source.list_buckets().await, Ok(vec!["b0".to_owned(), "b1".to_owned()]));
    assert_eq!(stub.targets().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_or_broken_source_is_asked_again_and_others_are_not() {
    let (flaky, stub) = source(|number, _| match number {
        0 => Err("refused".into()),
        1 => error(503, "SlowDown"),
        2 => error(429, "TooMany"),
        3 => with_body(200, &[], broken("<ListAllMyBucketsResult>")),
        _ => ok("<ListAllMyBucketsResult/>"),
    });
    assert_eq!(flaky.list_buckets().await, Ok(vec![]));
    assert_eq!(stub.targets().len(), 5);
    let (down, stub) = source(|_, _| error(503, "SlowDown"));
    let failure = down.list_buckets().await.unwrap_err();
    assert_eq!(failure.to_string(), "stub:9000: the source answers 503: SlowDown: m");
    assert!(stub.targets().len() > 3 && stub.targets().len() < 20);
    // Each try is signed at its own time.
    let signed = |at: usize| stub.log.lock()[at].1.clone();
    assert_ne!(signed(0), signed(3));
    for (status, code) in [(501, "NotImplemented"), (403, "AccessDenied"), (400, "Any"), (301, "PermanentRedirect")] {
        let (source, stub) = source(move |_, _| error(status, code));
        assert_eq!(source.list_buckets().await, Err(refused(status, code)));
        assert_eq!(stub.targets().len(), 1, "{status}");
    }
    let (truncated, stub) = source(|_, _| ok("<ListAllMyBucketsResult><Buckets>"));
    assert_eq!(truncated.list_buckets().await, Err(ListingError::Form.into()));
    assert_eq!(stub.targets().len(), 1);
}

#[tokio::test]
async fn the_region_that_the_source_names_is_used_from_there_on() {
    let region = |log: &StubSource, at: usize| {
        let authorization = log.log.lock()[at].1.clone();
        authorization.split('/').nth(2).unwrap().to_owned()
    };
    let wrong = |region: &str| {
        let text = format!("<Error><Code>AuthorizationHeaderMalformed</Code><Region>{region}</Region></Error>");
        with_body(400, &[], pieces(&[&text]))
    };
    let (moved, stub) = source(move |number, _| match number {
        0 => wrong("eu-west-3"),
        _ => ok("<ListAllMyBucketsResult/>"),
    });
    assert!(moved.list_buckets().await.is_ok() && moved.list_buckets().await.is_ok());
    assert_eq!([0, 1, 2].map(|at| region(&stub, at)), ["us-east-1", "eu-west-3", "eu-west-3"]);
    // One that names a region after another is obeyed once.
    let (lying, stub) = source(move |number, _| wrong(&format!("r{number}")));
    assert!(lying.list_buckets().await.unwrap_err().to_string().contains("AuthorizationHeaderMalformed"));
    assert_eq!(stub.targets().len(), 2);
    for text in ["us-east-1", "a/b", ""] {
        let (same, stub) = source(move |_, _| wrong(text));
        assert!(same.list_versions("b", None).await.is_err());
        assert_eq!(stub.targets().len(), 1, "{text}");
    }
}

#[tokio::test]
async fn a_bucket_of_another_region_is_refused_by_the_name_of_its_region() {
    let redirect = |region: &'static str| {
        source(move |_, _| {
            let headers = [("x-amz-bucket-region", region), ("Location", "http://elsewhere/")];
            let text = "<Error><Code>PermanentRedirect</Code><Message>m</Message><Endpoint>e</Endpoint></Error>";
            with_body(301, &headers, pieces(&[text]))
        })
    };
    let (elsewhere, stub) = redirect("eu-west-3");
    let failure = elsewhere.list_versions("b", None).await.err().unwrap().to_string();
    assert!(failure.contains("the bucket is in region eu-west-3: take the address of that region"), "{failure}");
    assert_eq!(stub.targets().len(), 1, "no other host is asked, and this one once");
    let (hostile, _) = redirect("a\u{1b}[2J");
    assert!(hostile.list_versions("b", None).await.err().unwrap().to_string().contains("PermanentRedirect: m"));
}

#[tokio::test(start_paused = true)]
async fn a_page_of_a_gigabyte_and_one_that_drips_end() {
    let piece = Bytes::from(vec![b' '; 1 << 20]);
    let (endless, stub) = source(move |_, _| with_body(200, &[], StubBody::Endless(piece.clone(), Duration::ZERO)));
    assert_eq!(endless.list_versions("b", None).await, Err(ListingError::TooLarge.into()));
    assert!(endless.bucket_document("b", "policy").await.unwrap_err().to_string().contains("1 MiB"));
    assert_eq!(stub.targets().len(), 2);
    let (dripping, _) = source(|_, target| {
        let status = if target == "/" { 200 } else { 403 };
        with_body(status, &[], StubBody::Endless(Bytes::from_static(b"<"), Duration::from_secs(59)))
    });
    let begin = Instant::now();
    assert!(matches!(dripping.list_buckets().await, Err(SourceError::Unreachable(_))));
    assert!(matches!(dripping.bucket_document("b", "cors").await, Err(SourceError::Refused { status: 403, .. })));
    assert!(begin.elapsed() < Duration::from_secs(20 * 60));
    let (silent, stub) = source(|_, _| with_body(200, &[], StubBody::Endless(Bytes::new(), Duration::from_secs(9999))));
    assert!(matches!(silent.list_buckets().await, Err(SourceError::Unreachable(_))));
    assert_eq!(stub.targets().len(), 3);
}

async fn whole(fetched: S3Fetched) -> Result<String, String> {
    let mut body = fetched.body;
    let mut text = String::new();
    while let Some(piece) = body.next().await {
        text.push_str(std::str::from_utf8(&piece.map_err(|error| error.to_string())?).unwrap());
    }
    assert!(body.next().await.is_none());
    Ok(text)
}

#[tokio::test]
async fn an_object_streams_with_its_headers() {
    let (source, stub) = source(|_, _| {
        let headers = [("Content-Length", "5"), ("ETag", "\"e\""), ("x-amz-meta-a", "b")];
        with_body(200, &headers, pieces(&["ab", "", "cde"]))
    });
    let found = source.get("b", "a//b ?é\u{1}+%".as_bytes(), Some("null")).await.unwrap().unwrap();
    assert_eq!((found.length, found.headers.get("x-amz-meta-a").map(|value| &value[..])), (Some(5), Some(&b"b"[..])));
    assert_eq!(found.headers.iter().count(), 3);
    assert_eq!(whole(found).await, Ok("abcde".to_owned()));
    source.get("b", b"k", None).await.unwrap();
    assert_eq!(stub.targets(), ["/b/a//b%20%3F%C3%A9%01%2B%25?versionId=null", "/b/k"]);
    let signed = "SignedHeaders=host;x-amz-checksum-mode;x-amz-content-sha256;x-amz-date,";
    assert!(stub.log.lock()[0].1.contains(signed));
}

#[tokio::test(start_paused = true)]
async fn a_body_of_another_length_than_announced_fails() {
    let (source, _) = source(|number, _| {
        let length = |length| [("content-length", length)];
        match number {
            0 => with_body(200, &length("6"), pieces(&["ab", "cde"])),
            1 => with_body(200, &length("4"), pieces(&["ab", "cde"])),
            2 => with_body(200, &length("6"), broken("abc")),
            3 => with_body(200, &length("6"), StubBody::Endless(Bytes::new(), Duration::from_secs(99))),
            4 => with_body(200, &[], pieces(&["ab"])),
            _ => with_body(200, &length("0"), pieces(&[])),
        }
    });
    for expected in
        [Err("broke off"), Err("longer than announced"), Err("reset"), Err("stopped for a minute"), Ok("ab"), Ok("")]
    {
        let read = whole(source.get("b", b"k", None).await.unwrap().unwrap()).await;
        match expected {
            Ok(text) => assert_eq!(read.as_deref(), Ok(text)),
            Err(part) => assert!(read.as_ref().is_err_and(|failure| failure.contains(part)), "{part}: {read:?}"),
        }
    }
}

#[tokio::test]
async fn only_s3_itself_says_that_an_object_is_not_there() {
    let gone = |answer: fn() -> StubResult| async move {
        let (source, _) = source(move |_, _| answer());
        source.get("b", b"k", Some("1")).await.map(|found| assert!(found.is_none()))
    };
    assert_eq!(gone(|| error(404, "NoSuchKey")).await, Ok(()));
    assert_eq!(gone(|| error(404, "NoSuchVersion")).await, Ok(()));
    assert_eq!(gone(|| error(405, "MethodNotAllowed")).await, Ok(()));
    assert_eq!(gone(|| with_body(405, &[("x-amz-delete-marker", "true")], pieces(&[]))).await, Ok(()));
    assert_eq!(gone(|| with_body(404, &[("x-amz-delete-marker", "true")], pieces(&[]))).await, Ok(()));
    assert_eq!(gone(|| error(404, "NoSuchBucket")).await, Err(refused(404, "NoSuchBucket")));
    assert_eq!(gone(|| error(403, "AccessDenied")).await, Err(refused(403, "AccessDenied")));
    let proxy = gone(|| with_body(404, &[], pieces(&["<html>nginx"]))).await.unwrap_err();
    assert_eq!(proxy.to_string(), "the source answers 404: <html>nginx");
    // Part of an object is not the object.
    assert!(gone(|| with_body(206, &[], pieces(&["x"]))).await.is_err());
}

#[tokio::test]
async fn tags_are_none_where_the_source_has_none() {
    let tags = |answer: fn() -> StubResult| async move {
        let (source, stub) = source(move |_, _| answer());
        let tags = source.tags("b", b"k/1", Some("v")).await;
        assert_eq!(stub.targets(), ["/b/k/1?tagging=&versionId=v"]);
        tags
    };
    let two = || ok("<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>");
    assert_eq!(tags(two).await, Ok(vec![("a".into(), "b".into())]));
    assert_eq!(tags(|| error(404, "NoSuchTagSet")).await, Ok(vec![]));
    assert_eq!(tags(|| error(501, "NotImplemented")).await, Ok(vec![]));
    assert_eq!(tags(|| error(405, "MethodNotAllowed")).await, Ok(vec![]));
    assert_eq!(tags(|| error(404, "NoSuchKey")).await, Err(refused(404, "NoSuchKey")));
    assert_eq!(tags(|| error(403, "AccessDenied")).await, Err(refused(403, "AccessDenied")));
    assert_eq!(tags(|| ok("the object itself")).await, Err(ListingError::Form.into()));
}

#[tokio::test]
async fn a_document_of_a_bucket_is_none_where_the_source_has_none() {
    let document = |answer: fn() -> StubResult| async move {
        let (source, stub) = source(move |_, _| answer());
        let document = source.bucket_document("b", "policy").await;
        assert_eq!(stub.targets(), ["/b?policy="]);
        document
    };
    assert_eq!(document(|| ok("{}")).await, Ok(Some(Bytes::from_static(b"{}"))));
    let none: &[fn() -> StubResult] = &[
        || error(404, "NoSuchBucketPolicy"),
        || error(501, "NotImplemented"),
        || error(405, "MethodNotAllowed"),
        || error(400, "NotImplemented"),
        || error(400, "NoSuchObjectLockConfiguration"),
        || error(400, "ObjectLockConfigurationNotFoundError"),
        || ok(&objects("k", true)),
    ];
    for answer in none {
        assert_eq!(document(*answer).await, Ok(None));
    }
    assert_eq!(document(|| error(404, "NoSuchBucket")).await, Err(refused(404, "NoSuchBucket")));
    assert_eq!(document(|| error(400, "InvalidArgument")).await, Err(refused(400, "InvalidArgument")));
    assert_eq!(document(|| error(403, "AccessDenied")).await, Err(refused(403, "AccessDenied")));
}
