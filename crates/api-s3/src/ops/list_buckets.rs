//! `GET /`: lists the caller's buckets.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use larder_s3::buckets::BucketsPage;
use larder_s3_rules::{User, dates};

use super::listing_document;
use crate::call::S3Call;
use crate::errors::S3Error;
use crate::response::{self, S3Response};
use crate::target::S3Query;
use crate::xml::XmlWriter;

/// Most buckets per page.
const PAGE_MAX: u32 = 10_000;

/// The decoded request.
#[derive(Debug, PartialEq, Eq)]
struct ListBucketsRequest {
    prefix: String,
    after: String,
    max: usize,
    /// The region whose buckets are asked for.
    region: Option<String>,
    /// Whether the client requested paging; the response then includes bucket regions.
    paged: bool,
}

pub(super) async fn run(call: &S3Call) -> Result<S3Response, S3Error> {
    let request = decode(&call.query)?;
    let user = call.caller.require_user()?;
    let region = &call.objects.config.region;
    let page = match request.region.as_ref().is_some_and(|asked| asked != region) {
        true => BucketsPage::default(),
        false => call.objects.buckets.list(&call.caller, &request.prefix, &request.after, request.max).await?,
    };
    Ok(response::document(document(&request, user, &page, region)))
}

fn decode(query: &S3Query) -> Result<ListBucketsRequest, S3Error> {
    let max = listing_document::number("max-buckets", query.get("max-buckets"), PAGE_MAX)?;
    if max == 0 || max > PAGE_MAX {
        let value = query.get("max-buckets").unwrap_or_default();
        return Err(S3Error::argument(
            "max-buckets",
            value,
            "Argument max-buckets must be an integer between 1 and 10000",
        ));
    }
    let after = match query.non_empty("continuation-token") {
        None => String::new(),
        Some(token) => {
            let bad = || S3Error::argument("continuation-token", token, "The continuation token provided is incorrect");
            let name = URL_SAFE_NO_PAD.decode(token).ok().and_then(|name| String::from_utf8(name).ok());
            name.ok_or_else(bad)?
        }
    };
    Ok(ListBucketsRequest {
        prefix: query.get("prefix").unwrap_or_default().to_owned(),
        after,
        max: usize::try_from(max).unwrap_or(1),
        region: query.non_empty("bucket-region").map(str::to_owned),
        paged: ["max-buckets", "continuation-token", "prefix", "bucket-region"].iter().any(|name| query.has(name)),
    })
}

fn document(request: &ListBucketsRequest, user: &User, page: &BucketsPage, region: &str) -> Bytes {
    let mut xml = XmlWriter::new("ListAllMyBucketsResult");
    xml.element("Owner", |xml| {
        xml.text("ID", &user.id).text("DisplayName", &user.display_name);
    });
    xml.element("Buckets", |xml| {
        for bucket in &page.buckets {
            xml.element("Bucket", |xml| {
                xml.text("Name", &bucket.name).text("CreationDate", dates::iso(bucket.created));
                xml.optional_text("BucketRegion", request.paged.then_some(region));
            });
        }
    });
    xml.optional_text("ContinuationToken", page.next.as_ref().map(|name| URL_SAFE_NO_PAD.encode(name)));
    xml.optional_text("Prefix", Some(&request.prefix).filter(|prefix| !prefix.is_empty()));
    xml.finish()
}

#[cfg(test)]
mod tests {
    use larder_rows::Timestamp;
    use std::sync::Arc;

    use larder_s3_rules::{Bucket, BucketId};

    use super::*;

    fn decoded(query: &str) -> Result<ListBucketsRequest, S3Error> {
        decode(&S3Query::parse(Some(query)))
    }

    #[test]
    fn page_parameters_are_decoded_or_refused() {
        let all = decoded("").unwrap();
        assert_eq!(
            all,
            ListBucketsRequest { prefix: String::new(), after: String::new(), max: 10_000, region: None, paged: false }
        );
        let some = decoded("max-buckets=2&prefix=t&continuation-token=dGVh").unwrap();
        assert_eq!(
            some,
            ListBucketsRequest { prefix: "t".into(), after: "tea".into(), max: 2, region: None, paged: true }
        );
        for bad in
            ["max-buckets=0", "max-buckets=10001", "max-buckets=x", "continuation-token=%21", "continuation-token=_w"]
        {
            assert_eq!(decoded(bad).unwrap_err().code.name(), "InvalidArgument", "{bad}");
        }
    }

    #[test]
    fn the_result_document() {
        let user = User {
            id: "u".into(),
            key_id: "K".into(),
            secret: "s".into(),
            name: "Tea".into(),
            email: "tea@b".into(),
            display_name: "tea".into(),
            enabled: true,
            admin: false,
            created: Timestamp::ZERO,
            ..User::default()
        };
        let bucket = Arc::new(Bucket::new("b1", BucketId([0; 16]), "u", Timestamp(1_289_422_114_123_456)));
        let page = BucketsPage { buckets: vec![bucket], next: Some("b1".into()) };
        let text = |query: &str| {
            let document = document(&decoded(query).unwrap(), &user, &page, "eu");
            String::from_utf8(document.to_vec()).unwrap()
        };
        let head = "<ListAllMyBucketsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Owner><ID>u</ID>\
            <DisplayName>tea</DisplayName></Owner><Buckets><Bucket><Name>b1</Name>\
            <CreationDate>2010-11-10T20:48:34.123Z</CreationDate>";
        let plain = "</Bucket></Buckets><ContinuationToken>YjE</ContinuationToken></ListAllMyBucketsResult>";
        assert!(text("").ends_with(&format!("{head}{plain}")), "{}", text(""));
        let paged = "<BucketRegion>eu</BucketRegion></Bucket></Buckets><ContinuationToken>YjE</ContinuationToken>\
            <Prefix>b</Prefix></ListAllMyBucketsResult>";
        assert!(text("prefix=b").ends_with(&format!("{head}{paged}")), "{}", text("prefix=b"));
    }
}
