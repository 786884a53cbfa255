//! Managed node groups: machines that EKS manages, and that Whittle must not touch.

use super::{Cluster, ClusterEffect};
use crate::dice::Dice;
use crate::region::Region;
use jiff::{SignedDuration, Timestamp};
use whittle_api::k8s::{Node, NodeSpec, NodeStatus, NodeSystemInfo};
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

impl Cluster {
    /// Brings every group to its size: new Nodes join at once, surplus ones are cordoned, drained within budgets, and terminated.
    pub(super) fn step_groups(&mut self, now: Timestamp, dice: &mut Dice, region: &Region, effects: &mut Vec<ClusterEffect>) {
        let groups: Vec<(String, NodeGroup)> = self.groups.iter().map(|(name, group)| (name.clone(), group.clone())).collect();
        for (name, group) in groups {
            let of_group = |node: &&Node| node.metadata.label(GROUP_LABEL) == Some(&name);
            let mut nodes: Vec<String> = self.objects.nodes.values().filter(of_group).map(|node| node.metadata.name.clone()).collect();
            let wanted = group.desired.clamp(group.min, group.max);
            for number in nodes.len()..wanted {
                self.add_group_node(&name, &group, number, now, dice, region);
            }
            let leaving = nodes.iter().filter(|node| self.shrinking.contains(*node)).count();
            let surplus = nodes.len().saturating_sub(wanted).saturating_sub(leaving);
            nodes.retain(|node| !self.shrinking.contains(node));
            for node in nodes.into_iter().rev().take(surplus) {
                effects.push(ClusterEffect::Log(format!("node group {name} gives up {node}: cordoned, draining")));
                self.objects.change::<Node>(&node, |node| node.spec.unschedulable = true);
                self.shrinking.insert(node);
            }
        }
        for node in self.shrinking.clone() {
            self.drain_group_node(&node, now);
        }
    }

    fn drain_group_node(&mut self, name: &str, now: Timestamp) {
        let pods = self.objects.pods_on(name).filter(|pod| !pod.is_daemon() && !pod.is_terminal());
        let keys: Vec<(String, String)> = pods.map(|pod| (pod.metadata.key(), pod.metadata.uid.clone())).collect();
        if keys.is_empty() {
            self.shrinking.remove(name);
            self.objects.delete::<Node>(name, now);
            return;
        }
        for (key, uid) in keys {
            if self.objects.pods.get(&key).is_some_and(|pod| pod.metadata.is_deleting()) {
                // It has a second to stop: the Node is deleted after it.
                self.retry(now.checked_add(DRAIN_RETRY).unwrap_or(now));
                continue;
            }
            self.evict(&key, &uid, now);
            self.retry(now.checked_add(DRAIN_RETRY).unwrap_or(now));
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
