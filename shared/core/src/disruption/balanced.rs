//! The Balanced policy (disruption 9): what a move saves against what it disrupts, both as shares of the pool.

use super::candidates::Candidate;
use super::command::Command;
use super::cost::{Cost, standing_cost};
use super::notes::{CONSOLIDATION_APPROVED, Notes};
use super::pass::Pass;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::karpenter::ConsolidationPolicy;
use whittle_units::Price;

/// A move is worth it when its share of the savings is at least a half of its share of the disruption.
const K: i128 = 2;

/// Cost and disruption of whole pools.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Pools with the policy that have a candidate.
    pools: BTreeMap<String, Total>,
    balanced: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Total {
    /// Price per hour of all the pool's machines.
    cost: Price,
    disruption: Cost,
}

impl Totals {
    pub(super) fn new(pass: &Pass<'_>) -> Self {
        let world = pass.world;
        let balanced = world.pools().filter(|pool| pool.spec.disruption.consolidation_policy == ConsolidationPolicy::Balanced);
        let balanced: BTreeSet<String> = balanced.map(|pool| pool.metadata.name.clone()).collect();
        let own: BTreeMap<&str, &Candidate<'_>> =
            pass.candidates.iter().filter(|node| node.pod_blocker.is_none()).map(|node| (node.name(), node)).collect();
        let with_candidate: BTreeSet<&str> = own.values().map(|node| node.pool_name()).collect();
        let mut pools: BTreeMap<String, Total> = BTreeMap::new();
        for machine in &world.machines {
            let Some(pool) = machine.pool().filter(|pool| balanced.contains(*pool) && with_candidate.contains(pool)) else { continue };
            let total = pools.entry(pool.to_owned()).or_default();
            if machine.claim().is_some() {
                total.cost += world.price(machine);
            }
            let disruption = own.get(machine.name()).map_or_else(|| standing_cost(machine.pods.iter().copied()), |node| node.cost);
            total.disruption = total.disruption + disruption;
        }
        Self { pools, balanced }
    }

    /// Whether every Balanced pool that loses nodes finds the command worth it; otherwise the score in thousandths.
    pub(super) fn approve(&self, nodes: &[&Candidate<'_>], command: &Command) -> Result<(), u64> {
        if nodes.is_empty() {
            return Err(0);
        }
        let price = |of: Option<&str>| -> i128 {
            let counted = nodes.iter().filter(|node| of.is_none_or(|pool| node.pool_name() == pool));
            counted.map(|node| i128::from(node.price.nanos())).sum()
        };
        let pools: BTreeSet<&str> = nodes.iter().map(|node| node.pool_name()).collect();
        for pool in pools.iter().filter(|pool| self.balanced.contains(**pool)) {
            let savings = i128::from(command.savings.nanos());
            let share = if pools.len() > 1 { savings * price(Some(pool)) / price(None).max(1) } else { savings };
            let disruption: Cost = nodes.iter().filter(|node| node.pool_name() == *pool).map(|node| node.cost).sum();
            self.worth(pool, share, disruption)?;
        }
        Ok(())
    }

    /// Whether deleting just this node would be worth it: no replacement can be worth more.
    pub(super) fn can_pass(&self, node: &Candidate<'_>) -> Result<(), u64> {
        match self.pools.get(node.pool_name()) {
            Some(total) if total.cost > Price::ZERO => self.worth(node.pool_name(), i128::from(node.price.nanos()), node.cost),
            _ => Ok(()),
        }
    }

    fn worth(&self, pool: &str, savings: i128, disruption: Cost) -> Result<(), u64> {
        let Some(total) = self.pools.get(pool) else { return Err(0) };
        let (cost, all) = (i128::from(total.cost.nanos()), i128::from(total.disruption.raw()));
        if cost <= 0 || all <= 0 || savings <= 0 {
            return Err(0);
        }
        let disruption = i128::from(disruption.raw());
        // savings/cost ÷ disruption/all ≥ 1/k, without a division.
        let (gain, loss) = (savings * all, cost * disruption);
        if K * gain >= loss { Ok(()) } else { Err(u64::try_from(gain * 1000 / loss).unwrap_or(0)) }
    }

    /// Tells the Balanced pools of a chosen command that it was scored.
    pub(super) fn note_approval(&self, notes: &mut Notes, command: &Command) {
        let pools: BTreeSet<&String> = command.removals.iter().map(|removal| &removal.node_pool).collect();
        for pool in pools.into_iter().filter(|pool| self.balanced.contains(*pool)) {
            let message = format!("score >= threshold 0.50 (k: 2): {command}");
            if command.removals.len() > 1 {
                notes.about(format!("nodepool/{pool}"), CONSOLIDATION_APPROVED, message);
                continue;
            }
            for removal in &command.removals {
                notes.about(format!("node/{}", removal.node), CONSOLIDATION_APPROVED, message.clone());
                notes.about(format!("nodeclaim/{}", removal.node_claim), CONSOLIDATION_APPROVED, message.clone());
            }
        }
    }
}
