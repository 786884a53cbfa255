//! What needs a person, with what to do about it.

use super::Deployed;
use crate::listing::first_named;
use crate::look::ClusterArgs;
use crate::look::view::{State, View};
use crate::money::counted;
use crate::source::Manifests;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use whittle_api::karpenter::NodePool;
use whittle_api::{Condition, ConditionStatus, conditions, labels};

/// How long pods may wait: launching a machine takes a minute or two.
const WAITING_MAX: SignedDuration = SignedDuration::from_mins(10);
/// How long a machine may take to join; Whittle gives up after fifteen minutes.
const JOINING_MAX: SignedDuration = SignedDuration::from_mins(15);

/// How long a drain without a deadline may take; from then on it counts as `nodeclaims_stuck`, too.
const DRAINING_MAX: SignedDuration = SignedDuration::from_hours(1);
/// How long a machine may take to go after the deadline of its drain.
const OVERDUE_MAX: SignedDuration = SignedDuration::from_mins(10);

/// How many machines or nodes are named.
const NAMED: usize = 3;

/// Everything that should not be left as it is.
/// `cluster`: which one it is, for commands that are suggested.
pub(super) fn of(read: &Manifests, view: &View, deployed: Option<&Deployed>, cluster: &ClusterArgs, now: Timestamp) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(Deployed { deployment, alarms, misses, .. }) = deployed {
        out.extend(misses.iter().map(|cluster| {
            let (stack, served) = (&deployment.stack.name, deployment.stack.clusters().join(", "));
            format!(
                "stack {stack} does not serve cluster {cluster}, which the context is for: alarms and decisions are of {served}; name the \
                 stack that serves it by --stack, or another context by --context, or deploy with it in Clusters"
            )
        }));
        out.extend(alarms.iter().map(|alarm| format!("alarm {}: {} (docs/runbooks.md)", alarm.name, alarm.description)));
        let (stack, status) = (&deployment.stack.name, &deployment.stack.status);
        // Such as ROLLBACK_COMPLETE and UPDATE_ROLLBACK_FAILED; after UPDATE_ROLLBACK_COMPLETE the version before runs on.
        let is_broken = status.ends_with("FAILED") || status.contains("ROLLBACK");
        out.extend(deployment.stack.repair().filter(|_| is_broken).map(|repair| format!("stack {stack} is {status}: {repair}")));
    }
    out.extend(view.refused.iter().map(|refused| format!("an object cannot be read: {refused}")));
    // Whittle writes no conditions in shadow mode: they are old, or those of a running Karpenter.
    let shadow = deployed.is_some_and(|deployed| deployed.deployment.stack.is_shadow());
    let are_written = !shadow || read.objects.running_karpenter(now).is_some();
    let pools = read.objects.node_pools.iter().filter(|pool| are_written && !pool.metadata.is_deleting());
    out.extend(pools.filter_map(|pool| {
        let why = unready(&pool.status.conditions)?;
        Some(format!(
            "NodePool {} is not ready ({why}): `kubectl describe nodepool` and its EC2NodeClass say more",
            NodePool::given_name(&pool.metadata.name)
        ))
    }));
    // Of a deployment in shadow mode they are no exception.
    out.extend(in_shadow(read).filter(|_| !shadow));
    out.extend(waiting(view, cluster, now));
    out.extend(machines(view, now));
    out.extend(uninitialized(read, view, now));
    out.extend(staying(read, view, now));
    out
}

/// Why something is not ready, if it says that it is not.
fn unready(all: &[Condition]) -> Option<String> {
    let ready = conditions::find(all, conditions::READY)?;
    if conditions::is_true(all, conditions::READY) {
        return None;
    }
    Some(if ready.message.is_empty() { ready.reason.clone() } else { ready.message.clone() })
}

/// NodePools of which nothing is disrupted for as long as they have the annotation, which is easily forgotten.
fn in_shadow(read: &Manifests) -> Option<String> {
    let pools = read.objects.node_pools.iter().filter(|pool| pool.is_shadow() && pool.is_managed() && !pool.metadata.is_deleting());
    let names: Vec<&str> = pools.map(|pool| NodePool::given_name(&pool.metadata.name)).collect();
    let first = names.first()?;
    Some(format!(
        "{} with the annotation {}: {}; disruptions of their nodes are recorded and not carried out until \
         `kubectl annotate nodepool {first} {}-`",
        counted(names.len(), "NodePool"),
        labels::SHADOW,
        first_named(&names, NAMED),
        labels::SHADOW
    ))
}

/// Pods that wait for too long.
fn waiting(view: &View, cluster: &ClusterArgs, now: Timestamp) -> Option<String> {
    let late = view.waiting.iter().filter(|group| group.since.is_some_and(|since| now.duration_since(since) > WAITING_MAX));
    let late: Vec<_> = late.collect();
    let first = late.first()?;
    let count = late.iter().map(|group| group.count).sum();
    Some(format!(
        "{} waited for more than {} minutes: `whittle explain {} {}` says why",
        counted(count, "pod"),
        WAITING_MAX.as_mins(),
        first.pod,
        cluster.shown()
    ))
}

/// Machines that do not get on.
fn machines(view: &View, now: Timestamp) -> Vec<String> {
    let named = |state: &dyn Fn(State) -> bool, after: Option<SignedDuration>| {
        let is_older = |than, created: Option<Timestamp>| created.is_some_and(|created| now.duration_since(created) > than);
        let is_late = |created| after.is_none_or(|after| is_older(after, created));
        let found = view.machines.iter().filter(|machine| state(machine.state) && is_late(machine.created));
        found.map(|machine| machine.name.as_str()).collect::<Vec<_>>()
    };
    let mut out = Vec::new();
    let late = named(&|state| matches!(state, State::Launching | State::Joining), Some(JOINING_MAX));
    if !late.is_empty() {
        out.push(format!(
            "{} for more than {} minutes: {}; `kubectl describe nodeclaim` says how far they are",
            if late.len() == 1 { "1 machine did not join" } else { "machines did not join" },
            JOINING_MAX.as_mins(),
            first_named(&late, NAMED)
        ));
    }
    let unready = named(&|state| state == State::NotReady, None);
    if !unready.is_empty() {
        let verb = if unready.len() == 1 { "is" } else { "are" };
        let (nodes, names) = (counted(unready.len(), "node"), first_named(&unready, NAMED));
        out.push(format!("{nodes} {verb} not ready: {names}; `kubectl describe node` says why"));
    }
    out
}

/// What a node waits for: its registration, or else its initialization, and what the condition of that says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Lack<'a> {
    is_registered: bool,
    reason: &'a str,
    message: &'a str,
}

impl<'a> Lack<'a> {
    /// What the conditions of a NodeClaim say whose node has joined. Without any it is not known what its node waits for.
    fn of(told: &'a [Condition]) -> Self {
        let missing = |type_: &str| conditions::find(told, type_).filter(|condition| condition.status != ConditionStatus::True);
        let unregistered = missing(conditions::REGISTERED);
        let lack = unregistered.or_else(|| missing(conditions::INITIALIZED));
        let (reason, message) = lack.map_or(("", ""), |condition| (condition.reason.as_str(), condition.message.as_str()));
        Self { is_registered: unregistered.is_none(), reason, message }
    }
    /// What has not happened, and what that means.
    fn step(&self) -> (&'static str, &'static str) {
        if self.is_registered {
            ("initialized", "they are neither consolidated nor replaced")
        } else {
            ("registered", "pods stay away, and Whittle ends such machines after a quarter of an hour")
        }
    }
}

/// Nodes that lack the same.
#[derive(Default)]
struct Waiting<'a> {
    names: Vec<&'a str>,
    /// When the first of them joined.
    since: Option<Timestamp>,
}

/// Nodes that joined long ago and were never registered or initialized, by what they lack. Nothing ends those that are registered: what
/// they wait for may still come.
fn uninitialized(read: &Manifests, view: &View, now: Timestamp) -> Vec<String> {
    let is_late = |created: Option<Timestamp>| created.is_some_and(|created| now.duration_since(created) > JOINING_MAX);
    let mut by_lack: BTreeMap<Lack<'_>, Waiting<'_>> = BTreeMap::new();
    for machine in view.machines.iter().filter(|machine| machine.state == State::Starting && is_late(machine.created)) {
        let claim = read.objects.node_claims.iter().find(|claim| claim.metadata.name == machine.claim);
        let told = claim.map(|claim| claim.status.conditions.as_slice()).unwrap_or_default();
        let joined = conditions::find(told, conditions::REGISTERED).filter(|condition| condition.status == ConditionStatus::True);
        let since = joined.and_then(|condition| condition.last_transition_time).or(machine.created);
        let alike = by_lack.entry(Lack::of(told)).or_default();
        alike.names.push(&machine.name);
        alike.since = alike.since.into_iter().chain(since).min();
    }
    let text = |(of, Waiting { names, since }): (Lack<'_>, Waiting<'_>)| {
        let since = since.map(|since| format!(" since {since}")).unwrap_or_default();
        let lack = if of.message.is_empty() { String::new() } else { format!(" ({})", of.message) };
        let (nodes, verb) = (counted(names.len(), "node"), if names.len() == 1 { "has" } else { "have" });
        let (step, meanwhile) = of.step();
        format!(
            "{nodes} {verb} joined and not been {step}{since}{lack}: {}; until then {meanwhile}: {}",
            first_named(&names, NAMED),
            remedy_of_lack(of.reason)
        )
    };
    by_lack.into_iter().map(text).collect()
}

/// Machines that are to go and do not, by their NodeClaims. A drain with a deadline may take until then.
fn staying(read: &Manifests, view: &View, now: Timestamp) -> Option<String> {
    let is_late = |name: &str| {
        let claim = read.objects.node_claims.iter().find(|claim| claim.metadata.name == name)?;
        let deleted = claim.metadata.deletion_timestamp?;
        let deadline = claim.metadata.annotation(labels::TERMINATION_TIMESTAMP).and_then(|at| at.parse::<Timestamp>().ok());
        let (since, most) = deadline.map_or((deleted, DRAINING_MAX), |deadline| (deadline, OVERDUE_MAX));
        Some(now.duration_since(since) > most)
    };
    let late = view.machines.iter().filter(|machine| machine.state == State::Deleting && is_late(&machine.claim) == Some(true));
    let names: Vec<&str> = late.map(|machine| machine.name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    let verb = if names.len() == 1 { "is" } else { "are" };
    Some(format!(
        "{} {verb} to go, and {verb} still there after an hour or past the deadline: {}; the Events of `kubectl describe node` and \
         `kubectl describe nodeclaim` say what keeps pods or machine",
        counted(names.len(), "machine"),
        first_named(&names, NAMED)
    ))
}

/// What registers or initializes a node that lacks something for this reason (lifecycle 7, 8).
fn remedy_of_lack(reason: &str) -> &'static str {
    match reason {
        "ResourceNotRegistered" => {
            "the device plugin that reports the resource has to run on them, and its DaemonSet to tolerate their taints and to select them"
        }
        "StartupTaintsExist" => {
            "whatever removes the taint has to run on them; one that is to stay belongs to spec.template.spec.taints of the NodePool"
        }
        "KnownEphemeralTaintsExist" => "the controller that removes the taint has to run, such as the cloud controller manager",
        "NodeRefused" => "the admission webhook or policy that refuses the changes of the Node has to let them through",
        "MultipleNodesFound" => "delete the Node that is not the machine's, by `kubectl delete node`",
        "NodeNotReady" => "`kubectl describe node` says why they are not ready, such as for a missing CNI plugin",
        _ => "`kubectl describe nodeclaim` says what they lack",
    }
}
