//! Inputs that are unlike the mix of Karpenter's benchmark, each large in another respect: what a unit of work takes is measured on them.

use super::mix::{self, Dice};
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::catalog::InstanceType;
use whittle_api::k8s::{
    Affinity, NodeAffinity, NodeSelectorTerm, Pod, PodAffinity, PreferredSchedulingTerm, Taint, TaintEffect, Toleration,
    WeightedPodAffinityTerm,
};
use whittle_api::{ClusterObjects, SelectorRequirement, labels};
use whittle_units::{Quantity, Resources};

/// What a solve sees of a case.
pub(crate) type Case<L> = (ClusterObjects, BTreeMap<String, Arc<L>>);

/// A case by its name, with so many pods.
pub(crate) fn case<L: From<Vec<InstanceType>>>(name: &str, count: usize) -> Option<Case<L>> {
    let mut dice = Dice::new(7);
    let mut pods = mix::plain(count, &mut dice);
    let mut nodes = Vec::new();
    let (mut pools, mut types) = (1, 400);
    match name {
        // As jobs and stateful sets have it: a label of its own for each pod.
        "labelled" => pods.iter_mut().enumerate().for_each(|(n, pod)| label(pod, "job-name", n)),
        // No two pods ask for the same.
        "sizes" => resize(&mut pods, 200, 3),
        // As many machines as pods, none of which has room, and no two pods alike.
        "full" => {
            resize(&mut pods, 5000, 1);
            nodes = mix::machines(count.min(5000));
        }
        // Machines with room, neighbours to be counted, and pods that look at all of them.
        "crowded" => {
            pods = mix::diverse(count, &mut dice);
            nodes = mix::machines(count.min(5000));
        }
        // Fifty NodePools, each with a taint of its own; pods tolerate that of one.
        "pools" => {
            pools = 50;
            resize(&mut pods, 200, 3);
        }
        "types" => {
            types = 3000;
            pods = mix::diverse(count, &mut dice);
        }
        // Twenty groups of pods that each shun, seek and balance against three others.
        "social" => pods.iter_mut().enumerate().for_each(|(n, pod)| socialise(pod, n % 20)),
        // Twenty preferences each that nothing can satisfy.
        "preferences" => pods.iter_mut().enumerate().for_each(|(n, pod)| add_preferences(pod, n % 50)),
        // Two hundred kinds of selectors, so that machines differ.
        "selected" => pods.iter_mut().enumerate().for_each(|(n, pod)| select(pod, n % 200)),
        // Two replicas of each deployment, which are spread over zones and keep off each other's machine.
        "deployments" => deploy(&mut pods, &[spread_over_zones, keep_apart]),
        "deployments-spread" => deploy(&mut pods, &[spread_over_zones]),
        "deployments-apart" => deploy(&mut pods, &[keep_apart]),
        // Pods that fit nowhere, no two alike, in twenty NodePools.
        "hopeless" => {
            pools = 20;
            resize(&mut pods, 4_000_000, 1);
        }
        _ => return None,
    }
    let (mut objects, catalog) = mix::cluster(pods, nodes);
    let types = if types == 400 { Arc::clone(&catalog["default"]) } else { Arc::new(mix::instance_types(types).into()) };
    multiply_pool(&mut objects, pools);
    if name == "selected" {
        for pool in &mut objects.node_pools {
            pool.spec.template.spec.requirements =
                vec![whittle_api::karpenter::Requirement::is_in("team", (0..200).map(|team| team.to_string()))];
        }
    }
    let catalog = objects.node_pools.iter().map(|pool| (pool.metadata.name.clone(), Arc::clone(&types))).collect();
    Some((objects, catalog))
}

/// Replaces the only NodePool by `pools` copies. All but the first have a taint of their own, and pods tolerate that of the tenth.
fn multiply_pool(objects: &mut ClusterObjects, pools: usize) {
    let pool = objects.node_pools.remove(0);
    for n in 0..pools {
        let mut pool = pool.clone();
        pool.metadata.name = format!("pool-{n:02}");
        if n > 0 {
            let taint = Taint { key: "team".into(), value: n.to_string(), effect: TaintEffect::NoSchedule, ..Taint::default() };
            pool.spec.template.spec.taints = vec![taint];
        }
        objects.node_pools.push(pool);
    }
    for pod in &mut objects.pods {
        pod.spec.tolerations =
            vec![Toleration { key: "team".into(), operator: "Equal".into(), value: "9".into(), ..Toleration::default() }].into();
    }
}

fn label(pod: &mut Pod, key: &str, value: usize) {
    pod.metadata.labels.insert(key.to_owned(), format!("v{value}"));
}

/// Gives each pod a CPU request of its own, from `least` milli on.
fn resize(pods: &mut [Pod], least: i64, step: i64) {
    for (n, pod) in pods.iter_mut().enumerate() {
        let milli = least + step * i64::try_from(n % 5000).unwrap_or(0);
        let memory = Quantity::from_mebibytes(64 + i64::try_from(n / 5000).unwrap_or(0));
        let asks = Resources::from([("cpu", Quantity::from_milli(milli)), ("memory", memory)]);
        request(pod, &asks);
    }
}

fn request(pod: &mut Pod, asks: &Resources) {
    pod.spec.containers.iter_mut().filter_map(|c| c.resources.as_mut()).for_each(|r| r.requests = asks.clone());
}

fn socialise(pod: &mut Pod, group: usize) {
    label(pod, "group", group);
    let other = |by: usize| format!("v{}", (group + by) % 20);
    *pod = mix::spread(std::mem::take(pod), labels::ZONE, "group", &other(0));
    let soft = |by: usize, key: &str| WeightedPodAffinityTerm { weight: 5, pod_affinity_term: mix::term(key, ("group", &other(by))) };
    pod.spec.affinity = Some(Affinity {
        pod_anti_affinity: Some(PodAffinity {
            required: vec![mix::term(labels::HOSTNAME, ("group", &other(1)))],
            preferred: vec![soft(2, labels::HOSTNAME), soft(3, labels::ZONE)],
        }),
        pod_affinity: Some(PodAffinity { preferred: vec![soft(4, labels::ZONE), soft(5, labels::HOSTNAME)], ..PodAffinity::default() }),
        ..Affinity::default()
    });
}

/// What replicas ask of each other, by the name of their deployment.
type Manner = fn(&mut Pod, &str);

/// Makes deployments of two equal replicas each, of 250m to two cores.
fn deploy(pods: &mut [Pod], manners: &[Manner]) {
    for (n, replicas) in pods.chunks_mut(2).enumerate() {
        let (cpu, memory) = (n % 8 + 1, n / 8 % 4 + 1);
        let asks =
            Resources::from([("cpu", Quantity::from_milli(250 * cpu as i64)), ("memory", Quantity::from_mebibytes(512 * memory as i64))]);
        for pod in replicas {
            request(pod, &asks);
            label(pod, "app", n);
            manners.iter().for_each(|manner| manner(pod, &format!("v{n}")));
        }
    }
}

fn spread_over_zones(pod: &mut Pod, deployment: &str) {
    *pod = mix::spread(std::mem::take(pod), labels::ZONE, "app", deployment);
}

fn keep_apart(pod: &mut Pod, deployment: &str) {
    let required = vec![mix::term(labels::HOSTNAME, ("app", deployment))];
    let pod_anti_affinity = Some(PodAffinity { required, ..PodAffinity::default() });
    pod.spec.affinity = Some(Affinity { pod_anti_affinity, ..Affinity::default() });
}

fn add_preferences(pod: &mut Pod, kind: usize) {
    let preferred = (0..20).map(|n| {
        let asked = SelectorRequirement { key: labels::ZONE.into(), operator: "In".into(), values: vec![format!("mars-{kind}-{n}")] };
        PreferredSchedulingTerm {
            weight: 1 + n,
            preference: NodeSelectorTerm { match_expressions: vec![asked], ..NodeSelectorTerm::default() },
        }
    });
    let node_affinity = Some(NodeAffinity { preferred: preferred.collect(), ..NodeAffinity::default() });
    pod.spec.affinity = Some(Affinity { node_affinity, ..Affinity::default() });
}

fn select(pod: &mut Pod, team: usize) {
    pod.spec.node_selector.insert("team".to_owned(), team.to_string());
}
