//! What is expected on existing machines: pods that are about to be bound to them, and capacity reserved for buffers.

use crate::record::Record;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_units::{SignedDuration, Timestamp};

/// How long a planned pod may take to be bound to an existing machine (scheduling 2): twice the longest batch.
pub const NOMINATION: SignedDuration = SignedDuration::from_secs(20);
/// How long a machine is kept for pods that still run on a node being drained: a budget may block their eviction, and the next
/// run that expects them comes with the tick.
pub const HELD_BACK: SignedDuration = SignedDuration::from_secs(75);
/// Machines on one page: some 60 bytes each, far below the size limit of an item.
const PAGE: usize = 4000;

/// What the latest planning run expects on one machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Expectation {
    /// Real pods are about to be bound: it is not disrupted before this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nominated_until: Option<Timestamp>,
    /// Number of capacity buffer pods on it: it is not empty while there are any.
    #[serde(skip_serializing_if = "is_zero")]
    pub buffer_pods: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Expectations on a cluster's machines, by the NodeClaim's name, or the Node's if there is no claim. Written by `schedule`
/// alone, in pages of bounded size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExpectedPage {
    pub page: u16,
    pub machines: BTreeMap<String, Expectation>,
}

impl ExpectedPage {
    /// The expectations of all pages.
    pub fn joined(pages: impl IntoIterator<Item = Self>) -> BTreeMap<String, Expectation> {
        pages.into_iter().flat_map(|page| page.machines).collect()
    }

    /// Splits expectations into pages.
    pub fn of(all: BTreeMap<String, Expectation>) -> Vec<Self> {
        let mut pages: Vec<Self> = Vec::new();
        for (n, entry) in all.into_iter().enumerate() {
            if n % PAGE == 0 {
                pages.push(Self { page: u16::try_from(n / PAGE).unwrap_or(u16::MAX), machines: BTreeMap::new() });
            }
            if let Some(page) = pages.last_mut() {
                page.machines.extend([entry]);
            }
        }
        pages
    }
}

/// The expectations after a run at `now`: machines in `nominated` are expected to take pods for that long, earlier nominations
/// last until they end, and the counts of buffer pods are replaced. Machines without expectations are left out.
pub fn expected_after(
    before: &BTreeMap<String, Expectation>,
    nominated: &BTreeMap<String, SignedDuration>,
    buffer_pods: &BTreeMap<String, u32>,
    now: Timestamp,
) -> BTreeMap<String, Expectation> {
    let mut out: BTreeMap<String, Expectation> = BTreeMap::new();
    for (machine, was) in before {
        if let Some(until) = was.nominated_until.filter(|until| now < *until) {
            out.entry(machine.clone()).or_default().nominated_until = Some(until);
        }
    }
    for (machine, span) in nominated {
        let until = now.checked_add(*span).unwrap_or(Timestamp::MAX);
        let expected = out.entry(machine.clone()).or_default();
        expected.nominated_until = expected.nominated_until.max(Some(until));
    }
    for (machine, count) in buffer_pods.iter().filter(|(_, count)| **count > 0) {
        out.entry(machine.clone()).or_default().buffer_pods = *count;
    }
    out
}

impl Record for ExpectedPage {
    const KIND: &'static str = "expected";
    fn name(&self) -> String {
        format!("page-{:02}", self.page)
    }
    fn expires_at(&self) -> Option<Timestamp> {
        // Counts of buffer pods are valid until the next run replaces them.
        let lasting = self.machines.values().any(|expected| expected.buffer_pods > 0);
        if lasting { None } else { self.machines.values().filter_map(|expected| expected.nominated_until).max() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::at;

    fn names(list: &[&str]) -> BTreeMap<String, SignedDuration> {
        list.iter().map(|name| ((*name).to_owned(), NOMINATION)).collect()
    }

    #[test]
    fn a_nomination_expires_after_twenty_seconds_and_is_renewed_by_each_run() {
        let first = expected_after(&BTreeMap::new(), &names(&["a", "b"]), &BTreeMap::new(), at(0));
        assert_eq!(first["a"].nominated_until, Some(at(20)));
        let second = expected_after(&first, &names(&["b"]), &BTreeMap::new(), at(15));
        assert_eq!((second["a"].nominated_until, second["b"].nominated_until), (Some(at(20)), Some(at(35))));
        let third = expected_after(&second, &BTreeMap::new(), &BTreeMap::new(), at(20));
        assert_eq!(third.keys().collect::<Vec<_>>(), ["b"], "expired nominations are dropped");
    }

    #[test]
    fn counts_of_buffer_pods_are_replaced_and_nominate_no_machine() {
        let counts = |pairs: &[(&str, u32)]| pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect::<BTreeMap<_, _>>();
        let first = expected_after(&BTreeMap::new(), &BTreeMap::new(), &counts(&[("a", 2), ("b", 0)]), at(0));
        assert_eq!(first, BTreeMap::from([("a".to_owned(), Expectation { nominated_until: None, buffer_pods: 2 })]));
        assert!(expected_after(&first, &BTreeMap::new(), &BTreeMap::new(), at(1)).is_empty());
    }

    #[test]
    fn pages_contain_all_machines_and_are_bounded() {
        let many: BTreeMap<String, SignedDuration> = (0..9000).map(|n| (format!("default-{n:05}"), NOMINATION)).collect();
        let all = expected_after(&BTreeMap::new(), &many, &BTreeMap::new(), at(0));
        let pages = ExpectedPage::of(all.clone());
        assert_eq!(pages.iter().map(Record::name).collect::<Vec<_>>(), ["page-00", "page-01", "page-02"]);
        for page in &pages {
            assert!(serde_json::to_string(page).unwrap().len() < 350_000);
            assert_eq!(page.expires_at(), Some(at(20)));
        }
        assert_eq!(ExpectedPage::joined(pages), all);
    }

    #[test]
    fn a_page_with_buffer_pods_does_not_expire() {
        let all = expected_after(&BTreeMap::new(), &names(&["a"]), &BTreeMap::from([("b".to_owned(), 1)]), at(0));
        assert_eq!(ExpectedPage::of(all)[0].expires_at(), None);
    }
}
