//! The transitions of a claim, as a pure function from a claim, an event and the time to a claim.
//!
//! Every event may arrive twice, late, or after the claim has ended. One that is already reflected changes nothing. One that
//! cannot be true (a second machine for one claim, a node under another name) is an [`IllegalStep`], and the claim is unchanged.
//! One rule precedes all others: an instance is never forgotten before EC2 has confirmed its termination, or the user has
//! released it.

use crate::claim::{Claim, ClaimKey, ClaimSpec, Deletion, DeletionReason, Machine};
use crate::phase::Phase;
use whittle_api::conditions::{self, DRAINED, INITIALIZED, INSTANCE_TERMINATING, LAUNCHED, READY, REGISTERED, VOLUMES_DETACHED};
use whittle_api::{Condition, ConditionStatus, labels};
use whittle_units::Timestamp;

/// The conditions that `Ready` follows from (lifecycle 3).
const OF_READY: &[&str] = &[LAUNCHED, REGISTERED, INITIALIZED];

/// What happened to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The intent to call CreateFleet is being stored, under this idempotency token.
    LaunchBegun { client_token: String },
    /// The claim's token belongs to a fleet call that was made without the claim; it gets another. `from` guards against late
    /// events.
    TokenReplaced { from: String, to: String },
    /// EC2 returned the instance.
    FleetAnswered(Machine),
    /// There is no machine, and there will be none.
    LaunchFailed { reason: DeletionReason, message: String },
    /// The call failed, perhaps transiently; `reason` goes to the `Launched` condition.
    LaunchErred { reason: String, message: String },
    /// The launch of a deleted claim is now certain to have produced no machine.
    LaunchAbandoned,
    /// The Node carries our labels and taints.
    NodeJoined { node_name: String },
    /// The Node is ready for pods.
    NodeReady,
    /// EC2 reports the instance as on-demand, although it was started in a capacity reservation: the reservation ended, or the
    /// instance left it.
    ReservationLeft,
    /// The deletion of the claim was requested.
    DeletionRequested(Deletion),
    /// The termination of the instance was requested from EC2.
    TerminationSent,
    /// The machine is released and keeps running, on the user's request: the only way to forget one that has not ended.
    LetGo,
    /// EC2 confirmed the termination, and no object of the machine is left in the cluster.
    MachineGone,
}

impl Event {
    /// The event's name, for logs and errors.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::LaunchBegun { .. } => "LaunchBegun",
            Self::TokenReplaced { .. } => "TokenReplaced",
            Self::FleetAnswered(_) => "FleetAnswered",
            Self::LaunchFailed { .. } => "LaunchFailed",
            Self::LaunchErred { .. } => "LaunchErred",
            Self::LaunchAbandoned => "LaunchAbandoned",
            Self::NodeJoined { .. } => "NodeJoined",
            Self::NodeReady => "NodeReady",
            Self::ReservationLeft => "ReservationLeft",
            Self::DeletionRequested(_) => "DeletionRequested",
            Self::TerminationSent => "TerminationSent",
            Self::LetGo => "LetGo",
            Self::MachineGone => "MachineGone",
        }
    }
}

/// An event that cannot be true of the claim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("claim {claim} is {phase}, which {event} contradicts: {why}")]
pub struct IllegalStep {
    pub claim: ClaimKey,
    pub phase: &'static str,
    pub event: &'static str,
    pub why: &'static str,
}

/// Longest failure text in a condition; the rest is truncated (lifecycle 1).
const MESSAGE_MAX: usize = 300;

impl Claim {
    /// A new claim, decided at `now`.
    #[must_use]
    pub fn planned(key: ClaimKey, uid: String, spec: ClaimSpec, now: Timestamp) -> Self {
        let awaiting = |type_: &str| Condition {
            type_: type_.to_owned(),
            status: ConditionStatus::Unknown,
            reason: "AwaitingReconciliation".to_owned(),
            message: "object is awaiting reconciliation".to_owned(),
            last_transition_time: Some(now),
            observed_generation: Some(1),
        };
        Self {
            key,
            uid,
            created_at: now,
            spec,
            phase: Phase::Planned,
            deletion: None,
            conditions: [LAUNCHED, REGISTERED, INITIALIZED, READY].into_iter().map(awaiting).collect(),
            annotations: std::collections::BTreeMap::new(),
            last_pod_event_at: None,
            pods_fingerprint: None,
            look_again_at: None,
            node_missing_since: None,
            instance_missing_since: None,
            drain_moved_at: None,
        }
    }

    /// Sets a condition that is not part of a transition, and updates `Ready`. Returns whether anything changed.
    pub fn note(&mut self, type_: &str, status: ConditionStatus, reason: &str, message: &str, now: Timestamp) -> bool {
        let changed = conditions::set(&mut self.conditions, type_, status, reason, message, now);
        if changed && OF_READY.contains(&type_) {
            conditions::set_ready(&mut self.conditions, OF_READY, now);
        }
        changed
    }

    /// Shows that no Node of the machine has joined (lifecycle 7).
    pub fn note_missing_node(&mut self, now: Timestamp) {
        self.note(REGISTERED, ConditionStatus::Unknown, "NodeNotFound", "Node not registered with cluster", now);
    }

    fn hold(&mut self, type_: &str, now: Timestamp) {
        self.note(type_, ConditionStatus::True, type_, "", now);
    }

    fn illegal(&self, event: &Event, why: &'static str) -> IllegalStep {
        IllegalStep { claim: self.key.clone(), phase: self.phase.name(), event: event.name(), why }
    }
}

/// The claim after an event. An event that is already reflected returns the same claim.
pub fn step(claim: &Claim, event: &Event, now: Timestamp) -> Result<Claim, IllegalStep> {
    let mut next = claim.clone();
    match event {
        Event::LaunchBegun { .. } | Event::TokenReplaced { .. } | Event::LaunchErred { .. } | Event::LaunchAbandoned => {
            launching(&mut next, event, now)?;
        }
        Event::LaunchFailed { reason, message } => launch_failed(&mut next, *reason, message, now),
        Event::FleetAnswered(machine) => fleet_answered(&mut next, machine, event, now)?,
        Event::NodeJoined { node_name } => node_joined(&mut next, node_name, event, now)?,
        Event::NodeReady => node_ready(&mut next, event, now)?,
        Event::ReservationLeft => reservation_left(&mut next),
        Event::DeletionRequested(deletion) => request_deletion(&mut next, deletion, now),
        Event::TerminationSent | Event::MachineGone | Event::LetGo => ending(&mut next, event, now)?,
    }
    Ok(next)
}

fn launching(claim: &mut Claim, event: &Event, now: Timestamp) -> Result<(), IllegalStep> {
    let ending = claim.deletion.is_some();
    claim.phase = match (&claim.phase, event) {
        (_, Event::LaunchBegun { .. } | Event::TokenReplaced { .. }) if ending => {
            return Err(claim.illegal(event, "a deleted claim gets no machine"));
        }
        (Phase::Planned, Event::LaunchBegun { client_token }) => {
            Phase::Launching { client_token: client_token.clone(), since: now, attempts: 1 }
        }
        (Phase::Launching { client_token, since, attempts }, Event::LaunchBegun { client_token: again }) if client_token == again => {
            Phase::Launching { client_token: client_token.clone(), since: *since, attempts: attempts.saturating_add(1) }
        }
        (Phase::Launching { client_token, attempts, .. }, Event::TokenReplaced { from, to }) if client_token == from => {
            Phase::Launching { client_token: to.clone(), since: now, attempts: *attempts }
        }
        (Phase::Launching { client_token, .. }, Event::TokenReplaced { to, .. }) if client_token == to => return Ok(()),
        (Phase::Launching { .. }, Event::LaunchAbandoned) if ending => Phase::Gone { machine: None, since: now },
        (Phase::Planned | Phase::Launching { .. }, Event::LaunchErred { reason, message }) => {
            let text = truncate(message);
            claim.note(LAUNCHED, ConditionStatus::Unknown, reason, &text, now);
            return Ok(());
        }
        // A late error of a call that another run has completed.
        (_, Event::LaunchErred { .. }) => return Ok(()),
        (Phase::Gone { .. } | Phase::Failed { .. }, Event::LaunchAbandoned) => return Ok(()),
        _ => return Err(claim.illegal(event, "only a planned claim begins a launch, under a single token")),
    };
    Ok(())
}

fn truncate(message: &str) -> String {
    if message.chars().count() <= MESSAGE_MAX {
        return message.to_owned();
    }
    message.chars().take(MESSAGE_MAX).chain("...".chars()).collect()
}

fn launch_failed(claim: &mut Claim, reason: DeletionReason, message: &str, now: Timestamp) {
    // A claim with a machine has not failed, even if a late message reports it.
    if !matches!(claim.phase, Phase::Planned | Phase::Launching { .. }) {
        return;
    }
    let text = truncate(message);
    claim.note(LAUNCHED, ConditionStatus::Unknown, reason.condition_reason(), &text, now);
    claim.phase = Phase::Failed { reason: reason.condition_reason().to_owned(), message: text.clone(), since: now };
    claim.deletion.get_or_insert(Deletion::without_deadline(reason, now, text));
}

fn fleet_answered(claim: &mut Claim, machine: &Machine, event: &Event, now: Timestamp) -> Result<(), IllegalStep> {
    match &claim.phase {
        Phase::Planned | Phase::Launching { .. } => {
            claim.phase = if claim.deletion.is_some() {
                Phase::Draining { machine: machine.clone(), node_name: None, since: now }
            } else {
                Phase::Launched { machine: machine.clone() }
            };
            claim.hold(LAUNCHED, now);
            if claim.deletion.is_none() {
                // No Node has joined yet. Karpenter says so at once as well; here it needs no write of its own.
                claim.note_missing_node(now);
            }
        }
        // That machine has already ended under this claim; the response is only late.
        Phase::Gone { machine: Some(ended), .. } if ended.instance_id == machine.instance_id => {}
        // The response came after the end: the instance runs and is billed, so it is drained.
        Phase::Failed { .. } | Phase::Gone { .. } => {
            clear_termination(claim);
            claim.phase = Phase::Draining { machine: machine.clone(), node_name: None, since: now };
            claim.hold(LAUNCHED, now);
            let message = "the instance was launched after the claim had ended";
            claim.deletion.get_or_insert(Deletion::without_deadline(DeletionReason::RolledBack, now, message));
        }
        phase => {
            if phase.machine().is_some_and(|known| known.instance_id != machine.instance_id) {
                return Err(claim.illegal(event, "the claim names another machine"));
            }
        }
    }
    Ok(())
}

/// Clears the state of an earlier machine's termination, which does not apply to the next one.
fn clear_termination(claim: &mut Claim) {
    if claim.instance().is_some() {
        claim.deletion = None;
    }
    claim.conditions.retain(|known| ![DRAINED, VOLUMES_DETACHED, INSTANCE_TERMINATING].contains(&known.type_.as_str()));
    (claim.look_again_at, claim.drain_moved_at) = (None, None);
    (claim.node_missing_since, claim.instance_missing_since) = (None, None);
}

fn node_joined(claim: &mut Claim, name: &str, event: &Event, now: Timestamp) -> Result<(), IllegalStep> {
    let known = claim.node_name().map(str::to_owned);
    match &mut claim.phase {
        Phase::Launched { machine } => {
            claim.phase = Phase::Registered { machine: machine.clone(), node_name: name.to_owned(), since: now };
            claim.hold(REGISTERED, now);
        }
        Phase::Gone { .. } => {}
        Phase::Planned | Phase::Launching { .. } | Phase::Failed { .. } => {
            return Err(claim.illegal(event, "the claim has no machine that could have joined"));
        }
        _ if known.as_deref().is_some_and(|known| known != name) => {
            return Err(claim.illegal(event, "the machine joined under another name"));
        }
        Phase::Draining { node_name, .. } | Phase::Terminating { node_name, .. } => *node_name = Some(name.to_owned()),
        Phase::Registered { .. } | Phase::Initialized { .. } => {}
    }
    Ok(())
}

fn node_ready(claim: &mut Claim, event: &Event, now: Timestamp) -> Result<(), IllegalStep> {
    match &claim.phase {
        Phase::Registered { machine, node_name, .. } => {
            claim.phase = Phase::Initialized { machine: machine.clone(), node_name: node_name.clone(), since: now };
            claim.hold(INITIALIZED, now);
            Ok(())
        }
        Phase::Initialized { .. } | Phase::Draining { .. } | Phase::Terminating { .. } | Phase::Gone { .. } => Ok(()),
        _ => Err(claim.illegal(event, "a node is ready only after it registered")),
    }
}

/// Updates the labels too, so that prices and NodePools' requirements see the actual capacity type.
fn reservation_left(claim: &mut Claim) {
    let Some(machine) = claim.phase.machine_mut().filter(|machine| machine.is_reserved()) else { return };
    labels::CAPACITY_ON_DEMAND.clone_into(&mut machine.capacity_type);
    machine.labels.insert(labels::CAPACITY_TYPE.to_owned(), labels::CAPACITY_ON_DEMAND.to_owned());
    machine.labels.retain(|key, _| !labels::OF_RESERVATIONS.contains(&key.as_str()));
}

/// The first reason is kept; of two deadlines the earlier applies. It brings along whether it is EC2's or the user's, which does not
/// follow from the reason: a notice of EC2 may come while the machine is drained for another reason.
fn request_deletion(claim: &mut Claim, requested: &Deletion, now: Timestamp) {
    if !claim.is_live() {
        return;
    }
    match &mut claim.deletion {
        Some(known) => {
            let is_earlier = requested.deadline.is_some_and(|asked| known.deadline.is_none_or(|due| asked < due));
            if is_earlier {
                (known.deadline, known.deadline_is_notice) = (requested.deadline, requested.deadline_is_notice);
            }
        }
        None => claim.deletion = Some(requested.clone()),
    }
    claim.phase = match &claim.phase {
        Phase::Planned => Phase::Gone { machine: None, since: now },
        Phase::Launched { machine } => Phase::Draining { machine: machine.clone(), node_name: None, since: now },
        Phase::Registered { machine, node_name, .. } | Phase::Initialized { machine, node_name, .. } => {
            Phase::Draining { machine: machine.clone(), node_name: Some(node_name.clone()), since: now }
        }
        // A launch in progress may still produce a machine: it is awaited, then drained.
        Phase::Launching { .. } | Phase::Draining { .. } | Phase::Terminating { .. } | Phase::Failed { .. } | Phase::Gone { .. } => return,
    };
}

fn ending(claim: &mut Claim, event: &Event, now: Timestamp) -> Result<(), IllegalStep> {
    claim.phase = match (&claim.phase, event) {
        (Phase::Draining { machine, node_name, .. }, Event::TerminationSent) => {
            Phase::Terminating { machine: machine.clone(), node_name: node_name.clone(), since: now }
        }
        (Phase::Terminating { .. }, Event::TerminationSent) | (Phase::Gone { .. } | Phase::Failed { .. }, _) => return Ok(()),
        (Phase::Draining { machine, .. } | Phase::Terminating { machine, .. }, Event::MachineGone) => {
            Phase::Gone { machine: Some(machine.clone()), since: now }
        }
        // An instance whose termination was requested cannot be kept.
        (
            Phase::Launched { machine }
            | Phase::Registered { machine, .. }
            | Phase::Initialized { machine, .. }
            | Phase::Draining { machine, .. },
            Event::LetGo,
        ) => Phase::Gone { machine: Some(machine.clone()), since: now },
        _ => return Err(claim.illegal(event, "a machine ends only after its node was drained")),
    };
    Ok(())
}
