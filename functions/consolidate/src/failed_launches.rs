//! Static pools whose machines EC2 does not launch: the wait before the next attempt grows (disruption 16). Each attempt creates a claim
//! for every missing replica, and all of them are given up again. Pure.

use crate::refused::{Asked, refusal_of};
use crate::state::{Disruptions, refused_for};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_claims::{Claim, Phase};
use whittle_snapshot::Snapshot;
use whittle_units::{SignedDuration, Timestamp};

/// How long nothing is launched after EC2 had none of the types, twice as long after each further time, and the longest: hardly longer than
/// pods leave alone what is out of stock.
const SOLD_OUT_FOR: SignedDuration = SignedDuration::from_mins(1);
const SOLD_OUT_FOR_MAX: SignedDuration = SignedDuration::from_mins(5);
/// Failures count as successive if the next follows within this after a wait.
const REMEMBERED_FOR: SignedDuration = SignedDuration::from_hours(1);
/// Pools in the record, which is one item of the table; characters of the messages of the first static pools, how many these are, and
/// characters of those of the others.
const POOLS_MAX: usize = 200;
const MESSAGE_MAX: usize = 300;
const MESSAGES_IN_FULL: usize = 50;
const MESSAGE_MIN: usize = 80;

/// That EC2 launched none of the machines that a static pool lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedLaunches {
    /// How many failures there were in succession. A refusal after stock-outs counts as the first. Zero after a successful launch, or after
    /// a change of the pool or its class.
    pub times: u32,
    /// The last of them was a refusal.
    #[serde(default)]
    pub is_refusal: bool,
    /// When the last of them failed: no failure counts twice.
    pub failed_at: Timestamp,
    /// When machines may be tried again.
    pub until: Timestamp,
    /// What EC2 said.
    pub message: String,
    pub asked: Asked,
}

/// The end of a claim without a machine.
struct Failure<'a> {
    at: Timestamp,
    message: &'a str,
    /// EC2 refuses what is asked of it, instead of having none of it.
    is_refusal: bool,
}

impl<'a> Failure<'a> {
    fn of(claim: &'a Claim) -> Option<Self> {
        match &claim.phase {
            Phase::Failed { since, message, .. } => Some(Self { at: *since, message, is_refusal: false }),
            Phase::Planned | Phase::Launching { .. } | Phase::Gone { machine: None, .. } => {
                let (message, deletion) = refusal_of(claim).zip(claim.deletion.as_ref())?;
                Some(Self { at: deletion.at, message, is_refusal: true })
            }
            _ => None,
        }
    }

    fn wait(&self, times: u32) -> SignedDuration {
        if self.is_refusal {
            return refused_for(times);
        }
        (SOLD_OUT_FOR * 2_i32.saturating_pow(times.saturating_sub(1).min(10))).min(SOLD_OUT_FOR_MAX)
    }
}

impl Disruptions {
    /// Records which static pools have got no machine since the last pass. Replacements that commands launch have waits of their own.
    pub(crate) fn track_failed_launches(&mut self, snapshot: &Snapshot) {
        let now = snapshot.now;
        let pools = snapshot.objects.node_pools.iter().filter(|pool| pool.is_static());
        let pools: BTreeMap<&str, &str> = pools.map(|pool| (pool.metadata.name.as_str(), pool.metadata.uid.as_str())).collect();
        // What was refused to a pool says nothing of another one that has its name now.
        let is_of = |pool: &str, known: &FailedLaunches| pools.get(pool).is_some_and(|uid| *uid == known.asked.node_pool);
        self.failed_launches.retain(|pool, known| is_of(pool, known) && now.duration_since(known.until) < REMEMBERED_FOR);
        for (at, (&pool, &uid)) in pools.iter().enumerate() {
            let is_its = |claim: &&Claim| {
                let (spec, owner) = (&claim.spec, &claim.spec.owner);
                let is_owned = owner.kind != "Provisioner" && (owner.uid.is_empty() || owner.uid == uid);
                is_owned && spec.node_pool == pool && spec.replaces.is_none()
            };
            let claims = || snapshot.claims.iter().map(|stored| &stored.value).filter(is_its);
            let mut known = self.failed_launches.get(pool).cloned();
            if let Some(known) = &mut known {
                let launches = || claims().any(|claim| claim.machine().is_some() && known.failed_at < claim.created_at);
                if known.asked.has_changed(snapshot) || 0 < known.times && launches() {
                    (known.times, known.until, known.asked) = (0, now, Asked::of(uid, snapshot));
                }
            }
            let is_new = |failure: &Failure<'_>| {
                let is_recent = now.duration_since(failure.at) < REMEMBERED_FOR;
                is_recent && known.as_ref().is_none_or(|known| known.failed_at < failure.at)
            };
            let newest = claims().filter_map(Failure::of).filter(is_new).max_by_key(|failure| failure.at);
            let length = if at < MESSAGES_IN_FULL { MESSAGE_MAX } else { MESSAGE_MIN };
            let next = newest.map(|failure| failed_again(known.as_ref(), &failure, length, Asked::of(uid, snapshot)));
            if let Some(next) = next.or(known)
                && (self.failed_launches.contains_key(pool) || self.failed_launches.len() < POOLS_MAX)
            {
                self.failed_launches.insert(pool.to_owned(), next);
            }
        }
    }

    /// Why no machines are launched for a static pool now, if so.
    pub(crate) fn launch_wait(&self, pool: &str, now: Timestamp) -> Option<String> {
        let known = self.failed_launches.get(pool).filter(|known| 0 < known.times && now < known.until)?;
        let times = if known.times == 1 { "once".to_owned() } else { format!("{} times in succession", known.times) };
        Some(format!(
            "EC2 launched no machine for its missing replicas, {times}: {}; the next attempt is not before {}, unless NodePool or node \
             class changes",
            known.message, known.until
        ))
    }
}

/// What is known after a failure. Claims of one attempt count once, though some fail later than others.
fn failed_again(known: Option<&FailedLaunches>, failure: &Failure<'_>, length: usize, asked: Asked) -> FailedLaunches {
    if let Some(known) = known.filter(|known| 0 < known.times && failure.at < known.until) {
        return FailedLaunches { failed_at: failure.at, ..known.clone() };
    }
    // A refusal is waited for longer: stock-outs before it say nothing of how long it lasts.
    let known = known.filter(|known| known.is_refusal || !failure.is_refusal);
    let times = known.map_or(0, |known| known.times).saturating_add(1);
    FailedLaunches {
        times,
        is_refusal: failure.is_refusal,
        failed_at: failure.at,
        until: failure.at.checked_add(failure.wait(times)).unwrap_or(failure.at),
        message: failure.message.chars().take(length).collect(),
        asked,
    }
}
