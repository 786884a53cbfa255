//! Static pools for which EC2 launches no machine.

use super::{after, claim, snapshot_of};
use crate::state::Disruptions;
use whittle_api::ObjectMeta;
use whittle_api::karpenter::Ec2NodeClass;
use whittle_claims::{Claim, Deletion, DeletionReason, Event};
use whittle_snapshot::Snapshot;
use whittle_testkit::{at, begun, machine, node_class_reference, pool_named};

const WORDS: &str = "EC2 refused the launch: VolumeTypeNotAvailableInZone";

/// A claim of the static pool `fixed`.
fn of_pool(name: &str) -> Claim {
    let mut claim = claim(name);
    claim.spec.node_pool = "fixed".to_owned();
    claim
}

/// EC2 had none of its types at `second`.
fn sold_out(claim: &Claim, second: i64) -> Claim {
    let failed = Event::LaunchFailed { reason: DeletionReason::InsufficientCapacity, message: "no m5.large".to_owned() };
    whittle_testkit::after(claim, &[begun("t"), failed], at(second))
}

/// It was given up at `second`, for this reason, after EC2 had answered with errors of this kind.
fn given_up(claim: &Claim, second: i64, reason: DeletionReason, of_condition: &str) -> Claim {
    let erred = Event::LaunchErred { reason: of_condition.to_owned(), message: WORDS.to_owned() };
    let deletion = Deletion::without_deadline(reason, at(second), "no machine was launched in time");
    whittle_testkit::after(claim, &[begun("t"), erred, Event::DeletionRequested(deletion)], at(second))
}

fn refused(claim: &Claim, second: i64) -> Claim {
    given_up(claim, second, DeletionReason::LaunchTimeout, "LaunchFailed")
}

/// The pool with its class and these claims.
fn world(claims: Vec<Claim>, second: i64) -> Snapshot {
    let mut snapshot = snapshot_of(claims, at(second));
    let mut pool = pool_named("fixed");
    pool.metadata.generation = Some(1);
    pool.spec.replicas = Some(2);
    pool.spec.template.spec.node_class_ref = node_class_reference("default");
    let metadata = ObjectMeta { generation: Some(1), uid: "class-uid".to_owned(), ..ObjectMeta::named("default") };
    snapshot.objects.node_pools = vec![pool];
    snapshot.objects.node_classes = vec![Ec2NodeClass { metadata, ..Ec2NodeClass::default() }];
    snapshot
}

/// What is known after passes at these seconds, each with these claims.
fn known_after(passes: Vec<(i64, Vec<Claim>)>) -> Disruptions {
    let mut known = Disruptions::default();
    for (second, claims) in passes {
        known.track_failed_launches(&world(claims, second));
    }
    known
}

fn waits(known: &Disruptions, second: i64) -> bool {
    known.launch_wait("fixed", at(second)).is_some()
}

/// The waits, in minutes, if each attempt fails ten seconds after the wait has ended.
#[track_caller]
fn check(fails: fn(&Claim, i64) -> Claim, expected: &[i64]) {
    let mut known = Disruptions::default();
    let mut second = 0;
    for minutes in expected {
        let claim = fails(&of_pool(&format!("fixed-{second}")), second);
        for pass in [1, 11] {
            known.track_failed_launches(&world(vec![claim.clone()], second + pass));
        }
        let until = second + minutes * 60;
        assert!(waits(&known, until - 1) && !waits(&known, until), "{minutes}: {known:?}");
        second = until + 10;
    }
}

#[test]
fn a_static_pool_waits_longer_each_time_that_ec2_launches_no_machine() {
    check(sold_out, &[1, 2, 4, 5, 5]);
    check(refused, &[5, 10, 20, 40, 60, 60]);
}

#[test]
fn stock_outs_do_not_lengthen_the_wait_for_a_refusal_that_follows() {
    let mut known = Disruptions::default();
    for second in [0, 100, 300, 600] {
        known.track_failed_launches(&world(vec![sold_out(&of_pool(&format!("fixed-{second}")), second)], second + 1));
    }
    assert_eq!(known.failed_launches["fixed"].times, 4);
    known.track_failed_launches(&world(vec![refused(&of_pool("fixed-r"), 1_000)], 1_001));
    assert!(waits(&known, 1_299) && !waits(&known, 1_300), "{known:?}");
    known.track_failed_launches(&world(vec![sold_out(&of_pool("fixed-s"), 1_400)], 1_401));
    assert!(waits(&known, 1_519) && !waits(&known, 1_520), "a stock-out after it is the second failure: {known:?}");
}

#[test]
fn another_pool_of_the_same_name_does_not_wait() {
    let mut claim = of_pool("fixed-1");
    claim.spec.owner.uid = "pool-uid".to_owned();
    let claim = refused(&claim, 0);
    let mut known = known_after(vec![(1, vec![claim.clone()])]);
    assert!(waits(&known, 2));
    let mut recreated = world(vec![claim], 2);
    recreated.objects.node_pools[0].metadata.uid = "another".to_owned();
    known.track_failed_launches(&recreated);
    assert_eq!(known, Disruptions::default());
}

#[test]
fn many_static_pools_that_wait_take_little_of_the_record() {
    let mut snapshot = world(Vec::new(), 1);
    let (pool, name) = (snapshot.objects.node_pools[0].clone(), |number: usize| format!("fixed-{number:03}"));
    let message = "m5.large ".repeat(100);
    for number in 0..300 {
        let mut pool = pool.clone();
        pool.metadata.name = name(number);
        snapshot.objects.node_pools.push(pool);
        let mut claim = of_pool(&format!("claim-{number}"));
        claim.spec.node_pool = name(number);
        let failed = Event::LaunchFailed { reason: DeletionReason::InsufficientCapacity, message: message.clone() };
        let failed = after(&claim, &[begun("t"), failed]);
        snapshot.claims.push(whittle_claims::Stored { value: failed, revision: whittle_claims::Revision(1) });
    }
    let mut known = Disruptions::default();
    known.track_failed_launches(&snapshot);
    assert!((150..300).contains(&known.failed_launches.len()), "{}", known.failed_launches.len());
    assert!(known.launch_wait(&name(0), at(2)).is_some() && known.launch_wait(&name(149), at(2)).is_some());
    let size = serde_json::to_string(&known.failed_launches).unwrap().len();
    assert!(size < 100_000, "{size} of the 400 KB of an item");
}

#[test]
fn why_a_static_pool_waits_names_what_ec2_said_and_what_ends_it() {
    let known = known_after(vec![(1, vec![refused(&of_pool("fixed-1"), 0)])]);
    let why = known.launch_wait("fixed", at(2)).unwrap();
    assert!(why.contains(WORDS) && why.contains(&at(300).to_string()) && why.ends_with("unless NodePool or node class changes"), "{why}");
    assert_eq!(known.launch_wait("other", at(2)), None);
}

#[test]
fn claims_of_one_attempt_count_once() {
    let (first, second) = (sold_out(&of_pool("fixed-1"), 0), sold_out(&of_pool("fixed-2"), 20));
    let known = known_after(vec![(1, vec![first.clone()]), (21, vec![first, second])]);
    assert!(waits(&known, 59) && !waits(&known, 60), "{known:?}");
    assert_eq!(known.failed_launches["fixed"].times, 1);
}

#[test]
fn a_machine_that_is_launched_ends_the_succession() {
    let first = sold_out(&of_pool("fixed-1"), 0);
    let mut launched = after(&of_pool("fixed-2"), &[begun("t"), Event::FleetAnswered(machine("i-2"))]);
    launched.created_at = at(30);
    let again = sold_out(&of_pool("fixed-3"), 100);
    let known = known_after(vec![(1, vec![first.clone()]), (40, vec![first.clone(), launched.clone()])]);
    assert!(!waits(&known, 41));
    let mut known = known;
    known.track_failed_launches(&world(vec![first.clone(), launched.clone(), again], 101));
    assert!(waits(&known, 159) && !waits(&known, 160), "it is the first failure since");
    launched.created_at = at(0);
    let known = known_after(vec![(1, vec![first.clone(), launched.clone()]), (2, vec![first, launched])]);
    assert!(waits(&known, 3), "a machine of the same attempt, or from before, ends nothing");
}

#[test]
fn a_change_of_pool_or_class_ends_the_wait_and_old_failures_do_not_count_again() {
    let changes: [fn(&mut Snapshot); 2] = [
        |snapshot| snapshot.objects.node_pools[0].metadata.generation = Some(2),
        |snapshot| snapshot.objects.node_classes[0].metadata.generation = Some(2),
    ];
    for change in changes {
        let claim = refused(&of_pool("fixed-1"), 0);
        let mut known = known_after(vec![(1, vec![claim.clone()])]);
        assert!(waits(&known, 2));
        for second in [3, 13] {
            let mut changed = world(vec![claim.clone()], second);
            change(&mut changed);
            known.track_failed_launches(&changed);
            assert!(!waits(&known, second), "{known:?}");
        }
    }
}

#[test]
fn other_failures_never_keep_a_static_pool_waiting() {
    let never = |claim: Claim| {
        let known = known_after(vec![(1, vec![claim])]);
        assert_eq!(known, Disruptions::default());
    };
    let claim = of_pool("fixed-1");
    never(given_up(&claim, 0, DeletionReason::LaunchTimeout, "RequestLimitExceeded"));
    never(given_up(&claim, 0, DeletionReason::Requested, "LaunchFailed"));
    never(sold_out(&Claim { spec: Default::default(), ..claim.clone() }, 0));
    let mut replacement = claim.clone();
    replacement.spec.replaces = Some("c1".to_owned());
    never(sold_out(&replacement, 0));
    never(claim);
    // Nor do those of long ago, or of a pool that is no longer static.
    let claim = sold_out(&of_pool("fixed-1"), 0);
    assert_eq!(known_after(vec![(3_600, vec![claim.clone()])]), Disruptions::default());
    let mut known = known_after(vec![(1, vec![claim.clone()])]);
    let mut dynamic = world(vec![claim], 2);
    dynamic.objects.node_pools[0].spec.replicas = None;
    known.track_failed_launches(&dynamic);
    assert_eq!(known, Disruptions::default());
    assert_eq!(serde_json::to_value(&known).unwrap().get("failedLaunches"), None, "nothing is stored for none");
}
