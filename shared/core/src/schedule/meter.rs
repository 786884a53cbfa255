//! How much work a solve has done, in units that take about equally long whatever the input: a budget must neither cut off
//! what would be quick nor let run away what is slow.
//!
//! Counted are the steps that take the time, each with a weight in ticks of about ten nanoseconds on one core, as
//! `examples/scheduling.rs` measures them on very different inputs. The machine's speed has no part in it.

use std::cell::Cell;

/// Ticks in one unit of work, which takes about a microsecond of one core.
pub(crate) const UNIT: u64 = 100;

/// A look at a machine that exists, up to the room that it has.
pub(crate) const MACHINE: usize = 2;
/// The rest of that look, for those that have the room.
pub(crate) const MACHINE_CLOSER: usize = 20;
/// A look at a machine to be asked for, up to the types that have the room.
pub(crate) const CLAIM: usize = 40;
/// A glance at an open machine's room alone.
pub(crate) const QUICK_CHECK: usize = 3;
/// One group of types with the same daemons.
pub(crate) const DAEMONS: usize = 6;
/// One topology group that is asked, without its domains.
pub(crate) const GROUP: usize = 4;
/// A set of requirements narrowed to domains, and its types looked up.
pub(crate) const NARROW: usize = 25;
/// A pod that is taken from the queue, and put somewhere.
pub(crate) const POD: usize = 20;
/// A group in which a placed pod is counted, and each alternative of its node filter.
pub(crate) const COUNT: usize = 3;
pub(crate) const FILTER: usize = 20;
/// A selector that is asked about a set of labels, and a group in which a machine's pods may count.
pub(crate) const SELECT: usize = 5;
/// So many words of bits take one tick.
pub(crate) const WORDS: usize = 10;
/// So many entries of tables of types take one tick.
pub(crate) const ENTRIES: usize = 4;

/// Counts ticks.
#[derive(Debug, Default)]
pub(crate) struct Meter(Cell<u64>);

impl Meter {
    pub(crate) fn spend(&self, ticks: usize) {
        self.0.set(self.0.get().saturating_add(ticks as u64));
    }

    /// Ticks so far.
    pub(crate) fn ticks(&self) -> u64 {
        self.0.get()
    }

    /// Units since there were so many ticks; begun ones count.
    pub(crate) fn since(&self, ticks: u64) -> u64 {
        self.0.get().saturating_sub(ticks).div_ceil(UNIT)
    }
}
