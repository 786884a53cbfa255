//! Instance profiles that no class uses any more.

use super::{Counting, check_refused, class, cluster, fenced, record, run, run_under, with_role};
use crate::profiles::{LOOK_INTERVAL, UnusedProfiles};
use futures::executor::block_on;
use whittle_api::karpenter::Ec2NodeClass;
use whittle_api::{ConditionStatus, conditions};
use whittle_ports::{Adapters, CloudError, CloudErrorKind, Mode, RecordReader, RecordRemoval, Settings};
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
fn a_profile_has_the_tags_of_its_class() {
    let (simulation, _) = fenced(|world| {
        with_role("KarpenterNodeRole-c")(world);
        world
            .cluster
            .objects
            .change::<Ec2NodeClass>("default", |class| class.spec.tags = Some([("team".to_owned(), "a".to_owned())].into()));
    });
    run(&simulation);
    assert_eq!(simulation.world().region.network.profile_origins["c_default"].tags, [("team".to_owned(), "a".to_owned())].into());
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
    let settings = Settings { mode: Mode::Shadow, ..Settings::default() };
    block_on(crate::handle(Adapters::all(&ports), &settings, &cluster())).unwrap();
    assert_eq!(profiles(&simulation).len(), 4);
    run(&simulation);
    assert_eq!(profiles(&simulation), ["admin", "c_default", "d_default"]);
    assert!(class(&simulation).is_some() && record(&simulation).unwrap().is_ready());
}

/// Status and reason of the class's profile after IAM has answered the creation of one with an error.
fn answered(kind: CloudErrorKind, call: &'static str, message: &str) -> (ConditionStatus, String) {
    let (simulation, settings) = fenced(with_role("KarpenterNodeRole-c"));
    let ports = simulation.ports();
    let error = CloudError { kind, call, code: "NoSuchEntity".to_owned(), message: message.to_owned() };
    let ec2 = Counting { profile_error: Some(error), ..Counting::over(&ports) };
    let adapters = Adapters { store: &ports, cloud: &ec2, cluster: &ports, queues: &ports, clock: &ports };
    block_on(crate::handle(adapters, &settings, &cluster())).unwrap();
    assert!(!record(&simulation).unwrap().is_ready());
    let class = class(&simulation).unwrap();
    let condition = conditions::find(&class.status.conditions, conditions::INSTANCE_PROFILE_READY).unwrap();
    (condition.status, condition.reason.clone())
}

#[test]
fn a_role_that_iam_lacks_is_named_and_a_profile_that_it_does_not_show_yet_is_waited_for() {
    let (missing, add) = (CloudErrorKind::NotFound, "AddRoleToInstanceProfile");
    let unknown = (ConditionStatus::Unknown, "InstanceProfileUnknown".to_owned());
    assert_eq!(
        answered(missing, add, "The role with name KarpenterNodeRole-c cannot be found."),
        (ConditionStatus::False, "NodeRoleNotFound".to_owned())
    );
    assert_eq!(answered(missing, add, "Instance Profile c_role_1 cannot be found."), unknown);
    assert_eq!(answered(missing, "RemoveRoleFromInstanceProfile", "The role with name former cannot be found."), unknown);
    let refused = (ConditionStatus::False, "InstanceProfileCreationFailed".to_owned());
    assert_eq!(answered(CloudErrorKind::Unauthorized, add, "not authorized to perform iam:PassRole"), refused);
}

#[test]
fn an_arn_for_the_name_of_a_profile_is_told_and_keeps_nothing_else_from_being_known() {
    let arn = "arn:aws:iam::111122223333:instance-profile/nodes";
    let (simulation, settings) = fenced(|world| {
        world.cluster.objects.change::<Ec2NodeClass>("default", |class| {
            class.spec.role = None;
            class.spec.instance_profile = Some(arn.into());
        });
    });
    let ports = simulation.ports();
    let (code, message) = ("ValidationError".to_owned(), "The specified value for instanceProfileName is invalid.".to_owned());
    let error = CloudError { kind: CloudErrorKind::Invalid, call: "GetInstanceProfile", code, message };
    let ec2 = Counting { profile_error: Some(error), ..Counting::over(&ports) };
    let adapters = Adapters { store: &ports, cloud: &ec2, cluster: &ports, queues: &ports, clock: &ports };
    block_on(crate::handle(adapters, &settings, &cluster())).unwrap();
    let seen = (class(&simulation).unwrap(), record(&simulation).unwrap());
    check_refused(&seen, conditions::INSTANCE_PROFILE_READY, "InstanceProfileNotFound", &[arn, "spec.instanceProfile", "without ARN"]);
    assert!(!seen.1.subnets.is_empty() && !seen.1.amis.is_empty());
}

#[test]
fn a_profile_that_does_not_exist_is_named_where_roles_are_fenced_too() {
    let (simulation, settings) = fenced(|world| {
        world.cluster.objects.change::<Ec2NodeClass>("default", |class| {
            class.spec.role = None;
            class.spec.instance_profile = Some("gone".into());
        });
    });
    let ports = simulation.ports();
    let ec2 = Counting { lacks_profiles: true, ..Counting::over(&ports) };
    let adapters = Adapters { store: &ports, cloud: &ec2, cluster: &ports, queues: &ports, clock: &ports };
    block_on(crate::handle(adapters, &settings, &cluster())).unwrap();
    let seen = (class(&simulation).unwrap(), record(&simulation).unwrap());
    check_refused(&seen, conditions::INSTANCE_PROFILE_READY, "InstanceProfileNotFound", &["gone", "spec.instanceProfile"]);
    // Once it exists, its role counts.
    let refused = run_under(&simulation, &settings);
    check_refused(&refused, conditions::INSTANCE_PROFILE_READY, "NodeRoleNotPermitted", &["gone"]);
}

/// The class names a profile of its own, in a deployment that fences no roles; the profile has this role.
fn with_own_profile(role: &str) -> (TestWorld, Settings) {
    let (simulation, settings) = fenced(|world| {
        world.region.network.profiles.insert("own".into(), role.into());
        world.cluster.objects.change::<Ec2NodeClass>("default", |class| {
            class.spec.role = None;
            class.spec.instance_profile = Some("own".into());
        });
    });
    (simulation, Settings { clusters: vec![cluster()], ..settings })
}

#[test]
fn a_profile_without_a_role_is_told_of_with_the_remedy_and_nothing_is_launched_with_it() {
    let (simulation, settings) = with_own_profile("");
    for settings in [settings.clone(), Settings { default_instance_profile: Some("own".into()), ..settings.clone() }] {
        let seen = run_under(&simulation, &settings);
        let words = ["instance profile own", "spec.instanceProfile", "add one to it"];
        check_refused(&seen, conditions::INSTANCE_PROFILE_READY, "InstanceProfileWithoutRole", &words);
        assert_eq!((seen.1.instance_profile.as_str(), &seen.0.status.instance_profile), ("", &None));
    }
    let told = |simulation: &TestWorld| {
        let world = simulation.world();
        let events = world.cluster.events.iter().filter(|kept| kept.event.reason == "InstanceProfileWithoutRole");
        events.map(|kept| (kept.event.kind.clone(), kept.event.warning)).collect::<Vec<_>>()
    };
    assert_eq!(told(&simulation), [("EC2NodeClass".to_owned(), true)]);
    // Once it has one, machines can be launched.
    simulation.world().region.network.profiles.insert("own".into(), "node".into());
    let (shown, record) = run_under(&simulation, &settings);
    assert!(record.is_ready() && conditions::is_true(&shown.status.conditions, conditions::READY), "{:?}", record.problems);
    assert_eq!(told(&simulation).len(), 1);
}

#[test]
fn a_profile_whose_role_is_unknown_or_that_has_one_is_never_taken_for_one_without() {
    let (simulation, settings) = with_own_profile("node");
    assert!(run_under(&simulation, &settings).1.is_ready());
    let ports = simulation.ports();
    // As in an isolated VPC, or where `refresh` may not read the profile.
    let ec2 = Counting { hides_roles: true, ..Counting::over(&ports) };
    let adapters = Adapters { store: &ports, cloud: &ec2, cluster: &ports, queues: &ports, clock: &ports };
    block_on(crate::handle(adapters, &settings, &cluster())).unwrap();
    assert!(record(&simulation).unwrap().is_ready());
}
