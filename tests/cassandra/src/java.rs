//! The Java that runs the nodes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Error, Result};

/// The versions that Cassandra 5.0 runs on; 4.1 runs on 11.
const SUPPORTED: &[u32] = &[11, 17];

/// A Java that can run Cassandra.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Java {
    /// Path of the program.
    pub program: PathBuf,
    /// The major version.
    pub major: u32,
}

impl Java {
    /// The Java of `JAVA_HOME`, else the first in `PATH`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when there is no Java, or one whose version does not run Cassandra.
    pub fn find() -> Result<Self> {
        let home = std::env::var_os("JAVA_HOME").filter(|home| !home.is_empty());
        let program = home.map_or_else(|| PathBuf::from("java"), |home| Path::new(&home).join("bin/java"));
        let shown = program.display();
        let output = Command::new(&program)
            .arg("-version")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Error::Unavailable(format!("no Java: {shown}: {error}")))?;
        let text = String::from_utf8_lossy(&output.stderr);
        match major(&text) {
            Some(major) if SUPPORTED.contains(&major) => Ok(Self { program, major }),
            Some(major) => {
                Err(Error::Unavailable(format!("{shown} is Java {major}, Cassandra 5.0 needs Java 11 or 17")))
            }
            None => Err(Error::Unavailable(format!("{shown} does not say which Java it is"))),
        }
    }
}

/// The major version in the output of `java -version`: before Java 9 it follows `1.`.
fn major(text: &str) -> Option<u32> {
    let quoted = text.split('"').nth(1)?;
    let mut numbers = quoted.split(['.', '-', '+', '_']);
    let first: u32 = numbers.next()?.parse().ok()?;
    if first == 1 { numbers.next()?.parse().ok() } else { Some(first) }
}

#[cfg(test)]
mod tests {
    use super::major;

    #[test]
    fn versions_of_every_age_are_read() {
        assert_eq!(major("openjdk version \"17.0.15\" 2025-04-15\nmore"), Some(17));
        assert_eq!(major("java version \"1.8.0_452\""), Some(8));
        assert_eq!(major("openjdk version \"21-ea\" 2023"), Some(21));
        assert_eq!(major("openjdk version \"11\""), Some(11));
        assert_eq!(major("no such program"), None);
    }
}
