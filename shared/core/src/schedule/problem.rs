//! The question in the solver's own terms: everything interned, equal pods joined, counts taken.

use super::bits::Bits;
use super::catalog::{Catalog, Dims, Reservations, View};
use super::hash::Map;
use super::ids::{ClassId, TaintsId, TolerationId};
use super::intern::{Key, Names, SetId, Sets, Val};
use super::meter::{self, Meter};
use super::plan::LeftOut;
use super::pod::{Class, Entry};
use super::pools::{Pool, UnusablePool};
use super::taints::{TaintTable, ToleranceTable};
use super::topology::{Counts, Group};
use crate::pods::HostPort;
use crate::state::StateNode;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use whittle_api::k8s::Pod;
use whittle_api::labels;

/// A machine that takes pods.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// Position in the input, which is also its number as a host.
    pub(crate) host: usize,
    pub(crate) hostname: Val,
    pub(crate) taints: TaintsId,
    /// Before anything is placed on it.
    pub(crate) start: MachineNow,
    pub(crate) attach_limits: BTreeMap<String, usize>,
    /// In a simulation: takes only pods that are pending anyway.
    pub(crate) spared: bool,
}

/// A machine that exists, with what has been placed on it.
#[derive(Clone, Debug)]
pub(crate) struct MachineNow {
    pub(crate) remaining: Vec<i64>,
    pub(crate) set: SetId,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) volumes: BTreeMap<String, BTreeSet<String>>,
    /// Positions in the list of pods.
    pub(crate) pods: Vec<u32>,
}

/// A solve's question.
pub(crate) struct Problem<'a> {
    pub(crate) names: Names,
    pub(crate) sets: Sets,
    pub(crate) dims: Dims,
    pub(crate) taint_table: TaintTable,
    pub(crate) catalogs: Vec<Catalog>,
    pub(crate) reservations: Reservations,
    /// In trial order; only those with a usable type.
    pub(crate) pools: Vec<Pool<'a>>,
    /// Those that nothing can be bought for.
    pub(crate) unusable_pools: Vec<UnusablePool<'a>>,
    /// Dynamic NodePools were there, usable or not.
    pub(crate) any_pool: bool,
    pub(crate) machines: Vec<Machine>,
    pub(crate) classes: Vec<Rc<Class>>,
    /// In queue order.
    pub(crate) queue: Vec<Entry>,
    pub(crate) pods: Vec<&'a Pod>,
    /// By pod: its class.
    pub(crate) class_of: Vec<ClassId>,
    pub(crate) groups: Vec<Group>,
    pub(crate) counts: Vec<Counts>,
    /// Numbers of hosts start here for new machines.
    pub(crate) first_new_host: usize,
    pub(crate) well_known: BTreeSet<Key>,
    /// Keys that types do not define and of which some pod wants any value but some: with it a claim gets such a label, and
    /// others that ask for it may join then.
    pub(crate) negated_custom_keys: BTreeSet<Key>,
    pub(crate) key: Keys,
    /// Pods that were refused before solving.
    pub(crate) refused: Vec<LeftOut>,
    pub(crate) state_nodes: &'a [StateNode],
    /// Positions in `machines` of those that are imagined gone after all.
    pub(crate) excluded: Bits,
    pub(crate) tolerance: ToleranceTable,
    pub(crate) views: Map<(usize, SetId), Rc<View>>,
    /// The work done on it.
    pub(crate) meter: Meter,
}

/// Keys that the solver itself looks at.
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

impl Problem<'_> {
    pub(crate) fn tolerated(&self, tolerations: TolerationId, taints: TaintsId) -> bool {
        self.tolerance.tolerated(tolerations, taints)
    }

    /// `offered` narrowed by `asked`; `for_new_node` where instance types may define well-known keys later.
    pub(crate) fn merge(&mut self, offered: SetId, asked: SetId, for_new_node: bool) -> Option<SetId> {
        let well_known = &self.well_known;
        self.sets.merge(offered, asked, for_new_node, |k| well_known.contains(k))
    }

    /// What `set` leaves of a catalog.
    pub(crate) fn view(&mut self, catalog: usize, set: SetId) -> Rc<View> {
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
