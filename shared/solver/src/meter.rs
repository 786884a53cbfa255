//! How much work a solve has done, in units that take about the same time whatever the input: a budget must neither stop a
//! quick solve nor let a slow one run on.
//!
//! Only the expensive steps are counted, each with a weight in ticks of about ten nanoseconds on one core, as measured by
//! `examples/scheduling.rs` on very different inputs. The speed of the machine does not matter.

use std::cell::Cell;

/// Ticks per unit of work, which takes about a microsecond of one core.
pub(crate) const UNIT: u64 = 100;

/// Checking an existing machine, up to its free resources.
pub(crate) const MACHINE: usize = 2;
/// The rest of that check, if the resources suffice.
pub(crate) const MACHINE_CLOSER: usize = 20;
/// Checking a new or open claim, up to the types with enough room.
pub(crate) const CLAIM: usize = 40;
/// Checking only the headroom of an open claim.
pub(crate) const QUICK_CHECK: usize = 3;
/// One group of types with the same daemons.
pub(crate) const DAEMONS: usize = 6;
/// One topology group that is checked, without its domains.
pub(crate) const GROUP: usize = 4;
/// Narrowing a requirement set to domains, and looking up its types.
pub(crate) const NARROW: usize = 25;
/// Taking a pod from the queue and placing it.
pub(crate) const POD: usize = 20;
/// Counting a placed pod in a group, and each alternative of the group's node filter.
pub(crate) const COUNT: usize = 3;
pub(crate) const FILTER: usize = 20;
/// Matching a selector against a label set, and checking a group in which a machine's pods may count.
pub(crate) const SELECT: usize = 5;
/// Words of bits per tick.
pub(crate) const WORDS: usize = 10;
/// Entries of tables of types per tick.
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

    /// Units since the given number of ticks, rounded up.
    pub(crate) fn since(&self, ticks: u64) -> u64 {
        self.0.get().saturating_sub(ticks).div_ceil(UNIT)
    }
}
