//! Notification configurations over the wire.

use larder_api_s3::S3Settings;
use larder_core::Config;
use larder_core::rules::event_target::EventTarget;
use larder_core::rules::props::WebhookUrl;
use larder_testkit::http::HttpResponse;

use crate::support::S3TestServer;

const NOTHING: &[(&str, &str)] = &[];
const PUT: &str = "<Event>s3:ObjectCreated:Put</Event>";

/// A server with one target of events, and a bucket.
fn with_target() -> S3TestServer {
    let url = WebhookUrl::parse("http://127.0.0.1:1/").unwrap();
    let target = EventTarget { id: "T".into(), url, authorization: None };
    let config = Config { event_targets: vec![target], ..Config::default() };
    let server = S3TestServer::start_with(config, S3Settings::default());
    assert_eq!(server.ask("PUT", "/box", NOTHING, b"").status, 200);
    server
}

fn queue(arn: &str, inner: &str) -> String {
    format!("<QueueConfiguration><Queue>{arn}</Queue>{inner}</QueueConfiguration>")
}

fn configure(server: &S3TestServer, headers: &[(&str, &str)], inner: &str) -> HttpResponse {
    let document = format!("<NotificationConfiguration>{inner}</NotificationConfiguration>");
    server.ask("PUT", "/box?notification", headers, document.as_bytes())
}

fn configured(server: &S3TestServer) -> String {
    let shown = server.ask("GET", "/box?notification", NOTHING, b"");
    assert_eq!(shown.status, 200, "{shown:?}");
    let text = shown.text();
    text.split_once("03-01/\">").map(|(_, inner)| inner.to_owned()).unwrap()
}

#[test]
fn a_configuration_comes_back_until_an_empty_one_takes_its_place() {
    let server = with_target();
    assert_eq!(configured(&server), "</NotificationConfiguration>");
    let filter = "<Filter><S3Key><FilterRule><Name>SUFFIX</Name><Value>.jpg</Value></FilterRule></S3Key></Filter>";
    let rule = queue("arn:minio:sqs::T:webhook", &format!("<Id>mine</Id>{PUT}{filter}"));
    assert_eq!(configure(&server, NOTHING, &rule).status, 200);
    let shown = configured(&server);
    let expected = format!(
        "<QueueConfiguration><Id>mine</Id><Queue>arn:minio:sqs::T:webhook</Queue>{PUT}{}</QueueConfiguration>\
         </NotificationConfiguration>",
        filter.replace("SUFFIX", "suffix")
    );
    assert_eq!(shown, expected);
    assert_eq!(configure(&server, NOTHING, &queue("arn:minio:sqs::T:webhook", PUT)).status, 200);
    assert!(!configured(&server).contains("<Id></Id>") && configured(&server).contains("<Id>"), "an id is made");
    assert_eq!(configure(&server, NOTHING, "").status, 200);
    assert_eq!(configured(&server), "</NotificationConfiguration>");
    server.stop();
}

#[test]
fn what_is_not_offered_is_refused_by_name() {
    let server = with_target();
    for (inner, code, named) in [
        (queue("arn:minio:sqs::U:webhook", PUT), "InvalidArgument", "<ArgumentName1>arn:minio:sqs::U:webhook<"),
        (queue("nonsense", PUT), "InvalidArgument", "The ARN could not be parsed"),
        (queue("arn:minio:sqs:elsewhere:T:webhook", PUT), "InvalidArgument", "different region"),
        (
            queue("arn:minio:sqs::T:webhook", "<Event>s3:ObjectAccessed:*</Event>"),
            "InvalidArgument",
            "s3:ObjectAccessed:*",
        ),
        ("<TopicConfiguration/>".into(), "UnsupportedNotification", "TopicConfiguration"),
        ("<EventBridgeConfiguration/>".into(), "NotImplemented", "EventBridgeConfiguration"),
    ] {
        let refused = configure(&server, NOTHING, &inner);
        let text = refused.text();
        assert!(text.contains(&format!("<Code>{code}</Code>")) && text.contains(named), "{inner}: {text}");
    }
    let skip = [("x-amz-skip-destination-validation", "true")];
    assert_eq!(configure(&server, &skip, &queue("arn:aws:sqs:eu:1:q", PUT)).status, 200);
    assert_eq!(configure(&server, &skip, &queue("nonsense", PUT)).status, 400);
    // Nothing is told to a target that the server does not know, and nothing waits for it.
    assert_eq!(server.ask("PUT", "/box/key", NOTHING, b"body").status, 200);
    assert_eq!(server.gateway.outbox().waiting(), 0);
    server.stop();
}

#[test]
fn a_write_whose_event_waits_is_answered_at_once_and_a_bucket_without_rules_has_none() {
    let server = with_target();
    assert_eq!(server.ask("PUT", "/quiet", NOTHING, b"").status, 200);
    assert_eq!(configure(&server, NOTHING, &queue("arn:minio:sqs::T:webhook", PUT)).status, 200);
    for key in 0..3 {
        assert_eq!(server.ask("PUT", &format!("/box/{key}"), NOTHING, b"body").status, 200);
        assert_eq!(server.ask("PUT", &format!("/quiet/{key}"), NOTHING, b"body").status, 200);
    }
    let backlogs = server.gateway.outbox().backlogs();
    let [backlog] = &backlogs[..] else { panic!("{backlogs:?}") };
    assert_eq!((backlog.bucket.bucket.as_ref(), backlog.waiting), (&b"box"[..], 3));
    server.stop();
}
