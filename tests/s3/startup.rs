//! The first start: the banner, the admin's key, users.

use crate::harness::{Home, KvAdmin, LarderNode, Process, S3_KEY, S3_SECRET, S3Client};
use std::time::Duration;

/// Starts a server without keys in its environment, stops it, and returns its banner.
fn banner_of(home: &Home) -> String {
    let mut command = home.command(&["--s3", "127.0.0.1:0"]);
    command.env_remove("LARDER_S3_ADMIN_KEY").env_remove("LARDER_S3_ADMIN_SECRET");
    let mut process = Process::start(&mut command);
    let ready = |text: &str| text.contains("Ctrl-C stops").then(|| text.to_owned());
    let banner = process.wait_for(Duration::from_secs(30), ready).expect("a banner");
    process.terminate();
    assert_eq!(process.wait_for_end(Duration::from_secs(30)).code, Some(0));
    banner
}

#[test]
fn the_admins_key_is_made_once_and_never_shown_again() {
    let home = Home::new();
    let first = banner_of(&home);
    // Output that is no terminal may be stored: the key is in a file that only this user can read.
    let file = home.data().join("s3-admin-key");
    assert!(first.contains(&format!(". {}", file.display())) && !first.contains("SECRET"), "{first}");
    let lines = std::fs::read_to_string(&file).unwrap();
    let word = |name: &str| lines.split_once(name).map(|(_, rest)| rest.lines().next().unwrap_or_default().to_owned());
    let (key, secret) = (word("AWS_ACCESS_KEY_ID=").unwrap(), word("AWS_SECRET_ACCESS_KEY=").unwrap());
    assert_eq!((key.len(), secret.len()), (20, 40), "{first}");
    let again = banner_of(&home);
    assert!(!again.contains(&secret) && again.contains("s3 user create"), "{again}");
    let node = LarderNode::start_in(home, &["--s3", "127.0.0.1:0"]);
    // This start has another key in its environment, which becomes the admin's.
    node.s3_admin().get("/").expect(200);
    S3Client::new(node.s3_at(), &key, &secret).get("/").expect(403);
}

#[test]
fn users_are_created_shown_disabled_and_get_new_secrets() {
    let node = LarderNode::s3(&[]);
    let admin: KvAdmin = node.admin();
    let made = admin.run(&["s3", "user", "create", "ann@example.com", "Ann Other"]);
    let word = |text: &str, name: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
        line.trim().to_owned()
    };
    let (key, secret) = (word(&made.stdout, "key_id:"), word(&made.stdout, "key_secret:"));
    let mut ann = S3Client::new(node.s3_at(), &key, &secret);
    ann.put("/anns", "").expect(200);
    assert_eq!(admin.run(&["s3", "user", "create", "ann@example.com", "Again"]).code, Some(1));
    let shown = admin.run(&["s3", "user", "show", "ann@example.com"]).stdout;
    assert!(shown.contains(&key) && !shown.contains(&secret), "{shown}");
    let listed = admin.run(&["s3", "user", "list"]).stdout;
    assert!(listed.contains("ann@example.com") && listed.contains(&format!("{S3_KEY} ")), "{listed}");
    let rotated = admin.run(&["s3", "user", "rotate-key", &key]).stdout;
    let new = word(&rotated, "key_secret:");
    assert_eq!(ann.get("/anns").expect(403).element("Code"), Some("SignatureDoesNotMatch"));
    let mut ann = S3Client::new(node.s3_at(), &key, &new);
    ann.get("/anns").expect(200);
    assert_eq!(admin.run(&["s3", "user", "disable", &key]).stdout, format!("{key} disabled\n"));
    assert_eq!(ann.get("/anns").expect(403).element("Code"), Some("AccessDenied"));
    admin.run(&["s3", "user", "enable", "ann@example.com"]);
    ann.get("/anns").expect(200);
    let owner = admin.run(&["s3", "user", "delete", "ann@example.com"]);
    assert!(owner.code == Some(1) && owner.stderr.contains("buckets"), "{owner:?}");
    ann.delete("/anns").expect(204);
    assert_eq!(admin.run(&["s3", "user", "delete", "ann@example.com"]).stdout, format!("{key} removed\n"));
    assert_eq!(ann.get("/anns").expect(403).element("Code"), Some("InvalidAccessKeyId"));
    let last = admin.run(&["s3", "user", "delete", S3_KEY]);
    assert!(last.code == Some(1) && last.stderr.contains("is an administrator"), "{last:?}");
    for nobody in ["show", "delete"] {
        assert_eq!(admin.run(&["s3", "user", nobody, "ann@example.com"]).code, Some(1), "{nobody}");
    }
}

#[test]
fn a_key_without_its_secret_is_refused_at_the_start() {
    let home = Home::new();
    let mut command = home.command(&["--s3", "127.0.0.1:0"]);
    command.env_remove("LARDER_S3_ADMIN_SECRET");
    let ended = Process::start(&mut command).wait_for_end(Duration::from_secs(30));
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("s3-admin-secret") && !ended.stderr.contains(S3_SECRET), "{}", ended.stderr);
}

#[test]
fn requests_through_a_proxy_name_the_whole_url() {
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let mut s3 = node.s3_admin();
    s3.put("/proxied", "").expect(200);
    s3.put("/proxied/key", "body").expect(200);
    let date = httpdate::fmt_http_date(std::time::SystemTime::now());
    let signature = s3.signer.sign("GET", &date, &[], "/proxied/key");
    let request = format!(
        "GET http://proxied.s3.amazonaws.com/key HTTP/1.1\r\nHost: proxied.s3.amazonaws.com\r\nDate: {date}\r\n\
         Authorization: AWS {S3_KEY}:{signature}\r\nConnection: close\r\n\r\n"
    );
    let answer = crate::harness::HttpClient::raw(node.s3_at(), request.as_bytes()).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nbody"), "{answer}");
}

#[test]
fn the_admin_api_of_riak_cs_answers() {
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let mut s3 = node.s3_admin();
    assert_eq!(crate::harness::HttpClient::new(node.s3_at()).get("/riak-cs/ping").expect(200).text(), "OK");
    crate::harness::HttpClient::new(node.s3_at()).get("/riak-cs/users").expect(403);
    let json = [("Content-Type", "application/json"), ("Accept", "application/json")];
    let body = r#"{"email":"bob@example.com","name":"Bob"}"#;
    let made = s3.call("POST", "/riak-cs/user", &json, body).expect(201).json();
    let key = made["key_id"].as_str().unwrap().to_owned();
    assert_eq!(made["display_name"], "bob");
    s3.call("POST", "/riak-cs/user", &json, body).expect(409);
    let mut bob = S3Client::new(node.s3_at(), &key, made["key_secret"].as_str().unwrap());
    assert_eq!(bob.call("GET", "/riak-cs/user", &json[1..], "").expect(200).json()["key_id"], key.as_str());
    bob.call("GET", "/riak-cs/users", &json[1..], "").expect(403);
    let users = s3.call("GET", "/riak-cs/users", &json[1..], "").expect(200);
    assert!(users.header("Content-Type").unwrap().starts_with("multipart/mixed; boundary="));
    assert!(users.text().contains("bob@example.com"));
    bob.put("/bobs", "").expect(200);
    bob.put("/bobs/key", "12345").expect(200);
    let usage = bob.call("GET", &format!("/riak-cs/usage/{key}?b&j"), &[], "").expect(200).json();
    assert!(usage["Storage"].to_string().contains(r#""Bytes":5"#), "{usage}");
    assert!(s3.call("GET", "/riak-cs/stats", &json[1..], "").expect(200).json().is_object());
    let off = s3.call("PUT", &format!("/riak-cs/user/{key}"), &json, r#"{"status":"disabled"}"#).expect(200);
    assert_eq!(off.json()["status"], "disabled");
    bob.get("/bobs/key").expect(403);
}
