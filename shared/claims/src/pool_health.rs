//! Whether a NodePool's machines join: the outcomes of its latest launches (disruption 17.5).

use crate::claim::Claim;
use crate::record::Record;
use serde::{Deserialize, Serialize};
use whittle_api::conditions::{self, LAUNCHED, NODE_REGISTRATION_HEALTHY};
use whittle_api::karpenter::NodePool;
use whittle_api::{Condition, ConditionStatus};
use whittle_units::Timestamp;

/// Number of outcomes that are stored.
const OUTCOMES_MAX: usize = 4;
/// Number of failures among them that makes a pool unhealthy, however few outcomes there are.
const FAILURES_UNHEALTHY: usize = 2;

/// The outcome of the launch of one claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "camelCase")]
pub enum LaunchOutcome {
    /// Its node joined.
    Registered,
    /// It was given up, for the reason that the pool's condition shows.
    Failed { reason: String, message: String },
}

impl LaunchOutcome {
    /// The outcome of a claim that is given up by a timeout.
    #[must_use]
    pub fn timed_out(claim: &Claim) -> Self {
        let launched = conditions::find(&claim.conditions, LAUNCHED);
        match launched.filter(|launched| launched.status != ConditionStatus::True) {
            Some(launched) => Self::Failed { reason: launched.reason.clone(), message: launched.message.clone() },
            None => Self::Failed { reason: "RegistrationFailed".to_owned(), message: "Failed to register node".to_owned() },
        }
    }
}

/// The last outcomes of a pool under one version of its spec and its class. Written by `register` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolHealth {
    pub pool: String,
    pub pool_uid: String,
    pub pool_generation: Option<i64>,
    pub class_generation: Option<i64>,
    /// Oldest first.
    pub outcomes: Vec<LaunchOutcome>,
}

impl Record for PoolHealth {
    const KIND: &'static str = "pool-health";
    fn name(&self) -> String {
        self.pool.clone()
    }
}

impl PoolHealth {
    /// The health after more outcomes of a pool. Outcomes of another version of pool or class are dropped; without any, the
    /// pool's current condition is used instead. `class_generation` is that of the pool's class, `None` while that is missing or cannot be
    /// read: then it counts as it was last seen.
    #[must_use]
    pub fn after(known: Option<&Self>, pool: &NodePool, class_generation: Option<i64>, new: &[LaunchOutcome]) -> Self {
        let class_generation = class_generation.or(pool.status.node_class_observed_generation);
        let mut outcomes = match known.filter(|known| known.is_of(pool, class_generation)) {
            Some(known) => known.outcomes.clone(),
            None => outcomes_of_condition(pool, class_generation),
        };
        outcomes.extend_from_slice(new);
        outcomes.drain(..outcomes.len().saturating_sub(OUTCOMES_MAX));
        Self {
            pool: pool.metadata.name.clone(),
            pool_uid: pool.metadata.uid.clone(),
            pool_generation: pool.metadata.generation,
            class_generation,
            outcomes,
        }
    }

    fn is_of(&self, pool: &NodePool, class_generation: Option<i64>) -> bool {
        let meta = &pool.metadata;
        self.pool_uid == meta.uid && self.pool_generation == meta.generation && self.class_generation == class_generation
    }

    fn verdict(&self) -> Option<(ConditionStatus, &str, &str)> {
        let failures = || self.outcomes.iter().filter(|outcome| matches!(outcome, LaunchOutcome::Failed { .. }));
        if failures().count() >= FAILURES_UNHEALTHY
            && let Some(LaunchOutcome::Failed { reason, message }) = failures().next_back()
        {
            return Some((ConditionStatus::False, reason, message));
        }
        // A single failure is no proof, and without a success the health is unknown.
        let joined = self.outcomes.contains(&LaunchOutcome::Registered);
        joined.then_some((ConditionStatus::True, NODE_REGISTRATION_HEALTHY, ""))
    }
}

fn current_condition(pool: &NodePool, class_generation: Option<i64>) -> Option<&Condition> {
    let known = conditions::find(&pool.status.conditions, NODE_REGISTRATION_HEALTHY)?;
    let current = pool.status.node_class_observed_generation == class_generation && known.observed_generation == pool.metadata.generation;
    current.then_some(known)
}

fn outcomes_of_condition(pool: &NodePool, class_generation: Option<i64>) -> Vec<LaunchOutcome> {
    match current_condition(pool, class_generation) {
        Some(known) if known.status == ConditionStatus::True => vec![LaunchOutcome::Registered],
        Some(known) if known.status == ConditionStatus::False => {
            let failed = LaunchOutcome::Failed { reason: known.reason.clone(), message: known.message.clone() };
            vec![failed; FAILURES_UNHEALTHY]
        }
        _ => Vec::new(),
    }
}

/// Updates the condition `NodeRegistrationHealthy` of a pool. `class_generation` is that of the pool's class; while that is missing or
/// cannot be read (`None`) only outcomes of launches change the condition.
pub fn update_health(pool: &mut NodePool, class_generation: Option<i64>, health: Option<&PoolHealth>, now: Timestamp) {
    let is_class_seen = class_generation.is_some();
    let class_generation = class_generation.or(pool.status.node_class_observed_generation);
    let health = health.filter(|health| health.is_of(pool, class_generation));
    let fresh = current_condition(pool, class_generation).is_none();
    let generation = pool.metadata.generation;
    let list = &mut pool.status.conditions;
    match health.and_then(PoolHealth::verdict) {
        Some((status, reason, message)) => conditions::set(list, NODE_REGISTRATION_HEALTHY, status, reason, message, now),
        None if !is_class_seen => return,
        None if fresh => {
            let (reason, message) = ("AwaitingReconciliation", "object is awaiting reconciliation");
            conditions::set(list, NODE_REGISTRATION_HEALTHY, ConditionStatus::Unknown, reason, message, now)
        }
        None => false,
    };
    if let Some(condition) = list.iter_mut().find(|condition| condition.type_ == NODE_REGISTRATION_HEALTHY) {
        condition.observed_generation = generation;
    }
    pool.status.node_class_observed_generation = class_generation;
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConditionStatus::{False, True, Unknown};
    use whittle_api::ObjectMeta;

    fn now() -> Timestamp {
        crate::fixtures::at(0)
    }

    fn pool(generation: i64) -> NodePool {
        let metadata = ObjectMeta { uid: "uid".into(), generation: Some(generation), ..ObjectMeta::named("default") };
        NodePool { metadata, ..NodePool::default() }
    }

    /// `s` joins, `f` fails; the pool shows every outcome before the next.
    fn play(pool: &mut NodePool, known: Option<PoolHealth>, class_generation: i64, outcomes: &str) -> PoolHealth {
        let mut health = known;
        for outcome in outcomes.chars() {
            let failed = || LaunchOutcome::Failed { reason: format!("Reason{outcome}"), message: "why".into() };
            let outcome = if outcome == 's' { LaunchOutcome::Registered } else { failed() };
            let next = PoolHealth::after(health.as_ref(), pool, Some(class_generation), &[outcome]);
            update_health(pool, Some(class_generation), Some(&next), now());
            health = Some(next);
        }
        health.unwrap()
    }

    fn status(pool: &NodePool) -> ConditionStatus {
        conditions::find(&pool.status.conditions, NODE_REGISTRATION_HEALTHY).unwrap().status
    }

    #[track_caller]
    fn check(outcomes: &str, expected: ConditionStatus) {
        let mut pool = pool(1);
        update_health(&mut pool, Some(1), None, now());
        assert_eq!(status(&pool), Unknown, "initially unknown");
        let health = play(&mut pool, None, 1, outcomes);
        assert!(health.outcomes.len() <= 4);
        assert_eq!(status(&pool), expected, "{outcomes}");
    }

    #[test]
    fn two_failures_of_the_last_four_launches_make_a_pool_unhealthy() {
        check("s", True);
        check("f", Unknown);
        check("sf", True);
        check("ff", False);
        check("ffs", False);
        check("ffss", False);
        check("ffsss", True);
        check("ssff", False);
        check("fsssf", True);
    }

    #[test]
    fn the_condition_has_the_reason_of_the_last_failure() {
        let mut pool = pool(1);
        play(&mut pool, None, 1, "xy");
        let shown = conditions::find(&pool.status.conditions, NODE_REGISTRATION_HEALTHY).unwrap();
        assert_eq!((shown.reason.as_str(), shown.message.as_str()), ("Reasony", "why"));
    }

    #[test]
    fn a_change_of_pool_or_class_resets_the_health() {
        let mut changed = pool(1);
        let health = play(&mut changed, None, 1, "ff");
        changed.metadata.generation = Some(2);
        update_health(&mut changed, Some(1), Some(&health), now());
        assert_eq!(status(&changed), Unknown);
        let mut class_changed = pool(1);
        let health = play(&mut class_changed, None, 1, "ff");
        update_health(&mut class_changed, Some(2), Some(&health), now());
        assert_eq!((status(&class_changed), class_changed.status.node_class_observed_generation), (Unknown, Some(2)));
        let again = play(&mut class_changed, Some(health), 2, "f");
        assert_eq!((again.outcomes.len(), status(&class_changed)), (1, Unknown));
    }

    #[test]
    fn a_class_that_is_missing_or_cannot_be_read_leaves_the_health_as_it_is() {
        for outcomes in ["s", "ff"] {
            let mut shown = pool(1);
            let health = play(&mut shown, None, 3, outcomes);
            let before = shown.clone();
            for known in [Some(&health), None] {
                update_health(&mut shown, None, known, now());
                assert_eq!(shown, before, "{outcomes}");
            }
            let next = PoolHealth::after(Some(&health), &shown, None, &[LaunchOutcome::Registered]);
            assert_eq!((next.class_generation, next.outcomes.len()), (Some(3), outcomes.len() + 1), "launches count as before");
            update_health(&mut shown, Some(3), Some(&health), now());
            assert_eq!(shown, before, "{outcomes}: it is seen again");
            update_health(&mut shown, Some(4), Some(&health), now());
            assert_eq!(status(&shown), Unknown, "{outcomes}: it is another one");
        }
        let mut new = pool(1);
        update_health(&mut new, None, None, now());
        assert_eq!(new, pool(1), "nothing is said of a pool whose class was never seen");
    }

    #[test]
    fn a_pool_that_is_edited_while_its_class_is_missing_is_reset_once_that_is_seen() {
        let mut edited = pool(1);
        let health = play(&mut edited, None, 3, "ff");
        edited.metadata.generation = Some(2);
        update_health(&mut edited, None, Some(&health), now());
        assert_eq!(status(&edited), False);
        update_health(&mut edited, Some(3), Some(&health), now());
        assert_eq!(status(&edited), Unknown);
    }

    #[test]
    fn the_condition_of_another_controller_is_the_initial_health() {
        let mut healthy = pool(1);
        play(&mut healthy, None, 1, "s");
        assert_eq!(play(&mut healthy, None, 1, "f").outcomes.len(), 2);
        assert_eq!(status(&healthy), True);
        let mut unhealthy = pool(1);
        play(&mut unhealthy, None, 1, "ff");
        assert_eq!(play(&mut unhealthy, None, 1, "s").outcomes.len(), 3);
        assert_eq!(status(&unhealthy), False);
        update_health(&mut unhealthy, Some(1), None, now());
        assert_eq!(status(&unhealthy), False, "without a record the condition is kept");
    }

    #[test]
    fn a_recreated_pool_has_no_outcomes() {
        let mut old = pool(1);
        let health = play(&mut old, None, 1, "ff");
        let mut new = pool(1);
        new.metadata.uid = "another".into();
        update_health(&mut new, Some(1), Some(&health), now());
        assert_eq!(status(&new), Unknown);
    }
}
