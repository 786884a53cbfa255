//! The classification of AWS errors: the only table of error codes (aws 8, 6).
//!
//! All code that distinguishes stock-outs, throttling and denials uses it, including the simulator.

use std::fmt;

/// The fault that AWS reports: client or server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    Client,
    Server,
    #[default]
    Unknown,
}

/// An error of one AWS call, or one entry of a fleet's `Errors`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiError {
    /// The service's code, such as `InsufficientInstanceCapacity`; empty without a response (a broken connection).
    pub code: String,
    pub message: String,
    #[serde(default)]
    pub fault: Fault,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code.as_str(), self.message.as_str()) {
            ("", message) => f.write_str(message),
            (code, "") => f.write_str(code),
            (code, message) => write!(f, "{code}: {message}"),
        }
    }
}
impl std::error::Error for ApiError {}

/// "Not found" codes of all services that we call.
const NOT_FOUND: &[&str] = &[
    "InvalidCapacityReservationId.NotFound",
    "InvalidFleetId.NotFound",
    "InvalidInstanceID.NotFound",
    LAUNCH_TEMPLATE_NAME_NOT_FOUND,
    "InvalidLaunchTemplateId.NotFound",
    "InvalidPlacementGroup.Unknown",
    "InvalidPlacementGroupId.NotFound",
    "QueueDoesNotExist",
    "AWS.SimpleQueueService.NonExistentQueue",
    "NoSuchEntity",
    "ParameterNotFound",
];
const LAUNCH_TEMPLATE_NAME_NOT_FOUND: &str = "InvalidLaunchTemplateName.NotFoundException";
/// A launch template that was made a moment ago is known by some of EC2's servers without its contents.
const VERSION_NOT_FOUND: &str = "InvalidLaunchTemplateId.VersionNotFound";
/// Fleet codes for an unavailable offering; another one may be available (aws 6).
const UNFULFILLABLE: &[&str] = &[
    "InsufficientInstanceCapacity",
    "MaxSpotInstanceCountExceeded",
    "VcpuLimitExceeded",
    "UnfulfillableCapacity",
    UNSUPPORTED,
    SUBNET_FULL,
    NO_PREFIX,
    "MaxFleetCountExceeded",
    "ReservationCapacityExceeded",
    SPOT_ABOVE_ON_DEMAND,
    NO_VOLUME_TYPE,
];
/// The spot market asks for more than on-demand, which is the most that a request without a price of its own pays.
const SPOT_ABOVE_ON_DEMAND: &str = "SpotMaxPriceTooLow";
const INVALID_FLEET: &str = "InvalidFleetConfiguration";
const NOT_IN_ZONE: &str = "is not supported in your requested Availability Zone";
const UNSUPPORTED: &str = "Unsupported";
/// Some Local Zones have no gp3, which volumes are unless a node class says otherwise.
const NO_VOLUME_TYPE: &str = "VolumeTypeNotAvailableInZone";
const SUBNET_FULL: &str = "InsufficientFreeAddressesInSubnet";
/// What is free in a subnet is no range for the prefixes of an interface, if only because it is scattered.
const NO_PREFIX: &str = "InsufficientCidrBlocks";
/// The same, as EC2 says it of a subnet with too little left.
const NO_ADDRESS_OR_PREFIX: &str = "sufficient free Ipv4 addresses or prefixes";
const UNSUPPORTED_OPERATION: &str = "UnsupportedOperation";
/// Such as IPv6 for one of an early generation.
const NOT_FOR_TYPE: &str = "is not supported for the instance type";
const SERVICE_LINKED_ROLE: &str = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";
const SPREAD_GROUP_LIMIT: &str = "limit of instances in this spread placement group";
/// Throttling codes of all services; EC2's own is `RequestLimitExceeded`.
const THROTTLES: &[&str] = &[
    RATE_LIMITED,
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
    "RequestThrottled",
    "RequestThrottledException",
    "EC2ThrottledException",
    "SlowDown",
    "BandwidthLimitExceeded",
    "PriorRequestNotComplete",
];
const RATE_LIMITED: &str = "RequestLimitExceeded";
/// Codes of a failed launch that passes by itself: credentials have run out that are replaced, or what a node class selects is gone, and
/// selected anew in minutes.
const PASSING: &[&str] = &[
    "ExpiredToken",
    "IncorrectInstanceState",
    "IncorrectState",
    "InvalidCapacityReservationState",
    "InvalidGroup.NotFound",
    "InvalidSecurity.RequestHasExpired",
    "InvalidSecurityGroupID.NotFound",
    "InvalidSubnetID.NotFound",
    "RequestExpired",
];
/// Codes of a service that is in trouble: they say nothing of what it was asked.
const IN_TROUBLE: &[&str] =
    &["InternalError", "InternalFailure", "InternalServerError", "RequestTimeout", "ServerInternal", "ServiceUnavailable", "Unavailable"];
/// Codes of IAM for an object that it was changing for somebody else, or whose role it did not show yet: it says a client error.
const CONTENDED: &[&str] = &["ConcurrentModification", "DeleteConflict"];

impl ApiError {
    /// A client error.
    pub fn client(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), fault: Fault::Client }
    }
    /// The resource does not exist.
    pub fn is_not_found(&self) -> bool {
        NOT_FOUND.contains(&self.code.as_str())
    }
    /// The launch template of a fleet does not exist.
    pub fn is_launch_template_not_found(&self) -> bool {
        self.code == LAUNCH_TEMPLATE_NAME_NOT_FOUND
    }
    /// The resource exists already.
    pub fn is_already_exists(&self) -> bool {
        self.code == "EntityAlreadyExists" || self.code == "InvalidLaunchTemplateName.AlreadyExistsException"
    }
    /// A dry run that would have been allowed.
    pub fn is_dry_run_success(&self) -> bool {
        self.code == "DryRunOperation"
    }
    /// Access denied, by any service's code.
    pub fn is_refused(&self) -> bool {
        REFUSALS.iter().any(|code| self.code.starts_with(code))
    }
    /// An instance profile has a role already, whatever IAM showed of it before.
    pub fn is_profile_full(&self) -> bool {
        self.code == "LimitExceeded" && self.message.contains("InstanceSessionsPerInstanceProfile")
    }
    /// The idempotency token was used with other parameters before.
    pub fn is_idempotency_mismatch(&self) -> bool {
        self.code == "IdempotentParameterMismatch"
    }
    /// Throttling by any service: to be retried later and never counted as a stock-out.
    pub fn is_throttle(&self) -> bool {
        THROTTLES.contains(&self.code.as_str())
    }
    /// A server error.
    pub fn is_server(&self) -> bool {
        self.fault == Fault::Server
    }
    /// The instance profile of a template does not exist (yet).
    pub fn is_instance_profile_missing(&self) -> bool {
        self.code == "InvalidParameterValue" && self.message.contains("Invalid IAM Instance Profile name")
    }
    /// The instance profile of a template has no role (yet): it is made first, and given its role then.
    pub fn is_instance_profile_empty(&self) -> bool {
        self.code == "InvalidParameterValue" && self.message.contains("has no associated IAM Roles")
    }
    /// EC2 cannot use the instance profile of a launch. That passes within a minute if profile or role were made a moment ago; otherwise
    /// one of them is missing.
    pub fn is_of_instance_profile(&self) -> bool {
        let is_unnamed = self.create_reason() == CreateReason::InstanceProfileNameInvalid;
        is_unnamed || self.is_instance_profile_missing() || self.is_instance_profile_empty()
    }
    /// What a launch asks for is refused for a reason that has no name of its own: every attempt is, until the node class or a limit of the
    /// account is changed. EC2 has new codes: all are meant that are not known to pass.
    pub fn is_rejected(&self) -> bool {
        let passes = self.is_over_soon()
            || self.is_not_found()
            || self.is_already_exists()
            || self.is_idempotency_mismatch()
            || PASSING.contains(&self.code.as_str())
            || IN_TROUBLE.contains(&self.code.as_str());
        let is_elsewhere = self.is_unfulfillable() || self.is_spread_group_limit() || self.code.starts_with("Insufficient");
        !passes && !is_elsewhere && self.create_reason() == CreateReason::LaunchFailed
    }
    /// The offering is unavailable.
    pub fn is_unfulfillable(&self) -> bool {
        let is_not_for_type = self.code == UNSUPPORTED_OPERATION && self.message.contains(NOT_FOR_TYPE);
        UNFULFILLABLE.contains(&self.code.as_str()) || self.is_not_in_zone() || self.is_subnet_full() || is_not_for_type
    }
    /// The zone does not have the type with this capacity type. EC2 lists which types a zone has, but not which of them it sells as spot.
    fn is_not_in_zone(&self) -> bool {
        self.code == INVALID_FLEET && self.message.contains(NOT_IN_ZONE)
    }
    /// A vCPU quota of the account is exhausted, for some types of one capacity type: no stock-out.
    pub fn is_vcpu_quota(&self) -> bool {
        self.code == "VcpuLimitExceeded" || self.code == "MaxSpotInstanceCountExceeded"
    }
    /// The account's fleet quota is exhausted.
    pub fn is_fleet_quota(&self) -> bool {
        self.code == "MaxFleetCountExceeded"
    }
    /// The type does not exist with something that the request asks for, such as its zone, image, tenancy, placement group or volumes.
    /// Other requests may start it.
    pub fn is_unsupported(&self) -> bool {
        [UNSUPPORTED, UNSUPPORTED_OPERATION, NO_VOLUME_TYPE].contains(&self.code.as_str())
    }
    /// The subnet has no free address, or none of the ranges that interfaces get as prefixes.
    pub fn is_subnet_full(&self) -> bool {
        self.code == SUBNET_FULL || self.code == NO_PREFIX || self.message.contains(NO_ADDRESS_OR_PREFIX)
    }
    /// The account may not launch spot instances: their service-linked role is missing and cannot be created.
    pub fn is_service_linked_role_missing(&self) -> bool {
        self.code == SERVICE_LINKED_ROLE
    }
    /// A spread placement group is full in a zone.
    pub fn is_spread_group_limit(&self) -> bool {
        self.message.contains(SPREAD_GROUP_LIMIT)
    }
    /// Whether the call may succeed when retried later.
    pub fn is_transient(&self) -> bool {
        self.is_throttle() || self.is_server() || self.code.is_empty() || CONTENDED.contains(&self.code.as_str())
    }
    /// Whether another attempt may succeed within seconds: EC2 is busy, or does not know yet what was made a moment ago.
    pub fn is_over_soon(&self) -> bool {
        let is_new_template = self.is_launch_template_not_found() || self.code == VERSION_NOT_FOUND;
        is_new_template
            || self.is_of_instance_profile()
            || self.is_transient()
            || matches!(self.create_reason(), CreateReason::LaunchTemplateNotFound | CreateReason::InternalError)
    }
    /// Why a launch failed with this error, as Karpenter tells it.
    pub fn create_reason(&self) -> CreateReason {
        CreateReason::of(&self.to_string())
    }
    /// The same for a claim's `Launched` condition and the failure metric. An EC2 that is overloaded, in trouble or silent has refused
    /// nothing, for which Karpenter has reasons by two of its codes alone.
    pub fn launch_reason(&self) -> CreateReason {
        match self.create_reason() {
            CreateReason::LaunchFailed if self.is_throttle() => CreateReason::RequestLimitExceeded,
            CreateReason::LaunchFailed if self.is_transient() || IN_TROUBLE.contains(&self.code.as_str()) => CreateReason::InternalError,
            reason => reason,
        }
    }
}

/// The reason of a failed launch (aws 8): the first row of the table whose texts all occur in the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CreateReason {
    SpotSlrCreationFailed,
    UnauthorizedByBoundary,
    UnauthorizedByServiceControlPolicy,
    /// A statement of another policy denies the call, as a rule one of the role's.
    UnauthorizedByDeny,
    AmiAuthorizationFailure,
    Unauthorized,
    SecurityGroupSubnetVpcMismatch,
    /// An instance with several network interfaces was to have a public address; called as by Karpenter, which does not tell it apart.
    PublicAddressRefused,
    /// A volume of the node class is smaller than the snapshot of its image. Karpenter tells none of these six apart either.
    VolumeTooSmall,
    /// The zone does not have the type of a volume. Other zones may.
    VolumeTypeNotInZone,
    /// The image is a product of AWS Marketplace that the account has not subscribed to.
    NotSubscribed,
    AccountBlocked,
    /// The node class selects more security groups than EC2 puts on one network interface.
    TooManySecurityGroups,
    /// A tag policy of the organization does not have a tag of the launch.
    TagRefused,
    InstanceProfileNameInvalid,
    /// The instance profile has no role; called as by Karpenter, which does not tell it apart.
    InstanceProfileEmpty,
    LaunchTemplateNotFound,
    UserDataSizeLimitExceeded,
    InvalidAmiId,
    AmiNotFound,
    RequestLimitExceeded,
    InternalError,
    FreeTierIneligible,
    FleetQuotaExceeded,
    AccountPendingVerification,
    SpotQuotaExceeded,
    VcpuLimitExceeded,
    InsufficientFreeAddressesInSubnet,
    LaunchFailed,
    SubnetResolutionFailed,
    InstanceTypeResolutionFailed,
    NodeClassReadinessUnknown,
}

/// The codes of a denial; its kind follows from the message.
const REFUSALS: &[&str] = &["UnauthorizedOperation", "AccessDenied", "AuthFailure"];

/// In the order in which they are tested, after the denials.
const REASONS: &[(&[&str], CreateReason)] = &[
    (&["InvalidParameter", "belong to different networks"], CreateReason::SecurityGroupSubnetVpcMismatch),
    (&["InvalidParameterCombination", "associatePublicIPAddress", "multiple network interfaces"], CreateReason::PublicAddressRefused),
    (&["smaller than snapshot"], CreateReason::VolumeTooSmall),
    (&[NO_VOLUME_TYPE], CreateReason::VolumeTypeNotInZone),
    (&["OptInRequired"], CreateReason::NotSubscribed),
    (&["Blocked: "], CreateReason::AccountBlocked),
    (&["SecurityGroupsPerInstanceLimitExceeded"], CreateReason::TooManySecurityGroups),
    (&["SecurityGroupsPerInterfaceLimitExceeded"], CreateReason::TooManySecurityGroups),
    (&["TagPolicyViolation"], CreateReason::TagRefused),
    (&["iamInstanceProfile.name is invalid"], CreateReason::InstanceProfileNameInvalid),
    (&["has no associated IAM Roles"], CreateReason::InstanceProfileEmpty),
    (&["InvalidLaunchTemplateId.NotFound"], CreateReason::LaunchTemplateNotFound),
    (&["User data is limited to"], CreateReason::UserDataSizeLimitExceeded),
    (&["InvalidAMIID.Malformed"], CreateReason::InvalidAmiId),
    (&["InvalidAMIID.NotFound"], CreateReason::AmiNotFound),
    (&[RATE_LIMITED], CreateReason::RequestLimitExceeded),
    (&["InternalError"], CreateReason::InternalError),
    (&["not eligible for Free Tier"], CreateReason::FreeTierIneligible),
    (&["MaxFleetCountExceeded"], CreateReason::FleetQuotaExceeded),
    (&["PendingVerification"], CreateReason::AccountPendingVerification),
    (&["MaxSpotInstanceCountExceeded"], CreateReason::SpotQuotaExceeded),
    (&["VcpuLimitExceeded"], CreateReason::VcpuLimitExceeded),
    (&[SUBNET_FULL], CreateReason::InsufficientFreeAddressesInSubnet),
    (&[NO_PREFIX], CreateReason::InsufficientFreeAddressesInSubnet),
    (&[NO_ADDRESS_OR_PREFIX], CreateReason::InsufficientFreeAddressesInSubnet),
];

/// The reasons for which every attempt fails until a person changes the node class, the NodePool, the account or its permissions.
const OF_USERS: &[CreateReason] = &[
    CreateReason::SpotSlrCreationFailed,
    CreateReason::UnauthorizedByBoundary,
    CreateReason::UnauthorizedByServiceControlPolicy,
    CreateReason::UnauthorizedByDeny,
    CreateReason::Unauthorized,
    CreateReason::AmiAuthorizationFailure,
    CreateReason::SecurityGroupSubnetVpcMismatch,
    CreateReason::PublicAddressRefused,
    CreateReason::VolumeTooSmall,
    CreateReason::VolumeTypeNotInZone,
    CreateReason::NotSubscribed,
    CreateReason::AccountBlocked,
    CreateReason::TooManySecurityGroups,
    CreateReason::TagRefused,
    CreateReason::UserDataSizeLimitExceeded,
    CreateReason::InvalidAmiId,
    CreateReason::AmiNotFound,
    CreateReason::FreeTierIneligible,
    CreateReason::AccountPendingVerification,
    CreateReason::SubnetResolutionFailed,
    CreateReason::InstanceTypeResolutionFailed,
];

impl CreateReason {
    /// Whether retries are futile until a person changes something.
    pub fn needs_user_action(self) -> bool {
        OF_USERS.contains(&self)
    }

    /// The same of the reason of a condition. `LaunchFailed`, which several have, says nothing.
    pub fn tells_of_user_action(reason: &str) -> bool {
        reason != Self::LaunchFailed.as_str() && OF_USERS.iter().any(|known| known.as_str() == reason)
    }

    /// The reason for an error text.
    pub fn of(text: &str) -> Self {
        if text.contains(SERVICE_LINKED_ROLE) {
            return Self::SpotSlrCreationFailed;
        }
        if REFUSALS.iter().any(|code| text.contains(code)) {
            return match () {
                () if text.contains("with an explicit deny in a permissions boundary") => Self::UnauthorizedByBoundary,
                () if text.contains("with an explicit deny in a service control policy") => Self::UnauthorizedByServiceControlPolicy,
                () if text.contains("with an explicit deny in") => Self::UnauthorizedByDeny,
                () if text.contains("Not authorized for images") => Self::AmiAuthorizationFailure,
                () => Self::Unauthorized,
            };
        }
        let row = REASONS.iter().find(|(texts, _)| texts.iter().all(|part| text.contains(part)));
        row.map_or(Self::LaunchFailed, |(_, reason)| *reason)
    }

    /// The value in conditions, metrics and events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SpotSlrCreationFailed => "SpotSLRCreationFailed",
            Self::UnauthorizedByBoundary | Self::UnauthorizedByServiceControlPolicy | Self::UnauthorizedByDeny | Self::Unauthorized => {
                "Unauthorized"
            }
            Self::AmiAuthorizationFailure => "AMIAuthorizationFailure",
            Self::SecurityGroupSubnetVpcMismatch => "SecurityGroupSubnetVPCMismatch",
            Self::InstanceProfileNameInvalid => "InstanceProfileNameInvalid",
            Self::LaunchTemplateNotFound => "LaunchTemplateNotFound",
            Self::UserDataSizeLimitExceeded => "UserDataSizeLimitExceeded",
            Self::InvalidAmiId => "InvalidAMIID",
            Self::AmiNotFound => "AMINotFound",
            Self::RequestLimitExceeded => "RequestLimitExceeded",
            Self::InternalError => "InternalError",
            Self::FreeTierIneligible => "FreeTierIneligible",
            Self::FleetQuotaExceeded => "FleetQuotaExceeded",
            Self::AccountPendingVerification => "AccountPendingVerification",
            Self::SpotQuotaExceeded => "SpotQuotaExceeded",
            Self::VcpuLimitExceeded => "VCPULimitExceeded",
            Self::InsufficientFreeAddressesInSubnet => SUBNET_FULL,
            Self::PublicAddressRefused
            | Self::VolumeTooSmall
            | Self::VolumeTypeNotInZone
            | Self::NotSubscribed
            | Self::AccountBlocked
            | Self::TooManySecurityGroups
            | Self::TagRefused
            | Self::InstanceProfileEmpty
            | Self::LaunchFailed => "LaunchFailed",
            Self::SubnetResolutionFailed => "SubnetResolutionFailed",
            Self::InstanceTypeResolutionFailed => "InstanceTypeResolutionFailed",
            Self::NodeClassReadinessUnknown => "NodeClassReadinessUnknown",
        }
    }

    /// The remedy, in one sentence, for the message of the condition.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::SpotSlrCreationFailed => "the account has no service-linked role for spot instances and ours may not create it",
            Self::UnauthorizedByBoundary => "a permissions boundary denies the call",
            Self::UnauthorizedByServiceControlPolicy => "a service control policy denies the call",
            Self::UnauthorizedByDeny => "a statement of a policy denies the call",
            Self::AmiAuthorizationFailure => "the account may not use the AMI: share it, or select another",
            Self::Unauthorized => "no identity policy allows the call",
            Self::SecurityGroupSubnetVpcMismatch => "security groups and subnets of the node class lie in different VPCs",
            Self::PublicAddressRefused => {
                "spec.associatePublicIPAddress of the node class is true, which EC2 refuses for an instance with several network interfaces, \
                 as one for EFA has: leave it out, or have these pods use another node class"
            }
            Self::VolumeTooSmall => {
                "a volume of the node class is smaller than the snapshot of its AMI: raise volumeSize in spec.blockDeviceMappings"
            }
            Self::VolumeTypeNotInZone => {
                "a zone lacks the type of a volume, which is gp3 where the node class names none: name one that it has, such as gp2, as \
                 volumeType in spec.blockDeviceMappings of a node class for the subnets of that zone"
            }
            Self::NotSubscribed => "the AMI is a product of AWS Marketplace: subscribe to it and accept its terms, or select another AMI",
            Self::AccountBlocked => "AWS has blocked the account: contact AWS Support",
            Self::TooManySecurityGroups => {
                "the node class selects more security groups than an instance may have, five unless the quota was raised: select fewer \
                 in spec.securityGroupSelectorTerms"
            }
            Self::TagRefused => "a tag policy of the organization refuses a tag: correct spec.tags of the node class, or the policy",
            Self::InstanceProfileNameInvalid => {
                "EC2 cannot use the instance profile yet, or it does not exist or has no role: correct spec.instanceProfile of the node \
                 class, or the profile"
            }
            Self::InstanceProfileEmpty => {
                "EC2 knows no role of the instance profile yet, or it has none: add one to the profile that spec.instanceProfile of the \
                 node class names"
            }
            Self::LaunchTemplateNotFound => "the launch template is gone",
            Self::UserDataSizeLimitExceeded => "the user data exceed 16 KiB: shorten spec.userData",
            Self::InvalidAmiId => "the AMI id is malformed",
            Self::AmiNotFound => "the AMI does not exist in this region",
            Self::RequestLimitExceeded => "EC2 throttles the account's calls",
            Self::InternalError => "EC2 had an internal error, or did not answer",
            Self::FreeTierIneligible => "the account may only launch free-tier types",
            Self::FleetQuotaExceeded => "the quota of fleets is used up",
            Self::AccountPendingVerification => "AWS has not yet verified the account",
            Self::SpotQuotaExceeded => "the quota of spot instances is used up",
            Self::VcpuLimitExceeded => "the quota of vCPUs is used up",
            Self::InsufficientFreeAddressesInSubnet => "the subnets have no free addresses, or no free prefixes for spec.ipPrefixCount",
            Self::LaunchFailed => "EC2 refused the launch",
            Self::SubnetResolutionFailed => "no subnet of the node class can be used",
            Self::InstanceTypeResolutionFailed => "the instance types could not be resolved",
            Self::NodeClassReadinessUnknown => "it is not known whether the node class is ready",
        }
    }
}

impl fmt::Display for CreateReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
