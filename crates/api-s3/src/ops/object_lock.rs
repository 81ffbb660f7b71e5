//! `?object-lock` of buckets, `?retention` and `?legal-hold` of versions.

use bytes::Bytes;
use hyper::StatusCode;
use larder_s3::{Configuration, Error};
use larder_s3_rules::{BucketLock, DefaultRetention, Retention, RetentionMode, RetentionPeriod, dates};

use super::{listing_document, lock_headers, upload_body};
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::xml::{XmlReader, XmlWriter};

pub(super) async fn get_bucket(call: &S3Call) -> Result<S3Response, S3Error> {
    let bucket = call.objects.buckets.find_for(&call.caller, &call.bucket).await?;
    let lock = bucket.object_lock.ok_or(Error::NoConfiguration(Configuration::ObjectLock))?;
    Ok(response::document(write_bucket(lock)))
}

pub(super) async fn put_bucket(call: &S3Call) -> Result<S3Response, S3Error> {
    let lock = read_bucket(&document(call).await?)?;
    call.configure(StatusCode::OK, |bucket| bucket.object_lock = Some(lock)).await
}

pub(super) async fn get_retention(call: &S3Call) -> Result<S3Response, S3Error> {
    let version = listing_document::version(&call.query);
    let retention = call.objects.retention(&call.caller, &call.bucket, &call.key, &version).await;
    Ok(response::document(write_retention(retention.map_err(|error| named(call, error))?)))
}

pub(super) async fn put_retention(call: &S3Call) -> Result<S3Response, S3Error> {
    let bypass = lock_headers::bypass(&call.headers)?;
    let next = read_retention(&document(call).await?)?;
    let version = listing_document::version(&call.query);
    let mut caller = call.caller.clone();
    let conditions = lock_headers::retention_conditions(next, call.now);
    lock_headers::replace_conditions(&mut caller.access_context, conditions);
    let put = call.objects.put_retention(&caller, &call.bucket, &call.key, &version, next, bypass).await;
    put.map_err(|error| named(call, error))?;
    Ok(response::empty(StatusCode::OK))
}

pub(super) async fn get_legal_hold(call: &S3Call) -> Result<S3Response, S3Error> {
    let version = listing_document::version(&call.query);
    let is_on = call.objects.legal_hold(&call.caller, &call.bucket, &call.key, &version).await;
    Ok(response::document(write_legal_hold(is_on.map_err(|error| named(call, error))?)))
}

pub(super) async fn put_legal_hold(call: &S3Call) -> Result<S3Response, S3Error> {
    let is_on = read_legal_hold(&document(call).await?)?;
    let version = listing_document::version(&call.query);
    let mut caller = call.caller.clone();
    lock_headers::replace_conditions(&mut caller.access_context, vec![lock_headers::hold_condition(is_on)]);
    let put = call.objects.put_legal_hold(&caller, &call.bucket, &call.key, &version, is_on).await;
    put.map_err(|error| named(call, error))?;
    Ok(response::empty(StatusCode::OK))
}

/// The document of a change, which needs a digest.
async fn document(call: &S3Call) -> Result<Bytes, S3Error> {
    let document = upload_body::document(call).await?;
    if document.is_empty() {
        return Err(Code::MissingRequestBodyError.into());
    }
    upload_body::require_digest(&call.headers)?;
    Ok(document)
}

/// A delete marker has no lock: AWS answers 405 for one that the request names, with the method of the request.
fn named(call: &S3Call, error: Error) -> S3Error {
    let mut error = S3Error::from(error);
    for (name, value) in &mut error.extras {
        if *name == "Method" {
            call.operation.method.as_str().clone_into(value);
        }
    }
    error
}

pub(super) fn read_bucket(document: &[u8]) -> Result<BucketLock, S3Error> {
    let mut xml = XmlReader::open(document, "ObjectLockConfiguration")?;
    let (mut is_enabled, mut lock) = (false, BucketLock::default());
    while let Some(name) = xml.next_child()? {
        match name {
            "ObjectLockEnabled" if xml.text()?.trim() == "Enabled" => is_enabled = true,
            "Rule" if lock.default_retention.is_some() => return Err(Code::MalformedXML.into()),
            "Rule" => lock.default_retention = Some(read_rule(&mut xml)?),
            "ObjectLockEnabled" => return Err(Code::MalformedXML.into()),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    xml.expect_end()?;
    if is_enabled { Ok(lock) } else { Err(Code::MalformedXML.into()) }
}

fn read_rule(xml: &mut XmlReader<'_>) -> Result<DefaultRetention, S3Error> {
    let mut retention = None;
    while let Some(name) = xml.next_child()? {
        match name {
            "DefaultRetention" => retention = Some(read_default(xml)?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    retention.ok_or_else(|| Code::MalformedXML.into())
}

fn read_default(xml: &mut XmlReader<'_>) -> Result<DefaultRetention, S3Error> {
    let (mut mode, mut days, mut years) = (None, None, None);
    while let Some(name) = xml.next_child()? {
        match name {
            "Mode" => mode = Some(read_mode(xml)?),
            "Days" => days = Some(read_count(xml)?),
            "Years" => years = Some(read_count(xml)?),
            // `DefaultEventHold`, for one: a hold that is ignored is an object that is not protected.
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    let mode = mode.ok_or(Code::MalformedXML)?;
    let (element, count) = match (days, years) {
        (Some(days), None) => ("Days", days),
        (None, Some(years)) => ("Years", years),
        _ => return Err(Code::MalformedXML.into()),
    };
    if count <= 0 {
        return Err(Code::InvalidRetentionPeriod.into());
    }
    let period = |count: u32| if days.is_some() { RetentionPeriod::Days(count) } else { RetentionPeriod::Years(count) };
    let period = u32::try_from(count).ok().map(period).filter(|period| period.is_in_range());
    let too_large = || S3Error::argument(element, count.to_string(), "Default retention period too large.");
    Ok(DefaultRetention { mode, period: period.ok_or_else(too_large)? })
}

fn read_mode(xml: &mut XmlReader<'_>) -> Result<RetentionMode, S3Error> {
    RetentionMode::from_exact_name(xml.text()?.trim()).ok_or_else(|| Code::MalformedXML.into())
}

fn read_count(xml: &mut XmlReader<'_>) -> Result<i64, S3Error> {
    xml.text()?.trim().parse().map_err(|_| Code::MalformedXML.into())
}

/// An empty document lifts the retention.
fn read_retention(document: &[u8]) -> Result<Option<Retention>, S3Error> {
    let mut xml = XmlReader::open(document, "Retention")?;
    let (mut mode, mut until) = (None, None);
    while let Some(name) = xml.next_child()? {
        match name {
            "Mode" => mode = Some(read_mode(&mut xml)?),
            "RetainUntilDate" => until = Some(dates::parse_iso(xml.text()?.trim()).ok_or(Code::MalformedXML)?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    xml.expect_end()?;
    match (mode, until) {
        (None, None) => Ok(None),
        (Some(mode), Some(until)) => Ok(Some(Retention::new(mode, until))),
        _ => Err(Code::MalformedXML.into()),
    }
}

fn read_legal_hold(document: &[u8]) -> Result<bool, S3Error> {
    let mut xml = XmlReader::open(document, "LegalHold")?;
    let mut is_on = None;
    while let Some(name) = xml.next_child()? {
        match name {
            "Status" => is_on = lock_headers::hold_from_name(xml.text()?.trim()),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    xml.expect_end()?;
    is_on.ok_or_else(|| Code::MalformedXML.into())
}

fn write_bucket(lock: BucketLock) -> Bytes {
    let mut xml = XmlWriter::new("ObjectLockConfiguration");
    xml.text("ObjectLockEnabled", "Enabled");
    if let Some(DefaultRetention { mode, period }) = lock.default_retention {
        xml.element("Rule", |xml| {
            xml.element("DefaultRetention", |xml| {
                xml.text("Mode", mode.name());
                match period {
                    RetentionPeriod::Days(days) => xml.value("Days", days),
                    RetentionPeriod::Years(years) => xml.value("Years", years),
                };
            });
        });
    }
    xml.finish()
}

fn write_retention(retention: Retention) -> Bytes {
    let mut xml = XmlWriter::new("Retention");
    xml.text("Mode", retention.mode.name()).text("RetainUntilDate", dates::iso(retention.until));
    xml.finish()
}

fn write_legal_hold(is_on: bool) -> Bytes {
    let mut xml = XmlWriter::new("LegalHold");
    xml.text("Status", lock_headers::hold_name(is_on));
    xml.finish()
}

#[cfg(test)]
mod tests {
    use larder_rows::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn bucket(inner: &str) -> Result<BucketLock, &'static str> {
        let document = format!("<ObjectLockConfiguration>{inner}</ObjectLockConfiguration>");
        read_bucket(document.as_bytes()).map_err(|error| error.code.name())
    }

    fn default(inner: &str) -> Result<BucketLock, &'static str> {
        bucket(&format!(
            "<ObjectLockEnabled>Enabled</ObjectLockEnabled>\
             <Rule><DefaultRetention>{inner}</DefaultRetention></Rule>"
        ))
    }

    fn version(inner: &str) -> Result<Option<Retention>, &'static str> {
        read_retention(format!("<Retention>{inner}</Retention>").as_bytes()).map_err(|error| error.code.name())
    }

    fn hold(inner: &str) -> Result<bool, &'static str> {
        read_legal_hold(format!("<LegalHold>{inner}</LegalHold>").as_bytes()).map_err(|error| error.code.name())
    }

    #[test]
    fn the_lock_of_a_bucket_is_written_and_read_back() {
        for default_retention in [
            None,
            Some(DefaultRetention { mode: RetentionMode::Governance, period: RetentionPeriod::Days(36_500) }),
            Some(DefaultRetention { mode: RetentionMode::Compliance, period: RetentionPeriod::Years(100) }),
        ] {
            let lock = BucketLock { default_retention };
            assert_eq!(read_bucket(&write_bucket(lock)).unwrap(), lock);
        }
        let text = String::from_utf8(write_bucket(BucketLock::default()).to_vec()).unwrap();
        assert!(text.ends_with("03-01/\"><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>"));
    }

    #[test]
    fn locks_of_buckets_that_mean_nothing_are_refused() {
        let (mode, days) = ("<Mode>GOVERNANCE</Mode>", "<Days>1</Days>");
        for (document, code) in [
            (bucket(""), "MalformedXML"),
            (bucket("<ObjectLockEnabled>enabled</ObjectLockEnabled>"), "MalformedXML"),
            (bucket("<ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule/>"), "MalformedXML"),
            (default(""), "MalformedXML"),
            (default(mode), "MalformedXML"),
            (default(days), "MalformedXML"),
            (default(&format!("{mode}{days}<Years>1</Years>")), "MalformedXML"),
            (default(&format!("<Mode>governance</Mode>{days}")), "MalformedXML"),
            (default(&format!("{mode}<Days>x</Days>")), "MalformedXML"),
            (default(&format!("{mode}<Days>0</Days>")), "InvalidRetentionPeriod"),
            (default(&format!("{mode}<Years>-1</Years>")), "InvalidRetentionPeriod"),
            (default(&format!("{mode}<Days>36501</Days>")), "InvalidArgument"),
            (default(&format!("{mode}<Years>101</Years>")), "InvalidArgument"),
            (default(&format!("{mode}<Years>99999999999</Years>")), "InvalidArgument"),
            (default(&format!("{mode}{days}<DefaultEventHold/>")), "NotImplemented"),
        ] {
            assert_eq!(document, Err(code));
        }
        assert!(read_bucket(b"").is_err());
    }

    #[test]
    fn a_retention_is_written_and_read_back() {
        let retention = Retention { mode: RetentionMode::Compliance, until: Timestamp(1_893_456_000_500_000) };
        let document = write_retention(retention);
        assert_eq!(read_retention(&document).unwrap(), Some(retention));
        let expected = "<Mode>COMPLIANCE</Mode><RetainUntilDate>2030-01-01T00:00:00.500Z</RetainUntilDate></Retention>";
        assert!(std::str::from_utf8(&document).unwrap().ends_with(expected));
        assert_eq!(version(""), Ok(None), "it is lifted");
        let until = "<RetainUntilDate>2030-01-01T02:00:00+02:00</RetainUntilDate>";
        for (document, code) in [
            (version("<Mode>GOVERNANCE</Mode>"), "MalformedXML"),
            (version(until), "MalformedXML"),
            (version(&format!("<Mode>Governance</Mode>{until}")), "MalformedXML"),
            (version("<Mode>GOVERNANCE</Mode><RetainUntilDate>soon</RetainUntilDate>"), "MalformedXML"),
            (version(&format!("<Mode>GOVERNANCE</Mode>{until}<EventHold>ON</EventHold>")), "NotImplemented"),
            (version("<EventHoldDuration><Days>1</Days></EventHoldDuration>"), "NotImplemented"),
        ] {
            assert_eq!(document, Err(code));
        }
    }

    #[test]
    fn a_legal_hold_is_on_or_off() {
        for is_on in [true, false] {
            assert_eq!(read_legal_hold(&write_legal_hold(is_on)).unwrap(), is_on);
        }
        for bad in ["", "<Status/>", "<Status>on</Status>", "<Status>ON</Status><Status>x</Status>"] {
            assert_eq!(hold(bad), Err("MalformedXML"), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(bytes: Vec<u8>, text in "(<|>|/|Retention|Mode|LegalHold|Status|Rule|x)*") {
            for document in [&bytes[..], text.as_bytes()] {
                let _ = (read_bucket(document), read_retention(document), read_legal_hold(document));
            }
        }
    }
}
