//! The answer of a command.

/// Text for standard output, text for standard error, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdminAnswer {
    /// For standard output.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
    /// 0 when the command succeeded, 1 when it did not.
    pub exit: u8,
}

impl AdminAnswer {
    /// Success, with this text.
    #[must_use]
    pub fn done(text: impl Into<String>) -> Self {
        Self { stdout: lines(text.into()), ..Self::default() }
    }

    /// Failure, with this text as the reason.
    #[must_use]
    pub fn failed(text: impl Into<String>) -> Self {
        Self { stderr: lines(text.into()), exit: 1, ..Self::default() }
    }

    /// A negative answer: on standard output, with exit code 1.
    #[must_use]
    pub fn negative(text: impl Into<String>) -> Self {
        Self { exit: 1, ..Self::done(text) }
    }

    /// The usage line of a command, as a failure.
    #[must_use]
    pub fn usage(usage: &str) -> Self {
        Self::failed(format!("Usage: kv-admin {usage}"))
    }

    /// Success, with a value as JSON on one line.
    #[must_use]
    pub fn json(value: &serde_json::Value) -> Self {
        Self::done(value.to_string())
    }
}

fn lines(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
