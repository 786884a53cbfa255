//! Which existing machines count for which topology group, and what they count.

use super::bits::Bits;
use super::builder::ProblemBuilder;
use super::counted_machines::CountedMachine;
use super::groups::SelectingGroups;
use super::hash::Map;
use super::ids::{DomainsId, FilterId, GroupId, HostId, IdVec, Key, SetId, TolerationId};
use super::intern::{Names, Sets, Val};
use super::meter::{self, Meter};
use super::tally::Tally;
use super::topology::{Counts, Filter, Group};
use super::topology_domains::TopologyDomains;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use whittle_model::requirements::Allowed;

/// How existing machines belong to the groups: which of them count, and which domains they provide.
#[derive(Debug, Default)]
pub(crate) struct TopologyMembership {
    /// By machine: its labels as requirements.
    labels: IdVec<HostId, Option<SetId>>,
    /// By machine: what the labels may be that it does not have yet.
    open: IdVec<HostId, Option<SetId>>,
    /// By machine: whether the pass may place pods on it.
    offered: IdVec<HostId, bool>,
    filter: IdVec<GroupId, FilterId>,
    /// By filter: the machines that it lets through.
    passing: IdVec<FilterId, Bits<HostId>>,
    /// `None` for groups by host.
    known: IdVec<GroupId, Option<DomainsId>>,
    /// By domain: how many machines provide it.
    providers: IdVec<DomainsId, BTreeMap<Val, u32>>,
}

/// How a group counts the pods of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedIn {
    Host,
    Domain(Val),
}

/// A domain in which NodePools could launch a node that counts exists whatever machines there are.
const ALWAYS_KNOWN: u32 = u32::MAX / 2;

/// How many existing machines are in a domain, from its count of providers, which includes [`ALWAYS_KNOWN`] if NodePools may launch there.
fn machines_of(providers: u32) -> u32 {
    providers.checked_sub(ALWAYS_KNOWN).unwrap_or(providers)
}

impl TopologyMembership {
    pub(crate) fn of(
        groups: &IdVec<GroupId, Group>,
        machines: &IdVec<HostId, CountedMachine>,
        templates: &TopologyDomains<'_>,
        builder: &ProblemBuilder<'_>,
    ) -> Self {
        let mut out = Self {
            labels: machines.iter().map(|machine| machine.labels).collect(),
            open: machines.iter().map(|machine| machine.open).collect(),
            offered: machines.iter().map(|machine| machine.offered).collect(),
            ..Self::default()
        };
        // Many groups share few filters.
        let mut filters: Map<&Filter, FilterId> = Map::default();
        let mut known_of: Map<(Key, FilterId, Option<TolerationId>), DomainsId> = Map::default();
        for (id, group) in groups.enumerate() {
            let filter = *filters.entry(&group.filter).or_insert_with(|| {
                let mut passing = Bits::none(machines.len());
                for (host, _) in machines.enumerate().filter(|(_, machine)| machine_passes(builder, &group.filter, machine)) {
                    passing.insert(host);
                }
                out.passing.push(passing)
            });
            out.filter.push(filter);
            if group.by_host {
                out.known.push(None);
                continue;
            }
            let reach = builder.groups.reach(id);
            let known = *known_of.entry((group.key, filter, reach)).or_insert_with(|| {
                let always = templates.domains(group.key, &group.filter, reach, builder);
                let known = out.known_domains(group.key, filter, &builder.sets, always);
                out.providers.push(known)
            });
            out.known.push(Some(known));
        }
        out
    }

    fn known_domains(&self, key: Key, filter: FilterId, sets: &Sets, always: BTreeSet<Val>) -> BTreeMap<Val, u32> {
        let mut known: BTreeMap<Val, u32> = always.into_iter().map(|val| (val, ALWAYS_KNOWN)).collect();
        for host in self.passing[filter].iter().filter(|host| self.offered[*host]) {
            if let Some(val) = self.domain(key, host, sets) {
                *known.entry(val).or_default() += 1;
            }
        }
        known
    }

    /// The counts of each group before anything is placed.
    pub(crate) fn count(
        &self,
        groups: &IdVec<GroupId, Group>,
        machines: &IdVec<HostId, CountedMachine>,
        selecting: &SelectingGroups,
        sets: &Sets,
        names: &Names,
        meter: &Meter,
    ) -> IdVec<GroupId, Counts> {
        let by_name = |known: &BTreeMap<Val, u32>| {
            let mut empty: Vec<(Val, u32)> = known.keys().map(|val| (*val, 0)).collect();
            empty.sort_by_key(|(val, _)| names.val_name(*val));
            empty
        };
        let empty: IdVec<DomainsId, Vec<(Val, u32)>> = self.providers.iter().map(by_name).collect();
        let with_machines = |known: &BTreeMap<Val, u32>| -> Rc<[Val]> {
            known.iter().filter(|(_, providers)| machines_of(**providers) > 0).map(|(val, _)| *val).collect()
        };
        let occupied: IdVec<DomainsId, Rc<[Val]>> = self.providers.iter().map(with_machines).collect();
        let counts_at = |at: DomainsId| Counts { domains: empty[at].clone(), occupied: Rc::clone(&occupied[at]), hosts: Tally::default() };
        let counts_of = |known: &Option<DomainsId>| known.map(counts_at).unwrap_or_default();
        let mut out: IdVec<GroupId, Counts> = self.known.iter().map(counts_of).collect();
        for (host, machine) in machines.enumerate() {
            let mut add = |id: GroupId, by: u32| {
                meter.spend(meter::SELECT);
                match self.counted_in(id, &groups[id], host, sets) {
                    Some(CountedIn::Host) => out[id].hosts.add(host, by),
                    Some(CountedIn::Domain(val)) => out[id].add(val, by, names),
                    None => {
                        for val in self.possible_domains(&groups[id], host, sets) {
                            out[id].add(*val, by, names);
                        }
                    }
                }
            };
            for (labels, n) in &machine.pods {
                selecting.by(*labels).into_iter().flat_map(|by| &by.counting).for_each(|id| add(*id, *n));
            }
            for (labels, n) in &machine.terminating {
                let counting = selecting.by(*labels).into_iter().flat_map(|by| &by.counting);
                counting.filter(|id| groups[**id].counts_terminating).for_each(|id| add(*id, *n));
            }
            machine.repels.iter().for_each(|id| add(*id, 1));
        }
        out
    }

    fn domain(&self, key: Key, host: HostId, sets: &Sets) -> Option<Val> {
        sets.get(self.labels[host]?).get(&key)?.single().copied()
    }

    /// How a group counts the pods of a machine; `None` if it does not.
    pub(crate) fn counted_in(&self, id: GroupId, group: &Group, host: HostId, sets: &Sets) -> Option<CountedIn> {
        self.labels[host]?;
        if !self.passing[self.filter[id]].has(host) {
            return None;
        }
        if group.by_host {
            return Some(CountedIn::Host);
        }
        self.domain(group.key, host, sets).map(CountedIn::Domain)
    }

    /// The domains in which a machine without one keeps pods away: all that its claim lists, until the launch decides. A machine that is
    /// planned in this pass does the same (scheduling 21). A preference does not heed it: it would be given up for all of them.
    fn possible_domains<'s>(&self, group: &Group, host: HostId, sets: &'s Sets) -> &'s [Val] {
        let open = self.open[host].filter(|_| group.keeps_apart() && !group.by_host);
        open.and_then(|open| sets.get(open).get(&group.key)).and_then(Allowed::members).unwrap_or_default()
    }

    /// Whether no machine but `leaving` provides the domain.
    pub(crate) fn provided_only_by(&self, id: GroupId, val: Val, leaving: u32) -> bool {
        let known = self.known[id].and_then(|at| self.providers[at].get(&val));
        known.is_none_or(|known| *known <= leaving)
    }

    /// Whether machines other than `leaving` are in the domain.
    pub(crate) fn has_others(&self, id: GroupId, val: Val, leaving: u32) -> bool {
        let known = self.known[id].and_then(|at| self.providers[at].get(&val));
        known.is_some_and(|known| machines_of(*known) > leaving)
    }

    pub(crate) fn offered(&self, host: HostId) -> bool {
        self.offered[host]
    }
}

/// Whether an existing machine counts for a spread constraint.
fn machine_passes(builder: &ProblemBuilder<'_>, filter: &Filter, machine: &CountedMachine) -> bool {
    let by_labels = filter.any_of.is_empty()
        || machine.labels.is_some_and(|l| {
            let set = builder.sets.get(l);
            filter.any_of.iter().any(|required| set.compatible(builder.sets.get(*required), |_| false).is_ok())
        });
    let has_labels = filter.labels.is_empty()
        || machine.labels.is_some_and(|l| {
            let set = builder.sets.get(l);
            filter.labels.iter().all(|key| set.get(key).is_some())
        });
    by_labels && has_labels && filter.tolerations.is_none_or(|t| builder.taint_table.tolerated(t, machine.taints))
}
