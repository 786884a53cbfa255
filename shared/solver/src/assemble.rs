//! Assembles a problem from the input: everything interned, equal pods joined, counts taken.

use super::bits::Bits;
use super::builder::{ProblemBuilder, Questions};
use super::future_daemons::FutureDaemons;
use super::groups::SelectingGroups;
use super::hash::Map;
use super::ids::{ClassId, HostId, IdVec, Key, PodId, SetId};
use super::intern::{Sets, Vals};
use super::meter::Meter;
use super::pod::Class;
use super::pods_to_place::{self, Rejected, Selection};
use super::pools::{self, Pools};
use super::problem::{Keys, Problem};
use super::taints::ToleranceTable;
use super::topology_domains::TopologyDomains;
use super::topology_membership::TopologyMembership;
use super::{class_groups, counted_machines, machines, pod_classes, queue};
use std::collections::BTreeSet;
use std::rc::Rc;
use whittle_model::requirements::Operator;
use whittle_model::scheduling::{Input, Options};

/// A problem that can be narrowed to many questions about the same moment.
pub(crate) struct ReusableProblem<'a> {
    /// Its queue contains all pods that may have to move, which are also counted where they run.
    pub(crate) problem: Problem<'a>,
    /// By pod: the machine that it leaves only in a simulation.
    pub(crate) simulated_from: IdVec<PodId, Option<HostId>>,
    pub(crate) rejected: Vec<Rejected>,
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
    let mut builder = ProblemBuilder::new(input, options, questions);
    let meter = Meter::default();
    let Selection { pods, rejected } = pods_to_place::select(&builder);
    let daemons = whittle_model::pods::daemon_pods(&input.objects.daemon_sets, &input.objects.pods);
    let future_daemons = FutureDaemons::default();
    let mut classes = pod_classes::build(&mut builder, &pods, (&daemons, &future_daemons));
    // Most runs have no pending pods: then the existing pods do not matter.
    let idle = pods.is_empty() && questions == Questions::One;
    let counted = if idle { IdVec::new() } else { counted_machines::collect(&mut builder, &pods) };
    let groups = builder.groups.finish(&builder.names, &meter);
    let selecting = SelectingGroups::of(&groups, &builder.groups.sequence(&builder.names));
    class_groups::join(&mut classes, &groups, &selecting);
    let to_avoid: BTreeSet<usize> = classes.list.iter().flat_map(|class| class.avoids.keys().copied()).collect();
    let Pools { list: pools, unusable: unusable_pools, catalogs, reservations } =
        pools::build(&mut builder, &classes.dims, (&daemons, &future_daemons), &to_avoid);
    let topology_domains = TopologyDomains::of(&pools, &unusable_pools, &catalogs, &groups, &builder);
    let membership = TopologyMembership::of(&groups, &counted, &topology_domains, &builder);
    let counts = membership.count(&groups, &counted, &selecting, &builder.sets, &builder.names, &meter);
    let machines = if idle { IdVec::new() } else { machines::build(&mut builder, &classes, &groups, &daemons) };
    let key = Keys::of(&mut builder.names);
    let ProblemBuilder { well_known, names, .. } = &mut builder;
    let well_known: BTreeSet<Key> = well_known.iter().map(|key| names.key(key)).collect();
    let negated_custom_keys = negated_custom_keys(&classes.list, &builder.sets, &well_known);
    let open = counted.iter().map(|machine| machine.open).collect();
    let problem = Problem {
        tolerance: ToleranceTable::of(&builder.taint_table),
        queue: queue::order(&classes, &pods, options),
        pods: pods.iter().map(|p| p.pod).collect(),
        class_of: classes.of,
        classes: classes.list.into_iter().map(Rc::new).collect(),
        names: builder.names,
        sets: builder.sets,
        dims: classes.dims,
        taint_table: builder.taint_table,
        catalogs,
        reservations,
        pools,
        unusable_pools,
        objects: input.objects,
        any_pool: !builder.node_pools.is_empty(),
        machines,
        open,
        groups,
        counts,
        well_known,
        negated_custom_keys,
        key,
        refused: rejected.iter().map(|rejected| rejected.left_out.clone()).collect(),
        state_nodes: input.nodes,
        excluded: Bits::default(),
        views: Map::default(),
        meant: Map::default(),
        followers: None,
        divisions: Map::default(),
        division_steps: 0,
        meter,
    };
    ReusableProblem { problem, simulated_from: pods.iter().map(|p| p.simulated_from).collect(), rejected, membership }
}

/// The custom keys on which some pod has a `NotIn` requirement.
fn negated_custom_keys(classes: &IdVec<ClassId, Class>, sets: &Sets, well_known: &BTreeSet<Key>) -> BTreeSet<Key> {
    let relaxations = classes.iter().flat_map(|class| class.relaxations.iter().map(|relaxation| relaxation.full));
    let places = classes.iter().flat_map(|class| class.places.iter().map(|place| place.set));
    let sets_used: BTreeSet<SetId> = relaxations.chain(places).collect();
    let is_negated = |(key, wanted): &(&Key, &Vals)| wanted.operator() == Operator::NotIn && !well_known.contains(key);
    sets_used.into_iter().flat_map(|set| sets.get(set).iter().filter(is_negated).map(|(key, _)| *key)).collect()
}
