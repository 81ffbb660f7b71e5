//! Presigned addresses that this server makes itself.

use larder_rows::Timestamp;
use larder_s3_rules::dates;
use percent_encoding::percent_encode;

use super::SignedService;
use super::canonical::{PATH, QUERY};
use super::credential::{ALGORITHM, Credential};
use super::v4::UNSIGNED;
use crate::target::PublicUrl;

/// The region of addresses where the settings name none.
const ANY_REGION: &str = "us-east-1";

/// A GET of one object by anyone who has its address.
#[derive(Debug, Clone, Copy)]
pub struct PresignedGet<'a> {
    /// The bucket.
    pub bucket: &'a str,
    /// The key.
    pub key: &'a [u8],
    /// The version, as its id for clients; `None` for the current one.
    pub version: Option<&'a str>,
    /// The time of signing.
    pub now: Timestamp,
    /// Seconds from then on for which the address is valid, at most a week.
    pub seconds: u64,
    /// The region that signatures must name; `None` where any will do.
    pub region: Option<&'a str>,
}

impl PresignedGet<'_> {
    /// The address below `root`, signed with version 4 by this access key.
    #[must_use]
    pub fn address(&self, root: &PublicUrl, access_key: &str, secret: &str) -> String {
        let date = dates::basic(self.now);
        let day = date.get(..8).unwrap_or_default().to_owned();
        let region = self.region.unwrap_or(ANY_REGION).to_owned();
        let credential =
            Credential { access_key: access_key.to_owned(), day, region, service: SignedService::S3.name() };
        let scope = credential.scope();
        let (bucket, key) = (percent_encode(self.bucket.as_bytes(), PATH), percent_encode(self.key, PATH));
        let path = format!("/{bucket}/{key}");
        let named = format!("{access_key}/{scope}");
        let encoded = |text: &str| percent_encode(text.as_bytes(), QUERY).to_string();
        // In the order of the canonical request: capitals sort before small letters.
        let mut query = format!(
            "X-Amz-Algorithm={ALGORITHM}&X-Amz-Credential={}&X-Amz-Date={date}&X-Amz-Expires={}&X-Amz-SignedHeaders=host",
            encoded(&named),
            self.seconds
        );
        if let Some(version) = self.version {
            query.push_str("&versionId=");
            query.push_str(&encoded(version));
        }
        let host = root.authority();
        let canonical = format!("GET\n{path}\n{query}\nhost:{host}\n\nhost\n{UNSIGNED}");
        let signature = credential.sign(secret, &date, canonical.as_bytes());
        format!("{root}{path}?{query}&X-Amz-Signature={signature}")
    }
}
