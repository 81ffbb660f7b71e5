//! `?cors`: the CORS rules of a bucket.

use bytes::Bytes;
use hyper::StatusCode;
use larder_s3::{Configuration, Error};
use larder_s3_rules::cors::{Cors, CorsRule};

use super::upload_body;
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::xml::{XmlReader, XmlWriter};

/// Longest document, the same as Amazon's: unsigned preflights scan all rules.
const BYTES_MAX: usize = 64 * 1024;

pub(super) async fn get(call: &S3Call) -> Result<S3Response, S3Error> {
    let bucket = call.objects.buckets.find_for(&call.caller, &call.bucket).await?;
    let cors = bucket.cors.as_ref().ok_or(Error::NoConfiguration(Configuration::Cors))?;
    Ok(response::document(write(cors)))
}

pub(super) async fn put(call: &S3Call) -> Result<S3Response, S3Error> {
    let cors = read(&upload_body::document(call).await?)?;
    call.configure(StatusCode::OK, |bucket| bucket.cors = Some(cors.clone())).await
}

pub(super) async fn delete(call: &S3Call) -> Result<S3Response, S3Error> {
    call.configure(StatusCode::NO_CONTENT, |bucket| bucket.cors = None).await
}

pub(super) fn read(document: &[u8]) -> Result<Cors, S3Error> {
    if document.len() > BYTES_MAX {
        let error = S3Error::from(Code::MaxMessageLengthExceeded);
        return Err(error.with("MaxMessageLengthBytes", BYTES_MAX.to_string()));
    }
    let mut xml = XmlReader::open(document, "CORSConfiguration")?;
    let mut cors = Cors::default();
    while let Some(name) = xml.next_child()? {
        match name {
            "CORSRule" => cors.rules.push(rule(&mut xml)?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    xml.expect_end()?;
    let bad = |bad: larder_s3_rules::cors::CorsError| {
        let code = if bad.malformed { Code::MalformedXML } else { Code::InvalidRequest };
        S3Error::new(code, bad.message)
    };
    cors.validate().map_err(bad)?;
    Ok(cors)
}

fn rule(xml: &mut XmlReader<'_>) -> Result<CorsRule, S3Error> {
    let mut rule = CorsRule::default();
    while let Some(name) = xml.next_child()? {
        match name {
            "ID" => rule.id = Some(xml.text()?),
            "AllowedOrigin" => rule.origins.push(xml.text()?),
            "AllowedMethod" => rule.methods.push(xml.text()?),
            "AllowedHeader" => rule.headers.push(xml.text()?),
            "ExposeHeader" => rule.expose.push(xml.text()?),
            "MaxAgeSeconds" => rule.max_age = Some(xml.parse_text()?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    Ok(rule)
}

fn write(cors: &Cors) -> Bytes {
    let mut xml = XmlWriter::new("CORSConfiguration");
    for rule in &cors.rules {
        xml.element("CORSRule", |xml| {
            xml.optional_text("ID", rule.id.as_ref());
            let lists = [
                ("AllowedOrigin", &rule.origins),
                ("AllowedMethod", &rule.methods),
                ("AllowedHeader", &rule.headers),
                ("ExposeHeader", &rule.expose),
            ];
            for (name, values) in lists {
                for value in values {
                    xml.text(name, value);
                }
            }
            if let Some(seconds) = rule.max_age {
                xml.value("MaxAgeSeconds", seconds);
            }
        });
    }
    xml.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn documents_come_back() {
        let document = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<CORSConfiguration \
            xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><CORSRule><ID>r</ID>\
            <AllowedOrigin>https://*.a</AllowedOrigin>\
            <AllowedOrigin>b</AllowedOrigin><AllowedMethod>GET</AllowedMethod><AllowedHeader>*</AllowedHeader>\
            <ExposeHeader>etag</ExposeHeader><MaxAgeSeconds>5</MaxAgeSeconds></CORSRule><CORSRule>\
            <AllowedOrigin>*</AllowedOrigin><AllowedMethod>PUT</AllowedMethod></CORSRule></CORSConfiguration>";
        let cors = read(document.as_bytes()).unwrap();
        assert_eq!((cors.rules.len(), cors.rules[0].max_age), (2, Some(5)));
        assert_eq!(write(&cors), document);
    }

    #[test]
    fn invalid_rules_are_refused() {
        let of = |inner: &str| {
            read(format!("<CORSConfiguration>{inner}</CORSConfiguration>").as_bytes()).unwrap_err().code.name()
        };
        let rule = |more: &str| of(&format!("<CORSRule><AllowedOrigin>*</AllowedOrigin>{more}</CORSRule>"));
        assert_eq!(of(""), "MalformedXML");
        assert_eq!(rule(""), "MalformedXML");
        assert_eq!(rule("<AllowedMethod>LIST</AllowedMethod>"), "InvalidRequest");
        assert_eq!(rule("<AllowedMethod>GET</AllowedMethod><MaxAgeSeconds>x</MaxAgeSeconds>"), "MalformedXML");
    }

    #[test]
    fn a_document_above_the_limit_is_refused() {
        let origins = "<AllowedOrigin>http://*.example.org</AllowedOrigin>".repeat(2000);
        let rule = format!("<CORSRule>{origins}<AllowedMethod>GET</AllowedMethod></CORSRule>");
        let error = read(format!("<CORSConfiguration>{rule}</CORSConfiguration>").as_bytes()).unwrap_err();
        assert_eq!(error.code.name(), "MaxMessageLengthExceeded");
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(bytes: Vec<u8>, text in "(<|>|/|CORSConfiguration|CORSRule|ID|x)*") {
            let _ = (read(&bytes), read(text.as_bytes()));
        }
    }
}
