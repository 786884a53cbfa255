//! How many pods of a group each machine has.

use super::ids::{HostId, Id as _, IdVec};

/// Up to this many machines are kept as a list whatever their numbers.
const FEW: usize = 16;
/// A table is kept while at least one in this many machines has a pod: it then takes no more than a few times the memory of a
/// list.
const SPARSE: usize = 8;

/// Counts by machine. Most groups have pods on a few of many machines, some on nearly all of them.
#[derive(Clone, Debug)]
pub(crate) enum Tally {
    /// Machines with their counts, by number; none of them zero.
    Few(Vec<(HostId, u32)>),
    /// By number; machines beyond the end count zero.
    Many { counts: IdVec<HostId, u32>, populated: usize },
}

impl Default for Tally {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl PartialEq for Tally {
    fn eq(&self, other: &Self) -> bool {
        self.listed() == other.listed()
    }
}

impl Eq for Tally {}

impl Tally {
    pub(crate) fn of(&self, host: HostId) -> u32 {
        match self {
            Self::Few(list) => place(list, host).map_or(0, |at| list[at].1),
            Self::Many { counts, .. } => counts.get(host).copied().unwrap_or(0),
        }
    }

    /// How many machines have a count above zero.
    pub(crate) fn populated(&self) -> usize {
        match self {
            Self::Few(list) => list.len(),
            Self::Many { populated, .. } => *populated,
        }
    }

    /// The pods on all machines.
    pub(crate) fn total(&self) -> u32 {
        match self {
            Self::Few(list) => list.iter().map(|(_, n)| n).sum(),
            Self::Many { counts, .. } => counts.iter().sum(),
        }
    }

    pub(crate) fn add(&mut self, host: HostId, by: u32) {
        if by == 0 {
            return;
        }
        self.suit(host);
        match self {
            Self::Few(list) => match place(list, host) {
                Ok(at) => list[at].1 += by,
                Err(at) => list.insert(at, (host, by)),
            },
            Self::Many { counts, populated } => {
                counts.grow_to(host, 0);
                *populated += usize::from(counts[host] == 0);
                counts[host] += by;
            }
        }
    }

    /// Removes one.
    pub(crate) fn take(&mut self, host: HostId) {
        match self {
            Self::Few(list) => {
                let Ok(at) = place(list, host) else { return };
                list[at].1 -= 1;
                if list[at].1 == 0 {
                    list.remove(at);
                }
            }
            Self::Many { counts, populated } => {
                let Some(count) = counts.get_mut(host).filter(|count| **count > 0) else { return };
                *count -= 1;
                *populated -= usize::from(*count == 0);
            }
        }
    }

    /// Switches between list and table, whichever suits one more machine.
    fn suit(&mut self, host: HostId) {
        match self {
            Self::Few(list) if list.len() >= FEW => {
                let last = list.last().map_or(host, |(last, _)| host.max(*last));
                if list.len() * SPARSE > last.position() {
                    let mut counts = IdVec::new();
                    counts.grow_to(last, 0);
                    list.iter().for_each(|(host, n)| counts[*host] = *n);
                    *self = Self::Many { counts, populated: list.len() };
                }
            }
            // Twice as sparse, so that it does not switch back and forth.
            Self::Many { counts, populated } if host >= counts.next_id() && *populated * SPARSE * 2 < host.position() => {
                *self = Self::Few(self.listed())
            }
            _ => {}
        }
    }

    fn listed(&self) -> Vec<(HostId, u32)> {
        match self {
            Self::Few(list) => list.clone(),
            Self::Many { counts, .. } => counts.enumerate().filter(|(_, n)| **n > 0).map(|(host, n)| (host, *n)).collect(),
        }
    }
}

fn place(list: &[(HostId, u32)], host: HostId) -> Result<usize, usize> {
    // New claims are numbered in order: usually it is the last one, or a new last one.
    match list.last() {
        Some((last, _)) if *last < host => Err(list.len()),
        _ => list.binary_search_by_key(&host, |(at, _)| *at),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::properties::mix::Dice;
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn list_and_table_count_alike_and_neither_grows_with_empty_machines() {
        let mut dice = Dice::new(3);
        for (hosts, steps) in [(20, 400), (400, 3000), (100_000, 300), (3000, 20_000)] {
            let (mut tally, mut known) = (Tally::default(), BTreeMap::<HostId, u32>::new());
            let mut kinds = (0, 0);
            for step in 0..steps {
                // At first among the lower numbers: dense there, sparse later on.
                let host = HostId::at(dice.below((hosts * (step + 1) / steps).max(1)));
                if dice.below(3) == 0 {
                    tally.take(host);
                    if let Some(n) = known.get_mut(&host).filter(|n| **n > 0) {
                        *n -= 1;
                    }
                } else {
                    let by = u32::try_from(dice.below(3)).unwrap();
                    tally.add(host, by);
                    *known.entry(host).or_default() += by;
                }
                known.retain(|_, n| *n > 0);
                assert_eq!(tally.populated(), known.len());
                assert_eq!(tally.total(), known.values().sum::<u32>());
                assert_eq!(tally.of(host), known.get(&host).copied().unwrap_or(0));
                match &tally {
                    Tally::Few(_) => kinds.0 += 1,
                    Tally::Many { counts, .. } => {
                        kinds.1 += 1;
                        assert!(counts.len() <= hosts);
                    }
                }
            }
            let listed: Vec<_> = known.into_iter().collect();
            assert_eq!(tally.listed(), listed);
            assert!(kinds.0 > 0, "{hosts} machines: never a list");
            assert_eq!(kinds.1 == 0, hosts == 100_000, "{hosts} machines: {kinds:?}");
        }
    }
}
