//! Launch templates that a call may still name: those of the calls that are under way.

use crate::Rights;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use whittle_claims::{Claim, Phase, Record, Stored};
use whittle_ports::{HandleError, Records};
use whittle_units::ClusterName;

/// A call as `launch` keeps it, and of it only what it starts machines from.
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

/// What is in use, and whether that is all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InUse {
    pub(crate) names: BTreeSet<String>,
    pub(crate) is_whole: bool,
}

/// The templates of all calls that claims wait for. A claim whose call is not stored yet, or that cannot be read, may need any.
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
