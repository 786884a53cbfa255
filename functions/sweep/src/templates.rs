//! Launch templates that a call may still use: those of the calls in progress.

use crate::Rights;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
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

/// The subject of the sighting of a template that no call uses.
pub(crate) fn unused(name: &str) -> String {
    format!("launch template {name} unused")
}

/// The templates in use, and whether the list is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InUse {
    pub(crate) names: BTreeSet<String>,
    pub(crate) is_whole: bool,
}

/// The templates of all calls that claims wait for. A claim whose call is not stored yet, or that cannot be read, may need any of
/// them.
///
/// One that waits for its next try has no call yet, as after EC2 has refused one: that will begin with its templates, like the call of a
/// planned claim. Otherwise none would be deleted for as long as EC2 refuses launches, be it for too many launch templates.
pub(crate) async fn in_use<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    claims: &[Stored<Claim>],
    unreadable: &[String],
) -> Result<InUse, HandleError> {
    // Whether a claim may have begun it.
    let mut calls: BTreeMap<&String, bool> = BTreeMap::new();
    for claim in claims.iter().map(|stored| &stored.value) {
        if let Phase::Launching { client_token, .. } = &claim.phase {
            *calls.entry(client_token).or_default() |= claim.look_again_at.is_none();
        }
    }
    let mut found = InUse { names: BTreeSet::new(), is_whole: unreadable.is_empty() };
    for (call, may_have_begun) in calls {
        match ports.store().read::<LaunchedFrom>(cluster, call).await? {
            Some(known) => found.names.extend(known.value.templates.into_iter().map(|template| template.name)),
            None => found.is_whole &= !may_have_begun,
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use whittle_claims::Revision;
    use whittle_ports::{Adapters, Records};
    use whittle_testkit::{TestWorld, after, at, begun, default_spec, planned};
    use whittle_units::Timestamp;

    /// A claim that waits for this call, until then if its run has ended.
    fn waiting(name: &str, call: &str, look_again_at: Option<Timestamp>) -> Stored<Claim> {
        let claim = after(&planned(name, default_spec()), &[begun(call)], at(0));
        Stored { value: Claim { look_again_at, ..claim }, revision: Revision(1) }
    }

    /// What is in use while only call `a` is stored, which has template `t`.
    fn used_by(claims: &[Stored<Claim>], unreadable: &[String]) -> InUse {
        let (simulation, cluster) = (TestWorld::still(at(0)), ClusterName::new("c"));
        let ports = simulation.ports();
        let templates = vec![Named { name: "t".into(), rest: serde_json::Map::new() }];
        let call = LaunchedFrom { id: "a".into(), templates, rest: serde_json::Map::new() };
        block_on(ports.write(&cluster, &call, Revision::ABSENT)).unwrap();
        block_on(in_use(Adapters::all(&ports), &cluster, claims, unreadable)).unwrap()
    }

    #[test]
    fn templates_of_stored_calls_are_in_use_and_an_unknown_call_may_need_any() {
        let names = || BTreeSet::from(["t".to_owned()]);
        let (of_a, of_unknown) = (waiting("one", "a", None), waiting("two", "b", None));
        assert_eq!(used_by(std::slice::from_ref(&of_a), &[]), InUse { names: names(), is_whole: true });
        assert_eq!(used_by(&[of_a.clone(), of_unknown], &[]), InUse { names: names(), is_whole: false });
        assert_eq!(used_by(&[of_a], &["three".to_owned()]), InUse { names: names(), is_whole: false });
    }

    #[test]
    fn a_claim_whose_call_was_refused_keeps_no_template() {
        let of_refused = |name| waiting(name, "b", Some(at(30)));
        assert_eq!(used_by(&[of_refused("one"), of_refused("two")], &[]), InUse { names: BTreeSet::new(), is_whole: true });
        // Another member is taken for a call, which is not stored yet.
        assert!(!used_by(&[of_refused("one"), waiting("two", "b", None)], &[]).is_whole);
        assert!(!used_by(&[waiting("one", "b", None), of_refused("two")], &[]).is_whole);
    }
}
