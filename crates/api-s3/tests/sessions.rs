//! Sessions: AssumeRole of STS, and S3 with temporary credentials in each form of a signature.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_api_s3::S3Settings;
use larder_core::Config;
use larder_s3::users::{AttachmentChange, NewUser, PolicyHolder, SessionCredentials, UserChange};
use larder_store::SystemClock;
use larder_store::memory::MemoryStore;
use larder_testkit::http::HttpResponse;
use larder_testkit::s3::S3Signer;
use larder_testkit::unique_bytes;

use crate::support::{KEY, S3TestServer, admin};

const NOTHING: &[(&str, &str)] = &[];
const TOKEN: &str = "x-amz-security-token";
const BEGIN: &str = "Action=AssumeRole&Version=2011-06-15&RoleArn=arn:xxx:xxx:xxx:xxxx&RoleSessionName=session";
/// Reads and listings of `open/` alone, in the bucket box.
const NARROW: &str = r#"{"Version":"2012-10-17","Statement":[
    {"Effect":"Allow","Action":["s3:GetObject","s3:DeleteObject","s3:PutObject"],"Resource":"arn:aws:s3:::box/open/*"},
    {"Effect":"Allow","Action":"s3:ListBucket","Resource":"arn:aws:s3:::box","Condition":{"StringLike":{"s3:prefix":"open/*"}}}]}"#;

/// A server with the user eve, who owns the bucket box with two keys.
struct SessionSetup {
    server: S3TestServer,
    runtime: tokio::runtime::Runtime,
}

/// The credentials of a session.
struct SessionSigner {
    signer: S3Signer,
    token: String,
}

impl SessionSigner {
    fn from(session: &SessionCredentials) -> Self {
        Self { signer: S3Signer::new(&session.key.key_id, &session.key.secret), token: session.token.clone() }
    }

    fn headers(&self) -> [(&str, &str); 1] {
        [(TOKEN, &self.token)]
    }
}

fn eve() -> S3Signer {
    S3Signer::new("EVE", "eve-secret")
}

impl SessionSetup {
    fn new() -> Self {
        let clock = Arc::new(SystemClock::default());
        let memory = Arc::new(MemoryStore::new(clock.clone()));
        // Two sessions have two keys.
        let (random, config, settings) = (unique_bytes, Config::default(), S3Settings::default());
        let server = S3TestServer::start_over(memory.clone(), memory, clock, random, config, settings);
        let setup = Self { server, runtime: tokio::runtime::Runtime::new().unwrap() };
        let key = Some(("EVE".to_owned(), "eve-secret".to_owned()));
        let new = NewUser { email: "eve@x.org".into(), name: "eve".into(), key, ..NewUser::default() };
        setup.runtime.block_on(setup.server.users.create_user(new)).unwrap();
        for (target, body) in [("/box", ""), ("/box/open/k", "hello"), ("/box/shut/k", "hello")] {
            assert_eq!(setup.ask(&eve(), "PUT", target, NOTHING, body).status, 200, "{target}");
        }
        setup
    }

    /// A session of the user of this key, narrowed by a policy.
    fn session(&self, key_id: &str, seconds: u64, policy: Option<&str>) -> SessionSigner {
        let users = &self.server.users;
        let made = async {
            let maker = users.key_holder(key_id).await?;
            users.create_session(&maker, seconds, policy.map(str::to_owned)).await
        };
        SessionSigner::from(&self.runtime.block_on(made).unwrap())
    }

    fn ask(&self, signer: &S3Signer, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> HttpResponse {
        let head = signer.v2(method, target, headers).header("Content-Length", &body.len().to_string()).head();
        self.server.ask_text(&head, body.as_bytes())
    }

    fn sts(&self, signer: &S3Signer, form: &str, headers: &[(&str, &str)]) -> HttpResponse {
        self.server.ask_text(&signer.sts("/", form, headers).head(), form.as_bytes())
    }

    /// A signed request of version 4 without a body, in a session.
    fn v4(&self, session: &SessionSigner, method: &str, path: &str) -> HttpResponse {
        let request = session.signer.v4(method, path, "UNSIGNED-PAYLOAD", &session.headers());
        self.server.ask_text(&request.header("Content-Length", "0").head(), b"")
    }

    fn link(&self, method: &str, target: &str) -> HttpResponse {
        self.server
            .ask_text(&format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"), b"")
    }
}

#[track_caller]
fn check_code(answer: &HttpResponse, status: u16, code: &str) {
    assert_eq!((answer.status, answer.element("Code")), (status, Some(code)), "{answer:?}");
}

#[test]
fn assumed_credentials_serve_in_each_form_of_a_signature() {
    let setup = SessionSetup::new();
    let form = format!("{BEGIN}&DurationSeconds=900");
    let answer = setup.sts(&eve(), &form, NOTHING);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.text().contains("<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"));
    let part = |name: &str| answer.element(name).unwrap().to_owned();
    let session = SessionSigner {
        signer: S3Signer::new(&part("AccessKeyId"), &part("SecretAccessKey")),
        token: part("SessionToken"),
    };
    assert!(part("Expiration").ends_with('Z') && part("Arn").ends_with("/session") && !part("RequestId").is_empty());
    assert_eq!(setup.v4(&session, "GET", "/box/open/k").text(), "hello");
    assert_eq!(setup.ask(&session.signer, "GET", "/box/open/k", &session.headers(), "").text(), "hello");
    let token = [("X-Amz-Security-Token", session.token.as_str())];
    assert_eq!(setup.link("GET", &session.signer.v4_link("GET", "/box/open/k", &token)).text(), "hello");
    assert_eq!(setup.link("GET", &session.signer.v2_link("GET", "/box/open/k", &session.headers())).text(), "hello");
    let posted = setup.server.ask_text(&form_head(), &form_body(&session, Some(&session.token), &session.token));
    assert_eq!(posted.status, 204, "{posted:?}");
    assert_eq!(setup.v4(&session, "GET", "/box/open/form").text(), "of a form");
    setup.server.stop();
}

const BOUNDARY: &str = "BOUNDARY";

fn form_head() -> String {
    format!(
        "POST /box HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary={BOUNDARY}\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    )
}

/// A form in one chunk, signed with version 2, whose policy names one token and whose field has another, or none.
fn form_body(session: &SessionSigner, token: Option<&str>, named: &str) -> Vec<u8> {
    let policy = format!(
        r#"{{"expiration":"2200-01-01T00:00:00Z","conditions":[{{"bucket":"box"}},{{"key":"open/form"}},{{"x-amz-security-token":"{named}"}}]}}"#
    );
    let policy = STANDARD.encode(policy);
    let signature = session.signer.sign_text(&policy);
    let mut form = String::new();
    let key_id = session.signer.v2("GET", "/", NOTHING).head();
    let key_id = key_id.split_once("Authorization: AWS ").unwrap().1.split_once(':').unwrap().0;
    for (name, value) in
        [("key", "open/form"), ("AWSAccessKeyId", key_id), ("policy", &policy), ("signature", &signature)]
            .into_iter()
            .chain(token.map(|token| (TOKEN, token)))
    {
        form += &format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    }
    form += &format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nof a form\r\n--{BOUNDARY}--\r\n"
    );
    format!("{:x}\r\n{form}\r\n0\r\n\r\n", form.len()).into_bytes()
}

#[test]
fn parameters_of_the_query_are_signed_as_those_of_the_body_are() {
    let setup = SessionSetup::new();
    // In the order of the canonical query.
    let target = "/?Action=AssumeRole&DurationSeconds=900&Version=2011-06-15";
    let head = eve().sts(target, "", NOTHING).head();
    let answer = setup.server.ask_text(&head, b"");
    assert_eq!(answer.status, 200, "{answer:?}");
    let longer = head.replacen("DurationSeconds=900", "DurationSeconds=901", 1);
    check_code(&setup.server.ask_text(&longer, b""), 403, "SignatureDoesNotMatch");
    setup.server.stop();
}

#[test]
fn a_request_to_sts_that_its_caller_did_not_sign_is_refused_in_the_form_of_sts() {
    let setup = SessionSetup::new();
    let signed = eve().sts("/", BEGIN, NOTHING);
    let other = BEGIN.replace("session", "sessiom");
    let answer = setup.server.ask_text(&signed.head(), other.as_bytes());
    // The header that the signer sent says what it signed.
    assert!(answer.status >= 400 && answer.text().contains("<ErrorResponse xmlns="), "{answer:?}");
    let unsigned_body = eve().v4_for("sts", "POST", "/", "UNSIGNED-PAYLOAD", NOTHING);
    let head = unsigned_body.header("Content-Length", &BEGIN.len().to_string()).head();
    check_code(&setup.server.ask_text(&head, BEGIN.as_bytes()), 403, "SignatureDoesNotMatch");
    let of_s3 = eve().v4_for("s3", "POST", "/", "UNSIGNED-PAYLOAD", NOTHING).header("Content-Length", "0").head();
    check_code(&setup.server.ask_text(&of_s3, b""), 400, "IncompleteSignature");
    check_code(&setup.ask(&eve(), "POST", "/", NOTHING, BEGIN), 400, "ValidationError");
    let unsigned = format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", BEGIN.len());
    check_code(&setup.server.ask_text(&unsigned, BEGIN.as_bytes()), 403, "MissingAuthenticationToken");
    check_code(&setup.sts(&S3Signer::new("NOBODY", "x"), BEGIN, NOTHING), 403, "InvalidClientTokenId");
    check_code(&setup.sts(&S3Signer::new("EVE", "x"), BEGIN, NOTHING), 403, "SignatureDoesNotMatch");
    check_code(&setup.sts(&eve(), &format!("{BEGIN}&PolicyArns.member.1.arn=x"), NOTHING), 501, "NotImplemented");
    check_code(&setup.sts(&eve(), &format!("{BEGIN}&Policy=%7B%7D"), NOTHING), 400, "MalformedPolicyDocument");
    check_code(
        &setup.sts(&eve(), &format!("{BEGIN}&ExternalId={}", "a".repeat(17_000)), NOTHING),
        400,
        "ValidationError",
    );
    // Nor does a signature for STS hold for S3.
    let of_sts = eve().v4_for("sts", "GET", "/box", "UNSIGNED-PAYLOAD", NOTHING).head();
    check_code(&setup.server.ask_text(&of_sts, b""), 400, "AuthorizationHeaderMalformed");
    setup.server.stop();
}

#[test]
fn credentials_without_their_token_or_with_another_are_refused() {
    let setup = SessionSetup::new();
    let (session, other) = (setup.session("EVE", 900, None), setup.session("EVE", 900, None));
    let ask = |signer: &S3Signer, headers: &[(&str, &str)]| setup.ask(signer, "GET", "/box/open/k", headers, "");
    check_code(&ask(&session.signer, NOTHING), 403, "InvalidAccessKeyId");
    for token in [other.token.as_str(), "nonsense", ""] {
        check_code(&ask(&session.signer, &[(TOKEN, token)]), 400, "InvalidToken");
    }
    check_code(&ask(&session.signer, &[(TOKEN, &session.token), (TOKEN, &other.token)]), 400, "InvalidToken");
    check_code(&ask(&eve(), &session.headers()), 400, "InvalidToken");
    let link = session.signer.v4_link("GET", "/box/open/k", NOTHING);
    check_code(&setup.link("GET", &link), 403, "InvalidAccessKeyId");
    check_code(
        &setup.link("GET", &format!("{link}&X-Amz-Security-Token={}", session.token)),
        403,
        "SignatureDoesNotMatch",
    );
    for (token, named) in
        [(None, &session.token), (Some(&other.token), &session.token), (Some(&session.token), &other.token)]
    {
        let body = form_body(&session, token.map(String::as_str), named);
        let posted = setup.server.ask_text(&form_head(), &body);
        assert!(posted.status == 400 || posted.status == 403, "{posted:?}");
    }
    check_code(&setup.sts(&session.signer, BEGIN, &[(TOKEN, &other.token)]), 403, "InvalidClientTokenId");
    let expiring = setup.session("EVE", 1, None);
    assert_eq!(setup.v4(&expiring, "GET", "/box/open/k").status, 200);
    std::thread::sleep(Duration::from_millis(1_100));
    check_code(&setup.v4(&expiring, "GET", "/box/open/k"), 400, "ExpiredToken");
    check_code(&setup.sts(&expiring.signer, BEGIN, &expiring.headers()), 403, "ExpiredToken");
    setup.server.stop();
}

#[test]
fn the_policy_of_a_session_bounds_each_key_of_a_request() {
    let setup = SessionSetup::new();
    let session = setup.session("EVE", 900, Some(NARROW));
    let ask = |method: &str, target: &str, headers: &[(&str, &str)], body: &str| {
        setup.ask(&session.signer, method, target, &[&session.headers()[..], headers].concat(), body)
    };
    for (method, target, status) in [
        ("GET", "/box/open/k", 200),
        ("GET", "/box/shut/k", 403),
        ("GET", "/box/open/none", 404),
        ("GET", "/box/shut/none", 403),
        ("GET", "/box?prefix=open/", 200),
        ("GET", "/box?prefix=shut/", 403),
        ("GET", "/box", 403),
        ("PUT", "/box/open/new", 200),
        ("PUT", "/box/shut/new", 403),
        ("PUT", "/other", 403),
        ("GET", "/", 403),
        ("GET", "/box?policy", 403),
        ("POST", "/box/shut/k?uploads", 403),
    ] {
        assert_eq!(ask(method, target, NOTHING, "").status, status, "{method} {target}");
    }
    let copy = |from: &str, to: &str| ask("PUT", to, &[("x-amz-copy-source", from)], "").status;
    assert_eq!((copy("/box/shut/k", "/box/open/copy"), copy("/box/open/k", "/box/shut/copy")), (403, 403));
    let deleted = "<Delete><Object><Key>shut/k</Key></Object><Object><Key>open/new</Key></Object></Delete>";
    let md5 = STANDARD.encode(<md5::Md5 as sha1::Digest>::digest(deleted));
    let answer = ask("POST", "/box?delete", &[("content-md5", &md5)], deleted);
    assert_eq!(answer.element("Deleted"), Some("<Key>open/new</Key>"), "{answer:?}");
    assert_eq!(answer.element("Code"), Some("AccessDenied"), "{answer:?}");
    // The session of an administrator is bound as well, and administers nothing.
    let session = setup.session(KEY, 900, Some(NARROW));
    assert_eq!(setup.v4(&session, "GET", "/box/open/k").status, 200);
    check_code(&setup.v4(&session, "GET", "/box/shut/k"), 403, "AccessDenied");
    let wide = setup.session(KEY, 900, None);
    assert_eq!(setup.v4(&wide, "GET", "/box/shut/k").status, 200);
    for path in ["/riak-cs/user", "/riak-cs/users", "/riak-cs/stats", "/riak-cs/user/EVE"] {
        check_code(&setup.v4(&wide, "GET", path), 403, "AccessDenied");
    }
    setup.server.stop();
}

#[test]
fn sessions_end_with_their_user_and_make_no_others() {
    let setup = SessionSetup::new();
    let session = setup.session("EVE", 900, None);
    check_code(&setup.sts(&session.signer, BEGIN, &session.headers()), 403, "AccessDenied");
    let users = &setup.server.users;
    let run = |change: UserChange| setup.runtime.block_on(users.update("EVE", change)).unwrap();
    run(UserChange { enabled: Some(false), ..UserChange::default() });
    check_code(&setup.v4(&session, "GET", "/box/open/k"), 403, "AccessDenied");
    check_code(&setup.sts(&eve(), BEGIN, NOTHING), 403, "AccessDenied");
    run(UserChange { enabled: Some(true), ..UserChange::default() });
    assert_eq!(setup.v4(&session, "GET", "/box/open/k").status, 200);
    let denial = r#"{"Statement":[{"Effect":"Deny","Action":"sts:AssumeRole","Resource":"*"},
        {"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}]}"#;
    setup.runtime.block_on(users.put_policy("no-sessions", denial)).unwrap();
    let attach = users.change_policies(PolicyHolder::User("EVE"), &["no-sessions"], AttachmentChange::Attach);
    setup.runtime.block_on(attach).unwrap();
    check_code(&setup.sts(&eve(), BEGIN, NOTHING), 403, "AccessDenied");
    // A session has the rights that its user has now.
    assert_eq!(setup.v4(&session, "GET", "/box/open/k").status, 200);
    assert_eq!(setup.v4(&session, "PUT", "/box/open/k").status, 403);
    run(UserChange { new_secret: true, ..UserChange::default() });
    check_code(&setup.v4(&session, "GET", "/box/open/k"), 400, "InvalidToken");
    assert_eq!(setup.ask(&admin(), "GET", "/box/open/k", NOTHING, "").status, 200);
    setup.server.stop();
}
