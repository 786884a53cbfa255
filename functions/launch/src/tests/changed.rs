//! A class that changes after its last refresh.

use super::over_sim::{keep, run_over};
use super::repeated::{revert_to_launching, with_class};
use crate::batch::Batch;
use futures::executor::block_on;
use std::collections::BTreeMap;
use whittle_api::karpenter::Ec2NodeClass;
use whittle_api::labels;
use whittle_claims::{Claim, NodeClassRecord, Phase};
use whittle_ports::{RecordReader, Records};
use whittle_sim::Function;
use whittle_testkit::{TestWorld, at};
use whittle_units::ClusterName;

fn change_spec(class: &mut Ec2NodeClass) {
    class.spec.role = Some("another".into());
    class.metadata.generation = class.metadata.generation.map(|known| known + 1);
}

/// Refreshes the class, which then has this hash.
fn refresh(simulation: &TestWorld, hash: &str) {
    let (cluster, ports) = (ClusterName::new("c"), simulation.ports());
    let class = simulation.get::<Ec2NodeClass>("gone").unwrap();
    block_on(async {
        let known = ports.read::<NodeClassRecord>(&cluster, "gone").await.unwrap().unwrap();
        ports.write(&cluster, &NodeClassRecord { class, hash: hash.into(), ..known.value }, known.revision).await.unwrap();
    });
}

fn doorbells(simulation: &TestWorld, function: Function) -> usize {
    simulation.world().queues.waiting().filter(|message| message.function == function).count()
}

#[test]
fn claims_of_a_changed_class_wait_for_its_refresh() {
    let mut simulation = with_class();
    let claims = [1, 2].map(|number| keep(&simulation, number));
    simulation.change::<Ec2NodeClass>("gone", change_spec);
    assert_eq!(run_over(&simulation.ports(), &[]).counted("retried"), 2);
    assert!(simulation.world().region.machines.is_empty());
    for claim in &claims {
        let waits = simulation.claim(&claim.key);
        assert_eq!((waits.phase, waits.deletion), (Phase::Planned, None));
    }
    assert_eq!((doorbells(&simulation, Function::Refresh), doorbells(&simulation, Function::Launch)), (1, 1));
    simulation.run_until(at(5));
    run_over(&simulation.ports(), &[]);
    assert_eq!(doorbells(&simulation, Function::Refresh), 0, "requested only once");
    refresh(&simulation, "new");
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 2);
    let hash = &simulation.claim(&claims[0].key).annotations[labels::NODE_CLASS_HASH];
    assert_eq!(hash, "new", "the hash of the refreshed class");
}

/// A hash of the release before is no hash of this one: the machine would be drifted as soon as the class is refreshed.
#[test]
fn a_machine_has_the_version_of_the_release_that_computed_the_hash_of_its_class() {
    for (told, expected) in [(Some("v5"), "v5"), (None, whittle_api::hashes::NODE_CLASS_VERSION)] {
        let simulation = with_class();
        if let Some(told) = told {
            simulation.change::<Ec2NodeClass>("gone", |class| {
                class.metadata.annotations.insert(labels::NODE_CLASS_HASH_VERSION.into(), told.into());
            });
        }
        refresh(&simulation, "known");
        let claim = keep(&simulation, 1);
        assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 1);
        let annotations = simulation.claim(&claim.key).annotations;
        assert_eq!(annotations[labels::NODE_CLASS_HASH_VERSION], expected);
    }
}

/// The run that made the call died before it assigned the machine.
#[test]
fn a_machine_has_the_hash_of_the_class_that_its_call_was_stored_with() {
    for (is_of_earlier_release, expected) in [(false, "old"), (true, "new")] {
        let mut simulation = with_class();
        refresh(&simulation, "old");
        let claim = keep(&simulation, 1);
        assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 1);
        let launched = Claim { annotations: BTreeMap::new(), ..simulation.claim(&claim.key) };
        revert_to_launching(&simulation, &launched);
        let ports = simulation.ports();
        for batch in block_on(ports.read_all::<Batch>(&claim.key.cluster)).unwrap() {
            let made_from = batch.value.made_from.clone().filter(|_| !is_of_earlier_release);
            block_on(ports.write(&claim.key.cluster, &Batch { made_from, ..batch.value }, batch.revision)).unwrap();
        }
        simulation.change::<Ec2NodeClass>("gone", change_spec);
        refresh(&simulation, "new");
        simulation.run_until(at(60));
        run_over(&simulation.ports(), &[]);
        let served = simulation.claim(&claim.key);
        assert_eq!((served.phase.name(), served.instance()), ("Launched", launched.instance()), "no other was started");
        let told = [labels::NODE_CLASS_HASH, labels::INSTANCE_PROFILE_NAME].map(|key| served.annotations[key].as_str());
        assert_eq!(told, [expected, "p"]);
    }
}

#[test]
fn a_deleted_or_recreated_class_launches_nothing_before_its_refresh() {
    let changes: [fn(&mut Ec2NodeClass); 2] = [
        |class| class.metadata.uid = "another".into(),
        |class| {
            class.metadata.deletion_timestamp = Some(at(0));
            class.metadata.generation = class.metadata.generation.map(|known| known + 1);
            class.metadata.finalizers = vec!["example.com/hold".into()];
        },
    ];
    for change in changes {
        let simulation = with_class();
        keep(&simulation, 1);
        simulation.change::<Ec2NodeClass>("gone", change);
        assert_eq!(run_over(&simulation.ports(), &[]).counted("retried"), 1);
    }
    let simulation = with_class();
    keep(&simulation, 1);
    simulation.world().cluster.objects.delete::<Ec2NodeClass>("gone", at(0));
    assert_eq!(run_over(&simulation.ports(), &[]).counted("retried"), 1);
    assert!(simulation.world().region.machines.is_empty());
}

#[test]
fn status_changes_and_api_server_outages_do_not_block_launches() {
    let simulation = with_class();
    keep(&simulation, 1);
    simulation.change::<Ec2NodeClass>("gone", |class| {
        class.status.instance_profile = Some("p".into());
        class.metadata.annotations.insert("note".into(), "x".into());
    });
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 1);
    keep(&simulation, 2);
    simulation.change::<Ec2NodeClass>("gone", change_spec);
    simulation.world().cluster.name = "unreachable".into();
    let report = run_over(&simulation.ports(), &[]);
    assert_eq!((report.counted("launched"), report.counted("classes_unseen")), (1, 1));
}
