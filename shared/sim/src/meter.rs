//! What a stretch of a simulation would be billed for: units of the table, requests of the queues, invocations.
//!
//! Units follow DynamoDB's rules for on-demand tables. A strongly consistent read takes a unit for each 4 KiB of an item that begins, a
//! query for each 4 KiB of its items together; a write takes one for each KiB that begins, also in a batch, and two in a transaction. An
//! item's size is that of the names and values of its attributes. Messages that a queue holds at one time, or within its batching window,
//! are an invocation.

use crate::{Function, TaskId};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use whittle_claims::{AtRest, Claim, ClaimKey, Revision};

/// Bytes of a unit of reading.
const READ: u64 = 4096;
/// Bytes of a unit of writing.
const WRITE: u64 = 1024;
/// Partitions of a cluster's claims; names are distributed over them evenly.
const SHARDS: u64 = 8;
/// The length of the id of a write.
const WRITE_ID: u64 = 36;
/// The most that DynamoDB takes for a number of our sizes: a byte for two digits, and one.
const NUMBER: u64 = 6;
/// Messages of a batch, of the functions that get more than one.
const BATCH_MAX: u64 = 10;
/// How long a tick waits for the queues that it sends to.
const TICK_WAIT: SignedDuration = SignedDuration::from_millis(11);
/// How long it waits for an answer of the table.
const TABLE_WAIT: SignedDuration = SignedDuration::from_millis(8);

/// Units of one kind of items, by one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units {
    pub reads: u64,
    pub writes: u64,
}

/// What one function did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Invoked {
    /// Invocations, ticks included.
    pub invocations: u64,
    /// Invocations by a schedule, which send a doorbell for each cluster, or do the work of the only one.
    pub ticks: u64,
    /// Messages and requests that were worked on.
    pub runs: u64,
    /// How long invocations waited for services: the longest run of each.
    pub waited: SignedDuration,
    /// Processor time of the runs in this process, with the simulated services.
    pub processor: Duration,
    /// Messages that were sent to its queue.
    pub messages: u64,
    /// Batches that were received from its queue.
    pub batches: u64,
}

/// A run that has not ended.
#[derive(Clone, Copy, Debug)]
struct Open {
    function: Function,
    invocation: usize,
    since: Timestamp,
}

/// An invocation to which runs may still belong.
#[derive(Clone, Copy, Debug)]
struct Latest {
    invocation: usize,
    since: Timestamp,
    messages: u64,
}

/// Counts what is billed.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    functions: BTreeMap<Function, Invoked>,
    table: BTreeMap<(Function, &'static str), Units>,
    sizes: BTreeMap<ClaimKey, (Revision, u64)>,
    open: BTreeMap<TaskId, Open>,
    latest: BTreeMap<Function, Latest>,
    /// The catalog that each function has read: a warm environment does not read its parts again.
    catalogs: BTreeMap<Function, Revision>,
    /// The longest run of each invocation.
    longest: Vec<SignedDuration>,
}

impl Meter {
    /// What each function did.
    pub fn functions(&self) -> &BTreeMap<Function, Invoked> {
        &self.functions
    }

    /// Units by function and kind of item.
    pub fn table(&self) -> &BTreeMap<(Function, &'static str), Units> {
        &self.table
    }

    fn function(&mut self, function: Function) -> &mut Invoked {
        self.functions.entry(function).or_default()
    }

    /// One item is read, or looked for.
    pub(crate) fn get(&mut self, by: Option<Function>, kind: &'static str, bytes: u64) {
        self.reads(by, kind, bytes.div_ceil(READ).max(1));
    }

    /// All items of a partition are read.
    pub(crate) fn query(&mut self, by: Option<Function>, kind: &'static str, bytes: u64) {
        self.get(by, kind, bytes);
    }

    /// The items of all partitions of a cluster's claims are read.
    pub(crate) fn query_claims<'a>(&mut self, by: Option<Function>, claims: impl Iterator<Item = (&'a Claim, Revision)>) {
        let bytes: u64 = claims.map(|(claim, revision)| self.claim(claim, revision)).sum();
        self.reads(by, "claim", SHARDS * bytes.div_ceil(SHARDS * READ).max(1));
    }

    /// Whether the function has not read this catalog yet.
    pub(crate) fn is_new_catalog(&mut self, function: Function, revision: Revision) -> bool {
        self.catalogs.insert(function, revision) != Some(revision)
    }

    fn reads(&mut self, by: Option<Function>, kind: &'static str, units: u64) {
        if let Some(function) = by {
            self.table.entry((function, kind)).or_default().reads += units;
        }
    }

    /// One item is written or deleted, or a condition refuses that.
    pub(crate) fn put(&mut self, by: Option<Function>, kind: &'static str, bytes: u64) {
        if let Some(function) = by {
            self.table.entry((function, kind)).or_default().writes += bytes.div_ceil(WRITE).max(1);
        }
    }

    /// One item is written, or its condition checked, in a transaction.
    pub(crate) fn transact(&mut self, by: Option<Function>, kind: &'static str, bytes: u64) {
        self.put(by, kind, bytes);
        self.put(by, kind, bytes);
    }

    /// The size of a claim's item; the sizes of those that have not changed are kept.
    pub(crate) fn claim(&mut self, claim: &Claim, revision: Revision) -> u64 {
        if let Some((_, size)) = self.sizes.get(&claim.key).filter(|(known, _)| *known == revision) {
            return *size;
        }
        let (cluster, name) = (claim.key.cluster.as_str().len(), claim.key.name.as_str().len());
        let instance = claim.instance().map_or(0, |id| "instance".len() + id.as_str().len());
        let size = value_size("CLAIM##0".len() + cluster, name, at_rest_size(claim), claim.deletable_at().is_some()) + wide(instance);
        self.sizes.insert(claim.key.clone(), (revision, size));
        size
    }

    /// A message is sent to a function's queue.
    pub(crate) fn sent(&mut self, function: Function) {
        self.function(function).messages += 1;
    }

    /// A schedule invokes a function, which sends a doorbell.
    pub(crate) fn ticked(&mut self, function: Function) {
        let invoked = self.function(function);
        invoked.ticks += 1;
        invoked.invocations += 1;
        invoked.waited += TICK_WAIT;
    }

    /// A schedule invokes a function, which does its work.
    pub(crate) fn ticked_to_work(&mut self, task: TaskId, function: Function, now: Timestamp) {
        let invocation = self.longest.len();
        self.longest.push(SignedDuration::ZERO);
        self.open.insert(task, Open { function, invocation, since: now });
        let invoked = self.function(function);
        invoked.ticks += 1;
        invoked.invocations += 1;
        invoked.runs += 1;
    }

    /// A tick asks whether a cluster has claims: one partition, and all others at once if that has none.
    pub(crate) fn asked_for_claims(&mut self, by: Function, is_found_at_once: bool) {
        let (answers, partitions) = if is_found_at_once { (1, 1) } else { (2, SHARDS) };
        self.reads(Some(by), "claim", partitions);
        self.function(by).waited += TABLE_WAIT * answers;
    }

    /// The relay is invoked for an Event that the simulator turns into a doorbell itself.
    pub(crate) fn relayed(&mut self) {
        let invoked = self.function(Function::Relay);
        invoked.invocations += 1;
        invoked.runs += 1;
        invoked.waited += TICK_WAIT;
    }

    /// A run begins.
    pub(crate) fn began(&mut self, task: TaskId, function: Function, now: Timestamp) {
        let joins = |latest: &&Latest| latest.messages < BATCH_MAX && now.duration_since(latest.since) <= window(function);
        let joined = self.latest.get(&function).filter(joins).filter(|_| gathers(function)).copied();
        let latest = joined.map_or_else(
            || Latest { invocation: self.longest.len(), since: now, messages: 1 },
            |known| Latest { messages: known.messages + 1, ..known },
        );
        if joined.is_none() {
            self.longest.push(SignedDuration::ZERO);
        }
        self.latest.insert(function, latest);
        self.open.insert(task, Open { function, invocation: latest.invocation, since: now });
        let invoked = self.function(function);
        invoked.runs += 1;
        if joined.is_none() {
            invoked.invocations += 1;
            invoked.batches += u64::from(function.has_queue());
        }
    }

    /// A run has used the processor.
    pub(crate) fn worked(&mut self, task: TaskId, time: Duration) {
        if let Some(function) = self.open.get(&task).map(|open| open.function) {
            self.function(function).processor += time;
        }
    }

    /// A run ends.
    pub(crate) fn ended(&mut self, task: TaskId, now: Timestamp) {
        let Some(open) = self.open.remove(&task) else { return };
        let took = now.duration_since(open.since);
        let Some(longest) = self.longest.get_mut(open.invocation) else { return };
        let more = (took - *longest).max(SignedDuration::ZERO);
        *longest += more;
        self.function(open.function).waited += more;
    }
}

/// Whether an invocation of the function takes several messages, as in the template.
const fn gathers(function: Function) -> bool {
    function.has_queue() && !matches!(function, Function::Consolidate | Function::Refresh | Function::Sweep)
}

/// How long messages gather for an invocation, as in the template.
const fn window(function: Function) -> SignedDuration {
    match function {
        Function::Launch | Function::Register => SignedDuration::from_secs(1),
        _ => SignedDuration::ZERO,
    }
}

fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// The size of an item with a value of `json` bytes, its key's parts being `pk` and `sk` long.
pub(crate) fn value_size(pk: usize, sk: usize, json: u64, expires: bool) -> u64 {
    let names = "pk".len() + "sk".len() + "v".len() + "data".len() + "rev".len() + "w".len();
    let ttl = if expires { wide("ttl".len()) + NUMBER } else { 0 };
    wide(names + pk + sk) + 2 * NUMBER + json + WRITE_ID + ttl
}

/// The size of an instance pointer.
pub(crate) fn pointer_size(claim: &Claim) -> u64 {
    wide("pk".len() + "INSTANCE#i-0123456789abcdef0".len() + "sk".len() + "CLAIM".len() + "cluster".len() + "name".len())
        + wide(claim.key.cluster.as_str().len() + claim.key.name.as_str().len())
}

/// The length of a value as JSON.
pub(crate) fn json_size(value: &impl Serialize) -> u64 {
    let mut counted = Counted(0);
    // Counting never fails, and what is stored can be written as JSON.
    let _ = serde_json::to_writer(&mut counted, value);
    counted.0
}

/// Bytes of the JSON of a claim or a record at rest.
pub(crate) fn at_rest_size(value: &impl Serialize) -> u64 {
    serde_json::to_string(value).map_or(0, |json| wide(AtRest::of(json).size()))
}

/// Counts what is written to it.
struct Counted(u64);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += wide(bytes.len());
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(meter: &Meter) -> (u64, u64) {
        meter.table().values().fold((0, 0), |(reads, writes), units| (reads + units.reads, writes + units.writes))
    }

    #[test]
    fn units_are_those_of_dynamodb() {
        let mut meter = Meter::default();
        let by = Some(Function::Sweep);
        for (bytes, reads) in [(0, 1), (1, 1), (4096, 1), (4097, 2), (40_960, 10)] {
            let before = units(&meter).0;
            meter.get(by, "x", bytes);
            assert_eq!(units(&meter).0 - before, reads, "{bytes}");
        }
        for (bytes, writes) in [(0, 1), (1024, 1), (1025, 2)] {
            let before = units(&meter).1;
            meter.put(by, "x", bytes);
            meter.transact(by, "x", bytes);
            assert_eq!(units(&meter).1 - before, 3 * writes, "{bytes}");
        }
        meter.query_claims(by, std::iter::empty());
        assert_eq!(meter.table()[&(Function::Sweep, "claim")], Units { reads: 8, writes: 0 }, "an empty partition is a request as well");
        let before = units(&meter);
        meter.get(None, "x", 10);
        assert_eq!(units(&meter), before, "who looks at the world from outside is not billed");
    }

    #[test]
    fn messages_of_a_window_are_an_invocation_that_lasts_as_long_as_its_longest_run() {
        let mut meter = Meter::default();
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        for (task, begins, ends) in [(1, 0, 300), (2, 900, 1_000), (3, 1_001, 1_101)] {
            meter.began(TaskId(task), Function::Launch, at(begins));
            meter.ended(TaskId(task), at(ends));
        }
        let launch = meter.functions()[&Function::Launch];
        assert_eq!((launch.runs, launch.invocations, launch.batches), (3, 2, 2));
        assert_eq!(launch.waited, SignedDuration::from_millis(400));
        for task in 4..16 {
            meter.began(TaskId(task), Function::Terminate, at(2_000));
            meter.began(TaskId(task + 100), Function::Consolidate, at(2_000));
        }
        assert_eq!(meter.functions()[&Function::Terminate].invocations, 2, "ten messages at most");
        assert_eq!(meter.functions()[&Function::Consolidate].invocations, 12, "one message at a time");
        meter.ticked(Function::Sweep);
        let sweep = meter.functions()[&Function::Sweep];
        assert_eq!((sweep.ticks, sweep.invocations, sweep.runs, sweep.batches), (1, 1, 0, 0));
        meter.ticked_to_work(TaskId(900), Function::Schedule, at(60_000));
        meter.ended(TaskId(900), at(60_050));
        let schedule = meter.functions()[&Function::Schedule];
        assert_eq!((schedule.ticks, schedule.invocations, schedule.runs), (1, 1, 1), "the run is the invocation");
        assert_eq!((schedule.messages, schedule.batches, schedule.waited), (0, 0, SignedDuration::from_millis(50)));
        meter.asked_for_claims(Function::Sweep, false);
        meter.asked_for_claims(Function::Sweep, true);
        assert_eq!(meter.table()[&(Function::Sweep, "claim")], Units { reads: 8 + 1, writes: 0 });
        assert_eq!(meter.functions()[&Function::Sweep].waited - sweep.waited, SignedDuration::from_millis(24));
    }
}
