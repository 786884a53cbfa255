//! Disruption budgets of NodePools (disruption 5): how many nodes may be disrupted at once, now, for a reason.

use super::cluster_view::ClusterView;
use super::cron::{Schedule, ScheduleError};
use jiff::Timestamp;
use std::collections::BTreeMap;
use whittle_api::k8s::IntOrString;
use whittle_api::karpenter::{Budget, NodePool};
use whittle_model::disruption::Reason;

/// The limit when no budget applies.
const UNBOUNDED: u32 = i32::MAX.unsigned_abs();

/// A budget that cannot be evaluated. Its pool then allows no disruption at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error("budget nodes {0:?} is neither a count nor a percentage such as 10%")]
    Nodes(String),
    #[error("budget schedule {0:?} has no duration: give both or neither")]
    DurationMissing(String),
    #[error("budget duration {0} has no schedule: give both or neither")]
    ScheduleMissing(String),
    #[error("budget duration {0} is negative: write one such as 1h30m")]
    Duration(String),
    #[error("budget reason {0:?} is not one of Underutilized, Empty, Drifted")]
    Reason(String),
    #[error("consolidateAfter {0} is negative: write 0s or more, or Never")]
    ConsolidateAfter(String),
    /// Another field of the pool's disruption settings, with the message of the reader that rejected it.
    #[error("{0}")]
    Unreadable(String),
    #[error("budget schedule {schedule:?} cannot be read")]
    Schedule { schedule: String, source: ScheduleError },
}

impl BudgetError {
    /// The message with its source, for events.
    pub fn text(&self) -> String {
        match self {
            Self::Schedule { source, .. } => format!("{self}: {source}"),
            _ => self.to_string(),
        }
    }
}

/// The budgets of one pool, evaluated for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetState {
    pub node_pool: String,
    pub reason: Reason,
    /// Nodes that count: managed, initialized and not terminating.
    pub nodes: u32,
    /// Nodes among these that are not ready or already being deleted.
    pub disrupting: u32,
    /// What the budgets allow before `disrupting` is subtracted.
    pub limit: u32,
    /// Set when a budget is invalid.
    pub invalid: Option<BudgetError>,
}

impl BudgetState {
    /// How many more nodes may be disrupted.
    pub fn allowed(&self) -> u32 {
        self.limit.saturating_sub(self.disrupting)
    }
    /// Whether the budgets allow no disruption although the pool has nodes; an event says so.
    pub fn is_blocking(&self) -> bool {
        self.nodes > 0 && self.limit == 0
    }
}

/// The budgets of every pool for one reason, by pool.
pub(crate) fn budget_states(view: &ClusterView<'_>, reason: Reason) -> BTreeMap<String, BudgetState> {
    let mut counted: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for node in &view.machines {
        let Some(pool) = node.pool() else { continue };
        if !node.is_managed() || !node.is_initialized() || node.is_terminating() {
            continue;
        }
        let (total, disrupting) = counted.entry(pool).or_default();
        *total += 1;
        *disrupting += u32::from(!node.is_ready() || node.is_deleting());
    }
    let state = |pool: &NodePool| {
        let (nodes, disrupting) = counted.get(pool.metadata.name.as_str()).copied().unwrap_or_default();
        let closed = view.input.settings.unreadable_pools.get(&pool.metadata.name);
        let limit = closed.map_or_else(|| limit(pool, nodes, reason, view.now()), |why| Err(BudgetError::Unreadable(why.clone())));
        let (limit, invalid) = match limit {
            Ok(limit) => (limit, None),
            Err(error) => (0, Some(error)),
        };
        BudgetState { node_pool: pool.metadata.name.clone(), reason, nodes, disrupting, limit, invalid }
    };
    view.pools().map(|pool| (pool.metadata.name.clone(), state(pool))).collect()
}

/// How many of a pool's `nodes` (managed, initialized, not terminating) may be disrupted at once for the reason now:
/// the strictest of the budgets that apply, or `i32::MAX` when none applies. Nodes that are being deleted or not ready
/// count against it.
///
/// # Errors
///
/// An invalid budget, whichever reasons it names: its pool then allows no disruption at all.
pub fn limit(pool: &NodePool, nodes: u32, reason: Reason, now: Timestamp) -> Result<u32, BudgetError> {
    let mut limit = UNBOUNDED;
    let after = &pool.spec.disruption.consolidate_after;
    if after.span().is_some_and(|span| span.is_negative()) {
        return Err(BudgetError::ConsolidateAfter(after.to_string()));
    }
    for budget in &pool.spec.disruption.budgets {
        // Every budget is validated, so that an invalid one is not hidden by the others.
        let allowed = allowed_nodes(budget, nodes)?;
        let unknown = |reason: &&String| !Reason::ALL.iter().any(|known| known.as_str() == *reason);
        if let Some(unknown) = budget.reasons.iter().flatten().find(unknown) {
            return Err(BudgetError::Reason(unknown.clone()));
        }
        let applies = is_active(budget, now)? && budget.reasons.as_ref().is_none_or(|reasons| reasons.iter().any(|r| r == reason.as_str()));
        if applies {
            limit = limit.min(allowed);
        }
    }
    // Provisioners had no budgets and removed all empty nodes together.
    Ok(if reason == Reason::Empty && pool.is_converted_provisioner() { UNBOUNDED } else { limit })
}

fn is_active(budget: &Budget, now: Timestamp) -> Result<bool, BudgetError> {
    match (&budget.schedule, &budget.duration) {
        (None, None) => Ok(true),
        (Some(schedule), None) => Err(BudgetError::DurationMissing(schedule.clone())),
        (None, Some(duration)) => Err(BudgetError::ScheduleMissing(duration.to_string())),
        (Some(_), Some(duration)) if duration.span().is_negative() => Err(BudgetError::Duration(duration.to_string())),
        (Some(schedule), Some(duration)) => Schedule::parse(schedule)
            .map(|parsed| parsed.is_active(now, duration.span()))
            .map_err(|source| BudgetError::Schedule { schedule: schedule.clone(), source }),
    }
}

/// How many of `nodes` a budget allows; percentages round up.
fn allowed_nodes(budget: &Budget, nodes: u32) -> Result<u32, BudgetError> {
    let text = match &budget.nodes {
        IntOrString::Int(count) => return u32::try_from(*count).map_err(|_| BudgetError::Nodes(count.to_string())),
        IntOrString::Text(text) => text,
    };
    let invalid = || BudgetError::Nodes(text.clone());
    let digits = text.strip_suffix('%').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid());
    }
    let number: u64 = digits.parse().map_err(|_| invalid())?;
    if digits.len() == text.len() {
        return Ok(u32::try_from(number).unwrap_or(UNBOUNDED).min(UNBOUNDED));
    }
    if number > 100 {
        return Err(invalid());
    }
    Ok(u32::try_from((u64::from(nodes) * number).div_ceil(100)).unwrap_or(UNBOUNDED))
}

/// Disruptions that the budgets still allow while a method selects nodes, by pool.
#[derive(Clone)]
pub(crate) struct RemainingBudget(BTreeMap<String, u32>);

impl RemainingBudget {
    pub(crate) fn new(states: &BTreeMap<String, BudgetState>) -> Self {
        Self(states.iter().map(|(pool, state)| (pool.clone(), state.allowed())).collect())
    }
    pub(crate) fn of(&self, pool: &str) -> u32 {
        self.0.get(pool).copied().unwrap_or(0)
    }
    /// Takes one disruption from the pool's budget; false when none remains.
    pub(crate) fn take(&mut self, pool: &str) -> bool {
        match self.0.get_mut(pool) {
            Some(remaining) if *remaining > 0 => {
                *remaining -= 1;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::labels;

    fn budget(nodes: &str, reasons: &[&str]) -> Budget {
        Budget {
            nodes: IntOrString::Text(nodes.to_owned()),
            reasons: (!reasons.is_empty()).then(|| reasons.iter().map(|&reason| reason.to_owned()).collect()),
            ..Budget::default()
        }
    }

    fn scheduled(nodes: &str, schedule: &str, duration: &str) -> Budget {
        Budget { schedule: Some(schedule.to_owned()), duration: Some(duration.parse().unwrap()), ..budget(nodes, &[]) }
    }

    fn limits(budgets: Vec<Budget>, nodes: u32) -> [Result<u32, BudgetError>; 3] {
        let mut pool = NodePool::default();
        pool.spec.disruption.budgets = budgets;
        let noon: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        Reason::ALL.map(|reason| limit(&pool, nodes, reason, noon))
    }

    #[track_caller]
    fn check(budgets: Vec<Budget>, nodes: u32, want: [u32; 3]) {
        assert_eq!(limits(budgets, nodes), want.map(Ok), "for Empty, Drifted, Underutilized");
    }

    #[test]
    fn counts_and_percentages_round_up() {
        check(vec![budget("7", &[])], 10, [7; 3]);
        check(vec![budget("30%", &[])], 10, [3; 3]);
        check(vec![budget("20%", &[])], 19, [4; 3]);
        check(vec![budget("5%", &[])], 10, [1; 3]);
        check(vec![budget("1%", &[])], 100, [1; 3]);
        check(vec![budget("1%", &[])], 101, [2; 3]);
        check(vec![budget("10%", &[])], 0, [0; 3]);
        check(vec![budget("0%", &[])], 10, [0; 3]);
        check(vec![budget("0", &[])], 10, [0; 3]);
        check(vec![budget("100%", &[])], 10, [10; 3]);
        check(vec![Budget { nodes: IntOrString::Int(3), ..Budget::default() }], 10, [3; 3]);
        check(vec![], 10, [UNBOUNDED; 3]);
    }

    #[test]
    fn the_strictest_budget_of_a_reason_counts() {
        let budgets = || vec![budget("10", &[]), budget("4", &["Empty"]), budget("5", &["Drifted", "Empty"])];
        check(budgets(), 100, [4, 5, 10]);
        check(vec![budget("0", &["Empty"])], 10, [0, UNBOUNDED, UNBOUNDED]);
        check(vec![Budget { reasons: Some(Vec::new()), ..budget("0", &[]) }], 10, [UNBOUNDED; 3]);
    }

    #[test]
    fn a_schedule_opens_and_closes_a_budget() {
        let (open, closed) = (|nodes| scheduled(nodes, "0 9 * * *", "4h"), |nodes| scheduled(nodes, "0 9 * * *", "3h"));
        let only = |reason: &str, budget| Budget { reasons: Some(vec![reason.to_owned()]), ..budget };
        check(vec![budget("10", &[]), open("0"), budget("4", &["Empty"])], 10, [0; 3]);
        check(vec![closed("0"), closed("1")], 10, [UNBOUNDED; 3]);
        check(vec![budget("5", &[]), only("Drifted", closed("1")), only("Empty", open("2"))], 10, [2, 5, 5]);
        check(vec![scheduled("0", "0 9 * * *", "4h")], 10, [0; 3]);
        check(vec![scheduled("0", "0 9 * * *", "3h")], 10, [UNBOUNDED; 3]);
        check(vec![scheduled("0", "@daily", "24h")], 10, [0; 3]);
        check(vec![scheduled("0", "0 12 * * *", "1m")], 10, [0; 3]);
    }

    #[track_caller]
    fn check_broken(invalid: Budget) {
        let found = limits(vec![budget("50%", &[]), invalid], 10);
        assert!(found.iter().all(Result::is_err), "{found:?}");
    }

    #[test]
    fn one_invalid_budget_blocks_the_pool() {
        check_broken(scheduled("5", "61 * * * *", "1h"));
        check_broken(scheduled("5", "0 9 * *", "1h"));
        check_broken(Budget { duration: None, ..scheduled("5", "@daily", "1h") });
        check_broken(Budget { schedule: None, ..scheduled("5", "@daily", "1h") });
        for nodes in ["-10", "-10%", "101%", "1000%", "many", ""] {
            check_broken(budget(nodes, &[]));
        }
        check_broken(Budget { nodes: IntOrString::Int(-1), ..Budget::default() });
    }

    #[test]
    fn empty_nodes_of_a_provisioner_have_no_limit() {
        let mut pool = NodePool::default();
        pool.metadata.annotations.insert(labels::CONVERTED_FROM.to_owned(), "Provisioner".to_owned());
        let at = Timestamp::UNIX_EPOCH;
        assert_eq!(limit(&pool, 10, Reason::Empty, at), Ok(UNBOUNDED));
        assert_eq!(limit(&pool, 10, Reason::Drifted, at), Ok(1));
    }
}
