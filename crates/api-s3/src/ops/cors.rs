//! `?cors`: the rules of a bucket for browsers.

use bytes::Bytes;
use hyper::StatusCode;
use larder_gateway::objects::{Configuration, Error};
use larder_model::objects::Bucket;
use larder_model::objects::cors::{Cors, CorsRule};

use super::incoming;
use crate::call::Call;
use crate::errors::{Code, Fault};
use crate::reply::{self, Reply};
use crate::xml::{Reader, Xml};

/// Longest document, as with Amazon: browsers ask for the rules without a signature, and every one of them is looked at.
const BYTES_MAX: usize = 64 * 1024;

pub(super) async fn get(call: &Call) -> Result<Reply, Fault> {
    let bucket = call.objects.bucket_for(&call.caller, &call.bucket, call.operation.action).await?;
    let cors = bucket.cors.as_ref().ok_or(Error::NoConfiguration(Configuration::Cors))?;
    Ok(reply::document(write(cors)))
}

pub(super) async fn put(call: &Call) -> Result<Reply, Fault> {
    let cors = read(&incoming::document(call).await?)?;
    store(call, Some(cors)).await?;
    Ok(reply::empty(StatusCode::OK))
}

pub(super) async fn delete(call: &Call) -> Result<Reply, Fault> {
    store(call, None).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

async fn store(call: &Call, cors: Option<Cors>) -> Result<(), Fault> {
    let change = |bucket: &mut Bucket| {
        bucket.cors.clone_from(&cors);
        Ok(())
    };
    Ok(call.objects.configure(&call.caller, &call.bucket, call.operation.action, change).await?)
}

fn read(document: &[u8]) -> Result<Cors, Fault> {
    if document.len() > BYTES_MAX {
        let fault = Fault::from(Code::MaxMessageLengthExceeded);
        return Err(fault.with("MaxMessageLengthBytes", BYTES_MAX.to_string()));
    }
    let mut xml = Reader::open(document, "CORSConfiguration")?;
    let mut cors = Cors::default();
    while let Some(name) = xml.child()? {
        match name {
            "CORSRule" => cors.rules.push(rule(&mut xml)?),
            _ => xml.skip()?,
        }
    }
    xml.end()?;
    let bad = |bad: larder_model::objects::cors::BadCors| {
        let code = if bad.malformed { Code::MalformedXML } else { Code::InvalidRequest };
        Fault::new(code, bad.message)
    };
    cors.validate().map_err(bad)?;
    Ok(cors)
}

fn rule(xml: &mut Reader<'_>) -> Result<CorsRule, Fault> {
    let mut rule = CorsRule::default();
    while let Some(name) = xml.child()? {
        match name {
            "ID" => rule.id = Some(xml.text()?),
            "AllowedOrigin" => rule.origins.push(xml.text()?),
            "AllowedMethod" => rule.methods.push(xml.text()?),
            "AllowedHeader" => rule.headers.push(xml.text()?),
            "ExposeHeader" => rule.expose.push(xml.text()?),
            "MaxAgeSeconds" => rule.max_age = Some(xml.parsed()?),
            _ => xml.skip()?,
        }
    }
    Ok(rule)
}

fn write(cors: &Cors) -> Bytes {
    let mut xml = Xml::new("CORSConfiguration");
    for rule in &cors.rules {
        xml.within("CORSRule", |xml| {
            xml.maybe("ID", rule.id.as_ref());
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
    fn what_is_refused() {
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
    fn rules_that_would_take_long_to_look_at_are_refused() {
        let origins = "<AllowedOrigin>http://*.example.org</AllowedOrigin>".repeat(2000);
        let rule = format!("<CORSRule>{origins}<AllowedMethod>GET</AllowedMethod></CORSRule>");
        let fault = read(format!("<CORSConfiguration>{rule}</CORSConfiguration>").as_bytes()).unwrap_err();
        assert_eq!(fault.code.name(), "MaxMessageLengthExceeded");
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(bytes: Vec<u8>, text in "(<|>|/|CORSConfiguration|CORSRule|ID|x)*") {
            let _ = (read(&bytes), read(text.as_bytes()));
        }
    }
}
