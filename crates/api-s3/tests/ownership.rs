//! Ownership controls, public access blocks and tags of new buckets over the wire.

use crate::support::S3TestServer;
use larder_testkit::http::HttpResponse;
use larder_testkit::s3::S3Signer;

const NOTHING: &[(&str, &str)] = &[];
const JSON: &[(&str, &str)] = &[("content-type", "application/json"), ("accept", "application/json")];
const OWNERSHIP: &str = "x-amz-object-ownership";
const CONTROL: (&str, &str) = ("x-amz-acl", "bucket-owner-full-control");
const PUBLIC: (&str, &str) = ("x-amz-acl", "public-read");

/// A user who is no administrator.
struct Writer {
    signer: S3Signer,
    id: String,
}

impl Writer {
    fn new(server: &S3TestServer) -> Self {
        let made = server.ask("POST", "/riak-cs/user", JSON, br#"{"email":"eve@x.org","name":"eve"}"#).json();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        Self { signer: S3Signer::new(&text("key_id"), &text("key_secret")), id: text("id") }
    }

    fn ask(
        &self,
        server: &S3TestServer,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> HttpResponse {
        let length = body.len().to_string();
        let headers = [headers, &[("content-length", &*length)]].concat();
        server.ask_text(&self.signer.v2(method, target, &headers).head(), body.as_bytes())
    }
}

fn refusal(response: &HttpResponse) -> (u16, &str) {
    (response.status, response.element("Code").unwrap_or_default())
}

/// Sets the ownership controls of the bucket `box`; the code of a refusal.
fn set(server: &S3TestServer, ownership: &str) -> (u16, String) {
    let document =
        format!("<OwnershipControls><Rule><ObjectOwnership>{ownership}</ObjectOwnership></Rule></OwnershipControls>");
    let response = server.ask("PUT", "/box?ownershipControls", NOTHING, document.as_bytes());
    (response.status, response.element("Code").unwrap_or_default().to_owned())
}

/// A bucket of the administrator that its policy lets everybody write into, with all that is needed for it.
fn with_bucket() -> S3TestServer {
    let server = S3TestServer::start();
    assert_eq!(server.ask("PUT", "/box", NOTHING, b"").status, 200);
    let policy = r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":["s3:PutObject","s3:PutObjectAcl"],
        "Resource":"arn:aws:s3:::box/*"}}"#;
    assert_eq!(server.ask("PUT", "/box?policy", NOTHING, policy.as_bytes()).status, 204);
    server
}

fn owner(server: &S3TestServer, key: &str) -> String {
    let listed = server.ask("GET", &format!("/box?list-type=2&fetch-owner=true&prefix={key}"), NOTHING, b"");
    let owner = listed.element("Owner").unwrap().to_owned();
    owner.split_once("<ID>").unwrap().1.split('<').next().unwrap().to_owned()
}

#[test]
fn the_setting_chooses_the_owner_of_an_object_of_another_user() {
    let server = with_bucket();
    let eve = Writer::new(&server);
    let put = |key: &str, headers| eve.ask(&server, "PUT", &format!("/box/{key}"), headers, "x").status;
    let get = |key: &str| eve.ask(&server, "GET", &format!("/box/{key}"), NOTHING, "").status;
    assert_eq!([put("none", &[CONTROL]), get("none")], [200, 200]);
    assert_eq!(owner(&server, "none"), eve.id, "without controls as with ObjectWriter");
    for (ownership, plain_is_hers, given_is_hers) in
        [("ObjectWriter", true, true), ("BucketOwnerPreferred", true, false), ("BucketOwnerEnforced", false, false)]
    {
        assert_eq!(set(&server, ownership), (200, String::new()));
        for (key, headers, hers) in [("plain", NOTHING, plain_is_hers), ("given", &[CONTROL][..], given_is_hers)] {
            let key = format!("{key}-{ownership}");
            assert_eq!(put(&key, headers), 200, "{key}");
            assert_eq!((owner(&server, &key) == eve.id, get(&key) == 200), (hers, hers), "{key}");
            let upload = eve.ask(&server, "POST", &format!("/box/{key}-parts?uploads"), headers, "");
            let upload = upload.element("UploadId").unwrap().to_owned();
            let parts = server.ask("GET", &format!("/box/{key}-parts?uploadId={upload}"), NOTHING, b"");
            let owner = format!("<Owner><ID>{}</ID>", eve.id);
            assert_eq!(parts.text().contains(&owner), hers, "{}", parts.text());
            assert!(parts.text().contains(&format!("<Initiator><ID>{}</ID>", eve.id)));
            assert_eq!(server.ask("GET", "/box?uploads", NOTHING, b"").text().contains(&owner), hers);
            let abort = format!("/box/{key}-parts?uploadId={upload}");
            assert_eq!(eve.ask(&server, "DELETE", &abort, NOTHING, "").status, 204);
        }
    }
    assert_eq!((get("none"), owner(&server, "none") == eve.id), (403, false), "also what was put before");
    let versions = server.ask("GET", "/box?versions&prefix=none", NOTHING, b"").text();
    assert!(!versions.contains(&eve.id), "{versions}");
    assert_eq!(server.ask("GET", "/box/none", NOTHING, b"").status, 200);
    assert_eq!(server.ask("DELETE", "/box?ownershipControls", NOTHING, b"").status, 204);
    assert_eq!((get("none"), owner(&server, "none") == eve.id), (200, true), "the old owner counts again");
    assert_eq!(get("plain-BucketOwnerEnforced"), 403, "put for the owner of the bucket");
    server.stop();
}

#[test]
fn a_bucket_without_acls_takes_none_and_shows_only_its_owner() {
    let server = with_bucket();
    let eve = Writer::new(&server);
    let public = eve.ask(&server, "PUT", "/box/old", &[PUBLIC], "x");
    assert_eq!(public.status, 200);
    let anonymous =
        |key: &str| server.ask_text(&format!("GET /box/{key} HTTP/1.1\r\nHost: localhost\r\n\r\n"), b"").status;
    assert_eq!(anonymous("old"), 200);
    assert_eq!(server.ask("PUT", "/box?acl", &[PUBLIC], b"").status, 200);
    assert_eq!(set(&server, "BucketOwnerEnforced"), (400, "InvalidBucketAclWithObjectOwnership".into()));
    assert_eq!(server.ask("PUT", "/box?acl", &[("x-amz-acl", "private")], b"").status, 200);
    assert_eq!(set(&server, "BucketOwnerEnforced").0, 200);
    assert_eq!(anonymous("old"), 403);
    for target in ["/box?acl", "/box/old?acl"] {
        let shown = server.ask("GET", target, NOTHING, b"").text();
        assert_eq!((shown.matches("<Grant>").count(), shown.contains(&eve.id)), (1, false), "{shown}");
        for acl in [PUBLIC, CONTROL, ("x-amz-acl", "private")] {
            let refused = server.ask("PUT", target, &[acl], b"");
            assert_eq!(refusal(&refused), (400, "AccessControlListNotSupported"), "{target} {acl:?}");
            assert_eq!(refused.element("Message"), Some("The bucket does not allow ACLs"));
        }
    }
    let to_owner = format!("id={}", server.ask("GET", "/box?acl", NOTHING, b"").element("ID").unwrap());
    for (headers, status) in [
        (NOTHING, 200),
        (&[CONTROL], 200),
        (&[("x-amz-grant-full-control", &*to_owner)], 200),
        (&[("x-amz-grant-read", &*to_owner)], 400),
        (&[("x-amz-acl", "private")], 400),
        (&[PUBLIC], 400),
    ] {
        let from = ("x-amz-copy-source", "/box/old");
        for (method, target, headers) in [
            ("PUT", "/box/new", headers.to_vec()),
            ("PUT", "/box/copy", [headers, &[from]].concat()),
            ("POST", "/box/parts?uploads", headers.to_vec()),
        ] {
            let answer = server.ask(method, target, &headers, b"");
            assert_eq!(answer.status, status, "{method} {target} {headers:?} {answer:?}");
            assert!(status == 200 || refusal(&answer).1 == "AccessControlListNotSupported", "{answer:?}");
        }
    }
    let bad_canned = server.ask("PUT", "/box/new", &[("x-amz-acl", "nothing")], b"");
    assert_eq!(refusal(&bad_canned), (400, "InvalidArgument"));
    let stranger = eve.ask(&server, "PUT", "/box?acl", &[PUBLIC], "");
    assert_eq!(refusal(&stranger), (403, "AccessDenied"), "permission is checked first");
    assert_eq!(set(&server, "ObjectWriter").0, 200);
    assert_eq!(anonymous("old"), 200, "old grants count again");
    server.stop();
}

#[test]
fn a_new_bucket_has_the_ownership_and_the_tags_of_its_request() {
    let server = S3TestServer::start();
    let tags = "<CreateBucketConfiguration><Tags><Tag><Key>team</Key><Value>red</Value></Tag></Tags>\
        </CreateBucketConfiguration>";
    let made = server.ask("PUT", "/box", &[(OWNERSHIP, "BucketOwnerEnforced")], tags.as_bytes());
    assert_eq!((made.status, made.header("x-amz-bucket-arn")), (200, Some("arn:aws:s3:::box")), "{made:?}");
    let shown = server.ask("GET", "/box?ownershipControls", NOTHING, b"");
    assert_eq!(shown.element("ObjectOwnership"), Some("BucketOwnerEnforced"));
    let tagging = || server.ask("GET", "/box?tagging", NOTHING, b"").element("Value").map(str::to_owned);
    assert_eq!(tagging().as_deref(), Some("red"));
    for (headers, body, answer) in [
        (NOTHING, "", (200, "")),
        (NOTHING, "<CreateBucketConfiguration><Tags/></CreateBucketConfiguration>", (200, "")),
        (&[(OWNERSHIP, "BucketOwnerEnforced")], "", (200, "")),
        (&[(OWNERSHIP, "ObjectWriter")], "", (409, "BucketAlreadyOwnedByYou")),
        (NOTHING, tags, (409, "BucketAlreadyOwnedByYou")),
        (&[PUBLIC], "", (400, "InvalidBucketAclWithObjectOwnership")),
    ] {
        let again = server.ask("PUT", "/box", headers, body.as_bytes());
        assert_eq!(refusal(&again), answer, "{headers:?} {body}");
    }
    assert_eq!(tagging().as_deref(), Some("red"), "a second creation changes nothing");
    for (headers, code) in [
        (&[(OWNERSHIP, "BucketOwnerEnforced"), PUBLIC][..], "InvalidBucketAclWithObjectOwnership"),
        (&[(OWNERSHIP, "Mine")], "InvalidArgument"),
    ] {
        assert_eq!(refusal(&server.ask("PUT", "/none", headers, b"")), (400, code));
    }
    let bad = tags.replace("team", "a!");
    assert_eq!(refusal(&server.ask("PUT", "/none", NOTHING, bad.as_bytes())), (400, "InvalidTag"));
    assert_eq!(server.ask("HEAD", "/none", NOTHING, b"").status, 404, "a refused creation leaves no bucket");
    let private = [(OWNERSHIP, "BucketOwnerEnforced"), ("x-amz-acl", "private")];
    assert_eq!(server.ask("PUT", "/private", &private, b"").status, 200);
    server.stop();
}

#[test]
fn the_switches_of_a_public_access_block_refuse_and_ignore_what_is_public() {
    let server = S3TestServer::start();
    let eve = Writer::new(&server);
    assert_eq!(server.ask("PUT", "/box", &[PUBLIC], b"").status, 200);
    assert_eq!(server.ask("PUT", "/box/k", &[PUBLIC], b"x").status, 200);
    let policy = |principal: &str| {
        format!(
            r#"{{"Statement":{{"Effect":"Allow","Principal":{principal},"Action":"s3:GetObject","Resource":"arn:aws:s3:::box/*"}}}}"#
        )
    };
    let put_policy = |text: &str| server.ask("PUT", "/box?policy", NOTHING, text.as_bytes()).status;
    let block = |switch: &str| {
        let document =
            format!("<PublicAccessBlockConfiguration><{switch}>true</{switch}></PublicAccessBlockConfiguration>");
        assert_eq!(server.ask("PUT", "/box?publicAccessBlock", NOTHING, document.as_bytes()).status, 200);
    };
    let reads = || {
        let anonymous = server.ask_text("GET /box/k HTTP/1.1\r\nHost: localhost\r\n\r\n", b"").status;
        let owner = server.ask("GET", "/box/k", NOTHING, b"").status;
        [anonymous, eve.ask(&server, "GET", "/box/k", NOTHING, "").status, owner]
    };
    assert_eq!(reads(), [200; 3]);
    block("BlockPublicAcls");
    for (target, acl, status) in [
        ("/box?acl", "public-read", 403),
        ("/box?acl", "authenticated-read", 403),
        ("/box/k?acl", "public-read", 403),
        ("/box/new", "public-read-write", 403),
        ("/box", "public-read-write", 403),
        ("/box/new", "private", 200),
        ("/box/new?acl", "bucket-owner-read", 200),
    ] {
        let answer = server.ask("PUT", target, &[("x-amz-acl", acl)], b"");
        assert_eq!(answer.status, status, "{target} {acl} {answer:?}");
    }
    assert_eq!(reads(), [200; 3], "grants that are there stay in effect");
    block("IgnorePublicAcls");
    assert_eq!(reads(), [403, 403, 200]);
    block("BlockPublicPolicy");
    assert_eq!([put_policy(&policy("\"*\"")), put_policy(&policy(r#"{"AWS":"nobody"}"#))], [403, 204]);
    assert_eq!(server.ask("DELETE", "/box?publicAccessBlock", NOTHING, b"").status, 204);
    assert_eq!(server.ask("PUT", "/box/k?acl", &[("x-amz-acl", "private")], b"").status, 200);
    assert_eq!((put_policy(&policy("\"*\"")), reads()), (204, [200; 3]));
    block("RestrictPublicBuckets");
    assert_eq!(reads(), [403, 403, 200]);
    assert_eq!(put_policy(&policy(r#"{"AWS":"eve@x.org"}"#)), 204);
    server.stop();
}
