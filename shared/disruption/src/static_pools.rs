//! Static pools (disruption 16): keeps their number of nodes at `replicas`.

use super::cluster_view::{ClusterView, Machine};
use super::cost::lifetime_cost;
use super::protection::{NODE_PROTECTIONS, protection};
use std::collections::BTreeMap;
use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_api::{conditions, labels};
use whittle_model::disruption::{Gate, Input};
use whittle_model::pods::{is_active, is_daemon_owned};
use whittle_model::requirements::{custom_labels, from_labels, from_requirements};
use whittle_model::scheduling::{ClaimWhy, NewClaim, TypeNames};
use whittle_units::{Price, Quantity, Resources};

/// The changes that one static pool needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticChange {
    pub node_pool: String,
    /// Machines to launch, all alike.
    pub launch: Vec<NewClaim>,
    /// NodeClaims to delete, in this order. Budgets and annotations affect only the order; the drain respects both.
    pub delete: Vec<String>,
    /// More machines are missing than the pool's node limit allows.
    pub at_limit: bool,
    /// The pool is in shadow mode: none of the changes is to be made.
    pub shadow: bool,
}

/// Machines of a pool by state, as Karpenter counts them: each is in one of the fields, and perhaps in `held` besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolCounts {
    /// Neither deleting nor marked for deletion.
    pub(super) active: usize,
    /// To be deleted once their replacements are initialized.
    pub(super) pending_disruption: usize,
    /// Of these, such as wait for a protected pod or node though their replacements are initialized.
    pub(super) held: usize,
    /// Being deleted.
    pub(super) deleting: usize,
    /// Nodes of the pool without a claim of ours, as those of the Karpenter that was here before. They serve, so that none is launched in
    /// their place, and they are not ours to delete: no machine of ours is surplus because of them.
    pub(super) others: usize,
}

/// The machines by the names of their claims.
fn by_claim<'v, 'a>(view: &'v ClusterView<'a>) -> BTreeMap<&'a str, &'v Machine<'a>> {
    let mut machines = BTreeMap::new();
    for machine in &view.machines {
        machines.entry(machine.claim_name()).or_insert(machine);
    }
    machines
}

impl PoolCounts {
    pub(super) fn of(view: &ClusterView<'_>, pool: &str) -> Self {
        let mut counts = Self::default();
        let machines = by_claim(view);
        for claim in view.input.cluster.objects.node_claims.iter().filter(|claim| claim.node_pool() == Some(pool)) {
            let marked = || {
                let machine = machines.get(claim.metadata.name.as_str());
                machine.filter(|machine| machine.state.marked_for_deletion || machine.facts.in_command)
            };
            if claim.metadata.is_deleting() {
                counts.deleting += 1;
            } else if let Some(machine) = marked() {
                counts.pending_disruption += 1;
                counts.held += usize::from(machine.facts.is_held);
            } else {
                counts.active += 1;
            }
        }
        let is_other = |machine: &&Machine<'_>| machine.claim().is_none() && machine.pool() == Some(pool);
        let (deleting, others): (Vec<_>, Vec<_>) = view.machines.iter().filter(is_other).partition(|machine| machine.is_deleting());
        counts.others = others.len();
        counts.deleting += deleting.len();
        counts.deleting += view.input.facts.values().filter(|facts| facts.pool_of_pending_launch.as_deref() == Some(pool)).count();
        counts
    }

    /// How many more machines the pool's node limit allows.
    pub(super) fn available_nodes(self, pool: &NodePool) -> usize {
        let taken = self.active + self.pending_disruption + self.deleting + self.others;
        match pool.spec.limits.0.get("nodes") {
            Some(limit) => usize::try_from(limit.units_floor()).unwrap_or(0).saturating_sub(taken),
            None => usize::MAX,
        }
    }
}

/// The changes that the static pools of a cluster need now, without pools that need none. Empty when the gate is off.
#[must_use]
pub fn static_changes(input: Input<'_>) -> Vec<StaticChange> {
    if input.settings.static_capacity == Gate::Off {
        return Vec::new();
    }
    let view = ClusterView::new(input);
    let pools = view.pools().filter(|pool| pool.is_static() && !pool.metadata.is_deleting());
    let changes = pools.map(|pool| change(&view, pool));
    changes.filter(|change| !change.launch.is_empty() || !change.delete.is_empty() || change.at_limit).collect()
}

fn change(view: &ClusterView<'_>, pool: &NodePool) -> StaticChange {
    let counts = PoolCounts::of(view, &pool.metadata.name);
    let replicas = usize::try_from(pool.spec.replicas.unwrap_or(0)).unwrap_or(0);
    let missing = replicas.saturating_sub(counts.active + counts.pending_disruption + counts.others);
    let ready = conditions::is_true(&pool.status.conditions, conditions::READY);
    let granted = if ready { missing.min(counts.available_nodes(pool)) } else { 0 };
    StaticChange {
        node_pool: pool.metadata.name.clone(),
        launch: vec![claim_from_template(pool); granted],
        delete: select_for_deletion(view, pool, counts.active.saturating_sub(replicas)),
        at_limit: ready && granted < missing,
        shadow: pool.is_shadow(),
    }
}

/// Whether EC2 has assigned the instance ID. A claim that is being launched may have a provisional provider ID.
fn is_launched(claim: &NodeClaim) -> bool {
    !claim.status.provider_id.is_empty() && conditions::is_true(&claim.status.conditions, conditions::LAUNCHED)
}

/// Claims that have not launched, then empty nodes, those that are not initialized before others, then all others: unprotected before
/// protected ones, and those with the lowest cost first.
fn select_for_deletion(view: &ClusterView<'_>, pool: &NodePool, excess: usize) -> Vec<String> {
    if excess == 0 {
        return Vec::new();
    }
    let machines = by_claim(view);
    let mut ranked: Vec<((u8, bool, i128), &str)> = Vec::new();
    for claim in view.input.cluster.objects.node_claims.iter().filter(|claim| claim.node_pool() == Some(&pool.metadata.name)) {
        if claim.metadata.is_deleting() {
            continue;
        }
        let name = claim.metadata.name.as_str();
        match machines.get(name).copied() {
            Some(machine) if machine.state.marked_for_deletion || machine.facts.in_command => {}
            _ if !is_launched(claim) => ranked.push(((0, false, 0), name)),
            Some(machine) => ranked.push((rank(view, machine), name)),
            None => ranked.push(((1, false, 0), name)),
        }
    }
    ranked.sort();
    ranked.into_iter().take(excess).map(|(_, name)| name.to_owned()).collect()
}

fn rank(view: &ClusterView<'_>, machine: &Machine<'_>) -> (u8, bool, i128) {
    let now = view.now();
    let protected_pod = machine.pods.iter().any(|pod| is_active(pod) && protection(pod, now).is_active());
    if machine.pods.iter().all(|pod| is_daemon_owned(pod)) && !protected_pod {
        // One that serves is kept rather than one that may never do so.
        return (1, machine.is_initialized(), 0);
    }
    let protected = protected_pod || NODE_PROTECTIONS.iter().any(|key| machine.annotation(key) == Some("true"));
    let cost = machine.claim().map_or(0, |claim| lifetime_cost(machine.pods.iter().copied(), claim, now));
    (2, protected, cost)
}

/// The claim of a pool's template, for any type that its requirements allow: the launch selects one.
pub(super) fn claim_from_template(pool: &NodePool) -> NewClaim {
    let template = &pool.spec.template;
    let mut all_labels = template.metadata.labels.clone();
    all_labels.insert(labels::NODE_POOL.to_owned(), pool.metadata.name.clone());
    all_labels.insert(labels::EC2_NODE_CLASS.to_owned(), template.spec.node_class_ref.name.clone());
    let mut requirements = from_requirements(&template.spec.requirements);
    requirements.add_all(&from_labels(&all_labels));
    // A machine without the labels that its pool requires would be drifted from the start, and so would its replacement.
    let required = custom_labels(&requirements, |key| labels::WELL_KNOWN.contains(&key));
    let all_labels: BTreeMap<String, String> = required.into_iter().chain(all_labels).collect();
    let mut annotations = template.metadata.annotations.clone();
    for key in [labels::NODE_POOL_HASH, labels::NODE_POOL_HASH_VERSION] {
        annotations.extend(pool.metadata.annotation(key).map(|value| (key.to_owned(), value.to_owned())));
    }
    NewClaim {
        node_pool: pool.metadata.name.clone(),
        instance_types: TypeNames::default(),
        requirements: requirements.to_api(),
        instance_type_min_values: None,
        labels: all_labels,
        annotations,
        taints: template.spec.taints.clone(),
        startup_taints: template.spec.startup_taints.clone(),
        node_class_ref: template.spec.node_class_ref.clone(),
        expire_after: template.spec.expire_after.clone(),
        termination_grace_period: template.spec.termination_grace_period.clone(),
        requests: Resources::from([("pods", Quantity::ZERO)]),
        pods: Vec::new(),
        cheapest_price: Price::ZERO,
        offerings: 0,
        why: ClaimWhy::default(),
    }
}
