//! The settings of the S3 listener.

use larder_net::ConnectionSettings;

use crate::target::PublicUrl;

/// Settings of the S3 listener.
#[derive(Debug, Clone)]
pub struct S3Settings {
    /// Root hosts. A label in front of a root host names a bucket.
    pub roots: Vec<String>,
    /// Hosts of websites. A label in front of one names the bucket whose website is served; the host itself is a bucket of its name.
    pub websites: Vec<String>,
    /// The address at which clients reach this interface, where it is another than its own; its host is a root, too.
    pub public_url: Option<PublicUrl>,
    /// The only region accepted in signatures; `None` accepts any.
    pub region: Option<String>,
    /// Whether anonymous clients may create users; Riak CS creates its first administrator this way.
    pub anonymous_user_creation: bool,
    /// Whether every listener is on loopback: unsigned requests that browsers send for foreign pages are refused there.
    pub is_on_loopback: bool,
    /// Whether the metrics page at the paths of MinIO is for everyone; otherwise it needs a token of an administrator.
    pub has_public_metrics: bool,
    /// Whether customers' keys are taken over plain HTTP, too: TLS ends elsewhere.
    pub takes_plain_customer_keys: bool,
    /// The settings that every HTTP listener has.
    pub connection: ConnectionSettings,
}

impl Default for S3Settings {
    fn default() -> Self {
        Self {
            roots: vec!["s3.localhost".into(), "localhost".into()],
            websites: vec!["s3-website.localhost".into()],
            public_url: None,
            region: None,
            anonymous_user_creation: false,
            is_on_loopback: false,
            has_public_metrics: false,
            takes_plain_customer_keys: false,
            connection: ConnectionSettings::default(),
        }
    }
}
