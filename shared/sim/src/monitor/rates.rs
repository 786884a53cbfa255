//! Rate limits: fleet calls per second, doorbells per minute.

use crate::Function;
use crate::world::World;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, VecDeque};
use whittle_api::labels;
use whittle_claims::{BucketName, Claim, ClaimKey, Doorbell, Phase, Stored};
use whittle_ec2::fleet::FleetRequest;
use whittle_units::InstanceId;

/// CreateFleet's limits of an account and region, in thousandths of a call: fifty at once, five a second. One more for each
/// run is allowed: a call counts when it arrives, not when it was permitted.
const FLEET_BURST: i64 = 50_000;
const FLEET_PER_MS: i64 = 5;
/// For how long a run may keep tokens for fleet calls: it takes up to twenty, and stores its calls before it makes them.
const FLEET_TOKEN_KEPT: SignedDuration = SignedDuration::from_secs(60);
/// Doorbells that functions ring for one subject within a minute: one per second for a draining claim, and as many for
/// duplicates, sweeps and events.
const DOORBELLS_MAX: usize = 200;
/// Doorbells that `register` rings for itself within a minute: one in five seconds, plus a margin of a half.
const REGISTER_DOORBELLS_MAX: usize = 18;
/// Doorbells that `launch` rings for itself within a minute.
const LAUNCH_DOORBELLS_MAX: usize = 60;
/// A claim whose deletion began this long ago must not get a machine.
const ENDED_AGO: SignedDuration = SignedDuration::from_secs(60);

/// The recent requests.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// Thousandths of fleet calls that may be made, and when this was computed.
    fleet: Option<(i64, Timestamp)>,
    /// When the account's bucket has granted fleet calls that were not made yet.
    fleet_tokens: VecDeque<Timestamp>,
    doorbells: BTreeMap<(Function, String), VecDeque<Timestamp>>,
    /// Evictions that the cluster's bucket has granted and that were not requested yet.
    evictions: u64,
    /// Doorbells that `register` rang for itself.
    register: VecDeque<Timestamp>,
    /// Doorbells that `launch` rang for itself.
    launch: VecDeque<Timestamp>,
}

fn subject(doorbell: &Doorbell) -> String {
    match doorbell {
        Doorbell::Terminate { claim, .. } => format!("claim {claim}"),
        other => format!("cluster {}", other.cluster()),
    }
}

impl World {
    /// A fleet call arrives. One that a token permits may come late, when others have the tokens of that time.
    pub(crate) fn observe_fleet_call(&mut self) {
        let now = self.now();
        self.monitor.rates.fleet_tokens.retain(|at| now.duration_since(*at) <= FLEET_TOKEN_KEPT);
        let is_permitted = self.monitor.rates.fleet_tokens.pop_front().is_some();
        self.observe_fleet_rate(is_permitted);
    }

    pub(crate) fn observe_fleet_rate(&mut self, is_permitted: bool) {
        let now = self.now();
        let runs = self.runs_of(Function::Launch);
        let at_work = 1_000 * i64::try_from(runs.max(1)).unwrap_or(1);
        // Fast clocks refill the bucket early, once.
        let burst = FLEET_BURST + at_work + 2 * FLEET_PER_MS * i64::from(self.faults.clock_skew_ms);
        let (left, at) = self.monitor.rates.fleet.unwrap_or((burst, now));
        let refilled = i64::try_from(now.duration_since(at).as_millis()).unwrap_or(0).saturating_mul(FLEET_PER_MS);
        let left = left.saturating_add(refilled).min(burst) - 1_000;
        self.monitor.rates.fleet = Some((left.max(0), now));
        if left < 0 && !is_permitted {
            self.report_violation("fleets were requested faster than EC2's rate limit".to_owned());
        }
    }

    pub(crate) fn observe_tokens(&mut self, name: &BucketName, count: u32) {
        if name.0.starts_with("Evictions/") {
            self.monitor.rates.evictions += u64::from(count);
        } else if name.0 == "CreateFleet" {
            let granted = (0..count).map(|_| self.now()).collect::<Vec<_>>();
            self.monitor.rates.fleet_tokens.extend(granted);
        }
    }

    /// An eviction is requested: nodes that are drained at the same time share the cluster's bucket.
    pub(crate) fn observe_eviction_rate(&mut self) {
        match self.monitor.rates.evictions.checked_sub(1) {
            Some(left) => self.monitor.rates.evictions = left,
            None => self.report_violation("more evictions were requested than the cluster's bucket granted".to_owned()),
        }
    }

    /// A fleet call started machines: some claim must still need them.
    pub(crate) fn observe_still_needed(&mut self, request: &FleetRequest, started: &[InstanceId]) {
        let (cluster, now) = (self.name(), self.now());
        if started.is_empty() {
            return;
        }
        let launch = request.tags.get(labels::TAG_LAUNCH);
        let of_call = |claim: &&Claim| matches!(&claim.phase, Phase::Launching { client_token, .. } if Some(client_token) == launch);
        let abandoned = launch.is_some_and(|launch| self.was_abandoned(launch));
        let waiting: Vec<&Claim> = self.store.claims(&cluster).map(|stored| &stored.value).filter(of_call).collect();
        let ended = |at: Timestamp| now.duration_since(at) > ENDED_AGO;
        let unwanted =
            !waiting.is_empty() && waiting.iter().all(|claim| claim.deletion.as_ref().is_some_and(|deletion| ended(deletion.at)));
        if unwanted {
            self.report_violation(format!("machine {} was started for claims that had long been marked for deletion", started[0]));
        }
        if abandoned {
            self.report_violation(format!("machine {} was started by a call whose claims had all ended", started[0]));
        }
    }

    /// Whether all claims of a call that is stored have ended without a machine.
    fn was_abandoned(&self, launch: &str) -> bool {
        let stored = self.store.record(&self.cluster.name, "launch", launch);
        let members = stored.and_then(|call| call["members"].as_array()).into_iter().flatten().filter_map(serde_json::Value::as_str);
        let key = |name: &str| ClaimKey { cluster: self.cluster.name.clone(), name: name.into() };
        let mut claims = members.map(|name| self.store.claim(&key(name))).peekable();
        let ended =
            |claim: Option<&Stored<Claim>>| claim.is_some_and(|stored| !stored.value.is_live() && stored.value.instance().is_none());
        claims.peek().is_some() && claims.all(ended)
    }

    /// A function rings its own doorbell: only one chain of runs does that, however many of its messages are duplicated.
    fn observe_self_doorbell(&mut self, function: Function, now: Timestamp, since: Timestamp) {
        let rates = &mut self.monitor.rates;
        let (doorbells, most) = match function {
            Function::Register => (&mut rates.register, REGISTER_DOORBELLS_MAX),
            Function::Launch => (&mut rates.launch, LAUNCH_DOORBELLS_MAX),
            _ => return,
        };
        doorbells.push_back(now);
        while doorbells.front().is_some_and(|at| *at < since) {
            doorbells.pop_front();
        }
        let count = doorbells.len();
        if count > most {
            self.report_violation(format!("{function} rang its own doorbell {count} times within a minute"));
        }
    }

    pub(crate) fn observe_doorbell(&mut self, doorbell: &Doorbell, caller: Option<Function>) {
        let (now, function) = (self.now(), doorbell.function());
        let since = now.checked_sub(SignedDuration::from_mins(1)).unwrap_or(Timestamp::MIN);
        if caller == Some(function) {
            self.observe_self_doorbell(function, now, since);
        }
        let about = subject(doorbell);
        let doorbells = self.monitor.rates.doorbells.entry((function, about.clone())).or_default();
        doorbells.push_back(now);
        while doorbells.front().is_some_and(|at| *at < since) {
            doorbells.pop_front();
        }
        let count = doorbells.len();
        self.counts.busiest = self.counts.busiest.max(u64::try_from(count).unwrap_or(u64::MAX));
        // All claims of a cluster share the doorbells of its other functions.
        let cluster = self.name();
        let live = self.store.claims(&cluster).filter(|stored| stored.value.is_live()).count();
        let most = if function == Function::Terminate { DOORBELLS_MAX } else { DOORBELLS_MAX + 20 * live };
        if count > most {
            self.report_violation(format!("{function} got more than {most} doorbells within a minute for {about}"));
        }
    }
}
