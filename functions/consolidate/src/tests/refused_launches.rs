//! Nodes for whose replacement EC2 refuses a machine because of what is asked of it.

use super::{after, claim, joined, running, snapshot_of};
use crate::refused::{Refused, refused_launch};
use crate::state::{DeletingMachine, Disruptions, Running};
use whittle_api::k8s::Node;
use whittle_api::karpenter::{Ec2NodeClass, ResolvedSubnet};
use whittle_api::{ConditionStatus, ObjectMeta, Unreadable, conditions};
use whittle_claims::{Claim, Deletion, DeletionReason, Event};
use whittle_model::disruption::{Method, NOT_INITIALIZED, ReplacementRefused, TAKES_NO_PODS};
use whittle_snapshot::Snapshot;
use whittle_testkit::{at, begun, node_class_reference, pool_named, pool_owner};

const WORDS: &str = "EC2 refused the launch: InvalidBlockDeviceMapping: Volume of size 8GB is smaller than snapshot";

/// A claim of NodePool `default`.
fn of_pool(name: &str) -> Claim {
    let mut claim = claim(name);
    claim.spec.owner = pool_owner();
    claim
}

/// A claim whose node serves.
fn serving(name: &str) -> Claim {
    let mut events = joined();
    events.push(Event::NodeReady);
    after(&of_pool(name), &events)
}

/// A replacement that is given up for this reason after these words of EC2.
fn given_up(reason: DeletionReason, of_condition: &str, words: &str) -> Claim {
    let erred = Event::LaunchErred { reason: of_condition.to_owned(), message: words.to_owned() };
    let deletion = Deletion::without_deadline(reason, at(300), "no machine was launched in time");
    after(&of_pool("new"), &[begun("t"), erred, Event::DeletionRequested(deletion)])
}

/// The NodePool and its class with nodes `old` and `other`, besides these claims.
fn world(more: &[Claim], now: i64) -> Snapshot {
    let claims = [serving("old"), serving("other")].into_iter().chain(more.iter().cloned()).collect();
    let mut snapshot = snapshot_of(claims, at(now));
    let mut pool = pool_named("default");
    pool.metadata.generation = Some(1);
    pool.spec.template.spec.node_class_ref = node_class_reference("default");
    let metadata = ObjectMeta { generation: Some(1), uid: "class-uid".to_owned(), ..ObjectMeta::named("default") };
    snapshot.objects.node_pools = vec![pool];
    snapshot.objects.node_classes = vec![Ec2NodeClass { metadata, ..Ec2NodeClass::default() }];
    snapshot
}

fn command(method: Method, old: &str) -> Running {
    let removals = vec![DeletingMachine { claim: old.into(), node: format!("node-{old}") }];
    Running { method, removals, ..running(vec![of_pool("new")]) }
}

/// What is remembered after EC2 has refused a machine in place of `old` so often, the last time at `now`.
fn refused(times: i64, now: i64) -> Disruptions {
    let mut known = Disruptions::default();
    for later in (0..times).rev() {
        let refused = Refused { node_pool: "pool-uid", message: WORDS };
        known.record_refused_launch(&command(Method::Drift, "old"), &refused, &world(&[], now - later * 3_700));
    }
    known
}

/// Until when nothing replaces a node, and what EC2 said.
fn held(known: &Disruptions, snapshot: &Snapshot, name: &str) -> Option<ReplacementRefused> {
    known.facts(snapshot).get(name).and_then(|facts| facts.replacement_refused.clone())
}

#[test]
fn a_launch_that_was_refused_until_it_was_given_up_is_told_from_others() {
    let found = |claim: Claim| {
        let snapshot = world(&[claim], 301);
        refused_launch(&snapshot, &command(Method::Drift, "old")).map(|refused| refused.message.to_owned())
    };
    let given_up = |reason, of_condition| found(given_up(reason, of_condition, WORDS));
    for of_condition in ["LaunchFailed", "Unauthorized", "FleetQuotaExceeded"] {
        assert_eq!(given_up(DeletionReason::LaunchTimeout, of_condition).as_deref(), Some(WORDS), "{of_condition}");
    }
    assert_eq!(given_up(DeletionReason::LaunchTimeout, "RequestLimitExceeded"), None, "EC2 was busy");
    assert_eq!(given_up(DeletionReason::LaunchTimeout, "InternalError"), None, "EC2 was in trouble, or did not answer");
    assert_eq!(given_up(DeletionReason::LaunchTimeout, "NodeClassReadinessUnknown"), None, "EC2 was not asked");
    assert_eq!(given_up(DeletionReason::Requested, "LaunchFailed"), None, "a user has deleted it");
    let failed = Event::LaunchFailed { reason: DeletionReason::InsufficientCapacity, message: WORDS.to_owned() };
    assert_eq!(found(after(&of_pool("new"), &[begun("t"), failed])), None, "EC2 has no such machine now");
    let deletion = || Event::DeletionRequested(Deletion::without_deadline(DeletionReason::LaunchTimeout, at(300), "not in time"));
    assert_eq!(found(after(&of_pool("new"), &[deletion()])), None, "nothing was tried");
    let mut late = joined();
    late.push(deletion());
    assert_eq!(found(after(&of_pool("new"), &late)), None, "it has a machine");
    assert_eq!(found(serving("new")), None);
}

/// It stays as any other node, so that each attempt would leave one more.
#[test]
fn a_replacement_that_takes_no_pods_counts_as_refused() {
    let found = |change: fn(&mut Node), later: &[Event]| {
        let mut node = Node { metadata: ObjectMeta::named("n"), ..Node::default() };
        conditions::set(&mut node.status.conditions, conditions::READY, ConditionStatus::True, "", "", at(2));
        change(&mut node);
        let mut snapshot = world(&[after(&serving("new"), later)], 601);
        snapshot.read.nodes = vec![node];
        let refused = refused_launch(&snapshot, &command(Method::Drift, "old"));
        refused.map(|refused| (refused.node_pool.to_owned(), refused.message.to_owned()))
    };
    let useless = Some(("pool-uid".to_owned(), TAKES_NO_PODS.to_owned()));
    assert_eq!(found(|node| node.spec.unschedulable = true, &[]), useless);
    assert_eq!(found(|node| node.status.conditions.clear(), &[]), useless, "it is not ready any more");
    assert_eq!(found(|_| (), &[]), None, "the command ends for another reason");
    let deletion = Deletion::without_deadline(DeletionReason::Requested, at(300), "");
    assert_eq!(found(|node| node.spec.unschedulable = true, &[Event::DeletionRequested(deletion)]), None, "a user has deleted it");
}

/// As with a startup taint that nobody removes. A static pool would launch one and delete it as surplus, every ten minutes for ever.
#[test]
fn a_replacement_that_joined_and_is_not_initialized_in_time_counts_as_refused() {
    let found = |events: &[Event], now: i64| {
        let snapshot = world(&[after(&of_pool("new"), events)], now);
        refused_launch(&snapshot, &command(Method::StaticDrift, "old")).map(|refused| refused.message.to_owned())
    };
    let deletion = Event::DeletionRequested(Deletion::without_deadline(DeletionReason::Requested, at(200), ""));
    assert_eq!(found(&joined(), 301).as_deref(), Some(NOT_INITIALIZED), "it joined at 1");
    assert_eq!(found(&joined(), 300), None, "it may be soon, and the command ends for another reason");
    assert_eq!(found(&joined()[..2], 601), None, "it has not joined: its own timeout ends it");
    assert_eq!(found(&[joined(), vec![deletion]].concat(), 601), None, "a user has deleted it");
    assert_eq!(found(&[joined(), vec![Event::NodeReady]].concat(), 601), None, "it serves");
}

#[test]
fn all_nodes_of_the_pool_wait_for_longer_each_time() {
    for (times, minutes) in [(1, 5), (2, 10), (3, 20), (4, 40), (5, 60), (9, 60)] {
        let (known, now) = (refused(times, 100_000), 100_000);
        let until = now + minutes * 60;
        let expected = Some(ReplacementRefused { until: at(until), message: Some(WORDS.to_owned()) });
        for name in ["old", "other"] {
            assert_eq!(held(&known, &world(&[], until - 1), name), expected, "{times}");
            assert_eq!(held(&known, &world(&[], until), name), None, "{times}");
        }
        let facts = known.facts(&world(&[], until));
        assert!(facts["old"].was_refused_replacement && !facts["other"].was_refused_replacement, "others are tried first");
    }
}

/// That EC2 launches one says nothing yet where the last ones were of no use: there would be one in each pass.
#[test]
fn while_the_next_replacement_after_one_in_vain_starts_no_other_is_launched() {
    for (words, waits_for_ready) in [(NOT_INITIALIZED, true), (TAKES_NO_PODS, true), (WORDS, false)] {
        let mut known = Disruptions::default();
        let refusal = Refused { node_pool: "pool-uid", message: words };
        known.record_refused_launch(&command(Method::StaticDrift, "old"), &refusal, &world(&[], 0));
        known.running.push(Running { started_at: at(400), ..command(Method::StaticDrift, "old") });
        let is_held = |new: Claim| held(&known, &world(&[new], 500), "other").is_some();
        assert!(is_held(of_pool("new")), "{words}: it has no machine yet");
        assert_eq!(is_held(after(&of_pool("new"), &joined())), waits_for_ready, "{words}");
        assert!(!is_held(serving("new")), "{words}");
    }
}

/// As where something cordons each new node, or it stops being ready: its command waits until its timeout, and all others would follow.
#[test]
fn while_the_next_replacement_after_one_in_vain_takes_no_pods_again_no_other_is_launched() {
    let useless: [fn(&mut Node); 2] = [|node| node.spec.unschedulable = true, |node| node.status.conditions.clear()];
    let changes = useless.map(|change| (change, true)).into_iter().chain([((|_| ()) as fn(&mut Node), false)]);
    for (words, is_in_vain) in [(TAKES_NO_PODS, true), (NOT_INITIALIZED, true), (WORDS, false)] {
        let mut known = Disruptions::default();
        let refusal = Refused { node_pool: "pool-uid", message: words };
        known.record_refused_launch(&command(Method::Drift, "old"), &refusal, &world(&[], 0));
        known.running.push(Running { started_at: at(400), ..command(Method::Drift, "old") });
        for (number, (change, is_useless)) in changes.clone().enumerate() {
            let mut node = Node { metadata: ObjectMeta::named("n"), ..Node::default() };
            conditions::set(&mut node.status.conditions, conditions::READY, ConditionStatus::True, "", "", at(450));
            change(&mut node);
            let mut snapshot = world(&[serving("new")], 500);
            snapshot.read.nodes = vec![node];
            // Until its command is given up, which counts as one more time.
            let until = (is_in_vain && is_useless).then_some(at(1_000));
            assert_eq!(held(&known, &snapshot, "other").map(|refused| refused.until), until, "{words}, {number}");
        }
    }
}

#[test]
fn commands_that_ran_together_count_once_and_nothing_is_kept_for_ever() {
    let mut known = refused(1, 0);
    let refusal = Refused { node_pool: "pool-uid", message: WORDS };
    known.record_refused_launch(&command(Method::StaticDrift, "other"), &refusal, &world(&[], 10));
    assert_eq!(held(&known, &world(&[], 11), "old").map(|refused| refused.until), Some(at(300)));
    known.forget_refusals(at(300 + 3_599));
    assert_eq!(known.launches_refused["pool-uid"].claims.len(), 2);
    known.forget_refusals(at(300 + 3_600));
    assert_eq!(known, Disruptions::default());
    assert_eq!(serde_json::to_value(&known).unwrap().get("launchesRefused"), None, "nothing is stored for none");
}

#[test]
fn a_change_of_pool_or_class_ends_the_wait_at_once() {
    let changes: [fn(&mut Snapshot); 4] = [
        |snapshot| snapshot.objects.node_pools[0].metadata.generation = Some(2),
        |snapshot| snapshot.objects.node_classes[0].metadata.generation = Some(2),
        |snapshot| snapshot.objects.node_classes[0].metadata.uid = "made anew".to_owned(),
        |snapshot| snapshot.objects.node_classes[0].status.instance_profile = Some("another".to_owned()),
    ];
    let mut known = refused(3, 100_000);
    for change in changes {
        let mut snapshot = world(&[], 100_001);
        change(&mut snapshot);
        assert_eq!(held(&known, &snapshot, "old"), None);
        let facts = known.facts(&snapshot);
        assert!(facts.get("old").is_none_or(|facts| !facts.was_refused_replacement), "it comes after no other");
    }
    // While they cannot be read nothing is known to have changed.
    let mut unread = world(&[], 100_001);
    unread.objects.node_classes.clear();
    assert!(held(&known, &unread, "old").is_some());
    // What is refused then is refused for the first time.
    let mut changed = world(&[], 100_001);
    changed.objects.node_classes[0].metadata.generation = Some(2);
    known.record_refused_launch(&command(Method::Drift, "old"), &Refused { node_pool: "pool-uid", message: WORDS }, &changed);
    assert_eq!(held(&known, &changed, "old").map(|refused| refused.until), Some(at(100_301)));
}

/// The pool of the machine that was refused is often another than that of the node: consolidation looks for the cheapest.
#[test]
fn a_deletion_of_the_pool_whose_machine_was_refused_ends_the_wait_of_other_pools() {
    let with_cheap = |now: i64| {
        let mut snapshot = world(&[], now);
        let mut cheap = pool_named("cheap");
        cheap.metadata.uid = "cheap-uid".to_owned();
        cheap.metadata.generation = Some(1);
        cheap.spec.template.spec.node_class_ref = node_class_reference("default");
        snapshot.objects.node_pools.push(cheap);
        snapshot
    };
    let mut known = Disruptions::default();
    let refusal = Refused { node_pool: "cheap-uid", message: WORDS };
    known.record_refused_launch(&command(Method::Drift, "old"), &refusal, &with_cheap(0));
    assert!(held(&known, &with_cheap(1), "old").is_some());
    let gone = world(&[], 1);
    assert_eq!(held(&known, &gone, "old"), None);
    let mut anew = with_cheap(1);
    anew.objects.node_pools[1].metadata.uid = "cheap-uid-2".to_owned();
    assert_eq!(held(&known, &anew, "old"), None, "it may ask for something else");
    let mut unread = world(&[], 1);
    unread.objects.unreadable.push(Unreadable { kind: "NodePool".to_owned(), ..Unreadable::default() });
    assert!(held(&known, &unread, "old").is_some(), "it may be that one");
    let mut unserved = world(&[], 1);
    unserved.objects.absent_kinds.push("NodePool".to_owned());
    assert!(held(&known, &unserved, "old").is_some(), "nothing is known of any");
}

/// They are listed by their free addresses, which each launch and each pod changes.
#[test]
fn subnets_in_another_order_end_no_wait() {
    let with = |ids: &[&str], now: i64| {
        let mut snapshot = world(&[], now);
        let subnet = |id: &&str| ResolvedSubnet { id: (*id).to_owned(), ..ResolvedSubnet::default() };
        snapshot.objects.node_classes[0].status.subnets = ids.iter().map(subnet).collect();
        snapshot
    };
    let mut known = Disruptions::default();
    let refusal = Refused { node_pool: "pool-uid", message: WORDS };
    known.record_refused_launch(&command(Method::Drift, "old"), &refusal, &with(&["subnet-1", "subnet-2"], 0));
    assert!(held(&known, &with(&["subnet-2", "subnet-1"], 1), "old").is_some());
    assert_eq!(held(&known, &with(&["subnet-1", "subnet-3"], 1), "old"), None, "these are others");
    known.record_refused_launch(&command(Method::Drift, "old"), &refusal, &with(&["subnet-2", "subnet-1"], 400));
    assert_eq!(held(&known, &with(&["subnet-1", "subnet-2"], 401), "old").map(|refused| refused.until), Some(at(1_000)), "the second time");
}

#[test]
fn one_command_at_a_time_tries_whether_ec2_still_refuses() {
    let mut known = refused(1, 0);
    known.running = vec![Running { started_at: at(400), ..command(Method::Drift, "old") }];
    let launching = after(&of_pool("new"), &[begun("t")]);
    assert!(held(&known, &world(&[launching], 500), "other").is_some());
    assert!(held(&known, &world(&[], 401), "other").is_some(), "it was stored a moment ago");
    assert_eq!(held(&known, &world(&[after(&of_pool("new"), &joined())], 500), "other"), None, "EC2 has started it");
    let running = known.running.remove(0);
    known.forget_refused_launch(&Running { replacements: Vec::new(), ..running.clone() }, &world(&[], 500));
    assert!(known.launches_refused.contains_key("pool-uid"), "that needed no machine");
    known.forget_refused_launch(&running, &world(&[], 500));
    assert_eq!(known, Disruptions::default());
}

#[test]
fn a_refusal_never_holds_nodes_of_other_pools_or_without_one() {
    let mut known = refused(1, 0);
    let elsewhere = |uid: &str| {
        let mut claim = serving("elsewhere");
        uid.clone_into(&mut claim.spec.owner.uid);
        claim
    };
    for uid in ["another", ""] {
        assert_eq!(held(&known, &world(&[elsewhere(uid)], 1), "elsewhere"), None);
    }
    let refusal = Refused { node_pool: "pool-uid", message: WORDS };
    known.record_refused_launch(&command(Method::Drift, "elsewhere"), &refusal, &world(&[elsewhere("")], 1));
    assert!(known.launches_refused.keys().eq(["pool-uid"]));
}

#[test]
fn what_is_remembered_of_refused_launches_is_bounded() {
    let mut known = Disruptions::default();
    let words = "long ".repeat(1_000);
    for number in 0..100 {
        let mut old = serving("old");
        old.spec.owner.uid = format!("pool-{number}");
        let snapshot = snapshot_of(vec![old], at(0));
        let removals = (0..100).map(|at| DeletingMachine { claim: format!("old-{at}").as_str().into(), node: String::new() });
        let removals = removals.chain([DeletingMachine { claim: "old".into(), node: String::new() }]).collect();
        let running = Running { removals, ..command(Method::MultiNode, "old") };
        known.record_refused_launch(&running, &Refused { node_pool: "pool-uid", message: &words }, &snapshot);
    }
    assert_eq!(known.launches_refused.len(), 50);
    assert!(serde_json::to_string(&known).unwrap().len() < 80_000, "the record is one item of the table");
}
