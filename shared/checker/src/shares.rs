//! Which namespaces' rules are left to kube-scheduler where checking all of them would take too long (scheduling 21).

use std::collections::{BTreeMap, BTreeSet};

/// Up to this number of rules, all are checked. More may together take the time of this number that is compared with every class of pods.
const RULES_MAX: usize = 500;
/// Added to the number of classes, so that a small cluster may have more rules than [`RULES_MAX`].
const CLASSES_MIN: usize = 1_000;

/// The namespaces whose rules take more than an even share of the time; each rule is given as its namespace and the number of classes that
/// it is compared with.
pub(crate) fn beyond<'n>(rules: impl Iterator<Item = (&'n str, usize)>, namespaces: usize, classes: usize) -> BTreeSet<&'n str> {
    let (mut count, mut all) = (0, 0);
    let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
    for (namespace, matches) in rules {
        count += 1;
        all += matches;
        *wanted.entry(namespace).or_default() += matches;
    }
    let most = RULES_MAX * (classes + CLASSES_MIN);
    if count <= RULES_MAX || all <= most {
        return BTreeSet::new();
    }
    let share = most / namespaces.max(1);
    wanted.into_iter().filter(|(_, wanted)| *wanted > share).map(|(namespace, _)| namespace).collect()
}
