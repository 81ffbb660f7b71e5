//! Elements that Larder does not know, in every document with which a client asks for something.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_api_s3::operations::{OPERATIONS, OperationScope, OperationSpec, RequestBodyKind, StubResponse, Support};
use larder_testkit::http::HttpResponse;
use md5::{Digest, Md5};

use crate::support::S3TestServer;

const NOTHING: &[(&str, &str)] = &[];
const LOCK_ENABLED: (&str, &str) = ("x-amz-bucket-object-lock-enabled", "true");
/// Notification rules may name targets that nobody configured.
const ANY_TARGET: (&str, &str) = ("x-amz-skip-destination-validation", "true");
const UNKNOWN: &str = "<Surprise>x</Surprise>";
/// Operations whose document has another form, or whose unknown elements are those of Riak CS.
const NO_XML: &[&str] = &["AssumeRole", "PutBucketPolicy", "AdminCreateUser", "AdminUpdateUser"];

/// A document with all elements that clients send to an operation.
fn document(operation: &str, owner: &str, etag: &str) -> String {
    let tag = "<Tag><Key>k</Key><Value>v</Value></Tag>";
    match operation {
        "CreateBucket" => format!(
            "<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint><Tags>{tag}</Tags>\
             </CreateBucketConfiguration>"
        ),
        "DeleteObjects" => "<Delete><Quiet>true</Quiet><Object><Key>k</Key><VersionId>null</VersionId><ETag>\"x\"</ETag>\
             </Object></Delete>"
            .into(),
        "PutBucketVersioning" => "<VersioningConfiguration><Status>Enabled</Status><MfaDelete>Disabled</MfaDelete>\
             <ExcludeFolders>false</ExcludeFolders></VersioningConfiguration>"
            .into(),
        "PutBucketAcl" | "PutObjectAcl" => {
            let user = format!("<ID>{owner}</ID><DisplayName>someone</DisplayName>");
            format!(
                "<AccessControlPolicy><Owner>{user}</Owner><AccessControlList><Grant><Grantee \
                 xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"CanonicalUser\">{user}\
                 <Type>CanonicalUser</Type></Grantee><Permission>FULL_CONTROL</Permission></Grant></AccessControlList>\
                 </AccessControlPolicy>"
            )
        }
        "PutBucketCors" => "<CORSConfiguration><CORSRule><ID>a</ID><AllowedOrigin>*</AllowedOrigin>\
             <AllowedMethod>GET</AllowedMethod><AllowedHeader>*</AllowedHeader><ExposeHeader>ETag</ExposeHeader>\
             <MaxAgeSeconds>9</MaxAgeSeconds></CORSRule></CORSConfiguration>"
            .into(),
        "PutBucketLifecycleConfiguration" => format!(
            "<LifecycleConfiguration><Rule><ID>a</ID><Filter><And><Prefix>p</Prefix>{tag}\
             <ObjectSizeGreaterThan>1</ObjectSizeGreaterThan><ObjectSizeLessThan>9</ObjectSizeLessThan></And></Filter>\
             <Status>Enabled</Status><Expiration><Days>1</Days></Expiration><NoncurrentVersionExpiration>\
             <NoncurrentDays>1</NoncurrentDays><NewerNoncurrentVersions>2</NewerNoncurrentVersions>\
             </NoncurrentVersionExpiration></Rule><Rule><Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter>\
             <Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule><Rule><Prefix/>\
             <Status>Enabled</Status><AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>\
             </AbortIncompleteMultipartUpload></Rule></LifecycleConfiguration>"
        ),
        "PutBucketTagging" | "PutObjectTagging" => format!("<Tagging><TagSet>{tag}</TagSet></Tagging>"),
        "PutBucketEncryption" => "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault>\
             <SSEAlgorithm>AES256</SSEAlgorithm></ApplyServerSideEncryptionByDefault>\
             <BucketKeyEnabled>false</BucketKeyEnabled><BlockedEncryptionTypes><EncryptionType>SSE-C</EncryptionType>\
             </BlockedEncryptionTypes></Rule></ServerSideEncryptionConfiguration>"
            .into(),
        "PutPublicAccessBlock" => "<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls>\
             <IgnorePublicAcls>true</IgnorePublicAcls><BlockPublicPolicy>true</BlockPublicPolicy>\
             <RestrictPublicBuckets>true</RestrictPublicBuckets></PublicAccessBlockConfiguration>"
            .into(),
        "PutBucketOwnershipControls" => "<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced\
             </ObjectOwnership></Rule></OwnershipControls>"
            .into(),
        "PutBucketWebsite" => "<WebsiteConfiguration><IndexDocument><Suffix>i</Suffix></IndexDocument><ErrorDocument>\
             <Key>e</Key></ErrorDocument><RoutingRules><RoutingRule><Condition><KeyPrefixEquals>a</KeyPrefixEquals>\
             <HttpErrorCodeReturnedEquals>404</HttpErrorCodeReturnedEquals></Condition><Redirect>\
             <Protocol>https</Protocol><HostName>h</HostName><ReplaceKeyPrefixWith>b</ReplaceKeyPrefixWith>\
             <HttpRedirectCode>301</HttpRedirectCode></Redirect></RoutingRule></RoutingRules></WebsiteConfiguration>"
            .into(),
        "PutObjectLockConfiguration" => "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule>\
             <DefaultRetention><Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>"
            .into(),
        "PutBucketNotificationConfiguration" => "<NotificationConfiguration><QueueConfiguration><Id>a</Id>\
             <Queue>arn:minio:sqs::hook:webhook</Queue><Event>s3:ObjectCreated:*</Event><Filter><S3Key><FilterRule>\
             <Name>prefix</Name><Value>p</Value></FilterRule></S3Key></Filter></QueueConfiguration>\
             </NotificationConfiguration>"
            .into(),
        "PutObjectRetention" => "<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>2140-01-01T00:00:00Z\
             </RetainUntilDate></Retention>"
            .into(),
        "PutObjectLegalHold" => "<LegalHold><Status>ON</Status></LegalHold>".into(),
        "CompleteMultipartUpload" => format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag>\
             <ChecksumCRC32>ONTZgw==</ChecksumCRC32></Part></CompleteMultipartUpload>"
        ),
        "PutBucketLogging" => "<BucketLoggingStatus></BucketLoggingStatus>".into(),
        "PutBucketRequestPayment" => {
            "<RequestPaymentConfiguration><Payer>BucketOwner</Payer></RequestPaymentConfiguration>".into()
        }
        "PutBucketAccelerateConfiguration" => {
            "<AccelerateConfiguration><Status>Suspended</Status></AccelerateConfiguration>".into()
        }
        other => panic!("{other} reads a document: which elements do clients send?"),
    }
}

/// The operations that read a document, also those that only take what is so anyway.
fn reading() -> impl Iterator<Item = &'static OperationSpec> {
    OPERATIONS.iter().filter(|operation| {
        let is_read =
            matches!(operation.support, Support::Implemented(_) | Support::ConfigStub(StubResponse::Unset(_)));
        is_read && operation.body == RequestBodyKind::Document && !NO_XML.contains(&operation.name)
    })
}

/// The document with an unknown element in each element that has children, one at a time.
fn with_unknown(document: &str) -> Vec<String> {
    let starts = document.match_indices('>').map(|(at, _)| at + 1).filter(|at| *at < document.len());
    let is_parent = |at: &usize| {
        let tag = &document[document[..*at].rfind('<').unwrap()..*at];
        let is_start = !tag.starts_with("</") && !tag.ends_with("/>");
        let is_root = !document[..*at - 1].contains('>');
        is_start && (is_root || document[*at..].starts_with('<'))
    };
    starts.filter(is_parent).map(|at| format!("{}{UNKNOWN}{}", &document[..at], &document[at..])).collect()
}

/// Sends a document with its digest.
fn send(server: &S3TestServer, operation: &OperationSpec, target: &str, document: &str) -> HttpResponse {
    let digest = STANDARD.encode(Md5::digest(document));
    let headers = [("content-md5", digest.as_str()), ANY_TARGET];
    server.ask(operation.method.as_str(), target, &headers, document.as_bytes())
}

#[test]
fn an_element_that_nobody_reads_is_refused_by_name_in_every_document() {
    let server = S3TestServer::start();
    let mut refused = 0;
    for (number, operation) in reading().enumerate() {
        let name = operation.name;
        let bucket = format!("/box{number}");
        let mut etag = String::new();
        if name != "CreateBucket" {
            assert_eq!(server.ask("PUT", &bucket, &[LOCK_ENABLED], b"").status, 200);
            assert_eq!(server.ask("PUT", &format!("{bucket}/k"), NOTHING, b"a").status, 200);
        }
        let mut target = match operation.scope {
            OperationScope::Object => format!("{bucket}/k?{}", operation.query_params.join("&")),
            _ => format!("{bucket}?{}", operation.query_params.join("&")),
        };
        if name == "CompleteMultipartUpload" {
            let begun = server.ask("POST", &format!("{bucket}/k?uploads"), NOTHING, b"");
            target = format!("{bucket}/k?uploadId={}", begun.element("UploadId").unwrap());
            let part = target.replace('?', "?partNumber=1&");
            etag = server.ask("PUT", &part, NOTHING, b"hello").header("etag").unwrap().to_owned();
        }
        let acl = server.ask("GET", "/box1?acl", NOTHING, b"");
        let document = document(name, acl.element("ID").unwrap_or_default(), &etag);
        for strange in with_unknown(&document) {
            let answer = send(&server, operation, &target, &strange);
            // Of one object of many, the others are deleted.
            let is_of_one = name == "DeleteObjects" && answer.status == 200;
            let shown = if is_of_one {
                (501, answer.text().contains("The element Surprise").then_some("Surprise"))
            } else {
                (answer.status, answer.element("Element"))
            };
            assert_eq!(shown, (501, Some("Surprise")), "{name} {strange} {answer:?}");
            refused += 1;
        }
        let answer = send(&server, operation, &target, &document);
        assert!(matches!(answer.status, 200 | 204), "{name} {document} {answer:?}");
    }
    assert!(refused > 50, "{refused}");
    server.stop();
}
