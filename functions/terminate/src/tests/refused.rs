//! What EC2 refuses.

use super::at;
use super::over_sim::{Refusing, Scene, serving};
use whittle_claims::{Deletion, DeletionReason, Event, step};
use whittle_ec2::instance::InstanceState;
use whittle_ports::CloudErrorKind;

#[test]
fn a_machine_that_somebody_protects_is_told_of_and_tried_again() {
    let deletion = Deletion { reason: DeletionReason::Underutilized, at: at(0), deadline: None, message: String::new() };
    let draining = step(&serving(), &Event::DeletionAsked(deletion), at(0)).unwrap();
    let mut scene = Scene::of(&draining);
    scene.run();
    scene.set_time(6);
    let report = scene.run_without_ec2(&Refusing(CloudErrorKind::Invalid)).unwrap();
    assert_eq!((report.counted("refused"), scene.state()), (1, InstanceState::Running));
    let told = scene.told("FailedTermination");
    assert!(told[0].contains("EC2 refuses") && told[0].contains("termination protection"), "{told:?}");
    let rung = scene.simulation.world().queues.waiting().map(|message| message.visible_at).max();
    assert_eq!(rung, Some(at(36)), "half a minute later, without failing");
    assert!(scene.is_held());
}
