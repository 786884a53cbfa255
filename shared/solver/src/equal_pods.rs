//! Pods that are all alike: how many of them each machine takes, at the least cost.

/// More pods than this are left to the search.
pub(crate) const PODS_MAX: usize = 2_000;

/// The least that some pods cost on their machines.
#[derive(Clone, Copy)]
struct Least {
    cost: u64,
    machines: u32,
    /// How many pods the last machine takes.
    last: usize,
}

/// How many of `pods` equal pods each machine takes so that all together cost least; of equals, the fewest machines. A machine
/// with so many pods costs `cost`, `None` from the number on that no machine takes.
pub(crate) fn shares(pods: usize, cost: impl Fn(usize) -> Option<u64>) -> Option<Vec<usize>> {
    let costs: Vec<u64> = (1..=pods).map_while(cost).collect();
    let mut least = vec![Least { cost: 0, machines: 0, last: 0 }];
    for all in 1..=pods {
        let with = |last: usize| {
            let rest = least[all - last];
            Least { cost: rest.cost.saturating_add(costs[last - 1]), machines: rest.machines + 1, last }
        };
        let best = (1..=costs.len().min(all)).rev().map(with).min_by_key(|least| (least.cost, least.machines))?;
        least.push(best);
    }
    let mut out = Vec::new();
    let mut left = pods;
    while left > 0 {
        out.push(least[left].last);
        left -= least[left].last;
    }
    out.sort_unstable_by(|a, b| b.cmp(a));
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_few_pods_get_a_small_machine() {
        // 2, 4, 8 and 17 pods fit on machines of 2, 4, 8 and 16 cores.
        let cost =
            |pods: usize| [(2, 96), (4, 192), (8, 384), (17, 768)].into_iter().find(|(room, _)| pods <= *room).map(|(_, cost)| cost + 52);
        assert_eq!(shares(26, cost), Some(vec![17, 8, 1]));
        assert_eq!(shares(0, cost), Some(vec![]));
        assert_eq!(shares(3, |_| None), None);
    }

    /// All ways to divide pods.
    fn cheapest(pods: usize, costs: &[u64]) -> u64 {
        let with = |last: usize| costs[last - 1] + cheapest(pods - last, costs);
        (1..=costs.len().min(pods)).map(with).min().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn no_other_shares_cost_less(pods in 1_usize..12, costs in prop::collection::vec(1_u64..100, 1..8)) {
            let shares = shares(pods, |pods| costs.get(pods - 1).copied()).unwrap();
            prop_assert_eq!(shares.iter().sum::<usize>(), pods);
            prop_assert_eq!(shares.iter().map(|pods| costs[pods - 1]).sum::<u64>(), cheapest(pods, &costs));
        }
    }
}
