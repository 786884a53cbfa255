//! Messages between functions. They only trigger a run; the receiver decides by the stored state alone.

use crate::function::Function;
use serde::{Deserialize, Serialize};
use std::hash::Hasher;
use whittle_units::{ClaimName, ClusterName, Fnv1a, SignedDuration, Timestamp};

/// Delay of the planning queue: it batches for a second, so that the pods of one burst are one plan.
pub const PLAN_DELAY: SignedDuration = SignedDuration::from_secs(1);
/// The longest that a plan waits for more pods of a burst.
pub const PLAN_DELAY_MAX: SignedDuration = SignedDuration::from_secs(10);
/// Delay of the queue of `consolidate`: the interval of its passes for a cluster with machines.
pub const CONSOLIDATE_DELAY: SignedDuration = SignedDuration::from_secs(10);
/// Longest time within which doorbells of one queue and cluster are deduplicated: a burst of pods is a burst of doorbells.
const DEDUPLICATION_WINDOW_MAX: SignedDuration = SignedDuration::from_secs(1);
/// A doorbell that is due this soon after its queue's own delay is sent anyway: too early costs one run, waiting for the tick up
/// to a minute.
const EARLY_MAX: SignedDuration = SignedDuration::from_secs(3);

/// Claims that a message names: a name has up to 253 characters, and a queue takes messages of 256 KiB unless it is told otherwise.
const CLAIMS_NAMED_MAX: usize = 1000;

/// How a delayed doorbell is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// Each message of a standard queue has its own delay.
    Delayed(SignedDuration),
    /// A FIFO queue delays all its messages equally.
    InTurn,
    /// It would arrive far too early, find nothing due and be sent again repeatedly: the tick sends it.
    SkipUntilTick,
}

/// A message that makes a function run for a cluster. It says that something may have changed, and carries no decision: whoever
/// receives it reads the state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "bell", rename_all = "camelCase")]
pub enum Doorbell {
    /// Pods may be pending.
    Schedule { cluster: ClusterName },
    /// Nodes may be disrupted.
    Consolidate { cluster: ClusterName },
    /// These claims may need a machine; all that are due if none is named.
    Launch { cluster: ClusterName, claims: Vec<ClaimName> },
    /// Nodes may have joined or changed.
    Register {
        cluster: ClusterName,
        /// Nothing is known to have happened: the next tick rings for the same.
        #[serde(default, rename = "isTick", skip_serializing_if = "std::ops::Not::not")]
        is_tick: bool,
    },
    /// This claim may have to be terminated, or its termination may continue.
    Terminate { cluster: ClusterName, claim: ClaimName },
    /// Node classes, types or prices may have changed.
    Refresh { cluster: ClusterName },
    /// Nodes or NodeClaims may have been deleted.
    Deletions { cluster: ClusterName },
    /// Compare everything with everything.
    Sweep {
        cluster: ClusterName,
        /// Nothing is known to have happened: the run may decide by lists that were kept from an earlier one.
        #[serde(default, rename = "isTick", skip_serializing_if = "std::ops::Not::not")]
        is_tick: bool,
    },
}

impl Doorbell {
    /// The doorbell of a sender that knows of a change, as opposed to a tick.
    #[must_use]
    pub const fn sweep(cluster: ClusterName) -> Self {
        Self::Sweep { cluster, is_tick: false }
    }
    /// The doorbell of a sender that knows of a change, as opposed to a tick.
    #[must_use]
    pub const fn register(cluster: ClusterName) -> Self {
        Self::Register { cluster, is_tick: false }
    }
    /// Whether a tick sent it, which sends the same again each minute.
    pub const fn is_tick(&self) -> bool {
        matches!(self, Self::Register { is_tick: true, .. } | Self::Sweep { is_tick: true, .. })
    }
    /// The function that it triggers.
    pub const fn function(&self) -> Function {
        match self {
            Self::Schedule { .. } => Function::Schedule,
            Self::Consolidate { .. } => Function::Consolidate,
            Self::Launch { .. } => Function::Launch,
            Self::Register { .. } | Self::Deletions { .. } => Function::Register,
            Self::Terminate { .. } => Function::Terminate,
            Self::Refresh { .. } => Function::Refresh,
            Self::Sweep { .. } => Function::Sweep,
        }
    }
    /// Its cluster: the message group of a FIFO queue, and the tenant of a standard one.
    pub const fn cluster(&self) -> &ClusterName {
        match self {
            Self::Schedule { cluster }
            | Self::Consolidate { cluster }
            | Self::Launch { cluster, .. }
            | Self::Register { cluster, .. }
            | Self::Terminate { cluster, .. }
            | Self::Refresh { cluster }
            | Self::Deletions { cluster }
            | Self::Sweep { cluster, .. } => cluster,
        }
    }
    /// The delay of its FIFO queue, unless the deployment sets another; `None` for a standard queue.
    pub const fn queue_delay(&self) -> Option<SignedDuration> {
        match self {
            Self::Schedule { .. } => Some(PLAN_DELAY),
            Self::Consolidate { .. } => Some(CONSOLIDATE_DELAY),
            _ => None,
        }
    }
    /// The deduplication id of this doorbell, sent at `now` to a FIFO queue with `queue_delay`: the queue drops messages with a
    /// repeated id. `unique` returns a unique name.
    ///
    /// A doorbell must not be dropped if it was sent after the run that the first one started. So doorbells with one id are sent
    /// within three quarters of the queue's delay, and the rest is the tolerance for clock skew of two senders. A queue without a delay
    /// delivers at once: there every doorbell is a separate message.
    #[must_use]
    pub fn deduplication_id(&self, queue_delay: SignedDuration, now: Timestamp, unique: impl FnOnce() -> String) -> String {
        let kind = match self {
            Self::Schedule { .. } => "schedule",
            Self::Consolidate { .. } => "consolidate",
            _ => "other",
        };
        let window = DEDUPLICATION_WINDOW_MAX.min(queue_delay * 3 / 4).as_millis();
        if window <= 0 {
            return format!("{kind}-{}", unique());
        }
        // Without the cluster a queue whose ids are not scoped by group would drop another cluster's doorbell.
        format!("{}-{kind}-{}", self.cluster(), i128::from(now.as_millisecond()).div_euclid(window) * window)
    }
    /// The same for a doorbell that tells of everything up to `seen`, a version of the cluster's objects. Where the queue has no delay, one
    /// that tells of the same is a repetition, also if the first was received already: its run has read that state, or a newer one.
    #[must_use]
    pub fn deduplication_id_of(&self, seen: &str, queue_delay: SignedDuration, now: Timestamp) -> String {
        self.deduplication_id(queue_delay, now, || {
            // Cluster and version together may be longer than an id.
            let mut hash = Fnv1a::default();
            hash.write(self.cluster().as_str().as_bytes());
            hash.write(b"/");
            hash.write(seen.as_bytes());
            format!("seen-{:016x}", hash.finish())
        })
    }
    /// The doorbell that fits into a message: one for very many claims names none, and so rings for all that are due. Several messages
    /// would each have a run that reads all claims to find its own, at the same time, and that sends the names of all that wait again.
    #[must_use]
    pub fn bounded(self) -> Self {
        match self {
            Self::Launch { cluster, claims } if claims.len() > CLAIMS_NAMED_MAX => Self::Launch { cluster, claims: Vec::new() },
            doorbell => doorbell,
        }
    }
    /// How it is sent if it is due in `delay`.
    #[must_use]
    pub fn sending(&self, delay: SignedDuration) -> Sending {
        match self.queue_delay() {
            None => Sending::Delayed(delay),
            Some(own) if delay <= own + EARLY_MAX => Sending::InTurn,
            Some(_) => Sending::SkipUntilTick,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that no other has.
    fn uuid_like() -> String {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string()
    }

    fn id(doorbell: &Doorbell, delay_ms: i64, now_ms: i64) -> String {
        let now = Timestamp::from_millisecond(1_800_000_000_000 + now_ms).expect("in range");
        doorbell.deduplication_id(SignedDuration::from_millis(delay_ms), now, uuid_like)
    }

    /// Whatever the delay: of two doorbells with one id, the second was sent before the first one could be read, also where
    /// the clock of either sender is wrong by an eighth of the delay.
    #[test]
    fn a_doorbell_is_never_deduplicated_against_one_already_received() {
        let doorbell = Doorbell::Schedule { cluster: "demo".into() };
        for delay in [0, 1, 2, 100, 1_000, 2_000, 5_000, 60_000] {
            for first in (0..4_000).step_by(50) {
                for later in (0..4_000).step_by(50).filter(|later| *later >= delay) {
                    for skew in [-delay / 8, 0, delay / 8] {
                        let (left, right) = (id(&doorbell, delay, first + skew), id(&doorbell, delay, first + later - skew));
                        assert_ne!(left, right, "delay {delay}: sent at {first}, and {later} later, clocks off by {skew}");
                    }
                }
            }
        }
    }

    /// A stack is updated function by function.
    #[test]
    fn doorbells_of_the_release_before_can_be_read_and_it_reads_these() {
        let cluster = || ClusterName::from("demo");
        type Rung = fn(ClusterName, bool) -> Doorbell;
        let cases: [(&str, Rung); 2] = [
            ("sweep", |cluster, is_tick| Doorbell::Sweep { cluster, is_tick }),
            ("register", |cluster, is_tick| Doorbell::Register { cluster, is_tick }),
        ];
        for (bell, of) in cases {
            let before = format!(r#"{{"bell":"{bell}","cluster":"demo"}}"#);
            let read: Doorbell = serde_json::from_str(&before).expect("it is a doorbell");
            assert_eq!((&read, read.is_tick()), (&of(cluster(), false), false), "{bell}: it is not left to the next tick");
            assert_eq!(serde_json::to_string(&read).expect("plain data"), before, "{bell}");
            let tick = serde_json::to_string(&of(cluster(), true)).expect("plain data");
            assert_eq!(tick, format!(r#"{{"bell":"{bell}","cluster":"demo","isTick":true}}"#), "of an unknown field");
            assert!(serde_json::from_str::<Doorbell>(&tick).is_ok_and(|read| read.is_tick()), "{bell}");
        }
        assert!(!Doorbell::Schedule { cluster: cluster() }.is_tick(), "a cluster has one in flight");
        let deletions = Doorbell::Deletions { cluster: cluster() };
        let body = serde_json::to_string(&deletions).expect("plain data");
        assert_eq!(body, r#"{"bell":"deletions","cluster":"demo"}"#);
        assert_eq!((deletions.function(), deletions.is_tick(), deletions.queue_delay()), (Function::Register, false, None));
    }

    #[test]
    fn a_burst_of_doorbells_becomes_few_messages() {
        let doorbell = Doorbell::Schedule { cluster: "demo".into() };
        for (delay, expected) in [(1_000, 3), (2_000, 2), (60_000, 2)] {
            let ids: std::collections::BTreeSet<String> = (0..2_000).map(|at| id(&doorbell, delay, at)).collect();
            assert_eq!(ids.len(), expected, "two seconds of doorbells on a queue with a delay of {delay} ms");
        }
        // A storm of ten thousand Events, whenever it begins.
        for begun in (0..1_000).step_by(10) {
            let ids: std::collections::BTreeSet<String> = (begun..begun + 10_000).map(|at| id(&doorbell, 1_000, at)).collect();
            assert!(ids.len() <= 15, "{} messages in ten seconds", ids.len());
        }
        let consolidate = Doorbell::Consolidate { cluster: "demo".into() };
        assert_ne!(id(&doorbell, 10_000, 0), id(&consolidate, 10_000, 0));
    }

    #[test]
    fn without_a_delay_doorbells_that_tell_of_the_same_are_one() {
        let now = |ms: i64| Timestamp::from_millisecond(1_800_000_000_000 + ms).expect("in range");
        let id = |cluster: &str, seen: &str, delay, ms| {
            Doorbell::Schedule { cluster: cluster.into() }.deduplication_id_of(seen, SignedDuration::from_secs(delay), now(ms))
        };
        assert_eq!(id("demo", "17", 0, 0), id("demo", "17", 0, 90_000), "whenever it is sent");
        assert_ne!(id("demo", "17", 0, 0), id("demo", "18", 0, 0));
        assert_ne!(id("demo", "17", 0, 0), id("other", "17", 0, 0));
        assert_ne!(id("demo1", "7", 0, 0), id("demo", "17", 0, 0));
        assert_eq!(id("demo", "17", 1, 0), id("demo", "18", 1, 400), "with a delay the moment decides");
        assert_ne!(id("demo", "17", 1, 0), id("demo", "17", 1, 750));
        assert!(id(&"c".repeat(100), &"9".repeat(32), 0, 0).len() <= 128);
    }

    /// SQS limits ids to 128 characters of a fixed set.
    #[test]
    fn a_deduplication_id_is_valid_in_sqs() {
        let doorbell = Doorbell::Consolidate { cluster: "c".repeat(100).as_str().into() };
        let now = Timestamp::from_millisecond(1_800_000_000_000).expect("in range");
        assert!(doorbell.deduplication_id(SignedDuration::ZERO, now, || "u".repeat(32)).len() <= 128);
        assert!(doorbell.deduplication_id(CONSOLIDATE_DELAY, now, String::new).len() <= 128);
    }
}
