//! Whether anything can be different in the next pass. If not, that pass is left to the tick (ADR 0045).

use crate::state::Disruptions;
use whittle_claims::{Claim, Phase};
use whittle_disruption::{Decision, KeepReason, VerdictReason};
use whittle_model::disruption::{Memory, Method};
use whittle_snapshot::Snapshot;
use whittle_units::{SignedDuration, Timestamp};

/// What is due later than this is seen by a tick that comes before.
const TICK: SignedDuration = SignedDuration::from_mins(1);

/// How much earlier than it is due a doorbell may arrive: clocks differ, and queues count in seconds.
const EARLY_MAX: SignedDuration = SignedDuration::from_secs(3);

/// Whether a pass has left nothing to do before the next tick: there is no command and none was found, every machine serves and stays, no
/// pod is expected on any, no wait ends before the tick, and each method has examined all of its candidates. Pure.
pub(crate) fn is_quiet(snapshot: &Snapshot, before: &Disruptions, after: &Disruptions, decision: &Decision) -> bool {
    let idle = before.is_idle() && after.is_idle() && after.nominated.is_empty() && snapshot.expected.is_empty();
    let found = decision.commands.iter().chain(&decision.shadow).next().is_some();
    let reached = decision.timeouts.is_empty() && after.memory.unreached.is_empty();
    let same = is_same(&before.memory, &after.memory) && !decision.conditions.iter().any(|claim| claim.changed);
    idle && !found && reached && same && !is_due_soon(snapshot, decision) && snapshot.claims.iter().all(|claim| is_at_rest(&claim.value))
}

/// Whether a pass is due so soon that a tick before it would only see the same. Not if it is due at once: then this may be that
/// pass, a little early. Pure.
pub(crate) fn is_look_near(due: Option<Timestamp>, now: Timestamp) -> bool {
    due.map(|due| due.duration_since(now)).is_some_and(|wait| wait > EARLY_MAX && wait <= crate::PASS_INTERVAL)
}

/// Whether two passes remember the same; when they computed it does not matter. Pure.
fn is_same(before: &Memory, after: &Memory) -> bool {
    let fingerprints =
        |memory: &Memory| -> Vec<(Method, u64)> { memory.nothing_found.iter().map(|(method, seen)| (*method, seen.fingerprint)).collect() };
    before.moves == after.moves && fingerprints(before) == fingerprints(after)
}

fn is_at_rest(claim: &Claim) -> bool {
    !claim.is_live() || (claim.deletion.is_none() && matches!(claim.phase, Phase::Initialized { .. }))
}

/// Whether a node has soon been without pod events for its pool's `consolidateAfter`. Pure.
fn is_due_soon(snapshot: &Snapshot, decision: &Decision) -> bool {
    let soon = |at: Timestamp| at > snapshot.now && at.duration_since(snapshot.now) < TICK;
    decision.verdicts.iter().any(|verdict| match verdict.reason {
        VerdictReason::Kept(KeepReason::ConsolidateAfter { until, .. }) => until.is_some_and(soon),
        _ => false,
    })
}
