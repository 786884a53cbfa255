//! Machines that a static NodePool has too many of: they go whatever consolidation decides.

use super::with_input;
use crate::listing::first_named;
use crate::source::remarks::{Remark, TOLD_EACH_MAX};
use crate::source::{InstanceTypesByPool, Manifests, PackingArg};
use whittle_api::karpenter::NodePool;
use whittle_disruption::{StaticChange, static_changes};

/// A note for each static NodePool that has more machines than it keeps: which of them it deletes.
pub(super) fn remarks(read: &Manifests, offered: &InstanceTypesByPool, packing: PackingArg) -> Vec<Remark> {
    if !read.objects.node_pools.iter().any(NodePool::is_static) {
        return Vec::new();
    }
    let changes = with_input(read, offered, packing, static_changes);
    changes.iter().filter(|change| !change.delete.is_empty() && !change.shadow).map(remark).collect()
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

    /// What is said of a NodePool with these fields and three nodes: the second is empty, and the third has two pods.
    fn told(fields: &str, others: &str) -> Vec<String> {
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
        let read = read_text("input.yaml", &(text + others)).unwrap();
        remarks(&read, &InstanceTypesByPool::new(), PackingArg::Best).iter().map(ToString::to_string).collect()
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
