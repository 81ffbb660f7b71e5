//! The console in a real browser: each page, a type from creation to activation, a sibling kept, an upload aborted. Pictures of
//! the pages go to `target/console`, narrow and wide, light and dark.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::harness::{HttpRequest, LarderNode, TestEngine, WebBrowser, wait_for};

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
    let update = r#"{"update":{"name_register":"Ann","visits_counter":3,"inner_map":{"update":{"on_flag":"enable"}}}}"#;
    client.send(&HttpRequest::post_json("/types/maps/buckets/b/datatypes/m", update)).expect(204);
    signed_in.node.s3_admin().put("/cellar", "").expect(200);
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
        ("uploads", "/s3/uploads?bucket=cellar"),
        ("users", "/s3/users"),
        ("jobs", "/jobs"),
    ];
    for (scheme, width) in [("light", 1280), ("light", 400), ("dark", 1280), ("dark", 400)] {
        signed_in.browser.show_as(width, scheme);
        for (name, path) in pages {
            signed_in.open(path);
            let wide = signed_in.browser.run("return document.documentElement.scrollWidth").as_u64().unwrap();
            assert!(wide <= u64::from(width), "{name} is {wide} wide in {width}");
            assert_eq!(signed_in.browser.run("return document.querySelectorAll('h1').length"), 1, "{name}");
            signed_in.browser.save_picture(&folder.join(format!("{name}-{width}-{scheme}.png")));
        }
    }
    assert_eq!(signed_in.browser.take_log(), Vec::<String>::new());
}
