//! Another Larder as the source, over its real S3 edge.

use larder_api_s3::{S3Settings, serve};
use larder_core::{Config, GatewayPorts};
use larder_kv::Gateway;
use larder_rows::ActorId;
use larder_s3::{Objects, ObjectsConfig, S3Catalogue};
use larder_store::SystemClock;
use larder_store::memory::MemoryStore;
use larder_testkit::BackgroundServer;
use larder_testkit::http::{HttpClient, HttpRequest};
use larder_testkit::s3::S3Client;
use tokio::runtime::Runtime;

use super::*;

const KEY: &str = "ADMIN-KEY";
const SECRET: &str = "admin-secret";

/// Sends each request over a connection of its own, and blocks: the server has threads of its own.
struct BlockingHttp(std::net::SocketAddr);

#[async_trait]
impl SourceHttp for BlockingHttp {
    async fn send(&self, call: SourceCall<'_>) -> StubResult {
        let host = self.0.to_string();
        let target = call.url.strip_prefix(&format!("http://{host}")).unwrap();
        let request = HttpRequest::new(call.method.name(), target).header("Host", &host);
        let request = call.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        let answer = HttpClient::new(self.0).try_send(&request).map_err(|error| error.to_string())?;
        let headers: Vec<_> = answer.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        with_body(answer.status, &headers, StubBody::Pieces([Ok(answer.body.into())].into()))
    }
}

fn start() -> (BackgroundServer, Arc<Gateway>, Arc<SystemClock>) {
    let clock = Arc::new(SystemClock::default());
    let memory = Arc::new(MemoryStore::new(clock.clone()));
    let ports = GatewayPorts {
        random: |bytes| bytes.fill(7),
        store: memory.clone(),
        blobs: memory,
        clock: clock.clone(),
        actor: ActorId(7),
        engine: Arc::new("memory"),
        scripts: None,
        audit: None,
        certificate: None,
        webhooks: None,
        product: S3Catalogue::empty(),
    };
    let (server, gateway) = BackgroundServer::start(async |listener, stop| {
        let gateway = Gateway::start(ports, Config::default()).await.unwrap();
        let objects = Objects::new(Arc::clone(gateway.shared()), vec![gateway.kv.clone()], ObjectsConfig::default());
        objects.users.ensure_admin(Some((KEY.into(), SECRET.into()))).await.unwrap();
        (gateway, serve(vec![listener.into()], objects, S3Settings::default(), stop))
    });
    (server, gateway, clock)
}

/// A key whose bytes each need care.
const ODD: &[u8] = "a b+%//~?é\u{1}".as_bytes();

/// Three states of the odd key in a bucket with versioning, and a bucket without.
fn fill(server: &BackgroundServer) {
    let mut client = S3Client::new(server.address, KEY, SECRET);
    client.put("/box", "").expect(200);
    client.put("/plain", "").expect(200);
    client.put("/plain/k", "p").expect(200);
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    client.put("/box?versioning", enabled).expect(200);
    let headers = [("x-amz-tagging", "a=b%20c"), ("x-amz-meta-m", "v"), ("x-amz-checksum-crc32c", "yZRlqg==")];
    let odd = "/box/a%20b%2B%25//~%3F%C3%A9%01";
    client.call("PUT", odd, &headers, "hello world").expect(200);
    client.put(odd, "second").expect(200);
    client.delete(odd).expect(204);
    client.put("/box/z", "").expect(200);
}

#[test]
fn a_larder_is_read_with_odd_keys_versions_markers_and_tags() {
    let (server, gateway, clock) = start();
    fill(&server);
    let source = |key: &str, secret: &str| {
        let SourceAddress::S3(address) = SourceAddress::parse(&format!("s3://{key}@{}", server.address)).unwrap()
        else {
            panic!()
        };
        S3Source::new(Arc::new(BlockingHttp(server.address)), clock.clone(), address, secret.to_owned(), 100_000)
    };
    Runtime::new().unwrap().block_on(async {
        let reader = source(KEY, SECRET);
        assert_eq!(reader.list_buckets().await.unwrap(), ["box", "plain"]);
        check_versions(&reader).await;
        check_bucket_documents(&reader).await;
        let wrong = [(KEY, "wrong", "SignatureDoesNotMatch"), ("NOBODY", SECRET, "InvalidAccessKeyId")];
        for (key, secret, code) in wrong {
            let failure = source(key, secret).list_versions("box", None).await.unwrap_err().to_string();
            assert!(failure.starts_with(&format!("the source answers 403: {code}: ")), "{failure}");
        }
    });
    server.stop(gateway.shutdown());
}

async fn check_versions(reader: &S3Source) {
    let page = reader.list_versions("box", None).await.unwrap();
    let shown: Vec<_> = page.versions.iter().map(|it| (&it.key[..], it.is_marker, it.is_latest, it.length)).collect();
    let expected = [(ODD, true, true, 0), (ODD, false, false, 6), (ODD, false, false, 11), (b"z", false, true, 0)];
    assert_eq!((shown.as_slice(), page.next), (expected.as_slice(), None));
    let (deleted, first) = (&page.versions[0], &page.versions[2]);
    let id = first.version_id.as_deref();

    let found = reader.get("box", ODD, id).await.unwrap().unwrap();
    let header = |name: &str| String::from_utf8_lossy(found.headers.get(name).unwrap()).into_owned();
    assert_eq!(header("x-amz-checksum-crc32c"), "yZRlqg==");
    assert_eq!(header("etag"), format!("\"{}\"", first.etag));
    assert_eq!((header("x-amz-meta-m"), header("x-amz-tagging-count")), ("v".to_owned(), "1".to_owned()));
    assert_eq!(found.length, Some(11));
    assert_eq!(whole(found).await.unwrap(), "hello world");
    assert_eq!(reader.tags("box", ODD, id).await.unwrap(), [("a".to_owned(), "b c".to_owned())]);
    assert!(reader.get("box", ODD, None).await.unwrap().is_none());
    assert!(reader.get("box", ODD, deleted.version_id.as_deref()).await.unwrap().is_none());

    let after = SourceVersionMarker { key: first.key.clone(), version: first.version_id.clone() };
    let rest = reader.list_versions("box", Some(&after)).await.unwrap();
    assert_eq!(rest.versions, page.versions[3..]);
}

async fn check_bucket_documents(reader: &S3Source) {
    let plain = reader.list_versions("plain", None).await.unwrap();
    assert_eq!(plain.versions[0].version_id.as_deref(), Some("null"));
    assert!(reader.get("plain", b"k", Some("null")).await.unwrap().is_some());
    let versioning = reader.bucket_document("box", "versioning").await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&versioning).contains("<Status>Enabled</Status>"));
    for absent in ["policy", "cors", "lifecycle", "tagging", "object-lock", "publicAccessBlock"] {
        assert_eq!(reader.bucket_document("box", absent).await, Ok(None), "{absent}");
    }
}
