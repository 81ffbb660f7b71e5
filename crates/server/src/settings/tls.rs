//! The encrypted listeners and their certificate.

use larder_net::TlsFiles;

use super::raw::RawSettings;
use super::table::{self, Setting};
use super::{Listener, SettingError, parse};

/// The encrypted listeners, checked against the settings of their certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// Riak's HTTP.
    pub https: Listener,
    /// Riak's protocol buffers.
    pub pb_tls: Listener,
    /// S3.
    pub s3_https: Listener,
    /// The certificate of all three.
    pub files: TlsFiles,
}

impl TlsSettings {
    /// Resolves the settings; `None` without an encrypted listener, and without a certificate for clients that begin in clear.
    ///
    /// # Errors
    /// A setting is invalid or missing, or is given and has no listener to apply to.
    pub(super) fn resolve(raw: &RawSettings) -> Result<Option<Self>, SettingError> {
        let listener = |setting| raw.value(setting, parse::listener);
        let (https, pb_tls, s3_https) =
            (listener(&table::HTTPS)?, listener(&table::PB_TLS)?, listener(&table::S3_HTTPS)?);
        let listeners = [(&table::HTTPS, &https), (&table::PB_TLS, &pb_tls), (&table::S3_HTTPS, &s3_https)];
        let path = |setting| raw.value(setting, parse::optional_path);
        let (certificate, key) = (path(&table::TLS_CERT)?, path(&table::TLS_KEY)?);
        let (client_ca, client_crl) = (path(&table::TLS_CLIENT_CA)?, path(&table::TLS_CLIENT_CRL)?);
        let requires_tls13 = raw.value(&table::TLS_MIN, parse::is_tls13)?;
        // Clients of a plain listener of protocol buffers begin TLS while security is on.
        let starts_tls = listener(&table::PB)? != Listener::Off && certificate.is_some() && key.is_some();
        let first = listeners.iter().find(|(_, at)| **at != Listener::Off).map(|(setting, _)| *setting);
        let Some(first) = first.or(starts_tls.then_some(&table::PB)) else {
            let tls_settings =
                [&table::TLS_CERT, &table::TLS_KEY, &table::TLS_CLIENT_CA, &table::TLS_CLIENT_CRL, &table::TLS_MIN];
            return match tls_settings.iter().find_map(|setting| raw.given_as(setting)) {
                None => Ok(None),
                Some(given) => Err(SettingError::new(format!(
                    "{given} is given, but no listener is encrypted: it goes with {}, {} or {}",
                    table::HTTPS.flag(),
                    table::PB_TLS.flag(),
                    table::S3_HTTPS.flag()
                ))),
            };
        };
        let certificate = certificate.ok_or_else(|| missing(first, &table::TLS_CERT))?;
        let key = key.ok_or_else(|| missing(first, &table::TLS_KEY))?;
        if client_crl.is_some() && client_ca.is_none() {
            return Err(SettingError::new(format!(
                "{} needs {}, which is missing",
                table::TLS_CLIENT_CRL.name,
                table::TLS_CLIENT_CA.name
            )));
        }
        let files = TlsFiles { certificate, key, client_ca, client_crl, requires_tls13 };
        Ok(Some(Self { https, pb_tls, s3_https, files }))
    }
}

fn missing(given: &Setting, needed: &Setting) -> SettingError {
    SettingError::new(format!(
        "{} needs {}, which is missing; `kv-admin tls self-signed <directory>` makes a certificate for trying",
        given.name, needed.name
    ))
}
