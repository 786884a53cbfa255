//! Why rules of topology leave a pod no domain, and which pods only wait for others.

use super::alone::{self, NoDomain};
use super::changes::Ask;
use super::ids::{ClassId, GroupId, HostId, Id as _, PodId, PoolId, SetId};
use super::misspelt_values;
use super::packing_run::Outcome;
use super::pod::Relaxation;
use super::problem::Problem;
use super::state::State;
use super::topology::GroupKind;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use whittle_model::scheduling::{Cause, Follows};

/// With more classes of pods with unmet affinity, it is not determined which of them only wait for other pods: each class might leave a
/// view of instance types for each NodePool in memory.
const FOLLOWING_MAX: usize = 300;

/// The requirements after topology, or what refuses.
pub(crate) fn in_topology(problem: &mut Problem<'_>, state: &State, relaxation: &Relaxation, set: SetId) -> Result<Vec<SetId>, Cause> {
    alone::in_topology(problem, &state.counts, relaxation, set).map_err(|refusal| match refusal {
        NoDomain::Group(group) => topology_cause(problem, state, relaxation, set, group),
        NoDomain::Undefined(key) => {
            let key = problem.names.key_name(key).to_owned();
            Cause::UndefinedLabel { meant: misspelt_values::meant_label(problem, problem.sets.get(set), &key), key }
        }
    })
}

fn topology_cause(problem: &Problem<'_>, state: &State, relaxation: &Relaxation, set: SetId, id: GroupId) -> Cause {
    let group = &problem.groups[id];
    let counts = &state.counts[id];
    let text_of =
        |set: SetId| problem.sets.get(set).get(&group.key).map_or_else(|| "Exists".to_owned(), |v| problem.names.spell_vals(v).text());
    Cause::Topology {
        kind: match group.kind {
            GroupKind::Spread { .. } => "topology spread",
            GroupKind::Affinity => "pod affinity",
            GroupKind::Anti | GroupKind::Inverse => "pod anti-affinity",
        },
        of_others: matches!(group.kind, GroupKind::Inverse),
        key: problem.names.key_name(group.key).to_owned(),
        counts: counts.domains.iter().map(|(v, n)| (problem.names.val_name(*v).to_owned(), *n)).collect(),
        pod_domains: text_of(relaxation.strict),
        node_domains: text_of(set),
        follows: matches!(group.kind, GroupKind::Affinity).then(|| first_selected(problem, state, id).map(Box::new)).flatten(),
    }
}

/// A pod that a group selects and that gets a place sooner: the first by name.
fn first_selected(problem: &Problem<'_>, state: &State, id: GroupId) -> Option<Follows> {
    let followers = problem.followers.as_ref()?;
    let selected = |pod: &&PodId| problem.classes[problem.class_of[**pod]].counted_by.contains(&id);
    let first = |pods: &mut dyn Iterator<Item = &PodId>| pods.filter(selected).map(|pod| problem.pods[*pod].metadata.key()).min();
    let (group, counts) = (&problem.groups[id], &state.counts[id]);
    if group.by_host {
        let mut nodes = problem.state_nodes.iter().enumerate().filter(|(at, _)| counts.hosts.of(HostId::at(*at)) > 0);
        return nodes.next().map(|(_, node)| Follows::On(node.name().to_owned()));
    }
    if counts.domains.iter().any(|(_, count)| *count > 0) {
        return None;
    }
    let launched = first(&mut state.claims.iter().flat_map(|claim| &claim.pods)).map(Follows::Launched);
    launched.or_else(|| first(&mut followers.iter()).map(Follows::Waiting))
}

/// Pods without a place whose affinity selects pods with new machines, or pods that follow such pods: one of each class.
/// `None` if there are too many classes to look at them.
pub(crate) fn followers(problem: &mut Problem<'_>, outcome: &Outcome) -> Option<Vec<PodId>> {
    let state = &outcome.state;
    let mut waiting: BTreeMap<ClassId, PodId> = outcome.unplaced.iter().map(|(entry, _)| (entry.class, entry.pod)).collect();
    waiting.retain(|class, _| !unmet_affinity(problem, state, *class).is_empty());
    if FOLLOWING_MAX < waiting.len() {
        return None;
    }
    waiting.retain(|class, _| fits_anywhere(problem, state, *class));
    let placed = state.claims.iter().flat_map(|claim| &claim.pods);
    let mut sooner: BTreeSet<ClassId> = placed.map(|pod| problem.class_of[*pod]).collect();
    let mut out = Vec::new();
    while !waiting.is_empty() {
        let selected: BTreeSet<GroupId> = sooner.iter().flat_map(|class| problem.classes[*class].counted_by.iter().copied()).collect();
        let follows = |class: &ClassId| unmet_affinity(problem, state, *class).iter().all(|group| selected.contains(group));
        let next: Vec<ClassId> = waiting.keys().filter(|class| follows(class)).copied().collect();
        if next.is_empty() {
            break;
        }
        out.extend(next.iter().filter_map(|class| waiting.remove(class)));
        sooner.extend(next);
    }
    Some(out)
}

/// The groups of a class's required affinity, but by host, that have pods in no domain that is known.
fn unmet_affinity(problem: &Problem<'_>, state: &State, class: ClassId) -> Vec<GroupId> {
    let owned = problem.classes[class].relaxations.last().into_iter().flat_map(|last| last.owned.iter().copied());
    let is_unmet = |id: &GroupId| {
        let group = &problem.groups[*id];
        group.kind == GroupKind::Affinity && !group.by_host && state.counts[*id].domains.iter().all(|(_, count)| *count == 0)
    };
    owned.filter(is_unmet).collect()
}

/// Whether a machine of some NodePool would do for pods of a class, wherever others are.
fn fits_anywhere(problem: &mut Problem<'_>, state: &State, class: ClassId) -> bool {
    let class = Rc::clone(&problem.classes[class]);
    let relaxation = class.relaxations.last().expect("a class has at least one relaxation");
    let pools: Vec<PoolId> = problem.pools.ids().collect();
    pools.into_iter().any(|pool| Ask::of(problem, &class, relaxation, pool).fits_apart(problem, state))
}
