//! Secrets in SSM parameters.

use crate::budget::limits;
use crate::errors::cloud_error;
use aws_config::SdkConfig;
use std::fmt;
use whittle_ports::{Clock, CloudError};
use whittle_units::Timestamp;

/// One version of a SecureString parameter.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretVersion {
    pub value: String,
    /// Versions start at 1.
    pub version: i64,
    /// When it was written.
    pub since: Option<Timestamp>,
}

impl fmt::Debug for SecretVersion {
    /// Omits the value, which must not reach the logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretVersion").field("version", &self.version).field("since", &self.since).finish_non_exhaustive()
    }
}

/// The value of a SecureString parameter; without a `version`, the newest one.
pub async fn read_secret(config: &SdkConfig, clock: &dyn Clock, name: &str, version: Option<i64>) -> Result<SecretVersion, CloudError> {
    const CALL: &str = "GetParameter";
    let selected = version.map_or_else(|| name.to_owned(), |version| format!("{name}:{version}"));
    let limits = aws_sdk_ssm::config::Builder::new().timeout_config(limits(clock, CALL)?);
    let request = aws_sdk_ssm::Client::new(config).get_parameter().name(selected).with_decryption(true);
    let answer = request.customize().config_override(limits).send().await.map_err(|error| cloud_error(CALL, error))?;
    let parameter = answer.parameter.unwrap_or_else(|| aws_sdk_ssm::types::Parameter::builder().build());
    Ok(SecretVersion {
        version: parameter.version,
        since: parameter.last_modified_date.and_then(|date| Timestamp::from_second(date.secs()).ok()),
        value: parameter.value.unwrap_or_default().trim().to_owned(),
    })
}
