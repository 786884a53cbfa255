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
    /// ARNs of what the call is about; a `*` at the end stands for what it makes.
    pub resources: Vec<String>,
    /// The tags that the request gives, by the kind of what gets them, as in ARNs.
    pub tags: BTreeMap<String, BTreeMap<String, String>>,
    /// The status of HTTP.
    pub status: u16,
    /// The error code, if the call failed.
    pub refused: Option<String>,
    /// The right that the principal lacks. A fleet whose launch lacks one is answered, with an error for each pool.
    pub lacks: Option<String>,
}

fn written<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}
