/// The exit code for arguments that make no sense.
pub(crate) const USAGE: u8 = 2;

/// How a command ends when it does not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// None when a program that was run has said what is wrong.
    pub(crate) message: Option<String>,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: 1, message: Some(message.into()) }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, message: Some(message.into()) }
    }

    pub(crate) fn code(code: u8) -> Self {
        Self { code, message: None }
    }
}

impl From<mainstay_servers::Error> for Failure {
    fn from(error: mainstay_servers::Error) -> Self {
        Self::new(error.to_string())
    }
}
