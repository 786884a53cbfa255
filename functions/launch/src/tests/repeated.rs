//! A call that is repeated because nobody knows its answer, after some of its machines have ended.

use super::at;
use super::over_sim::{class_in, keep, kept, run_over, without_classes};
use futures::executor::block_on;
use whittle_claims::{Claim, ClaimKey, Deletion, DeletionReason, Event, Phase, Revision, step};
use whittle_ec2::instance::InstanceState;
use whittle_ec2::network::ClusterInfo;
use whittle_ports::{ClaimStore, ClusterRecord, Records};
use whittle_sim::Simulation;
use whittle_units::{ClusterName, InstanceId};

/// Two claims of one call, whose machines run.
fn two_of_one_call() -> (Simulation, [Claim; 2], [InstanceId; 2]) {
    let simulation = without_classes();
    let (cluster, ports) = (ClusterName::new("c"), simulation.ports());
    let catalog = whittle_snapshot::warm::catalog(&simulation.world().region.catalog_blob()).unwrap();
    let info = ClusterInfo {
        name: cluster.clone(),
        endpoint: "https://c".into(),
        certificate_authority: "Yw==".into(),
        service_cidr: "10.0.0.0/16".into(),
        ..ClusterInfo::default()
    };
    block_on(async {
        let stored = ports.read::<ClusterRecord>(&cluster, ClusterRecord::NAME).await.unwrap().unwrap();
        ports.write(&cluster, &ClusterRecord { info }, stored.revision).await.unwrap();
        ports.write(&cluster, &class_in(&catalog), Revision::ABSENT).await.unwrap();
    });
    let planned = [keep(&simulation, 1), keep(&simulation, 2)];
    assert_eq!(run_over(&ports, &[]).counted("launched"), 2);
    let claims = planned.map(|claim| kept(&simulation, &claim.key));
    let machines = claims.clone().map(|claim| claim.machine().unwrap().instance_id.clone());
    assert_eq!(simulation.world().region.machines.len(), 2);
    (simulation, claims, machines)
}

fn put(simulation: &Simulation, claim: &Claim) {
    let ports = simulation.ports();
    let stored = block_on(ports.get(&claim.key)).unwrap().unwrap();
    block_on(ports.update(claim, stored.revision)).unwrap();
}

fn end(simulation: &Simulation, id: &InstanceId) {
    simulation.world().region.machines.get_mut(id).unwrap().instance.state = InstanceState::Terminated;
}

/// The claim as it was before it heard of its machine.
fn forgets(simulation: &Simulation, claim: &Claim) {
    let token = simulation.world().region.machines.values().next().unwrap().instance.tags[whittle_api::labels::TAG_LAUNCH].clone();
    let begun = Claim { look_again_at: None, phase: Phase::Launching { client_token: token, since: at(0), attempts: 1 }, ..claim.clone() };
    put(simulation, &begun);
}

/// The claim's machine served and ended.
fn ends(simulation: &Simulation, claim: &Claim) {
    let deletion = Deletion { reason: DeletionReason::Requested, at: at(0), deadline: None, message: String::new() };
    let events = [Event::DeletionAsked(deletion), Event::TerminationSent, Event::MachineGone];
    let gone = events.iter().fold(claim.clone(), |claim, event| step(&claim, event, at(0)).unwrap());
    put(simulation, &gone);
    end(simulation, &claim.machine().unwrap().instance_id);
}

fn again(simulation: &mut Simulation, key: &ClaimKey, seconds: i64) -> Claim {
    simulation.run_until(at(seconds));
    run_over(&simulation.ports(), std::slice::from_ref(&key.name));
    kept(simulation, key)
}

#[test]
fn a_machine_that_ended_under_another_claim_of_the_call_is_given_to_nobody() {
    for (first, second) in [(0, 1), (1, 0)] {
        for is_shown in [true, false] {
            let (mut simulation, claims, machines) = two_of_one_call();
            forgets(&simulation, &claims[second]);
            ends(&simulation, &claims[first]);
            if !is_shown {
                // As if EC2 did not know of it any more: its answer to the same call names it all the same.
                simulation.world().region.machines.get_mut(&machines[first]).unwrap().instance.tags.clear();
            }
            let claim = again(&mut simulation, &claims[second].key, 60);
            assert_eq!(claim.machine().map(|machine| &machine.instance_id), Some(&machines[second]), "{:?}", claim.phase);
            assert_eq!(simulation.world().region.machines.len(), 2, "nothing was started for it again");
        }
    }
}

#[test]
fn a_machine_that_ended_before_its_claim_knew_of_it_is_replaced_by_another_call() {
    let (mut simulation, claims, machines) = two_of_one_call();
    forgets(&simulation, &claims[1]);
    end(&simulation, &machines[1]);
    let waits = again(&mut simulation, &claims[1].key, 60);
    assert!(matches!(waits.phase, Phase::Launching { .. }), "{:?}", waits.phase);
    assert_eq!(simulation.world().region.machines.len(), 2, "the old call brings nothing new, and is not answered by a machine that ended");
    let served = again(&mut simulation, &claims[1].key, 120);
    let machine = served.machine().unwrap();
    assert!(!machines.contains(&machine.instance_id), "{machine:?}");
    assert_eq!(simulation.world().region.machines.len(), 3);
    assert_eq!(kept(&simulation, &claims[0].key).machine().unwrap().instance_id, machines[0], "its neighbour keeps what it has");
    assert_eq!(again(&mut simulation, &claims[1].key, 600).phase, served.phase);
    assert_eq!(simulation.world().region.machines.len(), 3, "a claim buys one machine");
}
