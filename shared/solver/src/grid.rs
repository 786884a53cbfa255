//! What fills machines best, exactly, where requests for CPU and memory are multiples of units that are not too small: dynamic
//! programming over all amounts of both, once for all machines.

use super::knapsack::Size;
use super::price_index::{Amounts, fits_in, plus};

/// CPU and memory.
const DIMS: usize = 2;
/// More amounts than this are left to the search.
const CELLS_MAX: usize = 40_000;
/// Comparisons of amounts that take as long as one step of the search.
const CELLS_PER_STEP: usize = 50;

/// A machine that can be bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Room<const D: usize> {
    /// What a full machine costs.
    pub(crate) cost: u64,
    pub(crate) net: Amounts<D>,
}

/// The amounts of CPU and memory, in their units.
pub(crate) struct Grid<'g, const D: usize> {
    sizes: &'g [Size<D>],
    units: [i64; DIMS],
    /// The largest amounts of any machine.
    most: [usize; DIMS],
    parts: Vec<Part>,
}

/// Some pods of one size, which are chosen together or not at all.
struct Part {
    size: usize,
    pods: usize,
    /// In units.
    needs: [usize; DIMS],
}

impl<'g, const D: usize> Grid<'g, D> {
    /// The grid for pods of these sizes, of each as many as may be chosen; `None` if it would be too fine.
    pub(crate) fn new(sizes: &'g [Size<D>], rooms: &[Room<D>]) -> Option<Self> {
        let units = std::array::from_fn(|dim| sizes.iter().fold(0, |unit, size| greatest_common_divisor(unit, size.requests[dim])).max(1));
        let most = std::array::from_fn(|dim| rooms.iter().map(|room| in_units(room.net[dim], units[dim])).max().unwrap_or(0));
        let cells = most.iter().try_fold(1_usize, |cells, most: &usize| cells.checked_mul(most.checked_add(1)?))?;
        if cells > CELLS_MAX {
            return None;
        }
        let mut out = Self { sizes, units, most, parts: Vec::new() };
        for (at, size) in sizes.iter().enumerate() {
            let mut left = size.pods;
            let mut pods = 1;
            while left > 0 {
                let now = pods.min(left);
                let needs = std::array::from_fn(|dim| in_units(size.requests[dim], units[dim]).saturating_mul(now));
                if needs.iter().zip(most).any(|(need, most)| *need > most) {
                    break;
                }
                out.parts.push(Part { size: at, pods: now, needs });
                (left, pods) = (left - now, pods * 2);
            }
        }
        Some(out)
    }

    /// By room: the pods that are worth most together, by size, unless their other requests do not fit. And the number of steps.
    pub(crate) fn fill(&self, worth: &[f64], rooms: &[Room<D>]) -> (Vec<Option<Vec<usize>>>, u64) {
        let [rows, width] = self.most.map(|most| most + 1);
        let mut best = vec![0.0_f64; rows * width];
        let mut taken = vec![false; self.parts.len() * rows * width];
        for (part, taken) in self.parts.iter().zip(taken.chunks_mut(rows * width)) {
            let value = worth[part.size] * part.pods as f64;
            if value <= 0.0 {
                continue;
            }
            let [down, right] = part.needs;
            for row in (down..rows).rev() {
                let (from, to) = ((row - down) * width, row * width);
                // Backwards, so that no part is taken twice.
                for at in (right..width).rev() {
                    let with = best[from + at - right] + value;
                    if with > best[to + at] {
                        (best[to + at], taken[to + at]) = (with, true);
                    }
                }
            }
        }
        let found = rooms.iter().map(|room| self.taken(&taken, room)).collect();
        (found, (self.parts.len() * rows * width / CELLS_PER_STEP) as u64)
    }

    fn taken(&self, taken: &[bool], room: &Room<D>) -> Option<Vec<usize>> {
        let mut left: [usize; DIMS] = std::array::from_fn(|dim| in_units(room.net[dim], self.units[dim]));
        let [rows, width] = self.most.map(|most| most + 1);
        let (mut pods, mut need) = (vec![0; self.sizes.len()], [0; D]);
        for (part, taken) in self.parts.iter().zip(taken.chunks(rows * width)).rev() {
            if taken[left[0] * width + left[1]] {
                pods[part.size] += part.pods;
                left = std::array::from_fn(|dim| left[dim] - part.needs[dim]);
                let count = i64::try_from(part.pods).unwrap_or(i64::MAX);
                need = plus(&need, &self.sizes[part.size].requests.map(|each| each.saturating_mul(count)));
            }
        }
        let need: Amounts<D> = need;
        fits_in(&need, &room.net).then_some(pods)
    }
}

fn in_units(amount: i64, unit: i64) -> usize {
    usize::try_from(amount / unit).unwrap_or(0)
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::super::knapsack::Knapsack;
    use super::*;
    use proptest::prelude::*;

    /// The most that pods on a machine are worth, of all ways to choose them.
    fn most(sizes: &[Size<4>], worth: &[f64], room: &Amounts<4>) -> f64 {
        let Some((size, rest)) = sizes.split_first() else { return 0.0 };
        let with = |pods: usize| {
            let need = size.requests.map(|each| each * pods as i64);
            let left = std::array::from_fn(|dim| room[dim] - need[dim]);
            fits_in(&need, room).then(|| worth[0] * pods as f64 + most(rest, &worth[1..], &left))
        };
        (0..=size.pods).map_while(with).fold(0.0, f64::max)
    }

    fn value(worth: &[f64], pods: &[usize]) -> f64 {
        pods.iter().zip(worth).map(|(pods, worth)| *pods as f64 * worth).sum()
    }

    proptest! {
        #[test]
        fn nothing_is_worth_more_than_what_the_grid_finds(
            of in prop::collection::vec(([1_i64..6, 1_i64..6], 1_usize..5, 0_u32..50), 1..6),
            nets in prop::collection::vec([0_i64..20, 0_i64..20], 1..4),
        ) {
            let sizes: Vec<Size<4>> = of.iter().map(|([cpu, memory], pods, _)| Size { requests: [cpu * 250, memory * 100, 1, 0], together: 9, pods: *pods }).collect();
            let worth: Vec<f64> = of.iter().map(|(.., worth)| f64::from(*worth)).collect();
            let rooms: Vec<Room<4>> = nets.iter().map(|[cpu, memory]| Room { cost: 1, net: [cpu * 250 + 10, memory * 100, 100, 0] }).collect();
            let (found, _) = Grid::new(&sizes, &rooms).expect("few amounts").fill(&worth, &rooms);
            for (room, found) in rooms.iter().zip(&found) {
                let expected = most(&sizes, &worth, &room.net);
                let found = found.as_ref().expect("there is room for all numbers of pods");
                prop_assert!((value(&worth, found) - expected).abs() < 1e-6, "{:?} instead of {}", found, expected);
                // The search finds no more, and with enough steps no less.
                let (searched, _) = Knapsack::new(&sizes, &worth, room.net).fill(0.5, 100_000);
                prop_assert!((searched.map_or(0.0, |pods| value(&worth, &pods)) - expected).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn what_is_too_fine_or_has_no_place_for_so_many_pods_is_left_to_the_search() {
        let size = |cpu: i64, memory: i64| Size { requests: [cpu, memory, 1, 0], together: 9, pods: 9 };
        let room = Room { cost: 1, net: [4_000, 16_000, 2, 0] };
        assert!(Grid::new(&[size(250, 1_000), size(137, 333)], &[room]).is_none());
        let sizes = [size(1_000, 1_000), size(500, 4_000)];
        let (found, _) = Grid::new(&sizes, &[room]).expect("few amounts").fill(&[1.0, 1.0], &[room]);
        assert_eq!(found, [None], "more than two pods");
    }
}
