//! What the methods of one pass share: candidates, budgets, verdicts and events.

use super::balanced::PoolScore;
use super::budgets::{self, BudgetState, RemainingBudget};
use super::candidates::{Candidate, candidate};
use super::cluster_view::{ClusterView, Machine};
use super::conditions::{self, ClaimConditions};
use super::decision::Decision;
use super::events::{BUDGET_INVALID, DISRUPTION_BLOCKED, EventCollector};
use super::memory;
use super::simulate::Simulator;
use super::verdict::{Blocker, KeepReason, Verdict, VerdictReason};
use std::collections::{BTreeMap, BTreeSet};
use whittle_model::disruption::{Command, Memory, Method, PassFingerprint, Reason, Savings};
use whittle_solver::Prepared;

/// Which pools a pass considers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolMode {
    Active,
    Shadow,
}

/// State of a pass that the methods share.
pub(super) struct Pass<'w> {
    pub(super) view: &'w ClusterView<'w>,
    /// Sorted by machine name.
    pub(super) candidates: Vec<Candidate<'w>>,
    /// By NodeClaim name.
    conditions: BTreeMap<&'w str, ClaimConditions>,
    pub(super) budgets: BTreeMap<Reason, BTreeMap<String, BudgetState>>,
    verdicts: BTreeMap<&'w str, VerdictReason>,
    /// Drifted machines that wait for their replacement: verdicts of consolidation are ignored for them.
    waiting_drifted: BTreeSet<&'w str>,
    pub(super) events: EventCollector,
    eligible: BTreeMap<Method, usize>,
    pub(super) timeouts: BTreeSet<Method>,
    pub(super) scores: Vec<PoolScore>,
    pub(super) memory: Memory,
    /// The cluster prepared for simulations, once a method has needed it.
    prepared: Option<Option<Prepared<'w>>>,
}

impl<'w> Pass<'w> {
    pub(super) fn new(view: &'w ClusterView<'w>, mode: PoolMode) -> Self {
        let mut pass = Self {
            view,
            candidates: Vec::new(),
            conditions: BTreeMap::new(),
            budgets: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            waiting_drifted: BTreeSet::new(),
            events: EventCollector::default(),
            eligible: BTreeMap::new(),
            timeouts: BTreeSet::new(),
            scores: Vec::new(),
            memory: view.input.memory.clone(),
            prepared: None,
        };
        memory::forget_old_moves(&mut pass.memory, view.now());
        for machine in &view.machines {
            pass.add_machine(machine, mode);
        }
        pass
    }

    fn add_machine(&mut self, machine: &'w Machine<'w>, mode: PoolMode) {
        if let Some(conditions) = conditions::evaluate(self.view, machine) {
            self.conditions.insert(machine.claim_name(), conditions);
        }
        if machine.is_managed() {
            for pod in &machine.pods {
                self.events.protection(pod, self.view.now());
            }
        }
        match candidate(self.view, machine) {
            Ok(candidate) if candidate.pool.is_shadow() != (mode == PoolMode::Shadow) => {}
            Ok(candidate) => {
                if let Some(blocker) = candidate.blocker() {
                    self.block(machine, blocker.clone());
                }
                self.candidates.push(candidate);
            }
            Err(blocker) => self.block(machine, blocker),
        }
    }

    fn block(&mut self, machine: &'w Machine<'w>, blocker: Blocker) {
        self.events.blocked(machine, &blocker);
        self.verdicts.insert(machine.name(), VerdictReason::Blocked(blocker));
    }

    pub(super) fn is_consolidatable(&self, candidate: &Candidate<'_>) -> bool {
        self.conditions.get(candidate.machine.claim_name()).is_some_and(|conditions| conditions.consolidatable)
    }
    /// Why a candidate is not consolidatable yet.
    pub(super) fn consolidate_after_reason(&self, candidate: &Candidate<'_>) -> KeepReason {
        let claim = candidate.machine.claim();
        let checked = claim.map(|claim| conditions::check_consolidate_after(claim, candidate.pool, self.view.now()));
        let span = candidate.pool.spec.disruption.consolidate_after.span().filter(|_| candidate.is_empty());
        match checked {
            Some(Err(KeepReason::ConsolidateAfter { until, .. })) => KeepReason::ConsolidateAfter { until, empty_for: span },
            Some(Err(keep)) => keep,
            Some(Ok(())) | None => KeepReason::ConsolidateAfter { until: None, empty_for: None },
        }
    }
    pub(super) fn drift_reason(&self, candidate: &Candidate<'_>) -> Option<&str> {
        self.conditions.get(candidate.machine.claim_name())?.drifted.as_deref()
    }

    /// The remaining budget for a reason. Pools whose budgets block it get an event.
    pub(super) fn budget(&mut self, reason: Reason) -> RemainingBudget {
        let view = self.view;
        let states = self.budgets.entry(reason).or_insert_with(|| budgets::budget_states(view, reason));
        for state in states.values().filter(|state| state.is_blocking()) {
            self.events.budget_blocks(&state.node_pool, reason);
            if let Some(invalid) = &state.invalid {
                self.events.warn(format!("nodepool/{}", state.node_pool), BUDGET_INVALID, invalid.text());
            }
        }
        RemainingBudget::new(states)
    }

    pub(super) fn keep(&mut self, candidate: &Candidate<'w>, keep: KeepReason) {
        self.events.kept(candidate, &keep);
        self.keep_without_event(candidate, keep);
    }
    /// Like [`Pass::keep`], without an event.
    pub(super) fn keep_without_event(&mut self, candidate: &Candidate<'w>, keep: KeepReason) {
        if !self.waiting_drifted.contains(candidate.name()) {
            self.verdicts.insert(candidate.name(), VerdictReason::Kept(keep));
        }
    }
    /// The node has drifted and cannot be removed (disruption 10.1).
    pub(super) fn keep_drifted(&mut self, candidate: &Candidate<'w>, keep: KeepReason) {
        self.events.on_machine(candidate.machine, DISRUPTION_BLOCKED, &keep.to_string());
        self.keep_without_event(candidate, keep);
    }
    /// Protects the drift verdict of a node from being overwritten by consolidation.
    pub(super) fn keep_drift_verdict(&mut self, candidate: &Candidate<'w>) {
        self.waiting_drifted.insert(candidate.name());
    }
    /// The budget of its pool is exhausted or invalid.
    pub(super) fn keep_for_budget(&mut self, candidate: &Candidate<'w>, reason: Reason) {
        let pool = candidate.pool_name().to_owned();
        let state = self.budgets.get(&reason).and_then(|states| states.get(&pool));
        let keep = match state.and_then(|state| state.invalid.as_ref()) {
            Some(invalid) => KeepReason::BudgetInvalid { pool, why: invalid.text() },
            None => KeepReason::BudgetExhausted { pool, reason },
        };
        self.keep(candidate, keep);
    }
    /// The node can be removed, but perhaps after another one.
    pub(super) fn keep_for_later(&mut self, candidate: &Candidate<'w>, savings: Savings) {
        self.keep_without_event(candidate, KeepReason::WaitsTurn { savings });
    }

    /// Whether the method found nothing for the same nodes and cluster a short time ago. Their verdicts remain valid.
    pub(super) fn found_nothing_recently(&mut self, method: Method, nodes: &[Candidate<'w>]) -> bool {
        let seen = self.memory.nothing_found.get(&method).copied();
        let unchanged = seen.is_some() && memory::is_unchanged(seen.as_ref(), memory::fingerprint(self.view, nodes), self.view.now());
        if unchanged && method == Method::SingleNode {
            for node in nodes {
                self.keep(node, KeepReason::Unchanged);
            }
        }
        unchanged
    }
    pub(super) fn remember_found_nothing(&mut self, method: Method, nodes: &[Candidate<'_>]) {
        let seen = PassFingerprint { fingerprint: memory::fingerprint(self.view, nodes), at: self.view.now() };
        self.memory.nothing_found.insert(method, seen);
    }
    /// A simulator that reuses what earlier methods have prepared; return it with [`Pass::put_back`].
    pub(super) fn simulator(&mut self) -> Simulator<'w> {
        Simulator::with_prepared(self.view, self.prepared.take())
    }
    /// Keeps what the simulator has prepared for the next method.
    pub(super) fn put_back(&mut self, simulator: Simulator<'w>) {
        self.prepared = simulator.into_prepared();
    }
    pub(super) fn count_eligible(&mut self, method: Method, count: usize) {
        self.eligible.insert(method, count);
    }

    pub(super) fn finish(mut self, commands: Vec<Command>) -> Decision {
        for command in &commands {
            let reason = VerdictReason::Chosen {
                reason: command.method.reason(),
                action: command.action(),
                savings: command.known_savings(),
                nodes: command.removals.len(),
            };
            for candidate in &self.candidates {
                if command.removals.iter().any(|removal| removal.node == candidate.name()) {
                    self.verdicts.insert(candidate.name(), reason.clone());
                }
            }
        }
        let verdict = |machine: &Machine<'_>| Verdict {
            node: machine.node_name().to_owned(),
            node_claim: machine.claim_name().to_owned(),
            node_pool: machine.pool().unwrap_or_default().to_owned(),
            reason: self.verdicts.get(machine.name()).cloned().unwrap_or(VerdictReason::Kept(KeepReason::NotReached)),
        };
        let mut verdicts: Vec<Verdict> = self.view.machines.iter().map(verdict).chain(self.view.verdicts_without_machine()).collect();
        verdicts.sort_by(|a, b| a.name().cmp(b.name()));
        Decision {
            verdicts,
            commands,
            shadow: Vec::new(),
            events: self.events.into_sorted(),
            conditions: self.conditions.into_values().collect(),
            budgets: self.budgets.into_values().flat_map(BTreeMap::into_values).collect(),
            eligible: self.eligible,
            timeouts: self.timeouts,
            scores: self.scores,
            memory: self.memory,
        }
    }
}
