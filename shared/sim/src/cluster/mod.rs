//! The Kubernetes cluster: objects, controllers, scheduler, kubelets.

pub mod admission;
mod apply;
mod budgets;
mod controllers;
mod garbage;
mod groups;
mod kubelet;
mod namespaces;
pub mod objects;
mod scheduler;
mod server_side;
mod volumes;
mod workloads;

pub use apply::{Applied, NoSuchObject, PodCounts};
pub use budgets::Eviction;
pub use groups::NodeGroup;
pub use kubelet::JoiningMachine;
pub use objects::{Objects, Table, Tabled};

use crate::dice::Dice;
use crate::region::Region;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Deployment, Node, Pod};
use whittle_ec2::network::ClusterInfo;
use whittle_ports::ClusterEvent;
use whittle_units::ClusterName;

/// Between two rounds of the controller of a Deployment whose pods are being replaced.
const REPLACING_ROUND: SignedDuration = SignedDuration::from_secs(1);

/// A stored Kubernetes Event: repeated within two minutes, only its count grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptEvent {
    pub at: Timestamp,
    /// When it was published last.
    pub last: Timestamp,
    pub count: u32,
    pub event: ClusterEvent,
}

/// The effects of a controller step outside the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterEffect {
    Log(String),
    /// The scheduler published FailedScheduling; the webhook sends this review.
    FailedScheduling(String),
    /// A Node appeared, became ready or lost a startup taint.
    NodeChanged,
    /// A node class or a pool was changed by the user.
    ClassChanged,
    Violation(String),
}

#[derive(Debug)]
pub struct Cluster {
    /// Signs of a Karpenter installation in the same cluster.
    pub karpenter: Vec<whittle_api::KarpenterSign>,
    pub name: ClusterName,
    pub version: String,
    /// What EKS answers about it, where that is not what it answers about any simulated cluster.
    pub info: Option<ClusterInfo>,
    pub objects: Objects,
    pub events: Vec<KeptEvent>,
    pub groups: BTreeMap<String, NodeGroup>,
    /// The eviction API ignores budgets: a mutant that the checkers must catch.
    pub skip_budgets: bool,
    /// For how long the scheduler does not see a node's disrupted taint, and so still binds pods to it.
    pub scheduler_lag: SignedDuration,
    /// When the scheduler's cache first missed the taint of a node.
    tainted_at: BTreeMap<String, Timestamp>,
    /// When bound pods start to run, and when terminating ones end.
    starts: BTreeMap<String, Timestamp>,
    ends: BTreeMap<String, Timestamp>,
    /// When a pod that is gone was last bound, ended or told to end, by its node.
    pub(crate) departures: BTreeMap<String, Timestamp>,
    /// When Nodes become ready, and when those of lost machines are deleted.
    ready_at: BTreeMap<String, Timestamp>,
    lost_at: BTreeMap<String, Timestamp>,
    /// Namespaces that are being deleted, and when they are recreated.
    terminating: BTreeMap<String, Timestamp>,
    /// The last logged state of each Deployment.
    logged: BTreeMap<String, (usize, usize, String)>,
    /// Nodes and classes at the last step, to detect changes.
    seen_nodes: BTreeMap<String, String>,
    seen_classes: BTreeMap<String, Option<i64>>,
    /// Pods for which the webhook was called.
    reviewed: BTreeMap<String, Timestamp>,
    /// Groups' nodes that are being drained, by name.
    shrinking: BTreeMap<String, groups::Drain>,
    retry_at: Option<Timestamp>,
    /// When unused volumes are detached, by attachment.
    detached_at: BTreeMap<String, Timestamp>,
    /// The write counter after the last pass of the scheduler, and when it repeats itself: between them it has nothing to do.
    scheduled_at: Option<(u64, Timestamp)>,
    /// The write counter after which the controllers had nothing to do, and the one that was logged last.
    settled_at: Option<u64>,
    /// Whether a Deployment has other pods than it should have, or a pod of a DaemonSet ends.
    replaces_pods: bool,
    logged_at: Option<u64>,
    /// Uids of pods that were deleted by force, which may violate their budget.
    pub forced: BTreeSet<String>,
    /// What was applied to NodeClaims, by their uid.
    managed: BTreeMap<String, server_side::Managed>,
}

impl Cluster {
    /// A cluster that contains only its namespaces, which it has since `start`.
    pub fn new(name: ClusterName, version: &str, start: Timestamp) -> Self {
        let mut cluster = Self {
            karpenter: Vec::new(),
            name,
            version: version.to_owned(),
            info: None,
            objects: Objects::default(),
            events: Vec::new(),
            groups: BTreeMap::new(),
            skip_budgets: false,
            scheduler_lag: SignedDuration::ZERO,
            tainted_at: BTreeMap::new(),
            starts: BTreeMap::new(),
            ends: BTreeMap::new(),
            departures: BTreeMap::new(),
            ready_at: BTreeMap::new(),
            lost_at: BTreeMap::new(),
            terminating: BTreeMap::new(),
            logged: BTreeMap::new(),
            seen_nodes: BTreeMap::new(),
            seen_classes: BTreeMap::new(),
            reviewed: BTreeMap::new(),
            shrinking: BTreeMap::new(),
            retry_at: None,
            detached_at: BTreeMap::new(),
            scheduled_at: None,
            settled_at: None,
            replaces_pods: false,
            logged_at: None,
            forced: BTreeSet::new(),
            managed: BTreeMap::new(),
        };
        for namespace in ["default", "kube-system"] {
            cluster.ensure_namespace(namespace, start);
        }
        cluster
    }

    /// Creates a namespace unless it exists.
    pub fn ensure_namespace(&mut self, name: &str, now: Timestamp) {
        let mut namespace = whittle_api::k8s::Namespace { metadata: whittle_api::ObjectMeta::named(name) };
        namespace.metadata.labels.insert(whittle_api::labels::NAMESPACE_NAME.to_owned(), name.to_owned());
        self.objects.create(namespace, now);
    }

    /// One step of all controllers, the scheduler and the kubelets.
    pub fn step(&mut self, now: Timestamp, dice: &mut Dice, region: &Region) -> Vec<ClusterEffect> {
        let mut effects = Vec::new();
        self.retry_at = None;
        self.step_groups(now, dice, region, &mut effects);
        self.step_nodes(now, &mut effects);
        self.step_holds(now);
        self.step_volumes(now);
        self.collect_garbage(now);
        self.step_namespaces(now);
        self.step_workloads(now, dice);
        self.step_pods(now);
        self.finalize_workloads();
        self.schedule_pods(now, dice, &mut effects);
        self.update_budgets();
        self.notice_changes(&mut effects);
        self.go_on_replacing(now);
        effects
    }

    /// Pod controllers depend on workloads and Nodes alone: unless one of these changed, they have nothing to do.
    fn step_workloads(&mut self, now: Timestamp, dice: &mut Dice) {
        let before = self.objects.workloads();
        if self.settled_at == Some(before) {
            return;
        }
        self.step_deployments(now, dice);
        self.step_daemon_sets(now, dice);
        self.settled_at = (self.objects.workloads() == before).then_some(before);
    }

    /// The controller of a Deployment that replaces pods looks again after what changed in this step: pods that it created have started,
    /// or those that it deleted made room for others. Nothing else may happen in a cluster where nobody launches machines.
    fn go_on_replacing(&mut self, now: Timestamp) {
        if self.replaces_pods && self.settled_at != Some(self.objects.workloads()) {
            self.retry(now.checked_add(REPLACING_ROUND).unwrap_or(Timestamp::MAX));
        }
    }

    /// When the next timer of a pod, Node or drain runs out.
    pub fn next_at(&self, now: Timestamp) -> Option<Timestamp> {
        let timers = self.starts.values().chain(self.ends.values()).chain(self.ready_at.values()).chain(self.lost_at.values());
        timers.chain(self.terminating.values()).copied().chain(self.retry_at).filter(|at| *at > now).min()
    }

    /// Schedules another step at this time at the latest.
    fn retry(&mut self, at: Timestamp) {
        self.retry_at = Some(self.retry_at.map_or(at, |known| known.min(at)));
    }

    pub fn deployment_of(&self, pod: &Pod) -> Option<&Deployment> {
        let owner = pod.metadata.controller().filter(|owner| owner.kind == "ReplicaSet")?;
        self.deployment_of_set(&pod.metadata.namespace, &owner.name)
    }

    fn deployment_of_set(&self, namespace: &str, set: &str) -> Option<&Deployment> {
        let (name, _) = set.rsplit_once('-')?;
        self.objects.deployments.get(&format!("{namespace}/{name}"))
    }

    /// Publishes an Event; the same one within two minutes only raises its count. Returns whether it is new.
    pub fn publish(&mut self, event: ClusterEvent, now: Timestamp) -> bool {
        let recent = |kept: &&mut KeptEvent| kept.event == event && now.duration_since(kept.at) < SignedDuration::from_mins(2);
        if let Some(kept) = self.events.iter_mut().rev().take(500).find(recent) {
            (kept.count, kept.last) = (kept.count + 1, now);
            return false;
        }
        self.events.push(KeptEvent { at: now, last: now, count: 1, event });
        true
    }

    /// Deletes a pod with a grace period in seconds (30 by default). An unbound one is removed at once.
    pub fn delete_pod(&mut self, key: &str, grace: Option<i64>, now: Timestamp) {
        let Some(pod) = self.objects.pods.get(key) else { return };
        let grace = grace.or(pod.spec.termination_grace_period_seconds).unwrap_or(30).max(0);
        let alive = self.node_of(pod).is_some_and(|node| !self.lost_at.contains_key(&node.metadata.name));
        if !pod.is_bound() || pod.is_terminal() || grace == 0 && !alive {
            self.forget_pod(key);
            return;
        }
        let until = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
        if pod.metadata.deletion_timestamp.is_none_or(|known| known > until) {
            self.objects.change::<Pod>(key, |pod| {
                pod.metadata.deletion_timestamp = Some(until);
                pod.metadata.deletion_grace_period_seconds = Some(grace);
            });
        }
        // Simulated containers stop within a second, or when their grace period ends.
        let stops = now.checked_add(SignedDuration::from_secs(grace.min(1))).unwrap_or(until);
        let end = self.ends.entry(key.to_owned()).or_insert(stops);
        *end = (*end).min(stops);
    }

    fn forget_pod(&mut self, key: &str) {
        let gone = self.objects.pods.get(key).filter(|pod| !pod.is_daemon() && !pod.is_static());
        if let Some((node, at)) = gone.and_then(|pod| Some((pod.spec.node_name.clone(), pod.last_event()?))) {
            let known = self.departures.entry(node).or_insert(at);
            *known = (*known).max(at);
        }
        self.objects.forget_pod(key);
        self.starts.remove(key);
        self.ends.remove(key);
        self.reviewed.remove(key);
    }

    fn node_of(&self, pod: &Pod) -> Option<&Node> {
        self.objects.nodes.get(&pod.spec.node_name)
    }
}
