//! Object lock over the wire: statuses, codes and messages, and a locked version under every request that removes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_testkit::http::HttpResponse;
use md5::{Digest, Md5};

use crate::support::S3TestServer;

const NOTHING: &[(&str, &str)] = &[];
const LOCK_ENABLED: (&str, &str) = ("x-amz-bucket-object-lock-enabled", "true");
const BYPASS: (&str, &str) = ("x-amz-bypass-governance-retention", "true");
const LOCKED: &str = "Access Denied because object protected by object lock.";
const GOVERNANCE: &str =
    "<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>2140-01-01T00:00:00Z</RetainUntilDate></Retention>";
const COMPLIANCE: &str =
    "<Retention><Mode>COMPLIANCE</Mode><RetainUntilDate>2140-01-01T00:00:00Z</RetainUntilDate></Retention>";

fn with_locks() -> S3TestServer {
    let server = S3TestServer::start();
    assert_eq!(server.ask("PUT", "/box", &[LOCK_ENABLED], b"").status, 200);
    server
}

/// Sends a document with its digest.
fn put(server: &S3TestServer, target: &str, headers: &[(&str, &str)], body: &str) -> HttpResponse {
    let digest = STANDARD.encode(Md5::digest(body));
    server.ask("PUT", target, &[headers, &[("content-md5", &digest)]].concat(), body.as_bytes())
}

fn version(server: &S3TestServer, headers: &[(&str, &str)]) -> String {
    let stored = put(server, "/box/k", headers, "gold");
    assert_eq!(stored.status, 200, "{stored:?}");
    stored.header("x-amz-version-id").unwrap().to_owned()
}

#[track_caller]
fn refused(response: &HttpResponse, status: u16, code: &str, message: &str) {
    let found = response.element("Message").map(|message| message.replace("&apos;", "'"));
    assert_eq!((response.status, response.element("Code")), (status, Some(code)), "{response:?}");
    assert_eq!(found.as_deref(), Some(message), "{response:?}");
}

#[test]
fn the_lock_of_a_bucket_is_set_and_stays() {
    let server = with_locks();
    assert!(server.ask("GET", "/box?versioning", NOTHING, b"").text().contains("<Status>Enabled</Status>"));
    let lock = server.ask("GET", "/box?object-lock", NOTHING, b"").text();
    assert!(lock.contains("<ObjectLockEnabled>Enabled</ObjectLockEnabled>") && !lock.contains("<Rule>"), "{lock}");
    let suspended = "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>";
    refused(
        &server.ask("PUT", "/box?versioning", NOTHING, suspended.as_bytes()),
        409,
        "InvalidBucketState",
        "An Object Lock configuration is present on this bucket, so the versioning state cannot be changed.",
    );
    assert_eq!(server.ask("PUT", "/plain", NOTHING, b"").status, 200);
    let none = server.ask("GET", "/plain?object-lock", NOTHING, b"");
    let message = "Object Lock configuration does not exist for this bucket";
    refused(&none, 404, "ObjectLockConfigurationNotFoundError", message);
    assert_eq!(none.element("BucketName"), Some("plain"));
    let lock = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>\
        <Rule><DefaultRetention><Mode>COMPLIANCE</Mode><Years>1</Years></DefaultRetention></Rule></ObjectLockConfiguration>";
    let message = "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration";
    refused(&put(&server, "/plain?object-lock", NOTHING, lock), 409, "InvalidBucketState", message);
    refused(&put(&server, "/box?object-lock", NOTHING, ""), 400, "MissingRequestBodyError", "Request Body is empty");
    let message = "Missing required header for this request: Content-MD5 OR x-amz-checksum-*";
    refused(&server.ask("PUT", "/box?object-lock", NOTHING, lock.as_bytes()), 400, "InvalidRequest", message);
    assert_eq!(put(&server, "/box?object-lock", NOTHING, lock).status, 200);
    let shown = server.ask("GET", "/box?object-lock", NOTHING, b"").text();
    assert!(shown.contains("<Mode>COMPLIANCE</Mode><Years>1</Years>"), "{shown}");
    let stored = server.ask("PUT", "/box/k", NOTHING, b"s3cmd sends no digest");
    assert_eq!(stored.status, 200, "{stored:?}");
    assert_eq!(server.ask("HEAD", "/box/k", NOTHING, b"").header("x-amz-object-lock-mode"), Some("COMPLIANCE"));
    server.stop();
}

#[test]
fn a_locked_version_survives_every_request() {
    let server = with_locks();
    let id = version(&server, &[("x-amz-object-lock-legal-hold", "ON")]);
    let target = format!("/box/k?versionId={id}");
    let retention = format!("/box/k?retention&versionId={id}");
    assert_eq!(put(&server, &retention, NOTHING, GOVERNANCE).status, 200);
    refused(&put(&server, &retention, NOTHING, COMPLIANCE), 403, "AccessDenied", LOCKED);
    assert_eq!(put(&server, &retention, &[BYPASS], COMPLIANCE).status, 200);
    refused(&put(&server, &retention, &[BYPASS], "<Retention/>"), 403, "AccessDenied", LOCKED);
    refused(&put(&server, &retention, &[BYPASS], GOVERNANCE), 403, "AccessDenied", LOCKED);
    let past = COMPLIANCE.replace("2140", "1999");
    let message = "The retain until date must be in the future!";
    let refusal = put(&server, &retention, NOTHING, &past);
    refused(&refusal, 400, "InvalidArgument", message);
    assert_eq!(refusal.element("ArgumentName"), Some("RetainUntilDate"));
    let hold = format!("/box/k?legal-hold&versionId={id}");
    for state in ["ON", "OFF"] {
        for headers in [NOTHING, &[BYPASS]] {
            refused(&server.ask("DELETE", &target, headers, b""), 403, "AccessDenied", LOCKED);
        }
        let list = format!(
            "<Delete><Object><Key>k</Key><VersionId>{id}</VersionId></Object><Object><Key>k</Key></Object></Delete>"
        );
        let digest = STANDARD.encode(Md5::digest(&list));
        let both = server.ask("POST", "/box?delete", &[BYPASS, ("content-md5", &digest)], list.as_bytes());
        let text = both.text();
        assert_eq!((both.status, text.matches("<Error>").count(), text.matches("<Deleted>").count()), (200, 1, 1));
        assert!(
            text.contains(&format!("<VersionId>{id}</VersionId><Code>AccessDenied</Code><Message>{LOCKED}")),
            "{text}"
        );
        let document = format!("<LegalHold><Status>{state}</Status></LegalHold>");
        assert_eq!(put(&server, &hold, NOTHING, &document).status, 200);
        assert!(server.ask("GET", &hold, NOTHING, b"").text().contains(&document[11..]));
    }
    assert_eq!(server.ask("DELETE", "/box", NOTHING, b"").element("Code"), Some("BucketNotEmpty"));
    let found = server.ask("GET", &target, NOTHING, b"");
    assert_eq!((found.text().as_str(), found.header("x-amz-object-lock-mode")), ("gold", Some("COMPLIANCE")));
    assert_eq!(found.header("x-amz-object-lock-retain-until-date"), Some("2140-01-01T00:00:00.000Z"));
    assert_eq!(found.header("x-amz-object-lock-legal-hold"), Some("OFF"));
    server.stop();
}

#[test]
fn requests_for_locks_that_cannot_be_are_refused_by_name() {
    let server = with_locks();
    assert_eq!(server.ask("PUT", "/plain", NOTHING, b"").status, 200);
    assert_eq!(server.ask("PUT", "/plain/k", NOTHING, b"x").status, 200);
    let missing = "Bucket is missing Object Lock Configuration";
    refused(&server.ask("GET", "/plain/k?retention", NOTHING, b""), 400, "InvalidRequest", missing);
    refused(&put(&server, "/plain/k?retention", NOTHING, GOVERNANCE), 400, "InvalidRequest", missing);
    refused(&server.ask("GET", "/plain/k?legal-hold", NOTHING, b""), 400, "InvalidRequest", missing);
    let held = [("x-amz-object-lock-legal-hold", "ON")];
    let missing = "Bucket is missing ObjectLockConfiguration";
    refused(&put(&server, "/plain/k", &held, "x"), 400, "InvalidRequest", missing);
    refused(&server.ask("POST", "/plain/k?uploads", &held, b""), 400, "InvalidRequest", missing);
    for (value, status) in [("true", 204), ("false", 204), ("yes", 400)] {
        assert_eq!(server.ask("DELETE", "/plain/k", &[(BYPASS.0, value)], b"").status, status, "{value}");
    }
    let message =
        "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters";
    refused(&server.ask("PUT", "/box/k", &held, b"x"), 400, "InvalidRequest", message);
    let upload = server.ask("POST", "/box/k?uploads", &held, b"");
    let part = format!("/box/k?partNumber=1&uploadId={}", upload.element("UploadId").unwrap());
    let message = message.replace("Put Object", "Put Part");
    refused(&server.ask("PUT", &part, NOTHING, b"x"), 400, "InvalidRequest", &message);
    assert_eq!(put(&server, &part, NOTHING, "x").status, 200);
    assert_eq!(put(&server, &part, &held, "x").element("Code"), Some("InvalidRequest"));
    version(&server, NOTHING);
    let message = "The specified object does not have a ObjectLock configuration";
    for target in ["/box/k?retention", "/box/k?legal-hold"] {
        refused(&server.ask("GET", target, NOTHING, b""), 404, "NoSuchObjectLockConfiguration", message);
    }
    let event = put(&server, "/box/k?retention", NOTHING, "<Retention><EventHold>ON</EventHold></Retention>");
    assert_eq!((event.status, event.element("Element")), (501, Some("EventHold")));
    let event = put(&server, "/box/k", &[("x-amz-object-lock-event-hold", "ON")], "x");
    assert_eq!((event.status, event.element("Header")), (501, Some("x-amz-object-lock-event-hold")));
    let marker = server.ask("DELETE", "/box/k", NOTHING, b"");
    let marker = format!("/box/k?legal-hold&versionId={}", marker.header("x-amz-version-id").unwrap());
    let refusal = put(&server, &marker, NOTHING, "<LegalHold><Status>ON</Status></LegalHold>");
    assert_eq!(
        (refusal.status, refusal.element("Method"), refusal.element("ResourceType")),
        (405, Some("PUT"), Some("DeleteMarker"))
    );
    server.stop();
}
