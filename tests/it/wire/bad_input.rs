//! Node classes that name what does not exist, or with which no node would join: not ready, with a reason, an Event and no launch,
//! while other classes go on.

use super::root;
use crate::cases::{Case, Stage};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use whittle_api::karpenter::Ec2NodeClass;
use whittle_api::{ConditionStatus, conditions};
use whittle_claims::{Claim, DeletionReason, Phase};
use whittle_ports::Clock;

/// A class that is the good one but for some fields, and how that shows: condition, reason, and a word of the message.
struct Bad {
    name: &'static str,
    /// Fields of the spec; null removes one.
    fields: Value,
    shown: [&'static str; 3],
}

fn bad(name: &'static str, fields: Value, shown: [&'static str; 3]) -> Bad {
    Bad { name, fields, shown }
}

fn all() -> Vec<Bad> {
    let nothing = || json!([{"tags": {"karpenter.sh/discovery": "nothing"}}]);
    let [amis, profile, placement] = [conditions::AMIS_READY, conditions::INSTANCE_PROFILE_READY, conditions::PLACEMENT_GROUP_READY];
    let of = |family: &str, user_data: &str| json!({"amiFamily": family, "amiSelectorTerms": [{"id": "ami-0000000000000001"}], "userData": user_data});
    let bottlerocket = |user_data: &str| of("Bottlerocket", user_data);
    let user_data = |reason, word| [conditions::VALIDATION_SUCCEEDED, reason, word];
    let large = "x".repeat(17_000);
    let many: serde_json::Map<String, Value> = (0..45).map(|number| (format!("k{number}"), json!("v"))).collect();
    vec![
        bad("no-subnet", json!({"subnetSelectorTerms": nothing()}), [conditions::SUBNETS_READY, "SubnetsNotFound", "subnetSelectorTerms"]),
        bad(
            "no-group",
            json!({"securityGroupSelectorTerms": nothing()}),
            [conditions::SECURITY_GROUPS_READY, "SecurityGroupsNotFound", "securityGroupSelectorTerms"],
        ),
        bad(
            "no-image",
            json!({"amiFamily": "AL2023", "amiSelectorTerms": [{"id": "ami-0fedcba9876543210"}]}),
            [amis, "AMINotFound", "amiSelectorTerms"],
        ),
        bad("no-release", json!({"amiSelectorTerms": [{"alias": "al2023@v20990101"}]}), [amis, "AMINotFound", "amiSelectorTerms"]),
        bad("no-alias", json!({"amiSelectorTerms": [{"alias": "ubuntu@latest"}]}), [amis, "UnsupportedAlias", "ubuntu"]),
        bad("no-role", json!({"role": "missing-role"}), [profile, "NodeRoleNotFound", "missing-role"]),
        bad("no-profile", json!({"role": null, "instanceProfile": "missing"}), [profile, "InstanceProfileNotFound", "missing"]),
        bad(
            "arn-profile",
            json!({"role": null, "instanceProfile": "arn:aws:iam::111122223333:instance-profile/nodes"}),
            [profile, "InstanceProfileNotFound", "without ARN"],
        ),
        bad("neither", json!({"role": null}), [profile, "NodeRoleNotSet", "spec.role"]),
        bad("no-placement", json!({"placementGroupSelector": {"name": "gone"}}), [placement, "PlacementGroupNotFound", "gone"]),
        bad("large", of("AL2023", &large), user_data("UserDataSizeLimitExceeded", "16384")),
        bad("large-custom", of("Custom", &large), user_data("UserDataSizeLimitExceeded", "spec.userData")),
        bad("no-mime", of("AL2", "MIME-Version: 1.0\n\nx"), user_data("UserDataInvalid", "MIME")),
        bad("cloud-config", of("AL2023", "#cloud-config\nruncmd: [ls]\n"), user_data("UserDataInvalid", "NodeConfig")),
        bad("tags", of("Windows2022", "<powershell>\nls\n</powershell>"), user_data("UserDataInvalid", "<powershell>")),
        bad("no-toml", bottlerocket("#!/bin/sh\necho"), user_data("UserDataInvalid", "TOML")),
        bad(
            "wrong-type",
            bottlerocket("[settings.kubernetes]\nmax-pods = \"110\""),
            user_data("UserDataInvalid", "settings.kubernetes.max-pods"),
        ),
        bad(
            "no-volume",
            json!({"blockDeviceMappings": [{"deviceName": "/dev/xvda"}]}),
            user_data("BlockDeviceMappingsInvalid", "spec.blockDeviceMappings[0].ebs"),
        ),
        bad(
            "public",
            json!({"associatePublicIPAddress": true, "networkInterfaces": [
                {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
                {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"},
            ]}),
            user_data("PublicAddressRefused", "spec.associatePublicIPAddress"),
        ),
        bad("many-tags", json!({"tags": many}), user_data("TagValidationFailed", "at most 44")),
        bad("no-family", of("Ubuntu2404", ""), user_data("UnknownAMIFamily", "Ubuntu2404")),
    ]
}

fn class(good: &Ec2NodeClass, name: &str, fields: &Value) -> Ec2NodeClass {
    let mut spec = serde_json::to_value(&good.spec).unwrap();
    for (field, value) in fields.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let mut class = good.clone();
    name.clone_into(&mut class.metadata.name);
    class.spec = serde_json::from_value(spec).unwrap();
    class
}

/// A region with one role, and a cluster with the good class and these.
fn stage(others: Vec<Ec2NodeClass>) -> (Case, Stage) {
    let case = Case::read(&root().join("tests/golden/cloud/launch/001-on-demand.yaml")).unwrap();
    let stage = Stage::new(&case);
    let mut world = stage.simulation.world();
    world.region.network.roles = BTreeSet::from([case.class.spec.role.clone().unwrap()]);
    let now = world.now();
    for class in others {
        assert!(world.cluster.objects.create(class, now));
    }
    drop(world);
    (case, stage)
}

/// The claim of a class, after `launch` had it.
fn launched(case: &Case, stage: &Stage, names: &[&str]) -> Vec<Claim> {
    let now = stage.ports.now();
    let planned: Vec<Claim> = (0..)
        .zip(names)
        .map(|(number, name)| {
            let mut claim = case.planned(number, now);
            (*name).clone_into(&mut claim.spec.node_class.name);
            claim
        })
        .collect();
    stage.store(&planned);
    stage.launch(&[]).unwrap();
    planned.iter().map(|claim| stage.claim(&claim.key.name).unwrap()).collect()
}

fn check_refused(stage: &Stage, claim: &Claim, [part, reason, word]: [&str; 3]) {
    let name = &claim.spec.node_class.name;
    let class = stage.simulation.world().cluster.objects.get::<Ec2NodeClass>(name).unwrap().clone();
    let condition = conditions::find(&class.status.conditions, part).unwrap();
    assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::False, reason), "{name}: {condition:?}");
    assert!(condition.message.contains(word), "{name}: {}", condition.message);
    let ready = conditions::find(&class.status.conditions, conditions::READY).unwrap();
    assert_eq!(ready.status, ConditionStatus::False, "{name}");
    let world = stage.simulation.world();
    let events = world.cluster.events.iter().filter(|kept| kept.event.reason == reason && kept.event.name == *name);
    assert_eq!(events.count(), 1, "{name}");
    let deletion = claim.deletion.as_ref().unwrap_or_else(|| panic!("{name}: {claim:?}"));
    assert_eq!(deletion.reason, DeletionReason::NodeClassNotReady, "{name}");
    assert_eq!(deletion.message, format!("node class {name} is not ready: {part}: {}", condition.message));
}

#[test]
fn a_bad_class_is_not_ready_with_a_reason_and_an_event_and_launches_nothing_while_others_go_on() {
    let good = Case::read(&root().join("tests/golden/cloud/launch/001-on-demand.yaml")).unwrap().class;
    let all = all();
    let (case, stage) = stage(all.iter().map(|bad| class(&good, bad.name, &bad.fields)).collect());
    stage.refresh().unwrap();
    // A second look is no news.
    stage.refresh().unwrap();
    let names: Vec<&str> = all.iter().map(|bad| bad.name).chain([good.metadata.name.as_str()]).collect();
    let mut claims = launched(&case, &stage, &names);
    let of_good = claims.pop().unwrap();
    assert!(matches!(of_good.phase, Phase::Launched { .. }), "{of_good:?}");
    for (claim, bad) in claims.iter().zip(&all) {
        check_refused(&stage, claim, bad.shown);
        println!("{}: {}", bad.name, claim.deletion.as_ref().unwrap().message);
    }
    assert_eq!(stage.simulation.world().region.machines.len(), 1, "that of the good class");
}

#[test]
fn a_certificate_authority_without_base64_stops_the_classes_that_would_give_it_to_nodes_and_no_other() {
    let good = Case::read(&root().join("tests/golden/cloud/launch/001-on-demand.yaml")).unwrap().class;
    let custom = json!({"amiFamily": "Custom"});
    let (case, stage) = stage(vec![class(&good, "custom", &custom)]);
    stage.simulation.world().cluster.info.as_mut().unwrap().certificate_authority = "-----BEGIN CERTIFICATE-----".to_owned();
    stage.refresh().unwrap();
    let claims = launched(&case, &stage, &["default", "custom"]);
    check_refused(&stage, &claims[0], [conditions::VALIDATION_SUCCEEDED, "ClusterCAInvalid", "base64"]);
    assert!(matches!(claims[1].phase, Phase::Launched { .. }), "{:?}", claims[1]);
    // It goes on by itself once EKS says otherwise.
    stage.simulation.world().cluster.info.as_mut().unwrap().certificate_authority = "Yw==".to_owned();
    stage.refresh().unwrap();
    assert!(conditions::is_true(&stage.class().status.conditions, conditions::READY));
}
