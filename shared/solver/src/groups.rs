//! Collects topology groups from pods, and counts the pods that the cluster already has in them.

use super::bits::Bits;
use super::hash::Map;
use super::ids::{DomainsId, FilterId, GroupId, HostId, IdVec, Key, LabelsId, SetId, TaintsId, TolerationId};
use super::intern::{Names, Sets, Val};
use super::meter::{self, Meter};
use super::selectors::{LabelIndex, LabelSet, Scope};
use super::tally::Tally;
use super::topology::{Counts, Filter, Group, GroupKind};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Namespace, PodAffinityTerm, TopologySpreadConstraint};
use whittle_api::{LabelSelector, SelectorRequirement, labels};

/// What identifies a group: equal constraints share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    kind: GroupKind,
    key: Key,
    scope: Scope,
    selector: Option<LabelSelector>,
    filter: Filter,
    /// Restricts the domains to those that these tolerations can reach.
    reach: Option<TolerationId>,
}

/// All groups of a problem while they are being collected.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    identities: IdVec<GroupId, Identity>,
    id_of: Map<Identity, GroupId>,
    label_sets: IdVec<LabelsId, LabelSet>,
    /// By namespace, then labels.
    label_set_of: Map<String, Map<BTreeMap<String, String>, LabelsId>>,
}

impl Groups {
    pub(crate) fn labels(&mut self, namespace: &str, labels: &BTreeMap<String, String>) -> LabelsId {
        if let Some(id) = self.label_set_of.get(namespace).and_then(|known| known.get(labels)) {
            return *id;
        }
        let id = self.label_sets.push(LabelSet { namespace: namespace.to_owned(), labels: labels.clone() });
        self.label_set_of.entry(namespace.to_owned()).or_default().insert(labels.clone(), id);
        id
    }

    fn id(&mut self, identity: Identity) -> GroupId {
        if let Some(id) = self.id_of.get(&identity) {
            return *id;
        }
        let id = self.identities.push(identity.clone());
        self.id_of.insert(identity, id);
        id
    }

    /// The group of a spread constraint of a pod with `pod_labels`.
    pub(crate) fn spread(
        &mut self,
        constraint: &TopologySpreadConstraint,
        namespace: &str,
        pod_labels: &BTreeMap<String, String>,
        affinity: Vec<SetId>,
        tolerations: TolerationId,
        names: &mut Names,
    ) -> GroupId {
        let mut selector = constraint.label_selector.clone();
        if let Some(selector) = &mut selector {
            for key in &constraint.match_label_keys {
                if let Some(value) = pod_labels.get(key) {
                    let more = SelectorRequirement { key: key.clone(), operator: "In".into(), values: vec![value.clone()] };
                    selector.match_expressions.push(more);
                }
            }
        }
        let honor_affinity = constraint.node_affinity_policy.as_deref() != Some("Ignore");
        let honor_taints = constraint.node_taints_policy.as_deref() == Some("Honor");
        let kind = GroupKind::Spread {
            max_skew: i64::from(constraint.max_skew),
            min_domains: constraint.min_domains.and_then(|n| u32::try_from(n).ok()),
        };
        self.id(Identity {
            kind,
            key: names.key(&constraint.topology_key),
            scope: Scope::Only(BTreeSet::from([namespace.to_owned()])),
            selector: selector.map(canonical),
            filter: Filter { any_of: if honor_affinity { affinity } else { Vec::new() }, tolerations: honor_taints.then_some(tolerations) },
            reach: honor_taints.then_some(tolerations),
        })
    }

    /// The group of an affinity or anti-affinity term; `reach` if some NodePool has taints.
    pub(crate) fn term(
        &mut self,
        kind: GroupKind,
        term: &PodAffinityTerm,
        namespace: &str,
        reach: Option<TolerationId>,
        namespaces: &[Namespace],
        names: &mut Names,
    ) -> GroupId {
        let scope = match &term.namespace_selector {
            None if term.namespaces.is_empty() => Scope::Only(BTreeSet::from([namespace.to_owned()])),
            None => Scope::Only(term.namespaces.iter().cloned().collect()),
            Some(selector) if *selector == LabelSelector::default() => Scope::All,
            Some(selector) => {
                let named = namespaces.iter().filter(|n| selector.matches(&n.metadata.labels)).map(|n| n.metadata.name.clone());
                Scope::Only(named.chain(term.namespaces.iter().cloned()).collect())
            }
        };
        self.id(Identity {
            kind,
            key: names.key(&term.topology_key),
            scope,
            selector: term.label_selector.clone().map(canonical),
            filter: Filter::default(),
            reach,
        })
    }

    /// Determines which label sets each group selects.
    pub(crate) fn finish(&self, names: &Names, meter: &Meter) -> IdVec<GroupId, Group> {
        let selectors = self.identities.iter().filter_map(|identity| identity.selector.as_ref());
        let keys = selectors.flat_map(|s| s.match_labels.keys().chain(s.match_expressions.iter().map(|e| &e.key)));
        let index = LabelIndex::of(&self.label_sets, &keys.map(String::as_str).collect(), meter);
        let hostname = names.known_key(labels::HOSTNAME);
        let group = |identity: &Identity| Group {
            kind: identity.kind,
            key: identity.key,
            by_host: Some(identity.key) == hostname,
            filter: identity.filter.clone(),
            selects: index.selected(identity.selector.as_ref(), &identity.scope),
        };
        self.identities.iter().map(group).collect()
    }

    /// All groups in ascending order, except that inverse anti-affinity groups are ordered by their content. The group that a
    /// refusal names then does not depend on the order of reading, although a question about fewer pods has other numbers.
    pub(crate) fn sequence(&self, names: &Names) -> Vec<GroupId> {
        let mut out: Vec<GroupId> = self.identities.ids().collect();
        out.sort_by_cached_key(|id| {
            let identity = &self.identities[*id];
            (identity.kind == GroupKind::Inverse).then(|| (names.key_name(identity.key), &identity.scope, &identity.selector))
        });
        out
    }

    /// The tolerations that restrict a group's domains.
    pub(crate) fn reach(&self, id: GroupId) -> Option<TolerationId> {
        self.identities[id].reach
    }
}

/// Expressions in a fixed order without duplicates: selectors are compared as sets.
fn canonical(mut selector: LabelSelector) -> LabelSelector {
    for expression in &mut selector.match_expressions {
        expression.values.sort();
    }
    for (key, value) in std::mem::take(&mut selector.match_labels) {
        selector.match_expressions.push(SelectorRequirement { key, operator: "In".into(), values: vec![value] });
    }
    selector.match_expressions.sort();
    selector.match_expressions.dedup();
    selector
}

/// By label set, the groups that select it.
#[derive(Debug, Default)]
pub(crate) struct SelectingGroups(IdVec<LabelsId, Selectors>);

/// The groups that select one label set: those that count it in ascending order, those that repel it in the order of
/// [`Groups::sequence`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Selectors {
    pub(crate) counting: Vec<GroupId>,
    pub(crate) repelling: Vec<GroupId>,
}

impl SelectingGroups {
    /// `sequence` contains each of the groups once.
    pub(crate) fn of(groups: &IdVec<GroupId, Group>, sequence: &[GroupId]) -> Self {
        let mut out = IdVec::new();
        for &id in sequence {
            let group = &groups[id];
            group.selects.each(|labels| {
                out.grow_to(labels, Selectors::default());
                let by: &mut Selectors = &mut out[labels];
                if group.kind == GroupKind::Inverse { &mut by.repelling } else { &mut by.counting }.push(id);
            });
        }
        Self(out)
    }

    pub(crate) fn by(&self, labels: LabelsId) -> Option<&Selectors> {
        self.0.get(labels)
    }
}

/// An existing machine, as far as counting is concerned.
#[derive(Clone, Debug)]
pub(crate) struct CountedMachine {
    /// Its labels as requirements; `None` before its Node has joined.
    pub(crate) labels: Option<SetId>,
    pub(crate) taints: TaintsId,
    /// Whether the pass may place pods on it.
    pub(crate) offered: bool,
    /// Bound pods that count, by label set.
    pub(crate) pods: Vec<(LabelsId, u32)>,
    /// Required anti-affinity groups of bound pods.
    pub(crate) repels: Vec<GroupId>,
}

/// How existing machines belong to the groups: which of them count, and which domains they provide.
#[derive(Debug, Default)]
pub(crate) struct TopologyMembership {
    /// By machine: its labels as requirements.
    labels: IdVec<HostId, Option<SetId>>,
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

/// A domain that NodePools could open exists whatever machines there are.
const ALWAYS_KNOWN: u32 = u32::MAX / 2;

impl TopologyMembership {
    /// `reach` returns the tolerations that restrict a group's domains, `domains` those that NodePools could open for a key;
    /// `passes` tells whether a filter lets a machine through.
    pub(crate) fn of(
        groups: &IdVec<GroupId, Group>,
        machines: &IdVec<HostId, CountedMachine>,
        sets: &Sets,
        reach: impl Fn(GroupId) -> Option<TolerationId>,
        domains: impl Fn(Key, Option<TolerationId>) -> Vec<Val>,
        passes: impl Fn(&Filter, &CountedMachine) -> bool,
    ) -> Self {
        let mut out = Self {
            labels: machines.iter().map(|machine| machine.labels).collect(),
            offered: machines.iter().map(|machine| machine.offered).collect(),
            ..Self::default()
        };
        // Many groups share few filters.
        let mut filters: Map<&Filter, FilterId> = Map::default();
        let mut known_of: Map<(Key, FilterId, Option<TolerationId>), DomainsId> = Map::default();
        for (id, group) in groups.enumerate() {
            let filter = *filters.entry(&group.filter).or_insert_with(|| {
                let mut passing = Bits::none(machines.len());
                for (host, _) in machines.enumerate().filter(|(_, machine)| passes(&group.filter, machine)) {
                    passing.insert(host);
                }
                out.passing.push(passing)
            });
            out.filter.push(filter);
            if group.by_host {
                out.known.push(None);
                continue;
            }
            let reach = reach(id);
            let known = *known_of.entry((group.key, filter, reach)).or_insert_with(|| {
                let known = out.known_domains(group.key, filter, sets, domains(group.key, reach));
                out.providers.push(known)
            });
            out.known.push(Some(known));
        }
        out
    }

    fn known_domains(&self, key: Key, filter: FilterId, sets: &Sets, always: Vec<Val>) -> BTreeMap<Val, u32> {
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
        let domains = |known: &Option<DomainsId>| known.map(|at| empty[at].clone()).unwrap_or_default();
        let mut out: IdVec<GroupId, Counts> =
            self.known.iter().map(|known| Counts { domains: domains(known), hosts: Tally::default() }).collect();
        for (host, machine) in machines.enumerate() {
            let mut add = |id: GroupId, by: u32| {
                meter.spend(meter::SELECT);
                match self.counted_in(id, &groups[id], host, sets) {
                    Some(CountedIn::Host) => out[id].hosts.add(host, by),
                    Some(CountedIn::Domain(val)) => out[id].add(val, by, names),
                    None => {}
                }
            };
            for (labels, n) in &machine.pods {
                selecting.by(*labels).into_iter().flat_map(|by| &by.counting).for_each(|id| add(*id, *n));
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

    /// Whether no machine but `leaving` provides the domain.
    pub(crate) fn provided_only_by(&self, id: GroupId, val: Val, leaving: u32) -> bool {
        let known = self.known[id].and_then(|at| self.providers[at].get(&val));
        known.is_none_or(|known| *known <= leaving)
    }

    pub(crate) fn offered(&self, host: HostId) -> bool {
        self.offered[host]
    }
}
