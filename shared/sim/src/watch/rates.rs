//! How much is asked and said: fleet calls a second, doorbells a minute.

use crate::Function;
use crate::world::World;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, VecDeque};
use whittle_api::labels;
use whittle_claims::{BucketName, Claim, ClaimKey, Doorbell, Phase, Stored};
use whittle_ec2::fleet::FleetRequest;
use whittle_units::InstanceId;

/// CreateFleet's limits of an account and region, in thousandths of a call: five at once, two a second. One more for each
/// run is let pass: a call counts when it arrives, not when it was allowed.
const FLEET_BURST: i64 = 5_000;
const FLEET_PER_MS: i64 = 2;
/// Doorbells that functions ring for one subject within a minute: a look a second for a draining claim, with as many again
/// that come twice, are sent again by sweeps or follow from events.
const RUNG_MAX: usize = 200;
/// Doorbells that `register` rings for itself within a minute: one in five seconds, and half as many again.
const LOOKS_MAX: usize = 18;
/// Doorbells that `launch` rings for itself within a minute.
const TRIES_MAX: usize = 60;
/// A claim that was to end so long ago gets no machine any more.
const ENDED_AGO: SignedDuration = SignedDuration::from_secs(60);

/// What was asked and said lately.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// Thousandths of fleet calls that may be made, and when that was counted.
    fleet: Option<(i64, Timestamp)>,
    rung: BTreeMap<(Function, String), VecDeque<Timestamp>>,
    /// Evictions that the cluster's bucket let pass and that nobody has asked for yet.
    evictions: u64,
    /// Looks that `register` asked for itself.
    looks: VecDeque<Timestamp>,
    /// Tries that `launch` asked for itself.
    tries: VecDeque<Timestamp>,
}

/// Whom a doorbell is about.
fn subject(bell: &Doorbell) -> String {
    match bell {
        Doorbell::Terminate { claim, .. } => format!("claim {claim}"),
        other => format!("cluster {}", other.cluster()),
    }
}

impl World {
    /// A fleet is asked for.
    pub(crate) fn watch_fleet_rate(&mut self) {
        let now = self.now();
        let runs = self.runs_of(Function::Launch);
        let at_work = 1_000 * i64::try_from(runs.max(1)).unwrap_or(1);
        // Clocks that are ahead refill the bucket early, once.
        let burst = FLEET_BURST + at_work + 2 * FLEET_PER_MS * i64::from(self.faults.clock_skew_ms);
        let (left, at) = self.watched.rates.fleet.unwrap_or((burst, now));
        let refilled = i64::try_from(now.duration_since(at).as_millis()).unwrap_or(0).saturating_mul(FLEET_PER_MS);
        let left = left.saturating_add(refilled).min(burst) - 1_000;
        self.watched.rates.fleet = Some((left.max(0), now));
        if left < 0 {
            self.broke("fleets were asked for faster than EC2 lets".to_owned());
        }
    }

    /// A bucket let somebody pass.
    pub(crate) fn watch_tokens(&mut self, name: &BucketName, count: u32) {
        if name.0.starts_with("Evictions/") {
            self.watched.rates.evictions += u64::from(count);
        }
    }

    /// An eviction is asked for: nodes that are drained at the same time share what their cluster's bucket lets.
    pub(crate) fn watch_eviction_rate(&mut self) {
        match self.watched.rates.evictions.checked_sub(1) {
            Some(left) => self.watched.rates.evictions = left,
            None => self.broke("more evictions were asked for than the cluster's bucket let pass".to_owned()),
        }
    }

    /// Machines came of a fleet call: somebody must still want them.
    pub(crate) fn watch_wanted(&mut self, request: &FleetRequest, came: &[InstanceId]) {
        let (cluster, now) = (self.name(), self.now());
        if came.is_empty() {
            return;
        }
        let launch = request.tags.get(labels::TAG_LAUNCH);
        let of_call = |claim: &&Claim| matches!(&claim.phase, Phase::Launching { client_token, .. } if Some(client_token) == launch);
        let given_up = launch.is_some_and(|launch| self.was_given_up(launch));
        let waiting: Vec<&Claim> = self.store.claims(&cluster).map(|stored| &stored.value).filter(of_call).collect();
        let ended = |at: Timestamp| now.duration_since(at) > ENDED_AGO;
        let unwanted =
            !waiting.is_empty() && waiting.iter().all(|claim| claim.deletion.as_ref().is_some_and(|deletion| ended(deletion.at)));
        if unwanted {
            self.broke(format!("machine {} was bought for claims that were to end long before", came[0]));
        }
        if given_up {
            self.broke(format!("machine {} came of a call that nobody waited for any more", came[0]));
        }
    }

    /// Whether all claims of a call that is stored have ended without a machine.
    fn was_given_up(&self, launch: &str) -> bool {
        let stored = self.store.record(&self.cluster.name, "launch", launch);
        let members = stored.and_then(|call| call["members"].as_array()).into_iter().flatten().filter_map(serde_json::Value::as_str);
        let key = |name: &str| ClaimKey { cluster: self.cluster.name.clone(), name: name.into() };
        let mut claims = members.map(|name| self.store.claim(&key(name))).peekable();
        let ended =
            |claim: Option<&Stored<Claim>>| claim.is_some_and(|stored| !stored.value.is_live() && stored.value.instance().is_none());
        claims.peek().is_some() && claims.all(ended)
    }

    /// A function asks for its own next run: one chain of runs does that, however many of its messages come twice.
    fn watch_own(&mut self, function: Function, now: Timestamp, since: Timestamp) {
        let rates = &mut self.watched.rates;
        let (rung, most) = match function {
            Function::Register => (&mut rates.looks, LOOKS_MAX),
            Function::Launch => (&mut rates.tries, TRIES_MAX),
            _ => return,
        };
        rung.push_back(now);
        while rung.front().is_some_and(|at| *at < since) {
            rung.pop_front();
        }
        let count = rung.len();
        if count > most {
            self.broke(format!("{function} rang for itself {count} times within a minute"));
        }
    }

    /// A function rings.
    pub(crate) fn watch_rung(&mut self, bell: &Doorbell, caller: Option<Function>) {
        let (now, function) = (self.now(), bell.function());
        let since = now.checked_sub(SignedDuration::from_mins(1)).unwrap_or(Timestamp::MIN);
        if caller == Some(function) {
            self.watch_own(function, now, since);
        }
        let about = subject(bell);
        let rung = self.watched.rates.rung.entry((function, about.clone())).or_default();
        rung.push_back(now);
        while rung.front().is_some_and(|at| *at < since) {
            rung.pop_front();
        }
        let count = rung.len();
        self.counts.busiest = self.counts.busiest.max(u64::try_from(count).unwrap_or(u64::MAX));
        // All claims of a cluster share the doorbells of its other functions.
        let cluster = self.name();
        let live = self.store.claims(&cluster).filter(|stored| stored.value.is_live()).count();
        let most = if function == Function::Terminate { RUNG_MAX } else { RUNG_MAX + 20 * live };
        if count > most {
            self.broke(format!("{function} was rung more than {most} times within a minute for {about}"));
        }
    }
}
