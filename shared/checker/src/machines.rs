//! Checks every existing node that receives pods.

use super::Findings;
use super::kube::{self, PossibleLabels};
use super::type_lists::TypeList;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{CsiNode, CsiNodeDriver, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass};
use whittle_api::karpenter::Operator;
use whittle_api::{conditions, labels};
use whittle_model::pods::EBS_DRIVER;
use whittle_model::scheduling::{Input, Options, Plan};
use whittle_model::state::StateNode;
use whittle_units::Resources;

pub(crate) fn check(input: &Input<'_>, options: &Options, plan: &Plan, pods: &BTreeMap<String, &Pod>, findings: &mut Findings) {
    let nodes: BTreeMap<&str, &StateNode> = input.nodes.iter().rev().map(|n| (n.name(), n)).collect();
    let storage = Storage::of(input);
    for placement in &plan.placements {
        let Some(&node) = nodes.get(placement.node.as_str()) else {
            findings.add(&placement.node, "node-unknown", "there is no such node or claim");
            continue;
        };
        let removed = options.simulation.as_ref().is_some_and(|s| s.candidates.contains(&placement.node));
        findings.expect(!node.marked_for_deletion && !removed, &placement.node, "node-leaving", || "it is being removed".into());
        let on: Vec<&Pod> = placement.pods.iter().filter_map(|p| pods.get(&p.key()).copied()).collect();
        check_node(input, &storage, node, &placement.node, &on, findings);
    }
}

fn check_node(input: &Input<'_>, storage: &Storage<'_>, node: &StateNode, name: &str, on: &[&Pod], findings: &mut Findings) {
    let possible = possible_labels(node);
    let taints = node.simulated_taints();
    let bound: Vec<&Pod> = node.pods.iter().map(|p| &input.objects.pods[*p]).collect();
    let mut used = Resources::new();
    bound.iter().chain(on).for_each(|p| used.add(&kube::requests(p)));
    let allocatable = node.allocatable();
    // A resource that is overcommitted already matters only to pods that request it.
    let requested = on.iter().flat_map(|p| kube::requests(p).0).filter(|(_, amount)| amount.milli() > 0);
    let fits = requested.map(|(resource, _)| resource).all(|resource| used.get(&resource) <= allocatable.get(&resource));
    findings.expect(fits, name, "overfull", || "its pods do not fit".into());
    for pod in on {
        findings.expect(kube::node_fits(pod, &possible), name, "node-selector", || format!("{} may not run here", pod.metadata.key()));
        for taint in &taints {
            let tolerated = pod.spec.tolerations.iter().any(|_| kube::tolerates(pod, taint)) || kube::tolerates(pod, taint);
            findings.expect(tolerated, name, "taint", || format!("{} does not tolerate {taint}", pod.metadata.key()));
        }
    }
    let all: Vec<&Pod> = bound.iter().chain(on).copied().collect();
    if let Some((a, b)) = kube::host_port_conflict(&bound, on) {
        findings.add(name, "host-port", format!("{} and {} request the same host port", a.metadata.key(), b.metadata.key()));
    }
    storage.attach_limits(input, node, name, (&all[..], on), findings);
}

/// The labels of a machine. One that is still to be launched may get any of the values that its claim lists.
fn possible_labels(node: &StateNode) -> PossibleLabels {
    let mut possible: PossibleLabels = BTreeMap::new();
    for (key, value) in node.labels() {
        possible.insert(labels::normalized(key).to_owned(), BTreeSet::from([Some(value.clone())]));
    }
    possible.entry(labels::HOSTNAME.to_owned()).or_insert_with(|| BTreeSet::from([Some(node.hostname().to_owned())]));
    let to_come =
        node.claim.as_ref().filter(|claim| node.node.is_none() && !conditions::is_true(&claim.status.conditions, conditions::LAUNCHED));
    let required = to_come.into_iter().flat_map(|claim| &claim.spec.requirements);
    for listed in required.filter(|required| required.operator == Operator::In) {
        let values = || listed.values.iter().cloned().map(Some).collect();
        possible.entry(labels::normalized(&listed.key).to_owned()).or_insert_with(values);
    }
    possible
}

/// Volumes, with the objects that determine their CSI driver, by name.
pub(crate) struct Storage<'a> {
    nodes: BTreeMap<&'a str, &'a CsiNode>,
    claims: BTreeMap<(&'a str, &'a str), &'a PersistentVolumeClaim>,
    volumes: BTreeMap<&'a str, &'a PersistentVolume>,
    classes: BTreeMap<&'a str, &'a StorageClass>,
}

impl<'a> Storage<'a> {
    pub(crate) fn of(input: &Input<'a>) -> Self {
        let objects = input.objects;
        Self {
            nodes: objects.csi_nodes.iter().map(|n| (n.metadata.name.as_str(), n)).collect(),
            claims: objects.volume_claims.iter().map(|c| ((c.metadata.namespace.as_str(), c.metadata.name.as_str()), c)).collect(),
            volumes: objects.volumes.iter().map(|v| (v.metadata.name.as_str(), v)).collect(),
            classes: objects.storage_classes.iter().map(|c| (c.metadata.name.as_str(), c)).collect(),
        }
    }

    /// The node's CSI drivers can attach all volumes of its pods; where that of EBS does not run yet, as many as its type is expected to.
    fn attach_limits(&self, input: &Input<'_>, node: &StateNode, name: &str, (all, on): (&[&Pod], &[&Pod]), findings: &mut Findings) {
        let csi = node.node.as_ref().and_then(|n| self.nodes.get(n.metadata.name.as_str()));
        let drivers = csi.map(|csi| &csi.spec.drivers[..]).unwrap_or_default();
        let mut limits: BTreeMap<&str, usize> = BTreeMap::new();
        if drivers.iter().all(|driver| driver.name != EBS_DRIVER) {
            limits.extend(input.expected_attachments(node).map(|most| (EBS_DRIVER, most)));
        }
        let count = |driver: &CsiNodeDriver| driver.allocatable.as_ref()?.count.and_then(|n| usize::try_from(n).ok());
        limits.extend(drivers.iter().filter_map(|driver| Some((driver.name.as_str(), count(driver)?))));
        for (driver, limit) in limits {
            let claims: BTreeSet<String> = all.iter().flat_map(|p| self.claims_of(p, driver)).collect();
            let involved = on.iter().any(|p| !self.claims_of(p, driver).is_empty());
            findings.expect(!involved || claims.len() <= limit, name, "attach-limit", || {
                format!("{} volumes of {driver}, it attaches {limit}", claims.len())
            });
        }
    }

    /// Each type of a new machine is expected to attach all EBS volumes of its pods.
    pub(crate) fn expected_limits(&self, object: &str, list: &TypeList<'_>, on: &[&Pod], findings: &mut Findings) {
        let claims: BTreeSet<String> = on.iter().flat_map(|p| self.claims_of(p, EBS_DRIVER)).collect();
        if claims.is_empty() {
            return;
        }
        for (name, limit) in list.known().filter_map(|t| Some((&t.name, t.ebs_attachments?))) {
            findings.expect(claims.len() <= limit as usize, object, "attach-limit", || {
                format!("{} volumes of {EBS_DRIVER}, {name} attaches {limit}", claims.len())
            });
        }
    }

    fn claims_of(&self, pod: &Pod, driver: &str) -> Vec<String> {
        let named = pod.spec.volumes.iter().filter_map(|v| match (&v.persistent_volume_claim, &v.ephemeral) {
            (Some(source), _) => Some(source.claim_name.clone()),
            (None, Some(_)) => Some(format!("{}-{}", pod.metadata.name, v.name)),
            (None, None) => None,
        });
        let of_driver = |name: &String| {
            let Some(claim) = self.claims.get(&(pod.metadata.namespace.as_str(), name.as_str())) else { return false };
            let volume = self.volumes.get(claim.spec.volume_name.as_str());
            let class = claim.spec.storage_class_name.as_ref().and_then(|c| self.classes.get(c.as_str()));
            let volume_driver = volume.and_then(|v| v.spec.csi.as_ref()).map(|c| c.driver.as_str());
            volume_driver.or_else(|| class.filter(|_| claim.spec.volume_name.is_empty()).map(|c| c.provisioner.as_str())) == Some(driver)
        };
        named.filter(of_driver).map(|n| format!("{}/{n}", pod.metadata.namespace)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;
    use whittle_api::ConditionStatus;
    use whittle_api::karpenter::{NodeClaim, Requirement};
    use whittle_units::Timestamp;

    #[test]
    fn a_machine_to_come_may_get_whatever_its_claim_lists() {
        let fits = |is_launched: bool, excluded: &str| {
            let mut claim = NodeClaim::default();
            claim.spec.requirements = vec![Requirement::is_in(labels::ZONE, ["a", "b"])];
            if is_launched {
                let conditions = &mut claim.status.conditions;
                conditions::set(conditions, conditions::LAUNCHED, ConditionStatus::True, "", "", Timestamp::UNIX_EPOCH);
            }
            let node = StateNode { claim: Some(Arc::new(claim)), ..StateNode::default() };
            let terms = json!([{"matchExpressions": [{"key": labels::ZONE, "operator": "NotIn", "values": [excluded]}]}]);
            let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
            let mut pod = Pod::default();
            pod.spec.affinity = Some(serde_json::from_value(affinity).unwrap());
            kube::node_fits(&pod, &possible_labels(&node))
        };
        assert!(!fits(false, "a"), "it may be launched there");
        assert!(fits(false, "c"), "it cannot be launched there");
        assert!(fits(true, "a"), "it has all labels that it will get");
    }
}
