//! Settings of the deployment that instance types depend on.

use super::over_sim::keep_as;
use super::repeated::with_class;
use futures::executor::block_on;
use std::collections::BTreeMap;
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_claims::{Machine, MeasuredMemory, Revision};
use whittle_ports::{Adapters, Records, Settings};
use whittle_testkit::{TestWorld, at};
use whittle_units::Quantity;

/// An m5.large that was launched under these settings.
fn launched(settings: &Settings) -> Machine {
    launched_in(&with_class(), settings)
}

fn launched_in(simulation: &TestWorld, settings: &Settings) -> Machine {
    let claim = keep_as(simulation, 1, |claim| {
        claim.spec.requirements =
            vec![Requirement::is_in(labels::INSTANCE_TYPE, ["m5.large"]), Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand"])];
    });
    let ports = simulation.ports();
    block_on(crate::handle(Adapters::all(&ports), settings, &"c".into(), &[])).unwrap();
    simulation.claim(&claim.key).machine().unwrap().clone()
}

fn size(machine: &Machine) -> (i64, i64) {
    let mebibytes = |bytes: Quantity| bytes.units_floor() / (1 << 20);
    (machine.capacity.get("pods").units_floor(), mebibytes(machine.capacity.get("memory")))
}

#[test]
fn reserved_enis_and_vm_memory_overhead_apply_to_the_machine() {
    // Three interfaces of ten addresses, 8 GiB.
    assert_eq!(size(&launched(&Settings::default())), (29, 7577));
    let settings = Settings { reserved_enis: 1, vm_memory_overhead_ppm: 50_000, ..Settings::default() };
    assert_eq!(size(&launched(&settings)), (20, 7782));
}

#[test]
fn measured_memory_replaces_the_estimate_for_the_same_image_only() {
    for (image_id, mebibytes) in [("ami-1", 7690), ("ami-2", 7577)] {
        let simulation = with_class();
        let by_type = [("m5.large".to_owned(), Quantity::from_mebibytes(7690))].into();
        let (small_memory, small_nodes) = (BTreeMap::new(), BTreeMap::new());
        let measured = MeasuredMemory { image_id: image_id.into(), by_type, small_memory, small_nodes, updated_at: at(0) };
        block_on(simulation.ports().write(&"c".into(), &measured, Revision::ABSENT)).unwrap();
        assert_eq!(size(&launched_in(&simulation, &Settings::default())).1, mebibytes, "{image_id}");
    }
}
