//! Drift of machines from their current node class, and hashes that an older release wrote (disruption 13).
//!
//! Drift from the pool is found by `consolidate`, which also acts on the condition: here it is only recorded. Pure.

use std::collections::{BTreeMap, BTreeSet};
use whittle_api::karpenter::{NodePool, ResolvedAmi};
use whittle_api::{ClusterObjects, ConditionStatus, conditions, hashes, labels};
use whittle_claims::{Claim, NodeClassRecord, Stored, annotations_of, holds, labels_of, mirror};
use whittle_disruption::drift::{MachineFacts, NodeClassFacts, cloud_drift};
use whittle_ec2::instance::Instance;
use whittle_model::disruption::CloudDrift;
use whittle_model::requirements::{from_labels, from_requirements};
use whittle_units::{InstanceId, Timestamp};

/// Claims whose drift conditions or hashes change, with their new state.
pub(crate) fn find_drift<'c>(
    claims: &'c [Stored<Claim>],
    objects: &ClusterObjects,
    classes: &[NodeClassRecord],
    instances: &[Instance],
    now: Timestamp,
) -> Vec<(&'c Stored<Claim>, Claim)> {
    let instances: BTreeMap<&InstanceId, &Instance> = instances.iter().map(|instance| (&instance.id, instance)).collect();
    let launched = claims.iter().filter(|stored| !stored.value.is_ending() && holds(&stored.value, conditions::LAUNCHED));
    let drifted = launched.filter_map(|stored| {
        let claim = &stored.value;
        let converted = claim.spec.owner.kind == "Provisioner";
        let of_claim = |pool: &&NodePool| pool.metadata.name == claim.spec.node_pool && pool.is_converted_provisioner() == converted;
        let pool = objects.node_pools.iter().find(of_claim)?;
        let class = NodeClassRecord::referenced(classes, &claim.spec.node_class.name, converted);
        let class = class.filter(|class| !class.class.metadata.is_deleting());
        let mut next = claim.clone();
        rehash(&mut next, pool, class);
        let instance = instances.get(&claim.machine()?.instance_id);
        if let (Some(class), Some(instance)) = (class, instance) {
            let found = compare(&next, class, instance);
            note(&mut next, found, now);
        }
        (next != *claim).then_some((stored, next))
    });
    drifted.collect()
}

/// Hashes of another version cannot be compared: they are recomputed. A drifted claim keeps its hash, and so stays drifted.
fn rehash(claim: &mut Claim, pool: &NodePool, class: Option<&NodeClassRecord>) {
    let of_pool = (labels::NODE_POOL_HASH, labels::NODE_POOL_HASH_VERSION);
    rewrite(claim, of_pool, hashes::NODE_POOL_VERSION, || hashes::node_pool(pool));
    // One of the release before would make the machine drifted as soon as the class is refreshed.
    let is_todays = |class: &&NodeClassRecord| class.hash_version() == hashes::NODE_CLASS_VERSION;
    if let Some(class) = class.filter(|class| !class.hash.is_empty()).filter(is_todays) {
        let of_class = (labels::NODE_CLASS_HASH, labels::NODE_CLASS_HASH_VERSION);
        rewrite(claim, of_class, hashes::NODE_CLASS_VERSION, || class.hash.clone());
    }
}

fn rewrite(claim: &mut Claim, (hash, version): (&str, &str), today: &str, hash_today: impl FnOnce() -> String) {
    let stated = annotations_of(claim);
    if stated.get(version).is_some_and(|stated| stated == today) {
        return;
    }
    if conditions::find(&claim.conditions, conditions::DRIFTED).is_none() {
        claim.annotations.insert(hash.to_owned(), hash_today());
    }
    claim.annotations.insert(version.to_owned(), today.to_owned());
}

fn compare(claim: &Claim, record: &NodeClassRecord, instance: &Instance) -> Option<CloudDrift> {
    let shown = mirror(claim);
    let labels = labels_of(claim);
    let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
    // By EC2's data: an instance that fell back to on-demand has not drifted, whatever its labels still say.
    let reserved = instance.capacity_type == labels::CAPACITY_RESERVED;
    let ids = |ids: &mut dyn Iterator<Item = &String>| ids.cloned().collect::<BTreeSet<String>>();
    let class = NodeClassFacts {
        hash: record.hash.clone(),
        hash_version: record.hash_version().to_owned(),
        images: images_for(&record.amis, &labels),
        security_groups: ids(&mut record.security_groups.iter().map(|group| &group.id)),
        subnets: ids(&mut record.subnets.iter().map(|subnet| &subnet.id)),
        capacity_reservations: {
            let used = record.class.status.capacity_reservations.iter().map(|reservation| &reservation.id);
            ids(&mut used.chain(&record.unused_reservations))
        },
        placement_group: match &record.placement_group {
            // A group that cannot be found now may be found again: only another one is drift.
            None if record.lacks_placement_group() => label(labels::PLACEMENT_GROUP_ID),
            group => group.as_ref().map(|group| group.id.clone()).unwrap_or_default(),
        },
    };
    let machine = MachineFacts {
        security_groups: instance.security_groups.iter().cloned().collect(),
        subnet: instance.subnet_id.clone(),
        // Open reservations also match instances that did not target them.
        capacity_reservation: instance.reservation.clone().filter(|_| reserved).unwrap_or_default(),
    };
    cloud_drift(&shown, &class, &machine)
}

/// The image of the class for a machine with these labels, the first that matches; empty if all are for other machines. `None` if that
/// cannot be told: the class has no images, or the labels were lost with the claim and the NodeClaim of the machine.
fn images_for(images: &[ResolvedAmi], labels: &BTreeMap<String, String>) -> Option<BTreeSet<String>> {
    if images.is_empty() || !labels.contains_key(labels::ARCH) {
        return None;
    }
    let machine = from_labels(labels);
    let fits = |image: &&ResolvedAmi| machine.compatible(&from_requirements(&image.requirements), |_| false).is_ok();
    Some(images.iter().find(fits).map(|image| image.id.clone()).into_iter().collect())
}

/// Sets the condition, unless it records drift from the pool, which comes first.
fn note(claim: &mut Claim, found: Option<CloudDrift>, now: Timestamp) {
    let Some(found) = found else { return };
    let known = conditions::find(&claim.conditions, conditions::DRIFTED).filter(|known| known.status == ConditionStatus::True);
    let of_cloud = known.is_none_or(|known| CloudDrift::ALL.iter().any(|kind| kind.reason() == Some(known.reason.as_str())));
    if !of_cloud {
        return;
    }
    match found.reason() {
        Some(reason) => conditions::set(&mut claim.conditions, conditions::DRIFTED, ConditionStatus::True, reason, reason, now),
        None => conditions::clear(&mut claim.conditions, conditions::DRIFTED),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::ObjectMeta;
    use whittle_api::karpenter::{PlacementGroupSelector, Requirement, ResolvedPlacementGroup, ResolvedSecurityGroup, ResolvedSubnet};
    use whittle_claims::{ClaimSpec, Event, Machine, Revision};
    use whittle_ec2::instance::InstanceState;
    use whittle_testkit::{after, at, begun, default_spec, machine, node_class_reference, planned, resolved_class};

    struct Scene {
        claim: Claim,
        pool: NodePool,
        class: NodeClassRecord,
        instance: Instance,
    }

    fn launched() -> Claim {
        let spec = ClaimSpec { node_class: node_class_reference("default"), ..default_spec() };
        let labels = [("kubernetes.io/arch", "amd64"), (labels::CAPACITY_TYPE, "on-demand")].map(|(k, v)| (k.into(), v.into())).into();
        let machine = Machine { capacity_type: "on-demand".into(), image_id: "ami-1".into(), labels, ..machine("i-1") };
        after(&planned("default-1", spec), &[begun("t"), Event::FleetAnswered(machine)], at(1))
    }

    fn image(id: &str, arch: &str) -> ResolvedAmi {
        ResolvedAmi { id: id.into(), requirements: vec![Requirement::is_in("kubernetes.io/arch", [arch])], ..ResolvedAmi::default() }
    }

    /// A machine that matches its pool and its class.
    fn scene() -> Scene {
        let pool = NodePool { metadata: ObjectMeta::named("default"), ..NodePool::default() };
        let class = NodeClassRecord {
            subnets: vec![ResolvedSubnet { id: "subnet-1".into(), ..ResolvedSubnet::default() }],
            security_groups: vec![ResolvedSecurityGroup { id: "sg-1".into(), ..ResolvedSecurityGroup::default() }],
            amis: vec![image("ami-arm", "arm64"), image("ami-1", "amd64"), image("ami-0", "amd64")],
            hash: "7".into(),
            ..resolved_class("default")
        };
        let mut claim = launched();
        claim.annotations = [
            (labels::NODE_POOL_HASH, hashes::node_pool(&pool).as_str()),
            (labels::NODE_POOL_HASH_VERSION, hashes::NODE_POOL_VERSION),
            (labels::NODE_CLASS_HASH, "7"),
            (labels::NODE_CLASS_HASH_VERSION, hashes::NODE_CLASS_VERSION),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        let instance = Instance {
            id: "i-1".into(),
            state: InstanceState::Running,
            instance_type: "m5.large".into(),
            zone: "z".into(),
            capacity_type: "on-demand".into(),
            image_id: "ami-1".into(),
            subnet_id: "subnet-1".into(),
            security_groups: vec!["sg-1".into()],
            reservation: None,
            placement_group: None,
            partition: None,
            private_dns_name: String::new(),
            state_reason: None,
            launched_at: at(0),
            tags: BTreeMap::new(),
        };
        Scene { claim, pool, class, instance }
    }

    fn with_drift(scene: &Scene) -> Option<Claim> {
        let objects = ClusterObjects { node_pools: vec![scene.pool.clone()], ..ClusterObjects::default() };
        let claims = [Stored { value: scene.claim.clone(), revision: Revision(1) }];
        let found = find_drift(&claims, &objects, std::slice::from_ref(&scene.class), std::slice::from_ref(&scene.instance), at(60));
        found.into_iter().next().map(|(_, next)| next)
    }

    /// Checks the drift reason after a change.
    #[track_caller]
    fn check(change: impl FnOnce(&mut Scene), reason: Option<&str>) {
        let mut changed = scene();
        change(&mut changed);
        let next = with_drift(&changed);
        let drifted = next.as_ref().and_then(|next| conditions::find(&next.conditions, conditions::DRIFTED));
        assert_eq!(drifted.map(|drifted| drifted.reason.as_str()), reason);
    }

    fn group(id: &str) -> Option<ResolvedPlacementGroup> {
        Some(ResolvedPlacementGroup { id: id.into(), ..ResolvedPlacementGroup::default() })
    }

    /// Puts the machine into the placement group of its class.
    fn in_group(scene: &mut Scene) {
        scene.class.placement_group = group("pg-1");
        scene.class.class.spec.placement_group_selector = Some(PlacementGroupSelector { name: Some("web".into()), id: None });
        scene.claim.spec.labels.insert(labels::PLACEMENT_GROUP_ID.into(), "pg-1".into());
    }

    #[test]
    fn each_difference_from_the_class_has_its_reason() {
        assert_eq!(with_drift(&scene()), None, "no write without a difference");
        check(|scene| scene.class.hash = "8".into(), Some("NodeClassDrift"));
        check(|scene| scene.class.amis[1].id = "ami-2".into(), Some("AMIDrift"));
        check(|scene| scene.class.amis.insert(0, image("ami-2", "amd64")), Some("AMIDrift"));
        check(|scene| scene.class.amis.insert(0, image("ami-2", "arm64")), None);
        check(|scene| scene.class.amis.truncate(1), Some("AMIDrift"));
        check(|scene| scene.class.security_groups[0].id = "sg-2".into(), Some("SecurityGroupDrift"));
        check(|scene| scene.class.subnets[0].id = "subnet-2".into(), Some("SubnetDrift"));
        check(|scene| scene.instance.reservation = Some("cr-1".into()), None);
        check(|scene| scene.class.placement_group = group("pg-1"), Some("PlacementGroupDrift"));
        check(in_group, None);
        let elsewhere = |scene: &mut Scene| {
            in_group(scene);
            scene.class.placement_group = group("pg-2");
        };
        check(elsewhere, Some("PlacementGroupDrift"));
        let out_of_it = |scene: &mut Scene| {
            in_group(scene);
            (scene.class.placement_group, scene.class.class.spec.placement_group_selector) = (None, None);
        };
        check(out_of_it, Some("PlacementGroupDrift"));
        let reserved = |scene: &mut Scene| {
            scene.instance.capacity_type = labels::CAPACITY_RESERVED.into();
            scene.instance.reservation = Some("cr-1".into());
        };
        check(reserved, Some("CapacityReservationDrift"));
        // The class selects it, and EC2 has started the machine in it: only new ones are started elsewhere.
        check(
            |scene| {
                reserved(scene);
                scene.class.unused_reservations = ["cr-1".to_owned()].into();
            },
            None,
        );
        check(
            |scene| {
                reserved(scene);
                scene.claim.spec.labels.insert(labels::CAPACITY_TYPE.into(), labels::CAPACITY_RESERVED.into());
                scene.instance.capacity_type = labels::CAPACITY_ON_DEMAND.into();
            },
            None,
        );
    }

    #[test]
    fn unknown_values_are_no_drift() {
        check(|scene| scene.class.amis.clear(), None);
        check(|scene| scene.class.subnets.clear(), None);
        check(|scene| scene.class.security_groups.clear(), None);
        check(
            |scene| {
                in_group(scene);
                scene.class.placement_group = None;
            },
            None,
        );
        check(
            |scene| {
                scene.class.hash = "8".into();
                scene.class.class.metadata.deletion_timestamp = Some(at(5));
            },
            None,
        );
        check(
            |scene| {
                scene.class.subnets[0].id = "subnet-2".into();
                scene.instance.id = "i-2".into();
            },
            None,
        );
        check(
            |scene| {
                scene.class.hash = "8".into();
                scene.pool.metadata.name = "other".into();
            },
            None,
        );
    }

    #[test]
    fn images_of_other_machines_alone_are_none_and_an_unknown_architecture_says_nothing() {
        let amis = [image("ami-arm", "arm64")];
        let of = |arch: &str| images_for(&amis, &BTreeMap::from([(labels::ARCH.to_owned(), arch.to_owned())]));
        assert_eq!(of("arm64"), Some(BTreeSet::from(["ami-arm".to_owned()])));
        assert_eq!(of("amd64"), Some(BTreeSet::new()));
        let adopted = BTreeMap::from([(labels::INSTANCE_TYPE.to_owned(), "m5.large".to_owned())]);
        assert_eq!(images_for(&amis, &adopted), None, "its labels were lost");
        assert_eq!(images_for(&[], &BTreeMap::from([(labels::ARCH.to_owned(), "amd64".to_owned())])), None);
    }

    #[test]
    fn cloud_drift_is_cleared_with_its_cause_and_pool_drift_stays() {
        let mut back = scene();
        conditions::set(&mut back.claim.conditions, conditions::DRIFTED, ConditionStatus::True, "AMIDrift", "AMIDrift", at(5));
        assert!(conditions::find(&with_drift(&back).unwrap().conditions, conditions::DRIFTED).is_none());
        let mut of_pool = scene();
        conditions::set(&mut of_pool.claim.conditions, conditions::DRIFTED, ConditionStatus::True, "NodePoolDrifted", "", at(5));
        of_pool.class.hash = "8".into();
        assert_eq!(with_drift(&of_pool), None);
    }

    #[test]
    fn hashes_of_another_version_are_rewritten_unless_the_claim_has_drifted() {
        let old = |scene: &mut Scene| {
            for (key, value) in [
                (labels::NODE_POOL_HASH, "1"),
                (labels::NODE_POOL_HASH_VERSION, "v2"),
                (labels::NODE_CLASS_HASH, "2"),
                (labels::NODE_CLASS_HASH_VERSION, "v5"),
            ] {
                scene.claim.annotations.insert(key.into(), value.into());
            }
        };
        let mut aged = scene();
        old(&mut aged);
        assert_eq!(with_drift(&aged).unwrap(), scene().claim, "same as a claim created by this release");
        conditions::set(&mut aged.claim.conditions, conditions::DRIFTED, ConditionStatus::True, "NodePoolDrifted", "", at(5));
        let kept = with_drift(&aged).unwrap().annotations;
        assert_eq!((kept[labels::NODE_POOL_HASH].as_str(), kept[labels::NODE_CLASS_HASH].as_str()), ("1", "2"));
        assert_eq!((kept[labels::NODE_POOL_HASH_VERSION].as_str(), kept[labels::NODE_CLASS_HASH_VERSION].as_str()), ("v3", "v6"));
    }

    /// All nodes of the class would be replaced for an upgrade of Whittle.
    #[test]
    fn a_hash_of_the_release_before_is_rewritten_once_this_one_has_refreshed_the_class() {
        let version = |value: &str| (labels::NODE_CLASS_HASH_VERSION.to_owned(), value.to_owned());
        let mut aged = scene();
        aged.claim.annotations.extend([(labels::NODE_CLASS_HASH.to_owned(), "2".to_owned()), version("v5")]);
        aged.class.hash = "2".into();
        aged.class.class.metadata.annotations.extend([version("v5")]);
        assert_eq!(with_drift(&aged), None, "it is made from the class as it is");
        aged.class.hash = "7".into();
        aged.class.class.metadata.annotations.extend([version(hashes::NODE_CLASS_VERSION)]);
        assert_eq!(with_drift(&aged).unwrap(), scene().claim, "same as a claim created by this release");
    }

    #[test]
    fn an_edit_that_the_release_before_has_seen_is_drift() {
        let edited = |scene: &mut Scene| {
            scene.claim.annotations.insert(labels::NODE_CLASS_HASH_VERSION.into(), "v5".into());
            scene.class.class.metadata.annotations.insert(labels::NODE_CLASS_HASH_VERSION.into(), "v5".into());
            scene.class.hash = "8".into();
        };
        check(edited, Some("NodeClassDrift"));
    }
}
