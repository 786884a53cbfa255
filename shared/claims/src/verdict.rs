//! The verdict of disruption on every node, stored so that `whittle explain` can show it at any time.

use crate::record::Record;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_units::{Timestamp, fnv1a};

/// Pages of verdicts in a cluster: few enough to read them all at once, enough that 5,000 nodes stay far below the size limit of
/// an item.
const PAGES: u64 = 16;
/// The most bytes of one verdict's text, and of all texts on a page. An item has 400 KB.
const TEXT_MAX: usize = 2048;
const TEXTS_MAX: usize = 200_000;

/// The verdict on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeVerdict {
    /// One word.
    pub code: String,
    /// One sentence.
    pub text: String,
    /// When it was last confirmed.
    pub at: Timestamp,
    /// When events were last published for it. Absent in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_at: Option<Timestamp>,
}

/// Verdicts on some of a cluster's nodes, by node name. Written by `consolidate` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictPage {
    pub page: u8,
    pub verdicts: BTreeMap<String, NodeVerdict>,
}

impl VerdictPage {
    /// A page without verdicts.
    pub const fn empty(page: u8) -> Self {
        Self { page, verdicts: BTreeMap::new() }
    }
    /// The most bytes of each text on a page of so many verdicts. Texts name pods, budgets and labels, of which users may make any number,
    /// and a page that is too long would not be stored at all. Always a power of two, so that texts are not cut anew whenever a node comes
    /// or goes.
    #[must_use]
    pub fn text_max(verdicts: usize) -> usize {
        let share = TEXTS_MAX / verdicts.max(1);
        1 << share.clamp(1, TEXT_MAX).ilog2()
    }
    /// The page of a node's verdict.
    pub fn page_of(node: &str) -> u8 {
        u8::try_from(fnv1a(node) % PAGES).unwrap_or(0)
    }
}

impl Record for VerdictPage {
    const KIND: &'static str = "verdict";
    fn name(&self) -> String {
        format!("page-{:02}", self.page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_page_together_are_far_below_the_size_of_an_item() {
        assert_eq!([0, 1, 97, 98, 313, 625].map(VerdictPage::text_max), [2048, 2048, 2048, 1024, 512, 256]);
        for verdicts in 1..5000 {
            assert!(verdicts * VerdictPage::text_max(verdicts) <= TEXTS_MAX, "{verdicts}");
        }
    }
}
