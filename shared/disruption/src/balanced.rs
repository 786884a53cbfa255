//! The Balanced consolidation policy (disruption 9): the savings of a move against its disruption, both as shares of
//! the pool.

use super::candidates::Candidate;
use super::cluster_view::ClusterView;
use super::cost::{Cost, non_candidate_cost};
use super::events::{CONSOLIDATION_APPROVED, EventCollector};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::karpenter::ConsolidationPolicy;
use whittle_model::disruption::Command;
use whittle_units::Price;

/// Karpenter's `k`: a move is approved when its share of the pool's savings is at least 1/k of its share of the
/// disruption.
const K: i128 = 2;

/// The score that one pool gives a command, for the metrics `consolidation_moves_total` and `consolidation_score`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolScore {
    pub node_pool: String,
    pub policy: ConsolidationPolicy,
    pub approved: bool,
    /// In thousandths; `None` for policies that do not score.
    pub score: Option<u64>,
}

/// Cost and disruption of each pool as a whole.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Balanced pools that have a candidate.
    pools: BTreeMap<String, Total>,
    balanced: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Total {
    /// Price per hour of all machines of the pool.
    cost: Price,
    disruption: Cost,
}

impl Totals {
    pub(super) fn new(view: &ClusterView<'_>, candidates: &[Candidate<'_>]) -> Self {
        let balanced = view.pools().filter(|pool| pool.spec.disruption.consolidation_policy == ConsolidationPolicy::Balanced);
        let balanced: BTreeSet<String> = balanced.map(|pool| pool.metadata.name.clone()).collect();
        let candidates_by_name: BTreeMap<&str, &Candidate<'_>> =
            candidates.iter().filter(|node| node.pod_blocker.is_none()).map(|node| (node.name(), node)).collect();
        let with_candidate: BTreeSet<&str> = candidates_by_name.values().map(|node| node.pool_name()).collect();
        let mut pools: BTreeMap<String, Total> = BTreeMap::new();
        for machine in &view.machines {
            let Some(pool) = machine.pool().filter(|pool| balanced.contains(*pool) && with_candidate.contains(pool)) else { continue };
            let total = pools.entry(pool.to_owned()).or_default();
            if machine.claim().is_some() {
                total.cost += view.price(machine);
            }
            let disruption =
                candidates_by_name.get(machine.name()).map_or_else(|| non_candidate_cost(machine.pods.iter().copied()), |node| node.cost);
            total.disruption = total.disruption + disruption;
        }
        Self { pools, balanced }
    }

    /// Approves a command if every Balanced pool that loses nodes does; otherwise returns the score in thousandths.
    pub(super) fn approve(&self, nodes: &[&Candidate<'_>], command: &Command) -> Result<(), u64> {
        if nodes.is_empty() {
            return Err(0);
        }
        let pools: BTreeSet<&str> = nodes.iter().map(|node| node.pool_name()).collect();
        for pool in pools.iter().filter(|pool| self.balanced.contains(**pool)) {
            let (savings, disruption) = shares(nodes, command, pool, pools.len());
            self.check_score(pool, savings, disruption)?;
        }
        Ok(())
    }

    /// The score of a command for each pool that loses nodes; `approved` is the result of [`Totals::approve`].
    pub(super) fn score_by_pool(&self, nodes: &[&Candidate<'_>], command: &Command, approved: bool) -> Vec<PoolScore> {
        let pools: BTreeMap<&str, ConsolidationPolicy> =
            nodes.iter().map(|node| (node.pool_name(), node.pool.spec.disruption.consolidation_policy)).collect();
        let score = |(pool, policy): (&&str, &ConsolidationPolicy)| {
            let (savings, disruption) = shares(nodes, command, pool, pools.len());
            let score = self.balanced.contains(*pool).then(|| self.score(pool, savings, disruption));
            PoolScore { node_pool: (*pool).to_owned(), policy: *policy, approved, score }
        };
        pools.iter().map(score).collect()
    }

    /// In thousandths; `u64::MAX` when nothing is disrupted.
    fn score(&self, pool: &str, savings: i128, disruption: Cost) -> u64 {
        let Some(total) = self.pools.get(pool).filter(|total| total.cost > Price::ZERO && total.disruption > Cost::ZERO) else { return 0 };
        if savings <= 0 {
            return 0;
        }
        let loss = i128::from(total.cost.nanos()) * i128::from(disruption.raw());
        let gain = savings * i128::from(total.disruption.raw());
        (gain * 1000).checked_div(loss).map_or(u64::MAX, |score| u64::try_from(score).unwrap_or(u64::MAX))
    }

    /// Checks the score of deleting the node without a replacement: no other command for it can score higher.
    pub(super) fn check_deletion_score(&self, node: &Candidate<'_>) -> Result<(), u64> {
        match self.pools.get(node.pool_name()) {
            Some(total) if total.cost > Price::ZERO => self.check_score(node.pool_name(), i128::from(node.price.nanos()), node.cost),
            _ => Ok(()),
        }
    }

    fn check_score(&self, pool: &str, savings: i128, disruption: Cost) -> Result<(), u64> {
        let Some(total) = self.pools.get(pool) else { return Err(0) };
        let (cost, all) = (i128::from(total.cost.nanos()), i128::from(total.disruption.raw()));
        if cost <= 0 || all <= 0 || savings <= 0 {
            return Err(0);
        }
        // savings/cost ÷ disruption/all ≥ 1/k, multiplied out so that nothing is rounded.
        if K * savings * all >= cost * i128::from(disruption.raw()) { Ok(()) } else { Err(self.score(pool, savings, disruption)) }
    }

    /// Publishes the score of an approved command, on the pool or on its single node.
    pub(super) fn note_approval(&self, events: &mut EventCollector, nodes: &[&Candidate<'_>], command: &Command) {
        let pools: BTreeSet<&str> = nodes.iter().map(|node| node.pool_name()).collect();
        for (pool, total) in pools.iter().filter_map(|pool| Some((*pool, self.pools.get(*pool)?))) {
            let message = score_text(total, shares(nodes, command, pool, pools.len()));
            if nodes.len() > 1 {
                events.about(format!("nodepool/{pool}"), CONSOLIDATION_APPROVED, message);
                continue;
            }
            for node in nodes {
                events.on_machine(node.machine, CONSOLIDATION_APPROVED, &message);
            }
        }
    }
}

/// A pool's share of a command's savings, in billionths of a dollar per hour, and the disruption of its nodes.
fn shares(nodes: &[&Candidate<'_>], command: &Command, pool: &str, pools: usize) -> (i128, Cost) {
    let price = |all: bool| -> i128 {
        let counted = nodes.iter().filter(|node| all || node.pool_name() == pool);
        counted.map(|node| i128::from(node.price.nanos())).sum()
    };
    let savings = i128::from(command.savings.nanos());
    let share = if pools > 1 { savings * price(false) / price(true).max(1) } else { savings };
    (share, nodes.iter().filter(|node| node.pool_name() == pool).map(|node| node.cost).sum())
}

#[expect(clippy::cast_precision_loss, reason = "output; decisions compare the integers")]
fn score_text(total: &Total, (savings, disruption): (i128, Cost)) -> String {
    let saved = savings as f64 / total.cost.nanos() as f64;
    let disrupted = disruption.raw() as f64 / total.disruption.raw() as f64;
    let score = saved / disrupted;
    format!("score {score:.2} >= threshold 0.50 (k: {K}, savings {:.1}%, disruption {:.1}%)", saved * 100.0, disrupted * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::pass::{Pass, PoolMode};
    use super::super::testing::Scene;
    use super::super::{compute, emptiness};
    use super::*;
    use whittle_model::disruption::{Method, Savings};

    fn pods(count: usize) -> Cost {
        std::iter::repeat_n(Cost::ONE, count).sum()
    }

    fn totals(dollars: f64, disruption: usize) -> Totals {
        let total = Total { cost: Price::from_dollars(dollars), disruption: pods(disruption) };
        Totals { pools: [("p".to_owned(), total)].into(), balanced: ["p".to_owned()].into() }
    }

    /// Scores a move that saves `dollars` and disrupts `disruption` pods, in a pool of the given cost and disruption.
    /// `Err` is the score in thousandths.
    #[track_caller]
    fn check(dollars: f64, disruption: usize, pool: (f64, usize), want: Result<(), u64>) {
        let savings =
            if dollars < 0.0 { -i128::from(Price::from_dollars(-dollars).nanos()) } else { Price::from_dollars(dollars).nanos().into() };
        assert_eq!(totals(pool.0, pool.1).check_score("p", savings, pods(disruption)), want, "{dollars} for {disruption}");
    }

    #[test]
    fn half_the_share_of_savings_is_enough_for_a_share_of_disruption() {
        let pool = (58.08, 90);
        check(7.26, 4, pool, Ok(()));
        check(4.84, 5, pool, Ok(()));
        check(2.42, 9, pool, Err(416));
        check(0.0, 11, pool, Err(0));
        check(-1.0, 4, pool, Err(0));
        check(2.42, 9, (48.40, 90), Ok(()));
        for (savings, disruption, want) in [(20.0, 5, Ok(())), (10.0, 10, Ok(())), (5.0, 50, Err(100)), (10.0, 25, Err(400))] {
            check(savings, disruption, (100.0, 100), want);
            // A pool ten times as large does not change the score of a move ten times as large.
            check(savings * 10.0, disruption * 10, (1000.0, 1000), want);
        }
        check(0.5, 1, (1.0, 1), Ok(()));
    }

    #[test]
    fn moves_without_disruption_are_approved_and_moves_without_savings_rejected() {
        check(0.01, 0, (58.08, 90), Ok(()));
        check(0.0, 0, (58.08, 90), Err(0));
        check(1.0, 1, (0.0, 90), Err(0));
        check(1.0, 1, (1.0, 0), Err(0));
        assert_eq!(totals(1.0, 1).check_score("another", 1, Cost::ONE), Err(0), "a pool without totals");
    }

    #[test]
    fn an_approval_states_its_score() {
        let total = Total { cost: Price::from_dollars(58.08), disruption: pods(90) };
        let text = score_text(&total, (Price::from_dollars(7.26).nanos().into(), pods(4)));
        assert_eq!(text, "score 2.81 >= threshold 0.50 (k: 2, savings 12.5%, disruption 4.4%)");
    }

    /// Whether a command over `nodes` that saves `savings` thousandths of a dollar per hour is approved. The cluster
    /// has a pool `balanced` and a pool `plain`, each with one node of four cores and one pod.
    fn passes(nodes: &[&str], savings: u64, balance_both: bool) -> bool {
        let mut scene = Scene::new();
        for pool in ["balanced", "plain"] {
            let policy = &mut scene.pool(pool).spec.disruption.consolidation_policy;
            if pool == "balanced" || balance_both {
                *policy = ConsolidationPolicy::Balanced;
            }
            scene.node(&format!("{pool}-node"), pool, 4);
            scene.pod(&format!("{pool}-pod"), &format!("{pool}-node"), "1");
        }
        scene.with(|input| {
            let view = ClusterView::new(input);
            let pass = Pass::new(&view, PoolMode::Active);
            let totals = Totals::new(&view, &pass.candidates);
            let chosen: Vec<&Candidate<'_>> = pass.candidates.iter().filter(|node| nodes.contains(&node.name())).collect();
            let mut command = compute::command(&view, Method::MultiNode, &chosen, None, Default::default());
            command.savings = Savings::between(Price::from_nanos(savings * 1_000_000), Price::ZERO);
            let approved = totals.approve(&chosen, &command).is_ok();
            assert!(totals.approve(&[], &emptiness::command(&[], view.now())).is_err(), "a command without nodes");
            approved
        })
    }

    #[test]
    fn every_balanced_pool_that_loses_nodes_must_approve_and_other_policies_do_not_score() {
        // A node costs 0.2 an hour and is its whole pool, so half of that is enough.
        assert!(passes(&["balanced-node"], 100, false));
        assert!(!passes(&["balanced-node"], 99, false));
        assert!(passes(&["plain-node"], 1, false), "other policies do not score");
        // Over two pools the savings are divided in proportion to price.
        assert!(passes(&["balanced-node", "plain-node"], 200, false));
        assert!(!passes(&["balanced-node", "plain-node"], 199, false));
        assert!(!passes(&["balanced-node", "plain-node"], 199, true));
    }

    #[test]
    fn one_pool_that_rejects_a_command_stops_it() {
        let check_score = |both: bool| {
            let mut scene = Scene::new();
            for pool in ["small", "large"] {
                let policy = &mut scene.pool(pool).spec.disruption.consolidation_policy;
                if both || pool == "small" {
                    *policy = ConsolidationPolicy::Balanced;
                }
                scene.node(&format!("{pool}-node"), pool, 4);
                scene.pod(&format!("{pool}-pod"), &format!("{pool}-node"), "1");
            }
            // The command removes all of the small pool, but only a fifth of the large pool's cost for two thirds of
            // its disruption.
            scene.node("rest", "large", 16);
            scene.with(|input| {
                let view = ClusterView::new(input);
                let pass = Pass::new(&view, PoolMode::Active);
                let chosen: Vec<&Candidate<'_>> = pass.candidates.iter().filter(|node| node.name() != "rest").collect();
                let mut command = compute::command(&view, Method::MultiNode, &chosen, None, Default::default());
                command.savings = Savings::between(Price::from_dollars(0.2), Price::ZERO);
                Totals::new(&view, &pass.candidates).approve(&chosen, &command)
            })
        };
        assert_eq!((check_score(false), check_score(true)), (Ok(()), Err(150)));
    }

    #[test]
    fn all_nodes_of_a_pool_count_and_an_unknown_type_costs_nothing() {
        let mut scene = Scene::new();
        scene.the_pool("default").spec.disruption.consolidation_policy = ConsolidationPolicy::Balanced;
        for name in ["a", "busy", "odd"] {
            scene.node(name, "default", 4);
            scene.pod(&format!("pod-{name}"), name, "1");
        }
        scene.marks.insert("busy".to_owned(), (true, None));
        scene.parts("odd").0.metadata.labels.insert(whittle_api::labels::INSTANCE_TYPE.to_owned(), "unheard-of".to_owned());
        scene.with(|input| {
            let view = ClusterView::new(input);
            let totals = Totals::new(&view, &Pass::new(&view, PoolMode::Active).candidates);
            let total = totals.pools["default"];
            assert_eq!((total.cost, total.disruption), (Price::from_dollars(0.4), pods(6)));
        });
    }

    #[test]
    fn a_balanced_pool_may_lose_its_only_node_and_gets_an_approval_event() {
        let mut scene = Scene::new();
        scene.the_pool("default").spec.disruption.consolidation_policy = ConsolidationPolicy::Balanced;
        scene.node("big", "default", 16);
        scene.pod("p", "big", "1");
        let decision = scene.expect(&["single replace [big] -> x1|x2|x4|x8"]);
        let published: Vec<&str> =
            decision.events.iter().filter(|event| event.reason == CONSOLIDATION_APPROVED).map(|event| event.object.as_str()).collect();
        assert_eq!(published, ["node/big", "nodeclaim/claim-big"]);
        scene.the_pool("default").spec.disruption.budgets =
            vec![whittle_api::karpenter::Budget { nodes: whittle_api::k8s::IntOrString::Int(0), ..Default::default() }];
        scene.expect(&[]);
    }
}
