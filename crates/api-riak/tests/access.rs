//! Security over HTTP, on every route of the table: without TLS, without a user, with one that has no permission, and with one that
//! has.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]
#![allow(clippy::disallowed_methods, reason = "a failed log-in takes real time")]

use std::time::{Duration, Instant};

use hyper::Method;
use larder_api_riak::http::HttpSettings;
use larder_api_riak::http::routes::{PathPart, ROUTES, Resource, Route, RouteAccess};
use larder_core::Config;
use larder_core::rules::security::{GrantChange, GrantTarget, KvPermission, RoleKind, RoleOptions};
use larder_kv::Gateway;
use larder_net::{ConnectionSettings, TrustedProxies};
use larder_rows::ip_network::IpNetwork;
use larder_testkit::http::{HttpClient, HttpRequest, HttpResponse};

use crate::support::RiakServer;

/// The address of the client, as its proxy names it.
const CLIENT: &str = "203.0.113.9";
/// `u:x`, a user whose address is enough.
const TRUSTED: &str = "Basic dTp4";

/// A server behind a proxy, with a type `t`, security on and the user `u`.
fn server() -> RiakServer {
    let proxies = TrustedProxies::new(&[IpNetwork::parse("127.0.0.1").unwrap()]);
    let settings = HttpSettings::from(ConnectionSettings { proxies, ..ConnectionSettings::default() });
    let server = RiakServer::start_with(Config::default(), settings);
    server.make_type("t", "{}", true);
    let setup = async |gateway: &Gateway| {
        let security = gateway.security();
        security.add_role(RoleKind::User, "u", RoleOptions::default()).await.unwrap();
        security.add_source("u", "203.0.113.0/24", "trust", &[]).await.unwrap();
        security.set_enabled(true).await.unwrap();
    };
    server.background.run(setup(server.gateway()));
    server
}

fn change(server: &RiakServer, change: GrantChange, permission: KvPermission, target: &GrantTarget) {
    let changed = server.gateway().security().change_grants(change, permission.name(), target, "u");
    server.background.run(changed).unwrap();
}

/// A path of the route: bucket `b` of type `t` where it has a type.
fn path(route: &Route) -> String {
    let part = |part: &PathPart| match part {
        PathPart::Word(word) => format!("/{word}"),
        PathPart::Type => "/t".into(),
        PathPart::Bucket => "/b".into(),
        PathPart::Key => "/k".into(),
        PathPart::Any => "/f_bin".into(),
        PathPart::Rest => "/_,_,_".into(),
    };
    if route.parts.is_empty() { "/".into() } else { route.parts.iter().map(part).collect() }
}

fn request(method: &Method, path: &str, login: Option<&str>, is_secure: bool) -> HttpRequest {
    let mut request = HttpRequest::new(method.as_str(), path).header("X-Forwarded-For", CLIENT);
    if is_secure {
        request = request.header("X-Forwarded-Proto", "https");
    }
    if let Some(login) = login {
        request = request.header("Authorization", login);
    }
    match *method {
        Method::PUT | Method::POST => request.header("Content-Type", "application/json").body("{}"),
        _ => request,
    }
}

fn send(client: &mut HttpClient, method: &Method, path: &str, login: Option<&str>, is_secure: bool) -> HttpResponse {
    client.send(&request(method, path, login, is_secure))
}

/// The text of a refusal for a permission on the scope of the route.
fn denial(route: &Route, permission: KvPermission) -> String {
    let of_type = if route.place(PathPart::Type).is_some() { "t" } else { "default" };
    let has_buckets = matches!(route.parts.last(), Some(PathPart::Word("buckets" | "riak")));
    let scope = match route.place(PathPart::Bucket) {
        Some(_) => format!("{of_type}/b"),
        None if has_buckets || route.place(PathPart::Type).is_some() => of_type.to_owned(),
        None => "any".to_owned(),
    };
    format!("Permission denied: User 'u' does not have '{}' on {scope}", permission.name())
}

#[test]
fn every_route_refuses_clients_without_tls_without_a_user_and_without_a_permission() {
    let server = server();
    let mut client = server.client();
    for route in ROUTES {
        for method in route.methods {
            let (path, at) = (path(route), format!("{method} {}", path(route)));
            let mut answer = |login, is_secure| send(&mut client, method, &path, login, is_secure);
            let [clear, nobody, user] = [answer(Some(TRUSTED), false), answer(None, true), answer(Some(TRUSTED), true)];
            if route.access == RouteAccess::Open {
                assert_eq!([clear.status, nobody.status, user.status], [200; 3], "{at}");
                continue;
            }
            assert_eq!((clear.status, nobody.status), (426, 401), "{at}");
            assert_eq!(nobody.header("www-authenticate"), Some("Basic realm=\"Riak\""), "{at}");
            let expected = match route.access {
                RouteAccess::Needs(permissions) => Some(denial(route, permissions.for_method(method))),
                RouteAccess::PropsAndKeys if *method == Method::PUT => Some(denial(route, KvPermission::SetBucket)),
                RouteAccess::PropsAndKeys => Some(denial(route, KvPermission::GetBucket)),
                RouteAccess::NotWithSecurity if route.resource == Resource::ReplicationQueue => Some(
                    "A Riak fetches from a replication queue without a user: that is not compatible with security."
                        .into(),
                ),
                RouteAccess::NotWithSecurity => {
                    Some("Link walking is deprecated in Riak and is not compatible with security.".into())
                }
                RouteAccess::LoggedIn | RouteAccess::Job | RouteAccess::Open => None,
            };
            match expected {
                None => assert!(![401, 403, 426].contains(&user.status), "{at}: {}", user.status),
                Some(text) => {
                    assert_eq!(user.status, 403, "{at}");
                    assert!(*method == Method::HEAD || user.text() == text, "{at}: {}", user.text());
                }
            }
        }
    }
}

#[test]
fn the_one_permission_of_a_route_is_enough_and_every_other_one_is_not() {
    let server = server();
    let mut client = server.client();
    for route in ROUTES {
        let RouteAccess::Needs(permissions) = route.access else { continue };
        for method in route.methods {
            let (path, needed) = (path(route), permissions.for_method(method));
            for permission in KvPermission::ALL {
                change(&server, GrantChange::Grant, *permission, &GrantTarget::Any);
                let status = send(&mut client, method, &path, Some(TRUSTED), true).status;
                let is_refused = [401, 403, 426].contains(&status);
                // Objects without a data type are refused to data-type requests with 403, after the permission.
                let is_datatype = path.contains("datatypes") || path.contains("counters");
                if *permission != needed {
                    assert_eq!(status, 403, "{method} {path} with {}", permission.name());
                } else if !is_datatype {
                    assert!(!is_refused, "{method} {path} with {}: {status}", permission.name());
                }
                change(&server, GrantChange::Revoke, *permission, &GrantTarget::Any);
            }
        }
    }
}

#[test]
fn a_malformed_request_comes_before_rights_and_an_absent_type_after_them() {
    let server = server();
    let mut client = server.client();
    for path in [
        "/buckets/b/keys/k?r=x",
        "/buckets/b/keys?keys=true&timeout=x",
        "/buckets/b/index/f_int/x",
        "/buckets/b/keys/k/_",
    ] {
        assert_eq!(send(&mut client, &Method::GET, path, None, false).status, 400, "{path}");
    }
    let path = "/types/absent/buckets/b/keys/k";
    assert_eq!(send(&mut client, &Method::GET, path, Some(TRUSTED), true).status, 403);
    change(&server, GrantChange::Grant, KvPermission::Get, &GrantTarget::Type("absent".into()));
    assert_eq!(send(&mut client, &Method::GET, path, Some(TRUSTED), true).status, 404);
}

#[test]
fn a_job_needs_a_permission_on_every_bucket_of_its_inputs() {
    let server = server();
    let mut client = server.client();
    let mut run = |inputs: &str| {
        let body = format!(
            r#"{{"inputs":{inputs},"query":[{{"map":{{"language":"erlang","module":"riak_kv_mapreduce","function":"map_object_value"}}}}]}}"#
        );
        let answer = client.send(&request(&Method::POST, "/mapred", Some(TRUSTED), true).body(body));
        (answer.status, answer.text())
    };
    let denied = |permission: &str, bucket: &str| {
        (403, format!("Permission denied: User 'u' does not have 'riak_kv.{permission}' on default/{bucket}"))
    };
    let bucket = |name: &str| GrantTarget::Bucket("default".into(), name.into());
    assert_eq!(run(r#""b""#), denied("list_keys", "b"));
    change(&server, GrantChange::Grant, KvPermission::ListKeys, &bucket("b"));
    assert_eq!(run(r#""b""#), denied("mapreduce", "b"));
    change(&server, GrantChange::Grant, KvPermission::MapReduce, &bucket("b"));
    assert_eq!(run(r#""b""#), (200, "[]".into()));
    assert_eq!(run(r#"[["b","k"],["c","k"]]"#), denied("mapreduce", "c"));
    assert_eq!(run(r#"{"bucket":"b","index":"f_bin","key":"x"}"#), denied("index", "b"));
    assert_eq!(run("7").0, 400, "a document that is no job fails as ever");
}

#[test]
fn a_password_is_checked_a_change_counts_at_once_and_a_wrong_one_waits() {
    let server = server();
    let mut client = server.client();
    let setup = async |gateway: &Gateway, password: &str| {
        let options = RoleOptions::parse(&[password]).unwrap();
        gateway.security().alter_role(RoleKind::User, "u", options).await.unwrap();
        gateway.security().add_source("u", "203.0.113.0/24", "password", &[]).await.unwrap();
    };
    // `u:x` is right first, then `u:y`.
    server.background.run(setup(server.gateway(), "password=x"));
    for _ in 0..3 {
        assert_eq!(send(&mut client, &Method::GET, "/ping", Some(TRUSTED), true).status, 200);
    }
    server.background.run(setup(server.gateway(), "password=y"));
    let begun = Instant::now();
    assert_eq!(send(&mut client, &Method::GET, "/ping", Some(TRUSTED), true).status, 401);
    assert!(begun.elapsed() >= Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(send(&mut client, &Method::GET, "/ping", Some("Basic dTp5"), true).status, 200);
    server.background.run(server.gateway().security().set_enabled(false)).unwrap();
    assert_eq!(send(&mut client, &Method::GET, "/buckets/b/props", None, false).status, 200);
}
