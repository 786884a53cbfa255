//! What the page shows of a cluster, as plain values: nodes with their pods, workloads, what waits and why, pools, the timeline.
//!
//! Money is in billionths of a dollar, resources in thousandths, times in milliseconds since 1970: whole numbers that JavaScript holds
//! exactly up to nine million dollars.

use serde::Serialize;
use std::collections::BTreeSet;
use whittle_api::conditions;
use whittle_api::k8s::Pod;
use whittle_api::karpenter::NodePool;
use whittle_sim::{Line, LineKind};

/// The most lines of the timeline that a page gets at once; older ones are at the prompt.
pub(crate) const LINES_MAX: usize = 2_000;
/// The most groups of waiting pods.
pub(crate) const WAITING_MAX: usize = 200;

/// Everything that changes seldom enough to be sent whole.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct State {
    pub(crate) cluster: String,
    pub(crate) region: String,
    pub(crate) version: String,
    pub(crate) nodes: Vec<NodeView>,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) pools: Vec<Pool>,
    /// Pools of EC2 without capacity: type, zone, capacity type; `*` is any.
    pub(crate) out_of_stock: BTreeSet<(String, String, String)>,
}

/// A node, or a claim that is none yet.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NodeView {
    pub(crate) name: String,
    pub(crate) claim: String,
    pub(crate) pool: String,
    #[serde(rename = "type")]
    pub(crate) instance_type: String,
    pub(crate) capacity: String,
    pub(crate) zone: String,
    pub(crate) state: NodeState,
    /// Billionths of a dollar in an hour.
    pub(crate) price: u64,
    pub(crate) since: i64,
    /// Requested and allocatable.
    pub(crate) cpu: [i64; 2],
    pub(crate) memory: [i64; 2],
    pub(crate) pods: Vec<PodView>,
}

/// Name with its namespace, position of its workload, state.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct PodView(pub(crate) String, pub(crate) usize, pub(crate) PodState);

/// Where a node is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NodeState {
    /// Planned, or asked of EC2, or started but not in the cluster.
    Launching,
    /// Started, and no node yet.
    Joining,
    /// In the cluster, but not ready for pods for the first time.
    Starting,
    Ready,
    NotReady,
    /// Closed to new pods by somebody.
    Cordoned,
    /// Chosen to go: closed to new pods.
    Disrupting,
    Draining,
    Terminating,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PodState {
    Running,
    Starting,
    Ending,
    Daemon,
}

/// What owns pods.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Workload {
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) wanted: Option<i32>,
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    /// What one pod of it requests.
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
}

/// Pods of a workload that wait for the same reason.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Waiting {
    pub(crate) workload: usize,
    pub(crate) count: usize,
    /// One of them, with its namespace.
    pub(crate) pod: String,
    pub(crate) since: Option<i64>,
    /// What the scheduler says.
    pub(crate) reason: String,
    /// What Whittle said last about one of them.
    pub(crate) answer: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) ready: bool,
    /// Why it is not ready.
    pub(crate) problem: String,
    pub(crate) weight: Option<i32>,
    pub(crate) limits: String,
}

impl PodState {
    /// Where a pod that is bound is in its life.
    pub(crate) fn of(pod: &Pod) -> Self {
        if pod.metadata.is_deleting() {
            Self::Ending
        } else if pod.is_daemon() {
            Self::Daemon
        } else if pod.status.phase == "Running" {
            Self::Running
        } else {
            Self::Starting
        }
    }
}

impl Pool {
    /// What is shown of a NodePool.
    pub(crate) fn of(pool: &NodePool) -> Self {
        let unmet = whittle_model::scheduling::unmet(&pool.status.conditions);
        let limits = pool.spec.limits.iter().map(|(name, limit)| format!("{name} {}", limit.text_of(name)));
        Self {
            name: pool.metadata.name.clone(),
            class: pool.spec.template.spec.node_class_ref.name.clone(),
            ready: conditions::is_true(&pool.status.conditions, conditions::READY),
            problem: unmet.map(|condition| format!("{}: {}", condition.reason, condition.message)).unwrap_or_default(),
            weight: pool.spec.weight,
            limits: limits.collect::<Vec<_>>().join(", "),
        }
    }
}

/// A line of the timeline: milliseconds, what it is about, text.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NewLine<'a>(i64, LineKind, &'a str);

/// The lines that a page with `seen` of them does not have; of too many, the last.
pub(crate) fn new_lines(lines: &[Line], seen: usize) -> Vec<NewLine<'_>> {
    let first = seen.max(lines.len().saturating_sub(LINES_MAX)).min(lines.len());
    lines[first..].iter().map(|line| NewLine(line.at.as_millisecond(), line.kind, &line.text)).collect()
}
