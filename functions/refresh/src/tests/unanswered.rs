//! Calls about a class that fail for now.

use super::placement::{group, select};
use super::{Counting, class, cluster, fenced, later, over, record, reserve, run_under, with_role};
use crate::unanswered::selects_the_same;
use futures::executor::block_on;
use whittle_api::karpenter::{
    AmiSelectorTerm, Ec2NodeClass, Ec2NodeClassSpec, PlacementGroupSelector, SecurityGroupSelectorTerm, SubnetSelectorTerm,
};
use whittle_api::{ConditionStatus, ObjectMeta, conditions};
use whittle_claims::{Function, FunctionHealth, NodeClassRecord};
use whittle_ports::{HandleError, RecordReader, Report, Settings};
use whittle_testkit::TestWorld;
use whittle_units::SignedDuration;

/// Each call about a class, and the condition that it is about.
const CALLS: [(&str, &str); 6] = [
    ("DescribeSubnets", conditions::SUBNETS_READY),
    ("DescribeSecurityGroups", conditions::SECURITY_GROUPS_READY),
    ("DescribeImages", conditions::AMIS_READY),
    ("DescribeCapacityReservations", conditions::CAPACITY_RESERVATIONS_READY),
    ("DescribePlacementGroups", conditions::PLACEMENT_GROUP_READY),
    ("CreateInstanceProfile", conditions::INSTANCE_PROFILE_READY),
];

/// A world whose class selects something of everything.
fn world() -> (TestWorld, Settings) {
    let (simulation, settings) = fenced(|world| {
        with_role("KarpenterNodeRole-c")(world);
        select(world, Some("web"));
        world.region.place(group("pg-1", "available"));
    });
    reserve(&simulation, "default", 3, later(600));
    (simulation, settings)
}

fn run_without(simulation: &TestWorld, settings: &Settings, calls: &[&'static str]) -> Result<Report, HandleError> {
    let ports = simulation.ports();
    let ec2 = Counting { unanswered: calls.to_vec(), ..Counting::over(&ports) };
    block_on(crate::handle(over(&ports, &ec2), settings, &cluster()))
}

/// What was resolved of the class, and when.
fn resolved(simulation: &mut TestWorld, settings: &Settings) -> (Ec2NodeClass, NodeClassRecord) {
    run_under(simulation, settings);
    let known = run_under(simulation, settings);
    assert!(known.1.is_ready(), "{:?}", known.1.problems);
    simulation.run_for(SignedDuration::from_mins(5));
    known
}

#[test]
fn failures_are_noted_until_a_run_ends_well() {
    let (mut simulation, settings) = world();
    resolved(&mut simulation, &settings);
    let failing_since = |simulation: &TestWorld| {
        let known = block_on(simulation.ports().read::<FunctionHealth>(&cluster(), Function::Refresh.name())).unwrap();
        known.and_then(|known| known.value.failing_since)
    };
    assert_eq!(failing_since(&simulation), None);
    assert!(run_without(&simulation, &settings, &["DescribeSubnets"]).is_err());
    let first = failing_since(&simulation);
    assert!(first.is_some());
    simulation.run_for(SignedDuration::from_mins(5));
    assert!(run_without(&simulation, &settings, &["DescribeImages"]).is_err());
    assert_eq!(failing_since(&simulation), first, "it is the first one that counts");
    run_under(&simulation, &settings);
    assert_eq!(failing_since(&simulation), None);
}

#[test]
fn a_new_class_shows_what_was_resolved_and_what_is_not_known_yet() {
    for (call, part) in CALLS {
        let (simulation, settings) = world();
        let mut new = class(&simulation).unwrap();
        new.metadata = ObjectMeta::named("new");
        new.status = Default::default();
        simulation.create(new);
        let seen = || {
            let shown = simulation.world().cluster.objects.get::<Ec2NodeClass>("new").unwrap().status.clone();
            (shown, block_on(simulation.ports().read::<NodeClassRecord>(&cluster(), "new")).unwrap().unwrap().value)
        };
        assert!(run_without(&simulation, &settings, &[call]).is_err(), "{call}: the alarm of the function fires");
        let (shown, record) = seen();
        for condition in &shown.conditions {
            let follows = [conditions::READY, conditions::VALIDATION_SUCCEEDED].contains(&condition.type_.as_str());
            let expected = if condition.type_ == part { ConditionStatus::Unknown } else { ConditionStatus::True };
            assert!(follows || condition.status == expected, "{call}: {condition:?}");
        }
        let unknown = conditions::find(&shown.conditions, part).unwrap();
        assert!(unknown.reason == "LookupFailed" && unknown.message.contains(call), "{unknown:?}");
        let ready = conditions::find(&shown.conditions, conditions::READY).unwrap();
        assert!(ready.status == ConditionStatus::Unknown && ready.message.contains(call), "{ready:?}");
        assert!(record.problems.iter().any(|problem| problem.contains(call)), "{:?}", record.problems);
        run_under(&simulation, &settings);
        let (shown, record) = seen();
        assert!(record.is_ready() && conditions::is_true(&shown.conditions, conditions::READY), "{:?}", record.problems);
    }
}

/// Machines drift from what the record of their class says: as long as it says the same, none does.
#[test]
fn a_call_that_fails_for_now_loses_nothing_that_was_resolved() {
    let all: Vec<&'static str> = CALLS.map(|(call, _)| call).to_vec();
    for calls in all.iter().map(|call| vec![*call]).chain([all.clone()]) {
        let (mut simulation, settings) = world();
        let (shown, known) = resolved(&mut simulation, &settings);
        assert!(run_without(&simulation, &settings, &calls).is_err());
        let after = record(&simulation).unwrap();
        assert_eq!(NodeClassRecord { resolved_at: known.resolved_at, ..after.clone() }, known, "{calls:?}");
        assert_eq!(class(&simulation).unwrap(), shown, "{calls:?}");
        let counts = ["DescribeSubnets", "DescribeCapacityReservations"].iter().any(|call| calls.contains(call));
        assert_eq!(after.resolved_at == known.resolved_at, counts, "{calls:?}: what was free then is no newer");
    }
}

#[test]
fn what_a_user_changes_of_a_class_counts_while_a_call_about_something_else_fails() {
    let (mut simulation, settings) = world();
    let (_, known) = resolved(&mut simulation, &settings);
    simulation.change::<Ec2NodeClass>("default", |class| class.spec.tags = Some([("team".to_owned(), "a".to_owned())].into()));
    assert!(run_without(&simulation, &settings, &["DescribeImages"]).is_err());
    let after = record(&simulation).unwrap();
    assert!(after.is_ready() && after.hash != known.hash && after.amis == known.amis, "{after:?}");
    assert_eq!(after.class.spec.tags.unwrap().len(), 1);
}

/// Of each part: what else a class selects makes no difference, and what it selects of it always does.
#[test]
fn only_what_a_part_is_selected_by_decides_whether_it_is_selected_alike() {
    let tagged = || Some([("a".to_owned(), "b".to_owned())].into());
    type Change<'c> = &'c dyn Fn(&mut Ec2NodeClassSpec);
    let changes: [(&str, Change<'_>); 8] = [
        (conditions::SUBNETS_READY, &|spec| spec.subnet_selector_terms = vec![SubnetSelectorTerm { tags: tagged(), id: None }]),
        (conditions::SECURITY_GROUPS_READY, &|spec| spec.security_group_selector_terms = vec![SecurityGroupSelectorTerm::default()]),
        (conditions::AMIS_READY, &|spec| spec.ami_selector_terms = vec![AmiSelectorTerm { tags: tagged(), ..AmiSelectorTerm::default() }]),
        (conditions::AMIS_READY, &|spec| spec.ami_family = Some("Bottlerocket".into())),
        (conditions::CAPACITY_RESERVATIONS_READY, &|spec| spec.capacity_reservation_selector_terms = Some(Vec::new())),
        (conditions::PLACEMENT_GROUP_READY, &|spec| spec.placement_group_selector = Some(PlacementGroupSelector::default())),
        (conditions::INSTANCE_PROFILE_READY, &|spec| spec.role = Some("another".into())),
        (conditions::INSTANCE_PROFILE_READY, &|spec| spec.instance_profile = Some("another".into())),
    ];
    let before = Ec2NodeClass::default();
    for (changed, change) in changes {
        let mut after = before.clone();
        change(&mut after.spec);
        for (_, part) in CALLS {
            assert_eq!(selects_the_same(part, &before, &after), part != changed, "{part} after a change of {changed}");
        }
        assert!(!selects_the_same(conditions::VALIDATION_SUCCEEDED, &before, &after), "nothing selects it");
    }
}

/// Images of the former selection are none of the new one: with them, the next lookup would replace each machine again.
#[test]
fn what_a_class_selects_anew_is_never_mixed_with_what_it_selected_before() {
    let (mut simulation, settings) = world();
    let (shown, known) = resolved(&mut simulation, &settings);
    simulation.change::<Ec2NodeClass>("default", |class| {
        class.spec.ami_selector_terms = vec![AmiSelectorTerm { alias: Some("bottlerocket@latest".into()), ..AmiSelectorTerm::default() }];
        class.spec.detailed_monitoring = Some(true);
    });
    assert!(run_without(&simulation, &settings, &["DescribeImages"]).is_err());
    assert_eq!(record(&simulation).unwrap(), known, "of an older generation, so that launches wait");
    assert_eq!(class(&simulation).unwrap().status, shown.status);
    let (_, after) = run_under(&simulation, &settings);
    assert!(after.is_ready() && after.amis != known.amis && after.hash != known.hash, "{after:?}");
}
