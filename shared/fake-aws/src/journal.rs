//! The journal of calls: action, caller and parameters.

use std::collections::BTreeMap;
use whittle_units::Timestamp;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
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
