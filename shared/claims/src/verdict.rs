//! The verdict of disruption on every node, stored so that `whittle explain` can show it at any time.

use crate::record::Record;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_units::{Timestamp, fnv1a};

/// Pages of verdicts in a cluster: few enough to read them all at once, enough that 5,000 nodes stay far below the size limit of
/// an item.
const PAGES: u64 = 16;

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
