//! Small records beside the claims: kept by cluster, kind and name, each with a version.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use whittle_api::karpenter::{Ec2NodeClass, ResolvedAmi, ResolvedSecurityGroup, ResolvedSubnet};
use whittle_units::Timestamp;

/// A value that is stored under (cluster, kind, name). A reader takes every version up to its own.
pub trait Record: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    /// Part of the key; never reused for something else.
    const KIND: &'static str;
    /// Raised when an older reader would misread the value.
    const VERSION: u32 = 1;
    /// Unique among the records of its kind in a cluster.
    fn name(&self) -> String;
    /// When the record may be forgotten; `None` keeps it.
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
    /// Empty when ready; else one sentence per thing that is missing.
    pub problems: Vec<String>,
    /// By subnet id, when it was resolved: launches go where most are left.
    #[serde(default)]
    pub free_addresses: std::collections::BTreeMap<String, u32>,
    /// By reservation id, as EC2 said when it was asked: machines that were started since are not taken off.
    #[serde(default)]
    pub free_reserved: std::collections::BTreeMap<String, u32>,
    /// What the cluster's fences are held against; `None` in records of releases that had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceFacts>,
    /// When EC2 was asked. Moves with every look while the class has reservations, else only when something changed.
    pub resolved_at: Timestamp,
}

/// What a class reaches beyond its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceFacts {
    /// The role that its nodes would have (empty: none); `None` where nobody could look it up.
    pub role: Option<String>,
    /// The VPCs of its subnets and security groups, sorted.
    pub vpcs: Vec<String>,
}

/// Stands before the names of classes that came from templates of the old kind.
const OLD_KIND: &str = "AWSNodeTemplate/";

impl NodeClassRecord {
    /// The class with the status that was resolved for it, whatever the object in the cluster shows by now.
    #[must_use]
    pub fn resolved_class(&self) -> Ec2NodeClass {
        let mut class = self.class.clone();
        class.status.subnets.clone_from(&self.subnets);
        class.status.security_groups.clone_from(&self.security_groups);
        class.status.amis.clone_from(&self.amis);
        class.status.instance_profile = Some(self.instance_profile.clone());
        class
    }
    /// The record that is kept for a class. Old and new kinds may share a name, so theirs stand apart.
    #[must_use]
    pub fn name_of(class: &Ec2NodeClass) -> String {
        let name = &class.metadata.name;
        if class.is_converted_template() { format!("{OLD_KIND}{name}") } else { name.clone() }
    }
    /// The name of the class whose record is called `record`.
    #[must_use]
    pub fn given_name(record: &str) -> &str {
        record.strip_prefix(OLD_KIND).unwrap_or(record)
    }
    /// The record of the class that somebody means by a name: what came from a Provisioner means a class that came from an
    /// AWSNodeTemplate, everybody else one that did not. Where only one has that name it is meant.
    #[must_use]
    pub fn meant<'a>(records: &'a [Self], name: &str, by_converted: bool) -> Option<&'a Self> {
        let mut named = records.iter().filter(|record| record.class.metadata.name == name);
        named.clone().find(|record| record.class.is_converted_template() == by_converted).or_else(|| named.next())
    }
    /// Whether machines can be launched with it.
    pub fn is_ready(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Record for NodeClassRecord {
    const KIND: &'static str = "nodeclass";
    fn name(&self) -> String {
        Self::name_of(&self.class)
    }
}

/// A contradiction seen once: nothing is done before it is seen again after a stated delay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// What was seen: `instance/i-0abc without claim`, `claim/x without instance`.
    pub subject: String,
    pub first_seen_at: Timestamp,
    pub expires_at: Timestamp,
}

impl Sighting {
    /// The subject of a NodeClaim of ours that no claim is behind: plans wait for its adoption, but not for ever.
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
