//! Explanations as data, with the texts that users search for.

use super::changes::Changes;
use super::meant::Meant;
use super::unready::Unready;
use crate::requirements::Requirements;
use std::fmt::{self, Display};
use whittle_api::k8s::Taint;
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_units::{Price, Quantity, Resources};

/// Why a pod is not placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Rejected, mostly before solving: Whittle cannot schedule such a pod, or another one uses its claim. One text per fault.
    Ignored(Vec<String>),
    /// The pod excludes all NodePools on purpose, and has no other fault: that deserves no warning.
    OptedOut,
    /// No NodePool can create nodes.
    NoNodePools,
    /// No NodePool has an instance type that its own requirements allow: the rejection of each, in trial order.
    NoTemplates(Vec<PoolRejection>),
    /// The pod needs dynamic resource allocation.
    ResourceClaims,
    /// A reserved offering fits but is taken by other claims of this pass; the next pass tries again.
    Reserved(Cause),
    /// The rejection of each NodePool, in trial order.
    Pools(Vec<PoolRejection>),
    /// Nothing has changed since an earlier pass that could place the pod: the reason that it had then.
    Unchanged {
        category: String,
        message: String,
        /// Whether that reason depends on other pods, or on what they leave of a limit.
        depends_on_others: bool,
    },
    /// The work budget ran out first; the next run continues with this pod.
    OutOfBudget,
    /// The claim's instance types no longer satisfied `minValues` after truncation to the cheapest 600.
    Truncated { node_pool: String, labels: Vec<String> },
    /// The NodeClaim of its machine would be larger than can be stored, mostly for this field.
    TooLarge { node_pool: String, field: &'static str, kib: usize },
    /// It could not be bound before pods whose NodeClaim would be too large: it has to be near to them, or they count for its spread.
    AwaitsTooLarge,
    /// EC2 refuses larger machines for a quota of vCPUs, and others of the plan take what it may have left.
    OverQuota { capacity_type: String },
    /// It could not be bound before pods whose machines a quota may have no room for: it has to be near to them, or they count for its
    /// spread.
    AwaitsOverQuota,
    /// The checker rejected its placement, with this message.
    RejectedByChecker(String),
    /// In a simulation: the pod would wait for a node that has not initialized.
    Uninitialized { node: String },
}

/// Why one NodePool cannot take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRejection {
    pub node_pool: String,
    pub cause: Cause,
    /// How many of the NodePool's instance types each constraint rules out on its own, largest first.
    pub ruled_out: Vec<RuledOut>,
    /// The resource that is short, and by how much.
    pub nearest: Option<NearestMiss>,
    /// All resources that are short: if the pod asked for no more of each than is named here, a type would have enough of the others. Empty
    /// if only `nearest` is short.
    pub misses: Vec<NearestMiss>,
    /// The limits without which some instance type would fit.
    pub limits: Vec<LimitLeft>,
    /// Values that are asked for and that no instance type has, with what was probably meant.
    pub meant: Vec<Meant>,
    /// Which changes of requirements would help; `None` if that was not looked for.
    pub changes: Option<Changes>,
    /// What is in the way besides: it would be the rejection if this cause were none.
    pub besides: Option<Box<PoolRejection>>,
    /// Whether it is a Provisioner in the cluster, whose fields have other names.
    pub is_provisioner: bool,
}

impl PoolRejection {
    /// A rejection of which nothing but the cause is to be told.
    #[must_use]
    pub fn of(node_pool: &NodePool, cause: Cause) -> Self {
        let is_provisioner = node_pool.is_converted_provisioner();
        Self { is_provisioner, ..Self::of_name(&node_pool.metadata.name, cause) }
    }

    /// The same, by the NodePool's name.
    #[must_use]
    pub fn of_name(node_pool: &str, cause: Cause) -> Self {
        let (ruled_out, nearest, misses, limits, meant, changes, besides) = Default::default();
        Self { node_pool: node_pool.to_owned(), cause, ruled_out, nearest, misses, limits, meant, changes, besides, is_provisioner: false }
    }
}

/// What remains of a NodePool's limit, and how many types that excludes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitLeft {
    pub resource: String,
    /// Negative when the limit is exceeded already.
    pub left: Quantity,
    /// How many instance types are larger than what remains.
    pub types: usize,
}

impl Display for LimitLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.left.max(Quantity::ZERO).text_of(&self.resource);
        let types = if self.types == 1 { "1 instance type is larger" } else { &format!("{} instance types are larger", self.types) };
        write!(f, "its limit leaves {left} {}, {types}", self.resource)
    }
}

/// How many instance types one constraint rules out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuledOut {
    /// `cpu`, `topology.kubernetes.io/zone In [a]`, `offerings`, …
    pub constraint: String,
    pub types: usize,
    /// Out of how many.
    pub of: usize,
    /// Whether it says where a volume of the pod is.
    pub of_volume: bool,
}

/// A host port of the pod that daemons use on some instance types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortTaken {
    /// As the pod requests it.
    pub wanted: String,
    /// As the daemon uses it.
    pub taken: String,
    /// How many types have such a daemon.
    pub types: usize,
    /// Out of how many.
    pub of: usize,
}

/// The resource of a [`NearestMiss`] about volumes.
pub const EBS_VOLUMES: &str = "EBS volumes";

/// The largest available amount of a resource compared with the amount needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearestMiss {
    pub resource: String,
    /// Including the daemons' requests.
    pub needed: Quantity,
    pub largest: Quantity,
    pub instance_type: String,
}

/// The pod (`namespace/name`) that another waits for, since that is to be near it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Follows {
    /// This pass launches its machine: which domain that is in is known once it is launched.
    Launched(String),
    /// It waits for a pod itself.
    Waiting(String),
    /// It runs on this node, and what is near it has to run there.
    On(String),
}

/// Why one NodePool (or node) cannot take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    Taints(Vec<Taint>),
    UndefinedLabel {
        key: String,
        meant: Option<String>,
    },
    /// By key: the values that the pod requires and those that are offered.
    Disjoint(Vec<(String, String, String)>),
    Volumes(Box<Cause>),
    Topology {
        kind: &'static str,
        /// Whether it is a rule of other pods, which are there already.
        of_others: bool,
        key: String,
        counts: Box<[(String, u32)]>,
        pod_domains: String,
        node_domains: String,
        /// A pod that the refusing affinity selects and that gets a place sooner.
        follows: Option<Box<Follows>>,
    },
    InstanceTypes {
        finding: Finding,
        requirements: Requirements,
        resources: Resources,
        daemons: Resources,
        /// A host port that the daemons of some types use already.
        port: Option<Box<PortTaken>>,
    },
    MinValues {
        labels: Vec<String>,
        requirements: Requirements,
        resources: Resources,
    },
    /// Its required anti-affinity by host selects the pods of a DaemonSet that runs on the machines, or theirs selects it.
    BesideDaemon {
        /// `namespace/name`.
        daemon_set: String,
        /// Whether it is the pod's.
        by_pod: bool,
        /// How many types such machines have.
        types: usize,
        /// Out of how many.
        of: usize,
    },
    /// The NodePool has no instance types at all.
    NothingOffered {
        /// Kind and name of its node class.
        node_class: String,
        /// What conditions say about it.
        why: Option<Unready>,
    },
    /// The NodePool is not ready.
    Unready(Unready),
    LimitsExceeded {
        node_pool: String,
    },
    NodeLimit {
        node_pool: String,
    },
    /// No reason remains: what prevented the placement when it was tried has changed since.
    TransientDuringPass,
    ReservedUnavailable,
    ReservedLost,
}

/// What the instance types lack, as scheduling 18 distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    Nothing,
    NoRequirementsNoResources,
    NoRequirementsNoOffering,
    NoResourcesNoOffering,
    NoRequirements,
    NoResources { absurd_cpu: bool },
    NoOffering,
    FitWithoutOffering,
    FitWithoutRequirements,
    OfferedWithoutFit,
    NeverAllThree,
}

/// An instance type in a zone, with its capacity type and price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
    /// Per hour.
    pub price: Price,
}

impl Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} in {} at {}", self.instance_type, self.capacity_type, self.zone, self.price)
    }
}

/// Why a claim is what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimWhy {
    /// NodePools that were tried before this one, and why they could not take the first pod.
    pub passed_over: Vec<PoolRejection>,
    /// The cheapest of the offerings that it could be launched from.
    pub cheapest: Option<Offer>,
    /// The next cheapest offering: another zone or capacity type, or another type.
    pub next_offer: Option<Offer>,
    /// The next best type and its price.
    pub next_best: Option<(String, Price)>,
    /// Requirements that the pods or their topology narrowed, with the remaining values.
    pub narrowed: Vec<String>,
}

impl Finding {
    /// The text that a user would search for.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Finding::Nothing => "no instance type met the scheduling requirements or had enough resources or had a required offering",
            Finding::NoRequirementsNoResources => "no instance type met the scheduling requirements or had enough resources",
            Finding::NoRequirementsNoOffering => "no instance type met the scheduling requirements or had a required offering",
            Finding::NoResourcesNoOffering => "no instance type had enough resources or had a required offering",
            Finding::NoRequirements => "no instance type met all requirements",
            Finding::NoResources { absurd_cpu: false } => "no instance type has enough resources",
            Finding::NoResources { absurd_cpu: true } => "no instance type has enough resources (CPU request >= 1 Million, m vs M typo?)",
            Finding::NoOffering => "no instance type has the required offering",
            Finding::FitWithoutOffering => {
                "no instance type which met the scheduling requirements and had enough resources, had a required offering"
            }
            Finding::FitWithoutRequirements => {
                "no instance type which had enough resources and the required offering met the scheduling requirements"
            }
            Finding::OfferedWithoutFit => {
                "no instance type which met the scheduling requirements and the required offering had the required resources"
            }
            Finding::NeverAllThree => "no instance type met the requirements/resources/offering tuple",
        }
    }
}

impl Cause {
    /// What conditions say against the NodePool, if that is the cause.
    #[must_use]
    pub const fn unready(&self) -> Option<&Unready> {
        match self {
            Cause::NothingOffered { why: Some(why), .. } | Cause::Unready(why) => Some(why),
            _ => None,
        }
    }

    /// Whether it depends on what is left of the NodePool's limits.
    #[must_use]
    pub fn depends_on_limits(&self) -> bool {
        match self {
            Cause::LimitsExceeded { .. } | Cause::NodeLimit { .. } => true,
            Cause::Volumes(inner) => inner.depends_on_limits(),
            Cause::Taints(_)
            | Cause::UndefinedLabel { .. }
            | Cause::Disjoint(_)
            | Cause::Topology { .. }
            | Cause::InstanceTypes { .. }
            | Cause::MinValues { .. }
            | Cause::BesideDaemon { .. }
            | Cause::NothingOffered { .. }
            | Cause::Unready(_)
            | Cause::TransientDuringPass
            | Cause::ReservedUnavailable
            | Cause::ReservedLost => false,
        }
    }

    /// The category's stable name, for metrics and comparisons.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Cause::Taints(_) => "taints",
            Cause::UndefinedLabel { .. } | Cause::Disjoint(_) => "requirements",
            Cause::Volumes(_) => "volumes",
            Cause::Topology { .. } | Cause::BesideDaemon { .. } => "topology",
            Cause::InstanceTypes { .. } | Cause::NothingOffered { .. } => "instance-types",
            Cause::Unready(_) => "no-node-pools",
            Cause::MinValues { .. } => "min-values",
            Cause::LimitsExceeded { .. } | Cause::NodeLimit { .. } => "limits",
            Cause::TransientDuringPass => "turn",
            Cause::ReservedUnavailable | Cause::ReservedLost => "reserved",
        }
    }
}

/// The fault of a pod that excludes all NodePools, as a text.
#[must_use]
pub fn opt_out_fault() -> String {
    format!("configured to not run on a Karpenter provisioned node (requirement={} DoesNotExist)", labels::NODE_POOL)
}

impl Reason {
    /// Whether it depends on what is left of a NodePool's limit, and so on what the other pods of the pass used.
    #[must_use]
    pub fn depends_on_limits(&self) -> bool {
        match self {
            Reason::NoTemplates(rejections) | Reason::Pools(rejections) => {
                rejections.iter().any(|rejection| !rejection.limits.is_empty() || rejection.cause.depends_on_limits())
            }
            Reason::Reserved(cause) => cause.depends_on_limits(),
            Reason::Unchanged { depends_on_others, .. } => *depends_on_others,
            Reason::Ignored(_)
            | Reason::OptedOut
            | Reason::NoNodePools
            | Reason::ResourceClaims
            | Reason::OutOfBudget
            | Reason::Truncated { .. }
            | Reason::TooLarge { .. }
            | Reason::AwaitsTooLarge
            | Reason::OverQuota { .. }
            | Reason::AwaitsOverQuota
            | Reason::RejectedByChecker(_)
            | Reason::Uninitialized { .. } => false,
        }
    }

    /// Whether the pod only waits until node classes were looked up, which takes seconds after they were applied.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Reason::Pools(rejections) => {
                !rejections.is_empty() && rejections.iter().all(|rejection| rejection.cause.unready().is_some_and(Unready::is_new))
            }
            _ => false,
        }
    }

    /// The category's stable name.
    #[must_use]
    pub fn category(&self) -> &str {
        match self {
            Reason::Unchanged { category, .. } => category,
            Reason::Ignored(_) | Reason::OptedOut => "ignored",
            Reason::NoNodePools => "no-node-pools",
            Reason::NoTemplates(_) => "no-templates",
            Reason::ResourceClaims => "resource-claims",
            Reason::Reserved(_) => "reserved",
            Reason::Pools(rejections) => rejections.first().map_or("no-node-pools", |s| s.cause.category()),
            Reason::OutOfBudget => "out-of-budget",
            Reason::Truncated { .. } => "min-values",
            Reason::TooLarge { .. } | Reason::AwaitsTooLarge => "claim-size",
            Reason::OverQuota { .. } | Reason::AwaitsOverQuota => "quota",
            Reason::Uninitialized { .. } => "uninitialized",
            Reason::RejectedByChecker(_) => "doubtful",
        }
    }
}

impl Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Taints(taints) => {
                let list: Vec<String> = taints.iter().map(ToString::to_string).collect();
                match &list[..] {
                    [one] => write!(f, "did not tolerate taint (taint={one})"),
                    _ => write!(f, "did not tolerate taints (taints=[{}])", list.join(", ")),
                }
            }
            Cause::UndefinedLabel { key, meant: None } => {
                write!(f, "incompatible requirements, label \"{key}\" does not have known values")
            }
            Cause::UndefinedLabel { key, meant: Some(meant) } => {
                write!(f, "incompatible requirements, label \"{key}\" does not have known values (typo of \"{meant}\"?)")
            }
            Cause::Disjoint(keys) => {
                for (n, (key, required, offered)) in keys.iter().enumerate() {
                    let join = if n == 0 { "" } else { "; " };
                    write!(f, "{join}incompatible requirements, key {key}, {key} {required} not in {key} {offered}")?;
                }
                Ok(())
            }
            Cause::Volumes(inner) => write!(f, "incompatible volume requirements, {inner}"),
            Cause::Topology { kind, key, counts, pod_domains, node_domains, .. } => {
                let shown: Vec<String> = counts.iter().take(25).map(|(domain, n)| format!("{domain}: {n}")).collect();
                let more = if counts.len() > 25 { format!(" and {} others", counts.len() - 25) } else { String::new() };
                write!(
                    f,
                    "unsatisfiable topology constraint for {kind}, key={key} (counts = {}{more}, podDomains = {key} {pod_domains}, nodeDomains = {key} {node_domains})",
                    shown.join(", ")
                )
            }
            Cause::InstanceTypes { finding, .. } => {
                f.write_str(finding.text())?;
                self.details(f)
            }
            Cause::MinValues { labels, requirements, resources } => write!(
                f,
                "minValues requirement is not met for label(s) (label(s)=[{}]), requirements={}, resources={}",
                labels.join(" "),
                set_text(requirements),
                resources_text(resources)
            ),
            Cause::BesideDaemon { daemon_set, by_pod, types, of } => {
                let whose = if *by_pod { "it selects the pods" } else { "it is selected by that of the pods" };
                write!(
                    f,
                    "unsatisfiable topology constraint for pod anti-affinity, key={}: {whose} of daemonset {daemon_set}, which runs on new \
                     machines of {types} of {of} instance types",
                    labels::HOSTNAME
                )
            }
            Cause::NothingOffered { node_class, why: None } => {
                write!(f, "no instance types are offered to it: {node_class} is missing or not ready, see its conditions")
            }
            Cause::NothingOffered { why: Some(why), .. } | Cause::Unready(why) => write!(f, "{why}"),
            Cause::LimitsExceeded { node_pool } => {
                write!(f, "all available instance types exceed limits for nodepool (NodePool={node_pool})")
            }
            Cause::NodeLimit { node_pool } => write!(f, "node limits have been exhausted for nodepool (NodePool={node_pool})"),
            Cause::TransientDuringPass => f.write_str("the obstacle was resolved during this pass: the next pass considers it again"),
            Cause::ReservedUnavailable => {
                f.write_str("one or more instance types with compatible reserved offerings are available, but could not be reserved")
            }
            Cause::ReservedLost => {
                f.write_str("satisfying constraints would result in instance type options with reserved offerings being removed")
            }
        }
    }
}

impl Cause {
    /// What was asked of the instance types: long, and told last.
    fn details(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::InstanceTypes { requirements, resources, daemons, port, .. } = self else { return Ok(()) };
        let mut all = resources.clone();
        all.add(daemons);
        write!(f, ", requirements={}, resources={}", set_text(requirements), resources_text(&all))?;
        let Some(PortTaken { taken, types, of, .. }) = port.as_deref() else { return Ok(()) };
        write!(f, "; daemons on {types} of {of} instance types listen on {taken} of the host already")
    }
}

impl Display for NearestMiss {
    /// No type is near that has nothing of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, needed, largest, instance_type } = self;
        let (needed, has) = (needed.text_of(resource), largest.text_of(resource));
        if *largest <= Quantity::ZERO {
            return write!(f, "needs {needed} {resource}, which no allowed type has");
        }
        write!(f, "needs {needed} {resource}, the largest allowed type, {instance_type}, has {has}")
    }
}

impl Display for PoolRejection {
    /// What is short before what was asked for, which is long: an Event has 1,024 characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::InstanceTypes { finding, .. } => f.write_str(finding.text())?,
            other => write!(f, "{other}")?,
        }
        match &self.nearest {
            Some(miss) if miss.largest <= Quantity::ZERO && !self.limits.is_empty() => {
                write!(f, " (needs {} {}, which no type within its limits has)", miss.needed.text_of(&miss.resource), miss.resource)?;
            }
            nearest => nearest.iter().try_for_each(|miss| write!(f, " ({miss})"))?,
        }
        self.limits.iter().try_for_each(|limit| write!(f, "; {limit}"))?;
        self.cause.details(f)
    }
}

/// Of how many NodePools a reason tells why they cannot take a pod.
const POOLS_SHOWN: usize = 10;

impl Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Ignored(faults) => write!(f, "ignoring pod, {}", faults.join("; ")),
            Reason::OptedOut => write!(f, "ignoring pod, {}", opt_out_fault()),
            Reason::NoNodePools => f.write_str("no dynamic nodepools found"),
            Reason::NoTemplates(rejections) => {
                f.write_str("nodepool requirements filtered out all available instance types")?;
                rejections.iter().try_for_each(|rejection| write!(f, "; nodepool {}: {}", rejection.node_pool, rejection.cause))
            }
            Reason::ResourceClaims => {
                f.write_str("pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter (nor by Whittle)")
            }
            Reason::Reserved(cause) => write!(f, "{cause}"),
            Reason::Pools(rejections) => {
                for (n, rejection) in rejections.iter().take(POOLS_SHOWN).enumerate() {
                    let join = if n == 0 { "" } else { "; " };
                    write!(f, "{join}nodepool {}: {rejection}", rejection.node_pool)?;
                }
                match rejections.len().saturating_sub(POOLS_SHOWN) {
                    0 => Ok(()),
                    more => write!(f, "; … and {more} more nodepools"),
                }
            }
            Reason::Unchanged { message, .. } => f.write_str(message),
            Reason::RejectedByChecker(fault) => write!(f, "the checker rejected its placement, the next run tries again: {fault}"),
            Reason::OutOfBudget => f.write_str("not considered in this run, the next run starts with it"),
            Reason::Truncated { node_pool, labels } => write!(
                f,
                "nodepool {node_pool} could not meet minValues for label(s) [{}] after ordering by price and keeping 600 instance types",
                labels.join(" ")
            ),
            Reason::TooLarge { node_pool, field, kib } => {
                write!(f, "a NodeClaim of nodepool {node_pool} would have {kib} KiB, more than can be stored, most of them in {field}")
            }
            Reason::AwaitsTooLarge => f.write_str(
                "pods that it has to be near to, or that count for its topology spread, have no machine, because their NodeClaim would be \
                 larger than can be stored",
            ),
            Reason::OverQuota { capacity_type } => write!(
                f,
                "EC2 refuses larger {capacity_type} machines for the account's quota of vCPUs, and what that may have left is tried for \
                 other pods first"
            ),
            Reason::AwaitsOverQuota => f.write_str(
                "pods that it has to be near to, or that count for its topology spread, have no machine for the account's quota of vCPUs",
            ),
            Reason::Uninitialized { node } => write!(f, "would schedule against uninitialized node/{node}"),
        }
    }
}

/// All requirements as one text, ordered by key, without the hostname.
fn set_text(requirements: &Requirements) -> String {
    let parts: Vec<String> =
        requirements.iter().filter(|(key, _)| *key != labels::HOSTNAME).map(|(key, allowed)| format!("{key} {allowed}")).collect();
    parts.join(", ")
}

fn resources_text(resources: &Resources) -> String {
    let parts: Vec<String> = resources.iter().map(|(name, amount)| format!("\"{name}\":\"{}\"", amount.text_of(name))).collect();
    format!("{{{}}}", parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejection(cause: Cause, limits: Vec<LimitLeft>) -> PoolRejection {
        PoolRejection { limits, ..PoolRejection::of_name("default", cause) }
    }

    fn too_small(resource: &str, largest: i64) -> PoolRejection {
        let cause = Cause::InstanceTypes {
            finding: Finding::NoResources { absurd_cpu: false },
            requirements: Requirements::default(),
            resources: Resources::new(),
            daemons: Resources::new(),
            port: None,
        };
        let nearest = NearestMiss {
            resource: resource.into(),
            needed: Quantity::from_units(65),
            largest: Quantity::from_units(largest),
            instance_type: "m5.large".into(),
        };
        PoolRejection { nearest: Some(nearest), ..rejection(cause, Vec::new()) }
    }

    #[test]
    fn what_is_short_is_told_before_what_was_asked_for() {
        let check = |rejection: PoolRejection, first: &str| {
            let text = rejection.to_string();
            assert_eq!(text, format!("no instance type has enough resources ({first}), requirements=, resources={{}}"));
        };
        check(too_small("cpu", 2), "needs 65 cpu, the largest allowed type, m5.large, has 2");
        check(too_small("nvidia.com/gpu", 0), "needs 65 nvidia.com/gpu, which no allowed type has");
    }

    #[test]
    fn what_only_a_limit_excludes_is_not_said_to_be_nowhere() {
        let left = LimitLeft { resource: "nvidia.com/gpu".into(), left: Quantity::ZERO, types: 3 };
        let text = PoolRejection { limits: vec![left], ..too_small("nvidia.com/gpu", 0) }.to_string();
        assert!(text.contains(" (needs 65 nvidia.com/gpu, which no type within its limits has); "), "{text}");
    }

    #[test]
    fn a_reason_of_many_pools_is_bounded() {
        let reason = |count| Reason::Pools(vec![rejection(Cause::Taints(Vec::new()), Vec::new()); count]).to_string();
        assert_eq!((reason(10).matches("nodepool default: ").count(), reason(10).contains('…')), (10, false));
        assert_eq!(reason(13).matches("nodepool default: ").count(), 10);
        assert!(reason(13).ends_with("; … and 3 more nodepools"));
    }

    #[test]
    fn a_reason_depends_on_limits_exactly_if_its_text_names_one() {
        let left = LimitLeft { resource: "cpu".into(), left: Quantity::from_units(2), types: 7 };
        let exceeded = || Cause::LimitsExceeded { node_pool: "default".into() };
        let nodes = || Cause::NodeLimit { node_pool: "default".into() };
        let taints = || Cause::Taints(Vec::new());
        let cases = [
            (Reason::Pools(vec![rejection(exceeded(), Vec::new())]), true),
            (Reason::Pools(vec![rejection(taints(), Vec::new()), rejection(nodes(), Vec::new())]), true),
            (Reason::Pools(vec![rejection(taints(), vec![left])]), true),
            (Reason::Pools(vec![rejection(Cause::Volumes(Box::new(exceeded())), Vec::new())]), true),
            (Reason::Pools(vec![rejection(taints(), Vec::new())]), false),
            (Reason::NoTemplates(vec![rejection(nodes(), Vec::new())]), true),
            (Reason::NoNodePools, false),
            (Reason::OptedOut, false),
        ];
        for (reason, expected) in cases {
            assert_eq!((reason.depends_on_limits(), reason.to_string().contains("limit")), (expected, expected), "{reason}");
        }
    }
}
