//! The credential of version 4: for whom, for which day, region and service a request is signed.

use super::canonical::{hmac_sha256, sha256_hex};

/// The name of the algorithm.
pub const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The last part of every credential scope.
const TERMINAL: &str = "aws4_request";

/// The service that a signature is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignedService {
    /// S3.
    S3,
    /// STS: only a header with version 4 signs its requests, and always their body.
    Sts {
        /// The SHA-256 of the body.
        digest: [u8; 32],
    },
}

impl SignedService {
    /// Its name in a credential scope.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Sts { .. } => "sts",
        }
    }
}

/// The credential of a signature: access key and scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// The access key id.
    pub access_key: String,
    /// The day, `20060102`.
    pub day: String,
    /// The region.
    pub region: String,
    /// The name of the service.
    pub service: &'static str,
}

impl Credential {
    /// Parses the credential of a request to S3, as [`Self::parse_for`].
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        Self::parse_for(SignedService::S3, text)
    }

    /// Parses `<access key>/<day>/<region>/<service>/aws4_request` from the right, because a key may contain slashes. The
    /// error is the message for the client.
    pub(super) fn parse_for(expected: SignedService, text: &str) -> Result<Self, &'static str> {
        let mut parts = text.rsplitn(5, '/');
        let (Some(terminal), Some(service), Some(region), Some(day), Some(access_key)) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(
                "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".",
            );
        };
        if day.len() != 8 || !day.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("invalid credential date. This date is not in the form YYYYMMDD.");
        }
        if service != expected.name() {
            return Err(match expected {
                SignedService::S3 => "incorrect service. This endpoint belongs to \"s3\".",
                SignedService::Sts { .. } => "incorrect service. This call belongs to \"sts\".",
            });
        }
        if terminal != TERMINAL {
            return Err("incorrect terminal. This endpoint uses \"aws4_request\".");
        }
        if access_key.is_empty() {
            return Err("the Credential has no access key.");
        }
        Ok(Self {
            access_key: access_key.to_owned(),
            day: day.to_owned(),
            region: region.to_owned(),
            service: expected.name(),
        })
    }

    /// The credential scope.
    #[must_use]
    pub fn scope(&self) -> String {
        [&self.day, "/", &self.region, "/", self.service, "/", TERMINAL].concat()
    }

    /// The signature of a canonical request that was made at this time, `20060102T150405Z`, of the day of the credential.
    #[must_use]
    pub fn sign(&self, secret: &str, date: &str, canonical: &[u8]) -> String {
        let text = self.string_to_sign(date, canonical);
        hex::encode(hmac_sha256(&self.key(secret), text.as_bytes()))
    }

    /// The text that a signature of a canonical request signs.
    pub(super) fn string_to_sign(&self, date: &str, canonical: &[u8]) -> String {
        [ALGORITHM, "\n", date, "\n", &self.scope(), "\n", &sha256_hex(canonical)].concat()
    }

    /// The signing key of this day and region.
    pub(super) fn key(&self, secret: &str) -> [u8; 32] {
        let day = hmac_sha256(format!("AWS4{secret}").as_bytes(), self.day.as_bytes());
        let region = hmac_sha256(&day, self.region.as_bytes());
        let service = hmac_sha256(&region, self.service.as_bytes());
        hmac_sha256(&service, TERMINAL.as_bytes())
    }
}
