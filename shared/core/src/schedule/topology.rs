//! Spread, affinity and anti-affinity as one mechanism: a group counts pods per domain of a label key and says which
//! domains a pod may use.

use super::intern::{Key, Names, Set, SetId, Sets, Val, Vals};
use super::pod::{Form, TaintsId, TolerationId};
use super::problem::Problem;
use super::selecting::Selected;
use super::tally::Tally;
use crate::requirements::Allowed;

/// The number of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupId(pub(crate) u32);

/// What a group counts and how it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Counts selected pods; answers with the emptiest domain within the skew.
    Spread { max_skew: i64, min_domains: Option<u32> },
    /// Counts selected pods; answers with the populated domains.
    Affinity,
    /// Counts selected pods; answers with the empty domains.
    Anti,
    /// Counts the pods that repel; asked by the pods they repel.
    Inverse,
}

/// Which nodes count for a spread constraint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Filter {
    /// A node counts when it satisfies one of these; none listed means all nodes.
    pub(crate) any_of: Vec<SetId>,
    /// A node counts when these tolerations cover its taints.
    pub(crate) tolerations: Option<TolerationId>,
}

impl Filter {
    /// Whether a machine with requirements `set` and these taints counts.
    pub(crate) fn counts(&self, p: &Problem<'_>, set: SetId, taints: TaintsId) -> bool {
        let reqs = p.sets.get(set);
        let by_labels = self.any_of.is_empty() || self.any_of.iter().any(|asked| reqs.compatible(p.sets.get(*asked), |_| false).is_ok());
        by_labels && self.tolerations.is_none_or(|t| p.tolerated(t, taints))
    }
}

/// One group, without its counts.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
    /// The key is the host name: domains are machines.
    pub(crate) by_host: bool,
    pub(crate) filter: Filter,
    /// The label sets of pods that the group's selector and namespaces select.
    pub(crate) selects: Selected,
}

/// Counts of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Known domains and their counts, by name.
    pub(crate) domains: Vec<(Val, u32)>,
    /// By machine, for groups by host.
    pub(crate) hosts: Tally,
}

impl Counts {
    /// Takes back one pod of a domain.
    pub(crate) fn take(&mut self, val: Val) {
        let Some((_, count)) = self.domains.iter_mut().find(|(v, n)| *v == val && *n > 0) else { return };
        *count -= 1;
    }

    /// Forgets a domain in which nothing is counted.
    pub(crate) fn forget(&mut self, val: Val) {
        self.domains.retain(|(v, n)| *v != val || *n > 0);
    }

    /// Makes `val` a domain, with what it has counted so far.
    pub(crate) fn know(&mut self, val: Val, names: &Names) -> usize {
        if let Some(at) = self.domains.iter().position(|(v, _)| *v == val) {
            return at;
        }
        let name = names.val_name(val);
        let at = self.domains.partition_point(|(v, _)| names.val_name(*v) < name);
        self.domains.insert(at, (val, 0));
        at
    }

    pub(crate) fn add(&mut self, val: Val, by: u32, names: &Names) {
        let at = self.know(val, names);
        self.domains[at].1 += by;
    }
}

/// Where a pod is about to go, as far as topology sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    /// The machine's number, or nothing for one that would be new.
    pub(crate) host: Option<usize>,
    /// Its requirements with the pod's merged in.
    pub(crate) set: SetId,
}

/// Why topology refuses a spot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) group: GroupId,
    /// Whether the refusal stands for the rest of the pass, whatever else is placed.
    pub(crate) for_good: bool,
}

/// The domains that the groups of one key leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leave {
    pub(crate) key: Key,
    /// By preference when only one may be used, else all that may.
    pub(crate) vals: Vec<Val>,
    /// Whether one must be picked.
    pub(crate) pick: bool,
    /// How many of the first are as good as the first.
    pub(crate) ties: usize,
}

/// What a group answers about a key that is no host name.
enum Answer {
    /// Any of these.
    All(Vec<Val>),
    /// One of these; the number is the count that orders them.
    One(Vec<(u32, Val)>),
}

/// Groups and their counts, as one question sees them.
pub(crate) struct Asked<'a> {
    pub(crate) groups: &'a [Group],
    pub(crate) counts: &'a [Counts],
    pub(crate) sets: &'a Sets,
}

impl Asked<'_> {
    /// Asks all groups that concern `form` on `spot`; fills `leaves` with what they leave per key.
    pub(crate) fn ask(&self, form: &Form, spot: Spot, leaves: &mut Vec<Leave>) -> Result<(), Refused> {
        leaves.clear();
        for &id in form.owned.iter().chain(&form.repelled_by) {
            let group = &self.groups[id.0 as usize];
            if group.by_host {
                self.ask_host(id, form, spot)?;
            }
        }
        for &id in form.owned.iter().chain(&form.repelled_by) {
            let group = &self.groups[id.0 as usize];
            if !group.by_host {
                self.ask_key(id, form, spot, leaves)?;
            }
        }
        Ok(())
    }

    fn ask_host(&self, id: GroupId, form: &Form, spot: Spot) -> Result<(), Refused> {
        let group = &self.groups[id.0 as usize];
        let counts = &self.counts[id.0 as usize];
        let count = spot.host.map_or(0, |host| counts.hosts.of(host));
        let selects = group.selects.has(form.labels);
        let fine = match group.kind {
            Kind::Spread { max_skew, .. } => i64::from(count) + i64::from(selects) <= max_skew,
            Kind::Affinity => count > 0 || (selects && counts.hosts.populated() == 0),
            Kind::Anti | Kind::Inverse => count == 0,
        };
        if fine { Ok(()) } else { Err(Refused { group: id, for_good: group.kind != Kind::Affinity }) }
    }

    fn ask_key(&self, id: GroupId, form: &Form, spot: Spot, leaves: &mut Vec<Leave>) -> Result<(), Refused> {
        let group = &self.groups[id.0 as usize];
        let answer = self.answer(id, form, self.sets.get(spot.set));
        let shrinks = |group: &Group| matches!(group.kind, Kind::Anti | Kind::Inverse);
        let refused = Refused { group: id, for_good: shrinks(group) };
        match leaves.iter_mut().find(|leave| leave.key == group.key) {
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
                leaves.push(Leave { key: group.key, vals, pick, ties });
            }
            Some(leave) => {
                match answer {
                    Answer::All(vals) => leave.vals.retain(|v| vals.contains(v)),
                    Answer::One(vals) => {
                        let mut both: Vec<(usize, u32, Val)> = Vec::new();
                        for (at, val) in leave.vals.iter().enumerate() {
                            if let Some((n, _)) = vals.iter().find(|(_, v)| v == val) {
                                both.push((if leave.pick { at } else { 0 }, *n, *val));
                            }
                        }
                        both.sort_by_key(|(at, n, _)| (*at, *n));
                        leave.vals = both.into_iter().map(|(_, _, v)| v).collect();
                        leave.pick = true;
                        leave.ties = 1;
                    }
                }
                if leave.vals.is_empty() {
                    // What spread and affinity leave may grow with every pod that is placed.
                    let mut of_key = form.owned.iter().map(|id| &self.groups[id.0 as usize]).filter(|other| other.key == group.key);
                    return Err(Refused { for_good: refused.for_good && of_key.all(shrinks), ..refused });
                }
            }
        }
        Ok(())
    }

    /// The domains that the group leaves to `form` on a node with requirements `node`.
    fn answer(&self, id: GroupId, form: &Form, node: &Set) -> Answer {
        let group = &self.groups[id.0 as usize];
        let counts = &self.counts[id.0 as usize];
        let pod_domains = self.sets.get(form.strict).get(&group.key);
        let node_domains = node.get(&group.key);
        let pod_may = |v: &Val| pod_domains.is_none_or(|d| d.has(v));
        let node_may = |v: &Val| node_domains.is_none_or(|d| d.has(v));
        let selects = group.selects.has(form.labels);
        match group.kind {
            Kind::Spread { max_skew, min_domains } => {
                let allowed = || counts.domains.iter().filter(|(v, _)| pod_may(v));
                let mut min = allowed().map(|(_, n)| *n).min().unwrap_or(u32::MAX);
                if min_domains.is_some_and(|wanted| allowed().count() < wanted as usize) {
                    min = 0;
                }
                let within = |n: u32| i64::from(n) + i64::from(selects) - i64::from(min) <= max_skew;
                let mut vals: Vec<(u32, Val)> =
                    counts.domains.iter().filter(|(v, n)| node_may(v) && within(*n)).map(|(v, n)| (*n, *v)).collect();
                // Stable: domains are kept by name, so equal counts stay in that order.
                vals.sort_by_key(|(n, _)| *n);
                Answer::One(vals)
            }
            Kind::Affinity => {
                let here: Vec<Val> = counts.domains.iter().filter(|(v, n)| *n > 0 && pod_may(v) && node_may(v)).map(|(v, _)| *v).collect();
                if !here.is_empty() {
                    return Answer::All(here);
                }
                let reachable = counts.domains.iter().any(|(v, n)| *n > 0 && pod_may(v));
                if !selects || reachable {
                    return Answer::All(Vec::new());
                }
                Answer::One(counts.domains.iter().filter(|(v, _)| pod_may(v) && node_may(v)).map(|(v, _)| (0, *v)).collect())
            }
            Kind::Anti => {
                Answer::All(counts.domains.iter().filter(|(v, n)| *n == 0 && pod_may(v) && node_may(v)).map(|(v, _)| *v).collect())
            }
            Kind::Inverse => {
                let mut vals: Vec<Val> =
                    counts.domains.iter().filter(|(v, n)| *n == 0 && pod_may(v) && node_may(v)).map(|(v, _)| *v).collect();
                // A domain that the group has never heard of is empty.
                for v in node_domains.and_then(Allowed::members).unwrap_or_default() {
                    if pod_may(v) && !counts.domains.iter().any(|(known, _)| known == v) {
                        vals.push(*v);
                    }
                }
                Answer::All(vals)
            }
        }
    }

    /// Whether some group leaves no domain of its key on machines with these requirements. Asked without the pod's own
    /// requirements, so "no" is certain and "yes" is not.
    pub(crate) fn shut(&self, form: &Form, set: SetId) -> bool {
        let node = self.sets.get(set);
        // Who is repelled may go to domains that nobody has heard of, and the pod's own requirements may name one.
        let open = |group: &Group| group.kind == Kind::Inverse && node.get(&group.key).is_none_or(|allowed| allowed.members().is_none());
        let asked = |id: &&GroupId| !self.groups[id.0 as usize].by_host && !open(&self.groups[id.0 as usize]);
        form.owned.iter().chain(&form.repelled_by).filter(asked).any(|id| match self.answer(*id, form, node) {
            Answer::All(vals) => vals.is_empty(),
            Answer::One(vals) => vals.is_empty(),
        })
    }

    /// Whether no machine at all, old or new, can satisfy the groups of `form`: a quick "no" before looking at each.
    pub(crate) fn hopeless(&self, form: &Form) -> bool {
        form.owned.iter().any(|&id| {
            let group = &self.groups[id.0 as usize];
            let counts = &self.counts[id.0 as usize];
            let pod_domains = self.sets.get(form.strict).get(&group.key);
            let may = |v: &Val| pod_domains.is_none_or(|d: &Vals| d.has(v));
            let selects = group.selects.has(form.labels);
            match group.kind {
                Kind::Anti if !group.by_host => !counts.domains.iter().any(|(v, n)| *n == 0 && may(v)),
                Kind::Affinity if group.by_host => counts.hosts.populated() == 0 && !selects,
                Kind::Affinity => !selects && !counts.domains.iter().any(|(v, n)| *n > 0 && may(v)),
                _ => false,
            }
        })
    }
}
