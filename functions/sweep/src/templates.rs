//! Launch templates that a call may still use: those of the calls in progress.

use crate::Rights;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use whittle_claims::{Claim, Phase, Record, Stored};
use whittle_ports::{HandleError, RecordReader};
use whittle_units::ClusterName;

/// A call as `launch` stores it, reduced to its launch templates.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LaunchedFrom {
    id: String,
    templates: Vec<Named>,
    #[serde(flatten)]
    rest: serde_json::Map<String, serde_json::Value>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Named {
    name: String,
    #[serde(flatten)]
    rest: serde_json::Map<String, serde_json::Value>,
}

impl Record for LaunchedFrom {
    const KIND: &'static str = "launch";
    fn name(&self) -> String {
        self.id.clone()
    }
}

/// The templates in use, and whether the list is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InUse {
    pub(crate) names: BTreeSet<String>,
    pub(crate) is_whole: bool,
}

/// The templates of all calls that claims wait for. A claim whose call is not stored yet, or that cannot be read, may need any of
/// them.
pub(crate) async fn in_use<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    claims: &[Stored<Claim>],
    unreadable: &[String],
) -> Result<InUse, HandleError> {
    let calls: BTreeSet<&String> = claims
        .iter()
        .filter_map(|claim| match &claim.value.phase {
            Phase::Launching { client_token, .. } => Some(client_token),
            _ => None,
        })
        .collect();
    let mut found = InUse { names: BTreeSet::new(), is_whole: unreadable.is_empty() };
    for call in calls {
        match ports.store().read::<LaunchedFrom>(cluster, call).await? {
            Some(known) => found.names.extend(known.value.templates.into_iter().map(|template| template.name)),
            None => found.is_whole = false,
        }
    }
    Ok(found)
}
