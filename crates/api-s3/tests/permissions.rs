//! Every operation needs permission for the action of its row in the table, and for no action besides those listed here.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support::{KEY, S3TestServer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_api_s3::operations::{OPERATIONS, OperationScope, Support};
use larder_s3::users::{AttachmentChange, PolicyHolder};
use larder_testkit::http::HttpResponse;
use larder_testkit::s3::S3Signer;
use md5::Md5;
use sha1::{Digest as _, Sha1};

const NOTHING: &[(&str, &str)] = &[];

/// An anonymous request: its operation, the actions that it needs without `s3:`, query, header and body. In the last three
/// `{v}` is a version of the key `k` and `{u}` an upload of it.
type Attempt = (&'static str, &'static [&'static str], &'static str, &'static str, &'static str);

const VERSIONING: &str = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
const POLICY: &str = r#"{"Statement":[{"Effect":"Deny","Principal":{"AWS":"x"},"Action":"s3:*","Resource":"*"}]}"#;
const CORS: &str = "<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>\
    </CORSRule></CORSConfiguration>";
const LIFECYCLE: &str = "<LifecycleConfiguration><Rule><Filter/><Status>Disabled</Status><Expiration><Days>9</Days>\
    </Expiration></Rule></LifecycleConfiguration>";
const TAGS: &str = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
const ENCRYPTION: &str = "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault>\
    <SSEAlgorithm>AES256</SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>";
const OWNERSHIP: &str =
    "<OwnershipControls><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule></OwnershipControls>";
const WEBSITE: &str =
    "<WebsiteConfiguration><IndexDocument><Suffix>index.html</Suffix></IndexDocument></WebsiteConfiguration>";
const FORM: &str = "--B\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nk\r\n\
    --B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nhello\r\n--B--\r\n";

const ATTEMPTS: &[Attempt] = &[
    ("GetObjectLockConfiguration", &["GetBucketObjectLockConfiguration"], "object-lock", "", ""),
    ("PutObjectLockConfiguration", &["PutBucketObjectLockConfiguration"], "object-lock", "", LOCK),
    ("GetObjectRetention", &["GetObjectRetention"], "retention", "", ""),
    ("PutObjectRetention", &["PutObjectRetention"], "retention&versionId={v}", "", "<Retention/>"),
    (
        "PutObjectRetention",
        &["PutObjectRetention", "BypassGovernanceRetention"],
        "retention",
        "x-amz-bypass-governance-retention: true",
        "<Retention/>",
    ),
    ("GetObjectLegalHold", &["GetObjectLegalHold"], "legal-hold&versionId={v}", "", ""),
    ("PutObjectLegalHold", &["PutObjectLegalHold"], "legal-hold", "", "<LegalHold><Status>OFF</Status></LegalHold>"),
    (
        "DeleteObject",
        &["DeleteObjectVersion", "BypassGovernanceRetention"],
        "versionId={v}",
        "x-amz-bypass-governance-retention: true",
        "",
    ),
    (
        "PutObject",
        &["PutObject", "PutObjectLegalHold"],
        "",
        "x-amz-object-lock-legal-hold: OFF\r\ncontent-md5: XUFAKrxLKna5cZ2REBfFkg==",
        "hello",
    ),
    (
        "PutObject",
        &["PutObject", "PutObjectRetention"],
        "",
        "x-amz-object-lock-mode: GOVERNANCE\r\nx-amz-object-lock-retain-until-date: 2200-01-01T00:00:00Z\r\ncontent-md5: XUFAKrxLKna5cZ2REBfFkg==",
        "hello",
    ),
    ("HeadBucket", &["ListBucket"], "", "", ""),
    ("DeleteBucket", &["DeleteBucket"], "", "", ""),
    ("ListObjects", &["ListBucket"], "", "", ""),
    ("ListObjectsV2", &["ListBucket"], "list-type=2", "", ""),
    ("ListObjectVersions", &["ListBucketVersions"], "versions", "", ""),
    ("ListMultipartUploads", &["ListBucketMultipartUploads"], "uploads", "", ""),
    ("DeleteObjects", &["DeleteObject"], "delete", "", "<Delete><Object><Key>k</Key></Object></Delete>"),
    (
        "DeleteObjects",
        &["DeleteObjectVersion"],
        "delete",
        "",
        "<Delete><Object><Key>k</Key><VersionId>{v}</VersionId></Object></Delete>",
    ),
    ("PostObject", &["PutObject"], "", "content-type: multipart/form-data; boundary=B", FORM),
    ("GetBucketLocation", &["GetBucketLocation"], "location", "", ""),
    ("GetBucketVersioning", &["GetBucketVersioning"], "versioning", "", ""),
    ("PutBucketVersioning", &["PutBucketVersioning"], "versioning", "", VERSIONING),
    ("GetBucketAcl", &["GetBucketAcl"], "acl", "", ""),
    ("PutBucketAcl", &["PutBucketAcl"], "acl", "x-amz-acl: private", ""),
    ("GetBucketPolicy", &["GetBucketPolicy"], "policy", "", ""),
    ("PutBucketPolicy", &["PutBucketPolicy"], "policy", "", POLICY),
    ("DeleteBucketPolicy", &["DeleteBucketPolicy"], "policy", "", ""),
    ("GetBucketPolicyStatus", &["GetBucketPolicyStatus"], "policyStatus", "", ""),
    ("GetBucketCors", &["GetBucketCORS"], "cors", "", ""),
    ("PutBucketCors", &["PutBucketCORS"], "cors", "", CORS),
    ("DeleteBucketCors", &["PutBucketCORS"], "cors", "", ""),
    ("GetBucketLifecycleConfiguration", &["GetLifecycleConfiguration"], "lifecycle", "", ""),
    ("PutBucketLifecycleConfiguration", &["PutLifecycleConfiguration"], "lifecycle", "", LIFECYCLE),
    ("DeleteBucketLifecycle", &["PutLifecycleConfiguration"], "lifecycle", "", ""),
    ("GetBucketTagging", &["GetBucketTagging"], "tagging", "", ""),
    ("PutBucketTagging", &["PutBucketTagging"], "tagging", "", TAGS),
    ("DeleteBucketTagging", &["PutBucketTagging"], "tagging", "", ""),
    ("GetPublicAccessBlock", &["GetBucketPublicAccessBlock"], "publicAccessBlock", "", ""),
    (
        "PutPublicAccessBlock",
        &["PutBucketPublicAccessBlock"],
        "publicAccessBlock",
        "",
        "<PublicAccessBlockConfiguration/>",
    ),
    ("DeletePublicAccessBlock", &["PutBucketPublicAccessBlock"], "publicAccessBlock", "", ""),
    ("GetBucketEncryption", &["GetEncryptionConfiguration"], "encryption", "", ""),
    ("PutBucketEncryption", &["PutEncryptionConfiguration"], "encryption", "", ENCRYPTION),
    ("DeleteBucketEncryption", &["PutEncryptionConfiguration"], "encryption", "", ""),
    ("GetBucketOwnershipControls", &["GetBucketOwnershipControls"], "ownershipControls", "", ""),
    ("PutBucketOwnershipControls", &["PutBucketOwnershipControls"], "ownershipControls", "", OWNERSHIP),
    ("DeleteBucketOwnershipControls", &["PutBucketOwnershipControls"], "ownershipControls", "", ""),
    ("GetBucketNotificationConfiguration", &["GetBucketNotification"], "notification", "", ""),
    (
        "PutBucketNotificationConfiguration",
        &["PutBucketNotification"],
        "notification",
        "",
        "<NotificationConfiguration/>",
    ),
    ("GetBucketWebsite", &["GetBucketWebsite"], "website", "", ""),
    ("PutBucketWebsite", &["PutBucketWebsite"], "website", "", WEBSITE),
    ("DeleteBucketWebsite", &["DeleteBucketWebsite"], "website", "", ""),
    ("GetObject", &["GetObject"], "", "", ""),
    ("GetObject", &["GetObjectVersion"], "versionId={v}", "", ""),
    // Without permission to list the bucket, a missing version looks forbidden.
    ("GetObject", &["GetObjectVersion", "ListBucket"], "versionId=null", "", ""),
    ("HeadObject", &["GetObject"], "", "", ""),
    ("HeadObject", &["GetObjectVersion"], "versionId={v}", "", ""),
    ("PutObject", &["PutObject"], "", "", "hello"),
    ("PutObject", &["PutObject", "PutObjectTagging"], "", "x-amz-tagging: a=b", "hello"),
    ("PutObject", &["PutObject", "PutObjectAcl"], "", "x-amz-acl: public-read", "hello"),
    (
        "CopyObject",
        &["PutObject", "GetObject", "GetObjectTagging", "PutObjectTagging"],
        "",
        "x-amz-copy-source: /box/source",
        "",
    ),
    (
        "CopyObject",
        &["PutObject", "GetObjectVersion", "GetObjectVersionTagging", "PutObjectTagging"],
        "",
        "x-amz-copy-source: /box/k?versionId={v}",
        "",
    ),
    ("DeleteObject", &["DeleteObject"], "", "", ""),
    ("DeleteObject", &["DeleteObjectVersion"], "versionId={v}", "", ""),
    ("GetObjectAcl", &["GetObjectAcl"], "acl", "", ""),
    ("GetObjectAcl", &["GetObjectVersionAcl"], "acl&versionId={v}", "", ""),
    ("PutObjectAcl", &["PutObjectAcl"], "acl", "x-amz-acl: private", ""),
    ("PutObjectAcl", &["PutObjectVersionAcl"], "acl&versionId={v}", "x-amz-acl: private", ""),
    ("GetObjectTagging", &["GetObjectTagging"], "tagging", "", ""),
    ("GetObjectTagging", &["GetObjectVersionTagging"], "tagging&versionId={v}", "", ""),
    ("PutObjectTagging", &["PutObjectTagging"], "tagging", "", TAGS),
    ("PutObjectTagging", &["PutObjectVersionTagging"], "tagging&versionId={v}", "", TAGS),
    ("DeleteObjectTagging", &["DeleteObjectTagging"], "tagging", "", ""),
    ("DeleteObjectTagging", &["DeleteObjectVersionTagging"], "tagging&versionId={v}", "", ""),
    ("GetObjectAttributes", &["GetObject", "GetObjectAttributes"], "attributes", "x-amz-object-attributes: ETag", ""),
    (
        "GetObjectAttributes",
        &["GetObjectVersion", "GetObjectVersionAttributes"],
        "attributes&versionId={v}",
        "x-amz-object-attributes: ETag",
        "",
    ),
    ("UploadPart", &["PutObject"], "partNumber=1&uploadId={u}", "", "hello"),
    ("UploadPartCopy", &["PutObject", "GetObject"], "partNumber=1&uploadId={u}", "x-amz-copy-source: /box/source", ""),
    ("ListParts", &["ListMultipartUploadParts"], "uploadId={u}", "", ""),
    (
        "CompleteMultipartUpload",
        &["PutObject"],
        "uploadId={u}",
        "",
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"5d41402abc4b2a76b9719d911017c592\"</ETag>\
         </Part></CompleteMultipartUpload>",
    ),
    ("AbortMultipartUpload", &["AbortMultipartUpload"], "uploadId={u}", "", ""),
];

/// Operations without an anonymous caller: each user creates buckets, and the last test creates an upload.
const SIGNED: &[&str] = &["CreateBucket", "CreateMultipartUpload"];

const LOCK: &str = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>";

/// A server with an empty bucket that has versioning and object lock.
fn with_bucket() -> S3TestServer {
    let server = S3TestServer::start();
    let locked = [("x-amz-bucket-object-lock-enabled", "true")];
    assert_eq!(server.ask("PUT", "/box", &locked, b"").status, 200);
    server
}

/// Sets a policy that allows everything that `element` names to everybody.
fn allow(server: &S3TestServer, element: &str, actions: &[&str]) {
    let actions: Vec<_> = actions.iter().map(|action| format!("\"s3:{action}\"")).collect();
    let policy = format!(
        r#"{{"Statement":[{{"Effect":"Allow","Principal":"*","{element}":[{}],"Resource":"arn:aws:s3:::box*"}}]}}"#,
        actions.join(",")
    );
    let put = server.ask("PUT", "/box?policy", NOTHING, policy.as_bytes());
    assert_eq!(put.status, 204, "{put:?}");
}

/// Sends the request of an attempt to a new version of the key and a new upload, without a signature.
fn send(server: &S3TestServer, attempt: &Attempt) -> HttpResponse {
    let AttemptedRequest { name, method, path, query, header, body } = prepare(server, attempt);
    let header = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
    let digest = STANDARD.encode(Sha1::digest(body.as_bytes()));
    let digest = if needs_digest(name) { format!("x-amz-checksum-sha1: {digest}\r\n") } else { String::new() };
    let length = body.len();
    let head = format!(
        "{method} {path}?{query} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{header}{digest}\r\n"
    );
    server.ask_text(&head, body.as_bytes())
}

/// Sends it as a link of this signer, whose session has this token.
fn send_signed(server: &S3TestServer, attempt: &Attempt, signer: &S3Signer, token: Option<&str>) -> HttpResponse {
    let AttemptedRequest { name, method, path, query, header, body } = prepare(server, attempt);
    let headers: Vec<_> = header.split("\r\n").filter_map(|line| line.split_once(": ")).collect();
    let is_moved = |(name, _): &&(&str, &str)| name.starts_with("x-amz-");
    let mut parameters: Vec<_> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    parameters.extend(headers.iter().filter(is_moved).chain(token.map(|token| ("X-Amz-Security-Token", token)).iter()));
    let target = signer.v4_link(method, path, &parameters);
    let plain = headers.iter().filter(|pair| !is_moved(pair));
    let mut plain: String = plain.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    if needs_digest(name) && !plain.contains("content-md5") {
        plain += &format!("content-md5: {}\r\n", STANDARD.encode(Md5::digest(body.as_bytes())));
    }
    let length = body.len();
    let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{plain}\r\n");
    server.ask_text(&head, body.as_bytes())
}

fn needs_digest(name: &str) -> bool {
    name == "DeleteObjects" || ["Lock", "Retention", "Hold"].iter().any(|part| name.contains(part))
}

/// The request of an attempt.
struct AttemptedRequest {
    name: &'static str,
    method: &'static str,
    path: &'static str,
    query: String,
    /// Lines without the last end.
    header: String,
    body: String,
}

/// Makes a new version of the key and a new upload for the request of an attempt.
fn prepare(server: &S3TestServer, attempt: &Attempt) -> AttemptedRequest {
    let (name, _, query, header, body) = attempt;
    let tagged = &[("x-amz-tagging", "a=b")];
    assert_eq!(server.ask("PUT", "/box/source", tagged, b"hello").status, 200);
    let version = server.ask("PUT", "/box/k", tagged, b"hello");
    let upload = server.ask("POST", "/box/k?uploads", NOTHING, b"");
    let upload = upload.element("UploadId").unwrap();
    let part = format!("/box/k?partNumber=1&uploadId={upload}");
    assert_eq!(server.ask("PUT", &part, NOTHING, b"hello").status, 200);
    let fill = |text: &str| text.replace("{v}", version.header("x-amz-version-id").unwrap()).replace("{u}", upload);
    let operation = OPERATIONS.iter().find(|operation| operation.name == *name).unwrap();
    let path = if operation.scope == OperationScope::Object { "/box/k" } else { "/box" };
    let (method, query, header, body) = (operation.method.as_str(), fill(query), fill(header), fill(body));
    AttemptedRequest { name, method, path, query, header, body }
}

fn is_refused(response: &HttpResponse) -> bool {
    response.status == 403 || response.element("Code") == Some("AccessDenied")
}

#[test]
fn every_operation_needs_the_action_of_its_row() {
    let server = with_bucket();
    for attempt in ATTEMPTS {
        let (name, needs, ..) = attempt;
        for missing in *needs {
            allow(&server, "NotAction", &[missing]);
            let response = send(&server, attempt);
            assert!(is_refused(&response), "{name} without {missing} of {needs:?}: {response:?}");
        }
        allow(&server, "Action", needs);
        let response = send(&server, attempt);
        assert!(!is_refused(&response), "{name} with {needs:?}: {response:?}");
        assert!(response.status < 400 || matches!(response.status, 404 | 409), "{name}: {response:?}");
    }
    server.stop();
}

/// The key that an attempt is signed with, and the token of its session.
type Signed = (S3Signer, Option<String>);

/// Checks every attempt, but that of an unsigned form, with rights that `grant` gives: all actions but those of a list, or those.
fn check_attempts(server: &S3TestServer, mut grant: impl FnMut(&str, &[&str]) -> Signed) {
    for attempt in ATTEMPTS.iter().filter(|(name, ..)| *name != "PostObject") {
        let (name, needs, ..) = attempt;
        for missing in *needs {
            let (signer, token) = grant("NotAction", &[missing]);
            let response = send_signed(server, attempt, &signer, token.as_deref());
            assert!(is_refused(&response), "{name} without {missing} of {needs:?}: {response:?}");
        }
        let (signer, token) = grant("Action", needs);
        let response = send_signed(server, attempt, &signer, token.as_deref());
        assert!(!is_refused(&response), "{name} with {needs:?}: {response:?}");
        assert!(response.status < 400 || matches!(response.status, 404 | 409), "{name}: {response:?}");
    }
}

/// A policy that allows everything, or all, that `element` names.
fn identity_policy(element: &str, actions: &[&str]) -> String {
    let actions: Vec<_> = actions.iter().map(|action| format!("\"s3:{action}\"")).collect();
    format!(r#"{{"Statement":[{{"Effect":"Allow","{element}":[{}],"Resource":"*"}}]}}"#, actions.join(","))
}

#[test]
fn every_operation_needs_its_action_in_a_policy_of_the_user() {
    let server = with_bucket();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let key = Some(("EVE".to_owned(), "eve-secret".to_owned()));
    runtime.block_on(server.users.create("eve@x.org", "eve", false, key)).unwrap();
    let users = &server.users;
    runtime.block_on(users.put_policy("own", &identity_policy("Action", &["GetObject"]))).unwrap();
    runtime.block_on(users.change_policies(PolicyHolder::User("EVE"), &["own"], AttachmentChange::Attach)).unwrap();
    check_attempts(&server, |element, actions| {
        runtime.block_on(users.put_policy("own", &identity_policy(element, actions))).unwrap();
        (S3Signer::new("EVE", "eve-secret"), None)
    });
    server.stop();
}

/// Also in a session of an administrator, who may do anything.
#[test]
fn every_operation_needs_its_action_in_the_policy_of_a_session() {
    let server = with_bucket();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let maker = runtime.block_on(server.users.key_holder(KEY)).unwrap();
    check_attempts(&server, |element, actions| {
        let policy = Some(identity_policy(element, actions));
        let session = runtime.block_on(server.users.create_session(&maker, 900, policy)).unwrap();
        (S3Signer::new(&session.key.key_id, &session.key.secret), Some(session.token))
    });
    server.stop();
}

#[test]
fn every_row_is_attempted() {
    for operation in OPERATIONS {
        let of_bucket = matches!(operation.scope, OperationScope::Bucket | OperationScope::Object);
        if !of_bucket || !matches!(operation.support, Support::Implemented(_)) || SIGNED.contains(&operation.name) {
            continue;
        }
        let action = operation.action.unwrap();
        let needs = |needed: &&str| format!("s3:{needed}") == action.name();
        let attempted = |(name, actions, ..): &Attempt| *name == operation.name && actions.iter().any(needs);
        assert!(ATTEMPTS.iter().any(attempted), "{}", operation.name);
        let versioned = |(name, actions, ..): &Attempt| {
            *name == operation.name && actions.iter().any(|needed| format!("s3:{needed}") == action.versioned().name())
        };
        assert!(ATTEMPTS.iter().any(versioned), "{} of a version", operation.name);
    }
}

/// Once a delete of tags was authorised as a put of tags.
#[test]
fn permission_to_put_tags_does_not_delete_them() {
    let server = with_bucket();
    let current: Attempt = ("DeleteObjectTagging", &[], "tagging", "", "");
    let versioned: Attempt = ("DeleteObjectTagging", &[], "tagging&versionId={v}", "", "");
    allow(&server, "Action", &["PutObjectTagging", "PutObjectVersionTagging"]);
    assert_eq!(send(&server, &current).status, 403);
    assert_eq!(send(&server, &versioned).status, 403);
    allow(&server, "Action", &["DeleteObjectTagging"]);
    assert_eq!(send(&server, &current).status, 204);
    assert_eq!(send(&server, &versioned).status, 403);
    allow(&server, "Action", &["DeleteObjectVersionTagging"]);
    assert_eq!(send(&server, &current).status, 403);
    assert_eq!(send(&server, &versioned).status, 204);
    server.stop();
}

#[test]
fn an_upload_is_created_with_permission_to_put() {
    let server = with_bucket();
    let json = [("content-type", "application/json"), ("accept", "application/json")];
    let user = server.ask("POST", "/riak-cs/user", &json, br#"{"email":"a@b","name":"Foo"}"#).text();
    let field = |name: &str| user.split_once(&format!("\"{name}\":\"")).unwrap().1.split('"').next().unwrap();
    for (element, status) in [("NotAction", 403), ("Action", 200)] {
        allow(&server, element, &["PutObject"]);
        let head = S3Signer::new(field("key_id"), field("key_secret"))
            .v2("POST", "/box/k?uploads", &[("Content-Length", "0")])
            .head();
        assert_eq!(server.ask_text(&head, b"").status, status, "{element}");
    }
    server.stop();
}
