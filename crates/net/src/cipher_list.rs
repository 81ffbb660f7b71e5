//! The ciphers of TLS by OpenSSL's names, as `kv-admin security ciphers` takes them.

/// OpenSSL's names of the ciphers that listeners offer, the preferred ones first. Those of TLS 1.3 begin with `TLS_`.
pub const CIPHER_NAMES: [&str; 9] = [
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-CHACHA20-POLY1305",
];

/// A list of ciphers, sorted into those that listeners offer and all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CipherList<'a> {
    /// The names that listeners offer.
    pub offered: Vec<&'a str>,
    /// The names that they do not.
    pub others: Vec<&'a str>,
}

impl<'a> CipherList<'a> {
    /// Reads a list with colons.
    #[must_use]
    pub fn parse(list: &'a str) -> Self {
        let names = list.split(':').filter(|name| !name.is_empty());
        let (offered, others) = names.partition(|name| CIPHER_NAMES.contains(name));
        Self { offered, others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_sorted_into_offered_ciphers_and_others() {
        let list = CipherList::parse("RC4-SHA:ECDHE-RSA-AES256-GCM-SHA384::TLS_AES_128_GCM_SHA256");
        assert_eq!(list.offered, ["ECDHE-RSA-AES256-GCM-SHA384", "TLS_AES_128_GCM_SHA256"]);
        assert_eq!(list.others, ["RC4-SHA"]);
    }

    #[test]
    fn the_names_are_those_of_the_encryption() {
        // rustls calls a cipher of TLS 1.2 by the name of its registry: TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384.
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let shown = |name: String| name.replace("TLS13", "TLS").replace("_WITH", "");
        let offered: Vec<String> =
            provider.cipher_suites.iter().map(|suite| shown(format!("{:?}", suite.suite()))).collect();
        let ours: Vec<String> = CIPHER_NAMES
            .iter()
            .map(|name| match name.starts_with("TLS_") {
                true => (*name).to_owned(),
                false => {
                    let name = name.replace("AES256", "AES_256").replace("AES128", "AES_128").replace('-', "_");
                    let mac = if name.ends_with("POLY1305") { "_SHA256" } else { "" };
                    format!("TLS_{name}{mac}")
                }
            })
            .collect();
        assert_eq!(offered, ours);
    }
}
