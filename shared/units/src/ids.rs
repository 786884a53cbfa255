//! Identifiers: a newtype for each kind, so that they cannot be mixed up.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps the text as it is.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    };
}

text_id! {
    /// Name of an EKS cluster, unique in an account and region. All keys, messages and metrics carry it.
    ClusterName
}
text_id! {
    /// Name of a NodeClaim: `<nodepool>-<suffix>`, unique in a cluster.
    ClaimName
}
text_id! {
    /// EC2 instance id, such as `i-0123456789abcdef0`.
    InstanceId
}
text_id! {
    /// AWS region, such as `us-east-1`.
    Region
}
text_id! {
    /// `spec.providerID` of a Node: on AWS `aws:///<zone>/<instance id>`.
    ProviderId
}

/// A provider id that is not of the form `aws:///<zone>/<instance id>`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("provider id {0:?} is not of the form aws:///<zone>/<instance id>")]
pub struct ProviderIdError(pub String);

impl ProviderId {
    /// The provider id that the AWS cloud provider gives to an instance.
    pub fn of_instance(zone: &str, id: &InstanceId) -> Self {
        Self(format!("aws:///{zone}/{id}"))
    }

    /// The EC2 instance that a provider id names.
    pub fn instance_id(&self) -> Result<InstanceId, ProviderIdError> {
        let rest = self.0.strip_prefix("aws:///").ok_or_else(|| ProviderIdError(self.0.clone()))?;
        match rest.rsplit_once('/') {
            Some((_, id)) if id.starts_with("i-") => Ok(InstanceId::new(id)),
            _ => Err(ProviderIdError(self.0.clone())),
        }
    }
}
