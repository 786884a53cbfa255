//! The linear program of column generation: how many machines of each pattern cover a number of pods of each size at the least cost.
//! The revised simplex method with an explicit inverse, which is small: it has a row for each size.

/// What one machine takes, and what it costs.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// By size.
    pub(crate) pods: Vec<usize>,
    pub(crate) cost: f64,
}

impl Column {
    pub(crate) fn is_within(&self, left: &[usize]) -> bool {
        self.pods.iter().zip(left).all(|(pods, left)| pods <= left)
    }

    /// The column with these rows alone.
    pub(crate) fn of(&self, rows: &[usize]) -> Self {
        Self { pods: rows.iter().map(|row| self.pods[*row]).collect(), cost: self.cost }
    }
}

/// What a row of the basis stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Basic {
    /// By its position among the columns.
    Pattern(usize),
    /// Places for pods of a size that no pod takes.
    Surplus(usize),
}

/// A program with a feasible basis.
pub(crate) struct Simplex {
    columns: Vec<Column>,
    basis: Vec<Basic>,
    /// By row.
    inverse: Vec<Vec<f64>>,
    /// How much there is of each row's column.
    amount: Vec<f64>,
    steps: u64,
}

/// A reduced cost counts as negative from this share of a column's cost on.
pub(crate) const TOLERANCE: f64 = 1e-7;
/// Smaller numbers are no pivots.
const PIVOT_MIN: f64 = 1e-9;
/// Changes of the basis in one solution: degenerate ones may go round in circles.
const PIVOTS_MAX: usize = 2_000;

impl Simplex {
    /// A program that covers `demand`. It starts with `alone`, by size: a column with pods of that size alone.
    pub(crate) fn new(demand: Vec<f64>, alone: Vec<Column>, known: Vec<Column>) -> Self {
        let rows = demand.len();
        let each: Vec<f64> = alone.iter().enumerate().map(|(row, column)| column.pods[row] as f64).collect();
        let inverse = (0..rows).map(|row| (0..rows).map(|other| if row == other { 1.0 / each[row] } else { 0.0 }).collect()).collect();
        let amount = demand.iter().zip(&each).map(|(demand, each)| demand / each).collect();
        let columns = alone.into_iter().chain(known).collect();
        Self { columns, basis: (0..rows).map(Basic::Pattern).collect(), inverse, amount, steps: 0 }
    }

    pub(crate) fn add(&mut self, column: Column) {
        self.columns.push(column);
    }

    /// The number of multiplications, in thousands, since the last call.
    pub(crate) fn take_steps(&mut self) -> u64 {
        std::mem::take(&mut self.steps) / 1_000
    }

    /// Solves the program for the columns that there are; returns what a pod of each size is worth.
    pub(crate) fn solve(&mut self) -> Vec<f64> {
        for _ in 0..PIVOTS_MAX {
            let worth = self.worth();
            let Some(entering) = self.entering(&worth) else { return worth };
            if !self.exchange(entering) {
                return worth;
            }
        }
        self.worth()
    }

    /// Patterns and how many machines have them.
    pub(crate) fn used(&self) -> Vec<(&[usize], f64)> {
        let of = |(basic, amount): (&Basic, &f64)| match basic {
            // Slightly more, to allow for rounding.
            Basic::Pattern(at) => Some((&self.columns[*at].pods[..], amount.max(0.0) + 1e-7)),
            Basic::Surplus(_) => None,
        };
        self.basis.iter().zip(&self.amount).filter_map(of).collect()
    }

    fn worth(&mut self) -> Vec<f64> {
        let rows = self.basis.len();
        let mut out = vec![0.0; rows];
        for (basic, row) in self.basis.iter().zip(&self.inverse) {
            if let Basic::Pattern(at) = basic {
                let cost = self.columns[*at].cost;
                out.iter_mut().zip(row).for_each(|(sum, part)| *sum += cost * part);
            }
        }
        self.steps += (rows * rows) as u64;
        out
    }

    /// The column that saves most for its cost.
    fn entering(&mut self, worth: &[f64]) -> Option<Basic> {
        self.steps += (self.columns.len() * worth.len()) as u64;
        let largest = worth.iter().fold(0.0, |most: f64, worth| most.max(worth.abs()));
        if let Some(row) = (0..worth.len()).min_by(|a, b| worth[*a].total_cmp(&worth[*b])).filter(|row| worth[*row] < -TOLERANCE * largest)
        {
            return Some(Basic::Surplus(row));
        }
        let saves = |column: &Column| {
            let value: f64 = column.pods.iter().zip(worth).map(|(pods, worth)| *pods as f64 * worth).sum();
            (value - column.cost) / column.cost.max(1.0)
        };
        let best = self.columns.iter().map(saves).enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
        (best.1 > TOLERANCE).then_some(Basic::Pattern(best.0))
    }

    /// Takes a column into the basis, for the one that it uses up first; `false` if there is none.
    fn exchange(&mut self, entering: Basic) -> bool {
        let rows = self.basis.len();
        let along: Vec<f64> = match entering {
            Basic::Surplus(row) => self.inverse.iter().map(|of| -of[row]).collect(),
            Basic::Pattern(at) => {
                let pods = &self.columns[at].pods;
                self.inverse.iter().map(|of| of.iter().zip(pods).map(|(part, pods)| part * *pods as f64).sum()).collect()
            }
        };
        self.steps += (2 * rows * rows) as u64;
        let ratios = (0..rows).filter(|row| along[*row] > PIVOT_MIN).map(|row| (row, self.amount[row] / along[row]));
        let Some((leaving, most)) = ratios.min_by(|a, b| a.1.total_cmp(&b.1)) else { return false };
        let most = most.max(0.0);
        let pivot: Vec<f64> = self.inverse[leaving].iter().map(|part| part / along[leaving]).collect();
        for row in (0..rows).filter(|row| *row != leaving) {
            self.inverse[row].iter_mut().zip(&pivot).for_each(|(part, pivot)| *part -= along[row] * pivot);
            self.amount[row] = (self.amount[row] - along[row] * most).max(0.0);
        }
        self.inverse[leaving] = pivot;
        self.amount[leaving] = most;
        self.basis[leaving] = entering;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(pods: &[usize], cost: f64) -> Column {
        Column { pods: pods.to_vec(), cost }
    }

    #[test]
    fn the_cheapest_mixture_of_patterns_covers_all_pods() {
        // A machine takes three small pods, or one large pod, or one of each.
        let mut simplex = Simplex::new(vec![6.0, 4.0], vec![column(&[3, 0], 3.0), column(&[0, 1], 3.0)], vec![]);
        assert_eq!(simplex.solve(), [1.0, 3.0]);
        simplex.add(column(&[1, 1], 3.0));
        assert_eq!(simplex.solve(), [1.0, 2.0]);
        let mut used: Vec<(Vec<usize>, u32)> = simplex.used().iter().map(|(pods, times)| (pods.to_vec(), *times as u32)).collect();
        used.sort();
        assert_eq!(used, [(vec![1, 1], 4), (vec![3, 0], 0)], "two thirds of a machine are left for small pods");
    }

    #[test]
    fn places_that_nobody_needs_are_allowed() {
        // One kind of machine alone is so cheap that all pods go there, although it has more places than there are large pods.
        let mut simplex = Simplex::new(vec![6.0, 1.0], vec![column(&[1, 0], 3.0), column(&[0, 1], 3.0)], vec![column(&[1, 1], 1.0)]);
        assert_eq!(simplex.solve(), [1.0, 0.0]);
        let used: Vec<(&[usize], f64)> = simplex.used();
        assert!(used.len() == 1 && (used[0].1 - 6.0).abs() < 1e-3, "{used:?}");
    }
}
