//! List Parts, signed by hand over a raw socket, element by element.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::harness::{HttpClient, LarderNode, S3_KEY, S3Client, SplitMix64, element};

/// One element: its name, and its text or its children.
#[derive(Debug, Clone, PartialEq, Eq)]
enum XmlElement {
    Leaf(String, String),
    Node(String, Vec<XmlElement>),
}

/// Reads the plain XML of S3 answers: attributes on the root only, no comments.
fn children(mut text: &str) -> Vec<XmlElement> {
    let mut found = Vec::new();
    while let Some(start) = text.find('<') {
        let rest = &text[start + 1..];
        let (tag, rest) = rest.split_once('>').expect("a tag ends");
        if let Some(empty) = tag.strip_suffix('/') {
            found.push(XmlElement::Leaf(empty.to_owned(), String::new()));
            text = rest;
            continue;
        }
        let name = tag.split(' ').next().unwrap_or_default().to_owned();
        let (inner, after) = rest.split_once(&format!("</{name}>")).expect("an element ends");
        found.push(match inner.contains('<') {
            true => XmlElement::Node(name, children(inner)),
            false => XmlElement::Leaf(name, inner.replace("&quot;", "\"")),
        });
        text = after;
    }
    found
}

fn name(xml: &XmlElement) -> &str {
    match xml {
        XmlElement::Leaf(name, _) | XmlElement::Node(name, _) => name,
    }
}

fn leaf<'a>(of: &'a [XmlElement], wanted: &str) -> &'a str {
    let found = of.iter().find_map(|xml| match xml {
        XmlElement::Leaf(name, text) if name == wanted => Some(text.as_str()),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no {wanted} in {of:?}"))
}

fn result(text: &str) -> Vec<XmlElement> {
    const START: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";
    let body = text.strip_prefix(START).unwrap_or_else(|| panic!("no declaration: {text}")).trim_start();
    let root = "<ListPartsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
    let body = body.strip_prefix(root).unwrap_or_else(|| panic!("another root: {text}"));
    children(body.strip_suffix("</ListPartsResult>").expect("the root ends"))
}

/// The day as clients of Riak CS write it, with one digit where one is enough.
fn short_date(now: SystemTime) -> String {
    let long = httpdate::fmt_http_date(now);
    let (weekday, rest) = long.split_once(", ").expect("a weekday");
    format!("{weekday}, {}", rest.trim_start_matches('0'))
}

fn upload_of_four(s3: &mut S3Client) -> (String, Vec<String>) {
    s3.put("/example-bucket", "").expect(200);
    let upload = s3.begin("/example-bucket/example-object");
    let bodies = ["one", "two two", "three three three", "4"];
    let etags =
        (1..).zip(bodies).map(|(number, body)| s3.part("/example-bucket/example-object", &upload, number, body));
    (upload.clone(), etags.collect())
}

/// Sends the request of the issue, with this date, and answers what came back.
fn send(node: &LarderNode, s3: &S3Client, upload: &str, date: &str) -> String {
    let target = format!("/example-object?uploadId={upload}&max-parts=2&part-number-marker=1");
    let signature = s3.signer.sign("GET", date, &[], &format!("/example-bucket/example-object?uploadId={upload}"));
    let port = node.s3_at().port();
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: example-bucket.localhost:{port}\r\nDate: {date}\r\n\
         Authorization: AWS {S3_KEY}:{signature}\r\nConnection: close\r\n\r\n"
    );
    let answer = HttpClient::raw(node.s3_at(), request.as_bytes()).expect("it answers");
    String::from_utf8(answer).expect("it is text")
}

#[test]
fn a_request_signed_by_hand_is_answered_element_by_element() {
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let mut s3 = node.s3_admin();
    let (upload, etags) = upload_of_four(&mut s3);
    let now = SystemTime::now();
    // Days of one digit, 1 to 9 of a month, are rarely within the allowed clock skew. So today's date is sent in both forms:
    // without its leading zero, and with two digits.
    for date in [short_date(now), httpdate::fmt_http_date(now)] {
        let answer = send(&node, &s3, &upload, &date);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 "), "{date}: {answer}");
        assert!(head.to_ascii_lowercase().contains("content-type: application/xml"), "{head}");
        let found = result(body);
        let names: Vec<&str> = found.iter().map(name).collect();
        assert_eq!(
            names,
            [
                "Bucket",
                "Key",
                "UploadId",
                "Initiator",
                "Owner",
                "StorageClass",
                "PartNumberMarker",
                "NextPartNumberMarker",
                "MaxParts",
                "IsTruncated",
                "Part",
                "Part"
            ]
        );
        for (wanted, text) in [
            ("Bucket", "example-bucket"),
            ("Key", "example-object"),
            ("UploadId", &upload),
            ("StorageClass", "STANDARD"),
            ("PartNumberMarker", "1"),
            ("NextPartNumberMarker", "3"),
            ("MaxParts", "2"),
            ("IsTruncated", "true"),
        ] {
            assert_eq!(leaf(&found, wanted), text, "{wanted}");
        }
        for owner in &found[3..5] {
            let XmlElement::Node(_, of) = owner else { panic!("{owner:?}") };
            assert_eq!(of.iter().map(name).collect::<Vec<_>>(), ["ID", "DisplayName"]);
            assert_eq!(leaf(of, "ID").len(), 64, "a canonical id: {of:?}");
            assert!(!leaf(of, "DisplayName").is_empty());
        }
        for (part, (number, size)) in found[10..].iter().zip([("2", "7"), ("3", "17")]) {
            let XmlElement::Node(_, of) = part else { panic!("{part:?}") };
            assert_eq!(of.iter().map(name).collect::<Vec<_>>(), ["PartNumber", "LastModified", "ETag", "Size"]);
            assert_eq!((leaf(of, "PartNumber"), leaf(of, "Size")), (number, size));
            assert_eq!(leaf(of, "ETag"), etags[number.parse::<usize>().unwrap() - 1]);
            let modified = leaf(of, "LastModified");
            let shape: String = modified.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            assert_eq!(shape, "0000-00-00T00:00:00.000Z", "{modified}");
        }
    }
}

#[test]
fn a_date_with_a_one_digit_day_is_read_as_that_day() {
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let mut s3 = node.s3_admin();
    let (upload, _) = upload_of_four(&mut s3);
    // A date far from now is parsed on any day of the month, so the refusal is about its distance only.
    let answer = send(&node, &s3, &upload, "Mon, 1 Nov 2010 20:34:56 GMT");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(element(&answer, "Code"), Some("RequestTimeTooSkewed"), "{answer}");
    let answer = send(&node, &s3, &upload, "no date at all");
    assert_eq!(element(&answer, "Code"), Some("AccessDenied"), "{answer}");
}

#[test]
fn pages_equal_those_of_a_model() {
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let mut s3 = node.s3_admin();
    s3.put("/model", "").expect(200);
    let mut random = SplitMix64::new(7);
    for round in 0..6 {
        let object = format!("/model/object-{round}");
        let upload = s3.begin(&object);
        let mut model = BTreeMap::new();
        for _ in 0..random.below(30) {
            let number = u32::try_from(random.below(if round % 2 == 0 { 20 } else { 10_000 }) + 1).unwrap();
            let length = random.below(50);
            let etag = s3.part(&object, &upload, number, random.bytes(length));
            model.insert(number, (etag, length));
        }
        for _ in 0..40 {
            let max = random.below(12);
            let marker = u32::try_from(random.below(if round % 2 == 0 { 22 } else { 10_001 })).unwrap();
            let answer = s3.get(&format!("{object}?uploadId={upload}&max-parts={max}&part-number-marker={marker}"));
            let found = result(&answer.expect(200).text());
            let wanted: Vec<_> = model.range(marker + 1..).collect();
            let page = &wanted[..wanted.len().min(max)];
            let listed: Vec<_> = found
                .iter()
                .filter_map(|xml| match xml {
                    XmlElement::Node(name, of) if name == "Part" => Some(of),
                    _ => None,
                })
                .map(|of| (leaf(of, "PartNumber").to_owned(), leaf(of, "ETag").to_owned(), leaf(of, "Size").to_owned()))
                .collect();
            let expected: Vec<_> = page
                .iter()
                .map(|(number, (etag, length))| (number.to_string(), etag.clone(), length.to_string()))
                .collect();
            assert_eq!(listed, expected, "max {max} marker {marker} of {model:?}");
            let truncated = max > 0 && wanted.len() > page.len();
            assert_eq!(leaf(&found, "IsTruncated"), truncated.to_string());
            let next = page.last().map_or(0, |(number, _)| **number);
            assert_eq!(leaf(&found, "NextPartNumberMarker"), next.to_string());
            assert_eq!(leaf(&found, "MaxParts"), max.to_string());
        }
    }
}

#[test]
fn a_bad_list_request_gets_the_error_of_s3() {
    let node = LarderNode::s3(&["--durability", "buffered"]);
    let mut s3 = node.s3_admin();
    let (upload, _) = upload_of_four(&mut s3);
    let object = "/example-bucket/example-object";
    let other = s3.begin("/example-bucket/other");
    let mut refused = |target: &str, status: u16, code: &str, extra: Option<(&str, &str)>| {
        let text = s3.get(target).expect(status).text();
        assert_eq!(element(&text, "Code"), Some(code), "{target}: {text}");
        if let Some((name, value)) = extra {
            assert_eq!(element(&text, name), Some(value), "{target}: {text}");
        }
    };
    let with = |more: &str| format!("{object}?uploadId={upload}&{more}");
    for bad in ["-1", "-2147483649", "abc", "2147483648", "1.5"] {
        refused(&with(&format!("max-parts={bad}")), 400, "InvalidArgument", Some(("ArgumentName", "max-parts")));
        let marker = format!("part-number-marker={bad}");
        refused(&with(&marker), 400, "InvalidArgument", Some(("ArgumentName", "part-number-marker")));
    }
    refused(&format!("{object}?uploadId="), 404, "NoSuchUpload", None);
    refused(&format!("{object}?uploadId=nonsense"), 404, "NoSuchUpload", Some(("UploadId", "nonsense")));
    refused(&format!("{object}?uploadId={other}"), 404, "NoSuchUpload", None);
    refused(&format!("/none/example-object?uploadId={upload}"), 404, "NoSuchBucket", None);
    for (asked, shown) in [("", "1000"), ("5000", "1000"), ("1000", "1000"), ("0", "0")] {
        let found = result(&s3.get(&with(&format!("max-parts={asked}"))).expect(200).text());
        assert_eq!(leaf(&found, "MaxParts"), shown);
        assert_eq!(leaf(&found, "IsTruncated"), "false");
    }
    s3.delete(&format!("{object}?uploadId={upload}")).expect(204);
    let text = s3.get(&with("max-parts=1")).expect(404).text();
    assert_eq!(element(&text, "Code"), Some("NoSuchUpload"), "{text}");
    let anonymous =
        HttpClient::new(node.s3_at()).get(&format!("/example-bucket/other?uploadId={other}")).expect(403).text();
    assert_eq!(element(&anonymous, "Code"), Some("AccessDenied"), "{anonymous}");
    let mut stranger = S3Client::new(node.s3_at(), S3_KEY, "not the secret");
    let text = stranger.get(&with("max-parts=1")).expect(403).text();
    assert_eq!(element(&text, "Code"), Some("SignatureDoesNotMatch"), "{text}");
}
