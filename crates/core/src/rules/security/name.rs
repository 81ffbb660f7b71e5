//! Names of users and groups. Both are kept in lower case, and share one set of rules.

use larder_rows::limits::ROLE_NAME_BYTES_MAX;

use super::SecurityRefusal;

/// The group that every user is in.
pub const ALL: &str = "all";
/// Words of the commands, which no user or group may have as its name.
const RESERVED: [&str; 5] = [ALL, "on", "to", "from", "any"];

/// The lower case of a name, as the commands write it: of the letters of Latin-1 alone, as Riak does.
#[must_use]
pub fn folded(name: &str) -> String {
    let fold = |letter: char| match letter {
        // The sign of multiplication stands among the capitals.
        'A'..='Z' | 'À'..='Ö' | 'Ø'..='Þ' => char::from_u32(u32::from(letter) + 32).unwrap_or(letter),
        other => other,
    };
    name.chars().map(fold).collect()
}

/// The name of a new user or group, in lower case.
///
/// # Errors
/// [`SecurityRefusal::IllegalName`], [`SecurityRefusal::ReservedName`].
pub fn parse_name(name: &str) -> Result<String, SecurityRefusal> {
    let is_illegal = |letter: char| {
        matches!(letter, '\0'..=' ' | '!' | '"' | '#' | '$' | '%' | '&' | '\'' | '(' | ')' | '*' | '+' | ',')
            || matches!(letter, ':' | ';' | '<' | '=' | '>' | '?' | '\u{7f}'..='\u{bf}')
    };
    let name = folded(name);
    if name.is_empty() || name.len() > ROLE_NAME_BYTES_MAX || name.chars().any(is_illegal) {
        return Err(SecurityRefusal::IllegalName);
    }
    if RESERVED.contains(&&*name) { Err(SecurityRefusal::ReservedName) } else { Ok(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_in_lower_case_of_latin_1() {
        for (name, expected) in
            [("Bob", "bob"), ("ÄÖÜ×Þß", "äöü×þß"), ("ПРИМЕР", "ПРИМЕР"), ("a-b_c.d/e@f", "a-b_c.d/e@f")]
        {
            assert_eq!(parse_name(name), Ok(expected.to_owned()), "{name}");
        }
    }

    #[test]
    fn words_of_the_commands_and_marks_are_no_names() {
        for name in ["all", "ON", "To", "from", "Any"] {
            assert_eq!(parse_name(name), Err(SecurityRefusal::ReservedName), "{name}");
        }
        let long = "a".repeat(ROLE_NAME_BYTES_MAX + 1);
        for name in ["", "a b", "a\n", "a,b", "a=b", "a?", "a*", "\"a", "a\u{7f}", "a\u{a0}", "a\u{bf}", &long] {
            assert_eq!(parse_name(name), Err(SecurityRefusal::IllegalName), "{name:?}");
        }
        assert!(parse_name("a\u{c0}").is_ok() && parse_name("@[]^_`{|}~/.-").is_ok());
    }
}
