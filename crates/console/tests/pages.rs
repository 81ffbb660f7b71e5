//! The console over HTTP: access, and each page and change.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use bytes::Bytes;
use larder_console::CommandProgress;
use larder_core::body::PutBody;
use larder_kv::rules::causality::Conditions;
use larder_kv::{KvPut, Quorums};
use larder_moving::NewMove;
use larder_moving::rules::SourceAddress;
use larder_rows::address::{Address, BucketAddress};
use larder_rows::content::KvContent;
use larder_s3::acl::AclChoice;
use larder_s3::put::{ObjectMetadata, WriteConditions};
use larder_s3::uploads::CreateUpload;
use larder_s3_rules::S3Action;
use larder_testkit::http::HttpRequest;

use crate::support::{TestConsole, encoded, field};

/// Names and values that would run or hide if they were not escaped.
const HOSTILE: &[&str] = &[
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "'><svg/onload=alert(1)>",
    "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "javascript:alert(1)",
    "&lt;script&gt;",
    "..",
    "a\u{202e}b",
];

fn put(console: &TestConsole, bucket_type: &str, key: &[u8], value: &[u8], content: KvContent) {
    let bucket = BucketAddress::new(Bytes::copy_from_slice(bucket_type.as_bytes()), "b".into()).unwrap();
    let request = KvPut {
        address: Address::new(bucket, Bytes::copy_from_slice(key)).unwrap(),
        context: None,
        conditions: Conditions::default(),
        if_not_modified: None,
        content,
        upload: PutBody::Bytes(Bytes::copy_from_slice(value)),
        quorums: Quorums::default(),
        return_body: false,
        timeout: None,
    };
    console.background.run(console.gateway.kv.put(request)).unwrap();
}

#[test]
fn a_client_without_a_session_sees_nothing() {
    let console = TestConsole::start(false);
    let mut client = console.client();
    for path in ["/", "/types", "/keys", "/s3", "/s3/users", "/jobs", "/move", "/live", "/nonsense"] {
        client.get(path).expect(401);
    }
    client.get("/login?token=").expect(403);
    client.get("/login?token=0101").expect(403);
    client.get("/console.css").expect(200);
    let mut browser = console.browser();
    browser.get("/nonsense").expect(404);
    browser.post("/logout", &[]).expect(200);
    browser.get("/").expect(401);
    console.stop();
}

#[test]
fn commands_show_their_progress_and_the_time_that_is_left() {
    let console = TestConsole::start(false);
    let mut browser = console.browser();
    assert!(browser.page("/jobs").contains("No export, import or check of indexes runs."));
    let running = console.commands.begin("export /backups/<b>".to_owned());
    running.report(CommandProgress { seconds: 300.0, percent: Some(25), text: "rows of <keys>".to_owned() });
    let page = browser.page("/jobs");
    for text in
        ["export /backups/&lt;b&gt;", "<td class=\"number\">5 min</td>", "25 %", ">15 min<", "rows of &lt;keys&gt;"]
    {
        assert!(page.contains(text), "{text}: {page}");
    }
    drop(running);
    assert!(!browser.page("/jobs").contains("/backups"));
    console.stop();
}

/// Begins a move from a Riak that does not answer, and works on it until it waits.
fn begin_move(console: &TestConsole) {
    let new = NewMove {
        source: SourceAddress::parse("riak://h:1").unwrap(),
        types: vec!["default".into(), "<b>".into()],
        rate: 50,
        queue: "larder".to_owned(),
        s3: None,
    };
    console.background.run(console.mover.start(new)).unwrap();
    work_on_move(console);
}

/// Works on the move for longer than the time between two notes of its progress.
fn work_on_move(console: &TestConsole) {
    let worked = async { tokio::time::timeout(Duration::from_millis(1500), console.mover.clone().run()).await };
    assert!(console.background.run(worked).is_err());
}

#[test]
fn a_move_shows_the_report_of_its_status() {
    let console = TestConsole::start(false);
    let mut browser = console.browser();
    assert!(browser.page("/jobs").contains("No move was started."));
    assert!(browser.page("/move").contains("No move was started."));
    browser.post("/move/pause", &[]).expect(409);
    begin_move(&console);
    assert!(browser.page("/jobs").contains("Move from riak://h:1 (runs), phase check."));
    let shown = browser.page("/move");
    assert!(shown.contains("<dt>types</dt><dd>default, &lt;b&gt;</dd>"), "{shown}");
    assert!(shown.contains("<dt>waits after</dt><dd>") && shown.contains("no connection to &lt;h&gt;"), "{shown}");
    let status = console.background.run(console.mover.status()).unwrap().unwrap();
    for line in status.report(console.gateway.context().now()) {
        assert!(shown.contains(&format!("<dt>{}</dt>", line.name)), "{line:?} {shown}");
    }
    console.stop();
}

#[test]
fn a_move_is_paused_and_resumed_by_those_who_may_change() {
    let console = TestConsole::start(false);
    let mut browser = console.browser();
    begin_move(&console);
    assert_eq!(browser.post("/move/pause", &[]).expect(303).header("location"), Some("/move?done=move%2Dpause"));
    work_on_move(&console);
    let shown = browser.page("/move?done=move-pause");
    assert!(shown.contains("(is paused)") && shown.contains("Resume") && !shown.contains(">Pause<"), "{shown}");
    browser.post("/move/resume", &[]).expect(303);
    browser.post("/move/verify", &[]).expect(303);
    assert!(browser.page("/move").contains("(is to be verified)"));
    browser.post_with("/move/pause", b"other", &[]).expect(403);
    let audited: Vec<String> = console.audit_lines().into_iter().filter(|line| line.contains("Move")).collect();
    assert!(audited.iter().any(|line| line.starts_with("console PauseMove")), "{audited:?}");
    console.stop();
    let console = TestConsole::start(true);
    let mut browser = console.browser();
    begin_move(&console);
    assert!(!browser.page("/move").contains("Pause"));
    browser.post("/move/pause", &[]).expect(403);
    console.stop();
}

#[test]
fn each_page_forbids_frames_and_inline_scripts() {
    let console = TestConsole::start(false);
    let mut browser = console.browser();
    for path in
        ["/", "/types", "/type?type=default", "/keys", "/keys?type=default", "/s3", "/s3/users", "/jobs", "/move", "/x"]
    {
        let answer = browser.get(path);
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("script-src 'self'"), "{path}");
        assert!(!policy.contains("unsafe"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("same-origin"));
        let page = answer.text();
        assert!(!page.contains(" style=") && !page.contains("<style") && !page.contains("onclick"), "{path}");
        assert_eq!(page.matches("<script").count(), 1, "{path}: the module alone");
    }
    let cookie = console.access.issue_token(console.objects.gateway.context().monotonic());
    let answer = console.client().get(&format!("/login?token={cookie}"));
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && cookie.contains("Max-Age=43200"));
    console.stop();
}

#[test]
fn requests_of_other_sites_and_hosts_are_refused() {
    let console = TestConsole::start(false);
    let mut browser = console.browser();
    for (name, value) in [
        ("Origin", "http://evil.example"),
        ("Referer", "http://evil.example/page"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Host", "evil.example:8099"),
    ] {
        let request = HttpRequest::get("/").header("Cookie", &browser.cookie).header(name, value);
        browser.client.send(&request).expect(403);
    }
    let two = HttpRequest::get("/").header("Cookie", &browser.cookie).header("Host", "localhost");
    browser.client.send(&two.header("Host", "evil.example")).expect(400);
    for csrf in [&b""[..], b"0", browser.csrf.to_uppercase().repeat(2).as_bytes()] {
        browser.post_with("/types/create", csrf, &[("type", b"t"), ("kind", b"objects")]).expect(403);
    }
    let other = console.browser().csrf;
    browser.post_with("/types/create", other.as_bytes(), &[("type", b"t"), ("kind", b"objects")]).expect(403);
    browser.get("/type?type=t").expect(404);
    browser.get("/types/create").expect(405);
    assert!(console.audit_lines().iter().any(|line| line == "console CreateType t refused"));
    console.stop();
}

#[test]
fn a_page_that_hides_its_origin_is_refused() {
    let console = TestConsole::start(false);
    let mut browser = console.browser();
    for site in ["same-origin", "cross-site", "same-site"] {
        let request = HttpRequest::get("/").header("Cookie", &browser.cookie).header("Origin", "null");
        browser.client.send(&request.header("Sec-Fetch-Site", site)).expect(403);
    }
    console.stop();
}

#[test]
fn a_read_only_console_has_no_forms_and_refuses_changes() {
    let console = TestConsole::start(true);
    let mut browser = console.browser();
    let types = browser.page("/types");
    assert!(!types.contains("New type") && types.contains("read-only"));
    browser.post("/types/create", &[("type", b"t"), ("kind", b"objects")]).expect(403);
    browser.get("/type?type=t").expect(404);
    console.stop();
}

#[test]
fn a_type_is_created_activated_and_updated() {
    let console = TestConsole::start(false);
    let mut browser = console.browser();
    let created = browser.post("/types/create", &[("type", b"teas"), ("kind", b"set"), ("props", b"{\"n_val\": 2}")]);
    assert_eq!(created.expect(303).header("location"), Some("/type?type=teas&done=created"));
    let page = browser.page("/type?type=teas&done=created");
    assert!(page.contains("Activate") && page.contains("The type is created."), "{page}");
    browser.post("/type/activate?type=teas", &[]).expect(303);
    let page = browser.page("/type?type=teas");
    assert!(page.contains(">active<") && page.contains("&quot;set&quot;"), "{page}");
    browser.post("/type/update?type=teas", &[("props", b"{\"props\":{\"r\":1}}")]).expect(303);
    assert!(browser.page("/type?type=teas").contains("differ from the defaults"));
    let refused = browser.post("/type/update?type=teas", &[("props", b"{\"datatype\": \"map\"}")]);
    assert!(refused.expect(400).text().contains("datatype"));
    browser.post("/type/update?type=teas", &[("props", b"nonsense")]).expect(400);
    let lines = console.audit_lines();
    for line in ["CreateType teas done", "ActivateType teas done", "UpdateType teas done", "UpdateType teas failed"] {
        assert!(lines.iter().any(|found| *found == format!("console {line}")), "{line} in {lines:?}");
    }
    console.stop();
}

#[test]
fn siblings_are_resolved_edited_and_deleted() {
    let console = TestConsole::start(false);
    let mut browser = console.browser();
    browser.post("/types/create", &[("type", b"t"), ("kind", b"objects")]).expect(303);
    browser.post("/type/activate?type=t", &[]).expect(303);
    let content = KvContent { content_type: Some("text/plain".into()), ..KvContent::default() };
    put(&console, "t", b"k", b"older", content.clone());
    put(&console, "t", b"k", b"newer", content);
    let page = browser.page("/object?type=t&bucket=b&key=k");
    assert!(page.contains("2 siblings.") && page.contains("older") && page.contains("newer"), "{page}");
    let stale = (field(&page, "context"), field(&page, "vtag"));
    let form = |(context, vtag): &(String, String)| {
        [("context", context.clone().into_bytes()), ("vtag", vtag.clone().into_bytes())]
    };
    let fields = form(&stale);
    let fields: Vec<(&str, &[u8])> = fields.iter().map(|(name, value)| (*name, &value[..])).collect();
    browser.post("/object/resolve?type=t&bucket=b&key=k", &fields).expect(303);
    let page = browser.page("/object?type=t&bucket=b&key=k");
    assert!(!page.contains("siblings.") && page.contains("newer") && !page.contains("older"), "{page}");
    assert!(page.contains("text/plain"), "metadata stays");
    browser.post("/object/resolve?type=t&bucket=b&key=k", &fields).expect(409);

    let (context, vtag) = (field(&page, "context"), field(&page, "vtag"));
    let edited: [(&str, &[u8]); 3] =
        [("context", context.as_bytes()), ("vtag", vtag.as_bytes()), ("value", b"two\r\nlines")];
    browser.post("/object/edit?type=t&bucket=b&key=k", &edited).expect(303);
    let page = browser.page("/object?type=t&bucket=b&key=k");
    assert!(page.contains("two\nlines"), "{page}");
    browser.post("/object/delete?type=t&bucket=b&key=k", &[("context", b"")]).expect(400);
    let context = field(&page, "context");
    browser.post("/object/delete?type=t&bucket=b&key=k", &[("context", context.as_bytes())]).expect(303);
    assert!(browser.page("/object?type=t&bucket=b&key=k").contains("deleted"));
    assert!(console.audit_lines().iter().any(|line| line == "console ResolveObject t/b/k done"));
    console.stop();
}

#[test]
fn hostile_names_and_values_are_text() {
    let console = TestConsole::start(false);
    let mut browser = console.browser();
    for hostile in HOSTILE {
        let text = Bytes::copy_from_slice(hostile.as_bytes());
        let meta = vec![("X-Riak-Meta-a".into(), text.clone())];
        let content = KvContent { content_type: Some(text.clone()), meta, ..KvContent::default() };
        put(&console, "default", hostile.as_bytes(), hostile.as_bytes(), content);
        let key = encoded(hostile.as_bytes());
        for path in [
            format!("/object?type=default&bucket=b&key={key}"),
            format!("/keys?type=default&bucket=b&prefix={key}"),
            format!("/keys?type=default&bucket={key}"),
            format!("/type?type={key}"),
            format!("/s3/bucket?bucket={key}&prefix={key}"),
            format!("/s3/upload?bucket={key}&key={key}&upload={key}"),
            format!("/types?done={key}"),
        ] {
            let page = browser.get(&path).text();
            assert_eq!(page.matches("<script").count(), 1, "{path}\n{page}");
            assert_eq!(page.matches("</title>").count(), 1, "{path}\n{page}");
            assert_eq!(page.matches("<textarea").count(), page.matches("</textarea>").count(), "{path}\n{page}");
            for tag in ["<img", "<svg/", "href=\"javascript"] {
                assert!(!page.contains(tag), "{path}: {tag}\n{page}");
            }
            assert!(!page.contains('\u{202e}'), "{path}");
        }
        let page = browser.page(&format!("/object?type=default&bucket=b&key={key}"));
        assert!(page.contains("Size"), "the object is found by its name: {hostile:?}");
    }
    let keys = browser.page("/keys?type=default&bucket=b");
    assert_eq!(keys.matches("/object?type=default").count(), HOSTILE.len(), "{keys}");
    console.stop();
}

#[test]
fn keys_have_stable_pages() {
    let console = TestConsole::start(false);
    let mut browser = console.browser();
    for key in 0..250 {
        put(&console, "default", format!("key{key:03}").as_bytes(), b"v", KvContent::default());
    }
    assert!(browser.page("/keys?type=default").contains(">b<"));
    let (mut target, mut pages, mut seen) = ("/keys?type=default&bucket=b&prefix=key".to_owned(), 0, 0);
    loop {
        let page = browser.page(&target);
        (pages, seen) = (pages + 1, seen + page.matches("href=\"/object?").count());
        let Some((before, _)) = page.split_once("\" rel=\"next\"") else { break };
        target = before.rsplit_once("href=\"").unwrap().1.replace("&amp;", "&");
    }
    assert_eq!((pages, seen), (3, 250));
    console.stop();
}

#[test]
fn an_upload_is_aborted_and_users_show_no_secrets() {
    let console = TestConsole::start(false);
    let mut browser = console.browser();
    let objects = &console.objects;
    let caller = console.admin(S3Action::CreateBucket);
    console.background.run(objects.buckets.create(&caller, "cellar", AclChoice::default(), None)).unwrap();
    let request = CreateUpload {
        bucket: "cellar".into(),
        key: "casks/<b>".into(),
        metadata: ObjectMetadata::default(),
        checksum: None,
        conditions: WriteConditions::default(),
    };
    let caller = console.admin(S3Action::PutObject);
    let id = console.background.run(objects.uploads.create(&caller, request)).unwrap().id;
    assert!(browser.page("/s3").contains("cellar"));
    let uploads = browser.page("/s3/uploads?bucket=cellar");
    assert!(uploads.contains("casks/&lt;b&gt;") && uploads.contains(&id.text()), "{uploads}");
    let address = format!("bucket=cellar&key={}&upload={}", encoded(b"casks/<b>"), encoded(id.text().as_bytes()));
    let page = browser.page(&format!("/s3/upload?{address}"));
    assert!(page.contains("Bytes held") && page.contains("Abort the upload"), "{page}");
    browser.post(&format!("/s3/upload/abort?{address}"), &[]).expect(303);
    browser.get(&format!("/s3/upload?{address}")).expect(404);
    browser.post(&format!("/s3/upload/abort?{address}"), &[]).expect(404);
    let users = browser.page("/s3/users");
    assert!(users.contains("ADMIN-KEY") && !users.contains("the-secret"), "{users}");
    console.stop();
}

#[test]
fn an_object_is_created_once_and_its_value_is_saved_and_laid_out() {
    let console = TestConsole::start(false);
    let mut browser = console.browser();
    let new: [(&str, &[u8]); 3] = [("key", b"k"), ("media", b"application/json"), ("value", br#"{"a":1}"#)];
    browser.post("/object/create?type=default&bucket=b", &new).expect(303);
    browser.post("/object/create?type=default&bucket=b", &new).expect(409);
    let page = browser.page("/object?type=default&bucket=b&key=k");
    assert!(page.contains("{\n  &quot;a&quot;: 1\n}"), "{page}");
    let vtag = field(&page, "vtag");
    let saved = browser.get(&format!("/object/value?type=default&bucket=b&key=k&vtag={vtag}")).expect(200);
    assert_eq!(saved.header("content-disposition"), Some("attachment; filename*=UTF-8''k"));
    assert_eq!(saved.text(), r#"{"a":1}"#);
    assert!(browser.page("/object?type=default&bucket=b&key=none").contains("Create an object"));
    console.stop();
}

#[test]
fn an_index_is_queried_page_by_page_and_links_lead_to_objects() {
    let console = TestConsole::start(false);
    let mut browser = console.browser();
    for age in 0..250 {
        let term = larder_rows::content::Term { field: "age_int".into(), value: age.to_string().into() };
        let link = larder_rows::content::Link { bucket: "other".into(), key: "k&k".into(), tag: "next".into() };
        let content = KvContent { terms: vec![term], links: vec![link], ..KvContent::default() };
        put(&console, "default", format!("k{age:03}").as_bytes(), b"v", content);
    }
    let page = browser.page("/keys/index?type=default&bucket=b&field=age_int&from=10&to=239");
    assert!(page.contains(">k010<") && page.contains(">k109<") && !page.contains(">k110<"), "{page}");
    let (_, next) = page.split_once("rel=\"next\"").map(|(before, _)| before.rsplit_once("href=\"").unwrap()).unwrap();
    let next = next.split('"').next().unwrap().replace("&amp;", "&");
    let page = browser.page(&next);
    assert!(page.contains(">k110<") && page.contains(">k209<") && !page.contains(">k210<"), "{page}");
    assert!(browser.page("/keys/index?type=default&bucket=b&field=age_int&from=7").contains(">k007<"));
    browser.get("/keys/index?type=default&bucket=b&field=age&from=7").expect(400);
    browser.get("/keys/index?type=default&bucket=b&field=age_int&from=x").expect(400);
    browser.get("/keys/index?type=default&bucket=b&field=age_int&from=7&after=nonsense").expect(400);
    assert!(
        browser
            .page("/object?type=default&bucket=b&key=k007")
            .contains("href=\"/object?type=default&amp;bucket=other&amp;key=k%26k\"")
    );
    console.stop();
}

#[test]
fn users_groups_sources_and_grants_are_changed_and_no_page_has_a_password() {
    let console = TestConsole::start(false);
    let mut browser = console.browser();
    browser.post("/security/roles/add", &[("kind", b"group"), ("role", b"crew")]).expect(303);
    let ann: [(&str, &[u8]); 4] = [("kind", b"user"), ("role", b"ann"), ("password", b"a-secret"), ("groups", b"crew")];
    browser.post("/security/roles/add", &ann).expect(303);
    // Without its password the same form would make another user.
    let refused = browser.post("/security/roles/add", &ann).expect(400).text();
    assert!(!refused.contains("Try again") && !refused.contains("a-secret"), "{refused}");
    browser.post("/security/switch", &[]).expect(400);
    browser.post("/security/roles/password", &[("role", b"ann"), ("password", b"another-secret")]).expect(303);
    browser.post("/security/roles/password", &[("role", b"ann"), ("password", b"")]).expect(400);
    let source: [(&str, &[u8]); 3] = [("roles", b"all"), ("network", b"10.0.0.0/8"), ("method", b"password")];
    browser.post("/security/sources/add", &source).expect(303);
    browser
        .post("/security/sources/add", &[("roles", b"all"), ("network", b"nowhere"), ("method", b"password")])
        .expect(400);
    let grant: [(&str, &[u8]); 5] = [
        ("change", b"grant"),
        ("permissions", b"riak_kv.get"),
        ("type", b"default"),
        ("bucket", b"b"),
        ("roles", b"crew"),
    ];
    browser.post("/security/grants", &grant).expect(303);
    browser.post("/security/switch", &[("switch", b"on")]).expect(303);
    let page = browser.page("/security");
    for text in ["Enabled: a request", "ann", "10.0.0.0/8", "riak_kv.get", "default / b"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("secret") && !console.audit_lines().iter().any(|line| line.contains("secret")));
    let revoked: [(&str, &[u8]); 5] = [
        ("change", b"revoke"),
        ("permissions", b"riak_kv.get"),
        ("type", b"default"),
        ("bucket", b"b"),
        ("roles", b"crew"),
    ];
    browser.post("/security/grants", &revoked).expect(303);
    browser.post("/security/sources/delete", &[("roles", b"all"), ("network", b"10.0.0.0/8")]).expect(303);
    browser.post("/security/roles/delete", &[("kind", b"user"), ("role", b"ann")]).expect(303);
    browser.post("/security/switch", &[("switch", b"off")]).expect(303);
    let page = browser.page("/security");
    assert!(
        page.contains("Disabled") && page.contains("None: no user can log in.") && !page.contains(">ann<"),
        "{page}"
    );
    console.stop();
}
