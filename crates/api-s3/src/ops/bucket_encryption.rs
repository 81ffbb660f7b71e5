//! `?encryption`: the default encryption of a bucket.

use bytes::Bytes;
use hyper::StatusCode;
use larder_s3::{Configuration, Error};
use larder_s3_rules::encryption::BucketEncryption;

use super::upload_body;
use crate::call::S3Call;
use crate::errors::{Code, S3Error};
use crate::response::{self, S3Response};
use crate::xml::{XmlReader, XmlWriter};

const ROOT: &str = "ServerSideEncryptionConfiguration";

pub(super) async fn get(call: &S3Call) -> Result<S3Response, S3Error> {
    let bucket = call.objects.buckets.find_for(&call.caller, &call.bucket).await?;
    let encryption = bucket.encryption.ok_or(Error::NoConfiguration(Configuration::Encryption))?;
    Ok(response::document(write(encryption)))
}

pub(super) async fn put(call: &S3Call) -> Result<S3Response, S3Error> {
    let encryption = read(&upload_body::document(call).await?)?;
    call.configure(StatusCode::OK, |bucket| bucket.encryption = Some(encryption)).await
}

pub(super) async fn delete(call: &S3Call) -> Result<S3Response, S3Error> {
    call.configure(StatusCode::NO_CONTENT, |bucket| bucket.encryption = None).await
}

/// Parses the one rule.
///
/// # Errors
/// 400 `MalformedXML`, also for no rule and for two; 501 for KMS and for unknown elements.
pub(super) fn read(document: &[u8]) -> Result<BucketEncryption, S3Error> {
    let mut xml = XmlReader::open(document, ROOT)?;
    let mut encryption = None;
    while let Some(name) = xml.next_child()? {
        match name {
            "Rule" if encryption.is_none() => encryption = Some(rule(&mut xml)?),
            "Rule" => return Err(Code::MalformedXML.into()),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    xml.expect_end()?;
    encryption.ok_or_else(|| Code::MalformedXML.into())
}

fn rule(xml: &mut XmlReader<'_>) -> Result<BucketEncryption, S3Error> {
    let mut rule = BucketEncryption::default();
    let mut is_empty = true;
    while let Some(name) = xml.next_child()? {
        match name {
            "ApplyServerSideEncryptionByDefault" => {
                default_way(xml)?;
                rule.encrypts = true;
            }
            "BucketKeyEnabled" => rule.bucket_key = truth(&xml.text()?)?,
            "BlockedEncryptionTypes" => rule.blocks_customer_keys = Some(blocks(xml)?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
        is_empty = false;
    }
    if is_empty { Err(Code::MalformedXML.into()) } else { Ok(rule) }
}

/// Checks that the way is SSE-S3.
fn default_way(xml: &mut XmlReader<'_>) -> Result<(), S3Error> {
    let (mut algorithm, mut key) = (None, None);
    while let Some(name) = xml.next_child()? {
        match name {
            "SSEAlgorithm" => algorithm = Some(xml.text()?),
            "KMSMasterKeyID" => key = Some(xml.text()?),
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    match algorithm.as_deref().map(str::trim) {
        Some("AES256") if key.is_some() => Err(S3Error::argument(
            "ApplyServerSideEncryptionByDefault",
            "",
            "a KMSMasterKeyID is not applicable if the default sse algorithm is not aws:kms or aws:kms:dsse",
        )),
        Some("AES256") => Ok(()),
        Some("aws:kms" | "aws:kms:dsse") => Err(S3Error::element_not_offered("SSEAlgorithm")),
        _ => Err(Code::MalformedXML.into()),
    }
}

/// Whether customers' keys are blocked.
fn blocks(xml: &mut XmlReader<'_>) -> Result<bool, S3Error> {
    let mut blocks = false;
    while let Some(name) = xml.next_child()? {
        match name {
            "EncryptionType" => match xml.text()?.trim() {
                "SSE-C" => blocks = true,
                "NONE" => {}
                _ => return Err(Code::MalformedXML.into()),
            },
            _ => return Err(S3Error::element_not_offered(name)),
        }
    }
    Ok(blocks)
}

fn truth(text: &str) -> Result<bool, S3Error> {
    match text.trim() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Code::MalformedXML.into()),
    }
}

fn write(encryption: BucketEncryption) -> Bytes {
    let mut xml = XmlWriter::new(ROOT);
    xml.element("Rule", |xml| {
        if encryption.encrypts {
            xml.element("ApplyServerSideEncryptionByDefault", |xml| {
                xml.text("SSEAlgorithm", "AES256");
            });
        }
        xml.value("BucketKeyEnabled", encryption.bucket_key);
        if let Some(blocks) = encryption.blocks_customer_keys {
            xml.element("BlockedEncryptionTypes", |xml| {
                xml.text("EncryptionType", if blocks { "SSE-C" } else { "NONE" });
            });
        }
    });
    xml.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn code(rules: &str) -> Result<BucketEncryption, &'static str> {
        read(format!("<{ROOT}>{rules}</{ROOT}>").as_bytes()).map_err(|error| error.code.name())
    }

    #[test]
    fn one_rule_with_a_known_way_is_taken() {
        let way = |algorithm: &str| {
            format!(
                "<Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>{algorithm}</SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule>"
            )
        };
        let aes = BucketEncryption { encrypts: true, ..BucketEncryption::default() };
        assert_eq!(code(&way("AES256")), Ok(aes));
        assert_eq!(code(&way("aws:kms")), Err("NotImplemented"));
        assert_eq!(code(&way("AES128")), Err("MalformedXML"));
        assert_eq!(code(&way("AES256").repeat(2)), Err("MalformedXML"));
        for rules in ["", "<Rule/>", "<Rule><BucketKeyEnabled>yes</BucketKeyEnabled></Rule>"] {
            assert_eq!(code(rules), Err("MalformedXML"), "{rules}");
        }
        let with_key = way("AES256").replace("</SSEAlgorithm>", "</SSEAlgorithm><KMSMasterKeyID>k</KMSMasterKeyID>");
        assert_eq!(code(&with_key), Err("InvalidArgument"));
        let blocked =
            "<Rule><BlockedEncryptionTypes><EncryptionType>SSE-C</EncryptionType></BlockedEncryptionTypes></Rule>";
        let blocks = BucketEncryption { blocks_customer_keys: Some(true), ..BucketEncryption::default() };
        assert_eq!(code(blocked), Ok(blocks));
    }

    proptest! {
        #[test]
        fn documents_come_back(bucket_key: bool, blocks_customer_keys: Option<bool>) {
            let encryption = BucketEncryption { encrypts: true, bucket_key, blocks_customer_keys };
            prop_assert_eq!(read(&write(encryption)).unwrap(), encryption);
        }
    }
}
