//! Documents as sources write them, and those that no source should.

use larder_api_s3::xml::XmlWriter;
use proptest::prelude::*;

use super::*;

const PLAIN: Timestamp = Timestamp(1_700_000_000_000_000);
const DATE: &str = "2023-11-14T22:13:20.000Z";

fn version(key: &str, id: &str, is_latest: bool) -> SourceVersion {
    SourceVersion {
        key: Bytes::copy_from_slice(key.as_bytes()),
        version_id: Some(id.to_owned()),
        is_latest,
        is_marker: false,
        etag: "e-2".into(),
        length: 7,
        modified: PLAIN,
    }
}

fn version_xml(key: &str, id: &str, is_latest: bool) -> String {
    format!(
        "<Version><Key>{key}</Key><VersionId>{id}</VersionId><IsLatest>{is_latest}</IsLatest><LastModified>{DATE}\
         </LastModified><ETag>&quot;e-2&quot;</ETag><Size>7</Size><Owner><ID>o</ID></Owner></Version>"
    )
}

fn marker_xml(key: &str, id: &str) -> String {
    format!(
        "<DeleteMarker><Owner/><Key>{key}</Key><VersionId>{id}</VersionId><IsLatest>true</IsLatest>\
         <LastModified>{DATE}</LastModified></DeleteMarker>"
    )
}

fn listing(root: &str, children: &str) -> String {
    format!("<?xml version=\"1.0\"?>\n<{root} xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{children}</{root}>")
}

fn versions(children: &str) -> Result<VersionPage, ListingError> {
    VersionPage::versions(listing("ListVersionsResult", children).as_bytes()).map(Option::unwrap)
}

#[test]
fn versions_and_markers_come_in_the_order_of_the_source() {
    let children = format!(
        "<Name>b</Name><IsTruncated>true</IsTruncated>{}{}{}<NextKeyMarker>c%2B%2F+d%20e</NextKeyMarker>\
         <NextVersionIdMarker>%41+</NextVersionIdMarker><CommonPrefixes><Prefix>p</Prefix></CommonPrefixes>\
         <EncodingType>url</EncodingType>",
        marker_xml("a%20b", "2"),
        version_xml("a%20b", "1+%2B", false),
        version_xml("%00%ff", "null", true)
    );
    let page = versions(&children).unwrap();
    let marker = SourceVersion { is_marker: true, etag: String::new(), length: 0, ..version("a b", "2", true) };
    let odd = SourceVersion { key: Bytes::from_static(b"\0\xff"), ..version("", "null", true) };
    // Names alone are encoded, and only if the source says so, wherever it does; ids are not.
    assert_eq!(page.versions, [marker, version("a b", "1+%2B", false), odd]);
    let next = SourceVersionMarker { key: Bytes::from_static(b"c+/ d e"), version: Some("%41+".into()) };
    assert_eq!(page.next, Some(next));
}

#[test]
fn a_source_that_ignores_the_encoding_has_its_names_as_they_stand() {
    for encoding in ["", "<EncodingType/>", "<EncodingType>none</EncodingType>"] {
        let children = format!(
            "{encoding}<IsTruncated>false</IsTruncated>{}<NextKeyMarker>x</NextKeyMarker>",
            version_xml("a%20+&#x1;&amp;é", "v", true)
        );
        let page = versions(&children).unwrap();
        // A page that is not truncated is the last one, whatever it says beside that.
        assert_eq!((page.versions, page.next), (vec![version("a%20+\u{1}&é", "v", true)], None));
    }
}

#[test]
fn a_truncated_page_without_a_marker_goes_on_after_its_last_entry() {
    let truncated = "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>";
    let page = versions(&format!("{truncated}{}", version_xml("%41", "7", true))).unwrap();
    let marker = |version| Some(SourceVersionMarker { key: Bytes::from_static(b"A"), version });
    assert_eq!(page.next, marker(Some("7".to_owned())));
    let contents = format!("<Contents><Key>%41</Key><LastModified>{DATE}</LastModified><Size>7</Size></Contents>");
    let objects = listing("ListBucketResult", &format!("{truncated}{contents}"));
    let page = VersionPage::objects(objects.as_bytes()).unwrap();
    assert_eq!(page.next, marker(None));
    let object = SourceVersion { version_id: None, etag: String::new(), ..version("A", "", true) };
    assert_eq!(page.versions, [object]);
    assert_eq!(VersionPage::versions(objects.as_bytes()), Ok(None));
    // A page that says that there is more, but not where, would be asked for again and again.
    assert_eq!(versions(truncated), Err(ListingError::Form));
}

#[test]
fn the_dates_of_sources_are_read_with_their_fractions() {
    for (text, expected) in [
        ("2023-11-14T22:13:20.123Z", PLAIN + 123_000),
        ("2023-11-14T22:13:20.123456789Z", PLAIN + 123_456),
        ("2023-11-14T22:13:20Z", PLAIN),
        ("Tue, 14 Nov 2023 22:13:20 GMT", PLAIN),
        ("0001-01-01T00:00:00Z", Timestamp::ZERO),
    ] {
        assert_eq!(time(text).ok(), Some(expected), "{text}");
    }
    assert!(time("soon").is_err() && time("").is_err());
}

#[test]
fn etags_have_no_quotes() {
    for text in ["\"e\"", "e", " \"e\" ", "W/\"e\""] {
        assert_eq!(unquoted(text), "e");
    }
}

#[test]
fn hostile_listings_are_errors() {
    let ended = "<IsTruncated>false</IsTruncated>";
    let entry = version_xml("k", "1", true);
    let children = [
        "",
        "<IsTruncated>maybe</IsTruncated>",
        "<IsTruncated>false</IsTruncated",
        &format!("{ended}<Version/>"),
        &format!("{ended}{}", entry.replace("<Key>k</Key>", "")),
        &format!("{ended}{}", entry.replace("<Key>k</Key>", "<Key/>")),
        &format!("{ended}{}", entry.replace(">7<", ">-7<")),
        &format!("{ended}{}", entry.replace(">7<", ">18446744073709551616<")),
        &format!("{ended}{}", entry.replace(DATE, "yesterday")),
        &format!("{ended}{}", entry.replace("<Size>7</Size>", "")),
        &format!("{ended}{}", entry.replace("<VersionId>1</VersionId>", "").replace("true", "false")),
        &format!("{ended}{}", version_xml(&"k".repeat(KEY_BYTES_MAX + 1), "1", true)),
        &format!("{ended}{}", version_xml("k", &"1".repeat(VERSION_ID_BYTES_MAX + 1), true)),
        &format!("{ended}{}", entry.replace('k', "<b/>")),
        &format!("{ended}{}", entry.replace(">k<", ">&bomb;<")),
        &format!("{ended}{}", "<a>".repeat(100_000)),
    ];
    for children in children {
        let shown = &children[..children.len().min(200)];
        assert_eq!(versions(children), Err(ListingError::Form), "{shown}");
    }
    let whole = listing("ListVersionsResult", &format!("{ended}{entry}"));
    assert!(VersionPage::versions(whole.as_bytes()).is_ok());
    for end in 0..whole.len() {
        assert_eq!(VersionPage::versions(&whole.as_bytes()[..end]), Err(ListingError::Form), "{end}");
    }
    for document in ["", "<a/>", "{}", "<!DOCTYPE a [<!ENTITY a \"b\">]><ListVersionsResult/>", "<ListBucketsResult/>"]
    {
        assert_eq!(VersionPage::versions(document.as_bytes()), Err(ListingError::Form), "{document}");
        assert_eq!(VersionPage::objects(document.as_bytes()), Err(ListingError::Form), "{document}");
    }
}

#[test]
fn buckets_have_names_and_a_page_may_have_a_next_one() {
    let page = |children: &str| BucketNames::read(listing("ListAllMyBucketsResult", children).as_bytes());
    let bucket = |name: &str| format!("<Bucket><CreationDate>x</CreationDate><Name>{name}</Name></Bucket>");
    let two = format!("<Owner><ID>o</ID></Owner><Buckets>{}{}</Buckets>", bucket("a"), bucket("b.c"));
    let names = vec!["a".to_owned(), "b.c".to_owned()];
    assert_eq!(page(&two), Ok(BucketNames { names: names.clone(), next: None }));
    let next = format!("{two}<ContinuationToken>t</ContinuationToken>");
    assert_eq!(page(&next), Ok(BucketNames { names, next: Some("t".into()) }));
    assert_eq!(page("<Buckets/>"), Ok(BucketNames { names: vec![], next: None }));
    for wrong in ["<Buckets><Bucket/></Buckets>", "<Buckets><Bucket><Name/></Bucket></Buckets>", "<Buckets>"] {
        assert_eq!(page(wrong), Err(ListingError::Form), "{wrong}");
    }
}

#[test]
fn tags_are_read() {
    let tags = |children: &str| source_tags(listing("Tagging", children).as_bytes());
    let two = "<TagSet><Tag><Key>a</Key><Value>1 &amp;</Value></Tag><Tag><Value/><Key>b</Key></Tag></TagSet>";
    assert_eq!(tags(two), Ok(vec![("a".into(), "1 &".into()), ("b".into(), String::new())]));
    assert_eq!(tags("<TagSet/>"), Ok(vec![]));
    assert_eq!(tags("<TagSet><Tag><Value>1</Value></Tag></TagSet>"), Err(ListingError::Form));
}

#[test]
fn an_error_is_one_line_whatever_the_answer_is() {
    let read = |body: &str| S3ErrorDocument::read(body.as_bytes());
    let error = read("<Error><Code>AccessDenied</Code><Message>Access\u{85}\n Denied</Message><Key>k</Key></Error>");
    assert_eq!((error.code.as_str(), error.to_string().as_str()), ("AccessDenied", "AccessDenied: Access"));
    assert_eq!(read("<Error><Code>SlowDown</Code></Error>").to_string(), "SlowDown");
    assert_eq!(read("<html>\n<b>nginx</b>").to_string(), "<html>");
    assert_eq!(read("").to_string(), "");
    assert_eq!(read(&"x".repeat(10_000)).message.len(), 200);
    let region = |text: &str| read(&format!("<Error><Code>A</Code><Region>{text}</Region></Error>")).region;
    assert_eq!(region("eu-central-1").as_deref(), Some("eu-central-1"));
    for wrong in ["", "a/b", "a b", "é", "a&#xD;&#xA;b", &"a".repeat(65)] {
        assert_eq!(region(wrong), None, "{wrong}");
    }
}

proptest! {
    #[test]
    fn no_document_panics(document in "[<>/KeyVrsionLtR &;#!%\\-\\[\\]?'\"=0-9\n]{0,120}") {
        for document in [document.clone(), listing("ListVersionsResult", &document), listing("ListBucketResult", &document)] {
            let _ = (VersionPage::versions(document.as_bytes()), VersionPage::objects(document.as_bytes()));
            let _ = (BucketNames::read(document.as_bytes()), source_tags(document.as_bytes()));
            let _ = S3ErrorDocument::read(document.as_bytes());
        }
    }

    #[test]
    fn a_listed_key_is_the_key(key in "\\PC{1,20}|[ -~]{1,20}", is_encoded: bool) {
        let written = if is_encoded {
            percent_encoding::percent_encode(key.as_bytes(), larder_api_s3::auth::PATH).to_string()
        } else {
            key.clone()
        };
        let mut xml = XmlWriter::new("ListBucketResult");
        xml.value("IsTruncated", false).element("Contents", |entry| {
            entry.text("Key", &written).text("LastModified", DATE).value("Size", 7);
        });
        if is_encoded {
            xml.text("EncodingType", "url");
        }
        let page = VersionPage::objects(&xml.finish()).unwrap();
        prop_assert_eq!(&page.versions[0].key, key.as_bytes());
    }
}

#[test]
fn an_acl_of_a_minio_names_nobody_and_other_documents_are_no_acl() {
    let read = |text: &str| SourceAcl::read(text.as_bytes());
    let minio = r#"<?xml version="1.0" encoding="UTF-8"?>
        <AccessControlPolicy xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Owner><ID></ID><DisplayName></DisplayName></Owner>
        <AccessControlList><Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser">
        <Type>CanonicalUser</Type></Grantee><Permission>FULL_CONTROL</Permission></Grant></AccessControlList></AccessControlPolicy>"#;
    assert_eq!(read(minio).unwrap().unwrap().grants, []);
    for other in ["the bytes of the object", "<ListBucketResult/>", ""] {
        assert_eq!(read(other), Ok(None), "{other}");
    }
    let grant = "<Grant><Grantee><URI>u</URI><New/></Grantee><Permission>READ</Permission><New>x</New></Grant>";
    let list = |grants: usize| {
        let owner = "<Owner><DisplayName>d</DisplayName><ID>o</ID></Owner>";
        let grants = grant.repeat(grants);
        format!("<AccessControlPolicy>{owner}<AccessControlList>{grants}</AccessControlList></AccessControlPolicy>")
    };
    let found = read(&list(2)).unwrap().unwrap();
    assert_eq!((found.owner.as_deref(), found.grants.len()), (Some("o"), 2));
    assert_eq!(found.grants[0], (Permission::Read, GranteeRef::Group("u".into())));
    assert_eq!(read(&list(101)), Err(ListingError::Form));
    assert_eq!(read(&list(1)[..60]), Err(ListingError::Form));
}
