//! Machines without a claim, and objects whose claim and machine are gone. Pure.

use crate::adopt;
use crate::compare::{Findings, SweepInput};
use crate::sightings::{SIGHTING_INTERVAL, Sightings};
use crate::uninstall::{is_released, is_tagged_released};
use crate::unreadable;
use std::collections::BTreeSet;
use whittle_api::k8s::{Kind, Node};
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ObjectMeta, labels};
use whittle_claims::Phase;
use whittle_ec2::instance::Instance;
use whittle_ports::Safeguard;
use whittle_units::{InstanceId, SignedDuration};

/// An instance younger than this may not have been recorded yet.
const INSTANCE_GRACE: SignedDuration = SignedDuration::from_secs(30);

/// Instances that Whittle started and that have no claim. Those that Karpenter started carry the same tags but one, and are
/// Karpenter's to terminate.
pub(crate) fn find_orphans(input: &SweepInput<'_>, sightings: &mut Sightings<'_>, out: &mut Findings) {
    // Any instance might belong to an unreadable claim, or to another controller's NodeClaim.
    let kind_missing = input.objects.lacks_kind(NodeClaim::KIND);
    if Safeguard::UnreadableClaimsHold.stops(!input.unreadable.is_empty()) || kind_missing {
        return;
    }
    let named: BTreeSet<&str> =
        input.claims.iter().filter_map(|claim| claim.value.machine()).map(|machine| machine.instance_id.as_str()).collect();
    let launching: BTreeSet<&str> = input
        .claims
        .iter()
        .filter_map(|claim| match &claim.value.phase {
            Phase::Launching { client_token, .. } => Some(client_token.as_str()),
            _ => None,
        })
        .collect();
    let mut named_by_objects: BTreeSet<&str> = input.objects.node_claims.iter().map(|claim| claim.status.provider_id.as_str()).collect();
    named_by_objects.extend(unreadable::machines(input.objects));
    let ended: BTreeSet<&str> = input.claims.iter().filter_map(|claim| claim.value.instance()).map(InstanceId::as_str).collect();
    for instance in input.instances {
        let tagged = [labels::NODE_POOL, labels::EC2_NODE_CLASS].iter().all(|key| instance.tags.contains_key(*key));
        let tagged = tagged && !is_shared(instance) && !is_released(instance, &input.index);
        let young = input.now.duration_since(instance.launched_at) < INSTANCE_GRACE;
        let under_way = instance.tags.get(labels::TAG_LAUNCH).is_some_and(|batch| launching.contains(batch.as_str()));
        let under_way = Safeguard::LaunchUnderWay.stops(under_way);
        if !tagged || young || under_way || named.contains(instance.id.as_str()) || !instance.is_alive() {
            continue;
        }
        if unreadable::may_be_hidden(instance, &input.index, input.now) {
            continue; // it must not be adopted, either
        }
        if Safeguard::KarpenterSpared.stops(!adopt::is_ours(instance, &input.index)) {
            adopt::check_karpenter_instance(instance, input, sightings, out);
            continue;
        }
        if unreadable::may_be_node(instance.provider_id().as_str(), input.objects) {
            continue; // its workloads are unknown
        }
        // A machine that ended under its claim but still runs is not adopted.
        match adopt::find_adoptable(instance, &input.index).filter(|_| !ended.contains(instance.id.as_str())) {
            Some(found) => adopt::confirm(found, input.objects, sightings, out),
            None if named_by_objects.contains(instance.provider_id().as_str()) => {}
            // The user may have it already: an old list may show its Node as it was.
            None if is_tagged_released(instance) => {}
            None if sightings.is_confirmed(format!("instance/{} without claim", instance.id), SIGHTING_INTERVAL) => {
                out.orphans.push(instance.clone());
            }
            None => {}
        }
    }
}

/// Tagged both as ours and as another cluster's: its owner is ambiguous.
fn is_shared(instance: &Instance) -> bool {
    let cluster = instance.tags.get(labels::TAG_CLUSTER).map_or("", String::as_str);
    instance.tags.keys().filter_map(|key| key.strip_prefix("kubernetes.io/cluster/")).any(|other| other != cluster)
}

/// Deleted objects that only our finalizer holds, although claim and machine are gone. And Nodes whose machine has ended with its claim
/// and that a policy let nobody delete.
pub(crate) fn find_releasable(input: &SweepInput<'_>, sightings: &mut Sightings<'_>, out: &mut Findings) {
    if !input.unreadable.is_empty() || unreadable::hides_machines(&input.index) {
        return;
    }
    let claims: BTreeSet<&str> = input.claims.iter().map(|claim| claim.value.key.name.as_str()).collect();
    let named = input.claims.iter().filter_map(|claim| claim.value.machine()).map(|machine| machine.provider_id.as_str());
    let machines: BTreeSet<&str> = named.chain(unreadable::machines(input.objects)).collect();
    let running: BTreeSet<String> = input.instances.iter().map(|instance| instance.provider_id().as_str().to_owned()).collect();
    let held = |meta: &ObjectMeta| meta.is_deleting() && adopt::has_finalizer(meta);
    let is_held = |node_claim: &&NodeClaim| adopt::is_of_aws(node_claim) && held(&node_claim.metadata);
    for node_claim in input.objects.node_claims.iter().filter(is_held) {
        let name = &node_claim.metadata.name;
        let has_machine = running.contains(&node_claim.status.provider_id)
            || adopt::has_machine(node_claim, input)
            || input.shifted.are_of(&node_claim.metadata.labels);
        if !claims.contains(name.as_str())
            && !has_machine
            && sightings.is_confirmed(format!("nodeclaim/{name} without claim"), SIGHTING_INTERVAL)
        {
            sightings.retain_denial(&format!("nodeclaim/{name}"));
            out.release_mirrors.push(name.clone());
        }
    }
    let ended = input.claims.iter().filter(|_| !input.uninstalling).filter_map(|claim| claim.value.ended_machine());
    let ended: BTreeSet<&str> = ended.map(|machine| machine.provider_id.as_str()).collect();
    let is_left = |node: &&Node| adopt::has_finalizer(&node.metadata) && ended.contains(node.spec.provider_id.as_str());
    for node in input.objects.nodes.iter().filter(|node| held(&node.metadata) || is_left(node)) {
        let (name, id) = (&node.metadata.name, node.spec.provider_id.as_str());
        let accounted = !id.starts_with("aws:///") || machines.contains(id) || running.contains(id) || node.is_ready();
        let accounted = accounted || input.shifted.are_of(&node.metadata.labels);
        if !accounted && sightings.is_confirmed(format!("node/{name} without machine"), SIGHTING_INTERVAL) {
            sightings.retain_denial(&format!("node/{name}"));
            out.release_nodes.push(name.clone());
        }
    }
}
