//! The usable capacity reservations of a class, and their form in the class's status (aws 15).

use crate::network::CapacityReservation;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::karpenter::{AmiFamily, Ec2NodeClassSpec, ResolvedCapacityReservation, ResolvedPlacementGroup};
use whittle_api::labels;
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
    /// The tenancy of the machines that each reservation is for, of which the status says nothing.
    pub tenancies: BTreeMap<String, String>,
    /// One sentence for each reservation that no machine of the class can be started in, or that is of an unknown kind.
    pub left_out: Vec<String>,
    /// Ids of the reservations that no machine of the class can be started in. A machine that runs in one has not drifted: EC2 did start it
    /// there, and the class selects the reservation.
    pub unused: BTreeSet<String>,
}

/// How many reservations that are left out are named: a condition has room for them.
const NAMED_MAX: usize = 10;

impl ChosenReservations {
    /// The message about the reservations that are left out; empty if none is.
    pub(super) fn message(&self) -> String {
        let named = self.left_out.iter().take(NAMED_MAX).map(|sentence| format!("capacity reservation {sentence}"));
        let more = self.left_out.len().saturating_sub(NAMED_MAX);
        named.chain((more > 0).then(|| format!("{more} more are not used"))).collect::<Vec<_>>().join("; ")
    }
}

/// What of the machines of a class EC2 compares with a reservation: it starts none in a reservation that is for others.
#[derive(Clone, Debug)]
pub struct ClassMachines<'a> {
    pub spec: &'a Ec2NodeClassSpec,
    /// The tenancies that NodePools of the class launch with: see [`crate::fleet::tenancy`].
    pub tenancies: BTreeSet<&'static str>,
    /// The group that they start in.
    pub placement_group: Option<&'a ResolvedPlacementGroup>,
    /// ARNs of the Outposts that the class has subnets on; `None` while it is not known.
    pub outposts: Option<BTreeSet<&'a str>>,
}

impl ClassMachines<'_> {
    /// Why EC2 starts none of them in a reservation; `None` if it may start some.
    fn mismatch(&self, with: &CapacityReservation) -> Option<String> {
        let CapacityReservation { id, platform, tenancy, .. } = with;
        if !platform.is_empty() && !self.may_have(platform) {
            return Some(format!(
                "{id} is for machines with {platform}, and the images of the class are others: it is not used; select it in a class with \
                 such images"
            ));
        }
        if !tenancy.is_empty() && !self.tenancies.contains(tenancy.as_str()) {
            return Some(format!(
                "{id} is for machines of {tenancy} tenancy, and no NodePool of the class launches such: it is not used; give one the \
                 requirement {} In [{tenancy}], or select another reservation",
                labels::INSTANCE_TENANCY
            ));
        }
        let group = with.placement_group.as_deref().map(|arn| arn.split_once("placement-group/").map_or(arn, |(_, name)| name));
        if let Some(group) = group
            && self.placement_group.is_none_or(|own| own.name != group && own.id != group)
        {
            return Some(format!(
                "{id} is in the placement group {group}, in which no machine of the class starts: it is not used; name the group in \
                 spec.placementGroupSelector"
            ));
        }
        let has_subnet = |arn: &str| self.outposts.as_ref().is_none_or(|known| known.contains(arn));
        let outpost = with.outpost.as_deref().filter(|arn| !has_subnet(arn))?;
        Some(format!("{id} is on {outpost}, where the class has no subnet: it is not used; select a subnet of that Outpost"))
    }

    /// Whether an image of the class may have the platform of a reservation. Images that an alias names are known. Of others the family
    /// says how they are bootstrapped, not whose licence they have.
    fn may_have(&self, platform: &str) -> bool {
        let family = self.spec.family();
        let has_alias = self.spec.alias().is_some();
        match (family, family.is_windows()) {
            (AmiFamily::Custom, _) => true,
            (_, true) => !has_alias || platform == "Windows",
            (_, false) if has_alias => platform == "Linux/UNIX",
            (_, false) => !platform.starts_with("Windows"),
        }
    }
}

/// Keeps active reservations that have not ended and that machines of the class can be started in: an offering of a reservation costs
/// nothing, so that one that EC2 refuses would be tried before all others. What is left out is reported.
pub fn choose_reservations(found: &[CapacityReservation], machines: &ClassMachines<'_>, now: Timestamp) -> ChosenReservations {
    let mut out = ChosenReservations::default();
    let mut by_id: BTreeMap<&str, ResolvedCapacityReservation> = BTreeMap::new();
    let usable = |each: &&CapacityReservation| each.state == "active" && each.ends_at.is_none_or(|end| end > now);
    for each in found.iter().filter(usable) {
        let kind = if each.kind.is_empty() { "default" } else { each.kind.as_str() };
        let known = ["default", "capacity-block"].contains(&kind) && ["open", "targeted"].contains(&each.match_criteria.as_str());
        if !known {
            out.left_out.push(format!("{} is of type {kind:?} with match criteria {:?}: it is not used", each.id, each.match_criteria));
            continue;
        }
        if let Some(sentence) = machines.mismatch(each) {
            out.left_out.push(sentence);
            out.unused.insert(each.id.clone());
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
        if !each.tenancy.is_empty() {
            out.tenancies.insert(each.id.clone(), each.tenancy.clone());
        }
    }
    out.kept = by_id.into_values().collect();
    out.left_out.sort();
    out.left_out.dedup();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
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

    fn spec(of: Value) -> Ec2NodeClassSpec {
        serde_json::from_value(of).unwrap()
    }

    /// Machines of a class whose pools launch with the default tenancy.
    fn machines(spec: &Ec2NodeClassSpec) -> ClassMachines<'_> {
        ClassMachines { spec, tenancies: ["default"].into(), placement_group: None, outposts: Some(BTreeSet::new()) }
    }

    fn chosen_for(machines: &ClassMachines<'_>, found: &[CapacityReservation]) -> ChosenReservations {
        choose_reservations(found, machines, NOW.parse().unwrap())
    }

    fn chosen(found: &[CapacityReservation]) -> ChosenReservations {
        let spec = spec(json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]}));
        chosen_for(&machines(&spec), found)
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
        assert!(out.kept.is_empty() && out.free.is_empty() && out.unused.is_empty());
        assert_eq!(out.left_out.len(), 2);
        assert!(out.left_out[0].starts_with("cr-1 is of type \"future-dated\""), "{:?}", out.left_out);
    }

    /// EC2's user guide: "You can only launch an instance into a Capacity Reservation that has matching attributes (instance type,
    /// platform, Availability Zone, and tenancy)". Each launch in another one was refused, and it was always tried first.
    #[test]
    fn a_reservation_for_another_platform_is_omitted_and_reported() {
        #[track_caller]
        fn check(of: &Value, used: &[&str]) {
            let spec = spec(of.clone());
            for platform in ["", "Linux/UNIX", "Red Hat Enterprise Linux", "Ubuntu Pro", "Windows", "Windows with SQL Server Web"] {
                let out = chosen_for(&machines(&spec), &[CapacityReservation { platform: platform.into(), ..reservation("cr-1") }]);
                // EC2 tells it of every reservation; one of which it does not is tried.
                let is_used = platform.is_empty() || used.contains(&platform);
                assert_eq!((out.kept.len(), out.free.len()), (usize::from(is_used), usize::from(is_used)), "{platform} with {of}");
                assert_eq!((out.left_out.is_empty(), out.unused.is_empty()), (is_used, is_used), "{platform} with {of}");
                assert!(is_used || out.message().contains(platform), "{}", out.message());
            }
        }
        let alias = |name: &str| json!({"amiSelectorTerms": [{"alias": format!("{name}@latest")}]});
        let own = |family: &str| json!({"amiFamily": family, "amiSelectorTerms": [{"id": "ami-1"}]});
        for name in ["al2", "al2023", "bottlerocket"] {
            check(&alias(name), &["Linux/UNIX"]);
        }
        check(&alias("windows2022"), &["Windows"]);
        // The bootstrap of a family runs on images of others as well.
        let linux = ["Linux/UNIX", "Red Hat Enterprise Linux", "Ubuntu Pro"];
        check(&own("AL2023"), &linux);
        let all = [&linux[..], &["Windows", "Windows with SQL Server Web"][..]].concat();
        check(&own("Windows2022"), &all);
        check(&own("Custom"), &all);
    }

    #[test]
    fn a_reservation_of_a_tenancy_that_no_pool_launches_with_is_omitted_and_reported() {
        #[track_caller]
        fn check(tenancies: &[&'static str], tenancy: &str, is_used: bool) {
            let spec = Ec2NodeClassSpec::default();
            let machines = ClassMachines { tenancies: tenancies.iter().copied().collect(), ..machines(&spec) };
            let out = chosen_for(&machines, &[CapacityReservation { tenancy: tenancy.into(), ..reservation("cr-1") }]);
            assert_eq!((out.kept.len(), out.left_out.is_empty()), (usize::from(is_used), is_used), "{tenancy:?} with {tenancies:?}");
            let told = out.tenancies.get("cr-1").map(String::as_str);
            assert_eq!(told, Some(tenancy).filter(|tenancy| is_used && !tenancy.is_empty()));
        }
        check(&["default"], "default", true);
        check(&["default"], "dedicated", false);
        check(&["dedicated"], "dedicated", true);
        check(&["dedicated"], "default", false);
        check(&["default", "dedicated"], "dedicated", true);
        check(&["default", "dedicated"], "default", true);
        check(&["dedicated"], "", true);
    }

    #[test]
    fn a_reservation_in_a_placement_group_is_used_by_a_class_that_starts_machines_there() {
        let arn = "arn:aws:ec2:us-west-2:111122223333:placement-group/wide";
        let grouped = CapacityReservation { placement_group: Some(arn.into()), ..reservation("cr-1") };
        let (spec, id) = (Ec2NodeClassSpec::default(), "pg-1".to_owned());
        let group = |name: &str| ResolvedPlacementGroup { id: id.clone(), name: name.into(), ..ResolvedPlacementGroup::default() };
        let (wide, narrow) = (group("wide"), group("narrow"));
        let within = |group: Option<&ResolvedPlacementGroup>, found: &CapacityReservation| {
            let machines = ClassMachines { placement_group: group, ..machines(&spec) };
            chosen_for(&machines, std::slice::from_ref(found))
        };
        let omitted = within(None, &grouped);
        assert!(omitted.kept.is_empty() && omitted.message().contains("in the placement group wide"), "{}", omitted.message());
        assert!(within(Some(&narrow), &grouped).kept.is_empty());
        assert_eq!(within(Some(&wide), &grouped).kept.len(), 1);
        assert_eq!(within(Some(&wide), &reservation("cr-2")).kept.len(), 1, "a zone's reservation is for machines of any group");
    }

    #[test]
    fn a_reservation_on_an_outpost_is_used_by_a_class_with_a_subnet_there() {
        let outpost = "arn:aws:outposts:us-west-2:111122223333:outpost/op-1";
        let away = CapacityReservation { outpost: Some(outpost.into()), ..reservation("cr-1") };
        let spec = Ec2NodeClassSpec::default();
        let on = |outposts: Option<BTreeSet<&str>>| {
            let machines = ClassMachines { outposts, ..machines(&spec) };
            chosen_for(&machines, std::slice::from_ref(&away))
        };
        let omitted = on(Some(BTreeSet::new()));
        assert!(omitted.kept.is_empty() && omitted.message().contains(outpost), "{}", omitted.message());
        assert_eq!(on(Some([outpost].into())).kept.len(), 1);
        assert_eq!(on(None).kept.len(), 1, "its machines would be replaced while the lookup of subnets fails");
    }

    #[test]
    fn a_few_of_many_reservations_that_are_omitted_are_named() {
        let many: Vec<_> =
            (0..12).map(|number| CapacityReservation { platform: "Windows".into(), ..reservation(&format!("cr-{number:02}")) }).collect();
        let message = chosen(&many).message();
        assert!(message.contains("cr-09") && !message.contains("cr-10") && message.ends_with("2 more are not used"), "{message}");
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
