//! Why: explanations as data, with the texts that users search for.

use crate::requirements::Requirements;
use std::fmt::{self, Display};
use whittle_api::k8s::Taint;
use whittle_units::{Price, Quantity, Resources};

/// Why a pod has no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Refused before solving: the pod itself cannot be scheduled by us. One text per fault.
    Ignored(Vec<String>),
    /// There is no NodePool that could grow.
    NoNodePools,
    /// No NodePool has an instance type that its own requirements allow: what each said, in trial order.
    NoTemplates(Vec<PoolSays>),
    /// The pod asks for dynamic resources.
    ResourceClaims,
    /// Reserved capacity fits but is promised to others in this pass; the next pass tries again.
    Reserved(Cause),
    /// What each NodePool said, in trial order.
    Pools(Vec<PoolSays>),
    /// Nothing has changed since an earlier pass that could find the pod a place: what it said then.
    AsBefore { category: String, message: String },
    /// The work budget ran out first; the next run goes on here.
    OutOfBudget,
    /// The claim's instance types could not keep `minValues` after the cheapest 600 were kept.
    Truncated { node_pool: String, labels: Vec<String> },
    /// The checker found its place wrong: what it said.
    Doubtful(String),
    /// A simulation only: the pod would wait for a node that has not initialized.
    Uninitialized { node: String },
}

/// One NodePool's reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSays {
    pub node_pool: String,
    pub cause: Cause,
    /// Which constraint rules out how many of the pool's instance types on its own, largest first.
    pub ruled_out: Vec<RuledOut>,
    /// What would have been enough.
    pub nearest: Option<NearestMiss>,
    /// The limits but for which an instance type would do.
    pub limits: Vec<LimitLeft>,
}

/// What a limit of a NodePool still allows, and what it thereby excludes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitLeft {
    pub resource: String,
    /// Less than nothing when the limit is exceeded already.
    pub left: Quantity,
    /// How many instance types are larger.
    pub types: usize,
}

impl Display for LimitLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its limit leaves {} {}, {} instance types are larger", self.left.max(Quantity::ZERO), self.resource, self.types)
    }
}

/// How many instance types one constraint excludes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuledOut {
    /// `cpu`, `topology.kubernetes.io/zone In [a]`, `offerings`, …
    pub constraint: String,
    pub types: usize,
    /// Of how many.
    pub of: usize,
}

/// A host port of the pod's that daemons have on some instance types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortTaken {
    /// As the pod asks for it.
    pub wanted: String,
    /// As the daemon has it.
    pub taken: String,
    /// How many types have such a daemon.
    pub types: usize,
    /// Of how many.
    pub of: usize,
}

/// The largest of what is there beside what is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearestMiss {
    pub resource: String,
    /// With the share of the daemons.
    pub needed: Quantity,
    pub largest: Quantity,
    pub instance_type: String,
}

/// Why one NodePool (or node) cannot take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    Taints(Vec<Taint>),
    UndefinedLabel {
        key: String,
        meant: Option<String>,
    },
    /// Per key: what was asked and what is offered.
    Disjoint(Vec<(String, String, String)>),
    Volumes(Box<Cause>),
    Topology {
        kind: &'static str,
        key: String,
        counts: Vec<(String, u32)>,
        pod_domains: String,
        node_domains: String,
    },
    InstanceTypes {
        finding: Finding,
        requirements: Requirements,
        resources: Resources,
        daemons: Resources,
        /// A host port that the daemons of some types have already.
        port: Option<Box<PortTaken>>,
    },
    MinValues {
        labels: Vec<String>,
        requirements: Requirements,
        resources: Resources,
    },
    /// The NodePool is offered no instance type at all.
    NothingOffered {
        /// Kind and name of its node class.
        node_class: String,
    },
    LimitsExceeded {
        node_pool: String,
    },
    NodeLimit {
        node_pool: String,
    },
    /// Nothing any more: what stood against the pod at its turn is gone.
    TurnPassed,
    ReservedUnavailable,
    ReservedLost,
}

/// What the instance types lack, as scheduling 18 tells apart.
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

/// A type in a zone with a capacity type at a price.
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
    pub passed_over: Vec<PoolSays>,
    /// The cheapest of the offerings that it could be launched from.
    pub cheapest: Option<Offer>,
    /// The next cheapest offering: another zone or capacity type, or another type.
    pub next_offer: Option<Offer>,
    /// The next best type and its price.
    pub next_best: Option<(String, Price)>,
    /// Keys that the pods or their topology narrowed, with the values left.
    pub narrowed: Vec<String>,
}

impl Finding {
    /// The text a user would search for.
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
    /// A stable word for the category, for metrics and comparisons.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Cause::Taints(_) => "taints",
            Cause::UndefinedLabel { .. } | Cause::Disjoint(_) => "requirements",
            Cause::Volumes(_) => "volumes",
            Cause::Topology { .. } => "topology",
            Cause::InstanceTypes { .. } | Cause::NothingOffered { .. } => "instance-types",
            Cause::MinValues { .. } => "min-values",
            Cause::LimitsExceeded { .. } | Cause::NodeLimit { .. } => "limits",
            Cause::TurnPassed => "turn",
            Cause::ReservedUnavailable | Cause::ReservedLost => "reserved",
        }
    }
}

/// What a pod is told that wants no node of ours.
pub(crate) const OPTED_OUT: &str = "configured to not run on a Karpenter provisioned node";

impl Reason {
    /// Whether the pod asked to be left alone, and nothing else is wrong with it: nobody needs a warning then.
    #[must_use]
    pub fn is_own_wish(&self) -> bool {
        matches!(self, Reason::Ignored(faults) if matches!(&faults[..], [only] if only.starts_with(OPTED_OUT)))
    }

    /// A stable word for the category.
    #[must_use]
    pub fn category(&self) -> &str {
        match self {
            Reason::AsBefore { category, .. } => category,
            Reason::Ignored(_) => "ignored",
            Reason::NoNodePools => "no-node-pools",
            Reason::NoTemplates(_) => "no-templates",
            Reason::ResourceClaims => "resource-claims",
            Reason::Reserved(_) => "reserved",
            Reason::Pools(says) => says.first().map_or("no-node-pools", |s| s.cause.category()),
            Reason::OutOfBudget => "out-of-budget",
            Reason::Truncated { .. } => "min-values",
            Reason::Uninitialized { .. } => "uninitialized",
            Reason::Doubtful(_) => "doubtful",
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
                for (n, (key, asked, offered)) in keys.iter().enumerate() {
                    let join = if n == 0 { "" } else { "; " };
                    write!(f, "{join}incompatible requirements, key {key}, {key} {asked} not in {key} {offered}")?;
                }
                Ok(())
            }
            Cause::Volumes(inner) => write!(f, "incompatible volume requirements, {inner}"),
            Cause::Topology { kind, key, counts, pod_domains, node_domains } => {
                let shown: Vec<String> = counts.iter().take(25).map(|(domain, n)| format!("{domain}: {n}")).collect();
                let more = if counts.len() > 25 { format!(" and {} others", counts.len() - 25) } else { String::new() };
                write!(
                    f,
                    "unsatisfiable topology constraint for {kind}, key={key} (counts = {}{more}, podDomains = {key} {pod_domains}, nodeDomains = {key} {node_domains})",
                    shown.join(", ")
                )
            }
            Cause::InstanceTypes { finding, requirements, resources, daemons, port } => {
                let mut all = resources.clone();
                all.add(daemons);
                write!(f, "{}, requirements={}, resources={}", finding.text(), set_text(requirements), resources_text(&all))?;
                let Some(PortTaken { taken, types, of, .. }) = port.as_deref() else { return Ok(()) };
                write!(f, "; daemons on {types} of {of} instance types listen on {taken} of the host already")
            }
            Cause::MinValues { labels, requirements, resources } => write!(
                f,
                "minValues requirement is not met for label(s) (label(s)=[{}]), requirements={}, resources={}",
                labels.join(" "),
                set_text(requirements),
                resources_text(resources)
            ),
            Cause::NothingOffered { node_class } => {
                write!(f, "no instance types are offered to it: {node_class} is missing or not ready, see its conditions")
            }
            Cause::LimitsExceeded { node_pool } => {
                write!(f, "all available instance types exceed limits for nodepool (NodePool={node_pool})")
            }
            Cause::NodeLimit { node_pool } => write!(f, "node limits have been exhausted for nodepool (NodePool={node_pool})"),
            Cause::TurnPassed => f.write_str("nothing speaks against a machine for it any more: the next pass considers it again"),
            Cause::ReservedUnavailable => {
                f.write_str("one or more instance types with compatible reserved offerings are available, but could not be reserved")
            }
            Cause::ReservedLost => {
                f.write_str("satisfying constraints would result in instance type options with reserved offerings being removed")
            }
        }
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Ignored(faults) => write!(f, "ignoring pod, {}", faults.join("; ")),
            Reason::NoNodePools => f.write_str("no dynamic nodepools found"),
            Reason::NoTemplates(says) => {
                f.write_str("nodepool requirements filtered out all available instance types")?;
                says.iter().try_for_each(|say| write!(f, "; nodepool {}: {}", say.node_pool, say.cause))
            }
            Reason::ResourceClaims => {
                f.write_str("pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter (nor by Whittle)")
            }
            Reason::Reserved(cause) => write!(f, "{cause}"),
            Reason::Pools(says) => {
                for (n, say) in says.iter().enumerate() {
                    let join = if n == 0 { "" } else { "; " };
                    write!(f, "{join}nodepool {}: {}", say.node_pool, say.cause)?;
                    if let Some(miss) = &say.nearest {
                        write!(
                            f,
                            " (needs {} {}, the largest allowed type, {}, has {})",
                            miss.needed, miss.resource, miss.instance_type, miss.largest
                        )?;
                    }
                    say.limits.iter().try_for_each(|limit| write!(f, "; {limit}"))?;
                }
                Ok(())
            }
            Reason::AsBefore { message, .. } => f.write_str(message),
            Reason::Doubtful(fault) => write!(f, "its place did not stand a second look, the next run tries again: {fault}"),
            Reason::OutOfBudget => f.write_str("not considered in this run, the next run starts with it"),
            Reason::Truncated { node_pool, labels } => write!(
                f,
                "nodepool {node_pool} could not meet minValues for label(s) [{}] after ordering by price and keeping 600 instance types",
                labels.join(" ")
            ),
            Reason::Uninitialized { node } => write!(f, "would schedule against uninitialized node/{node}"),
        }
    }
}

/// All requirements as one text, by key, without the host name.
fn set_text(requirements: &Requirements) -> String {
    let parts: Vec<String> = requirements
        .iter()
        .filter(|(key, _)| *key != whittle_api::labels::HOSTNAME)
        .map(|(key, allowed)| format!("{key} {allowed}"))
        .collect();
    parts.join(", ")
}

fn resources_text(resources: &Resources) -> String {
    let parts: Vec<String> = resources.iter().map(|(name, amount)| format!("\"{name}\":\"{amount}\"")).collect();
    format!("{{{}}}", parts.join(","))
}
