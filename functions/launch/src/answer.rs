//! What a fleet's answer means for the claims it was asked for.

use crate::batch::Batch;
use crate::plan::{self, Facts};
use crate::{FIRST_LOOK, LATER, SOON, give_up, machine};
use std::collections::BTreeSet;
use whittle_api::{hashes, labels};
use whittle_claims::{Claim, ClaimKey, DecisionKind, DeletionReason, Doorbell, Event, Phase, Stored, mirror, step};
use whittle_ec2::errors::CreateReason;
use whittle_ec2::fleet::{FleetAnswer, FleetFailure, FleetInstance, failure};
use whittle_ec2::instance::Instance;
use whittle_ports::{
    ClaimStore, Clock, CloudError, CloudErrorKind, Fleets, HandleError, Instances, Mirrors, Queues, RegionStore, Report, StatusWriter,
    StoreError, World, save,
};
use whittle_units::{ClaimName, ClusterName, InstanceId, SignedDuration, Timestamp};

/// Whether this call may have been made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    First,
    Repeat,
}

/// How often a claim is asked to take a machine that others write at the same time.
const TRIES: usize = 3;

/// Losing a claim to another run, or finding it moved on, is a normal outcome.
pub(crate) fn unless_moved<V>(outcome: Result<V, HandleError>) -> Result<Option<V>, HandleError> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(HandleError::Store(StoreError::Conflict { .. }) | HandleError::Illegal(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What EC2 shows of a call that was made before.
pub(crate) struct Shown {
    pub(crate) alive: Vec<FleetInstance>,
    pub(crate) ended: BTreeSet<InstanceId>,
}

impl Shown {
    /// Every machine of the call is known, so that it need not be repeated.
    pub(crate) fn is_complete(&self, batch: &Batch) -> bool {
        self.alive.len() + self.ended.len() >= batch.members.len()
    }
}

/// Looks for the machines of a call that was made before. EC2 may not show all of them yet.
pub(crate) async fn shown<S, C, K, Q, T>(world: World<'_, S, C, K, Q, T>, batch: &Batch) -> Result<Shown, HandleError>
where
    C: Instances,
{
    let found = world.cloud.tagged(labels::TAG_LAUNCH, &batch.id).await?;
    let (alive, ended): (Vec<_>, Vec<_>) = found.into_iter().partition(Instance::is_alive);
    Ok(Shown { alive: alive.iter().map(machine::as_answered).collect(), ended: ended.into_iter().map(|instance| instance.id).collect() })
}

/// Hands the machines out, remembers what was out of stock, and gives up or retries the claims that got none.
pub(crate) async fn settle<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    facts: &Facts,
    cluster: &ClusterName,
    batch: &Batch,
    answer: &FleetAnswer,
    report: &mut Report,
) -> Result<(), HandleError>
where
    S: ClaimStore + RegionStore,
    C: Sync,
    K: Mirrors + StatusWriter,
    Q: Queues,
    T: Clock,
{
    // Machines first: they run and cost.
    let running = hand_out(world, facts, cluster, batch, &answer.instances, report).await?;
    let outs = machine::stock_outs(facts, batch, answer, &facts.stock_outs, world.clock.now());
    if !outs.is_empty() {
        report.count("stock_outs");
        world.store.put_stock_outs(&outs).await?;
    }
    if running >= batch.members.len() {
        return Ok(());
    }
    let why = failure(&answer.errors);
    for name in &batch.members {
        let Some(claim) = waiting(world, cluster, name, &batch.id).await? else { continue };
        match &why {
            FleetFailure::InsufficientCapacity(message) => {
                give_up(world, claim, DeletionReason::InsufficientCapacity, message, report).await?;
            }
            FleetFailure::Create { reason, message } => {
                // The same token would be given the same answer: the next try is a new call.
                report.count("retried");
                let erred = Event::LaunchErred { reason: reason.as_str().to_owned(), message: message.clone() };
                let mut next = step(&claim.value, &erred, world.clock.now())?;
                next.look_again_at = None;
                if let Some(claim) = unless_moved(save(world.store, &claim, next).await)? {
                    under_new_name(world, cluster, claim, &batch.id, LATER).await?;
                }
            }
        }
    }
    Ok(())
}

/// A member that still waits for a machine of this batch.
async fn waiting<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    cluster: &ClusterName,
    name: &ClaimName,
    id: &str,
) -> Result<Option<Stored<Claim>>, HandleError>
where
    S: ClaimStore,
{
    let key = ClaimKey { cluster: cluster.clone(), name: name.clone() };
    let claim = world.store.get(&key).await?;
    Ok(claim.filter(|claim| matches!(&claim.value.phase, Phase::Launching { client_token, .. } if client_token == id)))
}

/// Gives each machine to a member that has none, and tells how many there are. Every machine that can be named is named, also
/// by a claim that is to end or has ended: then it is drained. A machine that has ended under its claim is given to nobody: a
/// call that is repeated answers with it for as long as EC2 remembers.
async fn hand_out<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    facts: &Facts,
    cluster: &ClusterName,
    batch: &Batch,
    instances: &[FleetInstance],
    report: &mut Report,
) -> Result<usize, HandleError>
where
    S: ClaimStore,
    K: Mirrors + StatusWriter,
    Q: Queues,
    T: Clock,
{
    let mut instances: Vec<&FleetInstance> = instances.iter().collect();
    instances.sort_by(|a, b| a.id.cmp(&b.id));
    let mut members = members(world, cluster, batch).await?;
    let ended = |claim: &Stored<Claim>| match &claim.value.phase {
        Phase::Gone { machine: Some(machine), .. } => Some(machine.instance_id.clone()),
        _ => None,
    };
    let ended: BTreeSet<InstanceId> = members.iter().filter_map(ended).collect();
    instances.retain(|instance| !ended.contains(&instance.id));
    let (running, mut launched) = (instances.len(), false);
    for instance in instances {
        if world.store.by_instance(&instance.id).await?.is_some() {
            continue;
        }
        let taker = give(world, facts, batch, instance, &mut members).await?;
        let Some(claim) = taker else {
            // `sweep` sees it twice and ends it.
            tracing::warn!(instance = %instance.id, batch = %batch.id, "a machine came that no claim waits for");
            report.count("surplus");
            continue;
        };
        let key = claim.value.key.clone();
        let (name, now) = (&key.name, world.clock.now());
        if claim.value.deletion.is_some() {
            report.count("came_too_late");
            world.queues.ring(Doorbell::Terminate { cluster: cluster.clone(), claim: name.clone() }, SignedDuration::ZERO).await?;
        } else {
            launched = true;
            report.count("launched");
        }
        if let Some(machine) = claim.value.machine() {
            let message = format!(
                "{} is {} {} in {} at {}",
                machine.instance_id, machine.capacity_type, machine.instance_type, machine.zone, machine.price
            );
            report.decide(now, DecisionKind::Launched, format!("nodeclaim/{name}"), message);
        }
        let _ = world.cluster.apply_mirror(cluster, &mirror(&claim.value)).await;
    }
    if launched {
        world.queues.ring(Doorbell::Register { cluster: cluster.clone() }, FIRST_LOOK).await?;
    }
    Ok(running)
}

/// The claims of a call, as far as they are there.
async fn members<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    cluster: &ClusterName,
    batch: &Batch,
) -> Result<Vec<Stored<Claim>>, HandleError>
where
    S: ClaimStore,
{
    let mut members = Vec::new();
    for name in &batch.members {
        members.extend(world.store.get(&ClaimKey { cluster: cluster.clone(), name: name.clone() }).await?);
    }
    Ok(members)
}

/// The member that takes the machine: one that waits for it, else one that has ended without any.
async fn give<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    facts: &Facts,
    batch: &Batch,
    instance: &FleetInstance,
    members: &mut [Stored<Claim>],
) -> Result<Option<Stored<Claim>>, HandleError>
where
    S: ClaimStore,
    T: Clock,
{
    for wanted in [true, false] {
        for member in members.iter_mut() {
            for _ in 0..TRIES {
                let waits = matches!(&member.value.phase, Phase::Launching { client_token, .. } if *client_token == batch.id);
                let ended = matches!(member.value.phase, Phase::Failed { .. } | Phase::Gone { machine: None, .. });
                if !(if wanted { waits } else { ended }) {
                    break;
                }
                match save(world.store, member, taking(facts, batch, instance, &member.value, world.clock.now())?).await {
                    Ok(saved) => {
                        *member = saved.clone();
                        return Ok(Some(saved));
                    }
                    Err(HandleError::Store(StoreError::Conflict { .. })) => {}
                    Err(error) => return Err(error),
                }
                // A twin of this run may have given the machine away; or the claim was changed since it was read.
                if let Some(known) = world.store.by_instance(&instance.id).await? {
                    return Ok(Some(known));
                }
                let Some(now) = world.store.get(&member.value.key).await? else { break };
                *member = now;
            }
        }
    }
    Ok(None)
}

/// A claim as it is with a machine. Pure.
fn taking(facts: &Facts, batch: &Batch, instance: &FleetInstance, claim: &Claim, now: Timestamp) -> Result<Claim, HandleError> {
    let machine = machine::machine(facts, batch, instance, now);
    let mut next = step(claim, &Event::FleetAnswered(machine), now)?;
    next.look_again_at = None;
    if let Some(record) = facts.class(&batch.node_class) {
        next.annotations.insert(labels::NODE_CLASS_HASH.to_owned(), record.hash.clone());
        next.annotations.insert(labels::NODE_CLASS_HASH_VERSION.to_owned(), hashes::NODE_CLASS_VERSION.to_owned());
        next.annotations.insert(labels::INSTANCE_PROFILE_NAME.to_owned(), record.instance_profile.clone());
    }
    Ok(next)
}

/// A call that did not succeed as a whole.
pub(crate) async fn failed<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    facts: &Facts,
    cluster: &ClusterName,
    batch: &Batch,
    error: CloudError,
    report: &mut Report,
) -> Result<(), HandleError>
where
    S: ClaimStore + RegionStore,
    C: Fleets,
    K: Mirrors + StatusWriter,
    Q: Queues,
    T: Clock,
{
    let now = world.clock.now();
    if error.kind == CloudErrorKind::InsufficientCapacity {
        world.store.put_stock_outs(&machine::all_struck(batch, &error.code, &facts.stock_outs, now)).await?;
        for name in &batch.members {
            if let Some(claim) = waiting(world, cluster, name, &batch.id).await? {
                give_up(world, claim, DeletionReason::InsufficientCapacity, &error.to_string(), report).await?;
            }
        }
        return Ok(());
    }
    let delay = match error.kind {
        CloudErrorKind::Unauthorized | CloudErrorKind::Invalid | CloudErrorKind::IdempotencyMismatch => LATER,
        _ => SOON,
    };
    report.count(if error.kind == CloudErrorKind::Throttled { "throttled" } else { "retried" });
    let reason = CreateReason::of(&error.to_string());
    let mut again = Vec::new();
    for name in &batch.members {
        let Some(claim) = waiting(world, cluster, name, &batch.id).await? else { continue };
        let erred = Event::LaunchErred { reason: reason.as_str().to_owned(), message: format!("{}: {error}", reason.advice()) };
        let mut next = step(&claim.value, &erred, now)?;
        next.look_again_at = now.checked_add(delay).ok();
        if unless_moved(save(world.store, &claim, next).await)?.is_some() {
            again.push(name.clone());
        }
    }
    if again.is_empty() { Ok(()) } else { ring_again(world, cluster, again, delay).await }
}

/// Rings again for claims that this run has moved on, so that a twin of it rings for none of them, or that wait for a person:
/// then seldom, and not beyond the launch timeout.
pub(crate) async fn ring_again<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    cluster: &ClusterName,
    claims: Vec<ClaimName>,
    delay: SignedDuration,
) -> Result<(), HandleError>
where
    Q: Queues,
{
    Ok(world.queues.ring(Doorbell::Launch { cluster: cluster.clone(), claims }, delay).await?)
}

/// Gives a claim a batch of its own: the one it has cannot bring it a machine any more.
pub(crate) async fn under_new_name<S, C, K, Q, T>(
    world: World<'_, S, C, K, Q, T>,
    cluster: &ClusterName,
    claim: Stored<Claim>,
    old: &str,
    delay: SignedDuration,
) -> Result<(), HandleError>
where
    S: ClaimStore,
    Q: Queues,
    T: Clock,
{
    let name = claim.value.key.name.clone();
    // The old name is part of the new one, so that no two tries of a claim are ever the same call.
    let to = plan::id_of(cluster, &[name.clone(), ClaimName::new(old)]);
    let now = world.clock.now();
    let Ok(mut next) = step(&claim.value, &Event::TokenReplaced { from: old.to_owned(), to }, now) else { return Ok(()) };
    next.look_again_at = now.checked_add(delay).ok();
    if unless_moved(save(world.store, &claim, next).await)?.is_some() {
        ring_again(world, cluster, vec![name], delay).await?;
    }
    Ok(())
}
