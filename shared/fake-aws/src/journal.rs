//! What was called, by whom and about what.

use std::collections::BTreeMap;
use whittle_units::Timestamp;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub at: Timestamp,
    /// As in ARNs: `ec2`, `iam`.
    pub service: String,
    pub action: String,
    /// The access key that signed the call; empty if nobody did.
    pub principal: String,
    /// The parameters as they came, by name.
    pub parameters: BTreeMap<String, String>,
    /// The error code, if the call was refused.
    pub refused: Option<String>,
}
