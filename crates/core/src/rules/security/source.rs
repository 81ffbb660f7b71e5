//! Sources: the networks that users come from, and how they prove there who they are.

use larder_rows::ip_network::IpNetwork;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::SecurityRefusal;

/// How a user proves to be it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceMethod {
    /// By its address alone.
    Trust,
    /// By its password.
    Password,
    /// By a certificate whose common name is its name.
    Certificate,
}

impl SourceMethod {
    const ALL: [Self; 3] = [Self::Trust, Self::Password, Self::Certificate];

    /// Its word in the commands.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Trust => "trust",
            Self::Password => "password",
            Self::Certificate => "certificate",
        }
    }

    /// The method of this word.
    ///
    /// # Errors
    /// [`SecurityRefusal::PamSource`], [`SecurityRefusal::UnknownSource`].
    pub fn parse(word: &str) -> Result<Self, SecurityRefusal> {
        match Self::ALL.into_iter().find(|method| method.word() == word) {
            Some(method) => Ok(method),
            None if word == "pam" => Err(SecurityRefusal::PamSource),
            None => Err(SecurityRefusal::UnknownSource(word.to_owned())),
        }
    }
}

/// A network, and the method of those who come from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredSource", into = "StoredSource")]
pub struct AccessSource {
    /// The network.
    pub network: IpNetwork,
    /// The method.
    pub method: SourceMethod,
    /// Options that an operator wrote; they have no effect.
    pub options: Map<String, Value>,
}

/// The stored form.
#[derive(Serialize, Deserialize)]
struct StoredSource {
    cidr: String,
    source: String,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    options: Map<String, Value>,
}

impl TryFrom<StoredSource> for AccessSource {
    type Error = SecurityRefusal;

    fn try_from(stored: StoredSource) -> Result<Self, SecurityRefusal> {
        let network = parse_network(&stored.cidr)?;
        Ok(Self { network, method: SourceMethod::parse(&stored.source)?, options: stored.options })
    }
}

impl From<AccessSource> for StoredSource {
    fn from(source: AccessSource) -> Self {
        Self { cidr: source.network.to_string(), source: source.method.word().to_owned(), options: source.options }
    }
}

/// The network in an argument.
///
/// # Errors
/// [`SecurityRefusal::BadNetwork`].
pub(super) fn parse_network(text: &str) -> Result<IpNetwork, SecurityRefusal> {
    IpNetwork::parse(text).ok_or_else(|| SecurityRefusal::BadNetwork(text.to_owned()))
}
