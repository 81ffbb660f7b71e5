//! `?versioning`: whether a bucket keeps versions.

use bytes::Bytes;
use hyper::StatusCode;
use larder_model::objects::Versioning;

use super::incoming;
use crate::call::Call;
use crate::errors::{Code, Fault};
use crate::reply::{self, Reply};
use crate::xml::{Reader, Xml};

pub(super) async fn get(call: &Call) -> Result<Reply, Fault> {
    let bucket = call.objects.bucket_for(&call.caller, &call.bucket, call.operation.action).await?;
    Ok(reply::document(write(bucket.versioning)))
}

pub(super) async fn put(call: &Call) -> Result<Reply, Fault> {
    let versioning = read(&incoming::document(call).await?)?;
    let change = |bucket: &mut larder_model::objects::Bucket| {
        bucket.versioning = versioning;
        Ok(())
    };
    call.objects.configure(&call.caller, &call.bucket, call.operation.action, change).await?;
    Ok(reply::empty(StatusCode::OK))
}

fn write(versioning: Versioning) -> Bytes {
    let mut xml = Xml::new("VersioningConfiguration");
    match versioning {
        Versioning::Off => {}
        Versioning::Enabled => drop(xml.text("Status", "Enabled")),
        Versioning::Suspended => drop(xml.text("Status", "Suspended")),
    }
    xml.finish()
}

fn read(document: &[u8]) -> Result<Versioning, Fault> {
    let mut xml = Reader::open(document, "VersioningConfiguration")?;
    let mut versioning = None;
    while let Some(name) = xml.child()? {
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
            "MfaDelete" | "MFADelete" => return Err(Code::NotImplemented.into()),
            _ => xml.skip()?,
        }
    }
    xml.end()?;
    versioning.ok_or_else(|| Code::IllegalVersioningConfigurationException.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn documents() {
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
