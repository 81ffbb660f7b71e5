//! Websites of buckets over the wire, at their hosts.

use crate::support::S3TestServer;
use larder_testkit::http::HttpResponse;

const NOTHING: &[(&str, &str)] = &[];
const HOST: &str = "box.s3-website.localhost:8080";
const INDEX: &str = "<IndexDocument><Suffix>index.html</Suffix></IndexDocument>";
const ERROR: &str = "<ErrorDocument><Key>error.html</Key></ErrorDocument>";
const POLICY: &str =
    r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::box/*"}}"#;

/// A bucket whose objects all may read, with some pages.
fn with_pages() -> S3TestServer {
    let server = S3TestServer::start();
    assert_eq!(server.ask("PUT", "/box", NOTHING, b"").status, 200);
    assert_eq!(server.ask("PUT", "/box?policy", NOTHING, POLICY.as_bytes()).status, 204);
    for (key, body) in [
        ("index.html", "<h1>home</h1>"),
        ("docs/index.html", "<h1>docs</h1>"),
        ("error.html", "<h1>lost</h1>"),
        ("my%20file.html", "<h1>mine</h1>"),
        ("a%2520b.html", "<h1>sign</h1>"),
    ] {
        let put = server.ask("PUT", &format!("/box/{key}"), &[("content-type", "text/html")], body.as_bytes());
        assert_eq!(put.status, 200, "{key}");
    }
    server
}

fn configure(server: &S3TestServer, inner: &str) {
    let document = format!("<WebsiteConfiguration>{inner}</WebsiteConfiguration>");
    let put = server.ask("PUT", "/box?website", NOTHING, document.as_bytes());
    assert_eq!(put.status, 200, "{put:?}");
}

fn rules(rules: &[(&str, &str)]) -> String {
    let rule = |(condition, redirect): &(&str, &str)| {
        let condition =
            if condition.is_empty() { String::new() } else { format!("<Condition>{condition}</Condition>") };
        format!("<RoutingRule>{condition}<Redirect>{redirect}</Redirect></RoutingRule>")
    };
    format!("{INDEX}{ERROR}<RoutingRules>{}</RoutingRules>", rules.iter().map(rule).collect::<String>())
}

fn visit(server: &S3TestServer, method: &str, host: &str, target: &str, headers: &str) -> HttpResponse {
    server.ask_text(&format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n"), b"")
}

fn page(server: &S3TestServer, target: &str) -> HttpResponse {
    visit(server, "GET", HOST, target, "")
}

/// Status and address of a redirect.
fn redirect(response: &HttpResponse) -> (u16, &str) {
    (response.status, response.header("location").unwrap_or_default())
}

#[test]
fn directories_are_answered_with_their_index_documents() {
    let server = with_pages();
    configure(&server, INDEX);
    for (target, body) in [
        ("/", "<h1>home</h1>"),
        ("/docs/", "<h1>docs</h1>"),
        ("/index.html", "<h1>home</h1>"),
        ("/my%20file.html", "<h1>mine</h1>"),
        ("/a%2520b.html", "<h1>sign</h1>"),
        ("/?acl", "<h1>home</h1>"),
        ("/?X-Amz-Signature=x&X-Amz-Credential=y", "<h1>home</h1>"),
    ] {
        let page = page(&server, target);
        assert_eq!((page.status, page.text().as_str()), (200, body), "{target} {page:?}");
        assert_eq!(page.header("content-type"), Some("text/html"));
    }
    let below = page(&server, "/docs?x=1");
    assert_eq!(redirect(&below), (302, "http://box.s3-website.localhost:8080/docs/?x=1"));
    let head = visit(&server, "HEAD", HOST, "/", "");
    assert_eq!((head.status, head.header("content-length"), head.text().len()), (200, Some("13"), 0));
    let etag = head.header("etag").unwrap();
    assert_eq!(visit(&server, "GET", HOST, "/", &format!("If-None-Match: {etag}\r\n")).status, 304);
    let range = visit(&server, "GET", HOST, "/", "Range: bytes=4-7\r\n");
    assert_eq!((range.status, range.text().as_str()), (206, "home"));
    let s3 = server.ask("GET", "/box?list-type=2", NOTHING, b"");
    assert_eq!((s3.status, s3.element("KeyCount")), (200, Some("5")), "the S3 interface is as before");
    server.stop();
}

#[test]
fn errors_are_answered_with_the_error_document_or_a_page_that_names_them() {
    let server = with_pages();
    configure(&server, INDEX);
    let missing = page(&server, "/none");
    assert_eq!((missing.status, missing.header("x-amz-error-code")), (404, Some("NoSuchKey")), "{missing:?}");
    assert_eq!(missing.header("content-type"), Some("text/html; charset=utf-8"));
    let id = missing.header("x-amz-request-id").unwrap();
    assert!(missing.text().contains("<li>Code: NoSuchKey</li>") && missing.text().contains(id), "{missing:?}");
    configure(&server, &format!("{INDEX}{ERROR}"));
    let lost = page(&server, "/none");
    assert_eq!((lost.status, lost.text().as_str()), (404, "<h1>lost</h1>"));
    assert_eq!((lost.header("x-amz-error-code"), lost.header("content-type")), (Some("NoSuchKey"), Some("text/html")));
    let head = visit(&server, "HEAD", HOST, "/none", "");
    assert_eq!((head.status, head.text().len()), (404, 0));
    assert_eq!(server.ask("DELETE", "/box?policy", NOTHING, b"").status, 204);
    let private = page(&server, "/index.html");
    assert_eq!((private.status, private.header("x-amz-error-code")), (403, Some("AccessDenied")), "{private:?}");
    assert!(!private.text().contains("lost"), "the error document is private, too");
    assert_eq!(page(&server, "/none").status, 403, "no permission, no knowledge of what is missing");
    for (method, host, target, status, code) in [
        ("POST", HOST, "/index.html", 405, "MethodNotAllowed"),
        ("PUT", HOST, "/index.html", 405, "MethodNotAllowed"),
        ("DELETE", HOST, "/index.html", 405, "MethodNotAllowed"),
        ("GET", "none.s3-website.localhost", "/", 404, "NoSuchBucket"),
        ("GET", "s3-website.localhost", "/", 404, "NoSuchBucket"),
        ("GET", "usage.s3-website.localhost", "/", 404, "NoSuchBucket"),
        ("GET", "riak-cs.s3-website.localhost", "/users", 404, "NoSuchBucket"),
        ("OPTIONS", HOST, "/index.html", 400, "BadRequest"),
    ] {
        let refused = visit(&server, method, host, target, "");
        let found = (refused.status, refused.header("x-amz-error-code"));
        assert_eq!(found, (status, Some(code)), "{method} {host}{target} {refused:?}");
    }
    let unreadable = page(&server, "/%ff");
    assert_eq!((unreadable.status, unreadable.header("x-amz-error-code")), (400, Some("InvalidURI")));
    let long = format!("/{}", "k".repeat(1025));
    assert_eq!(page(&server, &long).status, 400);
    assert_eq!(server.ask("DELETE", "/box?website", NOTHING, b"").status, 204);
    let none = page(&server, "/");
    assert_eq!((none.status, none.header("x-amz-error-code")), (404, Some("NoSuchWebsiteConfiguration")));
    server.stop();
}

#[test]
fn rules_redirect_before_a_page_is_read_and_after_it_was_not_found() {
    let server = with_pages();
    let all = "<RedirectAllRequestsTo><HostName>www.example.com</HostName><Protocol>https</Protocol>\
        </RedirectAllRequestsTo>";
    configure(&server, all);
    let anywhere = page(&server, "/any/path%20here?tracking=1");
    assert_eq!(redirect(&anywhere), (301, "https://www.example.com/any/path%20here?tracking=1"));
    configure(
        &server,
        &rules(&[
            ("<KeyPrefixEquals>old/</KeyPrefixEquals>", "<ReplaceKeyPrefixWith>new/</ReplaceKeyPrefixWith>"),
            (
                "<HttpErrorCodeReturnedEquals>404</HttpErrorCodeReturnedEquals><KeyPrefixEquals>lost/</KeyPrefixEquals>",
                "<HostName>other.example.com</HostName><ReplaceKeyWith>a b</ReplaceKeyWith><HttpRedirectCode>307</HttpRedirectCode>",
            ),
        ]),
    );
    let own = "http://box.s3-website.localhost:8080";
    let location = format!("{own}/new/page.html?ref=1");
    assert_eq!(redirect(&page(&server, "/old/page.html?ref=1")), (301, &*location));
    assert_eq!(redirect(&page(&server, "/lost/x")), (307, "http://other.example.com/a%20b"));
    let unmatched = page(&server, "/else");
    assert_eq!((unmatched.status, unmatched.text().as_str()), (404, "<h1>lost</h1>"));
    let elsewhere = format!("{own}//evil.example/x");
    assert_eq!(redirect(&page(&server, "/old//evil.example/x")).1, format!("{own}/new//evil.example/x"));
    configure(&server, &rules(&[("<KeyPrefixEquals>old/</KeyPrefixEquals>", "<ReplaceKeyPrefixWith/>")]));
    assert_eq!(redirect(&page(&server, "/old//evil.example/x")), (301, &*elsewhere), "never to another host");
    configure(
        &server,
        &rules(&[("<KeyPrefixEquals>old/</KeyPrefixEquals>", "<ReplaceKeyWith>x\r\nSet-Cookie: a</ReplaceKeyWith>")]),
    );
    let split = page(&server, "/old/");
    assert_eq!((split.status, split.header("set-cookie")), (301, None), "{split:?}");
    server.stop();
}

#[test]
fn an_object_redirects_its_readers_at_the_website_alone() {
    let server = with_pages();
    configure(&server, INDEX);
    let header = "x-amz-website-redirect-location";
    for (place, status) in [("/new.html", 200), ("https://example.com/x", 200), ("new.html", 400), ("ftp://x", 400)] {
        let put = server.ask("PUT", "/box/old.html", &[(header, place)], b"old");
        assert_eq!(put.status, status, "{place}");
        assert!(status == 200 || put.element("Code") == Some("InvalidRedirectLocation"), "{put:?}");
    }
    assert_eq!(redirect(&page(&server, "/old.html")), (301, "https://example.com/x"));
    let read = server.ask("GET", "/box/old.html", NOTHING, b"");
    assert_eq!((read.status, read.header(header), read.text().as_str()), (200, Some("https://example.com/x"), "old"));
    let copied = [("x-amz-copy-source", "/box/old.html")];
    assert_eq!(server.ask("PUT", "/box/copy.html", &copied, b"").status, 200);
    let copy = page(&server, "/copy.html");
    assert_eq!((copy.status, copy.text().as_str()), (200, "old"), "a copy takes no redirect over");
    server.stop();
}

#[test]
fn pages_have_the_cors_headers_of_their_bucket() {
    let server = with_pages();
    configure(&server, INDEX);
    let cors = "<CORSConfiguration><CORSRule><AllowedOrigin>https://a.example</AllowedOrigin><AllowedMethod>GET</AllowedMethod>\
        </CORSRule></CORSConfiguration>";
    assert_eq!(server.ask("PUT", "/box?cors", NOTHING, cors.as_bytes()).status, 200);
    let preflight = |origin: &str| {
        let headers = format!("Origin: {origin}\r\nAccess-Control-Request-Method: GET\r\n");
        visit(&server, "OPTIONS", HOST, "/index.html", &headers)
    };
    let allowed = preflight("https://a.example");
    assert_eq!((allowed.status, allowed.header("access-control-allow-origin")), (200, Some("https://a.example")));
    let refused = preflight("https://b.example");
    assert_eq!((refused.status, refused.header("x-amz-error-code")), (403, Some("AccessForbidden")));
    let read = visit(&server, "GET", HOST, "/", "Origin: https://a.example\r\n");
    assert_eq!((read.status, read.header("access-control-allow-origin")), (200, Some("https://a.example")));
    server.stop();
}
