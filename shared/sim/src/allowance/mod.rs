//! Checks that a pool's disruption budgets allow a disruption at the moment it begins.
//!
//! No code is shared with the deciding function: nodes are counted from the objects that the run read, and windows of
//! schedules are found by trying every minute.

mod window;

use crate::world::World;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use whittle_api::k8s::{IntOrString, Node};
use whittle_api::karpenter::{Budget, NodePool};
use whittle_api::{ClusterObjects, conditions, labels};
use whittle_claims::{Claim, DeletionReason, Phase};

/// How old the observation behind a decision may be: a lease is held for a minute, and a run that dies after it decided is
/// continued by the next.
const OBSERVATION_VALID: SignedDuration = SignedDuration::from_mins(3);
/// The clock skew of a run.
const SKEW: SignedDuration = SignedDuration::from_secs(3);

/// The state of the checker.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    /// Claims as the deciding function listed them last.
    listed: BTreeMap<String, Listed>,
    /// The recent observations, oldest first.
    observations: VecDeque<Observation>,
    /// Disruptions that began recently: when, pool and claim.
    begun: Vec<(Timestamp, String, String)>,
}

/// A claim in a listing, by node name.
#[derive(Debug)]
struct Listed {
    disrupting: bool,
    terminating: bool,
}

/// The pools as one run saw them.
#[derive(Debug)]
struct Observation {
    at: Timestamp,
    pools: BTreeMap<String, Pool>,
}

#[derive(Debug)]
struct Pool {
    budgets: Vec<Budget>,
    /// Converted from a Provisioner, whose empty nodes were removed all at once.
    is_from_provisioner: bool,
    /// Initialized and not being terminated.
    nodes: u64,
    /// Those of them that are not ready or being disrupted.
    disrupting: BTreeSet<String>,
    /// The replicas and the node limit of a static pool.
    replicas: Option<u64>,
    limit: Option<u64>,
}

/// The reason of a disruption that budgets govern, as they name it, if one has begun.
fn reason_of(claim: &Claim) -> Option<&str> {
    let marked = conditions::find(&claim.conditions, conditions::DISRUPTION_REASON).map(|condition| condition.reason.as_str());
    marked.or_else(|| match claim.deletion.as_ref()?.reason {
        DeletionReason::Empty => Some("Empty"),
        DeletionReason::Drifted => Some("Drifted"),
        DeletionReason::Underutilized => Some("Underutilized"),
        _ => None,
    })
}

impl World {
    /// The deciding function listed the claims.
    pub(crate) fn observe_claim_listing(&mut self) {
        let cluster = self.name();
        let listed = self.store.claims(&cluster).map(|stored| &stored.value).filter_map(|claim| {
            let terminating = matches!(claim.phase, Phase::Terminating { .. });
            let disrupting = claim.deletion.is_some() || reason_of(claim).is_some();
            Some((claim.node_name()?.to_owned(), Listed { disrupting, terminating }))
        });
        // For an unreadable claim only the Node's taint tells whether it is being disrupted.
        let closed = |node: &Node| node.has_disrupted_taint();
        let hidden =
            self.store.claims_with_hidden(&cluster).filter(|stored| self.store.is_hidden(&stored.value.key)).filter_map(|stored| {
                let node = self.cluster.objects.nodes.get(stored.value.node_name()?)?;
                Some((
                    node.metadata.name.clone(),
                    Listed { disrupting: closed(node), terminating: matches!(stored.value.phase, Phase::Terminating { .. }) },
                ))
            });
        let listed = listed.chain(hidden).collect();
        self.allowance.listed = listed;
    }

    /// The deciding function read the cluster.
    pub(crate) fn observe_cluster_listing(&mut self, shown: &ClusterObjects) {
        let at = self.now();
        let pools = shown.node_pools.iter().map(|pool| (pool.metadata.name.clone(), self.allowance.pool_state(pool, &shown.nodes)));
        let observation = Observation { at, pools: pools.collect() };
        self.allowance.observations.push_back(observation);
        while self.allowance.observations.len() > 1
            && self.allowance.observations.front().is_some_and(|observation| at.duration_since(observation.at) > OBSERVATION_VALID)
        {
            self.allowance.observations.pop_front();
        }
        self.allowance.begun.retain(|(begun, ..)| at.duration_since(*begun) <= OBSERVATION_VALID);
    }

    /// A claim changed: a disruption may have begun or been cancelled.
    pub(crate) fn observe_disruption(&mut self, is_from_provisioner: &Claim, new: &Claim) {
        let name = new.key.name.as_str();
        match (reason_of(is_from_provisioner), reason_of(new)) {
            (None, Some(reason)) => self.disruption_begins(new, reason),
            (Some(_), None) => self.allowance.begun.retain(|(.., claim)| claim != name),
            _ => {}
        }
    }

    /// A claim was created: a static pool must exceed neither its replicas nor its limit, according to the recent
    /// observations of the deciding function.
    pub(crate) fn observe_static(&mut self, claim: &Claim) {
        let (cluster, pool) = (self.name(), &claim.spec.node_pool);
        let of_pool = |other: &&Claim| other.is_live() && other.spec.node_pool == *pool;
        let live: Vec<&Claim> = self.store.claims_with_hidden(&cluster).map(|stored| &stored.value).filter(of_pool).collect();
        // The deciding run read the table at most half a minute ago.
        let failed = |other: &Claim| match &other.phase {
            Phase::Failed { since, .. } => (32..55).contains(&self.now().duration_since(*since).as_secs()),
            _ => false,
        };
        let of_table = self.store.claims(&cluster).map(|stored| &stored.value);
        let tried = claim.spec.replaces.is_none() && of_table.filter(|other| other.spec.node_pool == *pool).any(failed);
        let size = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let (all, staying) = (size(live.len()), size(live.iter().filter(|claim| !self.is_to_end(claim)).count()));
        let over = |observation: &Observation| {
            let pool_state = observation.pools.get(pool)?;
            let replicas = pool_state.replicas?;
            // A replacement is temporarily one additional machine.
            let many = claim.spec.replaces.is_none() && staying > replicas;
            (many || pool_state.limit.is_some_and(|limit| all > limit)).then_some(replicas)
        };
        let verdicts: Vec<_> = self.allowance.observations.iter().map(over).collect();
        let is_static = self
            .allowance
            .observations
            .back()
            .and_then(|observation| observation.pools.get(pool))
            .is_some_and(|pool_state| pool_state.replicas.is_some());
        if tried && is_static {
            self.violations.push(format!("static pool {pool} got claim {} immediately after a failed launch", claim.key.name));
        }
        if let Some(Some(replicas)) = verdicts.last()
            && verdicts.iter().all(Option::is_some)
        {
            let text = format!("static pool {pool} has {replicas} replicas and got claim {}: now {staying} of {all}", claim.key.name);
            self.violations.push(text);
        }
    }

    /// When the command that removes a claim was decided, from the record of commands.
    fn decided_at(&self, claim: &str) -> Option<Timestamp> {
        let record = self.store.record(&self.name(), "disruption", "current")?;
        let names = |command: &&serde_json::Value| {
            let mut removals = command.get("removals")?.as_array()?.iter();
            removals.any(|one| one.get("claim").and_then(serde_json::Value::as_str) == Some(claim)).then_some(())
        };
        let command = record.get("running")?.as_array()?.iter().find(|command| names(command).is_some())?;
        command.get("startedAt")?.as_str()?.parse().ok()
    }

    fn disruption_begins(&mut self, claim: &Claim, reason: &str) {
        let (now, pool) = (self.now(), claim.spec.node_pool.clone());
        self.allowance.begun.push((now, pool.clone(), claim.key.name.to_string()));
        let same_name = |known: &&NodePool| known.metadata.name == pool;
        if self.cluster.objects.node_pools.values().filter(same_name).count() > 1 {
            return; // a Provisioner and a NodePool of one name cannot be distinguished from outside
        }
        let decided = self.decided_at(claim.key.name.as_str());
        if decided.is_some_and(|at| self.allowance.observations.front().is_some_and(|observation| at < observation.at)) {
            return; // decided by an earlier run that died
        }
        let broken = |observation: &Observation| {
            let begun = self.allowance.begun.iter().filter(|(at, of, _)| *at >= observation.at && *of == pool).count();
            let allowed =
                observation.pools.get(&pool).map_or(u64::MAX, |pool_state| pool_state.allows(reason, observation.at, claim.node_name()));
            (u64::try_from(begun).unwrap_or(u64::MAX) > allowed).then_some((begun, allowed))
        };
        let verdicts: Vec<_> = self.allowance.observations.iter().map(broken).collect();
        if let Some(Some((begun, allowed))) = verdicts.last()
            && verdicts.iter().all(Option::is_some)
        {
            let text = format!("pool {pool} allowed {allowed} disruptions ({reason}) more and {begun} began");
            self.violations.push(text);
        }
    }
}

impl Allowance {
    fn pool_state(&self, pool: &NodePool, nodes: &[Node]) -> Pool {
        let name = &pool.metadata.name;
        let of_pool =
            |node: &&Node| node.metadata.label(labels::NODE_POOL) == Some(name) && node.metadata.label(labels::INITIALIZED) == Some("true");
        let mut pool_state = Pool {
            budgets: pool.spec.disruption.budgets.clone(),
            is_from_provisioner: pool.is_converted_provisioner(),
            nodes: 0,
            disrupting: BTreeSet::new(),
            replicas: pool.spec.replicas.and_then(|replicas| u64::try_from(replicas).ok()),
            limit: pool.spec.limits.0.get("nodes").and_then(|limit| u64::try_from(limit.units_floor()).ok()),
        };
        for node in nodes.iter().filter(of_pool) {
            let Some(claim) = self.listed.get(&node.metadata.name).filter(|claim| !claim.terminating) else { continue };
            let lost = !node.is_ready();
            pool_state.nodes += 1;
            if claim.disrupting || lost || node.metadata.is_deleting() {
                pool_state.disrupting.insert(node.metadata.name.clone());
            }
        }
        pool_state
    }
}

impl Pool {
    /// How many more nodes may be disrupted for a reason, by a run that read the cluster at this moment. A node that was being
    /// disrupted already does not count again.
    fn allows(&self, reason: &str, at: Timestamp, own: Option<&str>) -> u64 {
        if self.is_from_provisioner && reason == "Empty" {
            return u64::MAX;
        }
        let limit = |now: Timestamp| self.budgets.iter().map(|budget| self.limit(budget, reason, now)).min().unwrap_or(u64::MAX);
        let limit = [at - SKEW, at, at + SKEW].map(limit).into_iter().max().unwrap_or(0);
        limit.saturating_sub(u64::try_from(self.disrupting.iter().filter(|node| Some(node.as_str()) != own).count()).unwrap_or(u64::MAX))
    }

    /// The limit of one budget; an invalid one allows nothing.
    fn limit(&self, budget: &Budget, reason: &str, now: Timestamp) -> u64 {
        let Some(limit) = self.count(&budget.nodes) else { return 0 };
        let open = match (&budget.schedule, &budget.duration) {
            (None, None) => true,
            (Some(schedule), Some(duration)) => match window::is_open(schedule, duration.span(), now) {
                Some(open) => open,
                None => return 0,
            },
            _ => return 0,
        };
        let matching = budget.reasons.as_ref().is_none_or(|reasons| reasons.iter().any(|one| one == reason));
        if open && matching { limit } else { u64::MAX }
    }

    fn count(&self, nodes: &IntOrString) -> Option<u64> {
        let text = match nodes {
            IntOrString::Int(count) => return u64::try_from(*count).ok(),
            IntOrString::Text(text) => text,
        };
        match text.strip_suffix('%') {
            None => text.parse().ok(),
            Some(percent) => {
                percent.parse::<u64>().ok().filter(|percent| *percent <= 100).map(|percent| (self.nodes * percent).div_ceil(100))
            }
        }
    }
}
