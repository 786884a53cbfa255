//! Assembles a problem from the input: everything interned, equal pods joined, counts taken.

use super::bits::Bits;
use super::builder::{ProblemBuilder, Questions};
use super::catalog::Reservations;
use super::groups::{CountedMachine, SelectingGroups, TopologyMembership};
use super::hash::Map;
use super::ids::{ClassId, HostId, IdVec, Key, PodId, SetId};
use super::intern::{Sets, Vals};
use super::machines;
use super::meter::Meter;
use super::pod::Class;
use super::pod_classes::{self, Rejected};
use super::pools::{self, CatalogSet, TopologyDomains};
use super::problem::{Keys, Problem};
use super::taints::ToleranceTable;
use super::topology::Filter;
use std::collections::BTreeSet;
use std::rc::Rc;
use whittle_api::k8s::Pod;
use whittle_model::requirements::Operator;
use whittle_model::scheduling::{Input, Options};

/// A problem that can be narrowed to many questions about the same moment.
pub(crate) struct ReusableProblem<'a> {
    /// Its queue contains all pods that may have to move, which are also counted where they run.
    pub(crate) problem: Problem<'a>,
    /// By pod: the machine that it leaves only in a simulation.
    pub(crate) simulated_from: IdVec<PodId, Option<HostId>>,
    /// Rejected pods, with the machine that they leave only in a simulation.
    pub(crate) refused: Rejected,
    pub(crate) membership: TopologyMembership,
}

/// Builds the problem of `input`.
pub(crate) fn build<'a>(input: &'a Input<'a>, options: &'a Options) -> Problem<'a> {
    assemble(input, options, Questions::One).problem
}

/// Builds the problem of `input` with every machine in place and the pods of all machines in the queue, to be narrowed later.
pub(crate) fn build_reusable<'a>(input: &'a Input<'a>, options: &'a Options) -> ReusableProblem<'a> {
    assemble(input, options, Questions::Many)
}

fn assemble<'a>(input: &'a Input<'a>, options: &'a Options, questions: Questions) -> ReusableProblem<'a> {
    let node_pools = pools::ordered(&input.objects.node_pools);
    let mut builder = ProblemBuilder::new(input, options, &node_pools, questions);
    let meter = Meter::default();
    let (candidates, refused) = pod_classes::pods_of(&builder);
    let in_pass: BTreeSet<*const Pod> = candidates.iter().map(|c| std::ptr::from_ref(c.pod)).collect();
    let mut classes = pod_classes::classes(&mut builder, &candidates);
    let daemons = whittle_model::pods::daemon_pods(&input.objects.daemon_sets, &input.objects.pods);
    let dims = pod_classes::dims(&classes.list, &daemons, input);
    classes.measure(&dims);
    // Most runs have no pending pods: then the existing pods do not matter.
    let idle = candidates.is_empty() && questions == Questions::One;
    let counted = if idle { IdVec::new() } else { machines::counted(&mut builder, &in_pass) };
    let groups = builder.groups.finish(&builder.names, &meter);
    let selecting = SelectingGroups::of(&groups, &builder.groups.sequence(&builder.names));
    classes.join(&groups, &selecting);
    classes.merge();
    let mut reservations = Reservations::default();
    let mut catalog_set = CatalogSet::default();
    let pools = pools::build(&mut builder, &node_pools, &dims, &daemons, &mut reservations, &mut catalog_set);
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
    let relevant = machines::relevant_keys(&builder, &classes.list, &groups);
    let machines = if idle { IdVec::new() } else { machines::build(&mut builder, &dims, &daemons, &relevant) };
    let key = Keys::of(&mut builder.names);
    let ProblemBuilder { well_known, names, .. } = &mut builder;
    let well_known: BTreeSet<Key> = well_known.iter().map(|key| names.key(key)).collect();
    let negated_custom_keys = negated_custom_keys(&classes.list, &builder.sets, &well_known);
    let problem = Problem {
        tolerance: ToleranceTable::of(&builder.taint_table),
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

/// The custom keys on which some pod has a `NotIn` requirement.
fn negated_custom_keys(classes: &IdVec<ClassId, Class>, sets: &Sets, well_known: &BTreeSet<Key>) -> BTreeSet<Key> {
    let relaxations = classes.iter().flat_map(|class| class.relaxations.iter().map(|relaxation| relaxation.full));
    let places = classes.iter().flat_map(|class| class.places.iter().map(|place| place.set));
    let sets_used: BTreeSet<SetId> = relaxations.chain(places).collect();
    let is_negated = |(key, wanted): &(&Key, &Vals)| wanted.operator() == Operator::NotIn && !well_known.contains(key);
    sets_used.into_iter().flat_map(|set| sets.get(set).iter().filter(is_negated).map(|(key, _)| *key)).collect()
}

/// Whether an existing machine counts for a spread constraint.
fn machine_passes(builder: &ProblemBuilder<'_>, filter: &Filter, machine: &CountedMachine) -> bool {
    let by_labels = filter.any_of.is_empty()
        || machine.labels.is_some_and(|l| {
            let set = builder.sets.get(l);
            filter.any_of.iter().any(|required| set.compatible(builder.sets.get(*required), |_| false).is_ok())
        });
    by_labels && filter.tolerations.is_none_or(|t| builder.taint_table.tolerated(t, machine.taints))
}
