//! What EC2 and the node class say of machines: reservations that were left, blocks that end, drift.

use super::{Scene, at, change, check_ends, check_never_ends, instance, registered, scene};
use crate::cloud::CloudNote;
use std::collections::BTreeMap;
use whittle_api::karpenter::{
    CapacityReservationSelectorTerm, Ec2NodeClass, Requirement, ResolvedAmi, ResolvedCapacityReservation, ResolvedSecurityGroup,
    ResolvedSubnet,
};
use whittle_api::{ConditionStatus, ObjectMeta, conditions, hashes, labels};
use whittle_claims::{Claim, DeletionReason, NodeClassRecord, Phase};

fn machine_of(claim: &mut Claim) -> &mut whittle_claims::Machine {
    match &mut claim.phase {
        Phase::Registered { machine, .. } => machine,
        other => panic!("{other:?}"),
    }
}

/// A registered claim in reservation cr-1, as claim, Node and instance say.
fn reserved() -> Scene {
    let mut claim = registered();
    let machine = machine_of(&mut claim);
    machine.capacity_type = "reserved".into();
    let of_machine = [
        (labels::CAPACITY_TYPE, "reserved"),
        (labels::RESERVATION_ID, "cr-1"),
        (labels::RESERVATION_TYPE, "default"),
        (labels::RESERVATION_INTERRUPTIBLE, "false"),
        (labels::ARCH, "amd64"),
    ];
    machine.labels = of_machine.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    claim.annotations.insert(labels::NODE_CLASS_HASH.into(), "7".into());
    claim.annotations.insert(labels::NODE_CLASS_HASH_VERSION.into(), hashes::NODE_CLASS_VERSION.into());
    change(scene(claim), |s| {
        s.objects.nodes[0].metadata.labels.insert(labels::CAPACITY_TYPE.into(), "reserved".into());
        s.instances[0].capacity_type = "reserved".into();
        s.instances[0].reservation = Some("cr-1".into());
        s.instances[0].security_groups = vec!["sg-2".into(), "sg-1".into()];
        s.classes = vec![class()];
    })
}

fn reservation(id: &str, kind: &str, ends: i64) -> ResolvedCapacityReservation {
    ResolvedCapacityReservation {
        id: id.into(),
        reservation_type: kind.into(),
        end_time: Some(at(ends)),
        ..ResolvedCapacityReservation::default()
    }
}

/// What the class of the scene resolved to at second 90.
fn class() -> NodeClassRecord {
    let mut class = Ec2NodeClass { metadata: ObjectMeta::named("default"), ..Ec2NodeClass::default() };
    class.status.capacity_reservations = vec![reservation("cr-other", "capacity-block", 100), reservation("cr-1", "default", 100_000)];
    let ami = |id: &str, arch: &str, gpu: Requirement| ResolvedAmi {
        id: id.into(),
        requirements: vec![Requirement::is_in(labels::ARCH, [arch]), gpu],
        ..ResolvedAmi::default()
    };
    let gpu = |operator| Requirement { key: "karpenter.k8s.aws/instance-gpu-count".into(), operator, ..Requirement::default() };
    use whittle_api::karpenter::Operator::{DoesNotExist, Exists};
    NodeClassRecord {
        class,
        subnets: vec![ResolvedSubnet { id: "subnet".into(), ..ResolvedSubnet::default() }],
        security_groups: ["sg-1", "sg-2"].map(|id| ResolvedSecurityGroup { id: id.into(), name: String::new() }).into(),
        amis: vec![
            ami("ami-arm", "arm64", gpu(DoesNotExist)),
            ami("ami-gpu", "amd64", gpu(Exists)),
            ami("ami", "amd64", gpu(DoesNotExist)),
        ],
        instance_profile: String::new(),
        hash: "7".into(),
        problems: Vec::new(),
        free_addresses: BTreeMap::new(),
        free_reserved: BTreeMap::new(),
        resolved_at: at(90),
    }
}

/// What a sweep at second 100 notes of the claim, and which Nodes it calls on-demand.
#[track_caller]
fn check(scene: &Scene, notes: &[CloudNote], nodes: &[&str]) {
    let found = scene.judge(&[], 100);
    assert_eq!(found.cloud.iter().map(|(_, note)| note.clone()).collect::<Vec<_>>(), notes);
    assert_eq!(found.demote_nodes, nodes);
    assert!(found.end.is_empty(), "nothing of this ends a machine: {:?}", found.end);
}

#[test]
fn a_machine_that_left_its_reservation_is_on_demand_in_claim_and_node() {
    check(&reserved(), &[], &[]);
    let left = change(reserved(), |s| {
        s.instances[0].capacity_type = "on-demand".into();
        s.instances[0].reservation = None;
    });
    check(&left, &[CloudNote::Demoted], &["n"]);
    // The claim was changed before, its Node was not.
    let half = change(left.clone(), |s| machine_of(&mut s.claims[0]).capacity_type = "on-demand".into());
    check(&half, &[], &["n"]);
    let done = change(half, |s| {
        s.objects.nodes[0].metadata.labels.insert(labels::CAPACITY_TYPE.into(), "on-demand".into());
    });
    check(&done, &[], &[]);
}

#[test]
fn what_is_not_seen_or_is_to_end_keeps_its_labels() {
    let left = |change_more: fn(&mut Scene)| {
        change(reserved(), |s| {
            s.instances[0].capacity_type = "on-demand".into();
            change_more(s);
        })
    };
    check(&left(|s| s.instances[0].id = "i-other".into()), &[], &[]);
    check(&left(|s| s.instances[0].state = whittle_ec2::instance::InstanceState::ShuttingDown), &[], &[]);
    check(&left(|s| s.instances[0].capacity_type = "spot".into()), &[], &[]);
    check(&left(|s| s.objects.nodes[0].spec.provider_id = "aws:///z/i-other".into()), &[CloudNote::Demoted], &[]);
    let ending = left(|s| s.claims[0] = whittle_claims::step(&s.claims[0], &super::to_end(), at(20)).unwrap());
    check(&ending, &[], &[]);
}

/// A block that ends then, seen at that second.
fn block(ends: i64, seen: i64) -> Scene {
    change(reserved(), |s| {
        s.classes[0].class.status.capacity_reservations =
            vec![reservation("cr-other", "capacity-block", 100), reservation("cr-1", "capacity-block", ends)];
        s.classes[0].resolved_at = at(seen);
    })
}

#[test]
fn a_machine_of_a_capacity_block_ends_before_its_block_does() {
    check_ends(&block(100 + 2400, 90), DeletionReason::Requested);
    check_never_ends(&block(100 + 2400 + 61, 90));
    check_never_ends(&change(reserved(), |s| s.classes[0].class.status.capacity_reservations = vec![reservation("cr-1", "default", 100)]));
}

#[test]
fn the_end_of_a_block_that_nobody_looked_at_lately_ends_nothing() {
    check_ends(&block(100 + 2400, 100 - 600), DeletionReason::Requested);
    check_never_ends(&block(100 + 2400, 39 - 600));
    // Another class saw it later, and by then it had been extended.
    let extended = change(block(100 + 2400, 60), |s| s.classes.push(block(100_000, 90).classes.remove(0)));
    check_never_ends(&extended);
}

#[test]
fn reservations_are_looked_at_every_minute_where_a_class_names_some() {
    let due = |names: bool, seen: i64| {
        change(reserved(), |s| {
            let term = CapacityReservationSelectorTerm { id: Some("cr-1".into()), ..CapacityReservationSelectorTerm::default() };
            s.classes[0].class.spec.capacity_reservation_selector_terms = names.then(|| vec![term]);
            s.classes[0].resolved_at = at(seen);
        })
        .judge(&[], 100)
        .refresh
    };
    assert!(due(true, 50) && !due(true, 51) && !due(false, 0));
}

/// What is noted of drift after a change.
#[track_caller]
fn check_drift(change_scene: impl FnOnce(&mut Scene), drift: Option<&'static str>) {
    let notes: Vec<CloudNote> = drift.map(|reason| CloudNote::Drifted(Some(reason))).into_iter().collect();
    check(&change(reserved(), change_scene), &notes, &[]);
}

#[test]
fn a_machine_that_is_not_what_its_class_asks_for_has_drifted() {
    check_drift(|_| (), None);
    check_drift(|s| s.classes[0].hash = "8".into(), Some("NodeClassDrift"));
    check_drift(|s| s.classes[0].amis[2].id = "ami-new".into(), Some("AMIDrift"));
    check_drift(|s| s.classes[0].security_groups.truncate(1), Some("SecurityGroupDrift"));
    check_drift(|s| s.classes[0].subnets[0].id = "subnet-new".into(), Some("SubnetDrift"));
    check_drift(|s| s.classes[0].class.status.capacity_reservations.truncate(1), Some("CapacityReservationDrift"));
}

#[test]
fn images_for_other_machines_are_no_drift() {
    check_drift(|s| s.classes[0].amis[0].id = "ami-arm-new".into(), None);
    check_drift(|s| s.classes[0].amis[1].id = "ami-gpu-new".into(), None);
    check_drift(
        |s| {
            machine_of(&mut s.claims[0]).labels.insert("karpenter.k8s.aws/instance-gpu-count".into(), "1".into());
        },
        Some("AMIDrift"),
    );
}

#[test]
fn what_fell_back_to_on_demand_or_cannot_be_told_has_not_drifted() {
    let fell_back = change(reserved(), |s| {
        s.classes[0].class.status.capacity_reservations.clear();
        s.instances[0].capacity_type = "on-demand".into();
    });
    check(&fell_back, &[CloudNote::Demoted], &["n"]);
    check_drift(|s| s.classes.clear(), None);
    check_drift(|s| s.classes[0].amis.clear(), None);
    check_drift(|s| s.classes[0].subnets.clear(), None);
    check_drift(
        |s| {
            s.classes[0].hash = "8".into();
            s.classes[0].class.metadata.deletion_timestamp = Some(at(80));
        },
        None,
    );
    check_drift(
        |s| {
            s.classes[0].hash = "8".into();
            s.instances = vec![instance("i-other")];
        },
        None,
    );
}

#[test]
fn drift_is_noted_once_taken_back_when_it_is_over_and_left_to_the_pool_where_that_is_to_blame() {
    let standing = |reason: &'static str, hash: &'static str| {
        change(reserved(), |s| {
            s.classes[0].hash = hash.into();
            let list = &mut s.claims[0].conditions;
            conditions::set(list, conditions::DRIFTED, ConditionStatus::True, reason, reason, at(95));
        })
    };
    check(&standing("NodeClassDrift", "8"), &[], &[]);
    check(&standing("AMIDrift", "8"), &[CloudNote::Drifted(Some("NodeClassDrift"))], &[]);
    check(&standing("AMIDrift", "7"), &[CloudNote::Drifted(None)], &[]);
    check(&standing("NodePoolDrifted", "8"), &[], &[]);
    check(&standing("RequirementsDrifted", "7"), &[], &[]);
}
