//! Reservations that a class selects, in its status and its record.

use super::{Counting, class, cluster, later, record, reserve, run, world};
use futures::executor::block_on;
use whittle_api::karpenter::{Ec2NodeClass, NodePool, Requirement};
use whittle_api::{ConditionStatus, conditions, labels};
use whittle_ports::{Adapters, Settings};
use whittle_sim::Simulation;
use whittle_units::SignedDuration;

#[test]
fn the_reservations_of_a_class_are_resolved_into_status_and_record() {
    let simulation = world();
    reserve(&simulation, "default", 3, later(600));
    assert!(run(&simulation).counted("changed") > 0, "pending pods may start in it");
    let shown = class(&simulation).unwrap().status;
    let [found] = shown.capacity_reservations.as_slice() else { panic!("{:?}", shown.capacity_reservations) };
    assert_eq!((found.id.as_str(), found.reservation_type.as_str(), found.state.as_str()), ("cr-1", "default", "active"));
    assert_eq!((found.availability_zone.as_str(), found.instance_type.as_str()), ("us-west-2a", "m5.large"));
    assert!(conditions::is_true(&shown.conditions, conditions::CAPACITY_RESERVATIONS_READY));
    let kept = record(&simulation).unwrap();
    assert_eq!(
        (kept.free_reserved, kept.class.status.capacity_reservations),
        ([("cr-1".to_owned(), 3)].into(), shown.capacity_reservations)
    );
}

/// EC2 refuses each launch in such a reservation, which costs nothing and would be tried before all else.
#[test]
fn a_reservation_of_dedicated_tenancy_is_left_out_until_a_pool_launches_such_machines() {
    let simulation = world();
    reserve(&simulation, "default", 3, later(600));
    let mut dedicated = simulation.world().region.reservations["cr-1"].clone();
    dedicated.described.tenancy = "dedicated".to_owned();
    simulation.world().region.reserve(dedicated);
    let resolved = || {
        run(&simulation);
        let shown = class(&simulation).unwrap().status;
        let condition = conditions::find(&shown.conditions, conditions::CAPACITY_RESERVATIONS_READY).unwrap();
        assert_eq!(condition.status, ConditionStatus::True, "others, spot and on-demand machines are launched");
        assert_eq!(record(&simulation).unwrap().free_reserved.len(), shown.capacity_reservations.len());
        (shown.capacity_reservations.len(), condition.message.clone())
    };
    let (used, message) = resolved();
    assert!(used == 0 && message.contains("cr-1 is for machines of dedicated tenancy"), "{message}");
    let unused = || record(&simulation).unwrap().unused_reservations;
    assert_eq!(unused().into_iter().collect::<Vec<_>>(), ["cr-1"], "machines that run in it stay");
    let ports = simulation.ports();
    let silent = Counting { unanswered: vec!["DescribeCapacityReservations"], ..Counting::over(&ports) };
    let adapters = Adapters { store: &ports, cloud: &silent, cluster: &ports, queues: &ports, clock: &ports };
    assert!(block_on(crate::handle(adapters, &Settings::default(), &cluster())).is_err());
    assert_eq!(unused().len(), 1, "nothing is known anew");
    simulation.world().cluster.objects.change::<NodePool>("default", |pool| {
        pool.spec.template.spec.requirements.push(Requirement::is_in(labels::INSTANCE_TENANCY, ["dedicated"]));
    });
    assert_eq!(resolved(), (1, String::new()));
    assert!(unused().is_empty());
    let tenancies = || record(&simulation).unwrap().reservation_tenancies;
    assert_eq!(tenancies(), [("cr-1".to_owned(), "dedicated".to_owned())].into(), "which the status does not say");
    assert!(block_on(crate::handle(adapters, &Settings::default(), &cluster())).is_err());
    assert_eq!(tenancies().len(), 1, "nothing is known anew");
}

#[test]
fn every_lookup_of_reservations_is_dated_and_only_changes_trigger_schedule() {
    let mut simulation = world();
    reserve(&simulation, "default", 3, later(600));
    run(&simulation);
    run(&simulation);
    let first = record(&simulation).unwrap();
    simulation.run_for(SignedDuration::from_secs(60));
    assert_eq!(run(&simulation).counted("changed"), 0);
    let second = record(&simulation).unwrap();
    assert_eq!(second.resolved_at.duration_since(first.resolved_at), SignedDuration::from_secs(60));
    assert_eq!(second.free_reserved, first.free_reserved);
    reserve(&simulation, "default", 4, later(600));
    assert!(run(&simulation).counted("changed") > 0);
}

#[test]
fn an_extended_block_is_updated_by_the_next_run() {
    let simulation = world();
    reserve(&simulation, "capacity-block", 1, later(40));
    run(&simulation);
    let seen = |simulation: &Simulation| {
        let block = class(simulation).unwrap().status.capacity_reservations.remove(0);
        (block.state, block.end_time)
    };
    assert_eq!(seen(&simulation), ("expiring".to_owned(), Some(later(40))));
    reserve(&simulation, "capacity-block", 1, later(400));
    run(&simulation);
    assert_eq!(seen(&simulation), ("active".to_owned(), Some(later(400))));
}

#[test]
fn an_ended_or_unselected_reservation_is_removed_from_the_status() {
    let simulation = world();
    reserve(&simulation, "default", 3, later(600));
    run(&simulation);
    simulation.world().region.end_reservation("cr-1", "cancelled");
    run(&simulation);
    assert!(class(&simulation).unwrap().status.capacity_reservations.is_empty());
    assert!(record(&simulation).unwrap().free_reserved.is_empty());
    reserve(&simulation, "default", 3, later(600));
    run(&simulation);
    assert_eq!(class(&simulation).unwrap().status.capacity_reservations.len(), 1);
    simulation.world().cluster.objects.change::<Ec2NodeClass>("default", |class| class.spec.capacity_reservation_selector_terms = None);
    run(&simulation);
    assert!(class(&simulation).unwrap().status.capacity_reservations.is_empty());
}

#[test]
fn without_the_feature_gate_reservations_are_not_looked_up() {
    let simulation = world();
    simulation.world().cluster.objects.change::<Ec2NodeClass>("default", |class| class.status = Default::default());
    reserve(&simulation, "default", 3, later(600));
    let ports = simulation.ports();
    let adapters = Adapters::all(&ports);
    let scheduling = whittle_ports::Scheduling { reserved_capacity: false, ..Default::default() };
    block_on(crate::handle(adapters, &Settings { scheduling, ..Settings::default() }, &cluster())).unwrap();
    let shown = class(&simulation).unwrap().status;
    assert!(shown.capacity_reservations.is_empty());
    assert_eq!(conditions::find(&shown.conditions, conditions::CAPACITY_RESERVATIONS_READY), None);
    assert!(conditions::find(&shown.conditions, conditions::SUBNETS_READY).is_some());
}
