//! The question in the solver's own terms: everything interned, equal pods joined, counts taken.

use super::bits::Bits;
use super::catalog::{Catalog, Dims, Reservations, View};
use super::groups::{CountedMachine, Groups, TopologyMembership};
use super::hash::Map;
use super::intern::{Key, Names, SetId, Sets, Val, Vals};
use super::meter::{self, Meter};
use super::pod::{Class, ClassId, Entry, TaintsId, TolerationId};
use super::pools::{Pool, TopologyDomains, UnusablePool};
use super::selectors::SelectingGroups;
use super::state::MachineNow;
use super::topology::{Counts, Group};
use super::{Input, LeftOut, Options, PodRef, Reason};
use crate::pods::Volumes;
use crate::requirements::{Operator, Requirements};
use crate::state::StateNode;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use whittle_api::k8s::{Pod, Taint, Toleration};
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

/// Tolerations and taints, each stored once.
#[derive(Debug, Default)]
pub(crate) struct TaintTable {
    pub(crate) tolerations: Vec<Vec<Toleration>>,
    toleration_of: Map<Vec<Toleration>, TolerationId>,
    pub(crate) taints: Vec<Vec<Taint>>,
    taints_of: Map<Vec<Taint>, TaintsId>,
}

impl TaintTable {
    pub(crate) fn tolerations(&mut self, list: &[Toleration]) -> TolerationId {
        if let Some(id) = self.toleration_of.get(list) {
            return *id;
        }
        let id = TolerationId(u32::try_from(self.tolerations.len()).expect("fewer than 2^32 lists of tolerations"));
        self.tolerations.push(list.to_vec());
        self.toleration_of.insert(list.to_vec(), id);
        id
    }

    pub(crate) fn taints(&mut self, list: &[Taint]) -> TaintsId {
        if let Some(id) = self.taints_of.get(list) {
            return *id;
        }
        let id = TaintsId(u32::try_from(self.taints.len()).expect("fewer than 2^32 lists of taints"));
        self.taints.push(list.to_vec());
        self.taints_of.insert(list.to_vec(), id);
        id
    }

    pub(crate) fn tolerated(&self, tolerations: TolerationId, taints: TaintsId) -> bool {
        let tolerations = &self.tolerations[tolerations.0 as usize];
        self.taints[taints.0 as usize].iter().all(|t| crate::pods::tolerates(tolerations, t))
    }
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
    /// By tolerations, then taints: whether all are tolerated.
    tolerated: Vec<Vec<bool>>,
    views: Map<(usize, SetId), Rc<View>>,
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
    fn of(names: &mut Names) -> Self {
        Self {
            capacity_type: names.key(labels::CAPACITY_TYPE),
            reservation: names.key(labels::RESERVATION_ID),
            reserved: names.val(labels::CAPACITY_RESERVED),
        }
    }
}

/// What is collected before the pods' classes are known.
pub(crate) struct ProblemBuilder<'a> {
    pub(crate) input: &'a Input<'a>,
    pub(crate) options: &'a Options,
    pub(crate) names: Names,
    pub(crate) sets: Sets,
    pub(crate) taint_table: TaintTable,
    pub(crate) groups: Groups,
    pub(crate) well_known: BTreeSet<String>,
    pub(crate) volumes: Volumes<'a>,
    /// Some NodePool has a `PreferNoSchedule` taint.
    pub(crate) soft_taints: bool,
    /// Some NodePool has taints at all.
    pub(crate) pool_taints: bool,
    /// Which machines are imagined gone is not decided yet: any may be.
    pub(crate) reusable: bool,
}

impl ProblemBuilder<'_> {
    /// Splits off what is asked of the host name and interns the rest.
    pub(crate) fn split(&mut self, reqs: &Requirements) -> (SetId, Option<Vals>) {
        let mut rest = reqs.clone();
        let host = rest.remove(labels::HOSTNAME).map(|h| self.names.vals(&h));
        let set = self.names.set(&rest);
        (self.sets.id(set), host)
    }

    pub(crate) fn well_known(&self, key: &str) -> bool {
        self.well_known.contains(key)
    }
}

/// A pod of the pass, before it is put into a class.
pub(crate) struct Candidate<'a> {
    pub(crate) pod: &'a Pod,
    /// Comes from a simulated candidate and is not pending.
    pub(crate) avoids_spared: bool,
    /// The machine that it leaves only in a simulation; nothing for pods that are to be placed anyway.
    pub(crate) simulated_from: Option<usize>,
}

/// A problem that can be narrowed to many questions about the same moment.
pub(crate) struct ReusableProblem<'a> {
    /// With all pods that may have to move in its queue, and counted where they are.
    pub(crate) problem: Problem<'a>,
    /// By position of a pod: the machine that it leaves only in a simulation.
    pub(crate) simulated_from: Vec<Option<usize>>,
    /// Pods that are refused, by the machine that they leave only in a simulation.
    pub(crate) refused: Vec<(Option<usize>, LeftOut)>,
    pub(crate) membership: TopologyMembership,
}

/// Builds the problem of `input`.
pub(crate) fn build<'a>(input: &'a Input<'a>, options: &'a Options) -> Problem<'a> {
    assemble(input, options, false).problem
}

/// Builds the problem of `input` with every machine in place and all pods of machines in the queue, to be narrowed.
pub(crate) fn build_reusable<'a>(input: &'a Input<'a>, options: &'a Options) -> ReusableProblem<'a> {
    assemble(input, options, true)
}

fn assemble<'a>(input: &'a Input<'a>, options: &'a Options, reusable: bool) -> ReusableProblem<'a> {
    let pools = super::pools::ordered(&input.objects.node_pools);
    let mut builder = builder(input, options, &pools, reusable);
    let meter = Meter::default();
    let (candidates, refused) = super::pod_classes::pods_of(&builder);
    let in_pass: BTreeSet<*const Pod> = candidates.iter().map(|c| std::ptr::from_ref(c.pod)).collect();
    let mut classes = super::pod_classes::classes(&mut builder, &candidates);
    let daemons = crate::pods::daemon_pods(&input.objects.daemon_sets, &input.objects.pods);
    let dims = super::pod_classes::dims(&classes.list, &daemons, input);
    classes.measure(&dims);
    // Nobody waits, in most runs: then it does not matter who is where.
    let idle = candidates.is_empty() && !reusable;
    let counted = if idle { Vec::new() } else { super::machines::counted(&mut builder, &in_pass) };
    let groups = builder.groups.finish(&builder.names, &meter);
    let selecting = SelectingGroups::of(&groups, &builder.groups.sequence(&builder.names));
    classes.join(&groups, &selecting);
    classes.merge();
    let mut reservations = Reservations::default();
    let mut catalog_set = super::pools::CatalogSet::default();
    let pools = super::pools::build(&mut builder, &pools, &dims, &daemons, &mut reservations, &mut catalog_set);
    let any_pool = pools.any;
    let topology_domains = TopologyDomains::of(&pools, &catalog_set.catalogs, &groups, &builder);
    let membership = TopologyMembership::of(
        &groups,
        &counted,
        &builder.sets,
        |id| builder.groups.reach(id),
        |key, reach| topology_domains.domains(key, reach, &builder.taint_table),
        |filter, machine| machine_passes(&builder, filter, machine),
    );
    let counts = membership.count(&groups, &counted, &selecting, &builder.sets, &builder.names, &meter);
    let relevant = super::machines::relevant_keys(&builder, &classes.list, &groups);
    let machines = if idle { Vec::new() } else { super::machines::build(&mut builder, &dims, &daemons, &relevant) };
    let key = Keys::of(&mut builder.names);
    let ProblemBuilder { well_known, names, .. } = &mut builder;
    let well_known: BTreeSet<Key> = well_known.iter().map(|key| names.key(key)).collect();
    let negated_custom_keys = negated_custom_keys(&classes.list, &builder.sets, &well_known);
    let problem = Problem {
        tolerated: tolerations_by_taints(&builder.taint_table),
        queue: classes.queue(&candidates, options),
        pods: candidates.iter().map(|c| c.pod).collect(),
        class_of: classes.of,
        classes: classes.list.into_iter().map(Rc::new).collect(),
        names: builder.names,
        sets: builder.sets,
        dims,
        taint_table: builder.taint_table,
        catalogs: catalog_set.catalogs,
        reservations,
        pools: pools.list,
        unusable_pools: pools.unusable,
        any_pool,
        machines,
        groups,
        counts,
        first_new_host: input.nodes.len(),
        well_known,
        negated_custom_keys,
        key,
        refused: refused.iter().map(|(_, left)| left.clone()).collect(),
        state_nodes: input.nodes,
        excluded: Bits::default(),
        views: Map::default(),
        meter,
    };
    ReusableProblem { problem, simulated_from: candidates.iter().map(|c| c.simulated_from).collect(), refused, membership }
}

fn builder<'a>(
    input: &'a Input<'a>,
    options: &'a Options,
    pools: &[&whittle_api::karpenter::NodePool],
    reusable: bool,
) -> ProblemBuilder<'a> {
    let base = pools.iter().find_map(|pool| input.catalog.get(&pool.metadata.name).filter(|types| !types.is_empty()));
    ProblemBuilder {
        input,
        options,
        // Numbers that the first list of types has already are not given anew.
        names: base.map_or_else(Names::default, |types| Names::based_on(&types.index().name_table)),
        sets: Sets::default(),
        taint_table: TaintTable::default(),
        groups: Groups::default(),
        well_known: super::pools::well_known(input),
        volumes: Volumes::of(input.objects),
        soft_taints: pools
            .iter()
            .any(|p| p.spec.template.spec.taints.iter().any(|t| t.effect == whittle_api::k8s::TaintEffect::PreferNoSchedule)),
        pool_taints: pools.iter().any(|p| !p.spec.template.spec.taints.is_empty()),
        reusable,
    }
}

/// The custom keys that pods ask to be anything but some values.
fn negated_custom_keys(classes: &[Class], sets: &Sets, well_known: &BTreeSet<Key>) -> BTreeSet<Key> {
    let relaxations = classes.iter().flat_map(|class| class.relaxations.iter().map(|relaxation| relaxation.full));
    let places = classes.iter().flat_map(|class| class.places.iter().map(|place| place.set));
    let asked: BTreeSet<SetId> = relaxations.chain(places).collect();
    let is_negated = |(key, wanted): &(&Key, &Vals)| wanted.operator() == Operator::NotIn && !well_known.contains(key);
    asked.into_iter().flat_map(|set| sets.get(set).iter().filter(is_negated).map(|(key, _)| *key)).collect()
}

/// Which tolerations bear which taints, for all pairs that occur.
fn tolerations_by_taints(taint_table: &TaintTable) -> Vec<Vec<bool>> {
    (0..taint_table.tolerations.len())
        .map(|t| (0..taint_table.taints.len()).map(|n| taint_table.tolerated(TolerationId(t as u32), TaintsId(n as u32))).collect())
        .collect()
}

impl Problem<'_> {
    pub(crate) fn tolerated(&self, tolerations: TolerationId, taints: TaintsId) -> bool {
        self.tolerated[tolerations.0 as usize][taints.0 as usize]
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

/// Whether a machine that exists counts for a spread constraint.
fn machine_passes(builder: &ProblemBuilder<'_>, filter: &super::topology::Filter, machine: &CountedMachine) -> bool {
    let by_labels = filter.any_of.is_empty()
        || machine.labels.is_some_and(|l| {
            let set = builder.sets.get(l);
            filter.any_of.iter().any(|asked| set.compatible(builder.sets.get(*asked), |_| false).is_ok())
        });
    by_labels && filter.tolerations.is_none_or(|t| builder.taint_table.tolerated(t, machine.taints))
}

/// A pod that is refused before solving.
pub(crate) fn refuse(pod: &Pod, reason: Reason) -> LeftOut {
    LeftOut { pod: PodRef::of(pod), reason }
}
