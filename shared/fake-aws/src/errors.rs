//! Errors, with AWS's own codes and texts.

use whittle_ports::{CloudError, CloudErrorKind};

/// A rejected request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        Self { status: 400, code: code.to_owned(), message: message.into() }
    }
    pub(crate) fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }
    pub(crate) fn missing(parameter: &str) -> Self {
        Self::new("MissingParameter", format!("The request must contain the parameter {parameter}"))
    }
    pub(crate) fn unknown(parameter: &str) -> Self {
        Self::new("UnknownParameter", format!("The parameter {parameter} is not recognized"))
    }
    pub(crate) fn value(parameter: &str, value: &str) -> Self {
        Self::new("InvalidParameterValue", format!("Value ({value}) for parameter {parameter} is invalid."))
    }
    pub(crate) fn combination(message: &str) -> Self {
        Self::new("InvalidParameterCombination", message)
    }
    pub(crate) fn throttled() -> Self {
        Self::new("RequestLimitExceeded", "Request limit exceeded.").with_status(503)
    }
}

/// Errors of the region itself.
impl From<CloudError> for Fault {
    fn from(error: CloudError) -> Self {
        let status = match error.kind {
            CloudErrorKind::Throttled => 503,
            CloudErrorKind::Unauthorized => 403,
            CloudErrorKind::Unknown => 500,
            _ => 400,
        };
        Self { status, code: error.code, message: error.message }
    }
}
