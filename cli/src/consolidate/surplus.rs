//! Machines that a static NodePool has too many of: they go whatever consolidation decides.

use super::with_input;
use crate::listing::first_named;
use crate::source::remarks::{Remark, TOLD_EACH_MAX};
use crate::source::{InstanceTypesByPool, Manifests, PackingArg};
use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_disruption::{StaticChange, static_changes};

/// A note for each static NodePool that has more machines than it keeps: which of them it deletes.
pub(super) fn remarks(read: &Manifests, offered: &InstanceTypesByPool, packing: PackingArg) -> Vec<Remark> {
    deletions(read, offered, packing).iter().map(remark).collect()
}

/// That the machine of this Node or NodeClaim is one of those; empty if it is not.
pub(crate) fn line(name: &str, read: &Manifests, offered: &InstanceTypesByPool, packing: PackingArg) -> String {
    let is_meant = |claim: &&NodeClaim| claim.metadata.name == name || claim.status.node_name == name;
    let Some(claim) = read.objects.node_claims.iter().find(is_meant) else { return String::new() };
    let deletions = deletions(read, offered, packing);
    let Some(change) = deletions.iter().find(|change| change.delete.contains(&claim.metadata.name)) else { return String::new() };
    let pool = &change.node_pool;
    format!(
        "  NodePool {pool:?} has more machines than spec.replicas and deletes it: its node is drained whatever budgets and verdicts say\n"
    )
}

/// The changes of the static NodePools that delete machines.
fn deletions(read: &Manifests, offered: &InstanceTypesByPool, packing: PackingArg) -> Vec<StaticChange> {
    if !read.objects.node_pools.iter().any(NodePool::is_static) {
        return Vec::new();
    }
    let changes = with_input(read, offered, packing, static_changes);
    changes.into_iter().filter(|change| !change.delete.is_empty() && !change.shadow).collect()
}

fn remark(change: &StaticChange) -> Remark {
    let (kind, whose) = if change.delete.len() == 1 { ("NodeClaim", "its node is") } else { ("NodeClaims", "their nodes are") };
    let names = first_named(&change.delete, TOLD_EACH_MAX);
    Remark::note(format!(
        "NodePool {:?} has more machines than spec.replicas and deletes {kind} {names}: {whose} drained whatever budgets and verdicts say",
        change.node_pool
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::read_text;

    /// A NodePool with these fields and three nodes: the second is empty, and the third has two pods.
    fn three_nodes(fields: &str, others: &str) -> Manifests {
        let class = "nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}";
        let mut text = format!(
            "{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: st}}, spec: {{{fields}, template: {{spec: {{{class}, \
             requirements: []}}}}}}}}\n"
        );
        for at in 0..3 {
            let labels = "labels: {karpenter.sh/nodepool: st, node.kubernetes.io/instance-type: m5.large}";
            let joined = labels.replace('}', ", karpenter.sh/registered: 'true', karpenter.sh/initialized: 'true'}");
            text += &format!(
                "---\n{{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {{name: claim-{at}, {labels}}}, spec: {{{class}, \
                 requirements: []}}, status: {{providerID: 'aws:///a/i-{at}'}}}}\n\
                 ---\n{{apiVersion: v1, kind: Node, metadata: {{name: node-{at}, {joined}}}, spec: {{providerID: 'aws:///a/i-{at}'}}}}\n"
            );
        }
        for (pod, node) in [("a", 0), ("b", 2), ("c", 2)] {
            let owner = "ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: web, controller: true}]";
            text += &format!(
                "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {pod}, {owner}}}, spec: {{nodeName: node-{node}, containers: [{{name: \
                 c}}]}}}}\n"
            );
        }
        read_text("input.yaml", &(text + others)).unwrap()
    }

    fn told(fields: &str, others: &str) -> Vec<String> {
        let remarks = remarks(&three_nodes(fields, others), &InstanceTypesByPool::new(), PackingArg::Best);
        remarks.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_machine_that_its_static_pool_deletes_is_told_as_such() {
        let read = three_nodes("replicas: 2", "");
        let told = |name: &str| line(name, &read, &InstanceTypesByPool::new(), PackingArg::Best);
        let deleted = "  NodePool \"st\" has more machines than spec.replicas and deletes it: its node is drained whatever budgets and \
                       verdicts say\n";
        assert_eq!((told("node-1").as_str(), told("claim-1").as_str()), (deleted, deleted));
        assert_eq!([told("node-0"), told("claim-2"), told("unknown")], ["", "", ""]);
    }

    #[test]
    fn a_static_pool_names_the_machines_that_it_deletes() {
        let begins = "note: NodePool \"st\" has more machines than spec.replicas and deletes";
        let one = format!("{begins} NodeClaim claim-1: its node is drained whatever budgets and verdicts say");
        assert_eq!(told("replicas: 2", ""), [one]);
        let two = format!("{begins} NodeClaims claim-1, claim-0: their nodes are drained whatever budgets and verdicts say");
        assert_eq!(told("replicas: 1", ""), [two]);
    }

    #[test]
    fn a_pool_that_deletes_nothing_names_nothing() {
        for fields in ["replicas: 3", "replicas: 4", "limits: {cpu: '1'}"] {
            assert_eq!(told(fields, ""), [""; 0], "{fields}");
        }
        let off = "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: plan-settings}, data: {featureGates: StaticCapacity=false}}\n";
        assert_eq!(told("replicas: 1", off), [""; 0]);
    }
}
