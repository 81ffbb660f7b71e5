//! The console in a real browser: each page, and each change that its forms offer. Pictures of the pages go to `target/console`, narrow and wide, light and dark.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::harness::{HttpClient, HttpRequest, LarderNode, TestEngine, WebBrowser, wait_for};

/// Time until the figures of a page change.
const LIVE: Duration = Duration::from_secs(30);
/// A name that would run where it is not escaped.
const HOSTILE: &str = "%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D%27run%27%22%3E";

/// A server with its console, and a browser that has signed in.
struct SignedIn {
    node: LarderNode,
    browser: WebBrowser,
    /// The address of the console, such as `http://127.0.0.1:1234`.
    base: String,
}

impl SignedIn {
    fn start() -> Option<Self> {
        // The pages show what the gateway answers, whichever engine it has.
        if TestEngine::current() != TestEngine::Local {
            return None;
        }
        let mut browser = WebBrowser::start()?;
        let args = ["--durability", "buffered", "--s3", "127.0.0.1:0", "--console", "127.0.0.1:0"];
        let node = LarderNode::start(&args);
        let link = node.admin().run(&["console", "link"]).stdout.trim().to_owned();
        let (base, _) = link.split_once("/login?").unwrap();
        let base = base.to_owned();
        browser.open(&link);
        browser.wait_for_text("Overview");
        Some(Self { node, browser, base })
    }

    fn open(&mut self, path: &str) {
        self.browser.open(&format!("{}{path}", self.base));
    }
}

#[test]
fn a_type_is_created_and_activated_and_a_sibling_is_kept() {
    let Some(mut signed_in) = SignedIn::start() else { return };
    signed_in.open("/types");
    let browser = &mut signed_in.browser;
    browser.type_into("#type-name", "drinks");
    browser.click("form.fields button");
    browser.wait_for_text("The type is created.");
    browser.wait_for_text("Activate");
    browser.click("form[action^='/type/activate'] button");
    browser.wait_for_text("The type is active.");

    let mut client = signed_in.node.client();
    let object = "/types/drinks/buckets/teas/keys/sencha";
    for value in ["green", "black"] {
        let put = HttpRequest::put(object, value).header("Content-Type", "text/plain");
        client.send(&put).expect(204);
    }
    signed_in.open("/object?type=drinks&bucket=teas&key=sencha");
    let browser = &mut signed_in.browser;
    browser.wait_for_text("2 siblings.");
    browser.click("form[action^='/object/resolve'] button");
    browser.wait_for_text("The key has one value now.");
    assert_eq!(client.get(object).expect(200).text(), "black", "the newest is shown first");

    browser.click("summary");
    browser.run("document.querySelector('#value').value = ''");
    browser.type_into("#value", "two\nlines");
    browser.click("form[action^='/object/edit'] button");
    browser.wait_for_text("The value is stored.");
    assert_eq!(client.get(object).expect(200).text(), "two\nlines");
    assert_eq!(browser.take_log(), Vec::<String>::new());
}

#[test]
fn an_upload_is_aborted() {
    let Some(mut signed_in) = SignedIn::start() else { return };
    let mut admin = signed_in.node.s3_admin();
    admin.put("/cellar", "").expect(200);
    let id = admin.begin("/cellar/cask");
    admin.part("/cellar/cask", &id, 1, "some bytes");
    signed_in.open("/s3/uploads?bucket=cellar");
    let browser = &mut signed_in.browser;
    browser.click("td.name a");
    browser.wait_for_text("10 B");
    browser.click("summary");
    browser.click("button.danger");
    browser.wait_for_text("The upload is aborted");
    assert!(!admin.get("/cellar?uploads").expect(200).text().contains(&id));
}

#[test]
fn a_bucket_takes_files_small_and_large_and_gives_them_back() {
    let Some(mut signed_in) = SignedIn::start() else { return };
    let files = tempfile::tempdir().unwrap();
    // The second one goes in three parts.
    let large: Vec<u8> = (0..40 << 20).map(|at: u32| (at % 251) as u8).collect();
    fs::write(files.path().join("note.txt"), "a note").unwrap();
    fs::write(files.path().join("large.bin"), &large).unwrap();
    signed_in.open("/s3");
    let browser = &mut signed_in.browser;
    browser.type_into("#bucket", "cellar");
    browser.click("form[action='/s3/create'] button");
    browser.wait_for_text("The bucket is created.");
    let both = ["note.txt", "large.bin"].map(|name| files.path().join(name).to_str().unwrap().to_owned());
    browser.type_into("#file", &both.join("\n"));
    browser.click("form.upload button");
    browser.wait_for_text("40.0 MiB");
    browser.wait_for_text("note.txt");
    let mut admin = signed_in.node.s3_admin();
    assert_eq!(admin.get("/cellar/large.bin").expect(200).body, large);
    assert!(!admin.get("/cellar?uploads").expect(200).text().contains("<Upload>"), "no upload stays open");

    signed_in.open("/s3/object?bucket=cellar&key=note.txt");
    let browser = &mut signed_in.browser;
    browser.wait_for_text("a note");
    let read = "const request = new XMLHttpRequest(); \
                request.open('GET', document.querySelector('a.button').href, false); request.send(); \
                return request.responseText";
    assert_eq!(browser.run(read), "a note");
    browser.click("form[action^='/s3/object/share'] button");
    browser.wait_for_text("Anyone who has this link");
    let link = browser.run("return document.querySelector('#share').textContent").as_str().unwrap().to_owned();
    let (host, target) = link.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let shared = HttpRequest::get(&format!("/{target}")).header("Host", host);
    assert_eq!(HttpClient::new(signed_in.node.s3_at()).send(&shared).expect(200).text(), "a note");

    signed_in.open("/s3/object?bucket=cellar&key=note.txt");
    let browser = &mut signed_in.browser;
    browser.open_forms();
    browser.type_into("#tags", "kind=note");
    browser.click("form[action^='/s3/object/tags'] button");
    browser.wait_for_text("The tags are stored.");
    browser.open_forms();
    browser.click("form[action^='/s3/object/delete'] button");
    browser.wait_for_text("The object is deleted.");
    admin.get("/cellar/note.txt").expect(404);
    assert_eq!(browser.take_log(), Vec::<String>::new());
}

#[test]
fn the_metadata_of_an_object_is_edited() {
    let Some(mut signed_in) = SignedIn::start() else { return };
    let mut admin = signed_in.node.s3_admin();
    admin.put("/cellar", "").expect(200);
    admin.put("/cellar/note.txt", "a note").expect(200);
    signed_in.open("/s3/object?bucket=cellar&key=note.txt");
    let browser = &mut signed_in.browser;
    browser.open_forms();
    browser.type_into("input[name='cache-control']", "max-age=60");
    browser.type_into("#meta", "origin=Jura\nnote=<b>");
    browser.click("form[action^='/s3/object/metadata'] button");
    browser.wait_for_text("The metadata is stored.");
    browser.wait_for_text("x-amz-meta-origin");
    let stored = admin.get("/cellar/note.txt").expect(200);
    assert_eq!(stored.text(), "a note");
    for (header, value) in [("cache-control", "max-age=60"), ("x-amz-meta-origin", "Jura"), ("x-amz-meta-note", "<b>")]
    {
        assert_eq!(stored.header(header), Some(value), "{header}");
    }
    // Another client writes while the form is open; the form comes back with what was typed.
    browser.open_forms();
    admin.put("/cellar/note.txt", "another note").expect(200);
    browser.type_into("#meta", "\nlate=1");
    browser.click("form[action^='/s3/object/metadata'] button");
    browser.wait_for_text("The object changed since this page was loaded.");
    let typed = browser.run("return document.querySelector(\"textarea[name='meta']\").value");
    assert!(typed.as_str().unwrap().contains("late=1"), "{typed}");
    let stored = admin.get("/cellar/note.txt").expect(200);
    assert_eq!((stored.text().as_str(), stored.header("x-amz-meta-late")), ("another note", None));
    assert!(browser.take_log().iter().all(|line| line.contains("409 (Conflict)")));
}

#[test]
fn a_map_within_maps_is_edited() {
    let Some(mut signed_in) = SignedIn::start() else { return };
    signed_in.node.admin().active_type("maps", r#"{"props":{"datatype":"map"}}"#);
    let mut client = signed_in.node.client();
    let update =
        r#"{"update":{"cellar_map":{"update":{"rack_map":{"update":{"woods_set":{"add_all":["oak","ash"]}}}}}}}"#;
    client.send(&HttpRequest::post_json("/types/maps/buckets/b/datatypes/m", update)).expect(204);
    signed_in.open("/object?type=maps&bucket=b&key=m");
    let browser = &mut signed_in.browser;
    let mut edit = |field: &str, kind: &str, value: &str, edit: &str| {
        for (name, choice) in [("within", "/cellar/rack"), ("kind", kind), ("edit", edit)] {
            browser.run(&format!("document.querySelector(\"select[name='{name}']\").value = '{choice}'"));
        }
        browser.type_into("input[name='field']", field);
        browser.type_into("input[name='value']", value);
        browser.click("form[action^='/object/update'] button");
        browser.wait_for_text("The value is stored.");
        assert_eq!(browser.run("return document.querySelector(\"select[name='within']\").value"), "/cellar/rack");
        client.get("/types/maps/buckets/b/datatypes/m").expect(200).json()["value"]["cellar_map"]["rack_map"].clone()
    };
    assert_eq!(edit("casks", "counter", "3", "add")["casks_counter"], 3);
    assert_eq!(edit("woods", "set", "oak", "remove")["woods_set"], serde_json::json!(["ash"]));
    assert!(edit("woods", "set", "", "drop").get("woods_set").is_none());
    assert_eq!(signed_in.browser.take_log(), Vec::<String>::new());
}

#[test]
fn an_upload_that_is_cancelled_leaves_nothing() {
    let Some(mut signed_in) = SignedIn::start() else { return };
    let mut admin = signed_in.node.s3_admin();
    admin.put("/cellar", "").expect(200);
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("large.bin");
    fs::write(&file, vec![7; 200 << 20]).unwrap();
    signed_in.open("/s3/bucket?bucket=cellar");
    let browser = &mut signed_in.browser;
    browser.type_into("#file", file.to_str().unwrap());
    browser.click("form.upload button[type='submit']");
    browser.wait_for_text("Cancel");
    browser.click(".transfers button");
    browser.wait_for_text("Cancelled.");
    wait_for("no open upload", LIVE, || {
        let open = admin.get("/cellar?uploads").expect(200).text();
        if open.contains("<Upload>") { Err(open) } else { Ok(()) }
    });
    admin.get("/cellar/large.bin").expect(404);
}

#[test]
fn the_settings_of_a_bucket_and_a_user_are_changed() {
    let Some(mut signed_in) = SignedIn::start() else { return };
    let mut admin = signed_in.node.s3_admin();
    admin.put("/cellar", "").expect(200);
    signed_in.open("/s3/settings?bucket=cellar");
    let browser = &mut signed_in.browser;
    browser.click("form[action^='/s3/settings/versioning'] button");
    browser.wait_for_text("Enabled: every put adds a version.");
    browser.open_forms();
    browser.type_into("input[name='bytes']", "10 MiB");
    browser.click("form[action^='/s3/settings/quota'] button");
    browser.wait_for_text("of 10.0 MiB");
    browser.open_forms();
    browser.type_into("input[name='id']", "old");
    browser.type_into("input[name='days']", "30");
    browser.click("form[action^='/s3/settings/lifecycle/add'] button");
    browser.wait_for_text("objects expire after 30 days");
    browser.open_forms();
    browser.type_into("#policy", "{\"Version\": nonsense}");
    browser.click("form[action^='/s3/settings/policy'] button");
    browser.wait_for_text("What you entered");
    assert!(admin.get("/cellar?versioning").expect(200).text().contains("<Status>Enabled</Status>"));
    assert!(admin.get("/cellar?lifecycle").expect(200).text().contains("<Days>30</Days>"));
    admin.get("/cellar?policy").expect(404);
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::cellar/*"}]}"#;
    browser.run("document.querySelector(\"textarea[name='policy']\")?.remove(); document.querySelector(\"input[name='policy']\").value = ''");
    browser.type_into("input[name='policy']", policy);
    browser.click("main form button");
    browser.wait_for_text("Anyone may do what this policy allows to all.");
    assert!(admin.get("/cellar?policy").expect(200).text().contains("s3:GetObject"));
    browser.click("form[action^='/s3/settings/lifecycle/remove'] button");
    browser.wait_for_text("No rules");

    signed_in.open("/s3/users");
    let browser = &mut signed_in.browser;
    browser.type_into("#name", "Ann");
    browser.type_into("#email", "ann@example.org");
    browser.click("form[action='/s3/users/create'] button");
    browser.wait_for_text("The secret is shown now, and not again.");
    let ann = browser.run("return document.querySelector('#key-id').textContent").as_str().unwrap().to_owned();
    // Her card, among those of others.
    let card = format!("form:has(input[name='id'][value='{ann}'])");
    signed_in.open("/s3/users");
    let browser = &mut signed_in.browser;
    browser.open_forms();
    browser.type_into(&format!("{card}[action='/s3/keys/create'] input[name='buckets']"), "cellar");
    browser.run("document.querySelectorAll(\"select[name='rights']\").forEach((choice) => { choice.value = 'reads' })");
    browser.click(&format!("{card}[action='/s3/keys/create'] button"));
    browser.wait_for_text("The key is added");
    signed_in.open("/s3/users");
    let browser = &mut signed_in.browser;
    browser.wait_for_text("reads only; buckets cellar");
    browser.click("form[action='/s3/keys/revoke'] button");
    browser.wait_for_text("The key is revoked.");
    for (path, done) in [
        ("/s3/users/switch", "The user's requests are refused from now on."),
        ("/s3/users/switch", "The user's requests are accepted again."),
        ("/s3/users/rotate", "The secret is replaced"),
        ("/s3/users/delete", "The user is deleted."),
    ] {
        signed_in.open("/s3/users");
        let browser = &mut signed_in.browser;
        browser.open_forms();
        browser.click(&format!("{card}[action='{path}'] button"));
        browser.wait_for_text(done);
    }
    signed_in.open("/s3/settings?bucket=cellar");
    let browser = &mut signed_in.browser;
    browser.type_into("#confirm", "cellar");
    browser.click("form[action^='/s3/delete'] button");
    browser.wait_for_text("The bucket is deleted.");
    admin.get("/cellar?versioning").expect(404);
    // Refused forms are the only lines.
    assert!(browser.take_log().iter().all(|line| line.contains("400 (Bad Request)")));
}

#[test]
fn objects_data_types_indexes_and_grants_are_changed() {
    let Some(mut signed_in) = SignedIn::start() else { return };
    for (name, kind) in [("maps", "map"), ("counters", "counter"), ("sets", "set"), ("hlls", "hll")] {
        signed_in.node.admin().active_type(name, &format!(r#"{{"props":{{"datatype":"{kind}"}}}}"#));
    }
    let mut client = signed_in.node.client();
    let put = HttpRequest::put("/buckets/teas/keys/sencha", "green").header("Content-Type", "text/plain");
    client.send(&put.header("X-Riak-Index-Age_Int", "7")).expect(204);
    signed_in.open("/keys?type=default&bucket=teas");
    let browser = &mut signed_in.browser;
    browser.open_forms();
    browser.type_into("form[action^='/object/create'] input[name='key']", "assam");
    browser.type_into("#new-value", "{\"kind\": \"black\"}");
    browser.click("form[action^='/object/create'] button");
    browser.wait_for_text("The value is stored.");
    assert_eq!(client.get("/buckets/teas/keys/assam").expect(200).text(), "{\"kind\": \"black\"}");
    signed_in.open("/keys?type=default&bucket=teas");
    let browser = &mut signed_in.browser;
    browser.open_forms();
    browser.type_into("input[name='field']", "age_int");
    browser.type_into("input[name='from']", "7");
    browser.click("form.query button");
    browser.wait_for_text("sencha");

    signed_in.open("/object?type=maps&bucket=b&key=m");
    let browser = &mut signed_in.browser;
    browser.type_into("input[name='field']", "visits");
    browser.run("document.querySelector(\"select[name='kind']\").value = 'counter'");
    browser.type_into("input[name='value']", "3");
    browser.click("form[action^='/object/update'] button");
    browser.wait_for_text("The value is stored.");
    let map = client.get("/types/maps/buckets/b/datatypes/m").expect(200).json();
    assert_eq!(map["value"]["visits_counter"], 3);
    for (kind, field, value, shown) in [
        ("counters", "amount", "2", "12"),
        ("sets", "element", "oak", "oak"),
        ("hlls", "element", "oak", "about so many"),
    ] {
        signed_in.open(&format!("/object?type={kind}&bucket=b&key=k"));
        let browser = &mut signed_in.browser;
        browser.type_into(&format!("input[name='{field}']"), value);
        browser.click("form[action^='/object/update'] button");
        browser.wait_for_text("The value is stored.");
        browser.wait_for_text(shown);
    }
    signed_in.open("/object?type=default&bucket=teas&key=assam");
    let browser = &mut signed_in.browser;
    let read = "const request = new XMLHttpRequest(); \
                request.open('GET', document.querySelector(\"a[href^='/object/value']\").href, false); request.send(); \
                return request.responseText";
    assert_eq!(browser.run(read), "{\"kind\": \"black\"}");
    browser.open_forms();
    browser.click("form[action^='/object/delete'] button");
    browser.wait_for_text("The object is deleted.");
    client.get("/buckets/teas/keys/assam").expect(404);

    signed_in.open("/security");
    let browser = &mut signed_in.browser;
    browser.open_forms();
    browser.type_into("form[action='/security/roles/add'] input[name='role']", "ann");
    browser.type_into("form[action='/security/roles/add'] input[name='password']", "a-secret");
    browser.click("form[action='/security/roles/add'] button");
    browser.wait_for_text("The change is made, on every node.");
    browser.open_forms();
    browser.type_into("form[action='/security/grants'] input[name='roles']", "ann");
    browser.click("form[action='/security/grants'] button");
    browser.wait_for_text("riak_kv.get");
    browser.open_forms();
    browser.type_into("form[action='/security/sources/add'] input[name='network']", "10.0.0.0/8");
    browser.click("form[action='/security/sources/add'] button");
    browser.wait_for_text("10.0.0.0/8");
    browser.click("form[action='/security/switch'] button");
    browser.wait_for_text("Enabled: a request needs a user");
    client.get("/buckets/teas/keys/sencha").expect(426);
    browser.click("form[action='/security/switch'] button");
    browser.wait_for_text("Disabled: requests are taken");
    browser.open_forms();
    browser.click("form[action='/security/roles/delete'] button");
    browser.wait_for_text("The change is made, on every node.");
    signed_in.open("/log");
    signed_in.browser.wait_for_text("console AddRole ann");
    assert_eq!(signed_in.browser.take_log(), Vec::<String>::new());
}

#[test]
fn the_overview_is_live_and_a_hostile_name_does_not_run() {
    let Some(mut signed_in) = SignedIn::start() else { return };
    let mut client = signed_in.node.client();
    signed_in.open("/");
    signed_in.browser.wait_for_text("Problems now");
    // The first event of the stream says so.
    wait_for("live figures", LIVE, || {
        let state = signed_in.browser.run("return document.querySelector('[data-live-state]').textContent");
        if state == "live" { Ok(()) } else { Err(state) }
    });
    let put = HttpRequest::put(&format!("/buckets/b/keys/{HOSTILE}"), "v").header("Content-Type", "text/plain");
    client.send(&put).expect(204);
    for path in ["/keys?type=default&bucket=b".to_owned(), format!("/object?type=default&bucket=b&key={HOSTILE}")] {
        signed_in.open(&path);
        signed_in.browser.wait_for_text("<img src=x");
        assert_eq!(signed_in.browser.run("return document.images.length"), 0);
        assert_ne!(signed_in.browser.run("return document.title"), "run");
    }
    // The policy of the page refuses a script that would be put into it all the same.
    let inline = "const s = document.createElement('script'); s.textContent = 'document.title = \"run\"'; \
                  document.body.append(s); return document.title";
    assert_ne!(signed_in.browser.run(inline), "run");
    assert!(signed_in.browser.take_log().iter().any(|line| line.contains("Content Security Policy")));
}

#[test]
fn each_page_fits_its_window() {
    let Some(mut signed_in) = SignedIn::start() else { return };
    let admin = signed_in.node.admin();
    admin.active_type("drinks", r#"{"props":{"n_val":2,"r":1}}"#);
    admin.active_type("maps", r#"{"props":{"datatype":"map"}}"#);
    let mut client = signed_in.node.client();
    for value in ["green, from Uji", "black, from Assam"] {
        let put = HttpRequest::put("/types/drinks/buckets/teas/keys/sencha", value);
        client.send(&put.header("Content-Type", "text/plain").header("X-Riak-Meta-Origin", "a field")).expect(204);
    }
    let update = r#"{"update":{"name_register":"Ann","visits_counter":3,"inner_map":{"update":{"on_flag":"enable","deep_map":{"update":{"note_register":"x"}}}}}}"#;
    client.send(&HttpRequest::post_json("/types/maps/buckets/b/datatypes/m", update)).expect(204);
    let mut s3 = signed_in.node.s3_admin();
    for (target, body) in [
        ("/cellar", &b""[..]),
        (
            "/cellar/racks/first/a-key-with-quite-a-long-name-that-has-no-space-at-all.json",
            br#"{"kind": "oak", "litres": [225, 300]}"#,
        ),
        ("/cellar/note.txt", b"a note"),
        ("/cellar/large.bin", &[7; 300_000]),
    ] {
        s3.put(target, body).expect(200);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/console");
    fs::create_dir_all(&folder).unwrap();
    let pages = [
        ("overview", "/"),
        ("types", "/types"),
        ("type", "/type?type=drinks"),
        ("keys", "/keys?type=drinks&bucket=teas"),
        ("siblings", "/object?type=drinks&bucket=teas&key=sencha"),
        ("map", "/object?type=maps&bucket=b&key=m"),
        ("s3", "/s3"),
        ("bucket", "/s3/bucket?bucket=cellar"),
        ("folder", "/s3/bucket?bucket=cellar&prefix=racks%2Ffirst%2F"),
        ("settings", "/s3/settings?bucket=cellar"),
        (
            "s3-object",
            "/s3/object?bucket=cellar&key=racks%2Ffirst%2Fa-key-with-quite-a-long-name-that-has-no-space-at-all.json",
        ),
        ("uploads", "/s3/uploads?bucket=cellar"),
        ("users", "/s3/users"),
        ("index", "/keys/index?type=default&bucket=none&field=age_int&from=1&to=9"),
        ("security", "/security"),
        ("log", "/log"),
        ("jobs", "/jobs"),
        ("move", "/move"),
    ];
    for (scheme, width) in [("light", 1280), ("light", 400), ("dark", 1280), ("dark", 400)] {
        signed_in.browser.show_as(width, scheme);
        for (name, path) in pages {
            signed_in.open(path);
            // With every form open: what is closed fits anyway.
            signed_in.browser.open_forms();
            let wide = signed_in.browser.run("return document.documentElement.scrollWidth").as_u64().unwrap();
            assert!(wide <= u64::from(width), "{name} is {wide} wide in {width}");
            assert_eq!(signed_in.browser.run("return document.querySelectorAll('h1').length"), 1, "{name}");
            signed_in.browser.save_picture(&folder.join(format!("{name}-{width}-{scheme}.png")));
        }
    }
    assert_eq!(signed_in.browser.take_log(), Vec::<String>::new());
}
