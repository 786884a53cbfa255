//! Pods of few sizes: how many of each size every machine takes, at the least cost.

/// More steps than this are left to the search: some milliseconds.
const STEPS_MAX: u64 = 2_000_000;

/// Which machines take which pods.
#[derive(Debug)]
pub(crate) struct Division {
    /// By machine: how many pods of each size it takes.
    pub(crate) shares: Vec<Vec<usize>>,
    /// How often two divisions were compared.
    pub(crate) steps: u64,
}

/// What one machine may take.
struct Share {
    pods: Vec<usize>,
    cost: u64,
    /// By how much the number of a remainder grows with it.
    at: usize,
}

/// The least that some pods cost on their machines.
#[derive(Clone, Copy)]
struct Least {
    cost: u64,
    machines: u32,
    /// What the last machine takes, by its position in the list of shares.
    last: usize,
}

/// The cheapest division of `counts` pods of each size among machines; of equally cheap ones, that with the fewest machines. `cost` is the
/// price of a machine for given counts, and `None` if no machine is large enough: then none is for larger counts either. Returns `None`
/// if some pods fit nowhere, or if the search would take too long.
pub(crate) fn division(counts: &[usize], cost: impl Fn(&[usize]) -> Option<u64>) -> Option<Division> {
    let states = counts.iter().try_fold(1_u64, |all, count| all.checked_mul((*count as u64).checked_add(1)?));
    let states = states.filter(|states| *states <= STEPS_MAX)?;
    let shares = shares(counts, usize::try_from(STEPS_MAX / states).unwrap_or(usize::MAX), &cost)?;
    let none = Least { cost: 0, machines: 0, last: 0 };
    let mut least = vec![none];
    let (mut left, mut steps) = (vec![0; counts.len()], 0_u64);
    while count_up(&mut left, counts, 0).is_some() {
        let all = least.len();
        // The machine of one of the first pods may as well be the last.
        let first = left.iter().position(|count| *count > 0)?;
        let fits = |share: &Share| share.pods[first] > 0 && share.pods.iter().zip(&left).all(|(pods, left)| pods <= left);
        let with = |(last, share): (usize, &Share)| {
            let rest = least[all - share.at];
            Least { cost: rest.cost.saturating_add(share.cost), machines: rest.machines + 1, last }
        };
        steps += shares.len() as u64;
        let fitting = shares.iter().enumerate().filter(|(_, share)| fits(share)).map(with);
        least.push(fitting.min_by_key(|least| (least.cost, least.machines))?);
    }
    let mut out = Vec::new();
    let mut at = least.len() - 1;
    while at > 0 {
        let share = &shares[least[at].last];
        out.push(share.pods.clone());
        at -= share.at;
    }
    out.sort_unstable_by(|a, b| b.cmp(a));
    Some(Division { shares: out, steps })
}

/// What one machine may take, the most first; `None` if there are more possibilities than `most`.
fn shares(counts: &[usize], most: usize, cost: impl Fn(&[usize]) -> Option<u64>) -> Option<Vec<Share>> {
    let strides: Vec<usize> = counts
        .iter()
        .scan(1, |next, count| {
            let stride = *next;
            *next *= count + 1;
            Some(stride)
        })
        .collect();
    let mut out = Vec::new();
    let (mut pods, mut from) = (vec![0; counts.len()], 0);
    while let Some(size) = count_up(&mut pods, counts, from) {
        from = 0;
        match cost(&pods) {
            Some(_) if out.len() == most => return None,
            Some(cost) => {
                out.push(Share { at: pods.iter().zip(&strides).map(|(pods, stride)| pods * stride).sum(), pods: pods.clone(), cost })
            }
            // Nor with more of this size.
            None => from = size + 1,
        }
    }
    out.reverse();
    Some(out)
}

/// The next numbers that are at most `counts`, where those before `from` do not grow; returns which of them did.
fn count_up(numbers: &mut [usize], counts: &[usize], from: usize) -> Option<usize> {
    let grows = (from..counts.len()).find(|at| numbers[*at] < counts[*at])?;
    numbers[..grows].fill(0);
    numbers[grows] += 1;
    Some(grows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of_one_size(pods: usize, cost: impl Fn(usize) -> Option<u64>) -> Option<Vec<usize>> {
        Some(division(&[pods], |pods| cost(pods[0]))?.shares.concat())
    }

    #[test]
    fn the_last_few_pods_get_a_small_machine() {
        // 2, 4, 8 and 17 pods fit on machines of 2, 4, 8 and 16 cores.
        let cost =
            |pods: usize| [(2, 96), (4, 192), (8, 384), (17, 768)].into_iter().find(|(room, _)| pods <= *room).map(|(_, cost)| cost + 52);
        assert_eq!(of_one_size(26, cost), Some(vec![17, 8, 1]));
        assert_eq!(of_one_size(0, cost), Some(vec![]));
        assert_eq!(of_one_size(3, |_| None), None);
    }

    #[test]
    fn what_takes_too_long_is_left_to_the_search() {
        let cost = |pods: &[usize]| (pods.iter().sum::<usize>() <= 60).then_some(1);
        assert!(division(&[2_000], cost).is_some_and(|all| all.shares.len() == 34 && all.steps <= STEPS_MAX));
        assert!(division(&[200, 200], cost).is_none());
        assert!(division(&[usize::MAX, 3], cost).is_none() && division(&[9; 40], cost).is_none());
    }

    /// The least that pods of two or three sizes cost, of all ways to divide them.
    fn cheapest(left: &[usize], cost: &dyn Fn(&[usize]) -> Option<u64>) -> Option<u64> {
        if left.iter().all(|count| *count == 0) {
            return Some(0);
        }
        let (mut share, mut best) = (vec![0; left.len()], None);
        while count_up(&mut share, left, 0).is_some() {
            let rest: Vec<usize> = left.iter().zip(&share).map(|(left, pods)| left - pods).collect();
            let all = cost(&share).and_then(|here| Some(here + cheapest(&rest, cost)?));
            best = [best, all].into_iter().flatten().min();
        }
        best
    }

    proptest! {
        #[test]
        fn no_other_division_costs_less(
            counts in prop::collection::vec(0_usize..4, 1..4),
            sizes in prop::collection::vec((1_u64..6, 1_u64..6), 3),
            types in prop::collection::vec((3_u64..15, 3_u64..15, 1_u64..50), 1..4),
        ) {
            let cost = |pods: &[usize]| {
                let need = |of: fn(&(u64, u64)) -> u64| pods.iter().zip(&sizes).map(|(pods, size)| *pods as u64 * of(size)).sum::<u64>();
                let (cores, memory) = (need(|size| size.0), need(|size| size.1));
                types.iter().filter(|(c, m, _)| cores <= *c && memory <= *m).map(|(.., price)| *price).min()
            };
            let found = division(&counts, cost);
            let costs = found.as_ref().map(|all| all.shares.iter().filter_map(|share| cost(share)).sum::<u64>());
            prop_assert_eq!(costs, cheapest(&counts, &cost));
            if let Some(all) = found {
                for (size, count) in counts.iter().enumerate() {
                    prop_assert_eq!(all.shares.iter().map(|share| share[size]).sum::<usize>(), *count);
                }
            }
        }
    }
}
