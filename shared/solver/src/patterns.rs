//! Pods of many sizes: which sets of them fill machines at the least cost, by column generation, as for cutting stock.
//!
//! A *pattern* says how many pods of each size one machine takes. A linear program (`simplex`) decides how many machines of each known
//! pattern are needed, in fractions, and puts a price on a pod of each size. A search (`knapsack`) finds patterns whose pods are worth more
//! at these prices than their machine costs, until there are none. Whole machines of that solution are kept; what is left of the pods is
//! divided anew.

use super::few_sizes::Division;
use super::grid::{Grid, Room};
use super::knapsack::{Knapsack, Size};
use super::price_index::fits_in;
use super::simplex::{self, Column, Simplex};
use std::collections::BTreeSet;

/// Pods of more sizes are left to the search.
pub(crate) const SIZES_MAX: usize = 48;
/// All divisions of a plan together take about as many steps, of a tenth of a microsecond each. One that has no more goes on with the
/// patterns that it knows.
pub(crate) const STEPS_MAX: u64 = 1_500_000;
/// The steps of one division by the number of its pods: few pods are not worth more.
const STEPS_PER_POD: u64 = 5_000;
/// Steps of the search for one machine: more if the first find nothing.
const EFFORTS: [u64; 2] = [600, 6_000];
/// How many times a linear program asks for patterns.
const ROUNDS_MAX: usize = 400;

/// Divides pods among machines. `cost` is that of a machine for given counts, at most that of any of `rooms` which holds them. Returns
/// `None` if a pod fits nowhere. The search
/// takes about `steps_max`.
pub(crate) fn division<const D: usize>(
    sizes: &[Size<D>],
    rooms: Vec<Room<D>>,
    cost: impl Fn(&[usize]) -> Option<u64>,
    steps_max: u64,
) -> Option<Division> {
    let rooms = undominated(rooms, sizes);
    let pods: u64 = sizes.iter().map(|size| size.pods as u64).sum();
    let steps_max = steps_max.min(pods.saturating_mul(STEPS_PER_POD));
    let mut search = Search { sizes, rooms, cost, known: Vec::new(), seen: BTreeSet::new(), steps: 0, steps_max };
    let mut left: Vec<usize> = sizes.iter().map(|size| size.pods).collect();
    let mut shares = Vec::new();
    while left.iter().any(|pods| *pods > 0) {
        for pattern in search.machines(&left)? {
            left.iter_mut().zip(&pattern).for_each(|(left, pods)| *left -= pods);
            shares.push(pattern);
        }
    }
    shares.sort_unstable_by(|a: &Vec<usize>, b| b.cmp(a));
    Some(Division { shares, steps: search.steps })
}

/// Rooms of which no other is at least as large for no more, the cheapest first.
fn undominated<const D: usize>(mut rooms: Vec<Room<D>>, sizes: &[Size<D>]) -> Vec<Room<D>> {
    let asked = |dim: usize| sizes.iter().any(|size| size.requests[dim] > 0);
    let asked: [bool; D] = std::array::from_fn(asked);
    for room in &mut rooms {
        room.net.iter_mut().zip(asked).filter(|(_, asked)| !asked).for_each(|(net, _)| *net = 0);
    }
    rooms.sort_unstable();
    let mut kept: Vec<Room<D>> = Vec::new();
    for room in rooms {
        if !kept.iter().any(|other| fits_in(&room.net, &other.net)) {
            kept.push(room);
        }
    }
    kept
}

struct Search<'s, const D: usize, C> {
    sizes: &'s [Size<D>],
    rooms: Vec<Room<D>>,
    cost: C,
    known: Vec<Column>,
    seen: BTreeSet<Vec<usize>>,
    steps: u64,
    steps_max: u64,
}

impl<const D: usize, C: Fn(&[usize]) -> Option<u64>> Search<'_, D, C> {
    /// Some machines for pods of those that are `left`: at least one.
    fn machines(&mut self, left: &[usize]) -> Option<Vec<Vec<usize>>> {
        let present: Vec<usize> = (0..left.len()).filter(|size| left[*size] > 0).collect();
        let known: Vec<Column> = self.known.iter().filter(|column| column.is_within(left)).map(|column| column.of(&present)).collect();
        let demand: Vec<f64> = present.iter().map(|size| left[*size] as f64).collect();
        let alone =
            present.iter().map(|size| self.alone(left, *size).map(|column| column.of(&present))).collect::<Option<Vec<Column>>>()?;
        let mut simplex = Simplex::new(demand, alone, known);
        for _ in 0..ROUNDS_MAX {
            let worth = simplex.solve();
            self.steps += simplex.take_steps();
            let found = if self.steps < self.steps_max { self.patterns(left, &present, &worth) } else { Vec::new() };
            if found.is_empty() {
                break;
            }
            found.iter().for_each(|column| simplex.add(column.of(&present)));
            self.known.extend(found);
        }
        let mut rest = left.to_vec();
        let used = simplex.used();
        let whole = used.iter().flat_map(|(pods, times)| std::iter::repeat_n(pods, *times as usize));
        let mut out: Vec<Vec<usize>> = whole.filter_map(|pods| take(&mut rest, &present, pods)).collect();
        if out.is_empty() {
            let most = used.iter().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
            out.extend(take(&mut rest, &present, most.0));
        }
        (!out.is_empty()).then_some(out)
    }

    /// As many pods of one size as are best together.
    fn alone(&self, left: &[usize], size: usize) -> Option<Column> {
        let Size { requests, together, .. } = self.sizes[size];
        let fitting = |room: &Room<D>| {
            let most = room.net.iter().zip(&requests).filter(|(_, each)| **each > 0).map(|(net, each)| net / each).min();
            most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(0)).min(together).min(left[size])
        };
        let counts = self.rooms.iter().map(|room| (fitting(room), room.cost)).filter(|(count, _)| *count > 0);
        let (count, _) = counts.min_by(|a, b| (a.1 as f64 / a.0 as f64).total_cmp(&(b.1 as f64 / b.0 as f64)))?;
        let mut pods = vec![0; left.len()];
        pods[size] = count;
        let cost = (self.cost)(&pods)?;
        Some(Column { pods, cost: cost as f64 })
    }

    /// New patterns whose pods are worth more than their machine costs.
    fn patterns(&mut self, left: &[usize], present: &[usize], worth: &[f64]) -> Vec<Column> {
        let most = |size: &usize| Size { pods: left[*size].min(self.sizes[*size].together), ..self.sizes[*size] };
        let sizes: Vec<Size<D>> = present.iter().map(most).collect();
        let mut out = Vec::new();
        if let Some(grid) = Grid::new(&sizes, &self.rooms) {
            let (found, steps) = grid.fill(worth, &self.rooms);
            self.steps += steps;
            out.extend(found.into_iter().flatten().filter_map(|pods| self.new_column(left, present, worth, &pods)));
        }
        for effort in EFFORTS {
            if !out.is_empty() {
                break;
            }
            for at in 0..self.rooms.len() {
                let Room { cost, net } = self.rooms[at];
                let (found, steps) = Knapsack::new(&sizes, worth, net).fill(cost as f64, effort);
                self.steps += steps;
                out.extend(found.and_then(|pods| self.new_column(left, present, worth, &pods)));
            }
        }
        out
    }

    /// The pattern, if it is new and worth more than it costs.
    fn new_column(&mut self, left: &[usize], present: &[usize], worth: &[f64], found: &[usize]) -> Option<Column> {
        let mut pods = vec![0; left.len()];
        present.iter().zip(found).for_each(|(size, count)| pods[*size] = *count);
        let cost = (self.cost)(&pods)? as f64;
        let value: f64 = found.iter().zip(worth).map(|(pods, worth)| *pods as f64 * worth).sum();
        (value > cost * (1.0 + simplex::TOLERANCE) && self.seen.insert(pods.clone())).then_some(Column { pods, cost })
    }
}

/// Takes the pods of a pattern, or as many as are left; `None` if none is.
fn take(left: &mut [usize], present: &[usize], pods: &[usize]) -> Option<Vec<usize>> {
    let mut out = vec![0; left.len()];
    for (size, count) in present.iter().zip(pods) {
        out[*size] = left[*size].min(*count);
        left[*size] -= out[*size];
    }
    out.iter().any(|count| *count > 0).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::super::few_sizes;
    use super::*;
    use proptest::prelude::*;

    type Types = Vec<([i64; 2], u64)>;

    fn rooms(types: &Types) -> Vec<Room<4>> {
        types.iter().map(|([cpu, memory], cost)| Room { cost: *cost, net: [*cpu, *memory, 0, 0] }).collect()
    }

    fn sizes(of: &[([i64; 2], usize, usize)]) -> Vec<Size<4>> {
        of.iter()
            .map(|([cpu, memory], together, pods)| Size { requests: [*cpu, *memory, 0, 0], together: *together, pods: *pods })
            .collect()
    }

    /// The cheapest type for some pods.
    fn cost(sizes: &[Size<4>], types: &Types, pods: &[usize]) -> Option<u64> {
        let need = |dim: usize| sizes.iter().zip(pods).map(|(size, pods)| size.requests[dim] * *pods as i64).sum::<i64>();
        let (cpu, memory) = (need(0), need(1));
        let together = sizes.iter().zip(pods).all(|(size, pods)| *pods <= size.together);
        types.iter().filter(|([c, m], _)| together && cpu <= *c && memory <= *m).map(|(_, cost)| *cost).min()
    }

    /// What a division costs; it has to place every pod once, on machines that exist.
    fn checked(sizes: &[Size<4>], types: &Types) -> Option<u64> {
        let division = division(sizes, rooms(types), |pods| cost(sizes, types, pods), STEPS_MAX)?;
        for (at, size) in sizes.iter().enumerate() {
            assert_eq!(division.shares.iter().map(|share| share[at]).sum::<usize>(), size.pods, "{division:?}");
        }
        let costs = division.shares.iter().map(|share| cost(sizes, types, share).expect("a machine for each share"));
        Some(costs.sum())
    }

    #[test]
    fn twenty_sizes_cost_hardly_more_than_the_linear_program_says() {
        // A machine of c cores and m GiB, less what it needs itself, in units of a quarter of each.
        let types: Types = vec![
            ([7, 12], 76_500),
            ([7, 27], 86_000),
            ([7, 57], 113_000),
            ([15, 26], 153_000),
            ([15, 56], 172_000),
            ([15, 117], 226_000),
            ([31, 56], 306_000),
            ([31, 117], 344_000),
            ([31, 238], 452_000),
        ];
        let all: Vec<_> =
            [1, 2, 3, 4, 8].into_iter().flat_map(|cpu| [1, 2, 4, 7].map(|ratio| ([cpu, cpu * ratio], 100, 84 / cpu as usize))).collect();
        let all = sizes(&all);
        // The linear program with all patterns, solved by another program, costs 18,180,806.
        let found = checked(&all, &types).expect("every pod fits");
        assert!((18_180_806..18_270_000).contains(&found), "{found}");
    }

    #[test]
    fn pods_that_keep_apart_share_machines_with_others_alone() {
        let types: Types = vec![([4, 4], 10)];
        let apart: Vec<_> = (0..8).map(|n| ([1, 1 + n % 2], 1, 3)).collect();
        let all = sizes(&apart);
        assert_eq!(checked(&all, &types), Some(90), "four pods of one unit, or two of two, on each of three machines for each kind");
    }

    #[test]
    fn a_pod_that_fits_nowhere_leaves_all_to_the_search() {
        let types: Types = vec![([4, 4], 10)];
        assert_eq!(checked(&sizes(&[([1, 1], 9, 3), ([5, 1], 9, 1)]), &types), None);
        assert_eq!(checked(&sizes(&[([1, 1], 9, 3)]), &vec![]), None);
        assert_eq!(checked(&[], &types), Some(0));
        let huge = sizes(&[([i64::MAX, 1], 9, 2), ([1, i64::MAX], 9, 1)]);
        assert_eq!(checked(&huge[..0], &types), Some(0));
        assert!(division(&huge, rooms(&types), |_| Some(1), STEPS_MAX).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn no_division_costs_less_than_the_best_and_few_cost_much_more(
            of in prop::collection::vec(([1_i64..6, 1_i64..6], 1_usize..4, 1_usize..4), 1..4),
            types in prop::collection::vec(([3_i64..15, 3_i64..15], 10_u64..50), 1..5),
        ) {
            let all = sizes(&of);
            let counts: Vec<usize> = all.iter().map(|size| size.pods).collect();
            let best = few_sizes::division(&counts, |pods| cost(&all, &types, pods));
            let least = best.map(|best| best.shares.iter().filter_map(|share| cost(&all, &types, share)).sum::<u64>());
            let found = checked(&all, &types);
            prop_assert_eq!(found.is_some(), least.is_some());
            if let (Some(found), Some(least)) = (found, least) {
                let dearest = types.iter().map(|(_, cost)| *cost).max().unwrap_or(0);
                prop_assert!(least <= found && found <= least + 2 * dearest, "{} {}", least, found);
            }
        }

        #[test]
        fn sizes_without_a_common_unit_are_divided_too(
            of in prop::collection::vec(([1_i64..4_000, 1_i64..16_000], 1_usize..30, 1_usize..30), 7..20),
        ) {
            let types: Types = vec![([3_920, 15_000], 10), ([7_910, 30_000], 19), ([15_890, 60_000], 37), ([3_920, 30_000], 13)];
            let all = sizes(&of);
            let cpu: i64 = all.iter().map(|size| size.requests[0] * size.pods as i64).sum();
            let found = checked(&all, &types);
            prop_assert!(found.is_some_and(|found| found as f64 >= cpu as f64 / 15_890.0 * 37.0));
        }
    }
}
