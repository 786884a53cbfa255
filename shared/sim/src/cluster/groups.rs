//! Managed node groups: machines that EKS manages, and that Whittle must not touch.

use super::{Cluster, ClusterEffect, Eviction};
use crate::dice::Dice;
use crate::region::Region;
use jiff::{SignedDuration, Timestamp};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use whittle_api::k8s::{Node, NodeSpec, NodeStatus, NodeSystemInfo, Pod};
use whittle_api::{ConditionStatus, ObjectMeta, conditions, labels};
use whittle_units::{InstanceId, ProviderId};

pub(crate) const GROUP_LABEL: &str = "eks.amazonaws.com/nodegroup";
const DRAIN_RETRY: SignedDuration = SignedDuration::from_secs(5);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeGroup {
    pub instance_type: String,
    pub min: usize,
    pub max: usize,
    pub desired: usize,
}

/// A node that its group gives up.
#[derive(Clone, Debug)]
pub(super) struct Drain {
    /// When its pods are evicted next.
    next_try: Timestamp,
    /// What was last logged of evictions that were refused.
    refusal: String,
}

/// The first of some names, and how many others there are.
fn listed(names: &[String]) -> String {
    match names {
        [first, second, rest @ ..] if !rest.is_empty() => format!("{first}, {second} and {} more", rest.len()),
        names => names.join(" and "),
    }
}

impl Cluster {
    /// Brings every group to its size: new Nodes join at once, surplus ones are cordoned, drained within budgets, and terminated.
    pub(super) fn step_groups(&mut self, now: Timestamp, dice: &mut Dice, region: &Region, effects: &mut Vec<ClusterEffect>) {
        let groups: Vec<(String, NodeGroup)> = self.groups.iter().map(|(name, group)| (name.clone(), group.clone())).collect();
        for (name, group) in groups {
            let of_group = |node: &&Node| node.metadata.label(GROUP_LABEL) == Some(&name);
            let (leaving, mut staying): (Vec<&Node>, Vec<&Node>) =
                self.objects.nodes.values().filter(of_group).partition(|node| self.shrinking.contains_key(&node.metadata.name));
            let wanted = group.desired.clamp(group.min, group.max);
            let there = leaving.len() + staying.len();
            let mut given_up = Vec::new();
            for _ in wanted + leaving.len()..there {
                let Some(next) = self.next_to_leave(&staying) else { break };
                given_up.push(staying.remove(next).metadata.name.clone());
            }
            for number in there..wanted {
                self.add_group_node(&name, &group, number, now, dice, region);
            }
            for node in given_up {
                effects.push(ClusterEffect::Log(format!("node group {name} gives up {node}: cordoned, draining")));
                self.objects.change::<Node>(&node, |node| node.spec.unschedulable = true);
                self.shrinking.insert(node, Drain { next_try: now, refusal: String::new() });
            }
        }
        let draining: Vec<String> = self.shrinking.keys().cloned().collect();
        for node in draining {
            self.drain_group_node(&node, now, effects);
        }
        if let Some(at) = self.shrinking.values().map(|drain| drain.next_try).filter(|at| *at > now).min() {
            self.retry(at);
        }
    }

    /// The place of the Node that a group's Auto Scaling group ends first: of a zone that has most of them, the oldest. Of equally old
    /// ones it may take any; here it is the one with most pods, so that a drain has something to wait for.
    fn next_to_leave(&self, nodes: &[&Node]) -> Option<usize> {
        let mut in_zones: BTreeMap<Option<&str>, usize> = BTreeMap::new();
        for node in nodes {
            *in_zones.entry(node.metadata.label(labels::ZONE)).or_default() += 1;
        }
        let rank = |node: &Node| {
            let in_zone = in_zones.get(&node.metadata.label(labels::ZONE)).copied();
            let pods = self.to_evict(&node.metadata.name).count();
            (Reverse(in_zone), node.metadata.creation_timestamp, Reverse(pods), node.metadata.name.clone())
        };
        (0..nodes.len()).min_by_key(|place| rank(nodes[*place]))
    }

    fn to_evict<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.objects.pods_on(node).filter(|pod| !pod.is_daemon() && !pod.is_terminal())
    }

    fn drain_group_node(&mut self, name: &str, now: Timestamp, effects: &mut Vec<ClusterEffect>) {
        let keys: Vec<(String, String)> = self.to_evict(name).map(|pod| (pod.metadata.key(), pod.metadata.uid.clone())).collect();
        if keys.is_empty() {
            self.shrinking.remove(name);
            self.objects.delete::<Node>(name, now);
            return;
        }
        if self.shrinking.get(name).is_some_and(|drain| now < drain.next_try) {
            return;
        }
        let next_try = now.checked_add(DRAIN_RETRY).unwrap_or(now);
        let (mut evicted, mut refused) = (Vec::new(), Vec::new());
        let mut why = String::new();
        for (key, uid) in keys {
            if self.objects.pods.get(&key).is_some_and(|pod| pod.metadata.is_deleting()) {
                continue;
            }
            match self.evict(&key, &uid, now) {
                Eviction::Granted => evicted.push(key),
                Eviction::Refused(text) | Eviction::Confused(text) => {
                    refused.push(key);
                    why = text;
                }
            }
        }
        if !evicted.is_empty() {
            effects.push(ClusterEffect::Log(format!("node {name} is drained: {} evicted", listed(&evicted))));
        }
        let news = match refused[..] {
            [] => String::new(),
            _ => format!("node {name}: the eviction of {} is refused, and tried again every five seconds: {why}", listed(&refused)),
        };
        let known = self.shrinking.insert(name.to_owned(), Drain { next_try, refusal: news.clone() });
        if !news.is_empty() && known.is_none_or(|known| known.refusal != news) {
            effects.push(ClusterEffect::Log(news));
        }
    }

    fn add_group_node(&mut self, name: &str, group: &NodeGroup, number: usize, now: Timestamp, dice: &mut Dice, region: &Region) {
        let zones = region.zones();
        let Some(zone) = zones.get(number % zones.len().max(1)) else { return };
        let node_name = region.private_name(dice);
        let id = InstanceId::new(format!("i-{}", dice.hex(17)));
        let mut metadata = ObjectMeta::named(&node_name);
        super::scheduler::well_known(
            &mut metadata,
            &[
                ("eks.amazonaws.com/capacityType", "ON_DEMAND"),
                (GROUP_LABEL, name),
                (labels::ARCH, "amd64"),
                (labels::OS, "linux"),
                (labels::INSTANCE_TYPE, &group.instance_type),
                (labels::REGION, region.name()),
                (labels::ZONE, &zone.name),
            ],
        );
        let (capacity, allocatable) = region.plain_size(&group.instance_type);
        let mut status = NodeStatus {
            capacity,
            allocatable,
            node_info: NodeSystemInfo {
                kubelet_version: format!("v{}.0-eks-0000000", self.version),
                architecture: "amd64".to_owned(),
                operating_system: "linux".to_owned(),
            },
            ..NodeStatus::default()
        };
        conditions::set(&mut status.conditions, conditions::READY, ConditionStatus::True, "KubeletReady", "", now);
        let provider_id = ProviderId::of_instance(&zone.name, &id).as_str().to_owned();
        self.objects.create(Node { metadata, spec: NodeSpec { provider_id, ..NodeSpec::default() }, status }, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use whittle_api::k8s::{Pod, PodDisruptionBudget};
    use whittle_claims::fixtures::at;

    /// A cluster whose group has these nodes: name, zone, when it was made.
    fn cluster(nodes: &[(&str, &str, i64)], desired: usize) -> Cluster {
        let mut cluster = Cluster::new("c".into(), "1.33", at(0));
        for (name, zone, made) in nodes {
            let mut metadata = ObjectMeta::named(*name);
            metadata.labels.insert(GROUP_LABEL.to_owned(), "work".to_owned());
            metadata.labels.insert(labels::ZONE.to_owned(), (*zone).to_owned());
            cluster.objects.create(Node { metadata, ..Node::default() }, at(*made));
        }
        cluster.groups.insert("work".to_owned(), NodeGroup { desired, max: 9, ..NodeGroup::default() });
        cluster
    }

    /// A pod that runs and is ready.
    fn run(cluster: &mut Cluster, name: &str, node: &str) {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
            "spec": {"nodeName": node},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        cluster.objects.create(pod, at(0));
    }

    fn step(cluster: &mut Cluster, second: i64) -> Vec<String> {
        let mut effects = Vec::new();
        let region = Region::new("us-east-1", &"c".into());
        cluster.step_groups(at(second), &mut Dice::new(1), &region, &mut effects);
        let text = |effect| match effect {
            ClusterEffect::Log(text) => text,
            other => panic!("{other:?}"),
        };
        effects.into_iter().map(text).collect()
    }

    fn given_up(nodes: &[(&str, &str, i64)], desired: usize, pods_on: &[&str]) -> BTreeSet<String> {
        let mut cluster = cluster(nodes, desired);
        for (number, node) in pods_on.iter().enumerate() {
            run(&mut cluster, &format!("web-{number}"), node);
        }
        let before: BTreeSet<String> = cluster.objects.nodes.keys().cloned().collect();
        step(&mut cluster, 100);
        let stays = |name: &String| cluster.objects.nodes.get(name).is_some_and(|node| !node.spec.unschedulable);
        before.into_iter().filter(|name| !stays(name)).collect()
    }

    #[track_caller]
    fn check(nodes: &[(&str, &str, i64)], desired: usize, pods_on: &[&str], wanted: &[&str]) {
        assert_eq!(given_up(nodes, desired, pods_on), wanted.iter().map(|name| (*name).to_owned()).collect());
    }

    #[test]
    fn a_group_gives_up_the_oldest_node_of_the_zone_with_most() {
        check(&[("a", "a", 1), ("b", "b", 3), ("c", "b", 2)], 2, &[], &["c"]);
        check(&[("a", "a", 1), ("b", "b", 3), ("c", "b", 2)], 1, &[], &["a", "c"]);
        check(&[("a", "a", 2), ("b", "b", 1), ("c", "c", 3)], 2, &["c", "c"], &["b"]);
        // Any of equally old ones: that with most pods.
        check(&[("a", "a", 1), ("b", "b", 1), ("c", "c", 1)], 2, &["b", "c", "c"], &["c"]);
        check(&[("a", "a", 1), ("b", "b", 1), ("c", "c", 1)], 3, &["b"], &[]);
    }

    #[test]
    fn a_drain_evicts_what_the_budget_allows_and_waits_with_the_rest() {
        let mut cluster = cluster(&[("a", "a", 1), ("b", "b", 2)], 1);
        for name in ["one", "two", "three"] {
            run(&mut cluster, name, "a");
        }
        let budget: PodDisruptionBudget = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
        }))
        .unwrap();
        cluster.objects.create(budget, at(0));
        let ready = |cluster: &Cluster| cluster.objects.pods.values().filter(|pod| !pod.metadata.is_deleting()).count();
        let lines = step(&mut cluster, 100);
        assert_eq!(lines[0], "node group work gives up a: cordoned, draining");
        assert_eq!(lines[1], "node a is drained: default/one evicted");
        assert!(lines[2].starts_with("node a: the eviction of default/three and default/two is refused"), "{lines:?}");
        assert!(lines[2].ends_with("the disruption budget web needs 2 healthy pods and has 2 currently"), "{lines:?}");
        assert_eq!((lines.len(), ready(&cluster)), (3, 2));
        // Not before it is due, then again and again: without another line, and without an eviction.
        for second in [101, 104, 105, 110, 600] {
            assert!(step(&mut cluster, second).is_empty());
            assert_eq!(ready(&cluster), 2);
        }
        assert!(cluster.objects.nodes.contains_key("a"), "a node with pods is never ended");
        run(&mut cluster, "four", "b");
        let lines = step(&mut cluster, 605);
        assert_eq!(lines[0], "node a is drained: default/three evicted");
        assert_eq!((lines.len(), ready(&cluster)), (2, 2), "{lines:?}");
    }

    #[test]
    fn a_node_without_pods_goes_at_once_and_only_as_many_as_are_too_many() {
        let mut cluster = cluster(&[("a", "a", 1), ("b", "b", 2), ("c", "c", 3)], 2);
        step(&mut cluster, 100);
        step(&mut cluster, 200);
        assert_eq!(cluster.objects.nodes.keys().cloned().collect::<Vec<_>>(), ["b", "c"]);
    }
}
