//! Spread, affinity and anti-affinity as one mechanism: a group counts pods per domain of a label key and determines the
//! domains that a pod may use.

use super::ids::{GroupId, HostId, IdVec, Key, SetId, TaintsId, TolerationId};
use super::intern::{Names, Set, Sets, Val, Vals};
use super::pod::Relaxation;
use super::selectors::Selected;
use super::taints::ToleranceTable;
use super::tally::Tally;
use std::rc::Rc;
use whittle_model::requirements::Allowed;

/// What a group counts and which domains it allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GroupKind {
    /// Counts selected pods; allows the domains with the lowest counts, within the skew.
    Spread { max_skew: i64, min_domains: Option<u32> },
    /// Counts selected pods; allows domains with pods.
    Affinity,
    /// Counts selected pods; allows empty domains.
    Anti,
    /// Inverse anti-affinity: counts the pods with the term, and applies to the pods that the term selects.
    Inverse,
}

/// Which nodes count for a spread constraint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Filter {
    /// A node counts if it satisfies one of these; empty: all nodes.
    pub(crate) any_of: Vec<SetId>,
    /// A node counts if it has all these labels: those of the pod's other hard constraints (scheduling 23). The hostname, which every node
    /// has, is not among them.
    pub(crate) labels: Vec<Key>,
    /// A node counts if these tolerations cover its taints.
    pub(crate) tolerations: Option<TolerationId>,
}

impl Filter {
    /// Whether a machine with requirements `set` and these taints counts. A new one gets the labels for which `gets_label` holds, whatever
    /// its requirements say so far.
    pub(crate) fn counts(
        &self,
        sets: &Sets,
        tolerance: &ToleranceTable,
        (set, taints): (SetId, TaintsId),
        gets_label: impl Fn(&Key) -> bool,
    ) -> bool {
        let reqs = sets.get(set);
        let by_labels =
            self.any_of.is_empty() || self.any_of.iter().any(|concerns| reqs.compatible(sets.get(*concerns), |_| false).is_ok());
        let has_label = |key: &Key| reqs.get(key).is_some_and(|allowed| allowed.members().is_some()) || gets_label(key);
        by_labels && self.labels.iter().all(has_label) && self.tolerations.is_none_or(|t| tolerance.tolerated(t, taints))
    }
}

/// One group, without its counts.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) kind: GroupKind,
    pub(crate) key: Key,
    /// The key is the hostname: domains are machines.
    pub(crate) by_host: bool,
    pub(crate) filter: Filter,
    /// The label sets of pods that the group's selector and namespaces select.
    pub(crate) selects: Selected,
    /// Whether pods that are terminating count, too: those that required anti-affinity selects.
    pub(crate) counts_terminating: bool,
    /// It was not matched, as all groups would take too long: it selects nothing, and who requires it gets no place.
    pub(crate) left_aside: bool,
}

impl Group {
    /// Whether it is about required anti-affinity.
    pub(crate) fn keeps_apart(&self) -> bool {
        match self.kind {
            GroupKind::Inverse => true,
            GroupKind::Anti => self.counts_terminating,
            GroupKind::Spread { .. } | GroupKind::Affinity => false,
        }
    }
}

/// Counts of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Known domains and their counts, ordered by name.
    pub(crate) domains: Vec<(Val, u32)>,
    /// Known domains in which there are existing machines that count, with pods or without.
    pub(crate) occupied: Rc<[Val]>,
    /// By machine, for groups by host.
    pub(crate) hosts: Tally,
}

impl Counts {
    /// Removes one pod from a domain.
    pub(crate) fn take(&mut self, val: Val) {
        let Some((_, count)) = self.domains.iter_mut().find(|(v, n)| *v == val && *n > 0) else { return };
        *count -= 1;
    }

    /// Forgets a domain, unless pods are counted in it.
    pub(crate) fn forget(&mut self, val: Val) {
        self.domains.retain(|(v, n)| *v != val || *n > 0);
    }

    /// Takes the machines of a domain away.
    pub(crate) fn vacate(&mut self, val: Val) {
        if self.occupied.contains(&val) {
            self.occupied = self.occupied.iter().copied().filter(|known| *known != val).collect();
        }
    }

    /// Makes `val` a known domain and returns its position.
    pub(crate) fn ensure_domain(&mut self, val: Val, names: &Names) -> usize {
        if let Some(at) = self.domains.iter().position(|(v, _)| *v == val) {
            return at;
        }
        let name = names.val_name(val);
        let at = self.domains.partition_point(|(v, _)| names.val_name(*v) < name);
        self.domains.insert(at, (val, 0));
        at
    }

    pub(crate) fn add(&mut self, val: Val, by: u32, names: &Names) {
        let at = self.ensure_domain(val, names);
        self.domains[at].1 += by;
    }
}

/// Where a pod would go, as far as topology is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TopologyTarget {
    /// `None` for a machine that would be new.
    pub(crate) host: Option<HostId>,
    /// Its requirements merged with the pod's.
    pub(crate) set: SetId,
}

/// The group that refuses a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) group: GroupId,
    /// Whether the refusal holds for the rest of the pass, whatever else is placed.
    pub(crate) permanent: bool,
}

/// The domains that the groups of one key allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AllowedDomains {
    pub(crate) key: Key,
    /// In order of preference if one must be picked, else all that are allowed.
    pub(crate) vals: Vec<Val>,
    /// Whether one must be picked.
    pub(crate) pick: bool,
    /// How many of the first are equally good.
    pub(crate) ties: usize,
}

/// The domains that a group allows, for a key other than the hostname.
enum Answer {
    /// All of these.
    All(Vec<Val>),
    /// One of these, ordered by the number.
    One(Vec<(u32, Val)>),
}

/// Groups and their counts, for one check.
pub(crate) struct TopologyQuery<'a> {
    pub(crate) groups: &'a IdVec<GroupId, Group>,
    pub(crate) counts: &'a IdVec<GroupId, Counts>,
    pub(crate) sets: &'a Sets,
}

impl TopologyQuery<'_> {
    /// Checks all groups that concern `relaxation` on `target`; fills `allowed_domains` with what they allow per key.
    pub(crate) fn check(
        &self,
        relaxation: &Relaxation,
        target: TopologyTarget,
        allowed_domains: &mut Vec<AllowedDomains>,
    ) -> Result<(), Refused> {
        allowed_domains.clear();
        for &id in relaxation.owned.iter().chain(&relaxation.repelled_by) {
            let group = &self.groups[id];
            if group.by_host {
                self.check_host(id, relaxation, target)?;
            }
        }
        for &id in relaxation.owned.iter().chain(&relaxation.repelled_by) {
            let group = &self.groups[id];
            if !group.by_host {
                self.check_key(id, relaxation, target, allowed_domains)?;
            }
        }
        Ok(())
    }

    fn check_host(&self, id: GroupId, relaxation: &Relaxation, target: TopologyTarget) -> Result<(), Refused> {
        let group = &self.groups[id];
        let counts = &self.counts[id];
        let count = target.host.map_or(0, |host| counts.hosts.of(host));
        let selects = group.selects.has(relaxation.labels);
        let allowed = match group.kind {
            GroupKind::Spread { max_skew, .. } => i64::from(count) + i64::from(selects) <= max_skew,
            GroupKind::Affinity => count > 0 || (selects && counts.hosts.populated() == 0),
            GroupKind::Anti | GroupKind::Inverse => count == 0,
        };
        if allowed { Ok(()) } else { Err(Refused { group: id, permanent: group.kind != GroupKind::Affinity }) }
    }

    fn check_key(
        &self,
        id: GroupId,
        relaxation: &Relaxation,
        target: TopologyTarget,
        allowed_domains: &mut Vec<AllowedDomains>,
    ) -> Result<(), Refused> {
        let group = &self.groups[id];
        let answer = self.answer(id, relaxation, self.sets.get(target.set));
        let shrinks = |group: &Group| matches!(group.kind, GroupKind::Anti | GroupKind::Inverse);
        let refused = Refused { group: id, permanent: shrinks(group) };
        match allowed_domains.iter_mut().find(|domains| domains.key == group.key) {
            None => {
                let (vals, pick, ties): (Vec<Val>, _, _) = match answer {
                    Answer::All(vals) => (vals, false, 1),
                    Answer::One(vals) => {
                        let ties = vals.iter().take_while(|(n, _)| *n == vals[0].0).count();
                        (vals.into_iter().map(|(_, v)| v).collect(), true, ties)
                    }
                };
                if vals.is_empty() {
                    return Err(refused);
                }
                allowed_domains.push(AllowedDomains { key: group.key, vals, pick, ties });
            }
            Some(domains) => {
                match answer {
                    Answer::All(vals) => domains.vals.retain(|v| vals.contains(v)),
                    Answer::One(vals) => {
                        let mut both: Vec<(usize, u32, Val)> = Vec::new();
                        for (at, val) in domains.vals.iter().enumerate() {
                            if let Some((n, _)) = vals.iter().find(|(_, v)| v == val) {
                                both.push((if domains.pick { at } else { 0 }, *n, *val));
                            }
                        }
                        both.sort_by_key(|(at, n, _)| (*at, *n));
                        domains.vals = both.into_iter().map(|(_, _, v)| v).collect();
                        domains.pick = true;
                        domains.ties = 1;
                    }
                }
                if domains.vals.is_empty() {
                    // The domains that spread and affinity allow may grow with every placed pod.
                    let mut of_key = relaxation.owned.iter().map(|id| &self.groups[*id]).filter(|other| other.key == group.key);
                    return Err(Refused { permanent: refused.permanent && of_key.all(shrinks), ..refused });
                }
            }
        }
        Ok(())
    }

    /// The domains that the group allows `relaxation` on a node with requirements `node`.
    fn answer(&self, id: GroupId, relaxation: &Relaxation, node: &Set) -> Answer {
        let group = &self.groups[id];
        let counts = &self.counts[id];
        let pod_domains = self.sets.get(relaxation.strict).get(&group.key);
        let node_domains = node.get(&group.key);
        let pod_may = |v: &Val| pod_domains.is_none_or(|d| d.has(v));
        let node_may = |v: &Val| node_domains.is_none_or(|d| d.has(v));
        let selects = group.selects.has(relaxation.labels);
        match group.kind {
            GroupKind::Spread { max_skew, min_domains } => {
                let allowed = || counts.domains.iter().filter(|(v, n)| pod_may(v) || self.bounds_elsewhere(id, *v, *n));
                let mut min = allowed().map(|(_, n)| *n).min().unwrap_or(u32::MAX);
                if min_domains.is_some_and(|wanted| allowed().count() < wanted as usize) {
                    min = 0;
                }
                let within = |n: u32| i64::from(n) + i64::from(selects) - i64::from(min) <= max_skew;
                let mut vals: Vec<(u32, Val)> =
                    counts.domains.iter().filter(|(v, n)| node_may(v) && within(*n)).map(|(v, n)| (*n, *v)).collect();
                // Stable: domains are ordered by name, so equal counts stay in that order.
                vals.sort_by_key(|(n, _)| *n);
                Answer::One(vals)
            }
            GroupKind::Affinity => {
                let here: Vec<Val> = counts.domains.iter().filter(|(v, n)| *n > 0 && pod_may(v) && node_may(v)).map(|(v, _)| *v).collect();
                if !here.is_empty() {
                    return Answer::All(here);
                }
                // The first of its kind may start anywhere. Where its kind is out of its reach, no pod starts anew (scheduling 21).
                let is_first = selects && !self.is_populated(id) && !self.has_kin(id, relaxation);
                if !is_first {
                    return Answer::All(Vec::new());
                }
                Answer::One(counts.domains.iter().filter(|(v, _)| pod_may(v) && node_may(v)).map(|(v, _)| (0, *v)).collect())
            }
            GroupKind::Anti => {
                Answer::All(counts.domains.iter().filter(|(v, n)| *n == 0 && pod_may(v) && node_may(v)).map(|(v, _)| *v).collect())
            }
            GroupKind::Inverse => {
                let mut vals: Vec<Val> =
                    counts.domains.iter().filter(|(v, n)| *n == 0 && pod_may(v) && node_may(v)).map(|(v, _)| *v).collect();
                // A domain that the group does not know is empty.
                for v in node_domains.and_then(Allowed::members).unwrap_or_default() {
                    if pod_may(v) && !counts.domains.iter().any(|(known, _)| known == v) {
                        vals.push(*v);
                    }
                }
                Answer::All(vals)
            }
        }
    }

    /// Whether a group counts pods in some domain.
    fn is_populated(&self, id: GroupId) -> bool {
        self.counts[id].domains.iter().any(|(_, n)| *n > 0)
    }

    /// Whether pods that all of the pod's required terms select are in a domain of any of their keys: then it is not the first of its kind,
    /// though their nodes may lack the others. Hosts say nothing here: on which a pod is, is known before its other domains are.
    fn has_kin(&self, id: GroupId, relaxation: &Relaxation) -> bool {
        relaxation.near.contains(&id) && relaxation.near.iter().any(|other| !self.groups[*other].by_host && self.is_populated(*other))
    }

    /// Whether a domain with `count` pods bounds the spread of pods that may not go there now, as for kube-scheduler (scheduling 6):
    /// machines are in it, and it suits another of their alternatives, or where they may go does not matter.
    fn bounds_elsewhere(&self, id: GroupId, val: Val, count: u32) -> bool {
        let group = &self.groups[id];
        let alternatives = &group.filter.any_of;
        let suits = |set: &SetId| self.sets.get(*set).get(&group.key).is_none_or(|allowed: &Vals| allowed.has(&val));
        (count > 0 || self.counts[id].occupied.contains(&val)) && (alternatives.is_empty() || alternatives.iter().any(suits))
    }

    /// Whether some group allows no domain of its key on machines with these requirements. The pod's own requirements are
    /// ignored, so that `true` is certain and `false` is not.
    pub(crate) fn is_closed(&self, relaxation: &Relaxation, set: SetId) -> bool {
        let node = self.sets.get(set);
        // Inverse anti-affinity allows unknown domains, and the pod's own requirements may name one.
        let open =
            |group: &Group| group.kind == GroupKind::Inverse && node.get(&group.key).is_none_or(|allowed| allowed.members().is_none());
        let concerns = |id: &&GroupId| !self.groups[**id].by_host && !open(&self.groups[**id]);
        relaxation.owned.iter().chain(&relaxation.repelled_by).filter(concerns).any(|id| match self.answer(*id, relaxation, node) {
            Answer::All(vals) => vals.is_empty(),
            Answer::One(vals) => vals.is_empty(),
        })
    }

    /// Whether no machine at all, existing or new, can satisfy the groups of `relaxation`: a cheap test before checking each.
    pub(crate) fn is_impossible(&self, relaxation: &Relaxation) -> bool {
        relaxation.owned.iter().any(|&id| {
            let group = &self.groups[id];
            let counts = &self.counts[id];
            let pod_domains = self.sets.get(relaxation.strict).get(&group.key);
            let may = |v: &Val| pod_domains.is_none_or(|d: &Vals| d.has(v));
            let selects = group.selects.has(relaxation.labels);
            match group.kind {
                GroupKind::Anti if !group.by_host => !counts.domains.iter().any(|(v, n)| *n == 0 && may(v)),
                GroupKind::Affinity if group.by_host => counts.hosts.populated() == 0 && !selects,
                GroupKind::Affinity => {
                    let mut populated = counts.domains.iter().filter(|(_, n)| *n > 0).peekable();
                    (!selects || populated.peek().is_some()) && !populated.any(|(v, _)| may(v))
                }
                _ => false,
            }
        })
    }
}
