//! What would be decided about the pods of a workload, and about a NodePool.

use super::pod_text;
use super::remedies;
use crate::listing::first_named;
use crate::look::view::owner_of;
use crate::money::counted;
use crate::source::left_aside::Known;
use crate::source::{Manifests, planned_deployment};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use whittle_api::k8s::Pod;
use whittle_api::karpenter::NodePool;
use whittle_api::{conditions, labels, words};
use whittle_model::scheduling::{Plan, Reason, Remedy};
use whittle_model::state::{ClusterState, StateNode};
use whittle_units::Resources;

/// How many nodes or pods are named.
const NAMED: usize = 5;

/// The workloads that own pods, as `deployment/default/web`. A Node that owns static pods is none.
pub(super) fn workloads(pods: &[Pod]) -> BTreeMap<String, Vec<&Pod>> {
    let mut out: BTreeMap<String, Vec<&Pod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.is_terminal()) {
        let Some(owner) = pod.metadata.controller().filter(|owner| owner.kind != "Node") else { continue };
        let of_deployment = owner_of(pod);
        if owner.kind == "ReplicaSet" && planned_deployment(owner).is_none() && !of_deployment.starts_with("ReplicaSet ") {
            out.entry(format!("replicaset/{}/{}", pod.metadata.namespace, owner.name)).or_default().push(pod);
        }
        if let Some(name) = planned_deployment(owner) {
            out.entry(format!("deployment/{}/{name}", pod.metadata.namespace)).or_default().push(pod);
        } else if let Some((kind, key)) = of_deployment.split_once(' ') {
            out.entry(format!("{}/{key}", kind.to_lowercase())).or_default().push(pod);
        }
    }
    out
}

/// Where the pods of a workload are, and where the others would go.
pub(super) fn workload_text(name: &str, pods: &[&Pod], plan: &Plan, known: &Known<'_>) -> String {
    let (bound, waiting): (Vec<&Pod>, Vec<&Pod>) = pods.iter().copied().partition(|pod| pod.is_bound());
    let mut nodes: Vec<String> = bound.iter().map(|pod| pod.spec.node_name.clone()).collect();
    nodes.sort();
    nodes.dedup();
    let mut out = format!("{name}: {}\n", counted(pods.len(), "pod"));
    if !bound.is_empty() {
        let _ = writeln!(out, "  {} on {}: {}", counted(bound.len(), "pod"), counted(nodes.len(), "node"), first_named(&nodes, NAMED));
    }
    if pods.is_empty() && name.starts_with("daemonset/") {
        out.push_str("  none of its pods is among what is given; one is counted on every machine that it would run on\n");
    } else if pods.is_empty() {
        out.push_str("  none of its pods is among what is given: nothing is planned for it; --replicas NAME=N asks what if\n");
    }
    out.extend(new_machines(&waiting, plan));
    // Pods with the same answer share a line.
    let mut answers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in waiting {
        let key = pod.metadata.key();
        answers.entry(pod_text(pod, plan, known).replacen(&key, "each", 1)).or_default().push(key);
    }
    for (answer, pods) in answers {
        let answer = together(&answer, pods.len());
        let _ = write!(out, "\n{}: {}\n{answer}", counted(pods.len(), "pod"), first_named(&pods, NAMED));
    }
    out
}

/// How many new machines the pods go to, if there are several: the answers about single pods do not show that.
fn new_machines(waiting: &[&Pod], plan: &Plan) -> Option<String> {
    let of_these: BTreeSet<String> = waiting.iter().map(|pod| pod.metadata.key()).collect();
    let taken = plan.claims.iter().map(|claim| claim.pods.iter().filter(|pod| of_these.contains(&pod.key())).count());
    let taken: Vec<usize> = taken.filter(|pods| 0 < *pods).collect();
    (1 < taken.len()).then(|| format!("  {} go to {} new machines\n", counted(taken.iter().sum(), "pod"), taken.len()))
}

/// The answer of several pods; it names the machine's pods, so that those with the same one share that machine.
fn together(answer: &str, pods: usize) -> String {
    match answer.strip_prefix("each needs a new machine\n") {
        Some(rest) if 1 < pods => format!("all go to one new machine\n{rest}"),
        _ => answer.to_owned(),
    }
}

/// What the machines of a pool use of its limits, as plans count it (ADR 0083); where none is among the objects, what its status says.
fn used_of(pool: &NodePool, read: &Manifests) -> Resources {
    let state = ClusterState::of(&read.objects);
    let own: Vec<&StateNode> = state.nodes.iter().filter(|node| node.limited_by() == Some(pool.metadata.name.as_str())).collect();
    if own.is_empty() {
        return pool.status.resources.clone();
    }
    let mut used = Resources::new();
    own.into_iter().filter(|node| !node.marked_for_deletion).for_each(|node| used.add(&node.capacity()));
    used
}

/// The state of a NodePool, what would be launched from it, and why it takes other pods not.
pub(super) fn pool_text(pool: &NodePool, read: &Manifests, plan: &Plan) -> String {
    let name = &pool.metadata.name;
    let kind = if name.starts_with(NodePool::TWIN_PREFIX) { "provisioner" } else { "nodepool" };
    let mut out = format!("{kind} {}\n", NodePool::given_name(name));
    let ready = conditions::find(&pool.status.conditions, conditions::READY);
    let unready = ready.filter(|_| !conditions::is_true(&pool.status.conditions, conditions::READY));
    let _ = match unready {
        _ if pool.metadata.is_deleting() => writeln!(out, "  being deleted, so that nothing is launched from it"),
        Some(condition) => {
            let said = format!("{} {}", condition.reason, condition.message);
            writeln!(out, "  not ready, so that nothing is launched from it: {}", words::printable(&said))
        }
        None => writeln!(out, "  ready"),
    };
    let nodes = read.objects.nodes.iter().filter(|node| node.metadata.label(labels::NODE_POOL) == Some(name)).count();
    let _ = writeln!(out, "  {}", counted(nodes, "node"));
    let used = used_of(pool, read);
    for (resource, limit) in pool.spec.limits.iter() {
        let _ = writeln!(out, "  limit of {resource}: {} of {}", used.get(resource).text_of(resource), limit.text_of(resource));
    }
    for rejection in plan.unusable_pools.iter().filter(|rejection| rejection.node_pool == *name) {
        let _ = writeln!(out, "  it has nothing to buy: {}", words::printable(&rejection.cause.to_string()));
    }
    let claims: Vec<_> = plan.claims.iter().filter(|claim| claim.node_pool == *name).collect();
    let taken: usize = claims.iter().map(|claim| claim.pods.len()).sum();
    let _ = writeln!(out, "  {} would be launched from it, for {}", counted(claims.len(), "machine"), counted(taken, "pending pod"));
    let mut refused: BTreeMap<(String, Option<Remedy>), Vec<String>> = BTreeMap::new();
    for left in &plan.left_out {
        let (Reason::Pools(rejections) | Reason::NoTemplates(rejections)) = &left.reason else { continue };
        for rejection in rejections.iter().filter(|rejection| rejection.node_pool == *name) {
            refused.entry((rejection.cause.to_string(), rejection.remedy())).or_default().push(left.pod.key());
        }
    }
    for ((cause, remedy), pods) in refused {
        let cause = words::printable(&cause);
        let _ = writeln!(out, "  it does not take {}, {cause}: {}", counted(pods.len(), "pending pod"), first_named(&pods, NAMED));
        out.extend(remedy.map(|remedy| remedies::line(&remedy)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_static_pods_is_no_workload() {
        let pod = |kind: &str, owner: &str| {
            format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: {owner}-pod, ownerReferences: [{{apiVersion: v1, kind: {kind}, name: {owner}, uid: u, \
                 controller: true}}]}}, spec: {{containers: [{{name: c}}]}}}}"
            )
        };
        let text = format!("{}\n---\n{}", pod("Node", "n1"), pod("StatefulSet", "web"));
        let read = crate::source::read_text("pods.yaml", &text).unwrap();
        assert_eq!(workloads(&read.objects.pods).into_keys().collect::<Vec<_>>(), ["statefulset/default/web"]);
    }
}
