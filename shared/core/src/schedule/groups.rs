//! Collects topology groups from pods, and counts what the cluster already has in them.

use super::bits::Bits;
use super::hash::Map;
use super::intern::{Key, Names, SetId, Sets, Val};
use super::pod::{LabelsId, TolerationId};
use super::topology::{Counts, Filter, Group, GroupId, Kind};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Namespace, PodAffinityTerm, TopologySpreadConstraint};
use whittle_api::{LabelSelector, SelectorRequirement, labels};

/// Which namespaces a group looks at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Scope {
    Only(BTreeSet<String>),
    All,
}

/// What makes two constraints the same group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    kind: Kind,
    key: Key,
    scope: Scope,
    selector: Option<LabelSelector>,
    filter: Filter,
    /// Only domains that these tolerations can reach.
    reach: Option<TolerationId>,
}

/// All groups of a problem while they are being collected.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    identities: Vec<Identity>,
    id_of: Map<Identity, GroupId>,
    label_sets: Vec<(String, BTreeMap<String, String>)>,
    /// By namespace, then labels.
    label_set_of: Map<String, Map<BTreeMap<String, String>, LabelsId>>,
}

impl Groups {
    pub(crate) fn labels(&mut self, namespace: &str, labels: &BTreeMap<String, String>) -> LabelsId {
        if let Some(id) = self.label_set_of.get(namespace).and_then(|known| known.get(labels)) {
            return *id;
        }
        let id = LabelsId(u32::try_from(self.label_sets.len()).expect("fewer than 2^32 label sets"));
        self.label_sets.push((namespace.to_owned(), labels.clone()));
        self.label_set_of.entry(namespace.to_owned()).or_default().insert(labels.clone(), id);
        id
    }

    fn id(&mut self, identity: Identity) -> GroupId {
        if let Some(id) = self.id_of.get(&identity) {
            return *id;
        }
        let id = GroupId(u32::try_from(self.identities.len()).expect("fewer than 2^32 groups"));
        self.identities.push(identity.clone());
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
        let kind = Kind::Spread {
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

    /// The group of an (anti-)affinity term; `reach` where some NodePool has taints.
    pub(crate) fn term(
        &mut self,
        kind: Kind,
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

    /// Works out which label sets each group selects.
    pub(crate) fn finish(&self, names: &Names) -> Vec<Group> {
        let mut by_namespace: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (n, (namespace, _)) in self.label_sets.iter().enumerate() {
            by_namespace.entry(namespace).or_default().push(n);
        }
        let hostname = names.known_key(labels::HOSTNAME);
        self.identities
            .iter()
            .map(|identity| {
                let mut selects = Bits::none(self.label_sets.len());
                if let Some(selector) = &identity.selector {
                    let mut look = |list: &[usize]| {
                        for &n in list {
                            if selector.matches(&self.label_sets[n].1) {
                                selects.insert(n);
                            }
                        }
                    };
                    match &identity.scope {
                        Scope::All => by_namespace.values().for_each(|list| look(list)),
                        Scope::Only(only) => only.iter().filter_map(|ns| by_namespace.get(ns.as_str())).for_each(|list| look(list)),
                    }
                }
                Group {
                    kind: identity.kind,
                    key: identity.key,
                    by_host: Some(identity.key) == hostname,
                    filter: identity.filter.clone(),
                    selects,
                }
            })
            .collect()
    }

    /// The tolerations that limit a group's domains.
    pub(crate) fn reach(&self, id: GroupId) -> Option<TolerationId> {
        self.identities[id.0 as usize].reach
    }
}

/// Expressions in a fixed order, and equal ones once: they are compared as a set.
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

/// A machine that exists, as far as counting goes.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    /// Its labels as requirements; `None` while no Node has joined.
    pub(crate) labels: Option<SetId>,
    pub(crate) taints: super::pod::TaintsId,
    /// Offered to the pass.
    pub(crate) offered: bool,
    /// Bound pods that count, by label set.
    pub(crate) pods: Vec<(LabelsId, u32)>,
    /// Required anti-affinity groups of bound pods.
    pub(crate) repels: Vec<GroupId>,
}

/// Counts what the cluster has in each group before anything is placed. `domains` names the domains that NodePools could
/// open for a group; `tolerates` and `passes` answer for a machine.
pub(crate) fn count(
    groups: &[Group],
    machines: &[Counted],
    sets: &Sets,
    names: &Names,
    domains: impl Fn(GroupId) -> Vec<super::intern::Val>,
    passes: impl Fn(&Filter, &Counted) -> bool,
) -> Vec<Counts> {
    let mut out: Vec<Counts> = Vec::with_capacity(groups.len());
    for (g, group) in groups.iter().enumerate() {
        let id = GroupId(u32::try_from(g).expect("fewer than 2^32 groups"));
        let mut counts = Counts::default();
        if !group.by_host {
            domains(id).into_iter().for_each(|v| {
                counts.know(v, names);
            });
        }
        for (host, machine) in machines.iter().enumerate() {
            let Some(labels) = machine.labels else { continue };
            let domain = sets.get(labels).get(&group.key).and_then(|a| a.single().copied());
            if (!group.by_host && domain.is_none()) || !passes(&group.filter, machine) {
                continue;
            }
            if let (Some(domain), true) = (domain.filter(|_| !group.by_host), machine.offered) {
                counts.know(domain, names);
            }
            let n: u32 = if group.kind == Kind::Inverse {
                u32::try_from(machine.repels.iter().filter(|r| **r == id).count()).unwrap_or(u32::MAX)
            } else {
                machine.pods.iter().filter(|(l, _)| group.selects.has(l.0 as usize)).map(|(_, n)| *n).sum()
            };
            match domain {
                _ if group.by_host => (0..n).for_each(|_| counts.add_host(host)),
                Some(domain) if n > 0 => counts.add(domain, n, names),
                _ => {}
            }
        }
        out.push(counts);
    }
    out
}

/// Where the machines that exist stand in the groups, to take some of them out of the counts again.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// By machine: its labels as requirements.
    labels: Vec<Option<SetId>>,
    /// By machine: whether it is offered to the pass.
    offered: Vec<bool>,
    /// By group: position in `passing`.
    filter: Vec<usize>,
    /// By filter: the machines that count under it.
    passing: Vec<Bits>,
    /// By group: how many machines make a domain known.
    known_by: Vec<BTreeMap<Val, u32>>,
}

/// What a machine is to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    Host,
    Domain(Val),
}

/// A domain that NodePools could open is known whatever machines there are.
const ALWAYS_KNOWN: u32 = u32::MAX / 2;

impl Standing {
    pub(crate) fn of(
        groups: &[Group],
        machines: &[Counted],
        sets: &Sets,
        domains: impl Fn(GroupId) -> Vec<Val>,
        passes: impl Fn(&Filter, &Counted) -> bool,
    ) -> Self {
        let mut out = Self {
            labels: machines.iter().map(|machine| machine.labels).collect(),
            offered: machines.iter().map(|machine| machine.offered).collect(),
            ..Self::default()
        };
        let mut filters: Map<&Filter, usize> = Map::default();
        for (g, group) in groups.iter().enumerate() {
            let filter = *filters.entry(&group.filter).or_insert_with(|| {
                let mut passing = Bits::none(machines.len());
                for (at, _) in machines.iter().enumerate().filter(|(_, machine)| passes(&group.filter, machine)) {
                    passing.insert(at);
                }
                out.passing.push(passing);
                out.passing.len() - 1
            });
            out.filter.push(filter);
            let mut known: BTreeMap<Val, u32> = BTreeMap::new();
            if !group.by_host {
                let id = GroupId(u32::try_from(g).expect("fewer than 2^32 groups"));
                known.extend(domains(id).into_iter().map(|val| (val, ALWAYS_KNOWN)));
                for host in (0..machines.len()).filter(|host| machines[*host].offered) {
                    if let Some(Stand::Domain(val)) = out.stand(g, group, host, sets) {
                        *known.entry(val).or_default() += 1;
                    }
                }
            }
            out.known_by.push(known);
        }
        out
    }

    /// What a machine is to a group; nothing when the group does not count it.
    pub(crate) fn stand(&self, at: usize, group: &Group, host: usize, sets: &Sets) -> Option<Stand> {
        let labels = self.labels[host]?;
        if !self.passing[self.filter[at]].has(host) {
            return None;
        }
        if group.by_host {
            return Some(Stand::Host);
        }
        sets.get(labels).get(&group.key).and_then(|allowed| allowed.single().copied()).map(Stand::Domain)
    }

    /// Whether no machine but `leaving` makes the domain known.
    pub(crate) fn known_only_by(&self, at: usize, val: Val, leaving: u32) -> bool {
        self.known_by[at].get(&val).is_none_or(|known| *known <= leaving)
    }

    pub(crate) fn offered(&self, host: usize) -> bool {
        self.offered[host]
    }
}
