//! Required affinity where all pods have ended up. A pod that its own term selects may be the first of its group in any domain;
//! pods placed later can make that wrong, since the kube-scheduler may bind them in another order.

use super::hash::Map;
use super::ids::{GroupId, HostId, Key, PodId, SetId};
use super::intern::Val;
use super::packing_run::Outcome;
use super::pod::Class;
use super::problem::Problem;
use super::state::State;
use super::topology::GroupKind;
use std::collections::BTreeSet;

/// A machine, existing or new, that got pods.
#[derive(Clone, Copy)]
struct PodHost {
    host: HostId,
    set: SetId,
    /// It does not exist yet, so the labels of its type are not known.
    planned: bool,
}

/// The domain of a machine for one label key.
enum Domain<'s> {
    /// It has no such label.
    Nowhere,
    Anywhere,
    In(&'s [Val]),
}

/// The pods that the groups of required affinity count.
struct AffinityCensus<'p, 'a> {
    problem: &'p Problem<'a>,
    /// By affinity group that some placed pod requires.
    sums: Map<GroupId, GroupSum>,
    placed: Map<(GroupId, HostId), u32>,
    types: TypeValues,
}

/// By new machine and label key: the allowed values that its types leave.
type TypeValues = Map<(HostId, Key), Vec<Val>>;

/// The pods that one group counts: those of the cluster, and those that were placed.
#[derive(Clone, Default)]
struct GroupSum {
    all: u32,
    /// By value of the group's key: pods whose domain is certain.
    settled: Vec<(Val, u32)>,
    /// By value: pods that may end up in this domain; `None`: in any domain.
    open: Vec<(Option<Val>, u32)>,
}

/// The placed pods, by position, whose required affinity does not hold.
pub(crate) fn misplaced(problem: &Problem<'_>, state: &State) -> BTreeSet<PodId> {
    if !problem.groups.iter().any(|group| group.kind == GroupKind::Affinity) {
        return BTreeSet::new();
    }
    let counts = AffinityCensus::take(problem, state);
    let mut out = BTreeSet::new();
    if !counts.sums.is_empty() {
        for (place, pods) in places(problem, state) {
            out.extend(pods.iter().filter(|pod| !counts.is_satisfied(**pod, place)));
        }
    }
    out
}

/// Removes misplaced pods except `tolerated`, and then those that depended on them. Returns the pods that are still misplaced.
pub(crate) fn unplace_misplaced(problem: &Problem<'_>, outcome: &mut Outcome, tolerated: &BTreeSet<PodId>) -> BTreeSet<PodId> {
    loop {
        let all = misplaced(problem, &outcome.state);
        let wrong: BTreeSet<PodId> = all.difference(tolerated).copied().collect();
        if wrong.is_empty() {
            return all;
        }
        outcome.state.unplace(problem, &wrong);
        let waiting = problem.queue.iter().filter(|entry| wrong.contains(&entry.pod));
        outcome.unplaced.extend(waiting.map(|entry| (*entry, None)));
    }
}

fn places<'s>(problem: &'s Problem<'_>, state: &'s State) -> impl Iterator<Item = (PodHost, &'s [PodId])> {
    let old = state
        .filled()
        .map(|(machine, now)| (PodHost { host: problem.machines[machine].host, set: now.set, planned: false }, &now.pods[..]));
    let new = state.claims.enumerate();
    old.chain(new.map(|(at, claim)| (PodHost { host: problem.host_of_claim(at), set: claim.set, planned: true }, &claim.pods[..])))
}

/// The required affinity groups of a class, with all preferences dropped.
fn required_affinity<'c>(problem: &'c Problem<'_>, class: &'c Class) -> impl Iterator<Item = GroupId> + 'c {
    let owned = class.relaxations.last().into_iter().flat_map(|relaxation| &relaxation.owned).copied();
    owned.filter(|id| problem.groups[*id].kind == GroupKind::Affinity)
}

impl<'p, 'a> AffinityCensus<'p, 'a> {
    fn take(problem: &'p Problem<'a>, state: &State) -> Self {
        let mut out = Self { problem, sums: Map::default(), placed: Map::default(), types: Map::default() };
        for pod in places(problem, state).flat_map(|(_, pods)| pods) {
            for id in required_affinity(problem, class_of(problem, *pod)) {
                out.sums.entry(id).or_insert_with(|| GroupSum::before(problem, id));
            }
        }
        if !out.sums.is_empty() {
            out.collect_type_values(state);
            for (place, pods) in places(problem, state) {
                pods.iter().for_each(|pod| out.count(class_of(problem, *pod), place));
            }
        }
        out
    }

    fn collect_type_values(&mut self, state: &State) {
        let problem = self.problem;
        let groups = self.sums.keys().map(|id| &problem.groups[*id]).filter(|group| !group.by_host);
        let keys: BTreeSet<Key> = groups.map(|group| group.key).collect();
        for (at, claim) in state.claims.enumerate() {
            for key in &keys {
                let required = problem.sets.get(claim.set).get(key);
                let Some(mut vals) = problem.catalogs[problem.pools[claim.pool].catalog].values(*key, &claim.types) else { continue };
                vals.retain(|val| required.is_none_or(|required| required.has(val)));
                if !vals.is_empty() {
                    self.types.insert((problem.host_of_claim(at), *key), vals);
                }
            }
        }
    }

    fn count(&mut self, class: &Class, place: PodHost) {
        for id in &class.counted_by {
            let Some(sum) = self.sums.get_mut(id) else { continue };
            *self.placed.entry((*id, place.host)).or_default() += 1;
            sum.all += 1;
            let group = &self.problem.groups[*id];
            if !group.by_host {
                sum.each(domain(self.problem, &self.types, place, group.key), |n| *n += 1);
            }
        }
    }

    /// Whether the pod's required affinity holds.
    fn is_satisfied(&self, pod: PodId, place: PodHost) -> bool {
        let class = class_of(self.problem, pod);
        // The first pod of a group that selects itself may go anywhere, if it is that for all its keys (scheduling 21).
        let is_alone = |id: GroupId| {
            let group = &self.problem.groups[id];
            group.by_host || self.sums[&id].without_one(domain(self.problem, &self.types, place, group.key)).is_empty()
        };
        required_affinity(self.problem, class).all(|id| {
            let group = &self.problem.groups[id];
            let own = u32::from(group.selects.has(class.labels));
            let before = self.problem.counts[id].hosts.of(place.host);
            let has_neighbour = before + self.placed.get(&(id, place.host)).copied().unwrap_or(0) > own;
            let sum = &self.sums[&id];
            if group.by_host {
                return has_neighbour || (own == 1 && sum.all == own);
            }
            match domain(self.problem, &self.types, place, group.key) {
                Domain::Nowhere => false,
                here => {
                    let is_first = || own == 1 && required_affinity(self.problem, class).all(is_alone);
                    has_neighbour || sum.certainly_in(&here, own) || is_first()
                }
            }
        })
    }
}

impl GroupSum {
    fn before(problem: &Problem<'_>, id: GroupId) -> Self {
        let counts = &problem.counts[id];
        let settled: Vec<(Val, u32)> = counts.domains.iter().filter(|(_, n)| *n > 0).copied().collect();
        let all = counts.hosts.total() + settled.iter().map(|(_, n)| n).sum::<u32>();
        Self { all, settled, open: Vec::new() }
    }

    /// Calls `change` with each number that counts a pod in this domain.
    fn each(&mut self, here: Domain<'_>, mut change: impl FnMut(&mut u32)) {
        match here {
            Domain::Nowhere => {}
            Domain::Anywhere => change(entry(&mut self.open, None)),
            Domain::In([only]) => change(entry(&mut self.settled, *only)),
            Domain::In(some) => some.iter().for_each(|val| change(entry(&mut self.open, Some(*val)))),
        }
    }

    /// Whether other pods are in the machine's domain, whichever it will be; `own` is 1 if the pod itself is counted, which
    /// matters if the domain is certain.
    fn certainly_in(&self, here: &Domain<'_>, own: u32) -> bool {
        let settled = |val: &Val| self.settled.iter().find(|(known, _)| known == val).map_or(0, |(_, n)| *n);
        match here {
            Domain::Nowhere | Domain::Anywhere | Domain::In([]) => false,
            Domain::In([only]) => settled(only) > own,
            Domain::In(some) => some.iter().all(|val| settled(val) > 0),
        }
    }

    fn without_one(&self, here: Domain<'_>) -> Self {
        let mut out = self.clone();
        out.each(here, |n| *n = n.saturating_sub(1));
        out
    }

    /// Whether no pod is, or may be, in any domain.
    fn is_empty(&self) -> bool {
        self.settled.iter().all(|(_, n)| *n == 0) && self.open.iter().all(|(_, n)| *n == 0)
    }
}

/// The number of `key`.
fn entry<K: PartialEq>(list: &mut Vec<(K, u32)>, key: K) -> &mut u32 {
    let at = list.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
        list.push((key, 0));
        list.len() - 1
    });
    &mut list[at].1
}

fn class_of<'p>(problem: &'p Problem<'_>, pod: PodId) -> &'p Class {
    &problem.classes[problem.class_of[pod]]
}

fn domain<'p>(problem: &'p Problem<'_>, types: &'p TypeValues, place: PodHost, key: Key) -> Domain<'p> {
    if let Some(left) = types.get(&(place.host, key)) {
        return Domain::In(left);
    }
    match problem.sets.get(place.set).get(&key) {
        Some(allowed) => {
            allowed.members().map_or(Domain::Anywhere, |vals| if vals.is_empty() { Domain::Nowhere } else { Domain::In(vals) })
        }
        None if place.planned && problem.well_known.contains(&key) => Domain::Anywhere,
        None => Domain::Nowhere,
    }
}
