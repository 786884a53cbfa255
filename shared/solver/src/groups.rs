//! Collects topology groups from pods, and counts the pods that the cluster already has in them.

use super::hash::Map;
use super::ids::{GroupId, IdVec, Key, LabelsId, TolerationId};
use super::intern::Names;
use super::meter::Meter;
use super::selectors::{LabelIndex, LabelSet, Scope, Selected};
use super::shares::{self, ToMatch};
use super::topology::{Filter, Group, GroupKind};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use whittle_api::k8s::{Namespace, PodAffinityTerm, TopologySpreadConstraint};
use whittle_api::{LabelSelector, SelectorRequirement, labels};

/// Which pods a constraint selects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodSelection {
    scope: Scope,
    /// `None`: no pod. Shared by all terms of a pod's required affinity.
    selector: Option<Rc<LabelSelector>>,
    /// Whether it selects terminating pods, too.
    terminating: bool,
}

impl PodSelection {
    /// The pods that one term of a pod in `namespace` selects.
    pub(crate) fn of(term: &PodAffinityTerm, namespace: &str, namespaces: &[Namespace]) -> Self {
        let scope = match &term.namespace_selector {
            None if term.namespaces.is_empty() => Scope::Only(Rc::new(BTreeSet::from([namespace.to_owned()]))),
            None => Scope::Only(Rc::new(term.namespaces.iter().cloned().collect())),
            Some(selector) if *selector == LabelSelector::default() => Scope::All,
            Some(selector) => {
                let named = namespaces.iter().filter(|n| selector.matches(&n.metadata.labels)).map(|n| n.metadata.name.clone());
                Scope::Only(Rc::new(named.chain(term.namespaces.iter().cloned()).collect()))
            }
        };
        Self { scope, selector: term.label_selector.clone().map(|selector| Rc::new(canonical(selector))), terminating: false }
    }

    /// The same, with pods that are terminating.
    pub(crate) fn with_terminating(self) -> Self {
        Self { terminating: true, ..self }
    }

    /// Whether it selects a pod of `namespace` with these labels.
    pub(crate) fn selects(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        let is_in_scope = match &self.scope {
            Scope::All => true,
            Scope::Only(namespaces) => namespaces.contains(namespace),
        };
        is_in_scope && self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }

    /// The pods that every term of a pod's required affinity selects: for kube-scheduler, no others count for any of them
    /// (scheduling 21). `None` without terms.
    pub(crate) fn of_all(terms: &[PodAffinityTerm], namespace: &str, namespaces: &[Namespace]) -> Option<Self> {
        let (first, others) = terms.split_first()?;
        let mut all = Self::of(first, namespace, namespaces);
        let mut joint = all.selector.take().map(Rc::unwrap_or_clone);
        for Self { scope, selector, .. } in others.iter().map(|term| Self::of(term, namespace, namespaces)) {
            all.scope = match (all.scope, scope) {
                (Scope::All, only) | (only, Scope::All) => only,
                (Scope::Only(one), Scope::Only(other)) => Scope::Only(Rc::new(one.intersection(&other).cloned().collect())),
            };
            joint = joint.zip(selector).map(|(mut joint, more)| {
                joint.match_expressions.extend_from_slice(&more.match_expressions);
                joint
            });
        }
        all.selector = joint.map(|joint| Rc::new(canonical(joint)));
        Some(all)
    }
}

/// What identifies a group: equal constraints share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    kind: GroupKind,
    key: Key,
    selects: PodSelection,
    filter: Filter,
    /// Restricts the domains to those that these tolerations can reach.
    reach: Option<TolerationId>,
}

/// Who has a constraint.
#[derive(Debug)]
struct Owner {
    /// A group that pods of several namespaces have is looked at if one of these has room for it.
    namespaces: BTreeSet<String>,
    /// Whether it is a pod that stays on its node.
    runs: bool,
}

/// All groups of a problem while they are being collected.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    identities: IdVec<GroupId, Identity>,
    id_of: Map<Identity, GroupId>,
    owners: IdVec<GroupId, Owner>,
    /// The sets of namespaces that groups look at, each once.
    scopes: BTreeSet<Rc<BTreeSet<String>>>,
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

    fn id(&mut self, mut identity: Identity, namespace: &str) -> GroupId {
        if let Some(&id) = self.id_of.get(&identity) {
            let owners = &mut self.owners[id].namespaces;
            if !owners.contains(namespace) {
                owners.insert(namespace.to_owned());
            }
            return id;
        }
        if let Scope::Only(namespaces) = &mut identity.selects.scope {
            match self.scopes.get(namespaces) {
                Some(known) => *namespaces = Rc::clone(known),
                None => _ = self.scopes.insert(Rc::clone(namespaces)),
            }
        }
        let id = self.identities.push(identity.clone());
        self.owners.push(Owner { namespaces: BTreeSet::from([namespace.to_owned()]), runs: false });
        self.id_of.insert(identity, id);
        id
    }

    /// The group of a spread constraint of a pod with `pod_labels`. `honored` is which nodes count if both node inclusion policies of the
    /// constraint are `Honor`, and `reach` are the pod's tolerations.
    pub(crate) fn spread(
        &mut self,
        constraint: &TopologySpreadConstraint,
        namespace: &str,
        pod_labels: &BTreeMap<String, String>,
        (honored, reach): (Filter, TolerationId),
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
        // Kube-scheduler counts no pod for an empty selector, though it selects every pod.
        let selector = selector.filter(|selector| *selector != LabelSelector::default());
        let honor_affinity = constraint.node_affinity_policy.as_deref() != Some("Ignore");
        let honor_taints = honors_taints(constraint);
        let Filter { any_of, labels, tolerations } = honored;
        let tolerations = tolerations.filter(|_| honor_taints);
        let kind = GroupKind::Spread {
            max_skew: i64::from(constraint.max_skew),
            min_domains: constraint.min_domains.and_then(|n| u32::try_from(n).ok()),
        };
        let identity = Identity {
            kind,
            key: names.key(&constraint.topology_key),
            selects: PodSelection {
                scope: Scope::Only(Rc::new(BTreeSet::from([namespace.to_owned()]))),
                selector: selector.map(|selector| Rc::new(canonical(selector))),
                terminating: false,
            },
            filter: Filter { any_of: if honor_affinity { any_of } else { Vec::new() }, labels, tolerations },
            reach: honor_taints.then_some(reach),
        };
        self.id(identity, namespace)
    }

    /// The group of an affinity or anti-affinity term of a pod in `namespace` with this topology key; `reach` if some NodePool has taints.
    pub(crate) fn term(
        &mut self,
        kind: GroupKind,
        (namespace, topology_key): (&str, &str),
        selects: PodSelection,
        reach: Option<TolerationId>,
        names: &mut Names,
    ) -> GroupId {
        self.id(Identity { kind, key: names.key(topology_key), selects, filter: Filter::default(), reach }, namespace)
    }

    /// Records that a pod that stays on its node has the constraint.
    pub(crate) fn runs(&mut self, id: GroupId) {
        self.owners[id].runs = true;
    }

    /// Determines which label sets each group selects. One that is left aside selects none.
    pub(crate) fn finish(&self, names: &Names, meter: &Meter) -> IdVec<GroupId, Group> {
        let selectors = self.identities.iter().filter_map(|identity| identity.selects.selector.as_deref());
        let keys = selectors.flat_map(|s| s.match_labels.keys().chain(s.match_expressions.iter().map(|e| &e.key)));
        let index = LabelIndex::of(&self.label_sets, &keys.map(String::as_str).collect(), meter);
        let hostname = names.known_key(labels::HOSTNAME);
        let aside = self.left_aside(&index, names);
        let group = |(id, identity): (GroupId, &Identity)| Group {
            kind: identity.kind,
            key: identity.key,
            by_host: Some(identity.key) == hostname,
            filter: identity.filter.clone(),
            selects: if aside.contains(&id) {
                Selected::NONE
            } else {
                index.selected(identity.selects.selector.as_deref(), &identity.selects.scope)
            },
            counts_terminating: identity.selects.terminating,
            left_aside: aside.contains(&id),
        };
        self.identities.enumerate().map(group).collect()
    }

    /// The groups that are not matched, since all of them would take too long.
    fn left_aside(&self, index: &LabelIndex<'_>, names: &Names) -> BTreeSet<GroupId> {
        if self.identities.len() <= shares::SCANS_MAX {
            return BTreeSet::new();
        }
        let to_match = |(group, identity): (GroupId, &Identity)| {
            let matches = index.matches(identity.selects.selector.as_deref(), &identity.selects.scope);
            (group, matches)
        };
        let mut all: Vec<(GroupId, usize)> = self.identities.enumerate().map(to_match).collect();
        if all.iter().map(|(_, matches)| matches).sum::<usize>() <= shares::most(self.label_sets.len()) {
            return BTreeSet::new();
        }
        // By their content, so that the order of reading does not matter.
        all.sort_by_cached_key(|(id, _)| (&self.identities[*id].selects, names.key_name(self.identities[*id].key)));
        let owned = all.into_iter().flat_map(|(group, matches)| {
            let Owner { namespaces, runs } = &self.owners[group];
            namespaces.iter().map(move |namespace| ToMatch { group, namespace, runs: *runs, matches })
        });
        shares::beyond(owned.collect(), self.label_sets.len())
    }

    /// All groups in ascending order, except that inverse anti-affinity groups are ordered by their content. The group that a
    /// refusal names then does not depend on the order of reading, although a question about fewer pods has other numbers.
    pub(crate) fn sequence(&self, names: &Names) -> Vec<GroupId> {
        let mut out: Vec<GroupId> = self.identities.ids().collect();
        out.sort_by_cached_key(|id| {
            let identity = &self.identities[*id];
            (identity.kind == GroupKind::Inverse).then(|| (names.key_name(identity.key), &identity.selects))
        });
        out
    }

    /// The tolerations that restrict a group's domains.
    pub(crate) fn reach(&self, id: GroupId) -> Option<TolerationId> {
        self.identities[id].reach
    }
}

/// Whether only nodes count for a spread constraint whose taints the pod tolerates.
pub(crate) fn honors_taints(constraint: &TopologySpreadConstraint) -> bool {
    constraint.node_taints_policy.as_deref() == Some("Honor")
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn groups_that_look_at_equal_namespaces_have_one_list_of_them() {
        let namespaces = ["one", "two", "three"].map(|name| {
            let team = if name == "three" { "b" } else { "a" };
            serde_json::from_value::<Namespace>(json!({"metadata": {"name": name, "labels": {"team": team}}})).unwrap()
        });
        let (mut groups, mut names) = (Groups::default(), Names::default());
        for (app, team) in [("web", "a"), ("db", "a"), ("web", "b")] {
            let labelled = |key: &str, value: &str| json!({"matchLabels": {key: value}});
            let term = json!({"labelSelector": labelled("app", app), "namespaceSelector": labelled("team", team)});
            let selects = PodSelection::of(&serde_json::from_value(term).unwrap(), "one", &namespaces);
            groups.term(GroupKind::Anti, ("one", labels::ZONE), selects, None, &mut names);
        }
        let scopes: Vec<&Scope> = groups.identities.iter().map(|identity| &identity.selects.scope).collect();
        let [Scope::Only(web), Scope::Only(db), Scope::Only(other)] = scopes[..] else { panic!("{scopes:?}") };
        assert!(Rc::ptr_eq(web, db) && web.iter().eq(["one", "two"]), "{scopes:?}");
        assert!(other.iter().eq(["three"]), "{scopes:?}");
    }
}
