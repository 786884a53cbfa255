//! Which nodes may be disrupted (disruption 3), and what a method needs to know about each.

use super::cluster_view::{ClusterView, Machine};
use super::cost::{Cost, reschedule_cost};
use super::protection::{NODE_PROTECTIONS, Protection, protection};
use super::verdict::Blocker;
use std::cmp::Ordering;
use whittle_api::catalog::InstanceType;
use whittle_api::k8s::Pod;
use whittle_api::karpenter::{Ec2NodeClass, NodePool};
use whittle_api::{conditions, labels};
use whittle_model::disruption::{Method, Removal};
use whittle_model::pods::{is_active, is_reschedulable};
use whittle_model::scheduling::Unready;
use whittle_units::Price;

/// A node that a method may disrupt.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) machine: &'a Machine<'a>,
    pub(crate) pool: &'a NodePool,
    /// `None` when the pool's catalog does not list it.
    pub(crate) instance_type: Option<&'a InstanceType>,
    /// Reschedulable pods of the node.
    pub(crate) pods: Vec<&'a Pod>,
    /// In the pool's catalog; zero when unknown. Consolidation compares with it alone.
    pub(crate) price: Price,
    pub(crate) cost: Cost,
    /// Set when a pod must not be disrupted; only methods that override pods may remove the node then.
    pub(crate) pod_blocker: Option<Blocker>,
    /// Set while the pool's node class is not ready, so that no types of the pool are known and nothing is launched for it.
    pub(crate) pool_blocker: Option<Blocker>,
}

impl<'a> Candidate<'a> {
    pub(crate) fn name(&self) -> &'a str {
        self.machine.name()
    }
    pub(crate) fn pool_name(&self) -> &'a str {
        &self.pool.metadata.name
    }
    pub(crate) fn capacity_type(&self) -> &'a str {
        self.machine.label(labels::CAPACITY_TYPE).unwrap_or_default()
    }
    /// No reschedulable pod has a positive eviction cost.
    pub(crate) fn is_empty(&self) -> bool {
        self.cost <= Cost::ONE
    }
    /// Whether a method may remove the node despite its pods, and despite a node class that is not ready: an empty node needs no
    /// replacement, and that of a drifted one is never of its own pool then.
    pub(crate) fn may_be_disrupted_by(&self, method: Method) -> bool {
        let grace = self.machine.claim().is_some_and(|claim| claim.spec.termination_grace_period.is_some());
        let despite_pods = self.pod_blocker.is_none() || method.overrides_pod_blockers() && grace;
        let despite_class = self.pool_blocker.is_none()
            || match method {
                Method::Emptiness => self.is_empty(),
                Method::Drift => true,
                Method::StaticDrift | Method::MultiNode | Method::SingleNode => false,
            };
        despite_pods && despite_class
    }
    /// Why the node is kept unless a method overrides it. That the node class is not ready keeps no empty node.
    pub(crate) fn blocker(&self) -> Option<&Blocker> {
        self.pool_blocker.as_ref().filter(|_| !self.is_empty()).or(self.pod_blocker.as_ref())
    }
    /// What is not paid any more once the node is gone: its price in the catalog, or that of its launch.
    pub(crate) fn paid(&self) -> Price {
        if self.price == Price::ZERO { self.machine.facts.launch_price } else { self.price }
    }
    /// The node as a command lists it.
    pub(crate) fn removal(&self) -> Removal {
        let label = |key| self.machine.label(key).unwrap_or_default().to_owned();
        let mut pods: Vec<String> = self.pods.iter().map(|pod| pod.metadata.key()).collect();
        pods.sort();
        Removal {
            node: self.name().to_owned(),
            node_claim: self.machine.claim_name().to_owned(),
            provider_id: self.machine.claim().map(|claim| claim.status.provider_id.clone()).unwrap_or_default(),
            node_pool: self.pool_name().to_owned(),
            instance_type: label(labels::INSTANCE_TYPE),
            capacity_type: label(labels::CAPACITY_TYPE),
            zone: label(labels::ZONE),
            price: self.paid(),
            pods,
        }
    }
    /// Highest price per disruption cost first, ties broken by name.
    pub(crate) fn by_savings_ratio(&self, other: &Self) -> Ordering {
        let ratio = |candidate: &Self, cost: Cost| i128::from(candidate.price.nanos()) * i128::from(cost.raw());
        ratio(other, self.cost).cmp(&ratio(self, other.cost)).then_with(|| self.name().cmp(other.name()))
    }
}

/// Applies the checks of disruption 3 in order; the first that fails is returned.
pub(crate) fn candidate<'a>(view: &ClusterView<'a>, machine: &'a Machine<'a>) -> Result<Candidate<'a>, Blocker> {
    let pool = node_checks(view, machine)?;
    let pool_blocker = match pool_blocker(view, pool) {
        Some(blocker) if pool.is_static() || !is_class_unready(view, pool) => return Err(blocker),
        found => found,
    };
    let instance_type = machine.label(labels::INSTANCE_TYPE).and_then(|name| view.instance_type(&pool.metadata.name, name));
    let pods: Vec<&Pod> = machine.pods.iter().copied().filter(|pod| is_reschedulable(pod)).collect();
    let cost = reschedule_cost(pods.iter().copied());
    let price = view.price(machine);
    Ok(Candidate { machine, pool, instance_type, pods, price, cost, pod_blocker: pod_blocker(view, machine), pool_blocker })
}

fn node_checks<'a>(view: &ClusterView<'a>, machine: &Machine<'a>) -> Result<&'a NodePool, Blocker> {
    if machine.facts.in_command {
        return Err(Blocker::InCommand);
    }
    if !machine.is_managed() {
        return Err(Blocker::NotManaged);
    }
    if let Some(object) = view.unreadable.as_ref().or(machine.state.unreadable.as_ref()) {
        return Err(Blocker::Unreadable(object.clone()));
    }
    if machine.state.node.is_none() {
        return Err(Blocker::NoNode);
    }
    if view.is_ambiguous(machine) {
        return Err(Blocker::DuplicateProviderId(machine.claim().map(|claim| claim.status.provider_id.clone()).unwrap_or_default()));
    }
    if !machine.is_initialized() {
        return Err(Blocker::NotInitialized);
    }
    if machine.is_deleting() {
        return Err(Blocker::Deleting);
    }
    if let Some(why) = &machine.facts.taint_refused {
        return Err(Blocker::TaintRefused(why.clone()));
    }
    let shifted = |key: &str| machine.label(key).filter(|zone| view.input.settings.shifted_zones.contains(*zone));
    if let Some(zone) = shifted(labels::ZONE).or_else(|| shifted(labels::ZONE_ID)) {
        return Err(Blocker::ZoneShifted(zone.to_owned()));
    }
    if let Some(until) = machine.nominated_until(view.now()) {
        return Err(Blocker::Nominated { until });
    }
    for key in NODE_PROTECTIONS {
        if machine.annotation(key) == Some("true") {
            return Err(Blocker::NodeAnnotation(key));
        }
    }
    let pool = machine.pool().ok_or(Blocker::NoNodePoolLabel)?;
    view.pool(pool).ok_or_else(|| Blocker::NodePoolUnknown(pool.to_owned()))
}

/// Set if the pool has no instance types.
fn pool_blocker(view: &ClusterView<'_>, pool: &NodePool) -> Option<Blocker> {
    if view.has_types(&pool.metadata.name) {
        return None;
    }
    let why = Unready::of(pool, view.input.cluster.objects).filter(|unready| matches!(unready, Unready::Condition { .. }));
    Some(Blocker::NodePoolEmpty { pool: pool.metadata.name.clone(), why: why.map(|unready| unready.to_string()) })
}

/// Whether the pool's node class is there and not ready. Karpenter asks for types whether a class is ready or not, and only lacks them
/// without subnets; a class that is being deleted is none.
fn is_class_unready(view: &ClusterView<'_>, pool: &NodePool) -> bool {
    let is_unready = |class: &Ec2NodeClass| !conditions::is_true(&class.status.conditions, conditions::READY);
    let has_subnets = |class: &&Ec2NodeClass| !class.metadata.is_deleting() && !class.status.subnets.is_empty();
    pool.class_in(&view.input.cluster.objects.node_classes).filter(has_subnets).is_some_and(is_unready)
}

/// The first pod that must not be disrupted: by its annotation, or else by a PodDisruptionBudget.
fn pod_blocker(view: &ClusterView<'_>, machine: &Machine<'_>) -> Option<Blocker> {
    for pod in machine.pods.iter().filter(|pod| is_active(pod)) {
        let protection = protection(pod, view.now());
        if protection.is_active() {
            let until = if let Protection::Until(until) = protection { until } else { None };
            return Some(Blocker::PodAnnotation { pod: pod.metadata.key(), key: protection.key(), until });
        }
    }
    machine.pods.iter().find_map(|pod| view.pdbs.block(pod, view.now())).map(Blocker::Pdb)
}
