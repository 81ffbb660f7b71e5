//! The address of a source: `riak://HOST:PORT[,HOST:PORT…]`.

/// Most hosts of one source.
const HOSTS_MAX: usize = 256;
/// Riak's HTTP port.
const HTTP_PORT: u16 = 8098;

/// The nodes of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceAddress {
    /// Each node as `HOST:PORT`.
    pub hosts: Vec<String>,
}

impl SourceAddress {
    /// Reads the address that an operator gave.
    ///
    /// # Errors
    /// A line that says what is wrong, or not offered.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("the source is an address like riak://HOST:8098")?;
        match scheme {
            "riak" => {}
            "riaks" => return Err("riaks:// is not offered yet: a move reads its source without TLS".to_owned()),
            "s3" | "s3s" => return Err("moves from S3 are not offered yet; docs/from-minio.md has the way".to_owned()),
            _ => return Err(format!("{scheme}:// is no source: a move reads riak://HOST:8098")),
        }
        let hosts = rest.trim_end_matches('/').split(',').map(host).collect::<Result<Vec<_>, _>>()?;
        if hosts.len() > HOSTS_MAX {
            return Err(format!("a source has at most {HOSTS_MAX} hosts"));
        }
        Ok(Self { hosts })
    }

    /// Its text.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("riak://{}", self.hosts.join(","))
    }
}

fn host(text: &str) -> Result<String, String> {
    let wrong = || format!("`{}` is not HOST:PORT", text.escape_debug());
    let text = text.trim();
    let end_of_literal = text.rfind(']').map_or(0, |at| at + 1);
    let (name, port) = match text[end_of_literal..].rfind(':') {
        Some(at) => (&text[..end_of_literal + at], text[end_of_literal + at + 1..].parse().map_err(|_| wrong())?),
        None => (text, HTTP_PORT),
    };
    let is_literal = name.starts_with('[') && name.ends_with(']');
    let is_name_letter = |char: char| char.is_ascii_alphanumeric() || "-._".contains(char);
    let is_literal_letter = |char: char| char.is_ascii_hexdigit() || "[]:.".contains(char);
    let is_valid = match is_literal {
        true => name.chars().all(is_literal_letter),
        false => !name.is_empty() && name.chars().all(is_name_letter),
    };
    if is_valid && port > 0 { Ok(format!("{name}:{port}")) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_hosts_with_their_ports() {
        let hosts = |text: &str| SourceAddress::parse(text).map(|address| address.hosts);
        assert_eq!(hosts("riak://a"), Ok(vec!["a:8098".into()]));
        assert_eq!(hosts("riak://a:1,b.c:2/"), Ok(vec!["a:1".into(), "b.c:2".into()]));
        assert_eq!(hosts("riak://[::1]:1,[::2]"), Ok(vec!["[::1]:1".into(), "[::2]:8098".into()]));
        assert_eq!(SourceAddress::parse("riak://a").map(|address| address.to_text()), Ok("riak://a:8098".into()));
        for wrong in
            ["a:1", "riak://", "riak://a:x", "riak://a:0", "riak://a/b", "riak://u@a", "riak://a:1,", "ftp://a"]
        {
            assert!(hosts(wrong).is_err(), "{wrong}");
        }
        assert!(hosts("riaks://a").unwrap_err().contains("TLS"));
        assert!(hosts("s3://a").unwrap_err().contains("S3"));
    }
}
