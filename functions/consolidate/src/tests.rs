mod deadlines;
mod displaced;
mod events;
mod failed_launches;
mod held;
mod leaving;
mod moves;
mod quiet;
mod pod_events;
mod protected;
mod quotas;
mod reason;
mod refused_launches;
mod refusals;
mod resumed;
mod shadow;
mod strays;
mod surplus;
mod uncountable;

use super::*;
use crate::execute::portion;
use crate::observe::pods_fingerprint;
use crate::progress::{self, Readiness, ledger_entry};
use crate::state::{DeletingMachine, SurplusClaim};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Node, Pod};
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ClusterObjects, ObjectMeta, OwnerReference, Unreadable};
use whittle_claims::{Claim, ClaimSpec, Deletion, DeletionReason, Event, Machine, mirror};
use whittle_disruption::{DisruptionEvent, KeepReason, LedgerEntry, StaticChange, Verdict, VerdictReason};
use whittle_model::disruption::{Memory, Move, Removal, Savings};
use whittle_model::scheduling::NewClaim;
use whittle_testkit::{at, begun, machine, planned, stored};
use whittle_units::Price;

fn claim(name: &str) -> Claim {
    Claim { uid: format!("uid-{name}"), ..planned(name, ClaimSpec::default()) }
}

fn after(claim: &Claim, events: &[Event]) -> Claim {
    whittle_testkit::after(claim, events, at(1))
}

fn joined() -> Vec<Event> {
    vec![begun("t"), Event::FleetAnswered(machine("i-1")), whittle_testkit::joined("n")]
}

fn readiness(snapshot: &Snapshot, running: &Running) -> Readiness {
    progress::readiness(snapshot, running, crate::state::command_timeout(1))
}

fn snapshot_of(claims: Vec<Claim>, now: Timestamp) -> Snapshot {
    Snapshot::of(now, ClusterObjects::default(), stored(claims), Vec::new(), BTreeMap::new())
}

fn ledger() -> LedgerEntry {
    LedgerEntry {
        id: "c1".to_owned(),
        at: at(0),
        reason: "Underutilized".to_owned(),
        action: "replace".to_owned(),
        nodes: vec!["node-old".to_owned()],
        node_pools: vec!["default".to_owned()],
        before_nanos: Price::from_nanos(500),
        after_nanos: Price::from_nanos(100),
        pods_moved: 3,
    }
}

fn running(replacements: Vec<Claim>) -> Running {
    Running {
        id: "c1".to_owned(),
        method: Method::SingleNode,
        started_at: at(0),
        removals: vec![DeletingMachine { claim: "old".into(), node: "node-old".to_owned() }],
        replacements,
        closed: false,
        stored: true,
        waited: false,
        ledger: ledger(),
    }
}

/// A command that removes these nodes at once, without replacements; neither priced nor simulated.
fn command(method: Method, removals: Vec<Removal>) -> Command {
    Command {
        method,
        removals,
        replacements: Vec::new(),
        destinations: Vec::new(),
        placements: Vec::new(),
        savings: Savings::default(),
        execute_after: at(0),
    }
}

#[test]
fn the_record_of_many_commands_fits_into_one_item() {
    // DynamoDB's limit; and more commands than run at once, each with the longest list of types.
    const ITEM_BYTES: usize = 400_000;
    const COMMANDS: usize = 120;
    let mut whole = claim("new-1");
    whole.spec.instance_types = (0..60).map(|number| format!("m5.{number}xlarge")).collect();
    whole.spec.pods = (0..50).map(|number| whittle_claims::PodKey { name: format!("pod-{number}"), ..Default::default() }).collect();
    whole.spec.replaces = Some("c1".to_owned());
    let mut command = running(vec![whole.clone(), Claim { key: claim("new-2").key, ..whole }]);
    let size = |command: &Running| serde_json::to_string(command).unwrap().len();
    let before = size(&command);
    assert!(ITEM_BYTES < before * COMMANDS, "whole specs would not fit: {before} bytes each");
    command.drop_stored_specs();
    assert!(size(&command) * COMMANDS < ITEM_BYTES, "{} bytes each", size(&command));
    let names: Vec<&str> = command.replacements.iter().map(|claim| claim.key.name.as_str()).collect();
    assert_eq!(names, ["new-1", "new-2"], "they are still awaited");
    assert!(command.replacements.iter().all(|claim| claim.spec.replaces.as_deref() == Some("c1")));
}

#[test]
fn old_nodes_are_deleted_only_after_every_replacement_is_initialized() {
    let young = claim("new");
    let joined = after(&young, &joined());
    let ready = after(&joined, &[Event::NodeReady]);
    let command = running(vec![young.clone()]);
    assert_eq!(readiness(&snapshot_of(vec![young.clone()], at(5)), &command), Readiness::Waiting);
    assert_eq!(readiness(&snapshot_of(vec![joined], at(5)), &command), Readiness::Waiting);
    assert_eq!(readiness(&snapshot_of(vec![ready], at(5)), &command), Readiness::Ready);
    assert_eq!(readiness(&snapshot_of(vec![], at(5)), &running(vec![])), Readiness::Ready, "nothing to wait for");
}

#[test]
fn the_ledger_has_the_actual_prices_of_replacements() {
    let entered = |price: u64| {
        let young = claim("new");
        let fleet = Machine { price: Price::from_nanos(price), ..machine("i-1") };
        let launched = after(&young, &[Event::LaunchBegun { client_token: "t".to_owned() }, Event::FleetAnswered(fleet)]);
        let (_, record) = ledger_entry(&snapshot_of(vec![launched], at(60)), &running(vec![young]));
        assert_eq!((record.subject.as_str(), record.at), ("ledger", at(60)));
        serde_json::from_value::<LedgerEntry>(record.detail["ledger"].clone()).unwrap()
    };
    assert_eq!(entered(150).after_nanos, Price::from_nanos(150));
    assert_eq!(entered(0).after_nanos, Price::from_nanos(100), "without a price, the expected one is kept");
    assert_eq!(entered(150).at, at(60), "when the old machines are deleted");
}

#[test]
fn a_lost_replacement_rolls_the_command_back() {
    let young = claim("new");
    let command = running(vec![young.clone()]);
    let deletion = Deletion::without_deadline(DeletionReason::LaunchTimeout, at(2), "no machine was launched");
    let ending = after(&young, &[Event::DeletionRequested(deletion)]);
    assert!(
        matches!(readiness(&snapshot_of(vec![ending], at(5)), &command), Readiness::Lost(why) if why.contains("no machine was launched"))
    );
    assert!(matches!(readiness(&snapshot_of(vec![], at(5)), &command), Readiness::Lost(why) if why.contains("was deleted")));
    assert_eq!(readiness(&snapshot_of(vec![young.clone()], at(600)), &command), Readiness::Waiting, "it is just in time");
    let late = at(601);
    assert!(matches!(readiness(&snapshot_of(vec![young], late), &command), Readiness::Lost(why) if why.contains("not ready in time")));
}

/// Its budgets may have changed, or the pool be in shadow mode.
#[test]
fn no_old_node_is_deleted_while_a_pool_of_the_command_cannot_be_read() {
    let young = claim("new");
    let ready = after(&after(&young, &joined()), &[Event::NodeReady]);
    let command = running(vec![young]);
    let stands = |kind: &str, name: &str, now: i64| {
        let odd = Unreadable { kind: kind.to_owned(), metadata: ObjectMeta::named(name), ..Unreadable::default() };
        let read = ClusterObjects { unreadable: vec![odd], ..ClusterObjects::default() };
        readiness(&Snapshot::of(at(now), read, stored(vec![ready.clone()]), Vec::new(), BTreeMap::new()), &command)
    };
    for kind in ["NodePool", "Provisioner"] {
        assert_eq!(stands(kind, "default", 600), Readiness::Waiting, "{kind}");
        assert!(matches!(stands(kind, "default", 601), Readiness::Lost(_)), "{kind}");
        assert_eq!(stands(kind, "other", 5), Readiness::Ready, "{kind}");
    }
    assert_eq!(stands("EC2NodeClass", "default", 5), Readiness::Ready, "nothing is launched any more");
}

#[test]
fn commands_finish_as_their_replacements_become_ready() {
    let (first, second) = (claim("first"), claim("second"));
    let ready = |young: &Claim| after(&after(young, &joined()), &[Event::NodeReady]);
    let stands = |claims: Vec<Claim>, of: &Claim| readiness(&snapshot_of(claims, at(5)), &running(vec![of.clone()]));
    let claims = vec![first.clone(), ready(&second)];
    assert_eq!((stands(claims.clone(), &first), stands(claims, &second)), (Readiness::Waiting, Readiness::Ready));
    let both = running(vec![first.clone(), second.clone()]);
    assert_eq!(readiness(&snapshot_of(vec![ready(&first), second.clone()], at(5)), &both), Readiness::Waiting, "one of its two");
    assert_eq!(readiness(&snapshot_of(vec![ready(&first), ready(&second)], at(5)), &both), Readiness::Ready);
}

#[test]
fn the_command_timeout_grows_with_the_number_of_nodes() {
    for (nodes, seconds) in
        [(1, 600), (100, 600), (4_000, 600), (10_000, 800), (40_000, 3_200), (45_000, 3_600), (80_000, 3_600), (usize::MAX, 3_600)]
    {
        assert_eq!(crate::state::command_timeout(nodes), SignedDuration::from_secs(seconds), "{nodes} nodes");
    }
    let command = running(vec![claim("new")]);
    let stands = |timeout| progress::readiness(&snapshot_of(vec![claim("new")], at(601)), &command, crate::state::command_timeout(timeout));
    assert!(matches!(stands(1), Readiness::Lost(_)));
    assert_eq!(stands(10_000), Readiness::Waiting);
}

/// The claim records it only after the next sweep: the old machine must not be deleted before.
#[test]
fn a_replacement_deleted_by_a_user_counts_as_lost_at_once() {
    let young = claim("new");
    let ready = after(&after(&young, &joined()), &[Event::NodeReady]);
    let command = running(vec![young]);
    let deleted = |name: &str| ObjectMeta { name: name.to_owned(), deletion_timestamp: Some(at(3)), ..ObjectMeta::default() };
    let readiness_with = |objects: ClusterObjects| {
        let claims = snapshot_of(vec![ready.clone()], at(5)).claims;
        readiness(&Snapshot::of(at(5), objects, claims, Vec::new(), BTreeMap::new()), &command)
    };
    let object = |name: &str| NodeClaim { metadata: deleted(name), ..NodeClaim::default() };
    assert_eq!(readiness_with(ClusterObjects { node_claims: vec![object("other")], ..ClusterObjects::default() }), Readiness::Ready);
    let node = Node { metadata: deleted(ready.node_name().unwrap()), ..Node::default() };
    let of_claim = ClusterObjects { node_claims: vec![object("other"), object("new")], ..ClusterObjects::default() };
    for objects in [of_claim, ClusterObjects { nodes: vec![node], ..ClusterObjects::default() }] {
        assert!(matches!(readiness_with(objects), Readiness::Lost(why) if why.contains("by a user")));
    }
}

#[test]
fn a_replacement_stored_by_this_run_does_not_count_as_deleted() {
    let command = Running { started_at: at(5), ..running(vec![claim("new")]) };
    assert_eq!(readiness(&snapshot_of(vec![], at(5)), &command), Readiness::Waiting);
    let unstored = Running { stored: false, ..running(vec![claim("new")]) };
    assert_eq!(readiness(&snapshot_of(vec![], at(60)), &unstored), Readiness::Waiting);
}

fn pod(uid: &str, owner: &str) -> Pod {
    let mut pod = Pod { metadata: ObjectMeta { uid: uid.to_owned(), ..ObjectMeta::default() }, ..Pod::default() };
    pod.metadata.owner_references =
        vec![OwnerReference { kind: owner.to_owned(), controller: Some(true), ..OwnerReference::default() }].into();
    pod
}

#[test]
fn only_workload_pods_cause_pod_events() {
    let web = pod("1", "ReplicaSet");
    let daemon = pod("2", "DaemonSet");
    let mut ended = pod("3", "Job");
    ended.status.phase = "Succeeded".to_owned();
    let mut ending = pod("4", "ReplicaSet");
    ending.metadata.deletion_timestamp = Some(at(0));
    let other = pod("5", "ReplicaSet");
    let alone = pods_fingerprint([&web].into_iter());
    assert_eq!(pods_fingerprint([&daemon, &web, &ended, &ending].into_iter()), alone);
    assert_ne!(pods_fingerprint([&web, &other].into_iter()), alone);
    assert_eq!(pods_fingerprint([&web, &other].into_iter()), pods_fingerprint([&other, &web].into_iter()), "order does not matter");
}

#[test]
fn pods_of_a_replaced_node_count_until_they_are_evicted() {
    let mut staying = pod("1", "ReplicaSet");
    "staying".clone_into(&mut staying.metadata.name);
    let mut replacement = claim("new");
    replacement.spec.replaces = Some("c1".to_owned());
    replacement.spec.pods = vec![whittle_claims::PodKey { name: "staying".to_owned(), uid: "1".to_owned(), ..Default::default() }];
    let old = after(&claim("old"), &joined());
    staying.spec.node_name = old.node_name().unwrap().to_owned();
    let node = staying.spec.node_name.clone();
    let claims = snapshot_of(vec![old, replacement], at(10)).claims;
    let with_pods = |pods| {
        let read = ClusterObjects { pods, ..ClusterObjects::default() };
        let mut snapshot = Snapshot::of(at(10), read, claims.clone(), Vec::new(), BTreeMap::new());
        snapshot.mark_deleting(["old".into()]);
        snapshot
    };
    let noted = |snapshot: &Snapshot| {
        let earlier = Move {
            at: at(0),
            removed: Vec::new(),
            nodes: vec![node.clone()],
            undrained_at: None,
            drained_at: None,
            launched: Vec::new(),
            workloads: [("web".to_owned(), 1)].into(),
            move_counts: BTreeMap::new(),
        };
        let mut stored = Disruptions { memory: Memory { moves: vec![earlier], ..Memory::default() }, ..Disruptions::default() };
        stored.track_moves(snapshot);
        (stored.memory.moves[0].undrained_at, stored.memory.moves[0].drained_at)
    };
    let waiting = with_pods(vec![staying].into());
    assert_eq!(waiting.objects.pods[0].spec.node_name, "planned:///new", "to decisions the pod is there already");
    assert_eq!(noted(&waiting), (Some(at(10)), None));
    assert_eq!(noted(&with_pods(Vec::new().into())), (None, Some(at(10))));
}

#[test]
fn nominated_machines_are_not_disrupted() {
    let taking = after(&claim("taking"), &[joined(), vec![Event::NodeReady]].concat());
    let snapshot_at = |now| {
        let shown = whittle_claims::mirror(&taking);
        let objects = ClusterObjects { node_claims: vec![shown], ..ClusterObjects::default() };
        let claims = snapshot_of(vec![taking.clone()], now).claims;
        Snapshot::of(now, objects, claims, Vec::new(), BTreeMap::new())
    };
    let mut snapshot = snapshot_at(at(0));
    let name = snapshot.nodes[0].name().to_owned();
    let command = Command { destinations: vec![name], ..command(Method::SingleNode, vec![Removal::default()]) };
    let nominated = crate::execute::nominations(&command, &snapshot);
    assert_eq!(nominated, BTreeMap::from([("taking".to_owned(), at(20))]));
    snapshot.expect_also(&nominated);
    assert_eq!(snapshot.nodes[0].nominated_until, Some(at(20)));
    assert!(crate::execute::nominations(&Command { destinations: Vec::new(), ..command }, &snapshot).is_empty());
}

#[test]
fn a_replacement_is_nominated_while_its_command_runs_and_the_old_nodes_are_being_deleted() {
    let young = claim("new");
    let joined = after(&young, &joined());
    let ready = after(&joined, &[Event::NodeReady]);
    let old = after(&claim("old"), &[begun("o"), Event::FleetAnswered(machine("i-0"))]);
    let deletion = Deletion::without_deadline(DeletionReason::Drifted, at(4), "part of command c1");
    let ending = after(&old, &[Event::DeletionRequested(deletion.clone())]);
    let command = || Running { method: Method::Drift, ..running(vec![young.clone()]) };
    let awaited = |claims: &[&Claim], earlier: &[Running], now: &[Running]| {
        let claims = claims.iter().map(|claim| (*claim).clone()).collect();
        crate::execute::awaited(&snapshot_of(claims, at(5)), earlier, now).into_iter().collect::<Vec<_>>()
    };
    let nominated = vec![("new".to_owned(), at(80))];
    assert_eq!(awaited(&[&old, &ready], &[command()], &[command()]), nominated, "it waits for another replacement");
    assert_eq!(awaited(&[&ending, &ready], &[command()], &[]), nominated, "the old node is drained");
    assert_eq!(awaited(&[&old, &ready], &[command()], &[]), [], "the command was rolled back: it is a machine like any other");
    assert_eq!(awaited(&[&ready], &[command()], &[]), [], "the old node is gone");
    assert_eq!(awaited(&[&ending, &ready], &[], &[]), [], "and later passes leave it to what `schedule` expects");
    assert_eq!(awaited(&[&old, &joined], &[command()], &[command()]), [], "it is not ready yet");
    let deleted = after(&ready, &[Event::DeletionRequested(deletion)]);
    assert_eq!(awaited(&[&ending, &deleted], &[command()], &[]), [], "it is being deleted itself");
    let of_static_pool = Running { method: Method::StaticDrift, ..command() };
    assert_eq!(awaited(&[&ending, &ready], &[of_static_pool], &[]), [], "no pods were planned for it");
}

#[test]
fn pod_events_within_ten_seconds_are_one() {
    let check = |last: Option<i64>, now: i64, want: i64| {
        assert_eq!(crate::observe::last_pod_event(last.map(at), at(now)), Some(at(want)), "{last:?}, then {now}");
    };
    check(None, 5, 5);
    check(Some(5), 14, 5);
    check(Some(5), 15, 15);
    check(Some(5), 4, 4); // a clock that was set back
}

#[test]
fn doorbells_do_not_multiply() {
    let ready = after(&claim("a"), &[joined(), vec![Event::NodeReady]].concat());
    let snapshot = snapshot_of(vec![ready], at(0));
    let mut next = Disruptions::default();
    let usual = Some(PASS_INTERVAL);
    assert_eq!(schedule_next_pass(&snapshot, &Disruptions::default(), usual, &mut next), usual);
    let mut again = next.clone();
    assert_eq!(schedule_next_pass(&snapshot, &next, usual, &mut again), None, "one is pending");
    let sooner = Some(SignedDuration::from_secs(3));
    assert_eq!(schedule_next_pass(&snapshot, &next, sooner, &mut again), sooner, "but not soon enough");
    let idle = snapshot_of(vec![], at(0));
    assert_eq!(schedule_next_pass(&idle, &next, usual, &mut again), None, "the cluster has no machines of ours");
    assert_eq!(schedule_next_pass(&snapshot, &next, None, &mut again), None, "nothing changes");
    assert_eq!(again.next_look_at, None, "so that a later pass rings whenever it wants to");
}

fn change(launch: usize) -> StaticChange {
    let launch = vec![Default::default(); launch];
    StaticChange { node_pool: "fixed".to_owned(), launch, delete: Vec::new(), at_limit: false, shadow: false }
}

#[test]
fn a_static_pool_is_not_changed_in_shadow_mode_or_with_unreadable_claims() {
    let live = Settings::default();
    let none: [String; 0] = [];
    assert_eq!(statics::blocked_reason(&live, &change(2), &none), None);
    assert_eq!(statics::blocked_reason(&live, &change(2), &["other-1".to_owned(), "fixedly-1".to_owned()]), None);
    let hidden = statics::blocked_reason(&live, &change(2), &["fixed-1".to_owned()]).unwrap();
    assert_eq!(hidden, "its machines cannot be counted: NodeClaim fixed-1 cannot be read");
    let shadow = Settings { mode: Mode::Shadow, ..Settings::default() };
    assert_eq!(statics::blocked_reason(&shadow, &change(2), &none).unwrap(), "would (shadow mode) launch 2 machines and delete 0");
    assert!(statics::blocked_reason(&live, &StaticChange { shadow: true, ..change(2) }, &none).is_some());
}

/// A claim of the pool `fixed` whose fleet call may have been made.
fn launching() -> Claim {
    let spec = ClaimSpec { node_pool: "fixed".to_owned(), ..ClaimSpec::default() };
    after(&Claim { spec, ..claim("fixed-1") }, &[begun("t")])
}

#[test]
fn a_deleted_claim_counts_for_its_pool_while_it_may_still_get_a_machine() {
    let pool_of = |snapshot: &Snapshot| Disruptions::default().facts(snapshot)["fixed-1"].pool_of_pending_launch.clone();
    assert!(Disruptions::default().facts(&snapshot_of(vec![launching()], at(5))).is_empty(), "one that is not deleted counts anyway");

    let deletion = Deletion::without_deadline(DeletionReason::ScaledDown, at(2), "");
    let ending = after(&launching(), &[Event::DeletionRequested(deletion)]);
    assert_eq!(pool_of(&snapshot_of(vec![ending], at(5))).as_deref(), Some("fixed"));

    let mut deleted = mirror(&launching());
    deleted.metadata.deletion_timestamp = Some(at(3));
    let read = ClusterObjects { node_claims: vec![deleted], ..ClusterObjects::default() };
    let by_user = Snapshot::of(at(5), read, stored(vec![launching()]), Vec::new(), BTreeMap::new());
    assert_eq!(pool_of(&by_user).as_deref(), Some("fixed"), "also if a user requested its deletion");
}

#[test]
fn a_surplus_claim_is_excluded_from_other_commands_and_keeps_passes_going() {
    let surplus = SurplusClaim { claim: "fixed-2".into(), node_pool: "fixed".to_owned(), message: String::new() };
    let state = Disruptions { surplus: vec![surplus], ..Disruptions::default() };
    assert!(state.facts(&snapshot_of(vec![], at(5)))["fixed-2"].in_command);
    assert!(!state.is_idle());
}

#[test]
fn the_number_of_simulations_follows_the_time_and_has_a_minimum() {
    let check = |seconds: i64, expected: u32| assert_eq!(simulations(SignedDuration::from_secs(seconds), 6_000), expected, "{seconds} s");
    check(50, 6_000);
    check(20, 3_000);
    check(1, 150);
    check(0, 100);
    // Passes that have no time for more still get through a thousand nodes within two minutes.
    let passes = 120 / PASS_INTERVAL.as_secs();
    assert!(1_000 <= i64::from(SIMULATIONS_MIN) * passes);
}

#[test]
fn a_command_is_shadowed_if_any_of_its_pools_is() {
    let command = Running { ledger: LedgerEntry { node_pools: vec!["a".to_owned(), "b".to_owned()], ..ledger() }, ..running(vec![]) };
    let shadowed = |pool: &str| {
        let mut snapshot = snapshot_of(vec![], at(0));
        let mut metadata = ObjectMeta::named(pool);
        metadata.annotations.insert(whittle_api::labels::SHADOW.to_owned(), "true".to_owned());
        snapshot.objects.node_pools = vec![whittle_api::karpenter::NodePool { metadata, ..Default::default() }];
        crate::progress::is_shadowed(&snapshot, &command)
    };
    assert!(shadowed("b"));
    assert!(!shadowed("c"));
}

#[path = "../../../tests/golden/records/check.rs"]
mod golden;

#[test]
fn stored_commands_of_every_release_stay_readable() {
    use whittle_claims::Record;
    let read = golden::check::<Disruptions>(Disruptions::KIND, Disruptions::VERSION);
    assert_eq!((read.running.len(), read.resting.is_some(), read.is_idle()), (1, true, false));
}

#[test]
fn a_command_is_counted_once_and_its_nodes_with_their_pods() {
    let removal = |node: &str, pods: &[&str]| Removal {
        node: node.to_owned(),
        node_pool: "default".to_owned(),
        pods: pods.iter().map(|pod| (*pod).to_owned()).collect(),
        ..Removal::default()
    };
    let replacements = vec![NewClaim { node_pool: "default".to_owned(), ..NewClaim::default() }];
    let command = Command { replacements, ..command(Method::MultiNode, vec![removal("a", &["x", "y"]), removal("b", &["z"])]) };
    let mut report = Report::default();
    metrics::command_started(&mut report, &snapshot_of(vec![], at(0)), &command);
    let sum = |metric: &str| report.metrics.iter().filter(|one| one.metric == metric).map(|one| one.by).sum::<u64>();
    assert_eq!(sum("karpenter_voluntary_disruption_decisions_total"), 1);
    assert_eq!(sum("karpenter_voluntary_disruption_decisions_by_nodepool_total"), 1);
    assert_eq!(sum("karpenter_nodeclaims_disrupted_total"), 2);
    assert_eq!(sum("karpenter_pods_disruption_initiated_total"), 3);
    assert_eq!(sum("karpenter_nodeclaims_created_total"), 1);
}

#[test]
fn of_thousands_of_empty_nodes_a_command_removes_as_many_as_a_run_gets_through() {
    let price = |dollars: usize| Price::from_nanos(1_000_000_000 * u64::try_from(dollars).unwrap());
    let removal = |number: usize| Removal { node: format!("n{number:04}"), price: price(1), ..Removal::default() };
    let of = |method: Method, nodes: usize| Command {
        savings: Savings::between(price(nodes), Price::ZERO),
        ..command(method, (0..nodes).map(removal).collect())
    };
    assert_eq!(portion(&of(Method::Emptiness, 2_500)), of(Method::Emptiness, 1_000), "the next pass finds the others");
    for (method, nodes) in [(Method::Emptiness, 1_000), (Method::MultiNode, 2_500), (Method::Drift, 1)] {
        assert_eq!(portion(&of(method, nodes)), of(method, nodes), "one that needs simulations stays whole");
    }
}

#[test]
fn decisions_are_counted_by_decision_reason_and_type() {
    let check = |method: Method, launched: usize, want: [&str; 3]| {
        let removal = Removal { node: "a".to_owned(), node_pool: "default".to_owned(), ..Removal::default() };
        let command = Command { replacements: vec![NewClaim::default(); launched], ..command(method, vec![removal]) };
        let mut report = Report::default();
        metrics::command_started(&mut report, &snapshot_of(vec![], at(0)), &command);
        for metric in ["decisions_total", "decisions_by_nodepool_total"] {
            let metric = format!("karpenter_voluntary_disruption_{metric}");
            let found: Vec<_> = report.metrics.iter().filter(|one| one.metric == metric).collect();
            let [one] = found[..] else { panic!("{metric}: {found:?}") };
            assert_eq!(["decision", "reason", "consolidation_type"].map(|label| one.labels[label].as_str()), want);
            assert_eq!(one.by, 1);
        }
    };
    check(Method::Emptiness, 0, ["delete", "empty", "empty"]);
    check(Method::MultiNode, 0, ["delete", "underutilized", "multi"]);
    check(Method::MultiNode, 1, ["replace", "underutilized", "multi"]);
    check(Method::SingleNode, 0, ["delete", "underutilized", "single"]);
    check(Method::SingleNode, 1, ["replace", "underutilized", "single"]);
    check(Method::Drift, 0, ["delete", "drifted", ""]);
    check(Method::StaticDrift, 1, ["replace", "drifted", ""]);
}

#[test]
fn nodes_that_fail_validation_are_counted_and_zero_is_not() {
    let mut report = Report::default();
    metrics::validation_failed(&mut report, Method::Emptiness, 0);
    assert!(report.metrics.is_empty());
    metrics::validation_failed(&mut report, Method::SingleNode, 2);
    let one = &report.metrics[0];
    assert_eq!((one.metric, one.by), ("karpenter_voluntary_disruption_failed_validations_total", 2));
    assert_eq!(one.labels["consolidation_type"], "single");
}

#[test]
fn events_about_pools_and_pods_are_always_published() {
    let is_published = |object: &str| {
        let note = DisruptionEvent { object: object.to_owned(), reason: "DisruptionBlocked", message: String::new(), warning: false };
        publish::is_new(&note, &["n"].into(), &["c"].into())
    };
    assert!(["node/n", "nodeclaim/c", "nodepool/p", "pod/default/p"].into_iter().all(is_published));
    assert!(!["node/other", "nodeclaim/n"].into_iter().any(is_published));
}

/// A decision with a verdict about a node, and Events about these objects.
fn decision(why: KeepReason, notes: &[&str]) -> Decision {
    let note = |object: &&str| DisruptionEvent {
        object: (*object).to_owned(),
        reason: "Unconsolidatable",
        message: String::new(),
        warning: false,
    };
    let verdict = Verdict { node: "n".into(), node_claim: "c".into(), node_pool: "default".into(), reason: VerdictReason::Kept(why) };
    Decision {
        commands: Vec::new(),
        shadow: Vec::new(),
        verdicts: vec![verdict],
        events: notes.iter().map(note).collect(),
        conditions: Vec::new(),
        budgets: Vec::new(),
        eligible: BTreeMap::new(),
        timeouts: BTreeSet::new(),
        scores: Vec::new(),
        memory: Memory::default(),
    }
}

#[test]
fn an_unchanged_verdict_is_published_every_quarter_of_an_hour_and_logged_once() {
    let mut stored = BTreeMap::new();
    let mut look = |minutes: i64, why: KeepReason, notes: &[&str]| {
        let (decision, mut news) = (decision(why, notes), publish::NewVerdicts::default());
        for (number, page) in publish::changed_pages(&decision, &stored, at(minutes * 60), &mut news) {
            stored.insert(number, Stored { value: page, revision: Revision::ABSENT });
        }
        (news.changed.len(), news.to_publish.len())
    };
    assert_eq!(look(0, KeepReason::NothingCheaper, &["node/n", "nodeclaim/c"]), (1, 1));
    assert_eq!(look(1, KeepReason::NothingCheaper, &["node/n"]), (0, 0));
    assert_eq!(look(14, KeepReason::NothingCheaper, &["node/n"]), (0, 0));
    assert_eq!(look(16, KeepReason::NothingCheaper, &[]), (0, 0), "this pass has no Events: the next has");
    assert_eq!(look(17, KeepReason::NothingCheaper, &["node/n"]), (0, 1));
    assert_eq!(look(18, KeepReason::NothingCheaper, &["node/n"]), (0, 0));
    assert_eq!(look(19, KeepReason::StaticPool, &["node/n"]), (1, 1), "a new verdict is published at once");
}

/// One page that is too long would not be stored, nor would anybody have an Event.
#[test]
fn a_verdict_that_names_thousands_of_pods_is_cut() {
    let pods: Vec<String> = (0..3000).map(|number| format!("default/p-{number}")).collect();
    let decision = decision(KeepReason::PendingPods { pods }, &["node/n"]);
    let pages = publish::changed_pages(&decision, &BTreeMap::new(), at(0), &mut publish::NewVerdicts::default());
    let texts: Vec<&str> = pages.values().flat_map(|page| page.verdicts.values()).map(|verdict| verdict.text.as_str()).collect();
    let [text] = texts[..] else { panic!("{texts:?}") };
    assert!(text.starts_with("kept: empty, but pending pods fit on it: default/p-0, ") && text.ends_with('…'), "{text}");
    assert_eq!(text.len(), 2048 + '…'.len_utf8());
}

#[test]
fn a_failed_command_counts_the_replacements_that_were_lost() {
    let ready = after(&claim("new"), &[joined(), vec![Event::NodeReady]].concat());
    let command = running(vec![claim("new"), claim("lost")]);
    let mut report = Report::default();
    metrics::command_failed(&mut report, &snapshot_of(vec![ready], at(5)), &command);
    assert_eq!((report.metrics[0].metric, report.metrics[0].by), ("karpenter_voluntary_disruption_queue_failures_total", 1));
}

#[test]
fn a_successful_command_emits_what_it_saves() {
    let mut report = Report::default();
    metrics::savings(&mut report, &ledger());
    let saved = Price::from_nanos(500 - 100);
    assert_eq!(report.gauges[0].amount, whittle_ports::Amount::Dollars(saved));
}
