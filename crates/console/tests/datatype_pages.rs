//! Edits of data types over HTTP: each type, maps within maps, and what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use larder_testkit::http::HttpResponse;

use crate::support::{TestBrowser, TestConsole, field};

/// A console with a type for each of these data types, and its browser.
fn with_types(kinds: &[&str]) -> (TestConsole, TestBrowser) {
    let console = TestConsole::start(false);
    let mut browser = console.browser();
    for kind in kinds {
        browser.post("/types/create", &[("type", kind.as_bytes()), ("kind", kind.as_bytes())]).expect(303);
        browser.post(&format!("/type/activate?type={kind}"), &[]).expect(303);
    }
    (console, browser)
}

/// Sends the form of a page, with the context that it has.
fn send(browser: &mut TestBrowser, kind: &str, page: &str, fields: &[(&str, &[u8])]) -> HttpResponse {
    let context = if page.contains("name=\"context\"") { field(page, "context") } else { String::new() };
    let context = [("context", context.as_bytes())];
    let fields: Vec<(&str, &[u8])> = fields.iter().chain(&context).copied().collect();
    browser.post(&format!("/object/update?type={kind}&bucket=b&key=k"), &fields)
}

/// Loads the page, sends its form, and loads it again.
fn update(browser: &mut TestBrowser, kind: &str, fields: &[(&str, &[u8])], status: u16) -> String {
    let target = format!("/object?type={kind}&bucket=b&key=k");
    let page = browser.page(&target);
    send(browser, kind, &page, fields).expect(status);
    browser.page(&target)
}

/// An edit of a field of a map within others.
fn edit<'a>(within: &'a str, name: &'a str, kind: &'a str, value: &'a str, edit: &'a str) -> [(&'a str, &'a [u8]); 5] {
    let (within, name, kind) = (within.as_bytes(), name.as_bytes(), kind.as_bytes());
    [("within", within), ("field", name), ("kind", kind), ("value", value.as_bytes()), ("edit", edit.as_bytes())]
}

#[test]
fn data_types_are_edited() {
    let (console, mut browser) = with_types(&["counter", "set", "hll", "map"]);
    let mut update = |kind: &str, fields: &[(&str, &[u8])], status| update(&mut browser, kind, fields, status);
    update("counter", &[("amount", b"7")], 303);
    assert!(update("counter", &[("amount", b"-2")], 303).contains("<p class=\"big\">5</p>"));
    update("counter", &[("amount", b"many")], 400);
    update("set", &[("element", b"oak"), ("edit", b"add")], 303);
    assert!(update("set", &[("element", b"ash"), ("edit", b"add")], 303).contains("<code>oak</code>"));
    update("set", &[("element", b"elm"), ("edit", b"remove")], 400);
    assert!(!update("set", &[("element", b"oak"), ("edit", b"remove")], 303).contains("<code>oak</code>"));
    assert!(update("hll", &[("element", b"oak")], 303).contains("<p class=\"big\">1</p>"));
    update("map", &edit("", "name", "register", "Ann", "add"), 303);
    update("map", &edit("", "visits", "counter", "3", "add"), 303);
    update("map", &edit("", "tags", "set", "new", "add"), 303);
    let page = update("map", &edit("", "open", "flag", "true", "add"), 303);
    for text in ["<code>Ann</code>", "counter</span> 3<", "<code>new</code>", "flag</span> true<"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!update("map", &edit("", "name", "register", "", "drop"), 303).contains("Ann"));
    update("map", &edit("", "open", "flag", "maybe", "add"), 400);
    // Only of a set: it would assign an empty register.
    update("map", &edit("", "visits", "counter", "3", "remove"), 400);
    update("map", &edit("", "visits", "counter", "3", ""), 400);
    console.stop();
}

#[test]
fn fields_of_maps_within_maps_are_added_changed_and_removed() {
    let (console, mut browser) = with_types(&["map"]);
    let mut update = |fields: &[(&str, &[u8])], status| update(&mut browser, "map", fields, status);
    let page = update(&edit("", "cellar", "map", "", "add"), 303);
    assert!(page.contains("<option value=\"/cellar\">cellar</option>"), "{page}");
    update(&edit("/cellar", "rack/1", "map", "", "add"), 303);
    let page = update(&edit("/cellar/rack%2F1", "casks", "counter", "3", "add"), 303);
    assert!(page.contains("<option value=\"/cellar/rack%2F1\">cellar / rack/1</option>"), "{page}");
    let page = update(&edit("/cellar/rack%2F1", "casks", "counter", "-1", "add"), 303);
    assert!(page.contains("counter</span> 2<"), "{page}");
    update(&edit("/cellar", "woods", "set", "oak", "add"), 303);
    update(&edit("/cellar", "woods", "set", "ash", "remove"), 400);
    update(&edit("/cellar", "woods", "register", "", "drop"), 400);
    update(&edit("", "woods", "set", "", "drop"), 400);
    assert!(!update(&edit("/cellar", "woods", "set", "oak", "remove"), 303).contains("<code>oak</code>"));
    update(&edit("/cellar/rack%2F1", "open", "flag", "true", "add"), 303);
    assert!(update(&edit("/cellar/rack%2F1", "open", "flag", "false", "add"), 303).contains("flag</span> false<"));
    assert!(!update(&edit("/cellar/rack%2F1", "casks", "counter", "", "drop"), 303).contains("casks"));
    assert!(!update(&edit("/cellar", "rack/1", "map", "", "drop"), 303).contains("rack"));
    assert!(!update(&edit("", "cellar", "map", "", "drop"), 303).contains("cellar"));
    for refused in [
        edit("cellar", "a", "register", "", "add"),
        edit("", "a", "map", "text", "add"),
        edit("", "a", "map", "", "remove"),
        edit("", "a", "nothing", "", "add"),
    ] {
        update(&refused, 400);
    }
    update(&edit(&"/a".repeat(30_000), "a", "register", "", "add"), 400);
    update(&edit(&"/a".repeat(64), "a", "register", "", "add"), 400);
    // As deep as maps may be; a map within the last one is one too many.
    update(&edit(&"/a".repeat(63), "a", "register", "deep", "add"), 303);
    update(&edit(&"/a".repeat(63), "a", "map", "", "add"), 400);
    assert!(console.audit_lines().iter().any(|line| line == "console UpdateDatatype map/b/k done"));
    console.stop();
}

#[test]
fn an_element_that_came_after_the_page_survives_a_removal() {
    let (console, mut browser) = with_types(&["map", "set"]);
    update(&mut browser, "map", &edit("/m", "s", "set", "oak", "add"), 303);
    let stale = browser.page("/object?type=map&bucket=b&key=k");
    update(&mut browser, "map", &edit("/m", "s", "set", "ash", "add"), 303);
    send(&mut browser, "map", &stale, &edit("", "m", "map", "", "drop")).expect(303);
    let page = browser.page("/object?type=map&bucket=b&key=k");
    assert!(page.contains("<code>ash</code>") && !page.contains("<code>oak</code>"), "{page}");
    send(&mut browser, "map", "", &edit("", "m", "map", "", "drop")).expect(400);
    send(&mut browser, "map", "name=\"context\" value=\"bm9uZQ==\"", &edit("", "m", "map", "", "drop")).expect(400);

    // An element of another page of the set is removed, too.
    for at in 0..201 {
        let element = format!("e{at:03}");
        let add: [(&str, &[u8]); 2] = [("element", element.as_bytes()), ("edit", b"add")];
        browser.post("/object/update?type=set&bucket=b&key=k", &add).expect(303);
    }
    let page = browser.page("/object?type=set&bucket=b&key=k");
    assert!(!page.contains("<code>e200</code>"), "{page}");
    send(&mut browser, "set", &page, &[("element", b"e200"), ("edit", b"remove")]).expect(303);
    assert!(!browser.page("/object?type=set&bucket=b&key=k").contains("rel=\"next\""));
    console.stop();
}

#[test]
fn hostile_names_of_maps_are_text() {
    let (console, mut browser) = with_types(&["map"]);
    for (name, text) in [
        ("%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E", "&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("a%E2%80%AEb%0D%0Ac", "a\\x{202E}b\\x{D}\\x{A}c"),
        ("%FF", "\\x{FF}"),
        ("", "<option value=\"/\"></option>"),
    ] {
        let page = update(&mut browser, "map", &edit(&format!("/{name}"), "a", "register", "v", "add"), 303);
        assert!(page.contains(text), "{text}: {page}");
        assert_eq!(page.matches("<script").count(), 1, "{page}");
        let mut options = page.split("<option value=\"").skip(1);
        let option = options.find(|rest| rest.contains(text.trim_start_matches("<option value=\"")));
        let within = option.unwrap().split('"').next().unwrap().to_owned();
        let page = update(&mut browser, "map", &edit(&within, "a", "register", "", "drop"), 303);
        assert!(page.contains("no fields") || page.contains("A map."), "{page}");
    }
    console.stop();
}
