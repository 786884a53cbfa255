//! Reservations and machines of a tenancy: EC2 starts a machine only in a reservation of its own.

use super::over_sim::{class_in, keep_as, know, run_over};
use super::repeated::with_class;
use futures::executor::block_on;
use whittle_api::karpenter::{Requirement, ResolvedCapacityReservation};
use whittle_api::labels;
use whittle_claims::NodeClassRecord;
use whittle_ec2::network::CapacityReservation;
use whittle_ports::RegionStore;
use whittle_sim::region::Reservation;
use whittle_testkit::TestWorld;

const ZONE: &str = "us-west-2a";

/// A world whose class `reserving` has a reservation of this tenancy.
fn with_reservation(tenancy: &str) -> TestWorld {
    let simulation = with_class();
    let catalog = whittle_snapshot::warm::catalog(&simulation.world().region.catalog_blob()).unwrap();
    let mut record = NodeClassRecord {
        free_reserved: [("cr-1".to_owned(), 1)].into(),
        reservation_tenancies: [("cr-1".to_owned(), tenancy.to_owned())].into(),
        ..class_in(&catalog)
    };
    record.class.metadata.name = "reserving".into();
    record.class.status.capacity_reservations = vec![ResolvedCapacityReservation {
        id: "cr-1".into(),
        availability_zone: ZONE.into(),
        instance_type: "m5.large".into(),
        instance_match_criteria: "targeted".into(),
        reservation_type: "default".into(),
        state: "active".into(),
        ..ResolvedCapacityReservation::default()
    }];
    know(&simulation, record);
    let described = CapacityReservation {
        id: "cr-1".into(),
        zone: ZONE.into(),
        instance_type: "m5.large".into(),
        match_criteria: "targeted".into(),
        kind: "default".into(),
        state: "active".into(),
        tenancy: tenancy.into(),
        ..CapacityReservation::default()
    };
    simulation.world().region.reserve(Reservation { described, total: 1 });
    simulation
}

/// The capacity type and the tenancy of the machine of a claim that allows this tenancy, or any.
fn launched(simulation: &TestWorld, tenancy: Option<&str>) -> (String, String) {
    let claim = keep_as(simulation, 1, |claim| {
        claim.spec.node_class.name = "reserving".into();
        claim.spec.requirements = vec![
            Requirement::is_in(labels::INSTANCE_TYPE, ["m5.large"]),
            Requirement::is_in(labels::ZONE, [ZONE]),
            Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand", "reserved"]),
        ];
        claim.spec.requirements.extend(tenancy.map(|tenancy| Requirement::is_in(labels::INSTANCE_TENANCY, [tenancy])));
    });
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 1);
    let claim = simulation.claim(&claim.key);
    let machine = claim.machine().unwrap();
    (machine.capacity_type.clone(), machine.labels[labels::INSTANCE_TENANCY].clone())
}

#[test]
fn a_machine_of_another_tenancy_is_bought_and_the_reservation_stays_open_to_others() {
    for (tenancy, asked) in [("default", "dedicated"), ("dedicated", "default")] {
        let simulation = with_reservation(tenancy);
        assert_eq!(launched(&simulation, Some(asked)), ("on-demand".to_owned(), asked.to_owned()));
        let now = simulation.world().now();
        assert_eq!(block_on(simulation.ports().stock_outs(now)).unwrap(), []);
    }
}

#[test]
fn a_machine_that_may_have_the_tenancy_of_a_reservation_starts_in_it() {
    for (tenancy, asked) in [("default", Some("default")), ("default", None), ("dedicated", Some("dedicated"))] {
        let simulation = with_reservation(tenancy);
        assert_eq!(launched(&simulation, asked), ("reserved".to_owned(), tenancy.to_owned()), "{asked:?}");
        assert_eq!(simulation.world().region.users_of("cr-1").len(), 1);
    }
}

/// The reservation is for another NodePool of the class.
#[test]
fn a_machine_of_a_claim_that_names_no_tenancy_is_not_dedicated() {
    let simulation = with_reservation("dedicated");
    assert_eq!(launched(&simulation, None), ("on-demand".to_owned(), "default".to_owned()));
    assert_eq!(simulation.world().region.users_of("cr-1").len(), 0);
}
