//! Problems that a run found and that a person has to solve. Two metrics carry all of them, because CloudWatch bills each metric that an
//! alarm watches, even while nothing is wrong.

use crate::metrics::{self, Metric};
use crate::{Amount, Report};
use std::collections::BTreeSet;
use whittle_units::SignedDuration;

/// Whom it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Pods get no nodes, or none are drained: [`metrics::Problems`].
    Now,
    /// It can wait until somebody is at work: [`metrics::Warnings`].
    Later,
}

/// A problem, and the metric that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The value of the label `problem`.
    pub name: &'static str,
    pub urgency: Urgency,
    /// Any value of this metric shows it, from the threshold on if there is one.
    pub metric: &'static str,
    from: Option<SignedDuration>,
}

const fn problem(name: &'static str, urgency: Urgency, metric: &'static str) -> Problem {
    Problem { name, urgency, metric, from: None }
}

/// How long a pod waits before somebody should know.
pub const POD_WAITS_FROM: SignedDuration = SignedDuration::from_mins(15);

/// All problems.
pub const PROBLEMS: &[Problem] = &[
    Problem { from: Some(POD_WAITS_FROM), ..problem("pods_wait", Urgency::Now, metrics::PodsLongestWait::ENTRY.name) },
    problem("launches_refused", Urgency::Now, metrics::LaunchesRefused::ENTRY.name),
    problem("never_joined", Urgency::Now, metrics::NeverJoined::ENTRY.name),
    problem("schedule_silent", Urgency::Now, metrics::ScheduleSilent::ENTRY.name),
    problem("terminations_stalled", Urgency::Now, metrics::TerminationsStalled::ENTRY.name),
    problem("terminations_refused", Urgency::Later, metrics::TerminationsRefused::ENTRY.name),
    problem("launches_stalled", Urgency::Later, metrics::LaunchesStalled::ENTRY.name),
    problem("refresh_fails", Urgency::Later, metrics::RefreshFails::ENTRY.name),
    problem("nodeclaims_stuck", Urgency::Later, metrics::NodeClaimsStuck::ENTRY.name),
    problem("objects_unreadable", Urgency::Later, metrics::ObjectsUnreadable::ENTRY.name),
    problem("kinds_absent", Urgency::Later, metrics::KindsAbsent::ENTRY.name),
    problem("nodepool_missing", Urgency::Later, metrics::NodeClaimsWithoutNodePool::ENTRY.name),
    problem("karpenter_runs", Urgency::Later, metrics::HeldByKarpenter::ENTRY.name),
    problem("cluster_not_served", Urgency::Later, metrics::UnservedRings::ENTRY.name),
];

/// The problems that a run found, in the order of [`PROBLEMS`]. Pure.
pub fn found(report: &Report) -> impl Iterator<Item = &'static Problem> {
    let counted = report.metrics.iter().filter(|one| one.by > 0).map(|one| one.metric);
    let counted: BTreeSet<&str> = counted.collect();
    let is_shown = move |problem: &&Problem| {
        let exceeds = |amount: Amount| match (amount, problem.from) {
            (Amount::Time(time), Some(from)) => time >= from,
            (amount, _) => amount != Amount::Count(0),
        };
        let mut gauges = report.gauges.iter().filter(|gauge| gauge.metric == problem.metric);
        counted.contains(problem.metric) || gauges.any(|gauge| exceeds(gauge.amount))
    };
    PROBLEMS.iter().filter(is_shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{ALL, Kind};

    fn names(report: &Report) -> Vec<&'static str> {
        found(report).map(|problem| problem.name).collect()
    }

    #[test]
    fn a_run_without_problems_has_none() {
        let mut report = Report::default();
        report.metric(metrics::NodesCreated { nodepool: "default", zone: "a" });
        report.gauge(metrics::PodsLongestWait, SignedDuration::from_secs(899));
        report.gauge(metrics::KindsAbsent { kind: "NodePool" }, 0);
        report.metric_by(metrics::NeverJoined { nodepool: "default" }, 0);
        assert!(names(&report).is_empty(), "{:?}", names(&report));
    }

    #[test]
    fn each_problem_is_found_once() {
        let mut report = Report::default();
        report.gauge(metrics::PodsLongestWait, POD_WAITS_FROM);
        report.metric(metrics::LaunchesRefused { nodepool: "a", reason: "r" });
        report.metric(metrics::LaunchesRefused { nodepool: "b", reason: "r" });
        report.gauge(metrics::KindsAbsent { kind: "NodePool" }, 1);
        report.gauge(metrics::KindsAbsent { kind: "EC2NodeClass" }, 1);
        report.metric(metrics::HeldByKarpenter);
        report.metric(metrics::UnservedRings);
        assert_eq!(names(&report), ["pods_wait", "launches_refused", "kinds_absent", "karpenter_runs", "cluster_not_served"]);
    }

    #[test]
    fn the_catalogue_names_each_problem() {
        for (entry, urgency) in [(metrics::Problems::ENTRY, Urgency::Now), (metrics::Warnings::ENTRY, Urgency::Later)] {
            let named: Vec<String> = PROBLEMS.iter().filter(|one| one.urgency == urgency).map(|one| format!("`{}`", one.name)).collect();
            assert_eq!(entry.labels[0].values.trim(), named.join(", "));
        }
        for problem in PROBLEMS {
            let entry = ALL.iter().find(|entry| entry.name == problem.metric);
            assert!(entry.is_some_and(|entry| entry.kind != Kind::Distribution), "{}", problem.name);
        }
    }
}
