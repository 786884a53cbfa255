//! EC2 and related AWS APIs, one trait per right.

use crate::Answer;
use std::collections::BTreeMap;
use whittle_api::karpenter::{
    AmiSelectorTerm, CapacityReservationSelectorTerm, PlacementGroupSelector, SecurityGroupSelectorTerm, SubnetSelectorTerm,
};
use whittle_claims::ZoneShift;
use whittle_ec2::fleet::{FleetAnswer, FleetRequest, LaunchTemplate};
use whittle_ec2::instance::Instance;
use whittle_ec2::interruption::InstanceStatus;
use whittle_ec2::network::{CapacityReservation, ClusterInfo, Image, PlacementGroup, SecurityGroup, Subnet};
use whittle_units::{ClusterName, InstanceId};

/// What a handler does about a failed call (aws 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloudErrorKind {
    NotFound,
    AlreadyExists,
    /// Throttled: not a stock-out, and never retried in lockstep with others.
    Throttled,
    Unauthorized,
    /// EC2 lacks capacity, for the whole call.
    InsufficientCapacity,
    /// The same client token was used with other parameters.
    IdempotencyMismatch,
    /// The request can never succeed.
    Invalid,
    /// It is unknown whether the call happened.
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

/// A region's catalog as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogRead {
    /// The catalog, compressed.
    pub blob: Vec<u8>,
    /// Why on-demand prices, or some of them, could not be read: the latest ones stand in, or before the first answer a built-in table,
    /// perhaps of another region. `None` also where the price list cannot be reached by intent.
    pub prices_failed: Option<CloudError>,
}

/// Creates launch templates for fleets. Only `launch` has this right.
pub trait LaunchTemplates: Sync {
    /// Creates the template if none of its name exists.
    fn ensure_launch_template(&self, template: &LaunchTemplate) -> impl Answer<(), CloudError>;
    /// Whether the template is known to be there, so that ensuring it makes no call.
    fn has_launch_template(&self, _template: &LaunchTemplate) -> bool {
        false
    }
}

/// Deletes unused launch templates. Only `sweep` has this right.
pub trait LaunchTemplateCleanup: Sync {
    /// Names of the launch templates that carry the cluster's tag.
    fn launch_templates(&self, cluster: &ClusterName) -> impl Answer<Vec<String>, CloudError>;
    fn delete_launch_template(&self, name: &str) -> impl Answer<(), CloudError>;
}

/// Launches instances. Only `launch` has this right.
pub trait Fleets: Sync {
    /// The same client token stands for the same instances; EC2 does not guarantee that a repeated call returns them.
    fn create_fleet(&self, request: &FleetRequest) -> impl Answer<FleetAnswer, CloudError>;
    /// The instances and errors of the instant fleet of this request; `None` if EC2 does not show the fleet.
    fn fleet(&self, id: &str, request: &FleetRequest) -> impl Answer<Option<FleetAnswer>, CloudError>;
}

/// Asks EC2 whether it would launch, without launching. Only `launch` has this right: the answers are about its role.
pub trait DryRuns: Sync {
    /// Creates the template of a dry run, if none of its name exists. EC2 is asked each time: it refuses a role that lost the right since.
    fn ensure_tried_template(&self, template: &LaunchTemplate) -> impl Answer<(), CloudError>;
    /// Success if the role may make this call.
    fn dry_run_fleet(&self, request: &FleetRequest) -> impl Answer<(), CloudError>;
    /// Success if the role may start an instance from this template, with these tags, of this type in this subnet.
    fn dry_run_instance(&self, run: &InstanceRun<'_>) -> impl Answer<(), CloudError>;
}

/// An instance that a dry run would start.
#[derive(Clone, Copy, Debug)]
pub struct InstanceRun<'a> {
    pub template: &'a LaunchTemplate,
    pub instance_type: &'a str,
    pub subnet_id: &'a str,
    /// Of the instance and its volumes.
    pub tags: &'a BTreeMap<String, String>,
}

/// Describes instances.
pub trait Instances: Sync {
    /// All instances that carry the cluster's tag and are not terminated.
    fn of_cluster(&self, cluster: &ClusterName) -> impl Answer<Vec<Instance>, CloudError>;
    /// One instance, including terminated ones as long as EC2 shows them.
    fn instance(&self, id: &InstanceId) -> impl Answer<Option<Instance>, CloudError>;
    /// Instances with a tag of this value (a claim's name, a batch token), including terminated ones as long as EC2 shows them: how a
    /// repeated launch finds its machines.
    fn tagged(&self, key: &str, value: &str) -> impl Answer<Vec<Instance>, CloudError>;
}

/// Reads EC2's own checks of instances. Only `sweep` has this right.
pub trait InstanceChecks: Sync {
    /// Those of these instances whose checks fail, or for which EC2 has scheduled an event that stops or reboots them (aws 22). One that
    /// EC2 does not know, or that does not run, is not among them.
    fn failing(&self, instances: &[InstanceId]) -> impl Answer<Vec<InstanceStatus>, CloudError>;
}

/// Reads the zonal shifts of a cluster. Only `sweep` has this right.
pub trait ZonalShifts: Sync {
    /// The zonal shifts of the cluster with this ARN, whether applied or not (aws 23); an error if the cluster is not registered with
    /// Application Recovery Controller.
    fn zone_shifts(&self, cluster_arn: &str) -> impl Answer<Vec<ZoneShift>, CloudError>;
}

/// Writes tags of instances.
pub trait InstanceTags: Sync {
    fn tag(&self, id: &InstanceId, tags: &[(String, String)]) -> impl Answer<(), CloudError>;
}

/// Terminates instances. Only `terminate` has this right.
pub trait Terminator: Sync {
    /// Requests the termination of the instance; success if it is already terminating or gone.
    fn terminate(&self, id: &InstanceId) -> impl Answer<(), CloudError>;
}

/// An instance profile that was made for a class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassProfile {
    pub name: String,
    pub arn: String,
    /// Name of the class.
    pub class: String,
    /// The role that it contains.
    pub role: String,
}

/// Discovers AWS resources. Only `refresh` has this right.
pub trait Discovery: Sync {
    fn cluster_info(&self, cluster: &ClusterName) -> impl Answer<ClusterInfo, CloudError>;
    fn subnets(&self, terms: &[SubnetSelectorTerm]) -> impl Answer<Vec<Subnet>, CloudError>;
    fn security_groups(&self, terms: &[SecurityGroupSelectorTerm]) -> impl Answer<Vec<SecurityGroup>, CloudError>;
    /// Images of selector terms, with aliases and SSM parameters resolved for a Kubernetes version.
    fn images(&self, terms: &[AmiSelectorTerm], kubernetes_version: &str) -> impl Answer<Vec<Image>, CloudError>;
    /// Active capacity reservations that one of the terms selects; none without terms.
    fn capacity_reservations(&self, terms: &[CapacityReservationSelectorTerm]) -> impl Answer<Vec<CapacityReservation>, CloudError>;
    /// Placement groups of a name or an id, in any state; none if there is none.
    fn placement_groups(&self, selector: &PlacementGroupSelector) -> impl Answer<Vec<PlacementGroup>, CloudError>;
    /// The name that the instance profile for a role has or would have. Makes no call.
    fn instance_profile_name(&self, cluster: &ClusterName, class: &str, role: &str) -> String;
    /// The instance profile for a role, created if need be; returns its name. A new one gets `tags` besides those by which it is
    /// found, which win.
    fn ensure_instance_profile(
        &self,
        cluster: &ClusterName,
        class: &str,
        role: &str,
        tags: &BTreeMap<String, String>,
    ) -> impl Answer<String, CloudError>;
    /// The role of an instance profile, without its path (empty: none); `None` if it cannot or may not be read.
    fn profile_role(&self, profile: &str) -> impl Answer<Option<String>, CloudError>;
    /// The instance profiles that were made for classes of the cluster, those of former roles and classes included. None where IAM
    /// cannot be reached.
    fn profiles(&self, cluster: &ClusterName) -> impl Answer<Vec<ClassProfile>, CloudError>;
    /// Deletes an instance profile, unless an instance uses it. Whether it is gone.
    fn delete_profile(&self, profile: &ClassProfile) -> impl Answer<bool, CloudError>;
    /// Deletes the resources of a class: launch templates that carry its tag, and instance profiles under its path. Profiles that
    /// instances use are kept: without one a node loses its permissions. Returns their names; success if nothing is left.
    fn release_class(&self, cluster: &ClusterName, class: &str) -> impl Answer<Vec<String>, CloudError>;
    /// Instance types, zones and on-demand prices of the region. `known` is the latest catalog: its spot prices stay, and its on-demand
    /// prices are used where none can be read.
    fn catalog(&self, known: Option<&[u8]>) -> impl Answer<CatalogRead, CloudError>;
    /// The catalog `known` with current spot prices. One that EC2 does not say stays as it is.
    fn with_spot_prices(&self, known: &[u8]) -> impl Answer<Vec<u8>, CloudError>;
}

/// Endpoint and credentials of a cluster: what every role that calls the Kubernetes API needs.
pub trait ClusterAccess: Send + Sync {
    /// Address and certificate authority of the API server.
    fn endpoint(&self, cluster: &ClusterName) -> impl Answer<ClusterInfo, CloudError>;
    /// A bearer token that authenticates us, valid for at least ten minutes.
    fn bearer_token(&self, cluster: &ClusterName) -> impl Answer<String, CloudError>;
}
