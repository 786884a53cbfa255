//! Secrets in SSM parameters.

use crate::errors::cloud_error;
use aws_config::SdkConfig;
use whittle_ports::CloudError;

/// The value of a SecureString parameter.
pub async fn read_secret(config: &SdkConfig, name: &str) -> Result<String, CloudError> {
    let client = aws_sdk_ssm::Client::new(config);
    let answer = client.get_parameter().name(name).with_decryption(true).send().await;
    let answer = answer.map_err(|error| cloud_error("GetParameter", error))?;
    Ok(answer.parameter.and_then(|parameter| parameter.value).unwrap_or_default())
}
