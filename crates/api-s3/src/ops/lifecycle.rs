//! `?lifecycle`: the lifecycle rules of a bucket.

mod document;

use hyper::StatusCode;
use larder_s3::{Configuration, Error};
use larder_s3_rules::lifecycle::{self, Lifecycle};

use super::upload_body;
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};

pub(super) async fn get(call: &S3Call) -> Result<S3Response, S3Error> {
    let bucket = call.objects.buckets.find_for(&call.caller, &call.bucket).await?;
    let rules = bucket.lifecycle.as_ref().ok_or(Error::NoConfiguration(Configuration::Lifecycle))?;
    Ok(response::document(document::write(rules)))
}

pub(super) async fn put(call: &S3Call) -> Result<S3Response, S3Error> {
    let rules = decode(&upload_body::document(call).await?)?;
    call.configure(StatusCode::OK, |bucket| bucket.lifecycle = Some(rules.clone())).await
}

pub(super) async fn delete(call: &S3Call) -> Result<S3Response, S3Error> {
    call.configure(StatusCode::NO_CONTENT, |bucket| bucket.lifecycle = None).await
}

pub(super) fn decode(document: &[u8]) -> Result<Lifecycle, S3Error> {
    let rules = document::read(document)?;
    rules.validate().map_err(|bad| {
        let code = match bad.fault {
            lifecycle::LifecycleFault::Argument => Code::InvalidArgument,
            lifecycle::LifecycleFault::Request => Code::InvalidRequest,
            lifecycle::LifecycleFault::Malformed => Code::MalformedXML,
        };
        S3Error::new(code, bad.message)
    })?;
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(rule: &str) -> Result<Lifecycle, &'static str> {
        let document = format!("<LifecycleConfiguration><Rule>{rule}</Rule></LifecycleConfiguration>");
        decode(document.as_bytes()).map_err(|error| error.code.name())
    }

    #[test]
    fn documents_come_back() {
        let document = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<LifecycleConfiguration \
            xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Rule><ID>a</ID><Filter><And><Prefix>p/</Prefix>\
            <Tag><Key>k</Key>\
            <Value>v</Value></Tag><ObjectSizeGreaterThan>5</ObjectSizeGreaterThan></And></Filter>\
            <Status>Enabled</Status>\
            <Expiration><Days>3</Days></Expiration><NoncurrentVersionExpiration><NoncurrentDays>4</NoncurrentDays>\
            <NewerNoncurrentVersions>2</NewerNoncurrentVersions></NoncurrentVersionExpiration></Rule><Rule><ID>b</ID>\
            <Prefix/><Status>Disabled</Status><Expiration><Date>2030-01-01T00:00:00.000Z</Date></Expiration>\
            </Rule><Rule>\
            <ID>c</ID><Filter><Prefix/></Filter><Status>Enabled</Status><Expiration>\
            <ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration><AbortIncompleteMultipartUpload>\
            <DaysAfterInitiation>7</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule><Rule>\
            <ID>d</ID><Filter/>\
            <Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>";
        let rules = decode(document.as_bytes()).unwrap();
        assert_eq!(rules.rules.len(), 4);
        assert_eq!(String::from_utf8(document::write(&rules).to_vec()).unwrap(), document);
    }

    #[test]
    fn rules_without_an_id_get_distinct_ids() {
        let rule = "<Rule><Filter/><Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule>";
        let document = format!("<LifecycleConfiguration>{rule}{rule}</LifecycleConfiguration>");
        let rules = decode(document.as_bytes()).unwrap().rules;
        assert!(!rules[0].id.is_empty() && rules[0].id != rules[1].id);
        let again = decode(document.as_bytes()).unwrap().rules;
        assert_eq!(rules, again, "the same document gives the same names");
    }

    #[test]
    fn a_hundred_thousand_rules_are_refused_at_once() {
        let unnamed = "<Rule><Prefix/><Status>Enabled</Status></Rule>".repeat(40_000);
        let named: String = (0..40_000).map(|at| format!("<Rule><ID>rule-{at}</ID>{}", &unnamed[6..46])).collect();
        let document = format!("<LifecycleConfiguration>{unnamed}{named}</LifecycleConfiguration>");
        assert_eq!(decode(document.as_bytes()).unwrap_err().code.name(), "InvalidArgument");
    }

    #[test]
    fn a_rule_lost_the_element_that_narrowed_it() {
        let days = "<Expiration><Days>1</Days></Expiration>";
        for (rule, element) in [
            (format!("<Filter><Owner>me</Owner></Filter>{days}"), "Owner"),
            (format!("<Filter><And><Prefix>a</Prefix><Owner>me</Owner></And></Filter>{days}"), "Owner"),
            (format!("<Filter/>{days}<Except>a/</Except>"), "Except"),
            (
                "<Filter/><Expiration><Days>1</Days><ExpiredObjectAllVersions>true</ExpiredObjectAllVersions>\
                 </Expiration>"
                    .to_owned(),
                "ExpiredObjectAllVersions",
            ),
            (
                format!("<Filter/>{days}<DelMarkerExpiration><Days>1</Days></DelMarkerExpiration>"),
                "DelMarkerExpiration",
            ),
        ] {
            let document =
                format!("<LifecycleConfiguration><Rule><Status>Enabled</Status>{rule}</Rule></LifecycleConfiguration>");
            let error = decode(document.as_bytes()).unwrap_err();
            assert_eq!((error.code, &*error.extras), (Code::NotImplemented, &[("Element", element.to_owned())][..]));
        }
        let kept = "<Filter/><Status>Enabled</Status><Expiration><Days>1</Days>\
            <ExpiredObjectAllVersions>false</ExpiredObjectAllVersions></Expiration>";
        assert!(parsed(kept).is_ok());
    }

    #[test]
    fn what_is_refused() {
        let days = "<Expiration><Days>1</Days></Expiration>";
        let on = "<Status>Enabled</Status>";
        for (rule, code) in [
            (format!("<Filter/>{on}<Expiration><Days>0</Days></Expiration>"), "InvalidArgument"),
            (format!("<Filter/>{on}<Expiration><Days>-1</Days></Expiration>"), "InvalidArgument"),
            (format!("<Filter/>{on}<Expiration><Days>x</Days></Expiration>"), "MalformedXML"),
            (format!("<Filter/>{on}<Expiration><Date>2030-01-01T01:00:00Z</Date></Expiration>"), "InvalidArgument"),
            (format!("<Filter/>{on}<Expiration><Date>soon</Date></Expiration>"), "MalformedXML"),
            (format!("<Filter/>{on}<Expiration><Days>1</Days><Date>2030-01-01</Date></Expiration>"), "MalformedXML"),
            (format!("<Filter/>{on}<Expiration/>"), "MalformedXML"),
            (format!("<Filter/>{on}"), "InvalidRequest"),
            (format!("<Filter/>{days}"), "MalformedXML"),
            (format!("<Filter/><Status>enabled</Status>{days}"), "MalformedXML"),
            (format!("{on}{days}"), "MalformedXML"),
            (format!("<Filter/><Prefix/>{on}{days}"), "MalformedXML"),
            (format!("<Filter><Prefix>a</Prefix><Prefix>b</Prefix></Filter>{on}{days}"), "MalformedXML"),
            (format!("<Filter/>{on}{days}<Transition><Days>1</Days></Transition>"), "NotImplemented"),
            (format!("<ID>{}</ID><Filter/>{on}{days}", "x".repeat(256)), "InvalidArgument"),
        ] {
            assert_eq!(parsed(&rule), Err(code), "{rule}");
        }
        let moved = format!("<LifecycleConfiguration><Rule><Filter/>{on}<Transition/></Rule></LifecycleConfiguration>");
        assert_eq!(decode(moved.as_bytes()).unwrap_err().extras, [("Element", "Transition".to_owned())]);
        assert_eq!(decode(b"<LifecycleConfiguration/>").unwrap_err().code.name(), "MalformedXML");
        let rule = format!("<Rule><ID>a</ID><Filter/>{on}{days}</Rule>");
        let twice = format!("<LifecycleConfiguration>{rule}{rule}</LifecycleConfiguration>");
        assert_eq!(decode(twice.as_bytes()).unwrap_err().code.name(), "InvalidArgument");
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(
            bytes: Vec<u8>,
            text in "(<|>|/|LifecycleConfiguration|Rule|Filter|And|Days|Expiration|Status|1)*",
        ) {
            let _ = (decode(&bytes), decode(text.as_bytes()));
        }
    }
}
