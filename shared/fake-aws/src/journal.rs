//! The journal of calls: action, caller and parameters.

use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use whittle_units::Timestamp;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    #[serde(serialize_with = "written")]
    pub at: Timestamp,
    /// As in ARNs: `ec2`, `iam`.
    pub service: String,
    pub action: String,
    /// The access key that signed the call; empty if it is unsigned.
    pub principal: String,
    /// The parameters as received, by name.
    pub parameters: BTreeMap<String, String>,
    /// The error code, if the call failed.
    pub refused: Option<String>,
}

fn written<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}
