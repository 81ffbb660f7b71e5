//! Further keys of users: their limits, their end, and what stays the first key's.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use larder_s3::users::{NewKey, NewUser, Users};
use larder_s3::{Objects, ObjectsConfig};
use larder_s3_rules::KeyLimits;
use larder_testkit::http::HttpResponse;
use larder_testkit::s3::S3Signer;

use crate::support::{KEY, S3TestServer};

const NOTHING: &[(&str, &str)] = &[];
/// How long another gateway may serve a user as it was.
const CACHED: Duration = Duration::from_millis(2_100);

/// A server with a user eve, who has a bucket with two keys; and the users, through another gateway over the same store.
struct Setup {
    server: S3TestServer,
    runtime: tokio::runtime::Runtime,
    users: Arc<Users>,
}

impl Setup {
    fn new() -> Self {
        let server = S3TestServer::start();
        let users =
            Arc::clone(&Objects::new(Arc::clone(server.gateway.shared()), Vec::new(), ObjectsConfig::default()).users);
        let setup = Self { server, runtime: tokio::runtime::Runtime::new().unwrap(), users };
        let key = Some(("EVE".to_owned(), "eve-secret".to_owned()));
        let new = NewUser { email: "eve@x.org".into(), name: "eve".into(), key, ..NewUser::default() };
        setup.runtime.block_on(setup.users.create_user(new)).unwrap();
        let eve = S3Signer::new("EVE", "eve-secret");
        for target in ["/eve", "/eve/a/k", "/eve/b/k"] {
            assert_eq!(setup.ask(&eve, "PUT", target).status, 200, "{target}");
        }
        setup
    }

    /// Adds a key to the user of `first`, with the secret `secret`.
    fn add(&self, first: &str, id: &str, limits: KeyLimits) -> S3Signer {
        let new = NewKey { id: Some(id.into()), secret: Some("secret".into()), limits };
        self.runtime.block_on(self.users.add_key(first, new)).unwrap();
        S3Signer::new(id, "secret")
    }

    fn ask(&self, signer: &S3Signer, method: &str, target: &str) -> HttpResponse {
        self.server.ask_text(&signer.v2(method, target, NOTHING).header("Content-Length", "0").head(), b"")
    }

    #[track_caller]
    fn check(&self, signer: &S3Signer, expected: &[(&str, &str, u16)]) {
        for (method, target, status) in expected {
            let answer = self.ask(signer, method, target);
            assert_eq!(answer.status, *status, "{method} {target} {answer:?}");
        }
    }
}

fn in_bucket(limits: KeyLimits) -> KeyLimits {
    KeyLimits { buckets: vec!["eve".into()], ..limits }
}

#[test]
fn a_key_does_what_its_limits_leave_of_its_users_rights() {
    let setup = Setup::new();
    let reader = setup.add(
        "EVE",
        "READER",
        in_bucket(KeyLimits { read_only: true, prefixes: vec!["a/".into()], ..Default::default() }),
    );
    setup.check(
        &reader,
        &[
            ("GET", "/eve/a/k", 200),
            ("HEAD", "/eve/a/k", 200),
            ("GET", "/eve/b/k", 403),
            ("GET", "/eve/a/none", 404),
            ("GET", "/eve/b/none", 403),
            ("GET", "/eve/b/none?prefix=a/", 403),
            ("PUT", "/eve/a/k", 403),
            ("DELETE", "/eve/a/k", 403),
            ("POST", "/eve/a/k?uploads", 403),
            ("GET", "/eve?prefix=a/", 200),
            ("GET", "/eve", 403),
            ("GET", "/eve?policy", 403),
            ("PUT", "/other", 403),
            // The first key's secret stands in the document of the user.
            ("GET", "/riak-cs/user", 403),
            ("GET", "/riak-cs/user/EVE", 403),
        ],
    );
    let writer = setup.add("EVE", "WRITER", KeyLimits { buckets: vec!["new-bucket".into()], ..Default::default() });
    setup.check(&writer, &[("GET", "/eve/a/k", 403), ("PUT", "/other", 403), ("PUT", "/new-bucket", 200)]);
    setup.check(&writer, &[("PUT", "/new-bucket/k", 200), ("DELETE", "/new-bucket/k", 204)]);
    let listed = setup.ask(&writer, "GET", "/").text();
    assert!(listed.contains("<Name>new-bucket</Name>") && !listed.contains("<Name>eve</Name>"), "{listed}");
    let whole = setup.add("EVE", "WHOLE", KeyLimits::default());
    setup.check(&whole, &[("GET", "/eve/b/k", 200), ("PUT", "/eve/b/k", 200), ("GET", "/riak-cs/user", 403)]);
    setup.server.stop();
}

#[test]
fn limits_hold_for_a_key_of_an_administrator_but_not_for_its_first_one() {
    let setup = Setup::new();
    let limited = setup.add(KEY, "LIMITED", in_bucket(KeyLimits { read_only: true, ..Default::default() }));
    assert_eq!(setup.server.ask("PUT", "/box", NOTHING, b"").status, 200);
    setup.check(
        &limited,
        &[
            ("GET", "/eve/b/k", 200),
            ("PUT", "/eve/b/k", 403),
            ("GET", "/box", 403),
            ("DELETE", "/box", 403),
            ("GET", "/riak-cs/users", 403),
            ("PUT", "/riak-cs/user/EVE", 403),
        ],
    );
    assert!(setup.runtime.block_on(setup.users.revoke_key(KEY)).is_err(), "the first key has no end");
    assert_eq!(setup.server.ask("GET", "/riak-cs/users", NOTHING, b"").status, 200);
    setup.server.stop();
}

#[test]
fn a_revoked_or_expired_key_and_its_presigned_addresses_end() {
    let setup = Setup::new();
    let key = setup.add("EVE", "SHORT", KeyLimits::default());
    let soon = setup.server.gateway.context().now() + 1_500_000;
    let expiring = setup.add("EVE", "SOON", KeyLimits { expires: Some(soon), ..Default::default() });
    let presigned = |signer: &S3Signer, id: &str| {
        let signature = signer.sign_text("GET\n\n\n4000000000\n/eve/a/k").replace('+', "%2B");
        let target = format!("/eve/a/k?AWSAccessKeyId={id}&Expires=4000000000&Signature={signature}");
        setup.server.ask_text(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"), b"")
    };
    setup.check(&key, &[("GET", "/eve/a/k", 200)]);
    setup.check(&expiring, &[("GET", "/eve/a/k", 200)]);
    assert_eq!((presigned(&key, "SHORT").status, presigned(&expiring, "SOON").status), (200, 200));
    setup.runtime.block_on(setup.users.revoke_key("SHORT")).unwrap();
    std::thread::sleep(CACHED);
    for answer in [setup.ask(&key, "GET", "/eve/a/k"), presigned(&key, "SHORT")] {
        assert_eq!((answer.status, answer.element("Code")), (403, Some("InvalidAccessKeyId")), "{answer:?}");
    }
    for answer in [setup.ask(&expiring, "GET", "/eve/a/k"), presigned(&expiring, "SOON")] {
        assert_eq!((answer.status, answer.element("Message")), (403, Some("The access key has expired")), "{answer:?}");
    }
    let eve = S3Signer::new("EVE", "eve-secret");
    setup.check(&eve, &[("GET", "/eve/a/k", 200)]);
    setup.server.stop();
}
