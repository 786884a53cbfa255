//! What a class may not reach for: roles and networks of other clusters.

use super::*;

#[test]
fn a_class_never_gets_the_node_role_of_another_cluster() {
    let (simulation, settings) = fenced(with_role("KarpenterNodeRole-other"));
    let seen = run_under(&simulation, &settings);
    let words = ["KarpenterNodeRole-other", "spec.role", "ClusterNodeRoles"];
    check_refused(&seen, conditions::INSTANCE_PROFILE_READY, "NodeRoleNotPermitted", &words);
    assert_eq!((seen.1.instance_profile.as_str(), &seen.0.status.instance_profile), ("", &None));
    assert!(simulation.world().region.network.profiles.is_empty(), "no profile is created for it");

    let (simulation, settings) = fenced(with_role("KarpenterNodeRole-c"));
    let (_, record) = run_under(&simulation, &settings);
    assert!(record.is_ready(), "{:?}", record.problems);
}

#[test]
fn an_instance_profile_must_contain_a_permitted_role() {
    let (foreign, none) = (Some("NodeRoleNotPermitted"), Some("InstanceProfileWithoutRole"));
    for (holds, refused) in [("admin", foreign), ("KarpenterNodeRole-other", foreign), ("", none), ("KarpenterNodeRole-c", None)] {
        let (simulation, settings) = fenced(|world| {
            world.region.network.profiles.insert("p".into(), holds.into());
            world.cluster.objects.change::<Ec2NodeClass>("default", |class| {
                class.spec.role = None;
                class.spec.instance_profile = Some("p".into());
            });
        });
        let seen = run_under(&simulation, &settings);
        match refused {
            Some(reason) => check_refused(&seen, conditions::INSTANCE_PROFILE_READY, reason, &["profile p", "spec.instanceProfile"]),
            None => assert!(seen.1.is_ready(), "{:?}", seen.1.problems),
        }
    }
}

#[test]
fn a_class_never_uses_the_vpc_of_another_cluster() {
    let words = ["vpc-other", "spec.subnetSelectorTerms", "spec.securityGroupSelectorTerms"];
    for change in [
        |world: &mut whittle_sim::World| world.region.network.subnets[0].vpc = "vpc-other".into(),
        |world: &mut whittle_sim::World| world.region.network.groups[0].vpc = "vpc-other".into(),
    ] {
        let (simulation, settings) = fenced(|world| {
            with_role("KarpenterNodeRole-c")(world);
            change(world);
        });
        check_refused(&run_under(&simulation, &settings), conditions::SUBNETS_READY, "OtherVPC", &words);
    }
}

#[test]
fn a_refusal_is_written_once() {
    let (mut simulation, settings) = fenced(with_role("KarpenterNodeRole-other"));
    let (first, _) = run_under(&simulation, &settings);
    simulation.run_for(SignedDuration::from_mins(5));
    let (second, _) = run_under(&simulation, &settings);
    assert_eq!(second.status.conditions, first.status.conditions, "no write every five minutes");
    with_role("KarpenterNodeRole-c")(&mut simulation.world());
    let (fixed, record) = run_under(&simulation, &settings);
    assert!(record.is_ready() && conditions::is_true(&fixed.status.conditions, conditions::READY));
}
