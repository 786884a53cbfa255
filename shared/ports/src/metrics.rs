//! Every metric that Whittle emits: its name, labels, unit and meaning, and which functions emit it.
//!
//! A function gives [`crate::Report::metric`], [`crate::Report::gauge`] or [`crate::Report::observe`] a value of one of these types. The
//! tables of `docs/metrics.md` are made from [`ALL`] by `cargo xtask metrics`. Names and labels are Karpenter's where it has such a metric.

mod entry;

pub use entry::{CounterMetric, DistributionMetric, Entry, GaugeMetric, Kind, Label, Metric, Unit};

use entry::catalogue;
use std::collections::BTreeMap;
use whittle_claims::{Claim, Function};
use whittle_units::{Price, Quantity, SignedDuration};

/// Which metrics CloudWatch gets. Everything is logged at every level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// What alarms are based on, nearly all of it absent as long as nothing is wrong, and the cost of nodes.
    #[default]
    Basic,
    /// All of them.
    Full,
}

/// The metrics of [`Level::Basic`].
const BASIC: &[&str] =
    &[FailedRuns::ENTRY.name, Problems::ENTRY.name, Warnings::ENTRY.name, PodsLongestWait::ENTRY.name, NodesDollarsPerHour::ENTRY.name];

impl Level {
    /// Whether CloudWatch gets a metric.
    #[must_use]
    pub fn has(self, metric: &str) -> bool {
        self == Self::Full || BASIC.contains(&metric)
    }
}

/// CloudWatch's namespace of all metrics, unless the operator sets another.
pub const NAMESPACE: &str = "Whittle";

/// The dimension that all metrics have.
pub const CLUSTER: &str = "cluster";

catalogue! {
    runs {
        /// one for each run
        counter Runs = "runs" from every {
            function,
            /// `ok`, or how the failure is handled: `retry_later`, `replan`, `drop`, `fail`
            outcome,
        }
        /// duration of the run
        timer(Milliseconds) RunDuration = "duration_ms" from every { function, outcome }
        /// one for each failed run (`outcome` is `retry_later` or `drop`), two for one that needs a person (`fail`). For `terminate`,
        /// also each run for a NodeClaim in which the API server did not respond or refused a request, and for `consolidate` each
        /// Node whose disruption taint it refuses. Absent without failures.
        /// `FailedRunsAlarm` is based on it: an unreachable API server, a throttled table or a wrong setting of one cluster shows
        /// here within a minute
        counter FailedRuns = "whittle_failed_runs" from every { function }
        /// one for each run that found a problem because of which pods get no nodes, or none are drained, until a person does something.
        /// Absent without problems. `ProblemsAlarm` is based on it
        counter Problems = "whittle_problems" from every {
            /// `pods_wait`, `launches_refused`, `never_joined`, `schedule_silent`, `terminations_stalled`
            problem,
        }
        /// the same for problems that can wait: what they concern is left as it is. `WarningsAlarm` is based on it
        counter Warnings = "whittle_warnings" from every {
            /// `terminations_refused`, `launches_stalled`, `refresh_fails`, `nodeclaims_stuck`,
            /// `objects_unreadable`, `kinds_absent`, `nodepool_missing`, `karpenter_runs`,
            /// `cluster_not_served`
            problem,
        }
    }

    nodes {
        /// NodeClaims that were created
        counter NodeClaimsCreated = "karpenter_nodeclaims_created_total" from [Schedule, Consolidate] {
            /// `provisioned`, `empty`, `drifted`, `underutilized`
            reason,
            nodepool,
            min_values_relaxed,
        }
        /// NodeClaims whose deletion was requested
        counter NodeClaimsDisrupted = "karpenter_nodeclaims_disrupted_total" from [Consolidate, Interrupt, Launch, Register, Sweep] {
            reason,
            nodepool,
            capacity_type,
            consolidation_policy,
            termination_mode,
        }
        /// NodeClaims that were deleted because of a condition of their Node
        counter NodeClaimsUnhealthyDisrupted = "karpenter_nodeclaims_unhealthy_disrupted_total" from [Sweep] {
            condition,
            nodepool,
            capacity_type,
            image_id,
        }
        /// instances that were given up because of a failed status check or a scheduled event
        counter InstanceStatusUnhealthy = "karpenter_interruption_instance_status_unhealthy_total" from [Sweep] {
            /// `instance_status`, `system_status`, `event_status`
            category,
        }
        /// NodeClaims whose instance has terminated
        counter NodeClaimsTerminated = "karpenter_nodeclaims_terminated_total" from [Terminate] { nodepool, capacity_type, zone }
        /// launches that need user action, such as a missing service-linked role for spot or a denied permission
        counter LaunchesRefused = "whittle_launches_refused_total" from [Launch, Terminate] {
            nodepool,
            /// as in the NodeClaim's condition `Launched`
            reason,
        }
        /// machines that were started, did not join their cluster in time and are terminated
        counter NeverJoined = "whittle_nodeclaims_never_joined_total" from [Register] { nodepool }
        /// errors that EC2 reported for pools of a fleet
        counter InstanceLaunchFailures = "karpenter_cloudprovider_instance_launch_failures_total" from [Launch] {
            /// `none` if EC2 names none
            zone,
            /// `none` if it is not known
            zone_id,
            capacity_type,
            /// as in the NodeClaim's condition `Launched`; `LaunchFailed` for a lack of capacity
            reason,
        }
        /// terminations that EC2 refuses until a user fixes the cause; retried every 30 seconds
        counter TerminationsRefused = "whittle_terminations_refused_total" from [Terminate] {
            nodepool,
            /// `Unauthorized`, `TerminationProtection`, `Refused`
            reason,
        }
        /// Nodes that were registered
        counter NodesCreated = "karpenter_nodes_created_total" from [Register] { nodepool, zone }
        /// Nodes that were drained
        counter NodesDrained = "karpenter_nodes_drained_total" from [Terminate] { nodepool }
        /// Nodes whose instance has terminated
        counter NodesTerminated = "karpenter_nodes_terminated_total" from [Terminate] { nodepool, zone }
        /// from the request of the deletion to the end
        gauge(Seconds) NodeClaimsTerminationDuration = "karpenter_nodeclaims_termination_duration_seconds" from [Terminate] { nodepool }
        /// from EC2's TerminateInstances to the end
        gauge(Seconds) NodeClaimsInstanceTerminationDuration = "karpenter_nodeclaims_instance_termination_duration_seconds"
            from [Terminate] { nodepool }
        /// from the deletion of the Node to its end
        gauge(Seconds) NodesTerminationDuration = "karpenter_nodes_termination_duration_seconds" from [Terminate] { nodepool }
        /// age of the Node at its end
        gauge(Seconds) NodesLifetimeDuration = "karpenter_nodes_lifetime_duration_seconds" from [Terminate] { nodepool }
        /// resources of the pool's nodes, as in its status
        gauge(Resource) NodePoolsUsage = "karpenter_nodepools_usage" from [Sweep] { nodepool, resource_type }
        /// the pool's `limits`
        gauge(Resource) NodePoolsLimit = "karpenter_nodepools_limit" from [Sweep] { nodepool, resource_type }
        /// cost of the pool's machines
        gauge(DollarsPerHour) NodePoolsCost = "karpenter_nodepools_cost_total" from [Sweep] { nodepool }
        /// cost of all machines; absent if there are none
        gauge(DollarsPerHour) NodesDollarsPerHour = "whittle_nodes_dollars_per_hour" from [Sweep] {}
        /// machines whose claim was restored
        counter NodeClaimsAdopted = "whittle_nodeclaims_adopted_total" from [Sweep] { nodepool }
        /// runs that changed nothing because Karpenter runs in the cluster
        counter HeldByKarpenter = "whittle_held_by_karpenter_total" from [Sweep] {}
        /// calls, by a webhook or a watcher that is authenticated, and doorbells in queues, for a cluster that the parameter `Clusters`
        /// does not name; the dimension `cluster` is `all`, and the log of the function has the name
        counter UnservedRings = "whittle_unserved_rings_total"
            from [Relay, Schedule, Launch, Register, Consolidate, Terminate, Refresh, Sweep] {}
        /// claims in each phase
        gauge(Count) NodeClaims = "whittle_nodeclaims" from [Sweep] { nodepool, phase }
        /// claims that have been in one phase for longer than normal; absent if there are none
        gauge(Count) NodeClaimsStuck = "whittle_nodeclaims_stuck" from [Sweep] { nodepool, phase }
        /// 1 if no run of schedule has ended well for ten minutes; absent otherwise
        gauge(Count) ScheduleSilent = "whittle_schedule_silent" from [Sweep] {}
        /// 1 if refresh has failed for half an hour, without a run that ended well; absent otherwise
        gauge(Count) RefreshFails = "whittle_refresh_fails" from [Sweep] {}
        /// claims whose launch has been due for two minutes, while launch is rung for it every minute; absent if there are none
        gauge(Count) LaunchesStalled = "whittle_launches_stalled" from [Sweep] {}
        /// claims of which a step of the termination has been due for five minutes, while terminate is rung for it every minute; absent if
        /// there are none
        gauge(Count) TerminationsStalled = "whittle_terminations_stalled" from [Sweep] {}
        /// live claims whose pool is missing; absent if there are none
        gauge(Count) NodeClaimsWithoutNodePool = "whittle_nodeclaims_without_nodepool" from [Sweep] { nodepool }
        /// objects that exist but cannot be read; absent if there are none. Sweep reports Karpenter's kinds and Nodes,
        /// consolidate all others
        gauge(Count) ObjectsUnreadable = "whittle_objects_unreadable" from [Consolidate, Sweep] {
            /// `stored NodeClaim` is a claim in the table, from sweep
            kind,
        }
        /// 1 for a current kind that the API server does not serve; absent otherwise
        gauge(Count) KindsAbsent = "whittle_kinds_absent" from [Sweep] { kind }
    }

    cloud {
        /// TerminateInstances calls for an instance that failed, without those that a zonal shift holds
        counter InstanceTerminationFailures = "karpenter_cloudprovider_instance_termination_failures_total" from [Terminate] {
            zone,
            /// `none` if it is not known
            zone_id,
        }
        /// instances whose calls were made as one
        distribution(Count) BatchSize = "karpenter_cloudprovider_batcher_batch_size" from [Launch, Register, Sweep, Terminate] {
            /// `create_fleet`, `describe_instances`, `terminate_instances`
            batcher,
        }
        /// how long the first of a batch waited for its call; of `create_fleet` from the creation of the NodeClaim
        distribution(Seconds) BatchTime = "karpenter_cloudprovider_batcher_batch_time_seconds" from [Launch, Register, Sweep, Terminate] { batcher }
        /// runs while the region's on-demand prices, or some of them, cannot be read: the latest ones or a built-in table stand in, and
        /// types without a price there are not launched. Absent otherwise
        counter PricesNotRead = "whittle_prices_not_read_total" from [Refresh] {}
        /// size of the user data of the last launch
        gauge(Bytes) UserDataBytes = "karpenter_ec2nodeclasses_userdata_bytes" from [Launch] { nodeclass }
        /// only of types that the parameter `OfferingMetrics` names
        gauge(Resource) InstanceTypeCpuCores = "karpenter_cloudprovider_instance_type_cpu_cores" from [Sweep] { instance_type }
        /// as estimated or reported by nodes; only of types that the parameter `OfferingMetrics` names
        gauge(Resource) InstanceTypeMemoryBytes = "karpenter_cloudprovider_instance_type_memory_bytes" from [Sweep] { instance_type }
        /// 1 if a NodePool can launch the type there now, else 0; only of types that the parameter `OfferingMetrics` names
        gauge(Count) OfferingAvailable = "karpenter_cloudprovider_instance_type_offering_available" from [Sweep] {
            instance_type,
            capacity_type,
            zone,
        }
        /// also in zones without subnets; only of types that the parameter `OfferingMetrics` names
        gauge(DollarsPerHour) OfferingPrice = "karpenter_cloudprovider_instance_type_offering_price_estimate" from [Sweep] {
            instance_type,
            capacity_type,
            zone,
        }
    }

    pods {
        /// pending pods in the plan
        gauge(Count) SchedulerQueueDepth = "karpenter_scheduler_queue_depth" from [Schedule] { controller }
        /// pods that Whittle ignores
        gauge(Count) SchedulerIgnoredPods = "karpenter_scheduler_ignored_pods_count" from [Schedule] {}
        /// unschedulable pods, without those that wait for a reservation or for the next run
        gauge(Count) SchedulerUnschedulablePods = "karpenter_scheduler_unschedulable_pods_count" from [Schedule] { controller }
        /// longest time since the scheduler first failed to schedule a pod of the plan; absent if no pod
        /// is pending
        gauge(Seconds) PodsLongestWait = "whittle_pods_longest_wait_seconds" from [Schedule] {}
        /// duration of the planning
        gauge(Seconds) SchedulingDuration = "karpenter_scheduler_scheduling_duration_seconds" from [Schedule] { controller }
        /// pods on nodes of started commands, and on nodes that have expired or are unhealthy once their drain begins
        counter PodsDisruptionInitiated = "karpenter_pods_disruption_initiated_total" from [Consolidate, Terminate] {
            reason,
            nodepool,
            capacity_type,
            consolidation_policy,
            termination_mode,
        }
        /// pods that were evicted, or deleted to meet a deadline
        counter PodsDrained = "karpenter_pods_drained_total" from [Terminate] { reason }
        /// responses to eviction requests
        counter PodsEvictionRequests = "karpenter_pods_eviction_requests_total" from [Terminate] {
            /// `200`, `429`, `500`
            code,
        }
    }

    disruption {
        /// duration of a method that had nodes to evaluate; the first of a pass includes the work that all share
        gauge(Seconds) DecisionEvaluationDuration = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds"
            from [Consolidate] { reason, consolidation_type }
        /// commands that were started
        counter Decisions = "karpenter_voluntary_disruption_decisions_total" from [Consolidate] {
            /// `delete`, `replace`
            decision,
            reason,
            consolidation_type,
        }
        /// started commands, once for each pool of their nodes
        counter DecisionsByNodePool = "karpenter_voluntary_disruption_decisions_by_nodepool_total" from [Consolidate] {
            decision,
            reason,
            consolidation_type,
            nodepool,
        }
        /// nodes that are eligible for a method
        gauge(Count) EligibleNodes = "karpenter_voluntary_disruption_eligible_nodes" from [Consolidate] { reason }
        /// passes that ran out of simulations without finding a command
        counter ConsolidationTimeouts = "karpenter_voluntary_disruption_consolidation_timeouts_total" from [Consolidate] {
            consolidation_type,
        }
        /// nodes that failed validation: in use, nominated or over a budget
        counter FailedValidations = "karpenter_voluntary_disruption_failed_validations_total" from [Consolidate] { consolidation_type }
        /// replacements that never initialized, of commands that were rolled back
        counter QueueFailures = "karpenter_voluntary_disruption_queue_failures_total" from [Consolidate] {
            decision,
            reason,
            consolidation_type,
        }
        /// possible single-node commands; of multi-node commands the chosen one, or the last that a score
        /// rejected
        counter ConsolidationMoves = "karpenter_consolidation_moves_total" from [Consolidate] {
            /// `approved`, `rejected`
            decision,
            nodepool,
            policy,
        }
        /// score under the policy Balanced; 0.5 approves
        gauge(Score) ConsolidationScore = "karpenter_consolidation_score" from [Consolidate] {
            /// `approved`, `rejected`
            decision,
            nodepool,
            policy,
        }
        /// disruptions that the budgets still allow
        gauge(Count) NodePoolsAllowedDisruptions = "karpenter_nodepools_allowed_disruptions" from [Consolidate] { nodepool, reason }
        /// nodes that are being deleted or not ready
        gauge(Count) NodePoolsNodesConsumingBudgets = "karpenter_nodepools_nodes_consuming_budgets" from [Consolidate] {
            nodepool,
            reason,
        }
        /// savings of a finished command from then on; to be summed
        gauge(DollarsPerHour) SavedDollarsPerHour = "whittle_saved_dollars_per_hour" from [Consolidate] { nodepool }
    }

    interruptions {
        /// messages that were decoded
        counter InterruptionMessages = "karpenter_interruption_received_messages_total" from [Interrupt] { message_type }
        /// messages that were handled; one that failed is delivered again
        counter InterruptionMessagesDeleted = "karpenter_interruption_deleted_messages_total" from [Interrupt] {}
        /// from the time of the event to its handling
        distribution(Seconds) InterruptionQueueDuration = "karpenter_interruption_message_queue_duration_seconds" from [Interrupt] {}
    }
}

impl<'a> NodeClaimsDisrupted<'a> {
    /// That of a claim which no command of `consolidate` disrupts. `reason` is Karpenter's word for it.
    #[must_use]
    pub fn of(claim: &'a Claim, reason: &'a str) -> Self {
        Self {
            reason,
            nodepool: &claim.spec.node_pool,
            capacity_type: claim.machine().map_or("", |machine| machine.capacity_type.as_str()),
            consolidation_policy: "",
            termination_mode: claim.termination_mode(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Report;

    #[test]
    fn no_two_entries_share_a_name_or_a_label() {
        let mut names: Vec<&str> = ALL.iter().map(|entry| entry.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        for entry in ALL {
            let labels: BTreeMap<&str, &str> = entry.labels.iter().map(|label| (label.name, label.values)).collect();
            assert_eq!(labels.len(), entry.labels.len(), "{}", entry.name);
            assert!(!labels.contains_key(CLUSTER) && !entry.help.is_empty() && !entry.writers.is_empty(), "{}", entry.name);
        }
    }

    #[test]
    fn a_gauge_is_reported_with_its_name_and_labels() {
        let mut report = Report::default();
        report.gauge(NodePoolsLimit { nodepool: "default", resource_type: "cpu" }, Quantity::from_units(2));
        report.metric_by(Decisions { decision: "delete", reason: "empty", consolidation_type: "empty" }, 2);
        let (gauge, counted) = (&report.gauges[0], &report.metrics[0]);
        assert_eq!(gauge.metric, "karpenter_nodepools_limit");
        assert_eq!(gauge.labels, BTreeMap::from([("nodepool", "default".to_owned()), ("resource_type", "cpu".to_owned())]));
        assert_eq!((counted.metric, counted.labels.len(), counted.by), ("karpenter_voluntary_disruption_decisions_total", 3, 2));
    }
}
