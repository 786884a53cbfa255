//! Objects of Kubernetes, EC2 and the table.

use std::collections::{BTreeMap, BTreeSet};
use whittle_api::karpenter::{Ec2NodeClass, NodeClassReference, NodePool};
use whittle_api::{ObjectMeta, OwnerReference};
use whittle_claims::fixtures::at;
use whittle_claims::{Claim, Machine, NodeClassRecord, Revision, Stored};
use whittle_ec2::instance::{Instance, InstanceState};

/// An empty NodePool with the uid `pool-uid`.
#[must_use]
pub fn pool_named(name: &str) -> NodePool {
    NodePool { metadata: ObjectMeta { uid: "pool-uid".into(), ..ObjectMeta::named(name) }, ..NodePool::default() }
}

/// The owner of what belongs to NodePool `default`.
#[must_use]
pub fn pool_owner() -> OwnerReference {
    OwnerReference { kind: "NodePool".into(), name: "default".into(), uid: "pool-uid".into(), ..OwnerReference::default() }
}

/// A reference to an EC2NodeClass.
#[must_use]
pub fn node_class_reference(name: &str) -> NodeClassReference {
    NodeClassReference { group: "karpenter.k8s.aws".into(), kind: "EC2NodeClass".into(), name: name.into() }
}

/// What EC2 answered for a class at second 0: nothing, and no problem.
#[must_use]
pub fn resolved_class(name: &str) -> NodeClassRecord {
    NodeClassRecord {
        class: Ec2NodeClass { metadata: ObjectMeta::named(name), ..Ec2NodeClass::default() },
        subnets: Vec::new(),
        security_groups: Vec::new(),
        amis: Vec::new(),
        instance_profile: String::new(),
        hash: String::new(),
        problems: Vec::new(),
        free_addresses: BTreeMap::new(),
        free_reserved: BTreeMap::new(),
        reservation_tenancies: BTreeMap::new(),
        unused_reservations: BTreeSet::new(),
        placement_group: None,
        ipv6: false,
        fence: None,
        resolved_at: at(0),
    }
}

/// A running instance as EC2 describes it, without tags.
#[must_use]
pub fn instance_of(machine: &Machine) -> Instance {
    Instance {
        id: machine.instance_id.clone(),
        state: InstanceState::Running,
        instance_type: machine.instance_type.clone(),
        zone: machine.zone.clone(),
        capacity_type: machine.capacity_type.clone(),
        image_id: machine.image_id.clone(),
        subnet_id: "subnet".into(),
        security_groups: Vec::new(),
        reservation: None,
        placement_group: None,
        partition: None,
        private_dns_name: String::new(),
        state_reason: None,
        launched_at: machine.launched_at,
        tags: BTreeMap::new(),
    }
}

/// Claims as they are read, all at revision 1.
#[must_use]
pub fn stored(claims: impl IntoIterator<Item = Claim>) -> Vec<Stored<Claim>> {
    claims.into_iter().map(|value| Stored { value, revision: Revision(1) }).collect()
}
