//! The table: what fails, how often, and how the claims end, by the rules (aws 6, 7.6, 8, 18.4; ADR 0015, ADR 0024).

use std::collections::BTreeSet;
use std::fmt;
use whittle_claims::DeletionReason;
use whittle_tests::fake_aws::Reply;

/// What the claims of a row ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    OnDemand,
    Spot,
    /// Five equal claims, which share a fleet.
    Five,
    /// A place in a capacity reservation.
    Reserved,
    /// A placement group.
    Group,
}

impl Asked {
    pub(super) const ALL: [Self; 5] = [Self::OnDemand, Self::Spot, Self::Five, Self::Reserved, Self::Group];

    /// The case of its class and claim.
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::OnDemand | Self::Five => "001-on-demand.yaml",
            Self::Spot => "002-spot.yaml",
            Self::Reserved => "027-reserved.yaml",
            Self::Group => "051-placement-cluster.yaml",
        }
    }

    pub(super) fn claims(self) -> usize {
        if self == Self::Five { 5 } else { 1 }
    }
}

/// Since when an action fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Since {
    /// Before the class is resolved for the first time.
    Class,
    /// Before the dry run of the class.
    DryRun,
    /// Before the claims are launched.
    Launch,
    /// The same, and the reply of CreateFleet is lost.
    LostFleet,
    /// The same, and CreateFleet says nothing but the id of the fleet, whose machines EC2 does not show yet.
    OpenFleet,
    /// Before the node of the machine joins.
    Node,
}

/// An error of AWS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Error {
    pub(super) status: u16,
    pub(super) code: &'static str,
    pub(super) message: &'static str,
}

/// A way in which a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Failure {
    /// It is refused as a whole.
    Refused(Error),
    /// A fleet is accepted, and each of its pools reports this error: at once, or for several claims after the second machine.
    InAnswer(Error),
    /// It is carried out.
    Reply(Reply),
}

/// How the claims of a row end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ending {
    /// Claims with one machine each.
    pub(super) launched: usize,
    /// Claims without one, which are given up.
    pub(super) failed: usize,
    /// Why those are.
    pub(super) given_up_for: BTreeSet<DeletionReason>,
    /// Whether the pods of those are planned again.
    pub(super) replanned: bool,
    /// What the condition `Launched` of claims said while they waited.
    pub(super) waited_for: BTreeSet<String>,
    /// What no launch uses for a while.
    pub(super) unavailable: BTreeSet<&'static str>,
    /// Events that tell users that they have to do something.
    pub(super) events: BTreeSet<String>,
}

/// A row of the table.
pub(super) struct Row {
    pub(super) action: &'static str,
    pub(super) failure: Failure,
    /// How many calls of the action fail before one succeeds.
    pub(super) times: usize,
    pub(super) since: Since,
    pub(super) asked: Asked,
    pub(super) ending: Ending,
}

/// Status, code and message of errors.
type Errors = [(u16, &'static str, &'static str)];

const OF_EC2: &Errors = &[
    (503, "RequestLimitExceeded", "Request limit exceeded."),
    (500, "InternalError", "An internal error has occurred"),
    (503, "Unavailable", "The server is overloaded and can't handle the request."),
    (403, "UnauthorizedOperation", "You are not authorized to perform this operation."),
    (400, "InvalidParameterValue", "A parameter has a value that is not valid."),
];
const OF_IAM: &Errors = &[
    (400, "Throttling", "Rate exceeded"),
    (500, "ServiceFailure", "The request has failed due to an unknown error."),
    (403, "AccessDenied", "The caller is not authorized to perform this action."),
    (404, "NoSuchEntity", "It cannot be found."),
    (409, "LimitExceeded", "The account has too many of them."),
];
const OF_OTHERS: &Errors = &[
    (400, "ThrottlingException", "Rate exceeded"),
    (500, "InternalServerError", "An error on the server side occurred."),
    (400, "AccessDeniedException", "The caller is not authorized to perform this action."),
];
const REPLIES: [Reply; 3] = [Reply::Lost, Reply::Late, Reply::Empty];

/// Actions whose failures delay and change nothing: since when they fail, for which claim, and the errors that are theirs alone.
const PATIENT: &[(&str, Since, Asked, &Errors, &Errors)] = &[
    ("DescribeCluster", Since::Class, Asked::OnDemand, OF_OTHERS, &[(404, "ResourceNotFoundException", "No cluster found.")]),
    ("DescribeInstanceTypes", Since::Class, Asked::OnDemand, OF_EC2, &[]),
    ("DescribeInstanceTypeOfferings", Since::Class, Asked::OnDemand, OF_EC2, &[]),
    ("DescribeSpotPriceHistory", Since::Class, Asked::OnDemand, OF_EC2, &[]),
    ("GetProducts", Since::Class, Asked::OnDemand, OF_OTHERS, &[]),
    ("DescribeSubnets", Since::Class, Asked::OnDemand, OF_EC2, &[(400, "InvalidSubnetID.NotFound", "It does not exist")]),
    ("DescribeSecurityGroups", Since::Class, Asked::OnDemand, OF_EC2, &[(400, "InvalidGroup.NotFound", "It does not exist")]),
    ("DescribeImages", Since::Class, Asked::OnDemand, OF_EC2, &[(400, "InvalidAMIID.NotFound", "It does not exist")]),
    ("GetParameter", Since::Class, Asked::OnDemand, OF_OTHERS, &[(400, "ParameterNotFound", "")]),
    ("DescribePlacementGroups", Since::Class, Asked::Group, OF_EC2, &[(400, "InvalidPlacementGroup.Unknown", "It is unknown.")]),
    (
        "DescribeCapacityReservations",
        Since::Class,
        Asked::Reserved,
        OF_EC2,
        &[(400, "InvalidCapacityReservationId.NotFound", "It does not exist")],
    ),
    ("GetInstanceProfile", Since::Class, Asked::OnDemand, OF_IAM, &[]),
    (
        "CreateInstanceProfile",
        Since::Class,
        Asked::OnDemand,
        OF_IAM,
        &[(409, "EntityAlreadyExists", "It already exists."), (409, "ConcurrentModification", "Wait, and submit it again.")],
    ),
    ("AddRoleToInstanceProfile", Since::Class, Asked::OnDemand, OF_IAM, &[]),
    ("RemoveRoleFromInstanceProfile", Since::Class, Asked::OnDemand, OF_IAM, &[]),
    ("ListInstanceProfiles", Since::Class, Asked::OnDemand, OF_IAM, &[]),
    // An answer that the profile does not exist would be true.
    (
        "DeleteInstanceProfile",
        Since::Class,
        Asked::OnDemand,
        &[(400, "Throttling", ""), (500, "ServiceFailure", ""), (403, "AccessDenied", "")],
        &[(409, "DeleteConflict", "It has a role.")],
    ),
    ("DescribeLaunchTemplates", Since::Launch, Asked::OnDemand, OF_EC2, &[]),
    ("DeleteLaunchTemplate", Since::Launch, Asked::OnDemand, OF_EC2, &[(400, "InvalidLaunchTemplateName.NotFoundException", "")]),
    ("DescribeInstances", Since::Launch, Asked::OnDemand, OF_EC2, &[(400, "InvalidInstanceID.NotFound", "It does not exist")]),
    ("DescribeInstances", Since::Node, Asked::OnDemand, OF_EC2, &[(400, "InvalidInstanceID.NotFound", "It does not exist")]),
    ("DescribeInstanceStatus", Since::Launch, Asked::OnDemand, OF_EC2, &[(400, "InvalidInstanceID.NotFound", "It does not exist")]),
    (
        "GetManagedResource",
        Since::Launch,
        Asked::OnDemand,
        &[(429, "ThrottlingException", ""), (500, "InternalServerException", ""), (403, "AccessDeniedException", "")],
        &[(404, "ResourceNotFoundException", "It is not registered."), (400, "ValidationException", "")],
    ),
    (
        "CreateTags",
        Since::Node,
        Asked::OnDemand,
        OF_EC2,
        &[(400, "InvalidInstanceID.NotFound", "It does not exist"), (400, "TagLimitExceeded", "")],
    ),
    (
        "TerminateInstances",
        Since::Launch,
        Asked::OnDemand,
        OF_EC2,
        &[(400, "OperationNotPermitted", "It is protected."), (400, "InvalidInstanceID.NotFound", "It does not exist")],
    ),
    // One subnet after the other is tried: the third answers.
    ("RunInstances", Since::DryRun, Asked::OnDemand, OF_EC2, &[]),
];

/// What an error of CreateFleet means.
#[derive(Clone, Copy)]
enum Means {
    /// The claim is given up, because another offering may do; this one is not used for a while.
    Elsewhere(Out),
    /// It is tried again; meanwhile this is the reason of the condition `Launched`.
    Again(&'static str),
}
use Means::{Again, Elsewhere};

/// What is used up.
#[derive(Clone, Copy)]
enum Out {
    Pools,
    Quota,
    Subnets,
    SpotMarket,
}

/// Users have to do something about it.
const REFUSED: &str = "LaunchRefused";
const QUOTA: &str = "QuotaExceeded";
const NO_EVENT: &str = "";

/// The documented errors of CreateFleet: status as that of a call, code, message, meaning and Event.
const OF_FLEETS: &[(u16, &str, &str, Means, &str)] = &[
    (503, "RequestLimitExceeded", "Request limit exceeded.", Again("RequestLimitExceeded"), NO_EVENT),
    (500, "InternalError", "An internal error has occurred", Again("InternalError"), NO_EVENT),
    (503, "Unavailable", "The server is overloaded.", Again("InternalError"), NO_EVENT),
    (403, "UnauthorizedOperation", "You are not authorized to perform this operation.", Again("Unauthorized"), REFUSED),
    (403, "UnauthorizedOperation", "No, with an explicit deny in a service control policy", Again("Unauthorized"), REFUSED),
    (403, "UnauthorizedOperation", "No, with an explicit deny in a permissions boundary", Again("Unauthorized"), REFUSED),
    (403, "UnauthorizedOperation", "Not authorized for images: [ami-1]", Again("AMIAuthorizationFailure"), REFUSED),
    (401, "AuthFailure", "AWS was not able to validate the provided credentials", Again("Unauthorized"), REFUSED),
    (400, "InvalidParameterValue", "A parameter has a value that is not valid.", Again("LaunchFailed"), REFUSED),
    (400, "InvalidBlockDeviceMapping", "Volume of size 8GB is smaller than snapshot 'snap-1'", Again("LaunchFailed"), REFUSED),
    (400, "OptInRequired", "You need to accept the terms of the product.", Again("LaunchFailed"), REFUSED),
    (400, "Blocked", "Your account is currently blocked.", Again("LaunchFailed"), REFUSED),
    (400, "SecurityGroupsPerInstanceLimitExceeded", "The maximum number of groups has been reached.", Again("LaunchFailed"), REFUSED),
    (400, "TagPolicyViolation", "The tag policy does not allow the specified value.", Again("LaunchFailed"), REFUSED),
    (400, "InstanceLimitExceeded", "You have requested more instances than your limit allows.", Again("LaunchFailed"), REFUSED),
    (400, "SomethingNew", "EC2 has a reason that nobody knows yet.", Again("LaunchFailed"), REFUSED),
    (400, "InvalidSubnetID.NotFound", "The subnet ID 'subnet-a' does not exist", Again("LaunchFailed"), NO_EVENT),
    (
        400,
        "InvalidParameterValue",
        "Value (p) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
        Again("InstanceProfileNameInvalid"),
        NO_EVENT,
    ),
    (400, "InvalidParameterValue", "IAM Instance Profile \"p\" has no associated IAM Roles", Again("LaunchFailed"), NO_EVENT),
    (400, "InvalidLaunchTemplateId.VersionNotFound", "Could not find the specified version.", Again("LaunchFailed"), NO_EVENT),
    (
        400,
        "InvalidParameter",
        "Security group sg-1 and subnet subnet-a belong to different networks.",
        Again("SecurityGroupSubnetVPCMismatch"),
        REFUSED,
    ),
    (
        400,
        "InvalidParameterCombination",
        "The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces.",
        Again("LaunchFailed"),
        REFUSED,
    ),
    (400, "InvalidParameterCombination", "The type is not eligible for Free Tier.", Again("FreeTierIneligible"), REFUSED),
    (400, "InvalidUserData.Malformed", "User data is limited to 16384 bytes", Again("UserDataSizeLimitExceeded"), REFUSED),
    (400, "InvalidAMIID.NotFound", "The image id '[ami-1]' does not exist", Again("AMINotFound"), REFUSED),
    (400, "InvalidAMIID.Malformed", "Invalid id: \"ami\"", Again("InvalidAMIID"), REFUSED),
    (400, "InvalidLaunchTemplateName.NotFoundException", "It does not exist.", Again("LaunchFailed"), NO_EVENT),
    (400, "InvalidLaunchTemplateId.NotFound", "It does not exist.", Again("LaunchTemplateNotFound"), NO_EVENT),
    (400, "PendingVerification", "Your account is currently being verified.", Again("AccountPendingVerification"), REFUSED),
    (400, "IdempotentParameterMismatch", "The token was used with other parameters.", Again("InternalError"), NO_EVENT),
    // No other offering would do better (ADR 0024).
    (400, "MaxFleetCountExceeded", "You have too many fleets.", Again("FleetQuotaExceeded"), QUOTA),
    (500, "InsufficientInstanceCapacity", "There is not enough capacity.", Elsewhere(Out::Pools), NO_EVENT),
    (400, "UnfulfillableCapacity", "Unable to fulfill capacity.", Elsewhere(Out::Pools), NO_EVENT),
    (400, "Unsupported", "The type is not supported in the zone.", Elsewhere(Out::Pools), NO_EVENT),
    (400, "SpotMaxPriceTooLow", "Your Spot request price is lower than the minimum required.", Elsewhere(Out::Pools), NO_EVENT),
    (
        400,
        "InvalidFleetConfiguration",
        "Your requested instance type (m5.large) is not supported in your requested Availability Zone (us-west-2a).",
        Elsewhere(Out::Pools),
        NO_EVENT,
    ),
    (400, "ReservationCapacityExceeded", "The reservation is full.", Elsewhere(Out::Pools), NO_EVENT),
    (400, "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded", Elsewhere(Out::Quota), QUOTA),
    (400, "VcpuLimitExceeded", "You have requested more vCPU capacity than your limit allows.", Elsewhere(Out::Quota), QUOTA),
    (400, "InsufficientFreeAddressesInSubnet", "There are not enough free addresses.", Elsewhere(Out::Subnets), NO_EVENT),
    (400, "InsufficientCidrBlocks", "The specified subnet does not have enough free cidr blocks.", Elsewhere(Out::Subnets), NO_EVENT),
    (400, "VolumeTypeNotAvailableInZone", "The zone does not support the volume type.", Elsewhere(Out::Pools), REFUSED),
    (400, "UnsupportedOperation", "IPv6 is not supported for the instance type 'm5.large'.", Elsewhere(Out::Pools), NO_EVENT),
    (
        400,
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
        "The credentials do not have permission to create the service-linked role for Spot Instances.",
        Elsewhere(Out::SpotMarket),
        REFUSED,
    ),
];

impl Ending {
    /// All claims are launched, without any delay that shows.
    fn launched(asked: Asked) -> Self {
        Self { launched: asked.claims(), ..Self::default() }
    }

    /// All are launched after they waited.
    fn after(asked: Asked, reason: &str) -> Self {
        Self { waited_for: BTreeSet::from([reason.to_owned()]), ..Self::launched(asked) }
    }

    /// All but some are given up.
    fn given_up(asked: Asked, launched: usize, reason: DeletionReason) -> Self {
        let failed = asked.claims() - launched;
        Self { launched, failed, given_up_for: BTreeSet::from([reason]), replanned: true, ..Self::default() }
    }

    fn with_event(mut self, event: &str) -> Self {
        self.events.extend((!event.is_empty()).then(|| event.to_owned()));
        self
    }
}

fn errors(of: &Errors) -> impl Iterator<Item = Error> {
    of.iter().map(|(status, code, message)| Error { status: *status, code, message })
}

/// The rows of an action that ends alike whatever fails.
fn patient() -> Vec<Row> {
    let mut rows = Vec::new();
    for (action, since, asked, of_service, own) in PATIENT {
        let refused = errors(of_service).chain(errors(own)).map(Failure::Refused);
        for failure in refused.chain(REPLIES.map(Failure::Reply)) {
            rows.push(Row { action, failure, times: 2, since: *since, asked: *asked, ending: Ending::launched(*asked) });
        }
    }
    rows
}

/// Rows of the dry runs of a class (aws 18.4): one that is not permitted makes the class not ready until it is permitted again, and any
/// other failure says nothing about the class.
fn dry_runs() -> Vec<Row> {
    let mut rows = Vec::new();
    // Six calls of RunInstances are two dry runs: each tries three subnets.
    for (action, times, failures) in [("CreateLaunchTemplate", 2, &OF_EC2[3..4]), ("CreateFleet", 2, OF_EC2), ("RunInstances", 6, OF_EC2)] {
        let replies = REPLIES.iter().filter(|_| action != "CreateLaunchTemplate").map(|reply| Failure::Reply(*reply));
        for failure in errors(failures).map(Failure::Refused).chain(replies) {
            let ending = match failure {
                Failure::Refused(error) if error.code == "UnauthorizedOperation" => {
                    Ending::given_up(Asked::OnDemand, 0, DeletionReason::NodeClassNotReady)
                }
                _ => Ending::launched(Asked::OnDemand),
            };
            rows.push(Row { action, failure, times, since: Since::DryRun, asked: Asked::OnDemand, ending });
        }
    }
    rows
}

/// Rows of launch templates: their claims wait for them.
fn templates() -> Vec<Row> {
    let own = [
        // It does not exist, so that the fleet does not find it.
        (400, "InvalidLaunchTemplateName.AlreadyExistsException", "It exists."),
        (400, "LaunchTemplateLimitExceeded", "You have too many."),
    ];
    let asked = Asked::OnDemand;
    let row = |failure, ending| Row { action: "CreateLaunchTemplate", failure, times: 4, since: Since::Launch, asked, ending };
    let refused = errors(OF_EC2).chain(errors(&own)).map(|error| {
        let ending = match error.code {
            "RequestLimitExceeded" | "InternalError" => Ending::after(asked, error.code),
            "Unavailable" => Ending::after(asked, "InternalError"),
            "UnauthorizedOperation" => Ending::after(asked, "Unauthorized").with_event(REFUSED),
            "InvalidParameterValue" | "LaunchTemplateLimitExceeded" => Ending::after(asked, "LaunchFailed").with_event(REFUSED),
            _ => Ending::after(asked, "LaunchFailed"),
        };
        row(Failure::Refused(error), ending)
    });
    let replies = REPLIES.map(|reply| {
        let ending = if reply == Reply::Empty { Ending::launched(asked) } else { Ending::after(asked, "InternalError") };
        row(Failure::Reply(reply), ending)
    });
    refused.chain(replies).collect()
}

/// Rows of fleets whose outcome CreateFleet did not tell: they are looked for, and nothing is started twice.
fn untold() -> Vec<Row> {
    let not_found = [(400, "InvalidInstanceID.NotFound", "It does not exist")];
    let no_fleet = [(400, "InvalidFleetId.NotFound", "It does not exist")];
    let mut rows = Vec::new();
    for (action, since, own) in [("DescribeInstances", Since::LostFleet, not_found), ("DescribeFleets", Since::OpenFleet, no_fleet)] {
        let refused = errors(OF_EC2).chain(errors(&own)).map(Failure::Refused);
        for failure in refused.chain(REPLIES.map(Failure::Reply)) {
            let asked = Asked::OnDemand;
            rows.push(Row { action, failure, times: 2, since, asked, ending: Ending::after(asked, "InternalError") });
        }
    }
    rows
}

/// Rows of CreateFleet, each for several kinds of claims.
fn fleets() -> Vec<Row> {
    let mut rows = Vec::new();
    for asked in [Asked::OnDemand, Asked::Spot, Asked::Five, Asked::Reserved] {
        let row = |failure, ending| Row { action: "CreateFleet", failure, times: 2, since: Since::Launch, asked, ending };
        for (status, code, message, means, event) in OF_FLEETS {
            if matches!(means, Elsewhere(Out::SpotMarket)) && asked != Asked::Spot {
                continue;
            }
            let error = Error { status: *status, code, message };
            rows.push(row(Failure::Refused(error), ending(asked, *means, 0).with_event(event)));
            // No pool has a token.
            if *code != "IdempotentParameterMismatch" {
                rows.push(row(Failure::InAnswer(error), ending(asked, *means, started(asked)).with_event(event)));
            }
        }
        for reply in REPLIES {
            let ending = if reply == Reply::Empty { Ending::launched(asked) } else { Ending::after(asked, "InternalError") };
            rows.push(row(Failure::Reply(reply), ending));
        }
    }
    rows
}

/// How many machines a fleet for such claims starts before its pools report errors.
pub(super) fn started(asked: Asked) -> usize {
    if asked == Asked::Five { 2 } else { 0 }
}

/// How claims end whose fleet started this many machines.
fn ending(asked: Asked, means: Means, started: usize) -> Ending {
    let out = match means {
        Again(reason) => return Ending::after(asked, reason),
        Elsewhere(out) => out,
    };
    let unavailable = match out {
        Out::Subnets => "subnets",
        Out::Pools | Out::Quota if asked == Asked::Reserved => "reservations",
        Out::Pools => "pools",
        Out::Quota => "quotas",
        Out::SpotMarket => "capacity types",
    };
    let given_up = Ending::given_up(asked, started, DeletionReason::InsufficientCapacity);
    Ending { unavailable: BTreeSet::from([unavailable]), ..given_up }
}

pub(super) fn all() -> Vec<Row> {
    [patient(), dry_runs(), templates(), untold(), fleets()].into_iter().flatten().collect()
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failure = match self.failure {
            Failure::Refused(error) => format!("{} {}: {}", error.status, error.code, error.message),
            Failure::InAnswer(error) => format!("in the answer {}: {}", error.code, error.message),
            Failure::Reply(reply) => format!("{reply:?} reply"),
        };
        let short: String = failure.chars().take(100).collect();
        write!(f, "{} | {:?} | {:?} | {} times | {short}", self.action, self.since, self.asked, self.times)
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |what: &BTreeSet<String>| what.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let mut parts = Vec::new();
        if self.launched > 0 {
            parts.push(format!("{} launched", self.launched));
        }
        if !self.waited_for.is_empty() {
            parts.push(format!("after {}", words(&self.waited_for)));
        }
        if self.failed > 0 {
            let planned = if self.replanned { "pods planned again" } else { "pods not planned again" };
            parts.push(format!("{} given up for {:?}, {planned}", self.failed, self.given_up_for));
        }
        if !self.unavailable.is_empty() {
            parts.push(format!("not used for a while: {}", self.unavailable.iter().copied().collect::<Vec<_>>().join(", ")));
        }
        if !self.events.is_empty() {
            parts.push(format!("Event {}", words(&self.events)));
        }
        f.write_str(&parts.join("; "))
    }
}
