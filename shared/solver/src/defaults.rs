//! Cluster-default spread constraints, which the Kubernetes API does not expose: added to copies of pods that have none.

use super::builder::ProblemBuilder;
use super::hash::Map;
use std::borrow::Cow;
use std::collections::BTreeMap;
use whittle_api::k8s::{Pod, TopologySpreadConstraint, Workloads};
use whittle_api::{LabelSelector, SelectorRequirement, Shared};

/// What pods with the same selector have in common: namespace, controller's uid and labels.
type LikePods = (String, String, Shared<BTreeMap<String, String>>);

/// The defaults, with the selectors deduced so far.
pub(crate) struct Defaults<'a> {
    constraints: &'a [TopologySpreadConstraint],
    workloads: &'a Workloads,
    deduced: Map<LikePods, Option<LabelSelector>>,
}

impl<'a> Defaults<'a> {
    pub(crate) fn new(builder: &ProblemBuilder<'a>) -> Self {
        Self { constraints: &builder.options.default_spread, workloads: builder.input.workloads, deduced: Map::default() }
    }

    /// The pod's own constraints, or the defaults with the selector of its workload.
    pub(crate) fn spread_of<'p>(&mut self, pod: &'p Pod) -> Cow<'p, [TopologySpreadConstraint]> {
        let own = &pod.spec.topology_spread_constraints;
        if !own.is_empty() || self.constraints.is_empty() {
            return Cow::Borrowed(own);
        }
        let uid = pod.metadata.controller().map(|o| o.uid.clone()).unwrap_or_default();
        let at = (pod.metadata.namespace.clone(), uid, pod.metadata.labels.clone());
        let workloads = self.workloads;
        let selector = self.deduced.entry(at).or_insert_with(|| deduce(workloads, pod)).clone();
        let Some(selector) = selector else { return Cow::Borrowed(&[]) };
        self.constraints.iter().map(|c| TopologySpreadConstraint { label_selector: Some(selector.clone()), ..c.clone() }).collect()
    }
}

/// The selector of the Services that select the pod, joined with that of its controller.
fn deduce(workloads: &Workloads, pod: &Pod) -> Option<LabelSelector> {
    let mut out = LabelSelector::default();
    let mut services: Vec<_> = workloads.services.iter().filter(|(namespace, _, _)| *namespace == pod.metadata.namespace).collect();
    services.sort();
    for (_, _, pairs) in services {
        if !pairs.is_empty() && pairs.iter().all(|(k, v)| pod.metadata.labels.get(k) == Some(v)) {
            out.match_labels.extend(pairs.clone());
        }
    }
    let owner = pod.metadata.controller();
    if let Some(owner) = owner
        && let Some(selector) = workloads.owners.get(&owner.uid)
    {
        match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("v1", "ReplicationController") => out.match_labels.extend(selector.match_labels.clone()),
            ("apps/v1", "ReplicaSet" | "StatefulSet") => {
                let pairs = selector.match_labels.iter();
                let as_in = pairs.map(|(k, v)| SelectorRequirement { key: k.clone(), operator: "In".into(), values: vec![v.clone()] });
                out.match_expressions.extend(as_in);
                out.match_expressions.extend(selector.match_expressions.iter().cloned());
            }
            _ => {}
        }
    }
    (out != LabelSelector::default()).then_some(out)
}
