//! `GET /bucket`: lists keys, in both versions of the API.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use larder_rows::limits::S3_PAGE_MAX;
use larder_s3::list::{KeyOrPrefix, ListObjects, ListingPage};
use larder_s3_rules::entry::ListedObject;
use larder_s3_rules::{ListingEntry, dates};

use super::listing_document::{self, DisplayNames, EncodingType};
use crate::call::S3Call;
use crate::errors::S3Error;
use crate::response::{self, S3Response};
use crate::target::S3Query;
use crate::xml::XmlWriter;

/// First byte of a continuation token; identifies its format.
const TOKEN_VERSION: u8 = 1;

/// A decoded ListObjects request. The marker is a key.
#[derive(Debug)]
struct ListV1Request {
    list: ListObjects,
    encoding: EncodingType,
}

/// A decoded ListObjectsV2 request. A token continues a listing, or a key starts it.
#[derive(Debug)]
struct ListV2Request {
    list: ListObjects,
    encoding: EncodingType,
    token: Option<String>,
    start_after: Option<String>,
    owners: bool,
}

pub(super) async fn run_v1(call: &S3Call) -> Result<S3Response, S3Error> {
    let request = decode_v1(&call.bucket, &call.query)?;
    let page = call.objects.list(&call.caller, &request.list).await?;
    let names = DisplayNames::load(&call.objects, owners(&page).collect()).await;
    Ok(response::document(document_v1(&request, &page, &names)))
}

pub(super) async fn run_v2(call: &S3Call) -> Result<S3Response, S3Error> {
    let request = decode_v2(&call.bucket, &call.query)?;
    let page = call.objects.list(&call.caller, &request.list).await?;
    let owners = owners(&page).filter(|_| request.owners);
    let names = DisplayNames::load(&call.objects, owners.collect()).await;
    Ok(response::document(document_v2(&request, &page, &names)))
}

/// Decodes the parameters that all listings share, without the start.
///
/// # Errors
/// 400 `InvalidArgument`.
pub(super) fn list_request(
    bucket: &str,
    query: &S3Query,
    max: &'static str,
) -> Result<(ListObjects, EncodingType), S3Error> {
    let text = |name| Bytes::copy_from_slice(query.get(name).unwrap_or_default().as_bytes());
    let list = ListObjects {
        bucket: bucket.to_owned(),
        prefix: text("prefix"),
        delimiter: text("delimiter"),
        after: Bytes::new(),
        max: listing_document::page(max, query.get(max), S3_PAGE_MAX)?,
    };
    Ok((list, EncodingType::from_param(query.get("encoding-type"))?))
}

/// Writes the common prefixes of a page.
pub(super) fn write_prefixes<T>(xml: &mut XmlWriter, lines: &[KeyOrPrefix<T>], encoding: EncodingType) {
    for line in lines {
        if let KeyOrPrefix::Prefix(prefix) = line {
            xml.element("CommonPrefixes", |xml| {
                xml.text("Prefix", encoding.encode_key(prefix));
            });
        }
    }
}

/// Writes the delimiter if it is not empty.
pub(super) fn write_delimiter(xml: &mut XmlWriter, list: &ListObjects, encoding: EncodingType) {
    if !list.delimiter.is_empty() {
        xml.text("Delimiter", encoding.encode_key(&list.delimiter));
    }
}

fn decode_v1(bucket: &str, query: &S3Query) -> Result<ListV1Request, S3Error> {
    let (mut list, encoding) = list_request(bucket, query, "max-keys")?;
    list.after = Bytes::copy_from_slice(query.get("marker").unwrap_or_default().as_bytes());
    Ok(ListV1Request { list, encoding })
}

fn decode_v2(bucket: &str, query: &S3Query) -> Result<ListV2Request, S3Error> {
    let (mut list, encoding) = list_request(bucket, query, "max-keys")?;
    let (token, start_after) = (query.get("continuation-token"), query.get("start-after"));
    // The token wins: clients repeat `start-after` on each page.
    list.after = match token {
        Some(token) => key_of_token(token)?,
        None => Bytes::copy_from_slice(start_after.unwrap_or_default().as_bytes()),
    };
    Ok(ListV2Request {
        list,
        encoding,
        token: token.map(str::to_owned),
        start_after: start_after.filter(|key| !key.is_empty()).map(str::to_owned),
        owners: query.get("fetch-owner").is_some_and(|value| value.eq_ignore_ascii_case("true")),
    })
}

fn token_of_key(key: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode([&[TOKEN_VERSION], key].concat())
}

fn key_of_token(token: &str) -> Result<Bytes, S3Error> {
    match URL_SAFE_NO_PAD.decode(token).as_deref() {
        // A token of another format must not be taken for a key.
        Ok([TOKEN_VERSION, key @ ..]) if !key.is_empty() => Ok(Bytes::copy_from_slice(key)),
        _ => Err(S3Error::argument("continuation-token", token, "The continuation token provided is incorrect")),
    }
}

fn owners(page: &ListingPage<ListingEntry>) -> impl Iterator<Item = &str> {
    page.lines.iter().filter_map(|line| match line {
        KeyOrPrefix::Key(_, entry) => Some(entry.owner.as_str()),
        KeyOrPrefix::Prefix(_) => None,
    })
}

fn document_v1(request: &ListV1Request, page: &ListingPage<ListingEntry>, names: &DisplayNames) -> Bytes {
    let (list, encoding) = (&request.list, request.encoding);
    let mut xml = XmlWriter::new("ListBucketResult");
    xml.text("Name", &list.bucket).text("Prefix", encoding.encode_key(&list.prefix));
    xml.text("Marker", encoding.encode_key(&list.after));
    xml.optional_text("NextMarker", page.next.as_ref().map(|next| encoding.encode_key(next)));
    xml.value("MaxKeys", list.max);
    write_delimiter(&mut xml, list, encoding);
    encoding.write(&mut xml);
    xml.value("IsTruncated", page.next.is_some());
    write_lines(&mut xml, page, encoding, Some(names));
    xml.finish()
}

fn document_v2(request: &ListV2Request, page: &ListingPage<ListingEntry>, names: &DisplayNames) -> Bytes {
    let (list, encoding) = (&request.list, request.encoding);
    let mut xml = XmlWriter::new("ListBucketResult");
    xml.text("Name", &list.bucket).text("Prefix", encoding.encode_key(&list.prefix));
    xml.optional_text("StartAfter", request.start_after.as_ref().map(|key| encoding.encode_key(key.as_bytes())));
    xml.optional_text("ContinuationToken", request.token.as_ref());
    xml.optional_text("NextContinuationToken", page.next.as_ref().map(|next| token_of_key(next)));
    xml.value("KeyCount", page.lines.len()).value("MaxKeys", list.max);
    write_delimiter(&mut xml, list, encoding);
    encoding.write(&mut xml);
    xml.value("IsTruncated", page.next.is_some());
    write_lines(&mut xml, page, encoding, request.owners.then_some(names));
    xml.finish()
}

/// Writes keys first, then common prefixes.
fn write_lines(
    xml: &mut XmlWriter,
    page: &ListingPage<ListingEntry>,
    encoding: EncodingType,
    names: Option<&DisplayNames>,
) {
    for line in &page.lines {
        if let KeyOrPrefix::Key(key, ListingEntry { modified, owner, object: Some(object) }) = line {
            xml.element("Contents", |xml| {
                xml.text("Key", encoding.encode_key(key)).text("LastModified", dates::iso(*modified));
                write_object(xml, object);
                if let Some(names) = names {
                    names.write(xml, "Owner", owner);
                }
                xml.text("StorageClass", object.storage_class.as_deref().unwrap_or("STANDARD"));
            });
        }
    }
    write_prefixes(xml, &page.lines, encoding);
}

/// Writes an object's entity tag, checksum type and size.
pub(super) fn write_object(xml: &mut XmlWriter, object: &ListedObject) {
    xml.text("ETag", format!("\"{}\"", object.etag));
    if let Some((algorithm, kind)) = object.checksum {
        xml.text("ChecksumAlgorithm", algorithm.name()).text("ChecksumType", kind.name());
    }
    xml.value("Size", object.length);
}

#[cfg(test)]
mod tests {
    use larder_rows::Timestamp;
    use larder_s3_rules::{Algorithm, ChecksumKind, Etag};
    use proptest::prelude::*;

    use super::*;

    fn page(next: Option<&'static str>) -> ListingPage<ListingEntry> {
        let object = ListedObject {
            etag: Etag { md5: [0x22; 16], parts: Some(2) },
            length: 7,
            storage_class: Some("GLACIER".into()),
            checksum: Some((Algorithm::Crc64Nvme, ChecksumKind::FullObject)),
        };
        let entry =
            ListingEntry { modified: Timestamp(1_289_422_114_123_456), owner: "o".into(), object: Some(object) };
        let lines = vec![
            KeyOrPrefix::Prefix(Bytes::from_static(b"p a/")),
            KeyOrPrefix::Key(Bytes::from_static(b"p k\x01"), entry),
        ];
        ListingPage { lines, next: next.map(|next| Bytes::from_static(next.as_bytes())) }
    }

    fn v1(query: &str, page: &ListingPage<ListingEntry>) -> String {
        let names = DisplayNames::fixed(&[("o", "tea")]);
        let document = document_v1(&decode_v1("b", &S3Query::parse(Some(query))).unwrap(), page, &names);
        String::from_utf8(document.to_vec()).unwrap().split_once("03-01/\">").unwrap().1.to_owned()
    }

    fn v2(query: &str, page: &ListingPage<ListingEntry>) -> String {
        let names = DisplayNames::fixed(&[("o", "tea")]);
        let document = document_v2(&decode_v2("b", &S3Query::parse(Some(query))).unwrap(), page, &names);
        String::from_utf8(document.to_vec()).unwrap().split_once("03-01/\">").unwrap().1.to_owned()
    }

    const REST: &str = "<ETag>&quot;22222222222222222222222222222222-2&quot;</ETag>\
        <ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType><Size>7</Size>";

    #[test]
    fn the_document_of_version_1() {
        let expected = format!(
            "<Name>b</Name><Prefix>p</Prefix><Marker>m</Marker><NextMarker>p k&#x1;</NextMarker><MaxKeys>2</MaxKeys>\
             <Delimiter>/</Delimiter><IsTruncated>true</IsTruncated><Contents><Key>p k&#x1;</Key>\
             <LastModified>2010-11-10T20:48:34.123Z</LastModified>{REST}<Owner><ID>o</ID>\
             <DisplayName>tea</DisplayName></Owner>\
             <StorageClass>GLACIER</StorageClass></Contents><CommonPrefixes><Prefix>p a/</Prefix></CommonPrefixes>\
             </ListBucketResult>"
        );
        assert_eq!(v1("prefix=p&delimiter=/&marker=m&max-keys=2", &page(Some("p k\x01"))), expected);
        let empty = ListingPage { lines: vec![], next: None };
        let expected = "<Name>b</Name><Prefix/><Marker/><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>\
            </ListBucketResult>";
        assert_eq!(v1("", &empty), expected);
    }

    #[test]
    fn the_document_of_version_2() {
        let token = token_of_key(b"p k\x01");
        let expected = format!(
            "<Name>b</Name><Prefix>p%20</Prefix><StartAfter>p%2B</StartAfter>\
                <NextContinuationToken>{token}</NextContinuationToken>\
             <KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys><Delimiter>/</Delimiter><EncodingType>url</EncodingType>\
             <IsTruncated>true</IsTruncated><Contents><Key>p%20k%01</Key>\
             <LastModified>2010-11-10T20:48:34.123Z</LastModified>{REST}<StorageClass>GLACIER</StorageClass></Contents>\
             <CommonPrefixes><Prefix>p%20a/</Prefix></CommonPrefixes></ListBucketResult>"
        );
        let query = "list-type=2&prefix=p+&delimiter=%2F&start-after=p%2B&encoding-type=url&max-keys=5000";
        assert_eq!(v2(query, &page(Some("p k\x01"))), expected);
        let text = v2(&format!("continuation-token={token}&start-after=x&fetch-owner=true"), &page(None));
        let echo =
            format!("<StartAfter>x</StartAfter><ContinuationToken>{token}</ContinuationToken><KeyCount>2</KeyCount>");
        assert!(text.contains(&echo), "{text}");
        assert!(text.contains("</Size><Owner><ID>o</ID>"), "{text}");
    }

    #[test]
    fn a_token_wins_over_start_after() {
        let token = token_of_key("é/k".as_bytes());
        let request =
            decode_v2("b", &S3Query::parse(Some(&format!("start-after=zz&continuation-token={token}")))).unwrap();
        assert_eq!(request.list.after, "é/k".as_bytes());
    }

    #[test]
    fn invalid_parameters_are_refused() {
        for (query, name) in [
            ("continuation-token=", "continuation-token"),
            ("continuation-token=%21", "continuation-token"),
            ("continuation-token=AQ", "continuation-token"),
            ("continuation-token=AmE", "continuation-token"),
            ("max-keys=-1", "max-keys"),
            ("max-keys=x", "max-keys"),
            ("encoding-type=x", "encoding-type"),
        ] {
            let error = decode_v2("b", &S3Query::parse(Some(query))).unwrap_err();
            assert_eq!((error.code.name(), error.extras[0].1.as_str()), ("InvalidArgument", name), "{query}");
        }
    }

    proptest! {
        #[test]
        fn tokens_are_decoded_to_their_key(key in prop::collection::vec(any::<u8>(), 1..64)) {
            prop_assert_eq!(key_of_token(&token_of_key(&key)).unwrap(), key);
        }

        #[test]
        fn any_query_is_decoded_or_refused(query: String) {
            let query = format!("continuation-token={query}&prefix={query}&max-keys={query}");
            let _ = (decode_v1("b", &S3Query::parse(Some(&query))), decode_v2("b", &S3Query::parse(Some(&query))));
        }
    }
}
