//! The relevant controllers of kube-controller-manager: Deployments, DaemonSets, node lifecycle, pod garbage collection.

use super::{Cluster, ClusterEffect};
use crate::dice::Dice;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use whittle_api::k8s::{
    Affinity, DaemonSet, Deployment, Kind, Node, NodeAffinity, NodeSelector, NodeSelectorTerm, Pod, PodTemplate, Taint, TaintEffect,
    Toleration,
};
use whittle_api::{ConditionStatus, ObjectMeta, OwnerReference, SelectorRequirement, conditions, labels};
use whittle_model::pods::{DeletionRank, deletion_ranks, effective_requests, is_ready, tolerates};
use whittle_units::{Resources, fnv1a};

/// The label that distinguishes the pods of different templates.
pub(super) const TEMPLATE_HASH: &str = "pod-template-hash";
pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A short hash of a template, in letters and digits.
fn template_hash(template: &PodTemplate) -> String {
    let text = serde_json::to_string(template).unwrap_or_default();
    format!("{:010x}", fnv1a(text) & 0xff_ffff_ffff)
}

fn wanted(deployment: &Deployment) -> usize {
    usize::try_from(deployment.spec.replicas.unwrap_or(1)).unwrap_or(0)
}

fn owner(kind: &str, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The properties of a pod that a Deployment's controller uses.
#[derive(Debug)]
struct Replica {
    key: String,
    template_hash: String,
    ready: bool,
    deletion_rank: DeletionRank,
}

impl Replica {
    /// The pods of one Deployment.
    fn all(pods: &[&Pod]) -> Vec<Self> {
        let replica = |(pod, deletion_rank): (&&Pod, DeletionRank)| Self {
            key: pod.metadata.key(),
            template_hash: pod.metadata.label(TEMPLATE_HASH).unwrap_or_default().to_owned(),
            ready: is_ready(pod),
            deletion_rank,
        };
        pods.iter().zip(deletion_ranks(pods.iter().copied(), None)).map(replica).collect()
    }
}

impl Cluster {
    /// What the newest pods of a Deployment have in their label `pod-template-hash`.
    pub fn template_hash(deployment: &Deployment) -> String {
        template_hash(&deployment.spec.template)
    }

    pub(super) fn step_deployments(&mut self, now: Timestamp, dice: &mut Dice) {
        let unsettled = self.unsettled();
        self.replaces_pods = !unsettled.is_empty();
        for (deployment, replicas) in unsettled {
            self.step_deployment(&deployment, replicas, now, dice);
        }
        for key in self.orphans() {
            self.delete_pod(&key, None, now);
        }
    }

    /// Deployments whose pods differ from the desired ones.
    fn unsettled(&self) -> Vec<(Deployment, Vec<Replica>)> {
        let mut staying: BTreeMap<String, Vec<&Pod>> = BTreeMap::new();
        for (owner, pods) in self.pods_of_deployments() {
            let pods = pods.into_iter().filter(|pod| !pod.metadata.is_deleting() && !pod.is_terminal());
            staying.entry(owner.metadata.key()).or_default().extend(pods);
        }
        let replicas = |(key, deployment): (&String, &Deployment)| {
            let pods = staying.get(key).map(Vec::as_slice).unwrap_or_default();
            let hash = template_hash(&deployment.spec.template);
            let settled = pods.len() == wanted(deployment) && pods.iter().all(|pod| pod.metadata.label(TEMPLATE_HASH) == Some(&hash));
            (!settled && !deployment.metadata.is_deleting() && !self.is_terminating(&deployment.metadata.namespace))
                .then(|| (deployment.clone(), Replica::all(pods)))
        };
        self.objects.deployments.iter().filter_map(replicas).collect()
    }

    /// Pods by their owning ReplicaSet, as `(namespace, name)`. Clusters have thousands of pods and few sets.
    fn pods_of_sets(&self) -> BTreeMap<(&str, &str), Vec<&Pod>> {
        let mut sets: HashMap<(&str, &str), Vec<&Pod>> = HashMap::new();
        for pod in self.objects.pods.values() {
            if let Some(owner) = pod.metadata.controller().filter(|owner| owner.kind == "ReplicaSet") {
                sets.entry((&pod.metadata.namespace, &owner.name)).or_default().push(pod);
            }
        }
        sets.into_iter().collect()
    }

    /// Deployments with their pods, once for each ReplicaSet.
    pub(super) fn pods_of_deployments(&self) -> Vec<(&Deployment, Vec<&Pod>)> {
        let owned = |((namespace, set), pods)| Some((self.deployment_of_set(namespace, set)?, pods));
        self.pods_of_sets().into_iter().filter_map(owned).collect()
    }

    /// Keys of the pods of a workload.
    pub(super) fn pods_of(&self, kind: &str, key: &str) -> Vec<String> {
        let is_its = |pod: &&Pod| match kind {
            Deployment::KIND => self.deployment_of(pod).is_some_and(|deployment| deployment.metadata.key() == key),
            DaemonSet::KIND => pod
                .metadata
                .controller()
                .is_some_and(|owner| owner.kind == DaemonSet::KIND && key == format!("{}/{}", pod.metadata.namespace, owner.name)),
            _ => false,
        };
        self.objects.pods.values().filter(is_its).map(|pod| pod.metadata.key()).collect()
    }

    /// Keys of pods whose controller does not exist.
    fn orphans(&self) -> Vec<String> {
        let sets = self.pods_of_sets().into_iter().filter(|((namespace, set), _)| self.deployment_of_set(namespace, set).is_none());
        let of_sets = sets.flat_map(|(_, pods)| pods);
        let of_others =
            self.objects.pods.values().filter(|pod| pod.metadata.controller().is_some_and(|owner| self.lacks_daemon_set(pod, owner)));
        let all = of_sets.chain(of_others).filter(|pod| !pod.metadata.is_deleting());
        // In the order of the pods, which are deleted in this order.
        all.map(|pod| pod.metadata.key()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn lacks_daemon_set(&self, pod: &Pod, owner: &OwnerReference) -> bool {
        owner.kind == "DaemonSet" && !self.objects.daemon_sets.contains_key(&format!("{}/{}", pod.metadata.namespace, owner.name))
    }

    /// One round of a Deployment: at most a quarter more pods than wanted, at most a quarter fewer ready ones.
    fn step_deployment(&mut self, deployment: &Deployment, replicas: Vec<Replica>, now: Timestamp, dice: &mut Dice) {
        let hash = template_hash(&deployment.spec.template);
        let wanted = wanted(deployment);
        let (mut new, mut old): (Vec<Replica>, Vec<Replica>) = replicas.into_iter().partition(|pod| pod.template_hash == hash);
        let surge = if old.is_empty() { 0 } else { wanted.div_ceil(4) };
        let missing = wanted.saturating_sub(new.len()).min((wanted + surge).saturating_sub(new.len() + old.len()));
        for _ in 0..missing {
            self.create_replica(deployment, &hash, now, dice);
        }
        new.sort_by(|a, b| a.deletion_rank.cmp(&b.deletion_rank));
        old.sort_by(|a, b| a.deletion_rank.cmp(&b.deletion_rank));
        let extra = new.len().saturating_sub(wanted);
        let ready = new.iter().chain(&old).filter(|pod| pod.ready).count();
        let spare = ready.saturating_sub(wanted - wanted / 4);
        let unready_old = old.iter().filter(|pod| !pod.ready).count();
        let surplus: Vec<String> = new.iter().take(extra).chain(old.iter().take(unready_old + spare)).map(|pod| pod.key.clone()).collect();
        for key in surplus {
            self.delete_pod(&key, None, now);
        }
    }

    fn create_replica(&mut self, deployment: &Deployment, hash: &str, now: Timestamp, dice: &mut Dice) {
        let template = &deployment.spec.template;
        let set = format!("{}-{hash}", deployment.metadata.name);
        let mut metadata = ObjectMeta::namespaced(&deployment.metadata.namespace, format!("{set}-{}", dice.suffix(5)));
        metadata.labels.clone_from(&template.metadata.labels);
        metadata.labels.insert(TEMPLATE_HASH.to_owned(), hash.to_owned());
        metadata.annotations.clone_from(&template.metadata.annotations);
        metadata.owner_references = vec![owner("ReplicaSet", &set, &format!("{}-{hash}", deployment.metadata.uid))].into();
        let pod = self.admit(Pod { metadata, spec: template.spec.clone(), ..Pod::default() });
        self.objects.create(pod, now);
    }

    /// Creates a pod of the user's own.
    pub fn create_pod(&mut self, pod: Pod, now: Timestamp) -> bool {
        let pod = self.admit(pod);
        self.objects.create(pod, now)
    }

    pub(super) fn step_daemon_sets(&mut self, now: Timestamp, dice: &mut Dice) {
        let sets: Vec<DaemonSet> = self.objects.daemon_sets.values().cloned().collect();
        let nodes: Vec<Node> = self.objects.nodes.values().cloned().collect();
        for set in sets.iter().filter(|set| !set.metadata.is_deleting()) {
            let owned = |pod: &&Pod| {
                pod.metadata.namespace == set.metadata.namespace
                    && pod.metadata.controller().is_some_and(|owner| owner.kind == "DaemonSet" && owner.name == set.metadata.name)
            };
            let served: BTreeSet<String> = self.objects.pods.values().filter(owned).map(|pod| pod.spec.node_name.clone()).collect();
            // A node gets the next one when the last has ended.
            self.replaces_pods |= self.objects.pods.values().filter(owned).any(|pod| pod.metadata.is_deleting());
            for node in nodes.iter().filter(|node| !served.contains(&node.metadata.name)) {
                self.create_daemon(set, node, now, dice);
            }
        }
    }

    fn create_daemon(&mut self, set: &DaemonSet, node: &Node, now: Timestamp, dice: &mut Dice) {
        if node.metadata.is_deleting() || self.lost_at.contains_key(&node.metadata.name) {
            return;
        }
        let template = &set.spec.template;
        let mut metadata = ObjectMeta::namespaced(&set.metadata.namespace, format!("{}-{}", set.metadata.name, dice.suffix(5)));
        metadata.labels.clone_from(&template.metadata.labels);
        metadata.annotations.clone_from(&template.metadata.annotations);
        metadata.owner_references = vec![owner("DaemonSet", &set.metadata.name, &set.metadata.uid)].into();
        let mut pod = Pod { metadata, spec: template.spec.clone(), ..Pod::default() };
        pod.spec.tolerations.extend(daemon_tolerations(pod.spec.host_network));
        let pod = self.admit(pod);
        let taints = node.spec.taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
        if taints.into_iter().any(|taint| !tolerates(&pod.spec.tolerations, taint)) || !super::scheduler::selects(&pod, node) {
            return;
        }
        let mut used = Resources::new();
        for other in self.objects.pods_on(&node.metadata.name).filter(|pod| !pod.is_terminal()) {
            used.add(&effective_requests(other));
        }
        used.add(&effective_requests(&pod));
        if !used.fits(&node.status.allocatable) {
            return;
        }
        let pinned = pinned_to(pod, &node.metadata.name);
        self.bind(pinned, &node.metadata.name, now);
    }

    /// Creates a pod that is already bound, as the DaemonSet controller and the scheduler do together.
    fn bind(&mut self, mut pod: Pod, node: &str, now: Timestamp) {
        node.clone_into(&mut pod.spec.node_name);
        let key = pod.metadata.key();
        self.objects.create(pod, now);
        self.starts.insert(key, now.checked_add(SignedDuration::from_secs(2)).unwrap_or(now));
    }

    /// Ready conditions and taints of Nodes; deletes Nodes of terminated machines.
    pub(super) fn step_nodes(&mut self, now: Timestamp, effects: &mut Vec<ClusterEffect>) {
        let ready: Vec<String> = self.ready_at.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()).collect();
        for name in ready {
            self.ready_at.remove(&name);
            self.objects.change::<Node>(&name, |node| {
                conditions::set(&mut node.status.conditions, conditions::READY, ConditionStatus::True, "KubeletReady", "", now);
                node.spec.taints.retain(|taint| taint.key != NOT_READY);
            });
            effects.push(ClusterEffect::Log(format!("node {name} is ready")));
        }
        let lost: Vec<String> = self.lost_at.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()).collect();
        for name in lost {
            if self.objects.nodes.get(&name).is_none_or(|node| node.metadata.is_deleting()) {
                if !self.objects.nodes.contains_key(&name) {
                    self.lost_at.remove(&name);
                }
                continue;
            }
            // The cloud's node controller deletes Nodes whose instance has ended.
            self.objects.delete::<Node>(&name, now);
        }
        self.taint_cordoned();
        let nodes: HashSet<&str> = self.objects.nodes.keys().map(String::as_str).collect();
        let lost = |pod: &Pod| pod.is_bound() && !nodes.contains(pod.spec.node_name.as_str());
        let lost_pods: Vec<String> = self.objects.pods.iter().filter(|(_, pod)| lost(pod)).map(|(key, _)| key.clone()).collect();
        for key in lost_pods {
            self.forget_pod(&key);
        }
    }

    /// The node controller taints cordoned Nodes, and takes the taint off the others.
    fn taint_cordoned(&mut self) {
        let cordon = Taint::new(labels::UNSCHEDULABLE_TAINT, TaintEffect::NoSchedule);
        let differs = |node: &&Node| node.spec.unschedulable != node.spec.taints.iter().any(|taint| taint.same(&cordon));
        let names: Vec<String> = self.objects.nodes.values().filter(differs).map(|node| node.metadata.name.clone()).collect();
        for name in names {
            self.objects.change::<Node>(&name, |node| {
                node.spec.taints.retain(|taint| !taint.same(&cordon));
                if node.spec.unschedulable {
                    node.spec.taints.push(cordon.clone());
                }
            });
        }
    }

    /// A machine has ended: its kubelet stops reporting.
    pub fn machine_lost(&mut self, instance: &str, now: Timestamp) {
        let of_machine = |node: &&Node| node.spec.provider_id.ends_with(instance);
        let Some(name) = self.objects.nodes.values().find(of_machine).map(|node| node.metadata.name.clone()) else { return };
        self.ready_at.remove(&name);
        self.objects.change::<Node>(&name, |node| {
            conditions::set(&mut node.status.conditions, conditions::READY, ConditionStatus::Unknown, "NodeStatusUnknown", "", now);
            for effect in [TaintEffect::NoSchedule, TaintEffect::NoExecute] {
                let taint = Taint::new("node.kubernetes.io/unreachable", effect);
                if !node.spec.taints.iter().any(|known| known.same(&taint)) {
                    node.spec.taints.push(taint);
                }
            }
        });
        self.lost_at.insert(name.clone(), now.checked_add(SignedDuration::from_secs(20)).unwrap_or(now));
        let keys: Vec<String> = self.objects.pods_on(&name).map(|pod| pod.metadata.key()).collect();
        for key in keys {
            self.starts.remove(&key);
            self.ends.remove(&key);
            self.objects.change::<Pod>(&key, |pod| set_ready(pod, false, now));
        }
    }
}

pub(super) fn set_ready(pod: &mut Pod, ready: bool, now: Timestamp) {
    let status = if ready { "True" } else { "False" };
    pod.status.conditions.retain(|condition| condition.type_ != "Ready");
    pod.status.conditions.push(whittle_api::k8s::PodCondition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        last_transition_time: Some(now),
        ..whittle_api::k8s::PodCondition::default()
    });
}

fn daemon_tolerations(host_network: bool) -> Vec<Toleration> {
    let tolerate = |key: &str, effect: &str| Toleration {
        key: key.to_owned(),
        operator: "Exists".to_owned(),
        effect: effect.to_owned(),
        ..Toleration::default()
    };
    let mut all = vec![
        tolerate(NOT_READY, "NoExecute"),
        tolerate("node.kubernetes.io/unreachable", "NoExecute"),
        tolerate("node.kubernetes.io/disk-pressure", "NoSchedule"),
        tolerate("node.kubernetes.io/memory-pressure", "NoSchedule"),
        tolerate("node.kubernetes.io/pid-pressure", "NoSchedule"),
        tolerate(labels::UNSCHEDULABLE_TAINT, "NoSchedule"),
    ];
    if host_network {
        all.push(tolerate("node.kubernetes.io/network-unavailable", "NoSchedule"));
    }
    all
}

/// The affinity by which the DaemonSet controller pins a pod to its node.
fn pinned_to(mut pod: Pod, node: &str) -> Pod {
    let field = SelectorRequirement { key: "metadata.name".to_owned(), operator: "In".to_owned(), values: vec![node.to_owned()] };
    let affinity = pod.spec.affinity.get_or_insert_with(Affinity::default);
    let required = affinity.node_affinity.get_or_insert_with(NodeAffinity::default).required.get_or_insert_with(NodeSelector::default);
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_fields = vec![field.clone()];
    }
    pod
}
