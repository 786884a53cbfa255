//! Every machine that exists and gets pods.

use super::Findings;
use super::kube::{self, Possible};
use crate::schedule::{Input, Options, Plan};
use crate::state::StateNode;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::Pod;
use whittle_api::labels;
use whittle_units::Resources;

pub(crate) fn check(input: &Input<'_>, options: &Options, plan: &Plan, pods: &BTreeMap<String, &Pod>, findings: &mut Findings) {
    for placement in &plan.placements {
        let Some(node) = input.nodes.iter().find(|n| n.name() == placement.node) else {
            findings.add(&placement.node, "node-unknown", "there is no such node or claim");
            continue;
        };
        let gone = options.simulation.as_ref().is_some_and(|s| s.candidates.contains(&placement.node));
        findings.expect(!node.marked_for_deletion && !gone, &placement.node, "node-leaving", || "it is being removed".into());
        let on: Vec<&Pod> = placement.pods.iter().filter_map(|p| pods.get(&p.key()).copied()).collect();
        one(input, node, &placement.node, &on, findings);
    }
}

fn one(input: &Input<'_>, node: &StateNode, name: &str, on: &[&Pod], findings: &mut Findings) {
    let mut possible: Possible = BTreeMap::new();
    for (key, value) in node.labels() {
        possible.insert(labels::normalized(key).to_owned(), BTreeSet::from([Some(value.clone())]));
    }
    possible.entry(labels::HOSTNAME.to_owned()).or_insert_with(|| BTreeSet::from([Some(node.hostname().to_owned())]));
    let taints = node.simulated_taints();
    let bound: Vec<&Pod> = node.pods.iter().map(|p| &input.objects.pods[*p]).collect();
    let mut used = Resources::new();
    bound.iter().chain(on).for_each(|p| used.add(&kube::requests(p)));
    let room = node.allocatable();
    // What a node has too little of already is no matter to pods that do not ask for it.
    let asked = on.iter().flat_map(|p| kube::requests(p).0).filter(|(_, amount)| amount.milli() > 0);
    let fits = asked.map(|(resource, _)| resource).all(|resource| used.get(&resource) <= room.get(&resource));
    findings.expect(fits, name, "overfull", || "its pods do not fit".into());
    for pod in on {
        findings.expect(kube::node_fits(pod, &possible), name, "node-selector", || format!("{} may not run here", pod.metadata.key()));
        for taint in &taints {
            let bears = pod.spec.tolerations.iter().any(|_| kube::tolerates(pod, taint)) || kube::tolerates(pod, taint);
            findings.expect(bears, name, "taint", || format!("{} does not tolerate {taint}", pod.metadata.key()));
        }
    }
    let all: Vec<&Pod> = bound.iter().chain(on).copied().collect();
    if let Some((a, b)) = kube::port_clash(&all)
        && on.iter().any(|p| std::ptr::eq(*p, a) || std::ptr::eq(*p, b))
    {
        findings.add(name, "host-port", format!("{} and {} want the same host port", a.metadata.key(), b.metadata.key()));
    }
    attach_limits(input, node, name, &all, on, findings);
}

/// The node's CSI drivers can attach all volumes of its pods.
fn attach_limits(input: &Input<'_>, node: &StateNode, name: &str, all: &[&Pod], on: &[&Pod], findings: &mut Findings) {
    let Some(csi) = input.objects.csi_nodes.iter().find(|c| node.node.as_ref().is_some_and(|n| n.metadata.name == c.metadata.name)) else {
        return;
    };
    for driver in &csi.spec.drivers {
        let Some(limit) = driver.allocatable.as_ref().and_then(|a| a.count).and_then(|n| usize::try_from(n).ok()) else { continue };
        let claims: BTreeSet<String> = all.iter().flat_map(|p| claims_of(input, p, &driver.name)).collect();
        let involved = on.iter().any(|p| !claims_of(input, p, &driver.name).is_empty());
        findings.expect(!involved || claims.len() <= limit, name, "attach-limit", || {
            format!("{} volumes of {}, it attaches {limit}", claims.len(), driver.name)
        });
    }
}

fn claims_of(input: &Input<'_>, pod: &Pod, driver: &str) -> Vec<String> {
    let named = pod.spec.volumes.iter().filter_map(|v| match (&v.persistent_volume_claim, &v.ephemeral) {
        (Some(source), _) => Some(source.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", pod.metadata.name, v.name)),
        (None, None) => None,
    });
    let of_driver = |name: &String| {
        let claim = input.objects.volume_claims.iter().find(|c| c.metadata.namespace == pod.metadata.namespace && c.metadata.name == *name);
        let Some(spec) = claim.map(|c| &c.spec) else { return false };
        let volume = input.objects.volumes.iter().find(|v| v.metadata.name == spec.volume_name);
        let class = input.objects.storage_classes.iter().find(|c| Some(&c.metadata.name) == spec.storage_class_name.as_ref());
        let own = volume.and_then(|v| v.spec.csi.as_ref()).map(|c| c.driver.as_str());
        own.or_else(|| class.filter(|_| spec.volume_name.is_empty()).map(|c| c.provisioner.as_str())) == Some(driver)
    };
    named.filter(of_driver).map(|n| format!("{}/{n}", pod.metadata.namespace)).collect()
}
