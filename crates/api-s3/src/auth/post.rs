//! The signature of a form. It covers the policy field alone, in either version.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_s3_rules::dates;
use subtle::ConstantTimeEq as _;

use crate::errors::S3Error;

use super::canonical::{hmac_sha1, hmac_sha256, unhex};
use super::credential::{ALGORITHM, Credential};
use super::mismatch;

/// The parsed signature of a form, not yet verified.
#[derive(Debug)]
pub struct FormSignature {
    /// The access key id.
    pub access_key: String,
    policy: String,
    signature: String,
    credential: Option<Credential>,
}

impl FormSignature {
    /// Parses the signature from the fields of a form; `field` takes names in lower case. `None` for a form without a
    /// policy, which is unsigned.
    ///
    /// # Errors
    /// `InvalidArgument` naming the missing or invalid field.
    pub fn from_fields<'a>(field: impl Fn(&str) -> Option<&'a str>) -> Result<Option<Self>, S3Error> {
        let filled = |name: &str| field(name).filter(|value| !value.is_empty());
        let Some(policy) = filled("policy") else { return Ok(None) };
        let required = |name: &'static str, shown: &'static str| filled(name).ok_or_else(|| missing(shown));
        if field("x-amz-signature").is_none() && field("x-amz-algorithm").is_none() {
            let access_key = required("awsaccesskeyid", "AWSAccessKeyId")?;
            let signature = required("signature", "signature")?;
            return Ok(Some(Self {
                access_key: access_key.to_owned(),
                policy: policy.to_owned(),
                // A form field decodes a plus as a space; base64 has no spaces.
                signature: signature.replace(' ', "+"),
                credential: None,
            }));
        }
        let algorithm = required("x-amz-algorithm", "X-Amz-Algorithm")?;
        if algorithm != ALGORITHM {
            let message = "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"";
            return Err(S3Error::argument("X-Amz-Algorithm", algorithm, message));
        }
        let text = required("x-amz-credential", "X-Amz-Credential")?;
        let credential = Credential::parse(text).map_err(|what| S3Error::argument("X-Amz-Credential", text, what))?;
        let date = required("x-amz-date", "X-Amz-Date")?;
        if dates::parse_basic(date).is_none() || !date.starts_with(&credential.day) {
            let message = "X-Amz-Date must be in the ISO8601 Long Format and of the credential's day";
            return Err(S3Error::argument("X-Amz-Date", date, message));
        }
        Ok(Some(Self {
            access_key: credential.access_key.clone(),
            policy: policy.to_owned(),
            signature: required("x-amz-signature", "X-Amz-Signature")?.to_owned(),
            credential: Some(credential),
        }))
    }

    /// The policy in base64.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// The region of a version 4 signature.
    #[must_use]
    pub fn region(&self) -> Option<&str> {
        self.credential.as_ref().map(|credential| &*credential.region)
    }

    /// Verifies the signature.
    ///
    /// # Errors
    /// `SignatureDoesNotMatch`.
    pub fn verify(&self, secret: &str) -> Result<(), S3Error> {
        let policy = self.policy.as_bytes();
        let holds: bool = match &self.credential {
            None => {
                let given = STANDARD.decode(&self.signature).unwrap_or_default();
                hmac_sha1(secret.as_bytes(), policy).as_slice().ct_eq(&given).into()
            }
            Some(credential) => unhex(&self.signature)
                .is_some_and(|given| hmac_sha256(&credential.key(secret), policy).ct_eq(&given).into()),
        };
        if holds { Ok(()) } else { Err(mismatch(&self.access_key, policy, &self.signature)) }
    }
}

fn missing(name: &'static str) -> S3Error {
    S3Error::argument(
        name,
        "",
        format!(
            "Bucket POST must contain a field named '{name}'.  If it is specified, please check \
                                       the order of the fields."
        ),
    )
}
