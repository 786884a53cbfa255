//! NodePools for whose nodes EC2 refuses replacements because the request is invalid, for example with a volume that is too small
//! (disruption 11.2). Each attempt taints nodes until its launch is given up, so that the wait before the next one grows. Pure.

use crate::execute::find_claim;
use crate::progress::takes_no_pods;
use crate::state::{Disruptions, Running, command_timeout, refused_for};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::Kind;
use whittle_api::karpenter::{Ec2NodeClassStatus, NodePool};
use whittle_api::{ConditionStatus, Unreadable, conditions};
use whittle_claims::{Claim, DeletionReason, LAUNCH_TIMEOUT, Phase};
use whittle_model::disruption::{ClaimFacts, NOT_INITIALIZED, ReplacementRefused, TAKES_NO_PODS};
use whittle_snapshot::Snapshot;
use whittle_units::{SignedDuration, Timestamp, fnv1a};

/// Reasons of the condition Launched of a machine of which nothing was refused: nothing was tried, or EC2 was in trouble.
const NOT_REFUSED: [&str; 4] = ["AwaitingReconciliation", "NodeClassReadinessUnknown", "RequestLimitExceeded", "InternalError"];
/// A Node that joined so long ago and is not initialized may never be.
const INITIALIZED_WITHIN: SignedDuration = SignedDuration::from_mins(5);
/// NodePools and, for each, claims that are remembered: the record of all disruptions is one item of the table.
const POOLS_MAX: usize = 50;
const CLAIMS_MAX: usize = 50;
/// Characters of EC2's words that are kept.
const MESSAGE_MAX: usize = 300;

/// What EC2 refuses of all that would replace the nodes of a NodePool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchRefusal {
    /// How often in succession.
    pub times: u32,
    /// When another machine may be tried.
    pub until: Timestamp,
    /// What EC2 said.
    pub message: String,
    pub asked: Asked,
    /// The claims of nodes whose replacement was refused.
    pub claims: BTreeSet<String>,
}

/// What was asked of EC2.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// The uid of the NodePool that the machine was of.
    pub node_pool: String,
    /// A hash of that NodePool and its node class; `None` if one of them could not be read.
    pub hash: Option<u64>,
}

impl Asked {
    pub(crate) fn of(node_pool: &str, snapshot: &Snapshot) -> Self {
        let hash = || {
            let pool = snapshot.objects.node_pools.iter().find(|pool| pool.metadata.uid == node_pool)?;
            let class = pool.class_in(&snapshot.objects.node_classes)?;
            // Of the status what a launch uses: free instances of reservations change all the time.
            let Ec2NodeClassStatus { subnets, security_groups, amis, instance_profile, .. } = &class.status;
            // Listed by their free addresses, which change as well.
            let subnets: BTreeSet<&str> = subnets.iter().map(|subnet| subnet.id.as_str()).collect();
            let spec = (pool.metadata.generation, &class.metadata.uid, class.metadata.generation);
            Some(fnv1a(format!("{spec:?} {subnets:?} {security_groups:?} {amis:?} {instance_profile:?}")))
        };
        Self { node_pool: node_pool.to_owned(), hash: hash() }
    }

    /// Whether the request would be another one now: a user has changed pool or class, or other images, subnets or security groups were
    /// found. A deleted NodePool counts as changed, and so does one that was created again under its name.
    pub(crate) fn has_changed(&self, snapshot: &Snapshot) -> bool {
        let now = Self::of(&self.node_pool, snapshot);
        self.hash.zip(now.hash).is_some_and(|(then, now)| then != now) || self.is_pool_gone(snapshot)
    }

    /// Whether the NodePool does not exist any more, as far as all of them could be read.
    fn is_pool_gone(&self, snapshot: &Snapshot) -> bool {
        let objects = &snapshot.objects;
        let is_it = |uid: &str| uid == self.node_pool;
        let may_be_it = |odd: &Unreadable| odd.metadata.uid.is_empty() || is_it(&odd.metadata.uid);
        let mut odd = [NodePool::KIND, "Provisioner"].into_iter().flat_map(|kind| objects.unreadable_of(kind));
        let is_hidden = objects.lacks_kind(NodePool::KIND) || odd.any(may_be_it);
        !self.node_pool.is_empty() && !objects.node_pools.iter().any(|pool| is_it(&pool.metadata.uid)) && !is_hidden
    }
}

/// The refusal of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused<'a> {
    /// The uid of the machine's NodePool.
    pub(crate) node_pool: &'a str,
    pub(crate) message: &'a str,
}

/// What EC2 said of a claim, if it was given up because EC2 refused its launch until then.
pub(crate) fn refusal_of(claim: &Claim) -> Option<&str> {
    let is_given_up = claim.deletion.as_ref().is_some_and(|deletion| deletion.reason == DeletionReason::LaunchTimeout);
    let launched = conditions::find(&claim.conditions, conditions::LAUNCHED).filter(|_| is_given_up)?;
    let is_refused = launched.status != ConditionStatus::True && !NOT_REFUSED.contains(&launched.reason.as_str());
    is_refused.then_some(launched.message.as_str())
}

/// The refusal because of which a command ends: each attempt to launch one of its replacements failed until that was given up, or one was
/// launched in vain. What EC2 has not in stock fails at the first attempt, and something else is planned then.
pub(crate) fn refused_launch<'a>(snapshot: &'a Snapshot, running: &Running) -> Option<Refused<'a>> {
    running.replacements.iter().find_map(|replacement| {
        let claim = &find_claim(snapshot, &replacement.key.name)?.value;
        let message = refusal_of(claim).or_else(|| launched_in_vain(snapshot, claim))?;
        Some(Refused { node_pool: &claim.spec.owner.uid, message })
    })
}

/// Why a running replacement is of no use: its Node takes no pods, or was never initialized. The next one may be no better, for example if
/// nodes of an image stop being ready, if something cordons each new node, or if nobody removes a startup taint. The useless machine stays
/// (in a static pool as surplus), so that each further attempt would add one.
fn launched_in_vain(snapshot: &Snapshot, claim: &Claim) -> Option<&'static str> {
    if claim.is_ending() || snapshot.is_deleted_by_user(claim) {
        return None;
    }
    match &claim.phase {
        Phase::Initialized { .. } => takes_no_pods(snapshot, claim).then_some(TAKES_NO_PODS),
        Phase::Registered { since, .. } => {
            let is_late = snapshot.now.duration_since(*since) >= INITIALIZED_WITHIN;
            is_late.then_some(NOT_INITIALIZED)
        }
        _ => None,
    }
}

/// The uids of the NodePools whose nodes a command removes.
fn pools_of<'a>(running: &Running, snapshot: &'a Snapshot) -> BTreeSet<&'a str> {
    let claims = running.removals.iter().filter_map(|deleting| find_claim(snapshot, &deleting.claim));
    claims.map(|claim| claim.value.spec.owner.uid.as_str()).filter(|uid| !uid.is_empty()).collect()
}

/// Whether a replacement of a command has no machine yet; one that the snapshot lacks was created a moment ago.
fn is_launching(running: &Running, snapshot: &Snapshot) -> bool {
    let lacks_machine = |name| find_claim(snapshot, name).is_none_or(|claim| claim.value.machine().is_none());
    running.replacements.iter().any(|replacement| lacks_machine(&replacement.key.name))
}

/// Whether a replacement of a command takes no pods: it is not initialized yet, or its Node is cordoned or not ready any more, so that the
/// command waits until its timeout.
fn awaits_room(running: &Running, snapshot: &Snapshot) -> bool {
    let is_ready = |claim: &Claim| matches!(claim.phase, Phase::Initialized { .. }) && !takes_no_pods(snapshot, claim);
    let awaited = |name| find_claim(snapshot, name).is_none_or(|claim| !is_ready(&claim.value));
    running.replacements.iter().any(|replacement| awaited(&replacement.key.name))
}

impl Disruptions {
    /// Records that a command was rolled back because EC2 refuses its replacement. Commands of one pool that ran together count once.
    pub(crate) fn record_refused_launch(&mut self, running: &Running, refused: &Refused<'_>, snapshot: &Snapshot) {
        let (asked, now) = (Asked::of(refused.node_pool, snapshot), snapshot.now);
        for pool in pools_of(running, snapshot) {
            if !self.launches_refused.contains_key(pool) && self.launches_refused.len() >= POOLS_MAX {
                continue;
            }
            let known = self.launches_refused.remove(pool).filter(|known| known.asked == asked);
            let (times, until, mut claims) = match known {
                Some(known) if now < known.until => (known.times, known.until, known.claims),
                known => {
                    let times = known.as_ref().map_or(0, |known| known.times).saturating_add(1);
                    let until = now.checked_add(refused_for(times)).unwrap_or(now);
                    (times, until, known.map(|known| known.claims).unwrap_or_default())
                }
            };
            let left = CLAIMS_MAX.saturating_sub(claims.len());
            claims.extend(running.removals.iter().map(|deleting| deleting.claim.as_str().to_owned()).take(left));
            let message = refused.message.chars().take(MESSAGE_MAX).collect();
            self.launches_refused.insert(pool.to_owned(), LaunchRefusal { times, until, message, asked: asked.clone(), claims });
        }
    }

    /// Forgets the refusals of a command's pools once all its replacements serve.
    pub(crate) fn forget_refused_launch(&mut self, running: &Running, snapshot: &Snapshot) {
        if running.replacements.is_empty() {
            return;
        }
        for pool in pools_of(running, snapshot) {
            self.launches_refused.remove(pool);
        }
    }

    /// Adds to what is known of claims for how long no replacement of them is launched.
    pub(crate) fn add_refused_launches(&self, snapshot: &Snapshot, facts: &mut BTreeMap<String, ClaimFacts>) {
        if self.launches_refused.is_empty() {
            return;
        }
        // What EC2 refuses of what was asked before a change says nothing of what is asked now.
        let known = self.launches_refused.iter().filter(|(_, refusal)| !refusal.asked.has_changed(snapshot));
        let known: BTreeMap<&str, (&LaunchRefusal, Option<ReplacementRefused>)> =
            known.map(|(pool, refusal)| (pool.as_str(), (refusal, self.refused_now(pool, refusal, snapshot)))).collect();
        for claim in snapshot.claims.iter().map(|stored| &stored.value).filter(|claim| claim.is_live()) {
            let (name, pool) = (claim.key.name.as_str(), claim.spec.owner.uid.as_str());
            let Some((refusal, refused_now)) = known.get(pool) else { continue };
            let of_claim = facts.entry(name.to_owned()).or_default();
            of_claim.was_refused_replacement = refusal.claims.contains(name);
            if refused_now.is_some() {
                of_claim.replacement_refused.clone_from(refused_now);
            }
        }
    }

    /// How long no further replacements are launched for a pool: until its wait is over, and while one command tries whether EC2 still
    /// refuses, or whether new machines have become useful.
    fn refused_now(&self, pool: &str, refusal: &LaunchRefusal, snapshot: &Snapshot) -> Option<ReplacementRefused> {
        let is_in_vain = [TAKES_NO_PODS, NOT_INITIALIZED].contains(&refusal.message.as_str());
        let is_open = |running: &Running| if is_in_vain { awaits_room(running, snapshot) } else { is_launching(running, snapshot) };
        let lasts = if is_in_vain { command_timeout(self.removals().count()) } else { LAUNCH_TIMEOUT };
        let tries = |running: &&Running| is_open(running) && pools_of(running, snapshot).contains(pool);
        let tried = self.running.iter().filter(tries).filter_map(|running| running.started_at.checked_add(lasts).ok()).max();
        let until = tried.map_or(refusal.until, |tried| tried.max(refusal.until));
        (tried.is_some() || snapshot.now < until).then(|| ReplacementRefused { until, message: Some(refusal.message.clone()) })
    }
}
