//! A second opinion on plans: deliberately simple, and apart from the solver. It shares types with it and no code, so that
//! a fault of the one is not a fault of both.
//!
//! A plan is checked against what kube-scheduler and EC2 will do with it: whatever machine a claim becomes, all its pods
//! and daemons must be able to run there.

mod claims;
mod commands;
mod kinds;
mod kube;
mod lists;
mod machines;
mod spread;
#[cfg(test)]
mod tests;
mod windows;

pub use commands::check_command;

use crate::schedule::{Input, LeftOut, Options, Plan, PodRef, Reason};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use whittle_api::k8s::Pod;

/// Whether a budget's window is open by the checker's own reading, to be held against that of the decision.
#[cfg(test)]
pub(crate) fn window_again(schedule: &str, length: jiff::SignedDuration, now: jiff::Timestamp) -> Option<bool> {
    windows::is_open(schedule, length, now)
}

/// What a pod takes by the checker's own reckoning, to be held against the solver's.
#[cfg(test)]
pub(crate) fn requests_again(pod: &Pod) -> whittle_units::Resources {
    kube::requests(pod)
}

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// A NodeClaim of the plan (`claim 3`), a node or a pod.
    pub object: String,
    /// A stable word for the rule.
    pub rule: &'static str,
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.object, self.rule, self.detail)
    }
}

/// Collects violations.
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

/// Everything that is wrong with `plan` as an answer to `input`; nothing when it may be executed.
#[must_use]
pub fn check(input: &Input<'_>, options: &Options, plan: &Plan) -> Vec<Violation> {
    let mut findings = Findings::default();
    let pods = pods_by_key(input);
    every_pod_once(&pods, plan, &mut findings);
    let lists = lists::Lists::of(input, plan);
    claims::check(input, options, plan, &lists, &pods, &mut findings);
    machines::check(input, options, plan, &pods, &mut findings);
    spread::check(input, plan, &lists, &pods, |_| true, &mut findings);
    findings.0.sort();
    findings.0.dedup();
    findings.0
}

/// The plan without the machines and placements that are wrong: one odd pod must not hold up all others. Its pods are left
/// out, with what was found. Says what is wrong with the rest; nothing when that may be executed.
#[must_use]
pub fn without_faults(input: &Input<'_>, options: &Options, mut plan: Plan) -> (Plan, Vec<Violation>) {
    let mut wrong = check(input, options, &plan);
    // What leans on something wrong is only found when that is gone.
    while !wrong.is_empty() {
        let fault = |object: &str| wrong.iter().find(|v| v.object == object).map(ToString::to_string);
        let mut out: Vec<(PodRef, String)> = Vec::new();
        let mut claims = Vec::with_capacity(plan.claims.len());
        for (n, claim) in plan.claims.into_iter().enumerate() {
            match fault(&format!("claim {n}")) {
                Some(found) => out.extend(claim.pods.into_iter().map(|pod| (pod, found.clone()))),
                None => claims.push(claim),
            }
        }
        let mut placements = Vec::with_capacity(plan.placements.len());
        for placement in plan.placements {
            match fault(&placement.node) {
                Some(found) => out.extend(placement.pods.into_iter().map(|pod| (pod, found.clone()))),
                None => placements.push(placement),
            }
        }
        plan.claims = claims;
        plan.placements = placements;
        if out.is_empty() {
            return (plan, wrong);
        }
        plan.left_out.extend(out.into_iter().map(|(pod, found)| LeftOut { pod, reason: Reason::RejectedByChecker(found) }));
        plan.left_out.sort_by(|a, b| a.pod.cmp(&b.pod));
        wrong = check(input, options, &plan);
    }
    (plan, wrong)
}

fn pods_by_key<'a>(input: &Input<'a>) -> BTreeMap<String, &'a Pod> {
    input.objects.pods.iter().chain(input.virtual_pods).map(|p| (p.metadata.key(), p)).collect()
}

/// No pod twice, no pod that is not there, no pod that has no business here, and none forgotten.
fn every_pod_once(pods: &BTreeMap<String, &Pod>, plan: &Plan, findings: &mut Findings) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let placed = plan.claims.iter().flat_map(|c| &c.pods).chain(plan.placements.iter().flat_map(|p| &p.pods));
    for pod in placed.chain(plan.left_out.iter().map(|l| &l.pod)) {
        let key = pod.key();
        findings.expect(seen.insert(key.clone()), &key, "pod-twice", || "the plan names it more than once".into());
        match pods.get(&key) {
            None => findings.add(&key, "pod-unknown", "there is no such pod"),
            Some(real) => {
                findings.expect(real.metadata.uid == pod.uid, &key, "pod-unknown", || format!("uid {} is another pod's", pod.uid));
                findings.expect(!real.is_terminal(), &key, "pod-finished", || format!("its phase is {}", real.status.phase));
                let daemon = real.metadata.owner_references.iter().any(|o| o.kind == "DaemonSet");
                findings.expect(!daemon, &key, "pod-of-daemonset", || "its DaemonSet places it".into());
            }
        }
    }
    for (key, pod) in pods {
        let gave_up = pod.status.conditions.iter().any(|c| c.type_ == "PodScheduled" && c.reason == "Unschedulable");
        let foreign = pod.metadata.owner_references.iter().any(|o| o.kind == "DaemonSet" || o.kind == "Node");
        let ours = gave_up && pod.spec.node_name.is_empty() && pod.status.nominated_node_name.is_empty() && !foreign;
        findings.expect(!ours || seen.contains(key), key, "pod-forgotten", || "it is pending and the plan does not mention it".into());
    }
}
