//! Tokens of sessions: what a session is, sealed for the client that keeps it. The store keeps nothing of a session.
//!
//! ```text
//! base64 of   version 1 · nonce, 12 bytes · JSON sealed with AES-256-GCM
//! ```
//! The key of the seal is derived from the store's key and the id of the temporary access key, so a token opens with its own id
//! alone. The temporary secret is derived from both as well.

use aws_lc_rs::aead::{Aad, NONCE_LEN, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use larder_encryption::{BadKey, SecretKey};
use larder_rows::Timestamp;
use serde::{Deserialize, Serialize};

use super::user::new_key_id;

/// What keys are derived for.
const SEAL: &[u8] = b"larder s3 session token 1";
const SECRET: &[u8] = b"larder s3 session secret 1";
const MAKER: &[u8] = b"larder s3 session maker 1";
/// Version of the token.
const VERSION: u8 = 1;
/// Begin of the ids of temporary keys, by which tools know them.
const PREFIX: &str = "ASIA";
/// Longest token that is opened, in bytes: one with the longest policy, each character of it escaped, is shorter.
const TOKEN_BYTES_MAX: usize = 20 * 1024;

/// A session of a user, as its token has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The canonical id of the user.
    pub user: String,
    /// The id of the access key that it was made with: its limits are those of the session.
    pub key: String,
    /// A mark of that key's secret, by [`TokenKey::maker_mark`]: with another secret the session ends.
    pub maker: String,
    /// The time from which on it is refused.
    pub expires: Timestamp,
    /// The policy that narrows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// The key of a store under which the tokens of its sessions are sealed.
#[derive(Debug, Clone, Copy)]
pub struct TokenKey(SecretKey);

impl TokenKey {
    /// A key of these bytes, which must be random.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(SecretKey::new(bytes))
    }

    /// The token of a session with this temporary key id. The nonce must be random.
    ///
    /// # Errors
    /// None in practice.
    pub fn seal_session(&self, key_id: &str, nonce: [u8; NONCE_LEN], session: &Session) -> Result<String, BadKey> {
        let mut sealed = serde_json::to_vec(session).map_err(|_| BadKey)?;
        let unique = Nonce::assume_unique_for_key(nonce);
        self.session_key(key_id)?
            .cipher()?
            .seal_in_place_append_tag(unique, Aad::from([VERSION]), &mut sealed)
            .map_err(|_| BadKey)?;
        Ok(URL_SAFE_NO_PAD.encode([&[VERSION], &nonce[..], &sealed].concat()))
    }

    /// The session of a token.
    ///
    /// # Errors
    /// [`BadKey`] for a token of another key id or another store, and for one that is damaged or none.
    pub fn open_session(&self, key_id: &str, token: &str) -> Result<Session, BadKey> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(BadKey);
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| BadKey)?;
        let (version, rest) = bytes.split_first().ok_or(BadKey)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN).filter(|_| *version == VERSION).ok_or(BadKey)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| BadKey)?;
        let mut sealed = sealed.to_vec();
        let cipher = self.session_key(key_id)?.cipher()?;
        let json = cipher.open_in_place(nonce, Aad::from([VERSION]), &mut sealed).map_err(|_| BadKey)?;
        serde_json::from_slice(json).map_err(|_| BadKey)
    }

    /// The secret of the temporary key with this id: 40 characters.
    ///
    /// # Errors
    /// None in practice.
    pub fn session_secret(&self, key_id: &str) -> Result<String, BadKey> {
        Ok(URL_SAFE.encode(self.0.derive::<30>(key_id.as_bytes(), &[SECRET])?))
    }

    /// A mark of the secret of the key that made a session, which tells nothing of it.
    ///
    /// # Errors
    /// None in practice.
    pub fn maker_mark(&self, secret: &str) -> Result<String, BadKey> {
        Ok(hex::encode(self.0.derive::<16>(secret.as_bytes(), &[MAKER])?))
    }

    fn session_key(&self, key_id: &str) -> Result<SecretKey, BadKey> {
        Ok(SecretKey::new(self.0.derive(key_id.as_bytes(), &[SEAL])?))
    }
}

/// A new id of a temporary key: 20 characters.
#[must_use]
pub fn new_session_key_id(random: &[u8; 20]) -> String {
    let id = new_key_id(random);
    format!("{PREFIX}{}", id.get(PREFIX.len()..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: TokenKey = TokenKey::new([7; 32]);

    fn session() -> Session {
        Session {
            user: "u".repeat(64),
            key: "PARENT".into(),
            maker: KEY.maker_mark("secret").unwrap(),
            expires: Timestamp(1_893_456_000_000_000),
            policy: None,
        }
    }

    #[test]
    fn a_token_opens_with_its_own_key_id_alone() {
        let token = KEY.seal_session("ASIA1", [3; 12], &session()).unwrap();
        assert_eq!(KEY.open_session("ASIA1", &token).unwrap(), session());
        assert!(KEY.open_session("ASIA2", &token).is_err());
        assert!(TokenKey::new([8; 32]).open_session("ASIA1", &token).is_err());
        assert_ne!(KEY.session_secret("ASIA1").unwrap(), KEY.session_secret("ASIA2").unwrap());
        assert_ne!(KEY.maker_mark("a").unwrap(), KEY.maker_mark("b").unwrap());
        assert_eq!(KEY.session_secret("ASIA1").unwrap().len(), 40);
    }

    #[test]
    fn a_token_with_any_byte_changed_or_cut_does_not_open() {
        let token = KEY.seal_session("ASIA1", [3; 12], &session()).unwrap();
        let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(KEY.open_session("ASIA1", &URL_SAFE_NO_PAD.encode(flipped)).is_err(), "{at}");
            assert!(KEY.open_session("ASIA1", &URL_SAFE_NO_PAD.encode(&bytes[..at])).is_err(), "{at}");
        }
        for bad in ["", "!", "AQ", &"A".repeat(TOKEN_BYTES_MAX + 1)] {
            assert!(KEY.open_session("ASIA1", bad).is_err());
        }
    }

    #[test]
    fn a_token_with_the_longest_policy_opens() {
        let policy = Some("\u{1}".repeat(larder_rows::limits::SESSION_POLICY_BYTES_MAX));
        let session = Session { policy, key: "k".repeat(256), ..session() };
        let token = KEY.seal_session("ASIA1", [3; 12], &session).unwrap();
        assert_eq!(KEY.open_session("ASIA1", &token).unwrap(), session);
    }

    /// Clients keep tokens: a change here ends their sessions. The values are those of another implementation.
    #[test]
    fn the_golden_token() {
        let token = KEY.seal_session("ASIA1", [3; 12], &session()).unwrap();
        assert_eq!(
            token,
            "AQMDAwMDAwMDAwMDA81bwTatAQ2GZYTCGv7mxfxW0uv5IwTBNaRReNzV-S9fgvihzGm-TkbbB0SVSxXr4iA4WdNCET\
             Uq9gbpS_fkfSQNRVIW1s5ayoVpojMTc-Y0GMpytlGT5p1LRCIJ6D843rulHLssylIbyQ8pppISkLPC6HLFEj2gcEqi\
             m2ZgRdwv7L-h-DsR-B4jH1QTZhd1X9jabGdocXRJ_PwiQlhrIfnyBraf8iClrIqKliPy9OVI"
        );
        assert_eq!(KEY.session_secret("ASIA1").unwrap(), "9KRfcDupb3j5Y9kw0qnsVLb8iOIFTpRmUswRYkXO");
    }

    #[test]
    fn ids_of_temporary_keys_begin_as_those_of_aws_do() {
        let id = new_session_key_id(&[5; 20]);
        assert!(id.starts_with("ASIA") && id.len() == 20, "{id}");
    }
}
