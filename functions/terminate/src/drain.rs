//! Which pods of a node are evicted or deleted next (lifecycle 14 to 17). Pure.

use std::collections::BTreeSet;
use whittle_api::k8s::{Kind, Pod, Taint, VolumeAttachment};
use whittle_api::{ClusterObjects, labels};
use whittle_claims::{Claim, PodKey};
use whittle_model::pods::{Protection, do_not_disrupt, tolerates};
use whittle_ports::Safeguard;
use whittle_units::{SignedDuration, Timestamp};

/// A pod that still exists this long after its deletion timestamp is not waited for.
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// In the API server's words that several budgets select a pod, which no policy of one of them changes.
const TWO_BUDGETS: &str = "more than one PodDisruptionBudget";
/// How long before EC2 takes a machine its last pods are deleted, even if their grace period is longer (ADR 0011).
const NOTICE_GRACE_MAX: SignedDuration = SignedDuration::from_secs(30);
/// The seconds that a deleted pod has at least. Never zero: that would delete the object while its containers may still run.
const GRACE_MIN: i64 = 1;

/// The time by which a machine's pods must have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(crate) at: Timestamp,
    /// Whether EC2 has set it, not the user. EC2 does not know what pods need, so that PodDisruptionBudgets are respected as long as that
    /// is of use.
    pub(crate) is_notice: bool,
}

impl Deadline {
    /// The deadline of a claim that is being deleted.
    pub(crate) fn of(claim: &Claim) -> Option<Self> {
        let deletion = claim.deletion.as_ref()?;
        Some(Self { at: deletion.deadline?, is_notice: deletion.is_due_by_notice() })
    }
}

/// What a run does with a node's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drain {
    /// Pods that have to be gone before the node may be deleted.
    pub(crate) waiting: usize,
    /// To be evicted now, through the eviction API, which respects PodDisruptionBudgets: the first group that is not empty.
    pub(crate) evict: Vec<PodKey>,
    /// To be deleted now regardless of budgets, because the deadline leaves just their grace period, or what a notice leaves of it, or has
    /// passed; with its seconds.
    pub(crate) force: Vec<(PodKey, i64)>,
    /// When the next pod will have to be deleted, be it one more time.
    pub(crate) next_force_at: Option<Timestamp>,
    /// Not evicted because of this annotation of theirs.
    pub(crate) protected: Vec<(PodKey, &'static str)>,
    /// Pods that have been told to leave and are still there, if there are any.
    pub(crate) leaving: Option<Leaving>,
}

/// Pods that have been told to leave and are still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaving {
    /// When the latest of them was told to.
    pub(crate) told_at: Timestamp,
    /// By when the kubelet has killed all of them.
    pub(crate) killed_by: Timestamp,
}

impl Leaving {
    fn of(pod: &Pod) -> Option<Self> {
        let killed_by = pod.metadata.deletion_timestamp?;
        let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or_default());
        Some(Self { told_at: killed_by.checked_sub(grace).unwrap_or(killed_by), killed_by })
    }

    fn with(self, other: Self) -> Self {
        Self { told_at: self.told_at.max(other.told_at), killed_by: self.killed_by.max(other.killed_by) }
    }
}

/// Whether a pod is drained at all.
pub(crate) fn is_drainable(pod: &Pod, now: Timestamp) -> bool {
    !pod.is_terminal() && !stays(pod, now)
}

/// Whether a pod is left on its node until the machine ends. One that has finished is not: its volumes may still be mounted, because the
/// kubelet reports the end of the containers before it unmounts.
fn stays(pod: &Pod, now: Timestamp) -> bool {
    tolerates(&pod.spec.tolerations, &Taint::disrupted()) || pod.is_static() || is_stuck(pod, now)
}

fn is_stuck(pod: &Pod, now: Timestamp) -> bool {
    pod.metadata.deletion_timestamp.is_some_and(|at| now.duration_since(at) > STUCK_AFTER)
}

/// Non-critical before critical, daemons last in each.
fn group(pod: &Pod) -> u8 {
    let critical = matches!(pod.spec.priority_class_name.as_str(), "system-cluster-critical" | "system-node-critical");
    2 * u8::from(critical) + u8::from(pod.is_daemon())
}

/// The time after which a pod is deleted, because it has to have ended by `deadline`; `None` for one that ends by then anyway. A grace
/// period that begins before time does, which the API server accepts, has begun.
///
/// One that is leaving and was given longer is told again at the deadline, not sooner (ADR 0089): the API server counts the shorter grace
/// period from the first deletion, by which it may have passed. One that has its last second cannot be told anything more.
fn force_at(pod: &Pod, deadline: Deadline) -> Option<Timestamp> {
    if let Some(killed_by) = pod.metadata.deletion_timestamp {
        let has_longer = pod.metadata.deletion_grace_period_seconds.is_none_or(|granted| granted > GRACE_MIN);
        return (has_longer && killed_by > deadline.at).then_some(deadline.at);
    }
    let own = SignedDuration::from_secs(pod.spec.termination_grace_period_seconds?);
    let grace = if deadline.is_notice { own.min(NOTICE_GRACE_MAX) } else { own };
    Some(deadline.at.checked_sub(grace).unwrap_or(Timestamp::MIN))
}

fn needs_force(pod: &Pod, deadline: Option<Deadline>, now: Timestamp) -> bool {
    let due = deadline.and_then(|deadline| force_at(pod, deadline));
    due.is_some_and(|due| Safeguard::ForcedOnlyWhenDue.permits(now > due))
}

/// The annotation with which the owner protects the pod, the current one or an older one.
fn protection(pod: &Pod, now: Timestamp) -> Option<&'static str> {
    if pod.metadata.annotation(labels::DO_NOT_EVICT) == Some("true") {
        return Some(labels::DO_NOT_EVICT);
    }
    (do_not_disrupt(pod, now) == Protection::Active).then_some(labels::DO_NOT_DISRUPT)
}

fn key(pod: &Pod) -> PodKey {
    let meta = &pod.metadata;
    PodKey { namespace: meta.namespace.clone(), name: meta.name.clone(), uid: meta.uid.clone() }
}

/// The next step for the pods of `node`. Pods on other nodes are not looked at.
pub(crate) fn plan(pods: &[Pod], node: &str, deadline: Option<Deadline>, now: Timestamp) -> Drain {
    let mut waiting: Vec<&Pod> = pods.iter().filter(|pod| pod.spec.node_name == node && is_drainable(pod, now)).collect();
    waiting.sort_by_key(|pod| (group(pod), pod.metadata.namespace.clone(), pod.metadata.name.clone()));
    let (force, rest): (Vec<&Pod>, Vec<&Pod>) = waiting.iter().partition(|pod| needs_force(pod, deadline, now));
    let first = rest.first().map(|pod| group(pod));
    let is_protected = |pod: &Pod| Safeguard::OwnersAsked.stops(protection(pod, now).is_some());
    let is_next = |pod: &&&Pod| Safeguard::GroupsInOrder.permits(Some(group(pod)) == first) && !is_protected(pod);
    let evict = rest.iter().filter(|pod| !pod.metadata.is_deleting()).filter(is_next);
    let left = deadline.map_or(0, |deadline| deadline.at.duration_since(now).as_secs());
    let not_yet = || rest.iter().filter(|pod| !pod.metadata.is_deleting());
    let protected = not_yet().filter_map(|pod| Some((key(pod), protection(pod, now)?)));
    Drain {
        waiting: waiting.len(),
        evict: evict.map(|pod| key(pod)).collect(),
        force: force.iter().map(|pod| (key(pod), left.max(GRACE_MIN))).collect(),
        next_force_at: deadline.and_then(|deadline| rest.iter().filter_map(|pod| force_at(pod, deadline)).min()),
        protected: protected.collect(),
        leaving: waiting.iter().filter_map(|pod| Leaving::of(pod)).reduce(Leaving::with),
    }
}

/// How many pods have to be gone from a Node that cannot be closed, past its deadline: others come for as long as it is there, such as
/// those of a DaemonSet, and whoever waited for these as well would delete pods for ever, and end no machine.
pub(crate) fn older_than_deadline(pods: &[Pod], node: &str, deadline: Option<Deadline>, now: Timestamp) -> usize {
    let is_older = |pod: &&Pod| deadline.is_none_or(|deadline| pod.metadata.creation_timestamp.is_none_or(|at| at <= deadline.at));
    pods.iter().filter(|pod| pod.spec.node_name == node && is_drainable(pod, now)).filter(is_older).count()
}

/// The code with which the API server refuses the eviction of a pod: that of a budget, or that of several (lifecycle 15).
pub(crate) fn code_of_refusal(message: &str) -> &'static str {
    if message.contains(TWO_BUDGETS) { "500" } else { "429" }
}

/// That a budget forbids the eviction of a pod, and what helps one that is not ready, which may never become ready: it is not counted as
/// healthy, so that it keeps the budget exhausted for itself and for others, and is therefore told first.
pub(crate) fn held_by_budget(pods: &[Pod], key: &PodKey, message: &str) -> (Told, String) {
    let cause = format!("evicting pod {}/{} violates a PDB ({message})", key.namespace, key.name);
    let has_two = message.contains(TWO_BUDGETS);
    let is_unready = |pod: &Pod| pod.condition("Ready").is_some_and(|ready| ready.status == "False");
    if !has_two && pods.iter().any(|pod| pod.metadata.uid == key.uid && is_unready(pod)) {
        let remedy = "the pod is not ready, and unhealthyPodEvictionPolicy: AlwaysAllow in the spec of its budget lets such pods go";
        return (Told::First, format!("{cause}; {remedy}"));
    }
    (Told::Later, cause)
}

/// Which of several pods that budgets keep is reported first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Told {
    First,
    Later,
}

/// Which pods stay because their owners want it so, and what would let them go; `None` if there are none.
pub(crate) fn kept_by_owners(protected: &[(PodKey, &'static str)]) -> Option<String> {
    let (_, annotation) = protected.first()?;
    let same = protected.iter().filter(|(_, key)| key == annotation);
    let names: Vec<String> = same.map(|(pod, _)| format!("{}/{}", pod.namespace, pod.name)).collect();
    Some(format!("pods with the annotation {annotation} are not evicted until it is removed: {}", listed(&names)))
}

/// Five names, and how many others there are.
pub(crate) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        Some(more) => format!("{shown} and {more} other(s)"),
        None => shown,
    }
}

/// The same pods, rotated by an amount that depends on the time. A run tries only some of them, and pods that a budget keeps stay in the
/// list: if every run began with the same pods, these could prevent the others from ever being tried.
pub(crate) fn in_turn(pods: &[PodKey], now: Timestamp) -> impl Iterator<Item = &PodKey> {
    /// 2^64 divided by the golden ratio: its multiples are spread evenly, whatever the interval of the runs, so that each pod's turn comes.
    const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
    let share = u128::from(now.as_second().unsigned_abs().wrapping_mul(STRIDE));
    let first = (share * pods.len() as u128) >> u64::BITS;
    let (later, earlier) = pods.split_at(usize::try_from(first).unwrap_or_default());
    earlier.iter().chain(later)
}

/// Names of volume attachments of `node` that have to be deleted before its instance may be terminated, by its pods and what
/// `Scope::Volumes` shows.
pub(crate) fn attached(pods: &[Pod], volumes: &ClusterObjects, node: &str, now: Timestamp) -> Vec<String> {
    let staying: BTreeSet<String> =
        pods.iter().filter(|pod| pod.spec.node_name == node && stays(pod, now)).flat_map(|pod| volumes_of(pod, volumes)).collect();
    let attachments = volumes.volume_attachments.iter().filter(|attachment| attachment.spec.node_name == node);
    let mut names: Vec<String> = attachments
        .filter(|attachment| {
            let volume = &attachment.spec.source.persistent_volume_name;
            !volume.is_empty() && !staying.contains(volume)
        })
        .map(|attachment| attachment.metadata.name.clone())
        .collect();
    // Its volume cannot be read, so it may be in use.
    let hidden = volumes.unreadable_of(VolumeAttachment::KIND).filter(|odd| odd.node_name == node);
    names.extend(hidden.map(|odd| odd.metadata.name.clone()));
    names.sort();
    names
}

/// Names of the persistent volumes that a pod uses.
fn volumes_of(pod: &Pod, objects: &ClusterObjects) -> Vec<String> {
    let found = pod.volume_claim_names().filter_map(|name| {
        let same = |claim: &&whittle_api::k8s::PersistentVolumeClaim| {
            claim.metadata.name == name && claim.metadata.namespace == pod.metadata.namespace
        };
        objects.volume_claims.iter().find(same)
    });
    found.map(|claim| claim.spec.volume_name.clone()).filter(|name| !name.is_empty()).collect()
}
