//! Whether a pool's disruption budgets allow what begins, at the moment it begins.
//!
//! Nothing of this is shared with the code that decides: nodes are counted from what the deciding run was shown, windows
//! of schedules are found by looking at every minute.

mod window;

use crate::world::World;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use whittle_api::k8s::{IntOrString, Node};
use whittle_api::karpenter::{Budget, NodePool};
use whittle_api::{ClusterObjects, conditions, labels};
use whittle_claims::{Claim, DeletionReason, Phase};

/// How old the look may be that a decision rests on: a lease is held for a minute, and a run that dies after it decided is
/// gone on with by the next.
const LOOK_HOLDS: SignedDuration = SignedDuration::from_mins(3);
/// What the clock of a run may be off by.
const SKEW: SignedDuration = SignedDuration::from_secs(3);

/// What the checker remembers.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    /// Claims as the deciding function listed them last.
    listed: BTreeMap<String, Listed>,
    /// What it was shown lately, oldest first.
    looks: VecDeque<Look>,
    /// Disruptions that began lately: when, pool and claim.
    begun: Vec<(Timestamp, String, String)>,
}

/// A claim in a listing, by the name of its node.
#[derive(Debug)]
struct Listed {
    going: bool,
    terminating: bool,
}

/// What one run saw of the pools.
#[derive(Debug)]
struct Look {
    at: Timestamp,
    pools: BTreeMap<String, Pool>,
}

#[derive(Debug)]
struct Pool {
    budgets: Vec<Budget>,
    /// Made of a Provisioner, whose empty nodes went all at once.
    old: bool,
    /// Initialized and not being terminated.
    nodes: u64,
    /// Of these: not ready, or on their way out.
    going: BTreeSet<String>,
    /// How many machines a static pool is to have, and at most.
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
    pub(crate) fn watch_look_at_claims(&mut self) {
        let cluster = self.name();
        let listed = self.store.claims(&cluster).map(|stored| &stored.value).filter_map(|claim| {
            let terminating = matches!(claim.phase, Phase::Terminating { .. });
            let going = claim.deletion.is_some() || reason_of(claim).is_some();
            Some((claim.node_name()?.to_owned(), Listed { going, terminating }))
        });
        // Of a claim that cannot be read the cluster alone tells whether it goes.
        let closed = |node: &Node| node.spec.taints.iter().any(|taint| taint.key == labels::DISRUPTED_TAINT);
        let hidden =
            self.store.claims_with_hidden(&cluster).filter(|stored| self.store.is_hidden(&stored.value.key)).filter_map(|stored| {
                let node = self.cluster.objects.nodes.get(stored.value.node_name()?)?;
                Some((
                    node.metadata.name.clone(),
                    Listed { going: closed(node), terminating: matches!(stored.value.phase, Phase::Terminating { .. }) },
                ))
            });
        let listed = listed.chain(hidden).collect();
        self.allowance.listed = listed;
    }

    /// The deciding function was shown the cluster.
    pub(crate) fn watch_look(&mut self, shown: &ClusterObjects) {
        let at = self.now();
        let pools = shown.node_pools.iter().map(|pool| (pool.metadata.name.clone(), self.allowance.seen(pool, &shown.nodes)));
        let look = Look { at, pools: pools.collect() };
        self.allowance.looks.push_back(look);
        while self.allowance.looks.len() > 1 && self.allowance.looks.front().is_some_and(|look| at.duration_since(look.at) > LOOK_HOLDS) {
            self.allowance.looks.pop_front();
        }
        self.allowance.begun.retain(|(begun, ..)| at.duration_since(*begun) <= LOOK_HOLDS);
    }

    /// A claim changed: a disruption may have begun, or been taken back.
    pub(crate) fn watch_disruption(&mut self, old: &Claim, new: &Claim) {
        let name = new.key.name.as_str();
        match (reason_of(old), reason_of(new)) {
            (None, Some(reason)) => self.disruption_begins(new, reason),
            (Some(_), None) => self.allowance.begun.retain(|(.., claim)| claim != name),
            _ => {}
        }
    }

    /// A claim was made: a static pool must not get more than it is to have, nor more than it may have, by all that the
    /// deciding function was shown lately.
    pub(crate) fn watch_static(&mut self, claim: &Claim) {
        let (cluster, pool) = (self.name(), &claim.spec.node_pool);
        let of_pool = |other: &&Claim| other.is_live() && other.spec.node_pool == *pool;
        let live: Vec<&Claim> = self.store.claims_with_hidden(&cluster).map(|stored| &stored.value).filter(of_pool).collect();
        // Whoever decides has read the table half a minute ago at most.
        let failed = |other: &Claim| match &other.phase {
            Phase::Failed { since, .. } => (32..55).contains(&self.now().duration_since(*since).as_secs()),
            _ => false,
        };
        let of_table = self.store.claims(&cluster).map(|stored| &stored.value);
        let tried = claim.spec.replaces.is_none() && of_table.filter(|other| other.spec.node_pool == *pool).any(failed);
        let size = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let (all, staying) = (size(live.len()), size(live.iter().filter(|claim| !self.is_to_end(claim)).count()));
        let over = |look: &Look| {
            let seen = look.pools.get(pool)?;
            let replicas = seen.replicas?;
            // What replaces a machine is one more for a while.
            let many = claim.spec.replaces.is_none() && staying > replicas;
            (many || seen.limit.is_some_and(|limit| all > limit)).then_some(replicas)
        };
        let verdicts: Vec<_> = self.allowance.looks.iter().map(over).collect();
        let is_static = self.allowance.looks.back().and_then(|look| look.pools.get(pool)).is_some_and(|seen| seen.replicas.is_some());
        if tried && is_static {
            self.violations.push(format!("static pool {pool} got claim {} at once after a launch had failed", claim.key.name));
        }
        if let Some(Some(replicas)) = verdicts.last()
            && verdicts.iter().all(Option::is_some)
        {
            let text =
                format!("static pool {pool} is to have {replicas} machines and got claim {}: now {staying} of {all}", claim.key.name);
            self.violations.push(text);
        }
    }

    /// When the command was decided that takes a claim away, by the record of commands.
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
            return; // a Provisioner's and a NodePool's namesakes are told apart by nobody who looks from outside
        }
        let decided = self.decided_at(claim.key.name.as_str());
        if decided.is_some_and(|at| self.allowance.looks.front().is_some_and(|look| at < look.at)) {
            return; // a run that died had decided it, on what it saw
        }
        let broken = |look: &Look| {
            let begun = self.allowance.begun.iter().filter(|(at, of, _)| *at >= look.at && *of == pool).count();
            let allowed = look.pools.get(&pool).map_or(u64::MAX, |seen| seen.allows(reason, look.at, claim.node_name()));
            (u64::try_from(begun).unwrap_or(u64::MAX) > allowed).then_some((begun, allowed))
        };
        let verdicts: Vec<_> = self.allowance.looks.iter().map(broken).collect();
        if let Some(Some((begun, allowed))) = verdicts.last()
            && verdicts.iter().all(Option::is_some)
        {
            let text = format!("pool {pool} allowed {allowed} disruptions ({reason}) more and {begun} began");
            self.violations.push(text);
        }
    }
}

impl Allowance {
    fn seen(&self, pool: &NodePool, nodes: &[Node]) -> Pool {
        let name = &pool.metadata.name;
        let of_pool =
            |node: &&Node| node.metadata.label(labels::NODE_POOL) == Some(name) && node.metadata.label(labels::INITIALIZED) == Some("true");
        let mut seen = Pool {
            budgets: pool.spec.disruption.budgets.clone(),
            old: pool.is_converted_provisioner(),
            nodes: 0,
            going: BTreeSet::new(),
            replicas: pool.spec.replicas.and_then(|replicas| u64::try_from(replicas).ok()),
            limit: pool.spec.limits.0.get("nodes").and_then(|limit| u64::try_from(limit.units_floor()).ok()),
        };
        for node in nodes.iter().filter(of_pool) {
            let Some(claim) = self.listed.get(&node.metadata.name).filter(|claim| !claim.terminating) else { continue };
            let lost = !conditions::is_true(&node.status.conditions, conditions::READY);
            seen.nodes += 1;
            if claim.going || lost || node.metadata.is_deleting() {
                seen.going.insert(node.metadata.name.clone());
            }
        }
        seen
    }
}

impl Pool {
    /// How many more may go for a reason, for a run that looked at this moment. A node that was going already when it looked is not
    /// one more.
    fn allows(&self, reason: &str, at: Timestamp, own: Option<&str>) -> u64 {
        if self.old && reason == "Empty" {
            return u64::MAX;
        }
        let limit = |now: Timestamp| self.budgets.iter().map(|budget| self.limit(budget, reason, now)).min().unwrap_or(u64::MAX);
        let limit = [at - SKEW, at, at + SKEW].map(limit).into_iter().max().unwrap_or(0);
        limit.saturating_sub(u64::try_from(self.going.iter().filter(|node| Some(node.as_str()) != own).count()).unwrap_or(u64::MAX))
    }

    /// What one budget says; nothing may go where it cannot be read.
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
        let meant = budget.reasons.as_ref().is_none_or(|reasons| reasons.iter().any(|one| one == reason));
        if open && meant { limit } else { u64::MAX }
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
