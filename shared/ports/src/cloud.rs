//! EC2 and its neighbours, one trait per right.

use crate::Answer;
use whittle_api::karpenter::{AmiSelectorTerm, CapacityReservationSelectorTerm, SecurityGroupSelectorTerm, SubnetSelectorTerm};
use whittle_ec2::fleet::{FleetAnswer, FleetRequest, LaunchTemplate};
use whittle_ec2::instance::Instance;
use whittle_ec2::network::{CapacityReservation, ClusterInfo, Image, SecurityGroup, Subnet};
use whittle_units::{ClusterName, InstanceId};

/// What a handler does about a failed call (aws 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloudErrorKind {
    NotFound,
    AlreadyExists,
    /// Slow down: not a stock-out, and never retried in step with others.
    Throttled,
    Unauthorized,
    /// EC2 has none left, for the whole call.
    InsufficientCapacity,
    /// The same token came with other parameters.
    IdempotencyMismatch,
    /// What we asked for can never work.
    Invalid,
    /// It is not known whether the call happened.
    Unknown,
}

/// A failed AWS call, with EC2's own code and text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {code}: {message}")]
pub struct CloudError {
    pub kind: CloudErrorKind,
    pub call: &'static str,
    pub code: String,
    pub message: String,
}

/// Makes the launch templates that fleets start from. Only `launch` has this right.
pub trait LaunchTemplates: Sync {
    /// Creates the template if none of its name exists.
    fn ensure_launch_template(&self, template: &LaunchTemplate) -> impl Answer<(), CloudError>;
}

/// Takes launch templates away that nothing starts from any more. Only `sweep` has this right.
pub trait LaunchTemplateCleanup: Sync {
    /// Names of the launch templates that carry the cluster's tag.
    fn launch_templates(&self, cluster: &ClusterName) -> impl Answer<Vec<String>, CloudError>;
    fn delete_launch_template(&self, name: &str) -> impl Answer<(), CloudError>;
}

/// Starts machines. Only `launch` has this right.
pub trait Fleets: Sync {
    /// The same client token answers for the same machines; EC2 does not promise that a repeat names them.
    fn create_fleet(&self, request: &FleetRequest) -> impl Answer<FleetAnswer, CloudError>;
    /// What EC2 knows of an instant fleet that it made for this request; `None` where it does not show the fleet.
    fn fleet(&self, id: &str, request: &FleetRequest) -> impl Answer<Option<FleetAnswer>, CloudError>;
}

/// Sees machines.
pub trait Instances: Sync {
    /// All instances that carry the cluster's tag and are not terminated.
    fn of_cluster(&self, cluster: &ClusterName) -> impl Answer<Vec<Instance>, CloudError>;
    /// One instance, terminated ones too while EC2 remembers them.
    fn instance(&self, id: &InstanceId) -> impl Answer<Option<Instance>, CloudError>;
    /// Instances with a tag of this value (a claim's name, a batch token), terminated ones too while EC2 remembers them: how a
    /// repeated launch finds its machines.
    fn tagged(&self, key: &str, value: &str) -> impl Answer<Vec<Instance>, CloudError>;
}

/// Writes tags of machines.
pub trait InstanceTags: Sync {
    fn tag(&self, id: &InstanceId, tags: &[(String, String)]) -> impl Answer<(), CloudError>;
}

/// Ends machines. Only `terminate` has this right.
pub trait Terminator: Sync {
    /// Asks EC2 to end the machine; success where it is already ending or gone.
    fn terminate(&self, id: &InstanceId) -> impl Answer<(), CloudError>;
}

/// Learns what there is: for `refresh` alone.
pub trait Discovery: Sync {
    fn cluster_info(&self, cluster: &ClusterName) -> impl Answer<ClusterInfo, CloudError>;
    fn subnets(&self, terms: &[SubnetSelectorTerm]) -> impl Answer<Vec<Subnet>, CloudError>;
    fn security_groups(&self, terms: &[SecurityGroupSelectorTerm]) -> impl Answer<Vec<SecurityGroup>, CloudError>;
    /// Images of selector terms, aliases and SSM parameters already followed for a Kubernetes version.
    fn images(&self, terms: &[AmiSelectorTerm], kubernetes_version: &str) -> impl Answer<Vec<Image>, CloudError>;
    /// Active capacity reservations that one of the terms names; nothing without terms.
    fn capacity_reservations(&self, terms: &[CapacityReservationSelectorTerm]) -> impl Answer<Vec<CapacityReservation>, CloudError>;
    /// The name that the instance profile for a role has or would have. Asks nobody.
    fn instance_profile_name(&self, cluster: &ClusterName, class: &str, role: &str) -> String;
    /// The instance profile for a role, created if need be; returns its name.
    fn ensure_instance_profile(&self, cluster: &ClusterName, class: &str, role: &str) -> impl Answer<String, CloudError>;
    /// The role that an instance profile holds, without its path (empty: none); `None` where we cannot or may not ask.
    fn profile_role(&self, profile: &str) -> impl Answer<Option<String>, CloudError>;
    /// Deletes what was made for a class: launch templates that carry its tag, and instance profiles under its path.
    /// Profiles that machines run with stay: without one a node loses its rights. Returns their names; success where nothing
    /// is left.
    fn release_class(&self, cluster: &ClusterName, class: &str) -> impl Answer<Vec<String>, CloudError>;
    /// Instance types, zones and prices of the region, as a compressed catalog blob. `known` is the latest one: its prices count
    /// on where none can be read.
    fn catalog(&self, known: Option<&[u8]>) -> impl Answer<Vec<u8>, CloudError>;
}

/// Opens the door to a cluster: what every role that speaks to the Kubernetes API needs.
pub trait ClusterAccess: Send + Sync {
    /// Address and certificate authority of the API server.
    fn door(&self, cluster: &ClusterName) -> impl Answer<ClusterInfo, CloudError>;
    /// A bearer token that says who we are, good for at least ten minutes.
    fn bearer_token(&self, cluster: &ClusterName) -> impl Answer<String, CloudError>;
}
