//! Stored passwords: PBKDF2 with SHA-256, in a form that says how it was made.
//!
//! ```text
//! $pbkdf2-sha256$600000$SALT$HASH        rounds; salt and hash in hexadecimal digits
//! ```
//! Another method or more rounds are another beginning, so stored passwords outlive a change of the cost.

use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2::{PBKDF2_HMAC_SHA256, derive, verify};

/// The rounds of a new password: the number that OWASP advises for this method.
const ROUNDS: u32 = 600_000;
/// More rounds than this in a stored password are no rounds: one log-in would take minutes.
const ROUNDS_MAX: u32 = 20_000_000;
const METHOD: &str = "pbkdf2-sha256";
/// Bytes of a salt.
pub(super) const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// Hashes a password. It takes some tenths of a second of a processor.
#[must_use]
pub(super) fn hashed(password: &[u8], salt: [u8; SALT_BYTES]) -> String {
    let mut hash = [0; HASH_BYTES];
    derive(PBKDF2_HMAC_SHA256, NonZeroU32::new(ROUNDS).unwrap_or(NonZeroU32::MIN), &salt, password, &mut hash);
    format!("${METHOD}${ROUNDS}${}${}", hex(&salt), hex(&hash))
}

/// Whether a password is the one of a stored form, in constant time. Without a stored form it takes as long, and is not: an
/// answer must not tell which users exist.
#[must_use]
pub(super) fn is_password(stored: Option<&str>, password: &[u8]) -> bool {
    let parsed = stored.and_then(parse);
    let is_there = parsed.is_some();
    let (rounds, salt, hash) = parsed.unwrap_or((
        NonZeroU32::new(ROUNDS).unwrap_or(NonZeroU32::MIN),
        vec![0; SALT_BYTES],
        vec![0; HASH_BYTES],
    ));
    verify(PBKDF2_HMAC_SHA256, rounds, &salt, password, &hash).is_ok() && is_there
}

/// Passwords that are hashed at a time: half of the processors, so that requests go on.
pub(super) fn hashes_at_once() -> usize {
    std::thread::available_parallelism().map_or(1, |count| (count.get() / 2).max(1))
}

fn parse(stored: &str) -> Option<(NonZeroU32, Vec<u8>, Vec<u8>)> {
    let [method, rounds, salt, hash] = stored.strip_prefix('$')?.split('$').collect::<Vec<_>>().try_into().ok()?;
    let rounds = rounds.parse().ok().filter(|rounds| *rounds <= ROUNDS_MAX).and_then(NonZeroU32::new)?;
    let hash = unhex(hash).filter(|hash| hash.len() == HASH_BYTES)?;
    (method == METHOD).then_some((rounds, unhex(salt)?, hash))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let pairs = digits?;
    let (pairs, []) = pairs.as_chunks::<2>() else { return None };
    Some(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_recognized_and_no_other() {
        let stored = hashed("geheim ü".as_bytes(), [7; SALT_BYTES]);
        assert!(stored.starts_with("$pbkdf2-sha256$600000$0707") && !stored.contains("geheim"), "{stored}");
        assert!(is_password(Some(&stored), "geheim ü".as_bytes()));
        assert!(!is_password(Some(&stored), b"geheim"));
        assert!(!is_password(None, b""));
    }

    #[test]
    fn the_golden_form_still_counts_and_forms_of_other_kinds_never() {
        // From RFC 7914 §11: two rounds would do, so that this test is quick; 80000 rounds are its second vector.
        let hash = "4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56";
        let golden = format!("$pbkdf2-sha256$80000${}${hash}", hex(b"NaCl"));
        assert!(is_password(Some(&golden), b"Password"));
        for damaged in ["", "$", "$pbkdf2-sha1$1$00$00", "$pbkdf2-sha256$0$00$00", &golden[..golden.len() - 1]] {
            assert!(parse(damaged).is_none(), "{damaged}");
        }
        assert!(parse(&golden.replace("80000", "99999999")).is_none(), "too many rounds");
    }
}
