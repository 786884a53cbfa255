//! Instance profiles that no class uses any more.

use super::{class, cluster, fenced, record, run, with_role};
use crate::profiles::{LOOK_INTERVAL, UnusedProfiles};
use futures::executor::block_on;
use whittle_api::karpenter::Ec2NodeClass;
use whittle_ports::{Adapters, RecordReader, RecordRemoval, Settings};
use whittle_testkit::{TestWorld, instance_of, machine};
use whittle_units::SignedDuration;

/// A world with a ready class, and a profile of its former role.
fn world() -> TestWorld {
    let (simulation, _) = fenced(with_role("KarpenterNodeRole-c"));
    run(&simulation);
    forget(&simulation);
    simulation.world().region.network.profiles.insert("c_former".into(), "former".into());
    simulation
}

/// The next run looks at all profiles.
fn forget(simulation: &TestWorld) {
    let ports = simulation.ports();
    if let Some(known) = block_on(ports.read::<UnusedProfiles>(&cluster(), UnusedProfiles::NAME)).unwrap() {
        block_on(ports.remove::<UnusedProfiles>(&cluster(), UnusedProfiles::NAME, known.revision)).unwrap();
    }
}

fn profiles(simulation: &TestWorld) -> Vec<String> {
    simulation.world().region.network.profiles.keys().cloned().collect()
}

#[test]
fn a_profile_that_two_looks_find_unused_is_deleted_and_the_one_in_use_is_kept() {
    let mut simulation = world();
    assert_eq!(run(&simulation).counted("profiles_deleted"), 0);
    assert_eq!(profiles(&simulation), ["c_default", "c_former"], "one look deletes nothing");
    simulation.run_for(LOOK_INTERVAL - SignedDuration::from_secs(1));
    assert_eq!(run(&simulation).counted("profiles_deleted"), 0, "the second look is not due");
    simulation.run_for(SignedDuration::from_secs(2));
    assert_eq!(run(&simulation).counted("profiles_deleted"), 1);
    assert_eq!(profiles(&simulation), ["c_default"]);
}

#[test]
fn a_profile_that_is_used_again_or_by_an_instance_is_never_deleted() {
    let mut simulation = world();
    run(&simulation);
    simulation.change::<Ec2NodeClass>("default", |class| class.spec.instance_profile = Some("c_former".into()));
    simulation.run_for(LOOK_INTERVAL);
    run(&simulation);
    assert!(profiles(&simulation).contains(&"c_former".to_owned()), "its class names it");

    let mut simulation = world();
    let template = whittle_ec2::fleet::LaunchTemplate { instance_profile: "c_former".into(), ..Default::default() };
    simulation.start_machine_from(template, instance_of(&machine("i-1")));
    run(&simulation);
    simulation.run_for(LOOK_INTERVAL);
    assert_eq!(run(&simulation).counted("profiles_in_use"), 1);
    assert!(profiles(&simulation).contains(&"c_former".to_owned()), "an instance would lose its permissions");
}

#[test]
fn nothing_is_deleted_while_a_class_cannot_be_read_in_shadow_mode_or_of_another_cluster() {
    let mut simulation = world();
    simulation.world().region.network.profiles.insert("d_default".into(), "former".into());
    simulation.world().region.network.profiles.insert("admin".into(), "admin".into());
    run(&simulation);
    simulation.world().hide_always("EC2NodeClass", "default", true);
    simulation.run_for(LOOK_INTERVAL);
    run(&simulation);
    assert_eq!(profiles(&simulation).len(), 4, "the class that cannot be read may use it");
    simulation.world().show_all();
    let ports = simulation.ports();
    let settings = Settings { shadow: true, ..Settings::default() };
    block_on(crate::handle(Adapters::all(&ports), &settings, &cluster())).unwrap();
    assert_eq!(profiles(&simulation).len(), 4);
    run(&simulation);
    assert_eq!(profiles(&simulation), ["admin", "c_default", "d_default"]);
    assert!(class(&simulation).is_some() && record(&simulation).unwrap().is_ready());
}
