//! Many claims of one call, where every call to table, cluster, queue and EC2 has latency.

use super::over_sim::{keep, keep_as, run_over, with_functions};
use super::repeated::{ready, with_class};
use super::requests::leave_tokens;
use futures::executor::block_on;
use futures::future::BoxFuture;
use std::collections::BTreeSet;
use std::sync::Arc;
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_claims::{Bucket, BucketName, Claim, DeletionReason, Doorbell, Event, Phase};
use whittle_ports::{Adapters, ClaimStore, Queues, Settings};
use whittle_sim::{Function, Functions, Input, RunFailure, SimPorts, Simulation};
use whittle_testkit::{TestWorld, after, at, deletion};
use whittle_units::{ClaimName, ClusterName, SignedDuration};

/// One for each group.
const TYPES: [&str; 7] = ["m5.large", "m5.xlarge", "m5.2xlarge", "c5.large", "c5.xlarge", "c5.2xlarge", "r5.large"];

struct Launches;

impl Functions for Launches {
    fn call(&self, _: Function, ports: SimPorts, input: Input) -> BoxFuture<'static, Result<(), RunFailure>> {
        Box::pin(async move {
            let Input::Doorbell(Doorbell::Launch { cluster, claims }) = input else { return Ok(()) };
            let adapters = Adapters::all(&ports);
            crate::handle(adapters, &Settings::default(), &cluster, &claims).await.map(|_| ()).map_err(RunFailure::passing)
        })
    }
}

/// Stores a claim of a group; its name.
pub(super) fn keep_in(simulation: &TestWorld, number: usize, group: usize) -> ClaimName {
    let of_group = |claim: &mut Claim| {
        let wanted = [(labels::INSTANCE_TYPE, TYPES[group]), (labels::CAPACITY_TYPE, "on-demand")];
        claim.spec.requirements = wanted.map(|(key, value)| Requirement::is_in(key, [value])).to_vec();
    };
    keep_as(simulation, number, of_group).key.name
}

/// A hundred claims and the doorbell for them.
fn hundred_claims() -> TestWorld {
    groups_of(&[100])
}

/// Groups of so many claims each, and the doorbell for all of them.
fn groups_of(sizes: &[usize]) -> TestWorld {
    let simulation = ready(with_functions(Arc::new(Launches)));
    let groups = sizes.iter().enumerate().flat_map(|(group, size)| std::iter::repeat_n(group, *size));
    let claims = groups.enumerate().map(|(number, group)| keep_in(&simulation, number, group)).collect();
    block_on(simulation.ports().send_now(Doorbell::Launch { cluster: ClusterName::new("c"), claims })).unwrap();
    simulation
}

fn claims(simulation: &Simulation) -> Vec<Claim> {
    block_on(simulation.ports().list(&ClusterName::new("c"))).unwrap().into_iter().map(|stored| stored.value).collect()
}

#[test]
fn a_hundred_instances_are_launched_and_assigned_within_the_time_of_one_call() {
    let mut simulation = hundred_claims();
    simulation.run_for(SignedDuration::from_secs(20));
    assert_eq!(simulation.world().region.started(), 100);
    let machines: Vec<_> = claims(&simulation).iter().filter_map(|claim| claim.machine().cloned()).collect();
    let last = machines.iter().map(|machine| machine.launched_at).max().unwrap();
    assert_eq!(machines.len(), 100);
    assert!(last.duration_since(at(0)) < SignedDuration::from_millis(2_500), "{last}");
}

/// A claim that is launching, whose call has not been answered yet.
fn launching(simulation: &mut TestWorld) -> Claim {
    for _ in 0..1_000 {
        simulation.run_for(SignedDuration::from_millis(5));
        let launching = claims(simulation).into_iter().find(|claim| matches!(claim.phase, Phase::Launching { .. }));
        if let Some(claim) = launching {
            return claim;
        }
    }
    panic!("no launch begins")
}

#[test]
fn a_claim_that_is_deleted_during_its_call_gets_its_machine_to_drain_it() {
    let mut simulation = groups_of(&[3]);
    let during = launching(&mut simulation);
    let ports = simulation.ports();
    block_on(async {
        let stored = ports.get(&during.key).await.unwrap().unwrap();
        let requested = Event::DeletionRequested(deletion(DeletionReason::Requested, at(0)));
        ports.update(&after(&stored.value, &[requested], at(0)), stored.revision).await.unwrap();
    });
    simulation.run_for(SignedDuration::from_secs(10));
    let claims = claims(&simulation);
    let mut phases: Vec<&str> = claims.iter().map(|claim| claim.phase.name()).collect();
    phases.sort_unstable();
    assert_eq!((phases, simulation.world().region.started()), (vec!["Draining", "Launched", "Launched"], 3));
    assert_eq!(simulation.claim(&during.key).phase.name(), "Draining");
    let machines: BTreeSet<_> = claims.iter().filter_map(|claim| claim.instance().cloned()).collect();
    assert_eq!(machines.len(), 3, "each has its own");
}

#[test]
fn a_hundred_claims_without_capacity_fail_quickly_with_one_event_each() {
    let mut simulation = hundred_claims();
    let zones = ["a", "b", "c", "d"].map(|zone| format!("us-west-2{zone}"));
    simulation.world().region.out_of_stock.extend(zones.map(|zone| (TYPES[0].to_owned(), zone, "on-demand".to_owned())));
    simulation.run_for(SignedDuration::from_millis(2_500));
    let failed = claims(&simulation).iter().filter(|claim| matches!(claim.phase, Phase::Failed { .. })).count();
    let world = simulation.world();
    let events = world.cluster.events.iter().filter(|kept| kept.event.reason == "InsufficientCapacityError").count();
    assert_eq!((failed, events, world.region.started()), (100, 100, 0));
}

#[test]
fn as_many_groups_as_there_are_tokens_are_launched_at_once_and_the_largest_are_among_them() {
    let mut simulation = groups_of(&[1, 1, 1, 1, 1, 20, 30]);
    leave_tokens(&simulation, 5);
    simulation.run_for(SignedDuration::from_secs(10));
    assert_eq!(simulation.world().region.started(), 55, "each claim has one machine, and none has two");
    let machine = |claim: &Claim| claim.machine().map(|machine| (machine.launched_at.duration_since(at(0)), machine.instance_type.clone()));
    let mut launched: Vec<(SignedDuration, String)> = claims(&simulation).iter().filter_map(machine).collect();
    launched.sort();
    let (large, small): (Vec<_>, Vec<_>) = launched.into_iter().partition(|(_, name)| TYPES[5..].contains(&name.as_str()));
    assert_eq!((large.len(), small.len()), (50, 5));
    let first = large[49].0.max(small[2].0);
    assert!(first < SignedDuration::from_secs(2), "five calls are made at once: {large:?}, {small:?}");
    assert!(small[3].0 >= SignedDuration::from_millis(200), "the sixth waits for a token: {small:?}");
}

#[test]
fn no_call_begins_after_ec2_has_throttled_one_and_every_claim_gets_one_machine_later() {
    let mut simulation = groups_of(&[1; 7]);
    leave_tokens(&simulation, 40);
    simulation.world().faults.fleets_throttled_until = Some(at(2));
    simulation.run_until(at(1));
    let phases = |simulation: &TestWorld| claims(simulation).iter().map(|claim| claim.phase.name()).collect::<Vec<_>>();
    assert_eq!(phases(&simulation), ["Launching"; 7]);
    let (bucket, full) = (BucketName("CreateFleet".to_owned()), Bucket::full(50, 5, at(1)));
    assert!(!simulation.world().store.take_tokens(&bucket, &full, 10, at(1)), "33 tokens were left, and EC2 has none");
    simulation.run_until(at(30));
    let machines: BTreeSet<_> = claims(&simulation).iter().filter_map(|claim| claim.instance().cloned()).collect();
    assert_eq!((machines.len(), simulation.world().region.started()), (7, 7));
}

#[test]
fn claims_of_a_large_plan_are_read_soon_enough_to_be_launched() {
    let simulation = with_class();
    let named: Vec<ClaimName> = (0..400).map(|number| keep(&simulation, number).key.name).collect();
    let other = keep(&simulation, 400);
    // Each call takes long: one for each claim would leave no time for theirs.
    let ports = simulation.ports().with_time_left(SignedDuration::from_millis(60), SignedDuration::from_secs(30));
    assert!(run_over(&ports, &named).counted("launched") >= 100);
    assert_eq!(simulation.claim(&other.key).phase, Phase::Planned, "the doorbell does not name it");
}

#[test]
fn a_few_claims_are_read_by_their_names() {
    let simulation = with_class();
    let [first, second, other] = [1, 2, 3].map(|number| keep(&simulation, number));
    let named = [first.key.name.clone(), "absent".into(), second.key.name.clone()];
    assert_eq!(run_over(&simulation.ports(), &named).counted("launched"), 2);
    assert_eq!(simulation.claim(&other.key).phase, Phase::Planned);
}
