//! Unhealthy nodes, nodes with less capacity than expected, and nodes without their label.

use super::*;
use whittle_api::k8s::Taint;
use whittle_units::Quantity;

const HALF_AN_HOUR: i64 = 1800;

fn claim_of(number: usize) -> Claim {
    let mut claim = after(&[begun(), Event::FleetAnswered(machine(&format!("i-{number}"))), Event::NodeJoined { node_name: name(number) }]);
    claim.key.name = format!("default-{number}").as_str().into();
    claim.note(CONSISTENT_STATE_FOUND, ConditionStatus::True, CONSISTENT_STATE_FOUND, "", at(10));
    claim
}

fn name(number: usize) -> String {
    format!("n{number}")
}

/// A node that has been in its state since second 0.
fn node_of(number: usize, ready: bool) -> Node {
    let mut node = node(ready);
    node.metadata.name = name(number);
    node.spec.provider_id = format!("aws:///z/i-{number}");
    node.status.conditions[0].last_transition_time = Some(at(0));
    node
}

/// A pool of `all` nodes of which the first `broken` are.
fn pool(all: usize, broken: usize) -> Scene {
    let claims: Vec<Claim> = (0..all).map(claim_of).collect();
    change(scene(claims[0].clone()), |s| {
        s.objects.node_claims = claims.iter().map(mirror).collect();
        s.objects.nodes = (0..all).map(|number| node_of(number, number >= broken)).collect();
        s.instances = (0..all).map(|number| instance(&format!("i-{number}"))).collect();
        s.claims = claims;
        s.repair = true;
    })
}

/// What sweeps at `first` and half a minute later find.
fn sweeps(scene: &Scene, first: i64) -> (Findings, Findings) {
    let one = scene.compare(&[], first);
    let two = scene.compare(&one.note, first + 30);
    (one, two)
}

#[track_caller]
fn check_repaired(scene: &Scene, expected: &[&str]) -> Findings {
    let (first, second) = sweeps(scene, HALF_AN_HOUR);
    assert!(first.end.is_empty(), "never at the first sighting: {first:?}");
    let ended: Vec<&str> = second.end.iter().map(|end| end.claim.as_str()).collect();
    assert_eq!(ended, expected);
    assert!(second.end.iter().all(|end| end.reason == DeletionReason::Unhealthy && end.condition == Some("Ready")));
    first
}

#[test]
fn a_node_that_is_unhealthy_for_half_an_hour_is_replaced() {
    check_repaired(&pool(5, 1), &["default-0"]);
    let deletion = claim_of(0).deletion_for(DeletionReason::Unhealthy, "", at(7));
    assert_eq!(deletion.deadline, Some(at(7)));
    let (first, second) = sweeps(&pool(5, 1), HALF_AN_HOUR - 60);
    assert!(first.note.is_empty() && second.end.is_empty(), "it may still recover");
}

#[test]
fn nothing_is_repaired_without_the_feature_gate() {
    let closed = change(pool(5, 1), |s| s.repair = false);
    let (first, second) = sweeps(&closed, HALF_AN_HOUR);
    assert!(first.note.is_empty() && second.end.is_empty());
}

#[test]
fn never_more_than_a_fifth_of_a_pool_is_repaired() {
    check_repaired(&pool(1, 1), &["default-0"]);
    check_repaired(&pool(6, 2), &["default-0", "default-1"]);
    for (all, broken) in [(5, 2), (10, 3), (20, 5)] {
        let first = check_repaired(&pool(all, broken), &[]);
        let events: Vec<(&str, &str)> = first.events.iter().map(|event| (event.reason.as_str(), event.kind.as_str())).collect();
        let of_each = ["Node", "NodeClaim", "NodePool"].map(|kind| ("NodeRepairBlocked", kind));
        assert_eq!(events, of_each.repeat(broken));
        assert!(first.events[0].message.contains("NodePool default"), "{}", first.events[0].message);
    }
}

#[test]
fn blocked_repair_is_reported_again_after_a_quarter_of_an_hour() {
    let scene = pool(5, 2);
    let first = scene.compare(&[], HALF_AN_HOUR);
    assert_eq!(scene.compare(&first.note, HALF_AN_HOUR + 899).events, []);
    assert_eq!(scene.compare(&first.note, HALF_AN_HOUR + 900).events, first.events);
}

#[test]
fn nodes_of_other_pools_do_not_count() {
    let mixed = change(pool(5, 2), |s| {
        for node in &mut s.objects.nodes[1..] {
            node.metadata.labels.insert(labels::NODE_POOL.into(), "other".into());
        }
        s.objects.nodes[1].status.conditions[0].status = ConditionStatus::True;
    });
    check_repaired(&mixed, &["default-0"]);
}

#[test]
fn repair_counts_a_provisioner_and_a_nodepool_of_one_name_separately() {
    // Of five nodes of the NodePool one is broken, and so are both nodes of the Provisioner.
    let mixed = change(pool(7, 3), |s| {
        for (number, node) in s.objects.nodes.iter_mut().enumerate().filter(|(number, _)| matches!(number, 1 | 2)) {
            node.metadata.labels.insert(labels::PROVISIONER_NAME.into(), "default".into());
            s.claims[number].spec.owner.kind = "Provisioner".into();
        }
        let mut old = s.objects.node_pools[0].clone();
        old.metadata.uid = "old-uid".into();
        old.metadata.annotations.insert(labels::CONVERTED_FROM.into(), "Provisioner".into());
        s.objects.node_pools.insert(0, old);
        for claim in &mut s.claims[1..3] {
            claim.spec.owner.uid = "old-uid".into();
        }
    });
    let first = check_repaired(&mixed, &["default-0"]);
    let of = |kind: &str| first.events.iter().filter(|event| event.kind == kind).map(|event| event.uid.clone()).collect::<Vec<_>>();
    assert_eq!((of("Provisioner"), of("NodePool")), (vec!["old-uid".to_owned(); 2], vec![]), "the Event is about the right pool");
}

#[test]
fn a_node_that_recovers_between_two_sweeps_is_kept() {
    let broken = pool(5, 1);
    let first = broken.compare(&[], HALF_AN_HOUR);
    let well = pool(5, 0).compare(&first.note, HALF_AN_HOUR + 30);
    assert!(well.end.is_empty());
    assert_eq!(well.forget, ["node/n0 broken: Ready"]);
}

#[test]
fn an_unhealthy_node_that_is_draining_is_expedited() {
    let draining = |deadline| {
        change(pool(5, 1), |s| {
            let deletion = Deletion { deadline, ..Deletion::without_deadline(DeletionReason::Drifted, at(10), "") };
            s.claims[0] = step(&s.claims[0], &Event::DeletionRequested(deletion), at(10)).unwrap();
        })
    };
    check_repaired(&draining(None), &["default-0"]);
    check_repaired(&draining(Some(at(9000))), &["default-0"]);
    check_repaired(&draining(Some(at(HALF_AN_HOUR))), &[]);
}

#[test]
fn two_claims_of_one_machine_are_never_repaired() {
    let twice = change(pool(5, 1), |s| {
        let mut twin = s.claims[0].clone();
        twin.key.name = "default-twin".into();
        s.claims.push(twin);
    });
    check_repaired(&twice, &[]);
}

fn initialized(requested: &[(&str, i64)], expected: i64) -> Claim {
    let mut claim = claim_of(1);
    claim.spec.requests = requested.iter().map(|(name, amount)| ((*name).to_owned(), Quantity::from_units(*amount))).collect();
    let claim = step(&claim, &Event::NodeReady, at(20)).unwrap();
    let mut claim = claim;
    if let whittle_claims::Phase::Initialized { machine, .. } = &mut claim.phase {
        machine.capacity = Resources::from([("memory", Quantity::from_units(expected)), ("cpu", Quantity::from_units(4))]);
    }
    claim
}

/// The issues that a sweep at `now` finds on a node that has `found` of its machine's memory.
fn issues(claim: &Claim, found: i64, now: i64) -> Option<Vec<String>> {
    let input = change(scene(claim.clone()), |s| {
        s.claims[0].clone_from(claim);
        s.objects.nodes[0].status.capacity = Resources::from([("memory", Quantity::from_units(found))]);
    });
    input.compare(&[], now).consistency.into_iter().next().map(|found| found.issues)
}

#[test]
fn a_node_smaller_than_its_machine_is_reported_and_never_deleted() {
    let claim = initialized(&[("memory", 1)], 1000);
    let issue = "expected 1k of resource memory, but found 500 (50.0% of expected)".to_owned();
    assert_eq!(issues(&claim, 500, 700), Some(vec![issue]));
    assert_eq!(issues(&claim, 899, 700).unwrap().len(), 1);
    assert_eq!(issues(&claim, 900, 700), None, "exactly nine tenths are enough");
    assert_eq!(issues(&claim, 500, 609), None, "not compared again within ten minutes");
    assert_eq!(issues(&claim, 500, 610).unwrap().len(), 1);
    assert_eq!(issues(&initialized(&[("cpu", 0)], 1000), 500, 700), None, "what was not requested is not compared");
    let mut fresh = claim;
    fresh.conditions.retain(|condition| condition.type_ != CONSISTENT_STATE_FOUND);
    assert_eq!(issues(&fresh, 1000, 20), Some(Vec::new()), "consistency is recorded, too");
}

#[test]
fn an_uninitialized_node_counts_as_consistent() {
    let mut claim = claim_of(1);
    claim.spec.requests = Resources::from([("memory", Quantity::from_units(1))]);
    assert_eq!(issues(&claim, 1, 700), None);
}

#[track_caller]
fn check_hydrated(scene: &Scene, expected: &[(&str, &str)]) {
    let found = scene.compare(&[], 100).hydrate;
    assert_eq!(found, expected.iter().map(|(node, class)| ((*node).to_owned(), (*class).to_owned())).collect::<Vec<_>>());
}

#[test]
fn a_node_without_the_label_of_its_class_gets_it_from_its_one_claim() {
    let bare = change(scene(registered()), |s| {
        s.objects.nodes[0].metadata.labels.remove(labels::EC2_NODE_CLASS);
    });
    check_hydrated(&bare, &[("n", "default")]);
    check_hydrated(&scene(registered()), &[]);
    let foreign = change(bare.clone(), |s| s.objects.nodes[0].spec.provider_id = "aws:///z/i-foreign".into());
    check_hydrated(&foreign, &[]);
    let nameless = change(bare.clone(), |s| s.objects.nodes[0].spec.provider_id.clear());
    check_hydrated(&nameless, &[]);
    let twice = change(bare.clone(), |s| {
        let mut twin = s.claims[0].clone();
        twin.key.name = "twin".into();
        s.claims.push(twin);
    });
    check_hydrated(&twice, &[]);
    let unregistered = change(bare, |s| {
        s.claims = vec![after(&[begun(), Event::FleetAnswered(machine("i-1"))])];
        s.objects.nodes[0].spec.taints = vec![Taint::default()];
    });
    check_hydrated(&unregistered, &[]);
}

#[test]
fn conditions_are_counted_in_snake_case() {
    assert_eq!(crate::execute::snake_case("AcceleratedHardwareReady"), "accelerated_hardware_ready");
    assert_eq!(crate::execute::snake_case("Ready"), "ready");
}
