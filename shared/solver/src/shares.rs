//! Which namespaces' rules about other pods (affinity, anti-affinity, spread) are evaluated where evaluating all would take too long.
//!
//! A selector that names a value which few pods have is matched against those alone. One that names none, or one that all pods have, is
//! matched against every label set, and with thousands of both the pods of one tenant would take the time of all others (ADR 0084).

use super::ids::GroupId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The time for matching selectors, as a number of selectors that are each matched against every label set.
pub(crate) const SCANS_MAX: usize = 500;
/// Added to the number of label sets, so that a small cluster may have more selectors than [`SCANS_MAX`].
const SETS_MIN: usize = 1_000;

/// A group that is to be matched, for the pods of one namespace that have it.
pub(crate) struct ToMatch<'g> {
    pub(crate) group: GroupId,
    pub(crate) namespace: &'g str,
    /// Whether its pod already has a node, so that kube-scheduler enforces the rule now.
    pub(crate) runs: bool,
    /// How many label sets have to be matched.
    pub(crate) matches: usize,
}

/// The groups that are not evaluated, out of all that would have to be matched against `sets` label sets. All namespaces have equal shares
/// of the time, and what one does not use is divided among the others. Within a namespace, groups of running pods come first, then those
/// with the fewest matches, then the first in the list. A group that several namespaces have is charged to one of them only, so that
/// nobody can crowd out the rules of others by repeating them.
pub(crate) fn beyond(all: Vec<ToMatch<'_>>, sets: usize) -> BTreeSet<GroupId> {
    struct Share<'g> {
        wanted: usize,
        groups: Vec<ToMatch<'g>>,
    }
    let mut by_namespace: BTreeMap<&str, Share<'_>> = BTreeMap::new();
    for one in all {
        let share = by_namespace.entry(one.namespace).or_insert_with(|| Share { wanted: 0, groups: Vec::new() });
        share.wanted += one.matches;
        share.groups.push(one);
    }
    let mut shares: Vec<Share<'_>> = by_namespace.into_values().collect();
    shares.sort_by_key(|share| share.wanted);
    let (mut left, mut namespaces) = (most(sets), shares.len());
    let mut out = BTreeSet::new();
    let mut taken: BTreeSet<GroupId> = BTreeSet::new();
    for Share { mut groups, .. } in shares {
        let share = left / namespaces;
        groups.sort_by_key(|one| (Reverse(one.runs), one.matches));
        let mut used = 0;
        for one in groups {
            if taken.contains(&one.group) {
                continue;
            }
            if used + one.matches > share {
                out.insert(one.group);
            } else {
                used += one.matches;
                taken.insert(one.group);
            }
        }
        left -= used;
        namespaces -= 1;
    }
    &out - &taken
}

/// How many matches all groups together may take with `sets` label sets.
pub(crate) fn most(sets: usize) -> usize {
    SCANS_MAX * (sets + SETS_MIN)
}

#[cfg(test)]
mod tests {
    use super::super::ids::Id as _;
    use super::*;

    /// The groups that are left aside, by their position: of a namespace each, of a running pod or not, with what they take.
    #[track_caller]
    fn check(wanted: &[(&str, bool, usize)], expected: &[usize]) {
        let mut all = Vec::new();
        for (n, (namespace, runs, matches)) in wanted.iter().enumerate() {
            all.push(ToMatch { group: GroupId::at(n), namespace, runs: *runs, matches: *matches });
        }
        let out: Vec<usize> = beyond(all, 0).into_iter().map(|id| id.position()).collect();
        assert_eq!(out, expected);
    }

    #[test]
    fn a_namespace_takes_its_share_and_what_others_leave() {
        let all = most(0);
        check(&[("a", false, all)], &[]);
        check(&[("a", false, all), ("b", false, 1)], &[0]);
        check(&[("a", false, all - 1), ("b", false, 1)], &[]);
        check(&[("a", false, all / 2 + 1), ("b", false, all / 2)], &[0]);
        check(&[("b", false, all), ("a", false, all)], &[1]);
    }

    #[test]
    fn rules_of_running_pods_and_those_that_take_little_come_first() {
        let half = most(0) / 2;
        check(&[("a", false, half + 1), ("a", false, half), ("a", false, 1)], &[0]);
        check(&[("a", false, half), ("a", false, 1), ("a", true, half + 1)], &[0]);
        check(&[("a", false, half), ("a", false, half), ("a", false, half)], &[2]);
    }

    #[test]
    fn a_rule_of_several_namespaces_is_looked_at_if_one_of_them_has_room() {
        let matches = most(0) / 5 * 2;
        let of = |group: usize, namespace: &'static str| ToMatch { group: GroupId::at(group), namespace, runs: false, matches };
        let left_aside = |all: Vec<ToMatch<'_>>| beyond(all, 0).into_iter().map(|id| id.position()).collect::<Vec<usize>>();
        assert_eq!(left_aside(vec![of(0, "a"), of(1, "a"), of(2, "a")]), [2]);
        // It takes room once.
        assert_eq!(left_aside(vec![of(0, "a"), of(1, "a"), of(2, "a"), of(2, "b")]), [1]);
        assert_eq!(left_aside(vec![of(0, "a"), of(0, "b"), of(1, "b")]), Vec::<usize>::new());
    }
}
