//! `?versioning`: the versioning state of a bucket.

use bytes::Bytes;
use hyper::StatusCode;
use larder_s3::rules::Versioning;

use super::upload_body;
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::xml::{XmlReader, XmlWriter};

pub(super) async fn get(call: &S3Call) -> Result<S3Response, S3Error> {
    let bucket = call.objects.buckets.find_for(&call.caller, &call.bucket).await?;
    Ok(response::document(write(bucket.versioning)))
}

pub(super) async fn put(call: &S3Call) -> Result<S3Response, S3Error> {
    let versioning = read(&upload_body::document(call).await?)?;
    call.configure(StatusCode::OK, |bucket| bucket.versioning = versioning).await
}

fn write(versioning: Versioning) -> Bytes {
    let mut xml = XmlWriter::new("VersioningConfiguration");
    match versioning {
        Versioning::Off => {}
        Versioning::Enabled => drop(xml.text("Status", "Enabled")),
        Versioning::Suspended => drop(xml.text("Status", "Suspended")),
    }
    xml.finish()
}

fn read(document: &[u8]) -> Result<Versioning, S3Error> {
    let mut xml = XmlReader::open(document, "VersioningConfiguration")?;
    let mut versioning = None;
    while let Some(name) = xml.next_child()? {
        match name {
            "Status" => {
                versioning = Some(match xml.text()?.trim() {
                    "Enabled" => Versioning::Enabled,
                    "Suspended" => Versioning::Suspended,
                    "" => return Err(Code::IllegalVersioningConfigurationException.into()),
                    _ => return Err(Code::MalformedXML.into()),
                });
            }
            "MfaDelete" | "MFADelete" if xml.text()?.trim() == "Disabled" => {}
            "MfaDelete" | "MFADelete" => return Err(S3Error::element_not_offered("MfaDelete")),
            _ => xml.skip()?,
        }
    }
    xml.expect_end()?;
    versioning.ok_or_else(|| Code::IllegalVersioningConfigurationException.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn versioning_documents_are_read_and_written() {
        let text = |versioning| String::from_utf8(write(versioning).to_vec()).unwrap();
        assert!(text(Versioning::Off).ends_with("03-01/\"></VersioningConfiguration>"));
        for versioning in [Versioning::Enabled, Versioning::Suspended] {
            assert_eq!(read(&write(versioning)).unwrap(), versioning);
        }
        let of = |inner: &str| read(format!("<VersioningConfiguration>{inner}</VersioningConfiguration>").as_bytes());
        assert_eq!(of("<Status>Enabled</Status><MfaDelete>Disabled</MfaDelete>").unwrap(), Versioning::Enabled);
        for (inner, code) in [
            ("", "IllegalVersioningConfigurationException"),
            ("<Status/>", "IllegalVersioningConfigurationException"),
            ("<Status>enabled</Status>", "MalformedXML"),
            ("<Status>Enabled</Status><MfaDelete>Enabled</MfaDelete>", "NotImplemented"),
            ("<Status>Enabled", "MalformedXML"),
        ] {
            assert_eq!(of(inner).unwrap_err().code.name(), code, "{inner}");
        }
    }

    proptest! {
        #[test]
        fn any_document_is_read_or_refused(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }
    }
}
