//! The usable capacity reservations of a class, and their form in the class's status (aws 15).

use crate::network::CapacityReservation;
use std::collections::BTreeMap;
use whittle_api::karpenter::ResolvedCapacityReservation;
use whittle_units::{SignedDuration, Timestamp};

/// EC2 begins to terminate the machines of a capacity block half an hour before its end: this long before, nothing new starts in
/// it, and its nodes are drained.
const BEFORE_BLOCK_ENDS: SignedDuration = SignedDuration::from_mins(40);

/// The reservations of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenReservations {
    /// Entries of the status, by id.
    pub kept: Vec<ResolvedCapacityReservation>,
    /// Instances that can still be started, by reservation.
    pub free: BTreeMap<String, u32>,
    /// One sentence for each reservation of an unknown kind.
    pub unknown: Vec<String>,
}

/// Keeps active reservations that have not ended. One of an unknown kind is omitted and reported.
pub fn choose_reservations(found: &[CapacityReservation], now: Timestamp) -> ChosenReservations {
    let mut out = ChosenReservations::default();
    let mut by_id: BTreeMap<&str, ResolvedCapacityReservation> = BTreeMap::new();
    let usable = |each: &&CapacityReservation| each.state == "active" && each.ends_at.is_none_or(|end| end > now);
    for each in found.iter().filter(usable) {
        let kind = if each.kind.is_empty() { "default" } else { each.kind.as_str() };
        let known = ["default", "capacity-block"].contains(&kind) && ["open", "targeted"].contains(&each.match_criteria.as_str());
        if !known {
            out.unknown.push(format!("{} is of type {kind:?} with match criteria {:?}: it is not used", each.id, each.match_criteria));
            continue;
        }
        let soon_over = each.ends_at.is_some_and(|end| end.duration_since(now) <= BEFORE_BLOCK_ENDS);
        let shown = ResolvedCapacityReservation {
            id: each.id.clone(),
            availability_zone: each.zone.clone(),
            instance_type: each.instance_type.clone(),
            owner_id: each.owner.clone(),
            instance_match_criteria: each.match_criteria.clone(),
            reservation_type: kind.to_owned(),
            interruptible: each.interruptible,
            state: if kind == "capacity-block" && soon_over { "expiring" } else { "active" }.to_owned(),
            end_time: each.ends_at,
        };
        by_id.insert(&each.id, shown);
        out.free.insert(each.id.clone(), each.free);
    }
    out.kept = by_id.into_values().collect();
    out.unknown.sort();
    out.unknown.dedup();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use whittle_api::karpenter::CapacityReservationSelectorTerm;

    const NOW: &str = "2026-03-01T12:00:00Z";

    fn reservation(id: &str) -> CapacityReservation {
        let text = |word: &str| word.to_owned();
        CapacityReservation {
            id: text(id),
            zone: text("us-west-2a"),
            instance_type: text("m5.large"),
            owner: text("111122223333"),
            match_criteria: text("targeted"),
            state: text("active"),
            free: 3,
            ..CapacityReservation::default()
        }
    }

    fn chosen(found: &[CapacityReservation]) -> ChosenReservations {
        choose_reservations(found, NOW.parse().unwrap())
    }

    fn ending(id: &str, kind: &str, ends_at: &str) -> CapacityReservation {
        CapacityReservation { kind: kind.into(), ends_at: Some(ends_at.parse().unwrap()), ..reservation(id) }
    }

    /// The state in the status, `None` for omitted reservations.
    #[track_caller]
    fn check(reservation: CapacityReservation, state: Option<&str>) {
        let kept = chosen(std::slice::from_ref(&reservation)).kept;
        assert_eq!(kept.first().map(|kept| kept.state.as_str()), state, "{reservation:?}");
    }

    #[test]
    fn the_status_lists_active_reservations_sorted_by_id_without_duplicates() {
        let open = CapacityReservation { match_criteria: "open".into(), interruptible: true, ..reservation("cr-b") };
        let out = chosen(&[open, reservation("cr-c"), reservation("cr-a"), reservation("cr-c")]);
        let listed: Vec<_> =
            out.kept.iter().map(|kept| (kept.id.as_str(), kept.instance_match_criteria.as_str(), kept.interruptible)).collect();
        assert_eq!(listed, [("cr-a", "targeted", false), ("cr-b", "open", true), ("cr-c", "targeted", false)]);
        assert!(out.kept.iter().all(|kept| kept.reservation_type == "default" && kept.owner_id == "111122223333"));
        assert_eq!(out.free, [("cr-a".to_owned(), 3), ("cr-b".to_owned(), 3), ("cr-c".to_owned(), 3)].into());
    }

    #[test]
    fn a_capacity_block_expires_forty_minutes_before_its_end_and_other_reservations_do_not() {
        check(ending("cr-1", "capacity-block", "2026-03-01T12:40:01Z"), Some("active"));
        check(ending("cr-1", "capacity-block", "2026-03-01T12:40:00Z"), Some("expiring"));
        check(ending("cr-1", "default", "2026-03-01T12:05:00Z"), Some("active"));
    }

    #[test]
    fn reservations_that_ended_or_are_inactive_are_omitted() {
        check(ending("cr-1", "capacity-block", NOW), None);
        check(ending("cr-1", "", "2026-03-01T11:00:00Z"), None);
        for state in ["expired", "cancelled", "pending", "failed", "scheduled"] {
            check(CapacityReservation { state: state.into(), ..reservation("cr-1") }, None);
        }
    }

    #[test]
    fn reservations_of_unknown_kinds_are_omitted_and_reported() {
        let unknown = CapacityReservation { kind: "future-dated".into(), ..reservation("cr-1") };
        let second_unknown = CapacityReservation { match_criteria: "whatever".into(), ..reservation("cr-2") };
        let out = chosen(&[unknown, second_unknown]);
        assert!(out.kept.is_empty() && out.free.is_empty());
        assert_eq!(out.unknown.len(), 2);
        assert!(out.unknown[0].starts_with("cr-1 is of type \"future-dated\""), "{:?}", out.unknown);
    }

    /// Queries as ids and filters.
    #[track_caller]
    fn check_queries(terms: serde_json::Value, wanted: &[&str]) {
        let terms: Vec<CapacityReservationSelectorTerm> = serde_json::from_value(terms).unwrap();
        let queries = crate::node_class::capacity_reservation_queries(&terms).into_iter().map(|query| {
            let filters: Vec<String> = query.filters.iter().map(|(name, values)| format!("{name}={}", values.join(","))).collect();
            format!("{}|{}", query.ids.join(","), filters.join(" "))
        });
        assert_eq!(queries.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn selector_terms_become_queries_for_active_reservations() {
        check_queries(json!([{"id": "cr-1"}, {"id": "cr-2"}]), &["cr-1|state=active", "cr-2|state=active"]);
        check_queries(json!([{"tags": {"team": "a", "any": "*"}}]), &["|state=active tag-key=any tag:team=a"]);
        check_queries(
            json!([{"tags": {"team": "a"}, "ownerID": "111122223333", "instanceMatchCriteria": "open"}]),
            &["|instance-match-criteria=open owner-id=111122223333 state=active tag:team=a"],
        );
        check_queries(json!([{"instanceMatchCriteria": "targeted"}]), &["|instance-match-criteria=targeted state=active"]);
        check_queries(json!([{"id": "cr-1", "tags": {"team": "a"}}]), &["cr-1|state=active", "|state=active tag:team=a"]);
        check_queries(json!([]), &[]);
    }
}
