//! Kubelets: machines that join, pods that start and stop.

use super::controllers::{NOT_READY, set_ready};
use super::{Cluster, ClusterEffect};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use whittle_api::k8s::{Node, NodeSpec, NodeStatus, NodeSystemInfo, Pod, Taint, TaintEffect};
use whittle_api::{ConditionStatus, ObjectMeta, conditions, labels};
use whittle_units::{ProviderId, Resources};

/// A foreign finalizer, and for how long it blocks the deletion of a Node.
const HELD_BY_OTHERS: &str = "example.com/backup";
const HELD_FOR: SignedDuration = SignedDuration::from_secs(90);

/// Between a kubelet's first report and its network being ready.
const NETWORK_DELAY: SignedDuration = SignedDuration::from_secs(8);

/// A machine as its kubelet registers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoiningMachine {
    pub instance_id: String,
    pub node_name: String,
    pub provider_id: ProviderId,
    pub instance_type: String,
    pub region: String,
    pub zone: String,
    pub zone_id: String,
    pub architecture: String,
    pub operating_system: String,
    /// Build number of Windows machines.
    pub windows_build: Option<String>,
    pub capacity: Resources,
    pub allocatable: Resources,
    /// From the user data.
    pub labels: BTreeMap<String, String>,
    /// From the user data.
    pub taints: Vec<Taint>,
}

impl Cluster {
    /// A kubelet reports for the first time. The Node becomes ready a little later.
    pub fn join(&mut self, machine: &JoiningMachine, now: Timestamp) {
        if self.objects.nodes.contains_key(&machine.node_name) {
            return;
        }
        let mut metadata = ObjectMeta::named(&machine.node_name);
        super::scheduler::well_known(
            &mut metadata,
            &[
                (labels::INSTANCE_TYPE, &machine.instance_type),
                (labels::REGION, &machine.region),
                (labels::ZONE, &machine.zone),
                (labels::ZONE_ID, &machine.zone_id),
                (labels::ARCH, &machine.architecture),
                (labels::OS, &machine.operating_system),
            ],
        );
        if let Some(build) = &machine.windows_build {
            metadata.labels.insert(labels::WINDOWS_BUILD.to_owned(), build.clone());
        }
        metadata.labels.extend(machine.labels.clone());
        let mut node = Node {
            metadata,
            spec: NodeSpec { provider_id: machine.provider_id.as_str().to_owned(), taints: machine.taints.clone(), unschedulable: false },
            status: NodeStatus {
                capacity: machine.capacity.clone(),
                allocatable: machine.allocatable.clone(),
                node_info: NodeSystemInfo {
                    kubelet_version: format!("v{}.0-eks-0000000", self.version),
                    architecture: machine.architecture.clone(),
                    operating_system: machine.operating_system.clone(),
                },
                ..NodeStatus::default()
            },
        };
        node.spec.taints.push(Taint::new(NOT_READY, TaintEffect::NoSchedule));
        conditions::set(
            &mut node.status.conditions,
            conditions::READY,
            ConditionStatus::False,
            "KubeletNotReady",
            "network not ready",
            now,
        );
        self.lost_at.remove(&machine.node_name);
        self.objects.create(node, now);
        self.ready_at.insert(machine.node_name.clone(), now.checked_add(NETWORK_DELAY).unwrap_or(now));
    }

    /// A kubelet stops reporting for a while.
    pub(crate) fn stop_kubelet_status(&mut self, node: &str, now: Timestamp, span: SignedDuration) {
        if self.lost_at.contains_key(node) || self.ready_at.contains_key(node) {
            return;
        }
        self.objects.change::<Node>(node, |node| {
            conditions::set(&mut node.status.conditions, conditions::READY, ConditionStatus::Unknown, "NodeStatusUnknown", "", now);
        });
        self.ready_at.insert(node.to_owned(), now.checked_add(span).unwrap_or(Timestamp::MAX));
    }

    /// Adds a foreign finalizer to a Node.
    pub(crate) fn hold(&mut self, node: &str) {
        self.objects.change::<Node>(node, |node| node.metadata.finalizers.push(HELD_BY_OTHERS.to_owned()));
    }

    /// Foreign finalizers are removed some time after the deletion of their Node.
    pub(super) fn step_holds(&mut self, now: Timestamp) {
        let held = |node: &&Node| node.metadata.finalizers.iter().any(|finalizer| finalizer == HELD_BY_OTHERS);
        let ends = |node: &Node| node.metadata.deletion_timestamp?.checked_add(HELD_FOR).ok();
        let held: Vec<(String, Timestamp)> =
            self.objects.nodes.values().filter(held).filter_map(|node| Some((node.metadata.name.clone(), ends(node)?))).collect();
        for (name, at) in held {
            if at > now {
                self.retry(at);
            } else {
                self.objects.change::<Node>(&name, |node| node.metadata.finalizers.retain(|finalizer| finalizer != HELD_BY_OTHERS));
            }
        }
    }

    /// Pods start and stop.
    pub(super) fn step_pods(&mut self, now: Timestamp) {
        let before = self.objects.workloads();
        let starting: Vec<String> = due(&self.starts, now);
        for key in starting {
            self.starts.remove(&key);
            self.objects.change::<Pod>(&key, |pod| {
                if !pod.metadata.is_deleting() {
                    "Running".clone_into(&mut pod.status.phase);
                    pod.status.start_time = Some(now);
                    set_ready(pod, true, now);
                }
            });
        }
        self.nobody_waits_for_starts(before);
        let ending: Vec<String> = due(&self.ends, now);
        for key in ending {
            self.forget_pod(&key);
        }
    }

    /// The containers of a running pod end, as those of a Job; the pod stays. False if it does not run.
    pub fn finish_pod(&mut self, key: &str, now: Timestamp) -> bool {
        if self.objects.pods.get(key).is_none_or(|pod| pod.status.phase != "Running" || pod.metadata.is_deleting()) {
            return false;
        }
        self.objects.change::<Pod>(key, |pod| {
            "Succeeded".clone_into(&mut pod.status.phase);
            set_ready(pod, false, now);
            pod.status.conditions.iter_mut().filter(|condition| condition.type_ == "Ready").for_each(|condition| {
                "PodCompleted".clone_into(&mut condition.reason);
            });
        })
    }

    /// Who had nothing to do `before` pods started has nothing to do after it: the scheduler counts bound pods, running or not, and a
    /// Deployment waits for its pods only while it replaces them.
    fn nobody_waits_for_starts(&mut self, before: u64) {
        let after = self.objects.workloads();
        if let Some((at, _)) = self.scheduled_at.as_mut().filter(|(at, _)| *at == before) {
            *at = after;
        }
        if let Some(at) = self.settled_at.as_mut().filter(|at| **at == before && !self.replaces_pods) {
            *at = after;
        }
    }

    /// Reports changes since the last step: Nodes for the node doorbell, classes for the refresh doorbell, the state
    /// of Deployments for the timeline.
    pub(super) fn notice_changes(&mut self, effects: &mut Vec<ClusterEffect>) {
        let nodes: BTreeMap<String, String> = self.objects.nodes.iter().map(|(name, node)| (name.clone(), fingerprint(node))).collect();
        if nodes != self.seen_nodes {
            let joined = nodes.keys().filter(|name| !self.seen_nodes.contains_key(*name));
            effects.extend(joined.map(|name| ClusterEffect::Log(format!("node {name} joined"))));
            let left = self.seen_nodes.keys().filter(|name| !nodes.contains_key(*name));
            effects.extend(left.map(|name| ClusterEffect::Log(format!("node {name} is gone"))));
            self.seen_nodes = nodes;
            effects.push(ClusterEffect::NodeChanged);
        }
        let pools = self.objects.node_pools.values().map(|pool| (format!("pool/{}", pool.metadata.name), pool.metadata.generation));
        let classes = self.objects.node_classes.values().map(|class| (format!("class/{}", class.metadata.name), class.metadata.generation));
        let classes: BTreeMap<String, Option<i64>> = pools.chain(classes).collect();
        if classes != self.seen_classes {
            self.seen_classes = classes;
            effects.push(ClusterEffect::ClassChanged);
        }
        if self.logged_at != Some(self.objects.workloads()) {
            self.logged_at = Some(self.objects.workloads());
            self.log_deployments(effects);
        }
    }

    fn log_deployments(&mut self, effects: &mut Vec<ClusterEffect>) {
        let mut logged = BTreeMap::new();
        // By Deployment: running, starting, pending.
        let mut counts: BTreeMap<String, (usize, usize, usize)> = BTreeMap::new();
        for (owner, pods) in self.pods_of_deployments() {
            let counted = counts.entry(owner.metadata.key()).or_default();
            for pod in pods.into_iter().filter(|pod| !pod.metadata.is_deleting()) {
                match (pod.status.phase.as_str(), pod.is_bound()) {
                    ("Running", _) => counted.0 += 1,
                    (_, true) => counted.1 += 1,
                    (_, false) => counted.2 += 1,
                }
            }
        }
        for (key, deployment) in &self.objects.deployments {
            let (running, starting, pending) = counts.get(key).copied().unwrap_or_default();
            let wanted = deployment.spec.replicas.unwrap_or(1);
            let mut text = format!("deployment {key}: {running} of {wanted} running");
            if starting > 0 {
                text.push_str(&format!(", {starting} starting"));
            }
            if pending > 0 {
                text.push_str(&format!(", {pending} pending"));
            }
            logged.insert(key.clone(), (pending, starting, text));
        }
        for (key, (pending, starting, text)) in &logged {
            // Not every starting pod is logged; only the first and the last.
            let has_changed = self
                .logged
                .get(key)
                .is_none_or(|(waited, began, last)| last != text && (waited != pending || *starting == 0 || *began == 0));
            if has_changed {
                effects.push(ClusterEffect::Log(text.clone()));
            }
        }
        self.logged = logged;
    }
}

fn due(timers: &BTreeMap<String, Timestamp>, now: Timestamp) -> Vec<String> {
    timers.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect()
}

/// The fields of a Node that ring the node doorbell: readiness, startup taints, deletion.
fn fingerprint(node: &Node) -> String {
    let ready = node.is_ready();
    let taints: Vec<String> = node.spec.taints.iter().map(ToString::to_string).collect();
    format!("{ready} {} {}", taints.join(" "), node.metadata.is_deleting())
}
