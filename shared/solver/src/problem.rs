//! What a solve works on: everything interned, equal pods joined, counts taken.

use super::bits::Bits;
use super::catalog::{Catalog, Dims, Reservations, View};
use super::few_sizes::Division;
use super::hash::Map;
use super::ids::{
    CatalogId, ClaimId, ClassId, DimId, GroupId, HostId, Id as _, IdVec, Key, MachineId, PodId, PoolId, SetId, TaintsId, TolerationId,
};
use super::intern::{LabelsOf, Names, Sets, Val};
use super::meter::{self, Meter};
use super::pod::{Class, Entry};
use super::pools::{Pool, UnusablePool};
use super::taints::{TaintTable, ToleranceTable};
use super::topology::{Counts, Group};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use whittle_api::k8s::Pod;
use whittle_api::{ClusterObjects, labels};
use whittle_model::pods::HostPort;
use whittle_model::scheduling::LeftOut;
use whittle_model::state::StateNode;

/// An existing machine that accepts pods.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) host: HostId,
    pub(crate) hostname: Val,
    pub(crate) taints: TaintsId,
    /// Before anything is placed on it.
    pub(crate) start: MachineNow,
    pub(crate) attach_limits: BTreeMap<String, usize>,
    /// Drivers that it lacks and that some pod misses.
    pub(crate) lacks_drivers: BTreeSet<String>,
    /// What its claim leaves open of the labels that it lacks, while it is still to be launched.
    pub(crate) open: Option<SetId>,
    /// In a simulation: accepts only pods that are pending anyway.
    pub(crate) spared: bool,
}

/// The current state of an existing machine, with the pods placed on it.
#[derive(Clone, Debug)]
pub(crate) struct MachineNow {
    pub(crate) remaining: IdVec<DimId, i64>,
    pub(crate) set: SetId,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) volumes: BTreeMap<String, BTreeSet<String>>,
    pub(crate) pods: Vec<PodId>,
}

/// The problem of one solve.
pub(crate) struct Problem<'a> {
    pub(crate) names: Names,
    pub(crate) sets: Sets,
    pub(crate) dims: Dims,
    pub(crate) taint_table: TaintTable,
    pub(crate) catalogs: IdVec<CatalogId, Catalog>,
    pub(crate) reservations: Reservations,
    /// In trial order; only those with a usable type.
    pub(crate) pools: IdVec<PoolId, Pool<'a>>,
    /// NodePools without a usable type.
    pub(crate) unusable_pools: Vec<UnusablePool<'a>>,
    pub(crate) objects: &'a ClusterObjects,
    /// Whether there are dynamic NodePools that are ready, usable or not.
    pub(crate) any_pool: bool,
    pub(crate) machines: IdVec<MachineId, Machine>,
    /// By existing machine: what its claim requires, while no Node has joined.
    pub(crate) open: IdVec<HostId, Option<SetId>>,
    pub(crate) classes: IdVec<ClassId, Rc<Class>>,
    /// In queue order.
    pub(crate) queue: Vec<Entry>,
    pub(crate) pods: IdVec<PodId, &'a Pod>,
    /// By pod: its class.
    pub(crate) class_of: IdVec<PodId, ClassId>,
    pub(crate) groups: IdVec<GroupId, Group>,
    pub(crate) counts: IdVec<GroupId, Counts>,
    pub(crate) well_known: BTreeSet<Key>,
    /// Keys that types do not define and on which some pod has a `NotIn` requirement: its claim gets such a label, so that pods
    /// that require the label may join later.
    pub(crate) negated_custom_keys: BTreeSet<Key>,
    pub(crate) key: Keys,
    /// Pods that were rejected before solving.
    pub(crate) refused: Vec<LeftOut>,
    pub(crate) state_nodes: &'a [StateNode],
    /// The machines that the current question removes.
    pub(crate) excluded: Bits<MachineId>,
    pub(crate) tolerance: ToleranceTable,
    pub(crate) views: Map<(CatalogId, SetId), Rc<View>>,
    /// What was probably meant by values that no type has, so that no value is compared with all others twice.
    pub(crate) meant: Map<Asked, Rc<[String]>>,
    /// For explanations: pods without a place that later passes take, since their affinity selects pods which get one sooner; `None` if
    /// that was not looked for.
    pub(crate) followers: Option<Vec<PodId>>,
    /// How pods are divided among machines.
    pub(crate) divisions: Map<PodsBySize, Option<Rc<Division>>>,
    /// How many steps it took to find these.
    pub(crate) division_steps: u64,
    /// The work done on it.
    pub(crate) meter: Meter,
}

/// Pods for machines with equal requirements: what those of each size request, how many may share a machine, and how many there are.
pub(crate) type PodsBySize = (PoolId, SetId, Vec<(Vec<i64>, usize, usize)>);

/// A value that a pod asks of a NodePool, or one of a NodePool itself.
pub(crate) type Asked = (CatalogId, Option<PoolId>, Key, Val);

/// Keys and values that the solver itself uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    pub(crate) capacity_type: Key,
    pub(crate) reservation: Key,
    pub(crate) reserved: Val,
}

impl Keys {
    pub(crate) fn of(names: &mut Names) -> Self {
        Self {
            capacity_type: names.key(labels::CAPACITY_TYPE),
            reservation: names.key(labels::RESERVATION_ID),
            reserved: names.val(labels::CAPACITY_RESERVED),
        }
    }
}

impl<'a> Problem<'a> {
    pub(crate) fn tolerated(&self, tolerations: TolerationId, taints: TaintsId) -> bool {
        self.tolerance.tolerated(tolerations, taints)
    }

    /// The node that an existing machine is.
    pub(crate) fn node(&self, machine: MachineId) -> &'a StateNode {
        &self.state_nodes[self.machines[machine].host.position()]
    }

    /// What topology counts a claim as.
    pub(crate) fn host_of_claim(&self, claim: ClaimId) -> HostId {
        HostId::at(self.state_nodes.len() + claim.position())
    }

    /// `offered` narrowed by `required`; on a new node, instance types define well-known keys.
    pub(crate) fn merge(&mut self, offered: SetId, required: SetId, labels_of: LabelsOf) -> Option<SetId> {
        let well_known = &self.well_known;
        self.sets.merge(offered, required, labels_of, |k| well_known.contains(k))
    }

    /// How many types a claim of the NodePool with the offerings of `view` should keep.
    pub(crate) fn types_to_keep(&self, pool: PoolId, view: &View) -> usize {
        let pool = &self.pools[pool];
        self.catalogs[pool.catalog].types_to_keep(view, pool.type_count)
    }

    /// What a requirement set leaves of a catalog.
    pub(crate) fn view(&mut self, catalog: CatalogId, set: SetId) -> Rc<View> {
        if let Some(view) = self.views.get(&(catalog, set)) {
            return Rc::clone(view);
        }
        let catalog_of = &self.catalogs[catalog];
        self.meter.spend(meter::NARROW + catalog_of.len() * (catalog_of.kinds.len() + self.sets.get(set).iter().count()) / meter::ENTRIES);
        let well_known = &self.well_known;
        let view = Rc::new(self.catalogs[catalog].view(self.sets.get(set), |k| well_known.contains(k)));
        self.views.insert((catalog, set), Rc::clone(&view));
        view
    }
}
