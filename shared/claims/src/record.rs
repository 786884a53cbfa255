//! Small records besides the claims: stored by cluster, kind and name, each with a version.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use whittle_api::karpenter::{Ec2NodeClass, ResolvedAmi, ResolvedPlacementGroup, ResolvedSecurityGroup, ResolvedSubnet};
use whittle_api::{hashes, labels};
use whittle_units::Timestamp;

/// A value that is stored under (cluster, kind, name). A reader takes every version up to its own.
pub trait Record: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    /// Part of the key; never reused for something else.
    const KIND: &'static str;
    /// Raised when an older reader would misread the value.
    const VERSION: u32 = 1;
    /// Unique among the records of its kind in a cluster.
    fn name(&self) -> String;
    /// When the record may be deleted; `None` keeps it.
    fn expires_at(&self) -> Option<Timestamp> {
        None
    }
}

/// What a node class resolved to at its last refresh. Written by `refresh` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeClassRecord {
    /// The class as it was read, its generation included.
    pub class: Ec2NodeClass,
    pub subnets: Vec<ResolvedSubnet>,
    pub security_groups: Vec<ResolvedSecurityGroup>,
    pub amis: Vec<ResolvedAmi>,
    pub instance_profile: String,
    pub hash: String,
    /// Empty when ready; otherwise one sentence per problem.
    pub problems: Vec<String>,
    /// Free addresses by subnet id, as of `resolved_at`: launches go where most are left.
    #[serde(default)]
    pub free_addresses: std::collections::BTreeMap<String, u32>,
    /// Free instances by reservation id, as of `resolved_at`: later launches are not subtracted.
    #[serde(default)]
    pub free_reserved: std::collections::BTreeMap<String, u32>,
    /// The tenancy that machines need to start in a reservation, by its id: Karpenter's status has no field for it. A reservation that is
    /// not listed, as in records of older releases, is tried with either.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub reservation_tenancies: std::collections::BTreeMap<String, String>,
    /// Ids of reservations that the class selects, and that nothing is launched in since they are for other machines. One that runs in
    /// them has not drifted. Empty in records of older releases.
    #[serde(default, skip_serializing_if = "std::collections::BTreeSet::is_empty")]
    pub unused_reservations: std::collections::BTreeSet<String>,
    /// The placement group that its machines start in; `None` if it selects none, or none that can be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group: Option<ResolvedPlacementGroup>,
    /// Whether pods of its cluster have IPv6 addresses; false in records of older releases.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ipv6: bool,
    /// Facts for the cluster's fences; `None` in records of older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceFacts>,
    /// When it was looked up in EC2. Updated by every refresh while the class has reservations, otherwise only when something changed.
    pub resolved_at: Timestamp,
}

/// What a class refers to beyond its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceFacts {
    /// The role that its nodes would have (empty: none); `None` if it could not be looked up.
    pub role: Option<String>,
    /// The VPCs of its subnets and security groups, sorted.
    pub vpcs: Vec<String>,
}

/// Prefix of the names of classes that were converted from legacy templates.
const TEMPLATE_PREFIX: &str = "AWSNodeTemplate/";

impl NodeClassRecord {
    /// The class with its resolved status, which the object in the cluster may not show yet.
    #[must_use]
    pub fn resolved_class(&self) -> Ec2NodeClass {
        let mut class = self.class.clone();
        class.status.subnets.clone_from(&self.subnets);
        class.status.security_groups.clone_from(&self.security_groups);
        class.status.amis.clone_from(&self.amis);
        class.status.instance_profile = Some(self.instance_profile.clone());
        class
    }
    /// The name of a class's record. Legacy and current kinds may share a name, so their records differ.
    #[must_use]
    pub fn name_of(class: &Ec2NodeClass) -> String {
        let name = &class.metadata.name;
        if class.is_converted_template() { format!("{TEMPLATE_PREFIX}{name}") } else { name.clone() }
    }
    /// The name of the class whose record is called `record`.
    #[must_use]
    pub fn class_name(record: &str) -> &str {
        record.strip_prefix(TEMPLATE_PREFIX).unwrap_or(record)
    }
    /// The record of the class that a name refers to: from a Provisioner to a class that was converted from an AWSNodeTemplate,
    /// otherwise to one that was not. One of the other kind is another object, whatever its name.
    #[must_use]
    pub fn referenced<'a>(records: &'a [Self], name: &str, by_converted: bool) -> Option<&'a Self> {
        let named = |record: &&Self| record.class.metadata.name == name && record.class.is_converted_template() == by_converted;
        records.iter().find(named)
    }
    /// Whether it may be the record of this object: of its kind and name, and not of an earlier object that had both.
    #[must_use]
    pub fn is_of(&self, class: &Ec2NodeClass) -> bool {
        let (known, uid) = (&self.class.metadata.uid, &class.metadata.uid);
        Self::name_of(&self.class) == Self::name_of(class) && (known.is_empty() || uid.is_empty() || known == uid)
    }
    /// Whether another object has the kind and name of its class today: it has to be looked up itself.
    #[must_use]
    pub fn is_replaced(&self, classes: &[Ec2NodeClass]) -> bool {
        classes.iter().any(|class| Self::name_of(class) == Self::name_of(&self.class) && !self.is_of(class))
    }
    /// The version of its hash: that of the release which computed it, until this one has refreshed the class.
    #[must_use]
    pub fn hash_version(&self) -> &str {
        self.class.metadata.annotation(labels::NODE_CLASS_HASH_VERSION).unwrap_or(hashes::NODE_CLASS_VERSION)
    }
    /// Whether machines can be launched with it.
    pub fn is_ready(&self) -> bool {
        self.problems.is_empty()
    }
    /// Whether it selects a placement group that is not known: its machines would start outside of the group.
    pub fn lacks_placement_group(&self) -> bool {
        self.class.spec.placement_group_selector.is_some() && self.placement_group.is_none()
    }
}

impl Record for NodeClassRecord {
    const KIND: &'static str = "nodeclass";
    fn name(&self) -> String {
        Self::name_of(&self.class)
    }
}

/// A contradiction that was seen once: it is only acted on when it is seen again after a delay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// What was seen: `instance/i-0abc without claim`, `claim/x without instance`.
    pub subject: String,
    pub first_seen_at: Timestamp,
    pub expires_at: Timestamp,
}

impl Sighting {
    /// The subject of a managed NodeClaim without a claim: plans wait for its adoption, but not forever.
    #[must_use]
    pub fn unclaimed(node_claim: &str) -> String {
        format!("nodeclaim/{node_claim} unclaimed")
    }
}

impl Record for Sighting {
    const KIND: &'static str = "sighting";
    fn name(&self) -> String {
        self.subject.clone()
    }
    fn expires_at(&self) -> Option<Timestamp> {
        Some(self.expires_at)
    }
}
