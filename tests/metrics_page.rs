//! `/metrics` and the alerts as Prometheus reads them: `promtool`, of Debian's package `prometheus`, checks both.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test fails by panicking, and looks for promtool on this machine"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac as _};
use sha2::Sha512;

use crate::harness::{HttpClient, HttpRequest, LarderNode, Process, S3_KEY, S3_SECRET};

const TIME: Duration = Duration::from_secs(60);

/// Runs promtool; `None` where it is not installed. `LARDER_PROMTOOL` names another one than that of the path.
fn promtool(args: &[&str], stdin: Option<&Path>) -> Option<()> {
    let program = std::env::var_os("LARDER_PROMTOOL").unwrap_or_else(|| "promtool".into());
    if Command::new(&program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        eprintln!("skipped: promtool is not installed");
        return None;
    }
    // A file as standard input: the harness gives its processes none.
    let mut command = Command::new("sh");
    let input = stdin.unwrap_or(Path::new("/dev/null"));
    command.args(["-c", "input=$1; shift; exec \"$@\" < \"$input\"", "sh"]).arg(input).arg(&program).args(args);
    let ended = Process::start(&mut command).wait_for_end(TIME);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{args:?} {ended:?}");
    Some(())
}

/// `larder server DIR` serves S3 alone, and had no metrics.
#[test]
fn metrics_have_a_listener_in_every_mode() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let node = LarderNode::s3(&["--durability", "buffered", "--metrics", &free.to_string()]);
    let mut scraper = HttpClient::new(free);
    let page = scraper.get("/metrics").expect(200);
    assert!(page.text().contains("\nlarder_ready 1\n"), "{}", page.text());
    assert_eq!(page.header("content-type"), Some("text/plain; version=0.0.4"));
    scraper.get("/stats").expect(404);
    scraper.put("/metrics", "").expect(405);
    scraper.send(&HttpRequest::get("/metrics").header("Host", "rebound.example")).expect(403);
    drop(node);
}

#[test]
fn every_metric_of_a_used_server_passes_the_lint_of_prometheus() {
    let node = LarderNode::s3(&["--durability", "buffered"]);
    node.client().put("/buckets/teas/keys/sencha", "green").expect(204);
    node.client().get("/buckets/teas/keys/sencha").expect(200);
    node.s3_admin().put("/teas", "").expect(200);
    let page = node.client().get("/metrics").expect(200).text();
    for sample in ["larder_requests_total{op=\"get\",outcome=\"ok\"} 1", "larder_s3_requests_total{op=\"CreateBucket\""]
    {
        assert!(page.contains(sample), "{sample} in\n{page}");
    }
    let families = page.lines().filter(|line| line.starts_with("# TYPE ")).count();
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    let known: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for sample in samples {
        let name = sample.split(['{', ' ']).next().unwrap();
        let bare = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        assert!(known.contains(&name) || bare.is_some_and(|bare| known.contains(&bare)), "{name} has no type");
    }
    assert!(families > 40, "{families}");
    let file = node.home().path().join("metrics");
    fs::write(&file, page).unwrap();
    let _ = promtool(&["check", "metrics"], Some(&file));
}

/// The token that `mc admin prometheus generate` makes of a key.
fn scraper_token(key: &str, secret: &str, expires: u64) -> String {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS512","typ":"JWT"}"#);
    let claims = URL_SAFE_NO_PAD.encode(format!(r#"{{"exp":{expires},"sub":"{key}","iss":"prometheus"}}"#));
    let mut mac = Hmac::<Sha512>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{header}.{claims}").as_bytes());
    format!("{header}.{claims}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

#[test]
fn scrapers_of_minio_read_the_metrics_with_a_token_of_the_admin() {
    const FAR: u64 = 4_000_000_000;
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let mut scraper = HttpClient::new(node.s3_at());
    let mut scrape = |token: Option<&str>, path: &str| {
        let request = HttpRequest::get(path);
        let request = match token {
            Some(token) => request.header("Authorization", &format!("Bearer {token}")),
            None => request,
        };
        scraper.send(&request)
    };
    let token = scraper_token(S3_KEY, S3_SECRET, FAR);
    for path in ["/minio/v2/metrics/cluster", "/minio/v2/metrics/node"] {
        let page = scrape(Some(&token), path).expect(200);
        assert!(page.text().contains("\nlarder_ready 1\n"), "{}", page.text());
        for refused in [
            None,
            Some(""),
            Some("a.b.c"),
            Some(&*scraper_token(S3_KEY, "another secret", FAR)),
            Some(&*scraper_token("nobody", S3_SECRET, FAR)),
            Some(&*scraper_token(S3_KEY, S3_SECRET, 1)),
        ] {
            assert!(scrape(refused, path).expect(403).text().contains("<Code>AccessDenied</Code>"));
        }
    }
    // A user that administers nothing.
    let made = node.admin().run(&["s3", "user", "create", "ann@example.org", "Ann", "--json"]).stdout;
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let (key, secret) = (made["key_id"].as_str().unwrap(), made["key_secret"].as_str().unwrap());
    scrape(Some(&scraper_token(key, secret, FAR)), "/minio/v2/metrics/cluster").expect(403);
    drop(node);

    let open = LarderNode::s3(&["--durability", "buffered", "--s3-metrics", "public"]);
    HttpClient::new(open.s3_at()).get("/minio/v2/metrics/cluster").expect(200);
}

#[test]
fn the_alerts_are_rules_of_prometheus() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/alerts.yaml");
    let _ = promtool(&["check", "rules", rules.to_str().unwrap()], None);
}
