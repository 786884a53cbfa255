//! The account that MiniStack stands for.

use crate::ministack::Ministack;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;

/// The configuration of clients of any service.
#[must_use]
pub fn config(ministack: &Ministack) -> SdkConfig {
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(ministack.endpoint())
        .region(Region::new(Ministack::REGION))
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new("testing", "testing", None, None, "tests")))
        .build()
}
