//! The answer: an immutable value that leaves its executor no choice.

use super::reason::{ClaimWhy, PoolRejection, Reason};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use whittle_api::duration::{GoDuration, NillableDuration};
use whittle_api::k8s::{Pod, Taint};
use whittle_api::karpenter::{NodeClassReference, Requirement};
use whittle_units::{Price, Resources};

/// A pod, by name. Ordered as `namespace/name` reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl PodRef {
    /// The name of `pod`.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        Self { namespace: pod.metadata.namespace.clone(), name: pod.metadata.name.clone(), uid: pod.metadata.uid.clone() }
    }

    /// `namespace/name`.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Pods that go to a node that exists or to a NodeClaim that is starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The state node's name: the Node's, or the NodeClaim's where it is not registered.
    pub node: String,
    /// Whether the node has initialized; pods on others wait for it.
    pub initialized: bool,
    pub pods: Vec<PodRef>,
}

/// Names of instance types. Claims with the same candidates share one list: a plan has thousands of claims, each with hundreds
/// of types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeNames(Arc<Vec<String>>);

impl Deref for TypeNames {
    type Target = Vec<String>;
    fn deref(&self) -> &Vec<String> {
        &self.0
    }
}

impl DerefMut for TypeNames {
    fn deref_mut(&mut self) -> &mut Vec<String> {
        Arc::make_mut(&mut self.0)
    }
}

impl FromIterator<String> for TypeNames {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        Self(Arc::new(names.into_iter().collect()))
    }
}

impl<'n> IntoIterator for &'n TypeNames {
    type Item = &'n String;
    type IntoIter = std::slice::Iter<'n, String>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<const N: usize> PartialEq<[&str; N]> for TypeNames {
    fn eq(&self, other: &[&str; N]) -> bool {
        self.0[..] == other[..]
    }
}

/// A NodeClaim to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewClaim {
    pub node_pool: String,
    /// The instance types it may become, cheapest first under its requirements, then by name; at most 600. Claims with the same
    /// candidates share one list.
    pub instance_types: TypeNames,
    /// As the NodeClaim will state them, by key, but without the instance types (see [`NewClaim::requirements_with_types`]).
    pub requirements: Vec<Requirement>,
    /// `minValues` on the instance type label, if the NodePool has one.
    pub instance_type_min_values: Option<u32>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub startup_taints: Vec<Taint>,
    pub node_class_ref: NodeClassReference,
    pub expire_after: NillableDuration,
    pub termination_grace_period: Option<GoDuration>,
    /// Its pods and the daemons that will run there, with a `pods` count that includes the daemons.
    pub requests: Resources,
    /// By name.
    pub pods: Vec<PodRef>,
    /// The price of the cheapest available offering among its types under its requirements.
    pub cheapest_price: Price,
    /// How many available offerings it can be launched from.
    pub offerings: usize,
    /// Why this pool, type, zone and capacity type.
    pub why: ClaimWhy,
}

impl NewClaim {
    /// The requirements as a NodeClaim can have them, with the instance types inserted in key order.
    #[must_use]
    pub fn requirements_with_types(&self) -> Vec<Requirement> {
        if self.instance_types.is_empty() {
            return self.requirements.clone(); // a static pool's: the launch takes any type that these allow
        }
        let mut types = Requirement::is_in(whittle_api::labels::INSTANCE_TYPE, self.instance_types.iter().cloned());
        types.values.sort();
        types.min_values = self.instance_type_min_values;
        let mut out = self.requirements.clone();
        // The API has no 0, to which `BestEffort` lowers it for a label that no type has.
        out.iter_mut().for_each(|one| one.min_values = one.min_values.filter(|least| *least > 0));
        let at = out.partition_point(|r| r.key < types.key);
        out.insert(at, types);
        out
    }
}

/// A pod that is not placed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub pod: PodRef,
    pub reason: Reason,
}

/// Where a solve that exhausted its budget continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Pods that were considered in this round already; they are skipped until all others have been considered.
    pub considered: std::collections::BTreeSet<String>,
}

/// The hourly cost of machines on top of their prices (ADR 0030).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineCosts {
    /// The sum over all new machines.
    pub cost: Price,
    /// No plan for the placed pods can cost less, prices and these costs together.
    pub lower_bound: Price,
}

/// A plan that costs less with its machines, and that the objective passed over since a claim of it has too few types (ADR 0030).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NarrowerPlan {
    pub machines: usize,
    /// The sum of the prices of its machines.
    pub price: Price,
    /// The sum of their other costs.
    pub machine_cost: Price,
    /// The fewest types of a claim.
    pub types: usize,
}

impl NarrowerPlan {
    /// What its machines cost, their prices and other costs together.
    #[must_use]
    pub fn with_machines(&self) -> Price {
        self.price + self.machine_cost
    }
}

/// Placements, NodeClaims to create, and the reasons for the pods left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// By NodePool, then by first pod.
    pub claims: Vec<NewClaim>,
    /// By node name; only nodes that get a pod.
    pub placements: Vec<Placement>,
    /// By pod.
    pub left_out: Vec<LeftOut>,
    /// In a simulation: pods that would start away from the pods that their affinity requires, which only the order of binding
    /// permits (ADR 0019).
    pub apart: Vec<PodRef>,
    /// NodePools whose own requirements leave no instance type, and why, in trial order.
    pub unusable_pools: Vec<PoolRejection>,
    /// How many pods were to be placed.
    pub pods: usize,
    /// No plan that places the same pods on new machines can cost less, if known.
    pub lower_bound: Option<Price>,
    /// The other costs of its machines, under the objective `balanced`.
    pub machine_costs: Option<MachineCosts>,
    /// The cheapest plan with its machines that was passed over for the types of its claims, under the objective `balanced`.
    pub narrower: Option<NarrowerPlan>,
    /// The name of the packing that won.
    pub packing: &'static str,
    /// Work units spent, which do not depend on the speed of the machine that solves.
    pub work: u64,
    /// Set when the budget ran out before every pod had been considered.
    pub cursor: Option<Cursor>,
}

impl Plan {
    /// How many pods are placed.
    #[must_use]
    pub fn scheduled(&self) -> usize {
        self.claims.iter().map(|c| c.pods.len()).sum::<usize>() + self.placements.iter().map(|p| p.pods.len()).sum::<usize>()
    }

    /// The sum of the claims' cheapest prices.
    #[must_use]
    pub fn price(&self) -> Price {
        self.claims.iter().map(|c| c.cheapest_price).sum()
    }
}
