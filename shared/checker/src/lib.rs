//! Checks plans and commands a second time. It is deliberately simple and shares types but no code with the solver, so
//! that a bug in one is not a bug in both.
//!
//! A plan is checked against what kube-scheduler and EC2 will do with it: whichever type a claim is launched with, all
//! its pods and daemons must be able to run there.

// What is checked.
mod claims; // NodeClaims of a plan
mod claim_groups; // those that differ in their pods alone
mod machines; // nodes that receive pods
mod topology; // affinity and spread
mod daemons; // anti-affinity between new pods and those of DaemonSets
mod commands; // of a disruption

// By which facts.
mod kube; // what Kubernetes makes of a pod
mod launchable; // what a claim may be launched as
mod pool_domains; // where machines of NodePools could be
mod shares; // whose rules are left to kube-scheduler
mod type_lists; // lists of instance types, looked up once
mod windows; // of disruption budgets

#[cfg(test)]
mod tests;

pub use commands::check_command;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use whittle_api::k8s::Pod;
use whittle_model::scheduling::{Input, LeftOut, Options, Plan, PodRef, Reason};

/// Whether the checker considers a budget window active, for comparison with the decision.
pub fn window_is_open(schedule: &str, length: jiff::SignedDuration, now: jiff::Timestamp) -> Option<bool> {
    windows::is_open(schedule, length, now)
}

/// The requests that the checker computes for a pod, for comparison with the solver.
pub fn pod_requests(pod: &Pod) -> whittle_units::Resources {
    kube::requests(pod)
}

/// A rule that a plan or command violates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// A NodeClaim of the plan (`claim 3`), a node or a pod.
    pub object: String,
    /// A stable identifier of the rule.
    pub rule: &'static str,
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.object, self.rule, self.detail)
    }
}

#[derive(Default)]
pub(crate) struct Findings(Vec<Violation>);

impl Findings {
    pub(crate) fn add(&mut self, object: &str, rule: &'static str, detail: impl Into<String>) {
        self.0.push(Violation { object: object.to_owned(), rule, detail: detail.into() });
    }

    pub(crate) fn expect(&mut self, holds: bool, object: &str, rule: &'static str, detail: impl FnOnce() -> String) {
        if !holds {
            self.add(object, rule, detail());
        }
    }
}

/// Everything that is wrong with `plan` as an answer to `input`; empty when it may be executed.
#[must_use]
pub fn check(input: &Input<'_>, options: &Options, plan: &Plan) -> Vec<Violation> {
    let mut findings = Findings::default();
    let pods = pods_by_key(input);
    every_pod_once(&pods, plan, &mut findings);
    let lists = type_lists::TypeLists::of(input, plan);
    claims::check(input, options, plan, &lists, &pods, &mut findings);
    machines::check(input, options, plan, &pods, &mut findings);
    topology::check(input, plan, &lists, &pods, |_| true, &mut findings);
    daemons::check(input, plan, &lists, &pods, &mut findings);
    findings.0.sort();
    findings.0.dedup();
    findings.0
}

/// The plan without the claims and placements that violate a rule, so that one bad pod does not block all others. Their
/// pods are left out, with the violation as reason. Also returns the violations of the remaining plan; empty when it
/// may be executed.
#[must_use]
pub fn without_violations(input: &Input<'_>, options: &Options, mut plan: Plan) -> (Plan, Vec<Violation>) {
    let mut violations = check(input, options, &plan);
    // Violations that depend on a removed claim or placement only show after it has been removed.
    while !violations.is_empty() {
        let mut by_object: BTreeMap<&str, &Violation> = BTreeMap::new();
        for violation in &violations {
            by_object.entry(violation.object.as_str()).or_insert(violation);
        }
        let violation_of = |object: &str| by_object.get(object).map(ToString::to_string);
        // What is wrong with a pod is wrong with whatever takes it.
        let of_pods = |pods: &[PodRef]| pods.iter().find_map(|pod| violation_of(&pod.key()));
        let mut removed_pods: Vec<(PodRef, String)> = Vec::new();
        let mut claims = Vec::with_capacity(plan.claims.len());
        for (n, claim) in plan.claims.into_iter().enumerate() {
            match violation_of(&format!("claim {n}")).or_else(|| of_pods(&claim.pods)) {
                Some(found) => removed_pods.extend(claim.pods.into_iter().map(|pod| (pod, found.clone()))),
                None => claims.push(claim),
            }
        }
        let mut placements = Vec::with_capacity(plan.placements.len());
        for placement in plan.placements {
            match violation_of(&placement.node).or_else(|| of_pods(&placement.pods)) {
                Some(found) => removed_pods.extend(placement.pods.into_iter().map(|pod| (pod, found.clone()))),
                None => placements.push(placement),
            }
        }
        plan.claims = claims;
        plan.placements = placements;
        if removed_pods.is_empty() {
            return (plan, violations);
        }
        plan.left_out.extend(removed_pods.into_iter().map(|(pod, found)| LeftOut { pod, reason: Reason::RejectedByChecker(found) }));
        plan.left_out.sort_by(|a, b| a.pod.cmp(&b.pod));
        violations = check(input, options, &plan);
    }
    (plan, violations)
}

/// Pods of `part`, which is what is to be carried out of the plan `whole`, that could not be bound without the rest of it, by key: they
/// require a pod near to them that has no machine now, or are spread with some that have none.
#[must_use]
pub fn stranded(input: &Input<'_>, whole: &Plan, part: &Plan) -> BTreeSet<String> {
    topology::stranded(input, (whole, part), &pods_by_key(input))
}

fn pods_by_key<'a>(input: &Input<'a>) -> BTreeMap<String, &'a Pod> {
    input.objects.pods.iter().chain(input.virtual_pods).map(|p| (p.metadata.key(), p)).collect()
}

/// No pod appears twice, none is unknown, none that must not be planned is placed, and none is missing. Pods that are left out do no harm.
fn every_pod_once(pods: &BTreeMap<String, &Pod>, plan: &Plan, findings: &mut Findings) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let placed = plan.claims.iter().flat_map(|c| &c.pods).chain(plan.placements.iter().flat_map(|p| &p.pods));
    let left_out = plan.left_out.iter().map(|left| (&left.pod, false));
    for (pod, is_placed) in placed.map(|pod| (pod, true)).chain(left_out) {
        let key = pod.key();
        findings.expect(seen.insert(key.clone()), &key, "pod-twice", || "the plan names it more than once".into());
        match pods.get(&key) {
            None => findings.add(&key, "pod-unknown", "there is no such pod"),
            Some(real) => {
                findings.expect(real.metadata.uid == pod.uid, &key, "pod-unknown", || format!("uid {} is another pod's", pod.uid));
                let has_ended = is_placed && real.is_terminal();
                findings.expect(!has_ended, &key, "pod-finished", || format!("its phase is {}", real.status.phase));
                let daemon = is_placed && real.metadata.owner_references.iter().any(|o| o.kind == "DaemonSet");
                findings.expect(!daemon, &key, "pod-of-daemonset", || "its DaemonSet places it".into());
            }
        }
    }
    for (key, pod) in pods {
        let is_unschedulable = pod.status.conditions.iter().any(|c| c.type_ == "PodScheduled" && c.reason == "Unschedulable");
        let is_placed_by_owner = pod.metadata.owner_references.iter().any(|o| o.kind == "DaemonSet" || o.kind == "Node");
        let is_going = pod.is_terminal() || pod.metadata.is_deleting();
        let must_be_planned = is_unschedulable
            && !is_going
            && pod.spec.node_name.is_empty()
            && pod.status.nominated_node_name.is_empty()
            && !is_placed_by_owner;
        findings.expect(!must_be_planned || seen.contains(key), key, "pod-forgotten", || {
            "it is pending and the plan does not mention it".into()
        });
    }
}
