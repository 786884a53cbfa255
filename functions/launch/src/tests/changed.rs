//! A class that changes after its last refresh.

use super::over_sim::{keep, run_over};
use super::repeated::with_class;
use futures::executor::block_on;
use whittle_api::karpenter::Ec2NodeClass;
use whittle_claims::{NodeClassRecord, Phase};
use whittle_ports::{RecordReader, Records};
use whittle_sim::Function;
use whittle_testkit::{TestWorld, at};
use whittle_units::ClusterName;

fn change_spec(class: &mut Ec2NodeClass) {
    class.spec.role = Some("another".into());
    class.metadata.generation = class.metadata.generation.map(|known| known + 1);
}

/// Refreshes the class.
fn refresh(simulation: &TestWorld) {
    let (cluster, ports) = (ClusterName::new("c"), simulation.ports());
    let class = simulation.get::<Ec2NodeClass>("gone").unwrap();
    block_on(async {
        let known = ports.read::<NodeClassRecord>(&cluster, "gone").await.unwrap().unwrap();
        ports.write(&cluster, &NodeClassRecord { class, hash: "new".into(), ..known.value }, known.revision).await.unwrap();
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
    refresh(&simulation);
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 2);
    let hash = &simulation.claim(&claims[0].key).annotations[whittle_api::labels::NODE_CLASS_HASH];
    assert_eq!(hash, "new", "the hash of the refreshed class");
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
