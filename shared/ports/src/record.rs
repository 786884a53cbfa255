//! Records of facts from EC2 and EKS.

use serde::{Deserialize, Serialize};
use whittle_claims::Record;
use whittle_ec2::network::ClusterInfo;

/// What nodes need to know about their cluster. Written by `refresh` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRecord {
    pub info: ClusterInfo,
}

impl ClusterRecord {
    /// There is one for each cluster.
    pub const NAME: &'static str = "cluster";
}

impl Record for ClusterRecord {
    const KIND: &'static str = "cluster";
    fn name(&self) -> String {
        Self::NAME.to_owned()
    }
}
