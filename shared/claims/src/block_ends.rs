//! When the capacity blocks end that machines run in, whatever the node classes select by now (lifecycle 10).

use crate::claim::Claim;
use crate::record::Record;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::labels;
use whittle_units::Timestamp;

/// What EC2 answered about the reservations that claims name. A class may select others since, or be gone: its record does not
/// tell. One record for each cluster, written by `refresh` alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockEnds {
    /// The last known end of each block, by id; `None` if EC2 has never shown a capacity block of this id.
    #[serde(default)]
    pub ends: BTreeMap<String, Option<Timestamp>>,
    pub looked_at: Timestamp,
}

impl Record for BlockEnds {
    const KIND: &'static str = "block-ends";
    fn name(&self) -> String {
        Self::NAME.to_owned()
    }
}

impl BlockEnds {
    /// The record's name: a cluster has one.
    pub const NAME: &'static str = "latest";
    /// The type of a reservation that is a capacity block.
    pub const CAPACITY_BLOCK: &'static str = "capacity-block";

    /// The reservation that a claim's machine runs in, if it may be a capacity block. A NodeClaim that was adopted may lack the
    /// label of the type; an ordinary reservation ends no machine.
    #[must_use]
    pub fn block_of(claim: &Claim) -> Option<&str> {
        let machine = claim.machine().filter(|_| !claim.is_ending())?;
        let kind = machine.labels.get(labels::RESERVATION_TYPE).map_or("", String::as_str);
        let id = machine.labels.get(labels::RESERVATION_ID)?;
        ["", Self::CAPACITY_BLOCK].contains(&kind).then_some(id.as_str())
    }

    /// The last known end of a block.
    #[must_use]
    pub fn end_of(&self, block: &str) -> Option<Timestamp> {
        self.ends.get(block).copied().flatten()
    }

    /// The record after EC2 was asked again. A block that EC2 no longer shows keeps its last known end. It is removed when that has passed
    /// and no claim names the block, so that the record stays small.
    #[must_use]
    pub fn after(known: Option<Self>, found: &BTreeMap<String, Option<Timestamp>>, named: &BTreeSet<&str>, now: Timestamp) -> Self {
        let mut ends = known.map(|known| known.ends).unwrap_or_default();
        for (id, end) in found {
            let last = ends.entry(id.clone()).or_default();
            *last = end.or(*last);
        }
        ends.retain(|id, end| named.contains(id.as_str()) || end.is_some_and(|end| end > now));
        Self { ends, looked_at: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{after, at, begun, default_spec, deletion, machine, planned};
    use crate::{DeletionReason, Event, step};

    fn launched(labels: &[(&str, &str)]) -> Claim {
        let mut reserved = machine("i-1");
        reserved.labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        after(&planned("default-1", default_spec()), &[begun("batch"), Event::FleetAnswered(reserved)], at(10))
    }

    #[test]
    fn a_claim_names_the_block_of_its_machine_until_it_ends() {
        let id = (labels::RESERVATION_ID, "cr-1");
        let of_type = |kind| launched(&[id, (labels::RESERVATION_TYPE, kind)]);
        assert_eq!(BlockEnds::block_of(&of_type("capacity-block")), Some("cr-1"));
        assert_eq!(BlockEnds::block_of(&launched(&[id])), Some("cr-1"), "adopted, without the label of the type");
        assert_eq!(BlockEnds::block_of(&of_type("default")), None);
        assert_eq!(BlockEnds::block_of(&launched(&[])), None);
        assert_eq!(BlockEnds::block_of(&planned("default-1", default_spec())), None);
        let requested = Event::DeletionRequested(deletion(DeletionReason::Requested, at(20)));
        assert_eq!(BlockEnds::block_of(&step(&of_type("capacity-block"), &requested, at(20)).unwrap()), None);
    }

    /// What a look at second 100 makes of the known ends, if claims name `named`.
    fn seen(known: &[(&str, Option<i64>)], found: &[(&str, Option<i64>)], named: &[&str]) -> Vec<(String, Option<i64>)> {
        let ends = |all: &[(&str, Option<i64>)]| -> BTreeMap<String, Option<Timestamp>> {
            all.iter().map(|(id, end)| ((*id).to_owned(), end.map(at))).collect()
        };
        let known = BlockEnds { ends: ends(known), looked_at: at(40) };
        let next = BlockEnds::after(Some(known), &ends(found), &named.iter().copied().collect(), at(100));
        assert_eq!(next.looked_at, at(100));
        let seconds = |end: Timestamp| end.duration_since(at(0)).as_secs();
        next.ends.into_iter().map(|(id, end)| (id, end.map(seconds))).collect()
    }

    #[test]
    fn the_last_known_end_stays_until_it_has_passed_and_no_claim_names_the_block() {
        let one = |end: Option<i64>| vec![("cr-1".to_owned(), end)];
        assert_eq!(seen(&[], &[("cr-1", Some(200))], &["cr-1"]), one(Some(200)));
        assert_eq!(seen(&[("cr-1", Some(200))], &[("cr-1", Some(900))], &["cr-1"]), one(Some(900)), "it was extended");
        assert_eq!(seen(&[("cr-1", Some(200))], &[("cr-1", None)], &["cr-1"]), one(Some(200)), "EC2 does not show it any more");
        assert_eq!(seen(&[("cr-1", Some(200))], &[], &["cr-1"]), one(Some(200)), "the call failed");
        assert_eq!(seen(&[("cr-1", Some(200))], &[], &[]), one(Some(200)), "its claims may be listed again");
        assert_eq!(seen(&[("cr-1", Some(99))], &[], &["cr-1"]), one(Some(99)), "its claim has still to go");
        assert!(seen(&[("cr-1", Some(100)), ("cr-2", None)], &[], &[]).is_empty());
        assert_eq!(seen(&[], &[("cr-1", None)], &["cr-1"]), one(None), "no capacity block");
    }
}
