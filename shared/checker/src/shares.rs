//! Whose rules are left to kube-scheduler where all of them would take too long (scheduling 21).

use std::collections::{BTreeMap, BTreeSet};

/// With so many rules nothing is counted; more may take as long together as so many that are compared with every class of pods.
const RULES_MAX: usize = 500;
/// With fewer classes than this, more may be compared with all of them.
const CLASSES_MIN: usize = 1_000;

/// The namespaces whose rules are beyond an even share of the time, by what each rule is compared with.
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
