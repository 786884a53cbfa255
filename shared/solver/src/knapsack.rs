//! Which pods fill one machine best, if a pod of each size has a worth: greedily by several measures, then by branch and bound.

use super::price_index::{Amounts, fits_in, minus};

/// What is worth less than this is no part of a pattern.
const WORTH_MIN: f64 = 1e-6;
/// How the first two resources, CPU and memory, are weighted in mixed measures.
const MIXES: [f64; 3] = [0.25, 0.5, 0.75];

/// Pods that need the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Size<const D: usize> {
    pub(crate) requests: Amounts<D>,
    /// How many of them may share a machine.
    pub(crate) together: usize,
    /// How many there are.
    pub(crate) pods: usize,
}

/// One machine, the sizes that fit on it, and what they are worth.
pub(crate) struct Knapsack<'k, const D: usize> {
    sizes: &'k [Size<D>],
    worth: &'k [f64],
    room: Amounts<D>,
    /// By measure and size: the worth for a share of the room.
    density: Vec<Vec<f64>>,
    /// By measure: the weight of each resource.
    weights: Vec<[f64; D]>,
}

/// What was chosen so far.
#[derive(Clone)]
struct Choice<const D: usize> {
    pods: Vec<usize>,
    room: Amounts<D>,
    worth: f64,
}

/// The choice that is worth most so far.
struct Best {
    worth: f64,
    pods: Option<Vec<usize>>,
}

/// Branch and bound on the way.
struct Branching {
    best: Best,
    /// Sizes, the densest first.
    order: Vec<usize>,
    /// By measure and position in the order: the largest density from there on.
    densest: Vec<Vec<f64>>,
    steps: u64,
    steps_max: u64,
}

impl<'k, const D: usize> Knapsack<'k, D> {
    /// `sizes` with the most pods of each that may be chosen, and what one is worth.
    pub(crate) fn new(sizes: &'k [Size<D>], worth: &'k [f64], room: Amounts<D>) -> Self {
        let dims: Vec<usize> = (0..D).filter(|dim| room[*dim] > 0 && sizes.iter().any(|size| size.requests[*dim] > 0)).collect();
        let unit = |dim: usize| std::array::from_fn(|n| f64::from(u8::from(n == dim)));
        let mut weights: Vec<[f64; D]> = dims.iter().map(|dim| unit(*dim)).collect();
        if let [first, second, ..] = dims[..] {
            weights.extend(MIXES.map(|mix| {
                let mut out = [0.0; D];
                (out[first], out[second]) = (mix, 1.0 - mix);
                out
            }));
        }
        let mut out = Self { sizes, worth, room, density: Vec::new(), weights };
        out.density = out.weights.iter().map(|weights| (0..sizes.len()).map(|size| out.density_of(size, weights)).collect()).collect();
        out
    }

    fn density_of(&self, size: usize, weights: &[f64; D]) -> f64 {
        if self.worth[size] <= WORTH_MIN || !fits_in(&self.sizes[size].requests, &self.room) {
            return 0.0;
        }
        let share = self.share(&self.sizes[size].requests, weights);
        if share > 0.0 { self.worth[size] / share } else { f64::MAX }
    }

    /// The weighted share of the room that amounts take.
    fn share(&self, amounts: &Amounts<D>, weights: &[f64; D]) -> f64 {
        let parts = (0..D).filter(|dim| weights[*dim] > 0.0).map(|dim| weights[dim] * amounts[dim] as f64 / self.room[dim] as f64);
        parts.sum()
    }

    /// The pods that are worth most together, by size, if that is more than `least`; and the number of steps.
    /// Branch and bound takes at most `steps_max`.
    pub(crate) fn fill(&self, least: f64, steps_max: u64) -> (Option<Vec<usize>>, u64) {
        let mut best = Best { worth: least, pods: None };
        let (mut first, mut steps): (Option<(f64, Vec<usize>)>, u64) = (None, 0);
        for density in &self.density {
            let mut order: Vec<usize> = (0..self.sizes.len()).filter(|size| density[*size] > 0.0).collect();
            order.sort_by(|a, b| density[*b].total_cmp(&density[*a]));
            steps += order.len() as u64;
            let choice = self.greedy(&order);
            best.offer(&choice);
            if first.as_ref().is_none_or(|(worth, _)| choice.worth > *worth) {
                first = Some((choice.worth, order));
            }
        }
        if let Some((_, order)) = first {
            let mut branching = Branching { densest: self.densest(&order), order, best, steps: 0, steps_max };
            self.branch(&mut branching, 0, &self.nothing());
            (best, steps) = (branching.best, steps + branching.steps);
        }
        (best.pods, steps)
    }

    fn nothing(&self) -> Choice<D> {
        Choice { pods: vec![0; self.sizes.len()], room: self.room, worth: 0.0 }
    }

    /// By measure and position in the order: the largest density from there on.
    fn densest(&self, order: &[usize]) -> Vec<Vec<f64>> {
        let of = |density: &Vec<f64>| {
            let mut out = vec![0.0; order.len() + 1];
            for at in (0..order.len()).rev() {
                out[at] = f64::max(out[at + 1], density[order[at]]);
            }
            out
        };
        self.density.iter().map(of).collect()
    }

    /// As many pods of each size as fit, in this order.
    fn greedy(&self, order: &[usize]) -> Choice<D> {
        let mut out = self.nothing();
        for size in order {
            let most = self.most(&out.room, *size);
            out = self.with(&out, *size, most);
        }
        out
    }

    /// How many pods of a size fit.
    fn most(&self, room: &Amounts<D>, size: usize) -> usize {
        let Size { requests, pods, .. } = self.sizes[size];
        let fitting = room.iter().zip(&requests).filter(|(_, each)| **each > 0).map(|(room, each)| room / each).min();
        fitting.map_or(pods, |fitting| usize::try_from(fitting).unwrap_or(0).min(pods))
    }

    fn with(&self, choice: &Choice<D>, size: usize, pods: usize) -> Choice<D> {
        let mut out = choice.clone();
        let each = &self.sizes[size].requests;
        out.room = minus(&out.room, &each.map(|amount| amount * i64::try_from(pods).unwrap_or(i64::MAX)));
        out.worth += self.worth[size] * pods as f64;
        out.pods[size] = pods;
        out
    }

    /// Tries all counts of the sizes from `at` on, the highest first, unless they cannot be worth more than the best.
    fn branch(&self, branching: &mut Branching, at: usize, choice: &Choice<D>) {
        branching.steps += 1;
        branching.best.offer(choice);
        let Some(size) = branching.order.get(at).copied() else { return };
        let rest = |measure: usize| self.share(&choice.room, &self.weights[measure]) * branching.densest[measure][at];
        let bound = (0..self.weights.len()).map(rest).fold(f64::MAX, f64::min);
        if !branching.best.is_less_than(choice.worth + bound) {
            return;
        }
        for pods in (0..=self.most(&choice.room, size)).rev() {
            if branching.steps >= branching.steps_max {
                return;
            }
            self.branch(branching, at + 1, &self.with(choice, size, pods));
        }
    }
}

impl Best {
    /// By more than rounding.
    fn is_less_than(&self, worth: f64) -> bool {
        worth > self.worth * (1.0 + 1e-9)
    }

    fn offer<const D: usize>(&mut self, choice: &Choice<D>) {
        if self.is_less_than(choice.worth) {
            (self.worth, self.pods) = (choice.worth, Some(choice.pods.clone()));
        }
    }
}
