//! Remedies: for each reason why a pod has no place, what a user can change so that the reason no longer holds. There is none for causes
//! that pass by themselves, nor for those that nobody can change.

use super::changes::{Change, Changes, ClassChange, OwnRule};
use super::meant::{Meant, meant_key};
use super::reason::{Cause, EBS_VOLUMES, Finding, Follows, NearestMiss, PoolRejection, Reason, RuledOut};
use super::unready::Unready;
use crate::pods::{EBS_DRIVER, is_restricted};
use std::fmt::{self, Display};
use whittle_api::labels;
use whittle_units::Quantity;

/// For how many NodePools remedies are given: a reason names as many.
const POOLS_MAX: usize = 10;

/// The constraint of offerings that EC2 has, as it is named.
const OFFERINGS: &str = "available offerings";

/// What of a pod asks for labels of its node.
const ASKS: &str = "the pod's node selector or affinity";

/// What of a spread leaves nodes out that the pod cannot be on for their taints.
const HONORS: &str = "nodeTaintsPolicy: Honor";

/// Labels by which EKS and eksctl name the node group of a node.
const NODE_GROUPS: [&str; 2] = ["eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name"];

/// Fields of a NodePool, and their names in a Provisioner: longer ones first.
const FIELDS_OF_PROVISIONERS: [(&str, &str); 5] = [
    ("spec.template.metadata.labels", "spec.labels"),
    ("spec.template.spec.nodeClassRef", "spec.providerRef"),
    ("spec.template.spec.", "spec."),
    ("spec.template", "spec"),
    ("spec.limits.", "spec.limits.resources."),
];

/// What would help, and the NodePool that it is about, if it is about one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remedy {
    pub node_pool: Option<String>,
    pub text: String,
}

impl Remedy {
    fn of_pod(text: impl Into<String>) -> Vec<Self> {
        vec![Self { node_pool: None, text: text.into() }]
    }
}

impl Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node_pool {
            Some(pool) => write!(f, "what it would take (nodepool {pool}): {}", self.text),
            None => write!(f, "what it would take: {}", self.text),
        }
    }
}

impl Reason {
    /// What would give the pod a place.
    #[must_use]
    pub fn remedies(&self) -> Vec<Remedy> {
        match self {
            Reason::Pools(rejections) | Reason::NoTemplates(rejections) => {
                rejections.iter().filter_map(PoolRejection::remedy).take(POOLS_MAX).collect()
            }
            Reason::Truncated { node_pool, labels } => {
                let text = format!("a lower minValues for {} in spec.template.spec.requirements", labels.join(", "));
                vec![Remedy { node_pool: Some(node_pool.clone()), text }]
            }
            Reason::TooLarge { node_pool, field, .. } => {
                let text = if *field == "spec.requirements" {
                    format!("fewer values in {ASKS}, or in spec.template.spec.requirements")
                } else {
                    format!("less in spec.template.{field}")
                };
                vec![Remedy { node_pool: Some(node_pool.clone()), text }]
            }
            Reason::OverQuota { capacity_type } => {
                Remedy::of_pod(format!("a higher quota of vCPUs of {capacity_type} instances (Service Quotas, Amazon EC2)"))
            }
            Reason::AwaitsOverQuota => Remedy::of_pod("a higher quota of vCPUs (Service Quotas, Amazon EC2)"),
            Reason::OptedOut => Remedy::of_pod(format!("a pod without the requirement that {} does not exist", labels::NODE_POOL)),
            Reason::NoNodePools => Remedy::of_pod("a NodePool that launches for pods: one without spec.replicas"),
            Reason::ResourceClaims => Remedy::of_pod(
                "an extended resource in place of resourceClaims, of a device plugin or of a DeviceClass with spec.extendedResourceName",
            ),
            // A custom label, of which the fault speaks, is no help to who means a node.
            Reason::Ignored(faults) if faults.iter().any(|fault| is_of_hostname(fault)) => Remedy::of_pod(of_hostname()),
            // Faults say what is wrong themselves, as does the pod that another waits for; the others pass.
            Reason::Ignored(_)
            | Reason::AwaitsTooLarge
            | Reason::Reserved(_)
            | Reason::Unchanged { .. }
            | Reason::OutOfBudget
            | Reason::RejectedByChecker(_)
            | Reason::Uninitialized { .. } => Vec::new(),
        }
    }
}

impl PoolRejection {
    /// What would let the NodePool take the pod.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        // Who names another NodePool means it.
        let in_the_way = std::iter::successors(Some(self), |rejection| rejection.besides.as_deref());
        if in_the_way.map(|rejection| &rejection.cause).any(names_other_pool) {
            return None;
        }
        let mut text = self.remedy_text()?;
        if self.is_provisioner {
            text = FIELDS_OF_PROVISIONERS.iter().fold(text, |text, (field, before)| text.replace(field, before));
        }
        Some(Remedy { node_pool: Some(self.node_pool.clone()), text })
    }
}

impl PoolRejection {
    /// What would remove the cause, and then what is in the way besides.
    fn remedy_text(&self) -> Option<String> {
        let limits = self.changes.iter().flat_map(|changes| &changes.limits).map(|name| format!("spec.limits.{name}")).collect::<Vec<_>>();
        let is_said = limits.is_empty() || self.nearest.is_some() || !self.limits.is_empty();
        let above = |text: String| if is_said { text } else { format!("{text}; and besides a higher {}", limits.join(" and ")) };
        let text = of_cause(self, &self.cause).map(above);
        match (text, self.besides.as_ref().and_then(|besides| besides.remedy_text())) {
            (Some(text), Some(besides)) => Some(format!("{text}; and besides {besides}")),
            // No change of requirements is enough, and what is in the way of any has a remedy.
            (None, besides) if self.changes.is_some() => besides,
            (text, _) => text,
        }
    }
}

/// What would remove a cause.
fn of_cause(rejection: &PoolRejection, cause: &Cause) -> Option<String> {
    Some(match cause {
        Cause::Taints(taints) => {
            let taints: Vec<String> = taints.iter().map(ToString::to_string).collect();
            format!("a pod that tolerates {}, or its spec.template.spec.taints without it", taints.join(", "))
        }
        Cause::UndefinedLabel { key, meant } => of_undefined_label(key, meant.as_deref()),
        Cause::Disjoint(keys) if keys.iter().any(|(key, ..)| key == labels::HOSTNAME) => of_hostname(),
        Cause::Disjoint(_) | Cause::InstanceTypes { .. } if !rejection.meant.is_empty() => of_meant(&rejection.meant),
        Cause::Disjoint(keys) => match &rejection.changes {
            Some(changes) => one_of(of_changes(changes))?,
            None => of_disjoint(keys),
        },
        Cause::Volumes(inner) if is_of_auto_mode(inner) => format!(
            "a volume of a StorageClass of {EBS_DRIVER}, with that driver in the cluster: the pod has one of EKS Auto Mode, which is mounted on \
             that one's own nodes alone ({} auto)",
            labels::COMPUTE_TYPE
        ),
        Cause::Volumes(inner) => match (inner.as_ref(), &rejection.changes) {
            (_, Some(changes)) => one_of(of_changes(changes))?,
            (Cause::Disjoint(keys), None) => {
                let keys: Vec<String> = keys.iter().map(|(key, required, _)| format!("{key} {required}")).collect();
                format!("a pod and a spec.template that allow {}, where its volume is, or another volume", keys.join(" and "))
            }
            (inner, None) => of_cause(rejection, inner)?,
        },
        Cause::Topology { key, follows: Some(first), .. } => of_following(first.as_ref(), key),
        Cause::Topology { kind, key, counts, of_others, .. } => match *kind {
            "topology spread" if counts.is_empty() => {
                format!("the label {key} in its spec.template.metadata.labels or requirements, or whenUnsatisfiable: ScheduleAnyway")
            }
            "topology spread" => of_spread(rejection, key),
            "pod affinity" => format!("a pod that all terms of its affinity select in a domain of {key} that its requirements allow"),
            _ => {
                let domain = other_domain(rejection, key);
                let or = if domain.is_empty() { "" } else { "or " };
                let whose = if *of_others { "the anti-affinity of the pods that select this one" } else { "the pod's anti-affinity" };
                format!("{domain}{or}preferredDuringScheduling in {whose}")
            }
        },
        Cause::InstanceTypes { finding, port, .. } => return of_types(rejection, *finding, port.is_some()),
        Cause::MinValues { labels, .. } => format!("a lower minValues for {}, or requirements that more types meet", labels.join(", ")),
        Cause::BesideDaemon { daemon_set, by_pod: true, .. } => format!(
            "the pod's required anti-affinity not selecting the pods of daemonset {daemon_set}, or a DaemonSet that does not run there: a \
             node affinity that its machines do not meet, or a taint in spec.template.spec.taints that the pod alone tolerates"
        ),
        // It tolerates every taint.
        Cause::BesideDaemon { daemon_set, by_pod: false, .. } => format!(
            "the required anti-affinity of daemonset {daemon_set} not selecting the pod, or a node affinity of it that its machines do not \
             meet"
        ),
        Cause::NothingOffered { why: None, node_class } => format!("{node_class}, ready, or requirements that some type meets"),
        Cause::NothingOffered { why: Some(why), .. } | Cause::Unready(why) => match why {
            Unready::ClassNew { .. } => return None,
            Unready::ClassMissing { class } => format!("{class}, or the name of another in spec.template.spec.nodeClassRef"),
            Unready::Condition { object, reason, .. } => format!("{object}, ready: correct what its conditions report as {reason}"),
        },
        Cause::LimitsExceeded { .. } if rejection.limits.is_empty() => "higher spec.limits".to_owned(),
        Cause::LimitsExceeded { .. } => {
            let fields = rejection.limits.iter().map(|limit| format!("spec.limits.{}", limit.resource)).collect::<Vec<_>>();
            format!("a higher {}", fields.join(" and "))
        }
        Cause::NodeLimit { .. } => "a higher spec.limits.nodes".to_owned(),
        Cause::TransientDuringPass | Cause::ReservedUnavailable | Cause::ReservedLost => return None,
    })
}

/// What gives a pod a place that asks for a label which the NodePool does not have.
fn of_undefined_label(key: &str, meant: Option<&str>) -> String {
    const OWN: &str = "spec.template.metadata.labels or spec.template.spec.requirements";
    if let Some(meant) = meant.filter(|meant| is_near(key, meant)) {
        return format!("{meant} in {ASKS}, if that is meant; or the label {key} in its {OWN}");
    }
    match key {
        labels::HOSTNAME => of_hostname(),
        labels::PROVISIONER_NAME => format!("{} in {ASKS}: only nodes of a Provisioner have {key}", labels::NODE_POOL),
        _ if NODE_GROUPS.contains(&key) => {
            format!("{ASKS} without {key}, which the nodes of a node group have: while it asks for that, a larger group")
        }
        _ if is_restricted(key, |_| false) => format!("{ASKS} without {key}, which no NodePool may set"),
        _ => format!("the label {key} in its {OWN}, or {ASKS} without it"),
    }
}

/// What gives a pod a place that is to be near another, which has none yet either.
fn of_following(first: &Follows, key: &str) -> String {
    match first {
        Follows::Launched(pod) => {
            format!(
                "only time: the affinity selects {pod}, whose machine this pass launches; once its {key} is known, a later pass takes this pod"
            )
        }
        Follows::On(node) => {
            format!(
                "room on {node}, and tolerations of its taints: a pod that the affinity selects runs there, and no new machine is that {key}"
            )
        }
        Follows::Waiting(pod) => {
            format!("only time: the affinity selects {pod}, which waits for the machine of another pod itself; a later pass takes this pod")
        }
    }
}

/// Whether a pod is at fault for naming its node.
fn is_of_hostname(fault: &str) -> bool {
    fault.strip_prefix("label ").and_then(|rest| rest.strip_prefix(labels::HOSTNAME)).is_some_and(|rest| rest.starts_with(" is restricted"))
}

fn of_hostname() -> String {
    format!("{ASKS} without {}: the name of a new node is not known before it is there", labels::HOSTNAME)
}

/// The NodePool allowing what the pod requires, or the pod not requiring it; neither was tried.
fn of_disjoint(keys: &[(String, String, String)]) -> String {
    // Of keys that are to be absent, or that the pod contradicts itself about, no NodePool has a value.
    let (absent, allowed): (Vec<_>, Vec<_>) = keys.iter().partition(|(_, required, _)| required == "DoesNotExist");
    let keys: Vec<&str> = absent.iter().map(|(key, ..)| key.as_str()).collect();
    let absent = (!keys.is_empty()).then(|| format!("{ASKS} without {}", keys.join(" and ")));
    let keys: Vec<String> = allowed.iter().map(|(key, required, _)| format!("{key} {required}")).collect();
    let allowed = (!keys.is_empty()).then(|| format!("its spec.template allowing {}, or {ASKS} without it", keys.join(" and ")));
    absent.into_iter().chain(allowed).collect::<Vec<_>>().join(", and ")
}

/// Alternatives, as one text.
fn one_of(ways: Vec<String>) -> Option<String> {
    (!ways.is_empty()).then(|| ways.join(", or "))
}

/// What gives a pod a place whose spread leaves no domain of the NodePool.
fn of_spread(rejection: &PoolRejection, key: &str) -> String {
    let honors = rejection.changes.iter().filter(|changes| changes.honored_taints).map(|_| format!("{HONORS}, "));
    other_domain(rejection, key) + &honors.collect::<String>() + "a larger maxSkew, or whenUnsatisfiable: ScheduleAnyway"
}

/// Another domain, where the NodePool's requirements exclude one.
fn other_domain(rejection: &PoolRejection, key: &str) -> String {
    match &rejection.changes {
        Some(changes) if !changes.other_domain => String::new(),
        _ => format!("another domain of {key} in its requirements, "),
    }
}

/// The changes that were found, as alternatives.
fn of_changes(changes: &Changes) -> Vec<String> {
    let of_class = changes.of_class.iter().map(|class| match class {
        ClassChange::Os(system) => format!("a node class whose images are for {system}, allowed by its spec.template"),
        ClassChange::Reservations => {
            "a node class whose spec.capacityReservationSelectorTerms select a reservation, allowed by its spec.template".to_owned()
        }
        ClassChange::Zone(zone) => format!("a node class that selects a subnet in {zone}, if such types are sold there"),
    });
    let by_now: Vec<&Change> = changes.enough.iter().collect();
    let enough = by_now.iter().enumerate().map(|(at, change)| {
        let before = at.checked_sub(1).map(|before| by_now[before]);
        of_change(change, before)
    });
    let waits = changes.waits.then(|| "time until EC2 has one again".to_owned());
    let excluded = changes.excluded.iter().map(|(key, domains)| format!("{key} NotIn [{}] in its requirements", domains.join(" ")));
    let honors = changes.honored_taints.then(|| HONORS.to_owned());
    let own_rule = changes.own_rule.iter().map(|rule| match rule {
        OwnRule::Spread => "a larger maxSkew, or whenUnsatisfiable: ScheduleAnyway".to_owned(),
        OwnRule::AntiAffinity => "preferredDuringScheduling in the pod's anti-affinity".to_owned(),
    });
    excluded
        .chain(honors)
        .chain(own_rule)
        .chain(enough)
        .chain(of_class)
        .chain(waits)
        .chain(changes.another_volume.then(|| "another volume".to_owned()))
        .collect()
}

/// A change, where `before` is the alternative that is named before it.
fn of_change(change: &Change, before: Option<&Change>) -> String {
    let told = |list: &[(String, String)]| list.iter().map(|(key, values)| format!("{key} {values}")).collect::<Vec<_>>().join(" and ");
    let (absent, allow): (Vec<_>, Vec<_>) = change.allow.iter().cloned().partition(|(_, values)| values == "DoesNotExist");
    let absent: Vec<&str> = absent.iter().map(|(key, _)| key.as_str()).collect();
    let of_pool = [
        (!allow.is_empty()).then(|| format!("allowing {}", told(&allow))),
        (!absent.is_empty()).then(|| format!("without {}", absent.join(" and "))),
        (!change.drop.is_empty()).then(|| format!("not requiring {}", told(&change.drop))),
    ];
    let of_pool: Vec<String> = of_pool.into_iter().flatten().collect();
    let is_same = before.is_some_and(|before| before.drop.is_empty() && before.allow.iter().map(|(key, _)| key).eq(&change.pod));
    let of_pod = match (change.pod.as_slice(), is_same) {
        ([], _) => None,
        ([_], true) => Some(format!("{ASKS} without it")),
        (keys, _) => Some(format!("{ASKS} without {}", keys.join(" and "))),
    };
    // What a NodePool requires mostly keeps its machines small.
    let price = change.price.filter(|_| !change.drop.is_empty()).map(|price| format!(" (then from {price} on)")).unwrap_or_default();
    let of_pool = (!of_pool.is_empty()).then(|| format!("its spec.template {}{price}", of_pool.join(" and ")));
    of_pool.into_iter().chain(of_pod).collect::<Vec<_>>().join(", and ")
}

/// Whether nodes lack the label that those of EKS Auto Mode have.
fn is_of_auto_mode(cause: &Cause) -> bool {
    match cause {
        Cause::UndefinedLabel { key, .. } => key == labels::COMPUTE_TYPE,
        Cause::Disjoint(keys) => keys.iter().any(|(key, ..)| key == labels::COMPUTE_TYPE),
        _ => false,
    }
}

/// Whether it is about the name of a NodePool that the pod wants.
fn names_other_pool(cause: &Cause) -> bool {
    matches!(cause, Cause::Disjoint(keys) if keys.iter().any(|(key, ..)| names_pool(key)))
}

/// Whether a label's value is the name of a NodePool, or of a Provisioner.
fn names_pool(key: &str) -> bool {
    [labels::NODE_POOL, labels::PROVISIONER_NAME].contains(&key)
}

/// Whether a key is another one but for its domain, or for typing errors. The hint in the cause, which is Karpenter's, goes by less.
fn is_near(key: &str, meant: &str) -> bool {
    let name = |key: &str| key.rsplit('/').next().map(str::to_owned);
    name(key) == name(meant) || meant_key(key) == Some(meant)
}

/// Values that are probably misspelt, corrected where they are.
fn of_meant(meant: &[Meant]) -> String {
    let asked = |by_pod: bool, place: &str| {
        let of: Vec<String> = meant.iter().filter(|one| one.by_pod == by_pod).map(ToString::to_string).collect();
        (!of.is_empty()).then(|| format!("{} in {place}", of.join(" and ")))
    };
    [asked(true, ASKS), asked(false, "its spec.template")].into_iter().flatten().collect::<Vec<_>>().join(", and ")
}

/// What would make an instance type fit.
fn of_types(rejection: &PoolRejection, finding: Finding, port: bool) -> Option<String> {
    let is_requirement = |ruled: &&RuledOut| [" In [", " NotIn [", " Exists"].iter().any(|operator| ruled.constraint.contains(operator));
    let mut requirements = rejection.ruled_out.iter().filter(is_requirement);
    let tried = rejection.changes.as_ref();
    let is_short = !rejection.misses.is_empty() && tried.is_some_and(|changes| changes.enough.is_empty() && !changes.waits);
    if let Some(changes) = tried.filter(|changes| rejection.nearest.is_none() || changes.waits)
        && rejection.limits.is_empty()
        && !(port || is_short)
    {
        return one_of(of_changes(changes));
    }
    // What no type meets by itself is the cause, whatever else is missing.
    if let Some(ruled) = requirements.clone().find(|ruled| ruled.types == ruled.of).filter(|_| tried.is_none()) {
        return Some(of_requirement(ruled));
    }
    if tried.is_none() && (is_sold_out(finding) || are_mostly_sold_out(&rejection.ruled_out)) {
        return Some("other instance types, zones or capacity types, or time until EC2 has one again".to_owned());
    }
    let mut ways: Vec<String> = Vec::new();
    if let Some(limit) = rejection.limits.first() {
        ways.push(format!("a higher spec.limits.{}, of which a machine takes all that it has", limit.resource));
    } else if let Some(miss) = rejection.nearest.as_ref().or(rejection.misses.first()) {
        let other_types = tried.is_none_or(|changes| changes.enough.iter().any(|change| change.pod.is_empty()));
        let limits: Vec<String> = tried.iter().flat_map(|changes| &changes.limits).map(|name| format!("spec.limits.{name}")).collect();
        let misses = if rejection.misses.is_empty() { std::slice::from_ref(miss) } else { &rejection.misses[..] };
        ways.push(of_misses(misses, other_types, &limits));
    }
    if port {
        ways.push("another hostPort".to_owned());
    }
    if ways.is_empty() {
        ways.extend(requirements.next().map(of_requirement));
    }
    one_of(ways)
}

/// What would help against a requirement that types do not meet.
fn of_requirement(ruled: &RuledOut) -> String {
    let RuledOut { constraint, types, of, of_volume } = ruled;
    if *of_volume {
        return format!("another volume: {constraint} rules out {types} of {of} types");
    }
    // All images of a class are for one operating system.
    let system = constraint.strip_prefix(labels::OS).filter(|_| types == of).and_then(|rest| rest.strip_prefix(" In [")?.strip_suffix(']'));
    let class = system.map(|system| format!("a node class whose images are for {system}, or ")).unwrap_or_default();
    format!("{class}the pod or its spec.template not asking for {constraint}, which rules out {types} of {of} types")
}

/// Whether EC2 is known to have none of most types that are allowed.
fn are_mostly_sold_out(ruled_out: &[RuledOut]) -> bool {
    ruled_out.iter().any(|ruled| ruled.constraint == OFFERINGS && ruled.of < ruled.types * 2)
}

/// What would make types large enough for all that is short, where larger ones are within these limits.
fn of_misses(misses: &[NearestMiss], other_types: bool, limits: &[String]) -> String {
    let with = if limits.is_empty() || !other_types { String::new() } else { format!(", with a higher {}", limits.join(" and ")) };
    let [first, others @ ..] = misses else { return String::new() };
    let others = others.iter().map(|miss| match miss.largest <= Quantity::ZERO {
        true => format!("without {}", miss.resource),
        false => format!("with at most {} {}", miss.largest.text_of(&miss.resource), miss.resource),
    });
    let others: Vec<String> = others.collect();
    let first = of_miss(first, other_types) + &with;
    if others.is_empty() { first } else { format!("{first}; and besides a pod {}", others.join(" and ")) }
}

/// What would make a type large enough; `other_types` is whether allowing other, larger types would help.
fn of_miss(miss: &NearestMiss, other_types: bool) -> String {
    let (resource, most) = (&miss.resource, miss.largest.text_of(&miss.resource));
    if resource == "ephemeral-storage" {
        return format!("a larger disk in spec.blockDeviceMappings of its node class, or requests of at most {most}");
    }
    let or = |others: &str| if other_types { format!(", {others}") } else { String::new() };
    if resource == "pods" {
        let others = or("else requirements that larger types meet");
        return format!("a higher spec.kubelet.maxPods in its node class, if that sets one{others}, or fewer DaemonSets");
    }
    if resource == EBS_VOLUMES {
        let others = or("or requirements that types meet which attach more");
        return format!("at most {most} {resource} in one pod{others}");
    }
    match (miss.largest <= Quantity::ZERO, other_types) {
        (true, true) => format!("requirements that types with {resource} meet, or a pod without it"),
        (true, false) => format!("a pod without {resource}, which no type that could be had has"),
        (false, _) => {
            let others = or("or requirements that larger types meet");
            format!("requests of at most {most} {resource}, those of daemons included{others}")
        }
    }
}

/// Whether no type that fits has an offering.
const fn is_sold_out(finding: Finding) -> bool {
    matches!(
        finding,
        Finding::NoOffering | Finding::FitWithoutOffering | Finding::NoRequirementsNoOffering | Finding::NoResourcesNoOffering
    )
}

#[cfg(test)]
mod tests {
    use super::super::reason::LimitLeft;
    use super::*;

    fn told(cause: Cause, nearest: Option<NearestMiss>) -> String {
        let rejection = PoolRejection { nearest, ..PoolRejection::of_name("default", cause) };
        rejection.remedy().map(|remedy| remedy.text).unwrap_or_default()
    }

    #[test]
    fn volumes_disks_stock_and_unknown_domains_have_remedies_of_their_own() {
        let zone = || ("topology.kubernetes.io/zone".to_owned(), "In [c]".to_owned(), "In [a]".to_owned());
        let volume = told(Cause::Volumes(Box::new(Cause::Disjoint(vec![zone()]))), None);
        assert_eq!(
            volume,
            "a pod and a spec.template that allow topology.kubernetes.io/zone In [c], where its volume is, or another volume"
        );
        let spread = |counts: Vec<(String, u32)>| {
            let counts = counts.into();
            let (pod_domains, node_domains) = ("Exists".to_owned(), "Exists".to_owned());
            told(
                Cause::Topology {
                    kind: "topology spread",
                    of_others: false,
                    key: "rack".into(),
                    counts,
                    pod_domains,
                    node_domains,
                    follows: None,
                },
                None,
            )
        };
        assert!(spread(Vec::new()).starts_with("the label rack in its spec.template.metadata.labels"));
        assert!(spread(vec![("a".into(), 1)]).starts_with("another domain of rack in its requirements, a larger maxSkew"));
        let types = |finding, nearest| {
            let (requirements, resources, daemons) = Default::default();
            told(Cause::InstanceTypes { finding, requirements, resources, daemons, port: None }, nearest)
        };
        assert!(types(Finding::NoOffering, None).ends_with("or time until EC2 has one again"));
        let miss = |resource: &str, largest: i64| {
            let (needed, largest) = (Quantity::from_units(9), Quantity::from_units(largest));
            let nearest = NearestMiss { resource: resource.into(), needed, largest, instance_type: "m5.large".into() };
            types(Finding::NoResources { absurd_cpu: false }, Some(nearest))
        };
        assert!(miss("ephemeral-storage", 1).starts_with("a larger disk in spec.blockDeviceMappings of its node class"));
        assert!(miss("example.com/fpga", 0).ends_with("types with example.com/fpga meet, or a pod without it"));
        assert!(miss("pods", 2).starts_with("a higher spec.kubelet.maxPods in its node class"));
        assert!(miss("cpu", 2).starts_with("requests of at most 2 cpu"));
        assert!(miss(EBS_VOLUMES, 2).starts_with("at most 2 EBS volumes in one pod"));
    }

    #[test]
    fn the_cause_that_no_other_remedy_reaches_comes_first() {
        let told = |ruled: &[(&str, usize)], limited: bool| {
            let (requirements, resources, daemons) = Default::default();
            let finding = Finding::NoResources { absurd_cpu: false };
            let cause = Cause::InstanceTypes { finding, requirements, resources, daemons, port: None };
            let ruled_out = ruled.iter().map(|(constraint, types)| RuledOut {
                constraint: (*constraint).into(),
                types: *types,
                of: 9,
                of_volume: false,
            });
            let limit = LimitLeft { resource: "cpu".into(), left: Quantity::ZERO, types: 1 };
            let limits = if limited { vec![limit] } else { Vec::new() };
            PoolRejection { ruled_out: ruled_out.collect(), limits, ..PoolRejection::of_name("default", cause) }.remedy().unwrap().text
        };
        let zone = "topology.kubernetes.io/zone In [eu-west-1a]";
        assert!(told(&[(zone, 9), (OFFERINGS, 9)], true).starts_with("the pod or its spec.template not asking for topology"));
        assert!(told(&[(OFFERINGS, 5), (zone, 4)], true).starts_with("other instance types, zones or capacity types, or time until"));
        assert!(told(&[(zone, 4), (OFFERINGS, 4)], true).starts_with("a higher spec.limits.cpu"));
        assert!(told(&[(zone, 4), (OFFERINGS, 4)], false).starts_with("the pod or its spec.template not asking for topology"));
    }

    #[test]
    fn another_operating_system_takes_a_class_for_it() {
        let told = |types| {
            let (requirements, resources, daemons) = Default::default();
            let cause = Cause::InstanceTypes { finding: Finding::NoRequirements, requirements, resources, daemons, port: None };
            let ruled_out = vec![RuledOut { constraint: "kubernetes.io/os In [windows]".into(), types, of: 9, of_volume: false }];
            PoolRejection { ruled_out, ..PoolRejection::of_name("default", cause) }.remedy().unwrap().text
        };
        let otherwise = |types| {
            format!("the pod or its spec.template not asking for kubernetes.io/os In [windows], which rules out {types} of 9 types")
        };
        assert_eq!(told(9), format!("a node class whose images are for windows, or {}", otherwise(9)));
        assert_eq!(told(8), otherwise(8));
    }

    /// On a NodePool the label would name a group that its nodes are not of.
    #[test]
    fn a_pod_of_a_node_group_is_not_advised_to_label_a_nodepool() {
        for key in NODE_GROUPS {
            let text = told(Cause::UndefinedLabel { key: key.into(), meant: None }, None);
            assert!(text.contains(&format!("without {key}")) && text.ends_with("a larger group") && !text.contains("template"), "{text}");
        }
    }

    #[test]
    fn a_label_of_ones_own_is_not_taken_for_another_that_contains_its_letters() {
        let of = |key: &str, meant: &str| told(Cause::UndefinedLabel { key: key.into(), meant: Some(meant.into()) }, None);
        let zone = of("topology.kubernetes.io/zones", labels::ZONE);
        assert!(zone.starts_with("topology.kubernetes.io/zone in the pod's node selector or affinity, if that is meant; or the label"));
        assert!(of("zone", labels::ZONE).starts_with("topology.kubernetes.io/zone in the pod's"));
        let own = of("x", "karpenter.k8s.aws/instance-capability-flex");
        assert!(own.starts_with("the label x in its spec.template.metadata.labels"), "{own}");
    }

    #[test]
    fn a_misspelt_value_is_corrected_where_it_is() {
        let meant = |key: &str, value: &str, meant: &str, by_pod| Meant {
            key: key.into(),
            value: value.into(),
            values: vec![meant.into()],
            by_pod,
        };
        let cause = || Cause::Disjoint(vec![("kubernetes.io/arch".into(), "In [x86_64]".into(), "In [amd64]".into())]);
        let told = |meant: Vec<Meant>| {
            PoolRejection { meant, ..PoolRejection::of_name("default", cause()) }.remedy().map(|remedy| remedy.text).unwrap_or_default()
        };
        let (arch, capacity) = (meant("kubernetes.io/arch", "x86_64", "amd64", true), meant("k", "ondemand", "on-demand", false));
        let pod = "kubernetes.io/arch amd64 instead of x86_64 in the pod's node selector or affinity";
        assert_eq!(told(vec![arch.clone()]), pod);
        assert_eq!(told(vec![arch, capacity]), format!("{pod}, and k on-demand instead of ondemand in its spec.template"));
        assert!(told(Vec::new()).starts_with("its spec.template allowing kubernetes.io/arch In [x86_64]"));
        let besides = PoolRejection { changes: None, ..PoolRejection::of_name("default", cause()) };
        let rejection = PoolRejection {
            meant: vec![meant("zone", "a", "b", true)],
            besides: Some(Box::new(besides)),
            ..PoolRejection::of_name("default", cause())
        };
        let also =
            "; and besides its spec.template allowing kubernetes.io/arch In [x86_64], or the pod's node selector or affinity without it";
        assert_eq!(rejection.remedy().unwrap().text, format!("zone b instead of a in the pod's node selector or affinity{also}"));
    }

    #[test]
    fn a_provisioner_is_corrected_by_its_own_fields() {
        let told = |cause: Cause, limits| {
            PoolRejection { is_provisioner: true, limits, ..PoolRejection::of_name("default", cause) }.remedy().unwrap().text
        };
        let limit = LimitLeft { resource: "cpu".into(), left: Quantity::ZERO, types: 1 };
        let exceeded = Cause::LimitsExceeded { node_pool: "default".into() };
        assert_eq!(told(exceeded, vec![limit]), "a higher spec.limits.resources.cpu");
        let label = Cause::UndefinedLabel { key: "team".into(), meant: None };
        assert!(told(label, Vec::new()).starts_with("the label team in its spec.labels or spec.requirements, or the pod's"));
        let missing = Cause::Unready(Unready::ClassMissing { class: "AWSNodeTemplate \"a\"".into() });
        assert!(told(missing, Vec::new()).ends_with("or the name of another in spec.providerRef"));
    }

    #[test]
    fn a_pod_that_names_its_node_is_told_so_and_other_faults_say_what_is_wrong_themselves() {
        let fault = |key: &str| {
            let mut pod = whittle_api::k8s::Pod::default();
            pod.spec.node_selector.insert(key.to_owned(), "a".to_owned());
            crate::pods::node_constraint_errors(&pod, |_| false)
        };
        let told = |faults: Vec<String>| Reason::Ignored(faults).remedies().iter().map(ToString::to_string).collect::<Vec<_>>();
        let named = told(fault(labels::HOSTNAME));
        assert!(named.len() == 1 && named[0].starts_with("what it would take: the pod's node selector or affinity without"), "{named:?}");
        let other = fault("karpenter.sh/odd");
        assert!(!other.is_empty());
        assert_eq!(told(other), Vec::<String>::new());
    }

    #[test]
    fn a_class_is_named_and_one_that_is_new_takes_nothing() {
        let told = |why: Unready| {
            let cause = Cause::Unready(why);
            let rejection = PoolRejection::of_name("default", cause);
            Reason::Pools(vec![rejection]).remedies().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let class = || "EC2NodeClass \"a\"".to_owned();
        let begin = "what it would take (nodepool default): ";
        let missing = told(Unready::ClassMissing { class: class() });
        assert_eq!(missing, [format!("{begin}EC2NodeClass \"a\", or the name of another in spec.template.spec.nodeClassRef")]);
        let unready = told(Unready::Condition { object: class(), reason: "SubnetsNotFound".into(), message: String::new() });
        assert_eq!(unready, [format!("{begin}EC2NodeClass \"a\", ready: correct what its conditions report as SubnetsNotFound")]);
        assert_eq!(told(Unready::ClassNew { class: class() }), Vec::<String>::new());
    }
}
