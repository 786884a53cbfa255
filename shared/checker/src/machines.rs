//! Checks every existing node that receives pods.

use super::Findings;
use super::kube::{self, PossibleLabels};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{CsiNode, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass};
use whittle_api::labels;
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
    let mut possible: PossibleLabels = BTreeMap::new();
    for (key, value) in node.labels() {
        possible.insert(labels::normalized(key).to_owned(), BTreeSet::from([Some(value.clone())]));
    }
    possible.entry(labels::HOSTNAME.to_owned()).or_insert_with(|| BTreeSet::from([Some(node.hostname().to_owned())]));
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
    storage.attach_limits(node, name, &all, on, findings);
}

/// Volumes, with the objects that determine their CSI driver, by name.
struct Storage<'a> {
    nodes: BTreeMap<&'a str, &'a CsiNode>,
    claims: BTreeMap<(&'a str, &'a str), &'a PersistentVolumeClaim>,
    volumes: BTreeMap<&'a str, &'a PersistentVolume>,
    classes: BTreeMap<&'a str, &'a StorageClass>,
}

impl<'a> Storage<'a> {
    fn of(input: &Input<'a>) -> Self {
        let objects = input.objects;
        Self {
            nodes: objects.csi_nodes.iter().map(|n| (n.metadata.name.as_str(), n)).collect(),
            claims: objects.volume_claims.iter().map(|c| ((c.metadata.namespace.as_str(), c.metadata.name.as_str()), c)).collect(),
            volumes: objects.volumes.iter().map(|v| (v.metadata.name.as_str(), v)).collect(),
            classes: objects.storage_classes.iter().map(|c| (c.metadata.name.as_str(), c)).collect(),
        }
    }

    /// The node's CSI drivers can attach all volumes of its pods.
    fn attach_limits(&self, node: &StateNode, name: &str, all: &[&Pod], on: &[&Pod], findings: &mut Findings) {
        let Some(csi) = node.node.as_ref().and_then(|n| self.nodes.get(n.metadata.name.as_str())) else { return };
        for driver in &csi.spec.drivers {
            let Some(limit) = driver.allocatable.as_ref().and_then(|a| a.count).and_then(|n| usize::try_from(n).ok()) else { continue };
            let claims: BTreeSet<String> = all.iter().flat_map(|p| self.claims_of(p, &driver.name)).collect();
            let involved = on.iter().any(|p| !self.claims_of(p, &driver.name).is_empty());
            findings.expect(!involved || claims.len() <= limit, name, "attach-limit", || {
                format!("{} volumes of {}, it attaches {limit}", claims.len(), driver.name)
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
