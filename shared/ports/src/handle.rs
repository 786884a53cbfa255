//! What every handler takes and gives: the world, its settings, a report, an error with a disposition.
//!
//! Every function's library has `pub async fn handle(world: World<..>, settings: &Settings, ..) -> Result<Report, HandleError>`:
//! `schedule`, `consolidate`, `register`, `refresh` and `sweep` take `cluster: &ClusterName`; `launch` takes `cluster` and
//! `claims: &[ClaimName]` (empty: all that are due); `terminate` takes `claim: &ClaimKey`; `interrupt` takes the message's
//! `body: &str`; `relay` takes a `Request` and also answers a `Response`. Handlers append to the decision log themselves;
//! the report is for the caller's log, metrics and timeline.

use crate::fences::NamePatterns;
use crate::{ClaimStore, CloudError, CloudErrorKind, ClusterError, QueueError, StoreError};
use std::collections::BTreeMap;
use std::fmt;
use whittle_api::k8s::TopologySpreadConstraint;
use whittle_api::objective::{MACHINE_COST, Objective};
use whittle_claims::{Claim, DecisionKind, DecisionRecord, Event, IllegalStep, Stored, step};
use whittle_units::{ClusterName, Price, Quantity, SignedDuration, Timestamp};

/// The adapters of one invocation. A handler's bounds on the type parameters are its rights.
#[derive(Debug)]
pub struct World<'a, S, C, K, Q, T> {
    /// State at rest.
    pub store: &'a S,
    /// EC2 and its neighbours.
    pub cloud: &'a C,
    /// The Kubernetes API.
    pub cluster: &'a K,
    pub queues: &'a Q,
    pub clock: &'a T,
}

impl<S, C, K, Q, T> Clone for World<'_, S, C, K, Q, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S, C, K, Q, T> Copy for World<'_, S, C, K, Q, T> {}

/// What an operator sets for a deployment; the same for every function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The clusters that the deployment serves; doorbells for others are refused.
    pub clusters: Vec<ClusterName>,
    /// Decide and record, change nothing.
    pub shadow: bool,
    /// Instance profile of node classes made from alpha templates that name neither role nor profile.
    pub default_instance_profile: Option<String>,
    /// Role for the same; ignored when the profile is set.
    pub default_node_role: Option<String>,
    /// Feature gate `SpotToSpotConsolidation`.
    pub spot_to_spot: bool,
    /// How long a decided consolidation waits before it is looked at again (the reference: 15 s).
    pub validation_delay: SignedDuration,
    /// Whether a rebalance recommendation ends a node (the reference only records it).
    pub act_on_rebalance: bool,
    /// Feature gate `NodeRepair`: nodes that report themselves broken for too long are replaced.
    pub node_repair: bool,
    /// Feature gate `StaticCapacity`: NodePools with `replicas` hold that many machines; off, such pools are let be.
    pub static_capacity: bool,
    /// How pods are planned for.
    pub scheduling: Scheduling,
    /// Names of the roles that nodes may have, with `*` and `?`; empty where IAM alone says so.
    pub node_roles: Vec<String>,
    /// The same of single clusters.
    pub cluster_node_roles: NamePatterns,
    /// Secrets that those of the clusters' webhooks follow from, newest first; requests that do not name one are refused.
    /// None refuses all.
    pub relay_secrets: Vec<String>,
    /// Names of the roles that may ring for a cluster with a signature; any may where none is named.
    pub relay_callers: NamePatterns,
}

/// How pods are planned for, in provisioning and in consolidation alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// Soft wishes of pods have no effect (the reference: `PREFERENCE_POLICY=Ignore`).
    pub ignore_preferences: bool,
    /// `minValues` that cannot be met are lowered (the reference: `MIN_VALUES_POLICY=BestEffort`).
    pub lower_min_values: bool,
    /// Feature gate `ReservedCapacity`.
    pub reserved_capacity: bool,
    /// Work units of one planning run, whatever the speed of the machine; the next run goes on with the rest.
    pub work_budget: u64,
    /// Spread constraints of pods that have none of their own (the reference: `SCHEDULER_CONFIG`).
    pub default_spread: Vec<TopologySpreadConstraint>,
    /// Which plan is the best of those that place as many pods.
    pub objective: Objective,
    /// What a machine costs besides its price and its volumes, per hour.
    pub machine_cost: Price,
    /// Pack as the reference does, and choose its commands: for comparisons, in the simulator.
    pub reference_packing: bool,
}

/// What a planning run may spend. A unit takes about a microsecond of one core, 0.4 to 1.3 on inputs that are long enough to
/// matter (the example `scheduling` of the core prints both, built for release, for the benchmark and for `benches/odd.rs`),
/// so that a run that uses up its budget takes some four seconds of a core: seven at the function's 1,024 MB, fourteen if the
/// checker has it packed anew, of the 30 it may take.
const WORK_BUDGET: u64 = 4_000_000;

impl Default for Scheduling {
    fn default() -> Self {
        Self {
            ignore_preferences: false,
            lower_min_values: false,
            reserved_capacity: true,
            work_budget: WORK_BUDGET,
            default_spread: Vec::new(),
            objective: Objective::Balanced,
            machine_cost: MACHINE_COST,
            reference_packing: false,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            clusters: Vec::new(),
            shadow: false,
            default_instance_profile: None,
            default_node_role: None,
            spot_to_spot: false,
            validation_delay: SignedDuration::from_secs(15),
            act_on_rebalance: false,
            node_repair: false,
            static_capacity: true,
            scheduling: Scheduling::default(),
            node_roles: Vec::new(),
            cluster_node_roles: NamePatterns::default(),
            relay_secrets: Vec::new(),
            relay_callers: NamePatterns::default(),
        }
    }
}

/// One increment of a counter, under the reference's metric name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counted {
    pub metric: &'static str,
    pub labels: BTreeMap<&'static str, String>,
    pub by: u64,
}

/// What a gauge shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Amount {
    Count(u64),
    /// A resource in thousandths of its unit.
    Quantity(Quantity),
    Time(SignedDuration),
    /// Dollars, an hour where it is a price.
    Dollars(Price),
}

/// A state as it was when the invocation looked, or how long something took, under the reference's metric name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gauge {
    pub metric: &'static str,
    pub labels: BTreeMap<&'static str, String>,
    pub amount: Amount,
}

/// What an invocation did: for the log, the decision log, the metrics and the simulator's timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order in which they happened.
    pub decisions: Vec<DecisionRecord>,
    /// How often what was done, by word (`created`, `evicted`, …).
    pub counts: BTreeMap<&'static str, u64>,
    pub metrics: Vec<Counted>,
    pub gauges: Vec<Gauge>,
}

impl Report {
    /// Notes a decision.
    pub fn decide(&mut self, at: Timestamp, kind: DecisionKind, subject: impl Into<String>, message: impl Into<String>) {
        self.explain(at, kind, subject, message, serde_json::Value::Null);
    }
    /// Notes a decision with the structure behind it.
    pub fn explain(
        &mut self,
        at: Timestamp,
        kind: DecisionKind,
        subject: impl Into<String>,
        message: impl Into<String>,
        detail: serde_json::Value,
    ) {
        self.decisions.push(DecisionRecord { at, kind, subject: subject.into(), message: message.into(), detail });
    }
    /// Counts one more of what `word` says.
    pub fn count(&mut self, word: &'static str) {
        *self.counts.entry(word).or_default() += 1;
    }
    /// How often `word` was counted.
    pub fn counted(&self, word: &str) -> u64 {
        self.counts.get(word).copied().unwrap_or(0)
    }
    /// Raises a metric by one.
    pub fn metric<const N: usize>(&mut self, metric: &'static str, labels: [(&'static str, &str); N]) {
        self.metric_by(metric, labels, 1);
    }
    /// Raises a metric.
    pub fn metric_by<const N: usize>(&mut self, metric: &'static str, labels: [(&'static str, &str); N], by: u64) {
        let labels = labels.into_iter().map(|(key, value)| (key, value.to_owned())).collect();
        self.metrics.push(Counted { metric, labels, by });
    }
    /// Shows a state.
    pub fn gauge<const N: usize>(&mut self, metric: &'static str, labels: [(&'static str, &str); N], amount: Amount) {
        let labels = labels.into_iter().map(|(key, value)| (key, value.to_owned())).collect();
        self.gauges.push(Gauge { metric, labels, amount });
    }
    /// Takes over what a part of the work reported.
    pub fn absorb(&mut self, other: Self) {
        self.decisions.extend(other.decisions);
        self.metrics.extend(other.metrics);
        self.gauges.extend(other.gauges);
        for (word, count) in other.counts {
            *self.counts.entry(word).or_default() += count;
        }
    }
}

impl fmt::Display for Report {
    /// `created 2, skipped 1`, or `nothing to do`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.counts.is_empty() {
            return f.write_str("nothing to do");
        }
        for (n, (word, count)) in self.counts.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{word} {count}")?;
        }
        Ok(())
    }
}

/// What the caller of a handler does about a failure. The word is the metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Disposition {
    /// The same message again, later: somebody else was first, or something was slow.
    RetryLater,
    /// What was decided no longer holds; the next doorbell decides anew.
    Replan,
    /// The message can never be handled.
    Drop,
    /// A person has to look; retrying alone will not help.
    Fail,
}

impl Disposition {
    /// The word in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetryLater => "retry_later",
            Self::Replan => "replan",
            Self::Drop => "drop",
            Self::Fail => "fail",
        }
    }
}

/// Why a handler stopped before its end. What it had written stays; the next run goes on from there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    #[error("the store stopped the work")]
    Store(#[from] StoreError),
    #[error("the cluster stopped the work")]
    Cluster(#[from] ClusterError),
    #[error("AWS stopped the work")]
    Cloud(#[from] CloudError),
    #[error("a queue stopped the work")]
    Queue(#[from] QueueError),
    #[error("{what} cannot be read: {reason}")]
    Unreadable { what: String, reason: String },
    /// What was read contradicts what was to be written; the state is read anew next time.
    #[error("the claim stopped the work")]
    Illegal(#[from] IllegalStep),
    /// Others wrote what was to be written at every try. The message says what no later read would: it has to come again.
    #[error("{what} was written by others at each of {tries} tries")]
    Contended { what: String, tries: u32 },
    /// What the message is about may be known in a moment. The message says what no later read would: it has to come again.
    #[error("{what} is not known yet")]
    NotYet { what: String },
    /// The checker found the plan wrong: nothing of it was done.
    #[error("the plan for cluster {cluster} was refused by the checker: {reason}")]
    PlanRefused { cluster: String, reason: String },
}

impl HandleError {
    /// What to do about it.
    pub fn disposition(&self) -> Disposition {
        match self {
            Self::Store(StoreError::Conflict { .. } | StoreError::Fenced { .. }) | Self::Illegal(_) => Disposition::Replan,
            Self::Store(StoreError::Held { .. } | StoreError::Throttled { .. } | StoreError::Unavailable { .. })
            | Self::Queue(_)
            | Self::Contended { .. }
            | Self::NotYet { .. } => Disposition::RetryLater,
            Self::Store(StoreError::Unreadable { .. }) | Self::PlanRefused { .. } => Disposition::Fail,
            Self::Cluster(ClusterError::Invalid { .. } | ClusterError::NoAccess { .. }) => Disposition::Fail,
            Self::Cluster(_) => Disposition::RetryLater,
            Self::Cloud(error) => match error.kind {
                CloudErrorKind::Unauthorized | CloudErrorKind::Invalid => Disposition::Fail,
                _ => Disposition::RetryLater,
            },
            Self::Unreadable { .. } => Disposition::Drop,
        }
    }
}

/// Applies an event to a claim and stores the outcome; what changes nothing is not written.
pub async fn advance<S: ClaimStore>(store: &S, claim: &Stored<Claim>, event: &Event, now: Timestamp) -> Result<Stored<Claim>, HandleError> {
    let next = step(&claim.value, event, now)?;
    save(store, claim, next).await
}

/// Stores a claim in the place of the one that was read; what is equal is not written.
pub async fn save<S: ClaimStore>(store: &S, read: &Stored<Claim>, next: Claim) -> Result<Stored<Claim>, HandleError> {
    if next == read.value {
        return Ok(read.clone());
    }
    let revision = store.update(&next, read.revision).await?;
    Ok(Stored { value: next, revision })
}
