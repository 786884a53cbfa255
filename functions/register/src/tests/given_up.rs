//! Claims whose timeout has passed and that are given up, or not.

use super::over_sim::{owned, run_over, still};
use super::{claim, node, now, ready};
use futures::executor::block_on;
use whittle_api::k8s::Node;
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ObjectMeta, OwnerReference, labels};
use whittle_claims::{Claim, DeletionReason, Event, mirror};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_ports::{Adapters, Mode, Report, Settings};
use whittle_testkit::{TestWorld, after, begun, deletion, instance_of, machine};
use whittle_units::SignedDuration;

fn planned() -> Claim {
    owned(Claim::planned(claim().key, "uid".into(), claim().spec, now()), "a")
}

/// Why the claim is given up when its launch has taken five minutes, if it is.
fn given_up(claim: &Claim, prepare: impl FnOnce(&TestWorld)) -> Option<DeletionReason> {
    let mut simulation = still();
    simulation.store(claim);
    prepare(&simulation);
    simulation.run_for(SignedDuration::from_mins(5));
    run_over(&simulation.ports());
    simulation.claim(&claim.key).deletion.map(|deletion| deletion.reason)
}

/// An instance of the call with token `t`.
fn started(id: &str, state: InstanceState) -> Instance {
    let tags = [(labels::TAG_LAUNCH.to_owned(), "t".to_owned())].into();
    Instance { state, tags, ..instance_of(&machine(id)) }
}

/// Its pods would get another one beside it.
#[test]
fn a_launch_whose_machine_runs_unassigned_is_never_given_up() {
    let launching = after(&planned(), &[begun("t")], now());
    let overdue = Some(DeletionReason::LaunchTimeout);
    let beside = |id: &'static str, state| move |simulation: &TestWorld| _ = simulation.start_machine(started(id, state));
    assert_eq!(given_up(&launching, |_| ()), overdue);
    assert_eq!(given_up(&launching, beside("i-9", InstanceState::Running)), None, "launch or sweep assigns it");
    assert_eq!(given_up(&launching, beside("i-9", InstanceState::Terminated)), overdue);
    let other_call = after(&planned(), &[begun("u")], now());
    assert_eq!(given_up(&other_call, beside("i-9", InstanceState::Running)), overdue);
    let of_another_claim = |simulation: &TestWorld| {
        simulation.store(&owned(claim(), "b"));
        simulation.start_machine(started("i-1", InstanceState::Running));
    };
    assert_eq!(given_up(&launching, of_another_claim), overdue, "it serves another claim of the call");
}

/// The table was restored to a time before the launch.
#[test]
fn a_claim_whose_nodeclaim_or_node_shows_a_machine_is_never_given_up() {
    let shown = |simulation: &TestWorld| simulation.create(mirror(&planned()));
    assert_eq!(given_up(&planned(), shown), Some(DeletionReason::LaunchTimeout));
    let names_machine = |simulation: &TestWorld| {
        shown(simulation);
        simulation.change::<NodeClaim>("a", |object| object.status.provider_id = "aws:///z/i-9".into());
    };
    assert_eq!(given_up(&planned(), names_machine), None);
    let owns_node = |simulation: &TestWorld| {
        shown(simulation);
        let uid = simulation.get::<NodeClaim>("a").unwrap().metadata.uid;
        let mut node: Node = ready(node());
        node.metadata.owner_references = vec![OwnerReference { uid, ..OwnerReference::default() }].into();
        simulation.create(node);
    };
    assert_eq!(given_up(&planned(), owns_node), None);
}

#[test]
fn in_shadow_mode_no_claim_is_given_up_and_no_node_registered() {
    let mut simulation = still();
    let (overdue, joins) = (planned(), owned(claim(), "b"));
    simulation.store(&overdue);
    simulation.store(&joins);
    simulation.create(node());
    simulation.run_for(SignedDuration::from_mins(5));
    let (ports, shadow) = (simulation.ports(), Settings { mode: Mode::Shadow, ..Settings::default() });
    let before = simulation.get::<Node>("n");
    let report = block_on(crate::handle(Adapters::all(&ports), &shadow, &overdue.key.cluster)).unwrap();
    assert_eq!(report, Report::default());
    assert_eq!((simulation.claim(&overdue.key), simulation.claim(&joins.key)), (overdue, joins));
    assert_eq!(simulation.get::<Node>("n"), before);
    let report = run_over(&ports);
    assert_eq!((report.counted("given_up"), report.counted("registered")), (1, 1));
}

/// Why a machine that has not joined is given up after twenty minutes, if it is, while a Node with this provider id cannot be read.
fn given_up_beside_unreadable(provider_id: &str) -> Option<DeletionReason> {
    let mut simulation = still();
    let waiting = owned(claim(), "a");
    simulation.store(&waiting);
    let mut odd = node();
    odd.spec.provider_id = provider_id.into();
    simulation.create(odd);
    simulation.world().hide_always("Node", "n", true);
    simulation.run_for(SignedDuration::from_mins(20));
    run_over(&simulation.ports());
    simulation.claim(&waiting.key).deletion.map(|deletion| deletion.reason)
}

#[test]
fn a_node_that_cannot_be_read_keeps_its_own_machine_and_none_that_does_not_join() {
    assert_eq!(given_up_beside_unreadable("aws:///z/i-1"), None);
    assert_eq!(given_up_beside_unreadable(""), None, "it may be the machine's");
    assert_eq!(given_up_beside_unreadable("aws:///z/i-2"), Some(DeletionReason::RegistrationTimeout));
}

/// Whoever drained one of two would evict the pods of a machine that goes on.
#[test]
fn a_machine_that_is_deleted_gets_the_name_of_its_only_node_and_of_none_of_several() {
    let deleted = Event::DeletionRequested(deletion(DeletionReason::Requested, now()));
    let draining = after(&owned(claim(), "a"), &[deleted], now());
    let name_among = |nodes: &[&str]| {
        let simulation = still();
        simulation.store(&draining);
        for name in nodes {
            simulation.create(Node { metadata: ObjectMeta::named(*name), ..node() });
        }
        run_over(&simulation.ports());
        simulation.claim(&draining.key).node_name().map(str::to_owned)
    };
    assert_eq!(name_among(&[]), None);
    assert_eq!(name_among(&["n"]).as_deref(), Some("n"));
    assert_eq!(name_among(&["m", "n"]), None);
}
