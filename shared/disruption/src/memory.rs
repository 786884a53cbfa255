//! What earlier passes recorded: moves that must not be undone, and searches that found nothing.

use super::candidates::Candidate;
use super::cluster_view::ClusterView;
use super::quick_check::accepts_moved_pods;
use super::verdict::KeepReason;
use super::workload::workload_of;
use jiff::SignedDuration;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use whittle_api::ClusterObjects;
use whittle_api::k8s::Pod;
use whittle_model::disruption::{Command, Memory, Move, PassFingerprint, RemovedNode};
use whittle_model::pods::is_reschedulable;
use whittle_units::{Fnv1a, Timestamp};

/// How long a move must not be undone, and how long moves count against the limit of their workload.
const MOVE_WINDOW: SignedDuration = SignedDuration::from_hours(1);
/// How long moves count against the limit of a pod: an hour, plus the time between a decision and its last eviction.
const REMEMBERED_FOR: SignedDuration = SignedDuration::from_mins(80);
/// Limit of moves within that time, for each pod and on average over the pods of a workload.
const MOVES_MAX: u64 = 2;
/// How long after a pod began to terminate its controller may still create the replacement.
const REPLACEMENT_DELAY_MAX: SignedDuration = SignedDuration::from_secs(30);
/// Limit of workload names over all moves, which name each twice: memory is stored in one item of at most 400 KB.
const NAMES_MAX: usize = 1_000;
/// Limit of the bytes of these names: one may have more than three hundred, and random names do not compress well.
const NAME_BYTES_MAX: usize = 200_000;
/// Kubernetes stores creation timestamps in whole seconds.
const TIMESTAMP_PRECISION: SignedDuration = SignedDuration::from_secs(1);
/// A search that found nothing is repeated after this time even if nothing changed.
const FINGERPRINT_VALID_FOR: SignedDuration = SignedDuration::from_mins(5);

/// Drops moves that are too old to matter, and the oldest beyond the size limit.
pub(super) fn forget_old_moves(memory: &mut Memory, now: Timestamp) {
    memory.moves.retain(|earlier| now.duration_since(earlier.at) < REMEMBERED_FOR);
    if let Some(newest) = memory.moves.last_mut() {
        forget_names(newest);
    }
    let (mut names, mut bytes) = (0, 0);
    let newest = memory.moves.iter().rev().take_while(|earlier| {
        names += earlier.workloads.len();
        bytes += name_bytes(earlier);
        names <= NAMES_MAX && bytes <= NAME_BYTES_MAX
    });
    let kept = newest.count().max(1);
    memory.moves.drain(..memory.moves.len().saturating_sub(kept));
}

/// The bytes of the names in a move, which has each of them twice.
fn name_bytes(one: &Move) -> usize {
    2 * one.workloads.keys().map(String::len).sum::<usize>()
}

/// Drops workloads from a move whose names alone are too long for the record, without which no command could be stored any more: those
/// first whose pods were moved least.
fn forget_names(newest: &mut Move) {
    if name_bytes(newest) <= NAME_BYTES_MAX {
        return;
    }
    let mut names: Vec<String> = newest.workloads.keys().cloned().collect();
    names.sort_by_key(|name| Reverse(newest.move_counts.get(name).copied().unwrap_or(0)));
    let mut bytes = 0;
    let kept = names.into_iter().take_while(|name| {
        bytes += 2 * name.len();
        bytes <= NAME_BYTES_MAX
    });
    let kept: BTreeSet<String> = kept.collect();
    newest.workloads.retain(|name, _| kept.contains(name));
    newest.move_counts.retain(|name, _| kept.contains(name));
}

/// Records which moves have not begun and which are complete because their pods have left. `objects` must be those
/// of the API server. Where pods that are reserved for a machine being launched are left out, pods of a node that
/// is being replaced would seem to have left.
pub fn record_drained(memory: &mut Memory, objects: &ClusterObjects, now: Timestamp) {
    if memory.moves.iter().all(|earlier| earlier.drained_at.is_some()) {
        return;
    }
    let mut pods_by_node: BTreeMap<&str, u32> = BTreeMap::new();
    for pod in objects.pods.iter().filter(|pod| pod.is_bound() && is_reschedulable(pod)) {
        *pods_by_node.entry(&pod.spec.node_name).or_default() += 1;
    }
    for earlier in memory.moves.iter_mut().filter(|earlier| earlier.drained_at.is_none() && !earlier.nodes.is_empty()) {
        let remaining_pods: u32 = earlier.nodes.iter().filter_map(|node| pods_by_node.get(node.as_str())).sum();
        if remaining_pods == 0 {
            earlier.drained_at = Some(now);
        } else if remaining_pods >= earlier.workloads.values().sum() {
            earlier.undrained_at = Some(now);
        }
    }
}

/// Upper bound on how often a pod, or the pods it replaced, were moved within the last hour. Kubernetes does not
/// record which pod replaced which, so any pod of the workload created while nodes were being drained may be a
/// replacement.
fn times_moved(memory: &Memory, pod: &Pod, workload: &str, now: Timestamp) -> u32 {
    let created = pod.metadata.creation_timestamp.unwrap_or(Timestamp::MAX);
    let applies = |earlier: &&Move| {
        let since = earlier.undrained_at.unwrap_or(earlier.at).checked_sub(TIMESTAMP_PRECISION).unwrap_or(Timestamp::MIN);
        since < created
            && earlier.drained_at.is_none_or(|drained_at| {
                created.duration_since(drained_at) < REPLACEMENT_DELAY_MAX && now.duration_since(drained_at) < MOVE_WINDOW
            })
    };
    memory.moves.iter().filter(applies).filter_map(|earlier| earlier.move_counts.get(workload)).copied().max().unwrap_or(0)
}

/// Records a consolidation that is being executed; `launched` are the NodeClaims that replace its nodes.
pub fn record_move(memory: &mut Memory, command: &Command, launched: Vec<String>, objects: &ClusterObjects, now: Timestamp) {
    let moving: BTreeSet<&String> = command.removals.iter().flat_map(|removal| &removal.pods).collect();
    let mut workloads: BTreeMap<String, u32> = BTreeMap::new();
    let mut move_counts: BTreeMap<String, u32> = BTreeMap::new();
    for pod in objects.pods.iter().filter(|pod| moving.contains(&pod.metadata.key())) {
        let workload = workload_of(pod);
        let before = times_moved(memory, pod, &workload, now);
        *workloads.entry(workload.clone()).or_default() += 1;
        let most = move_counts.entry(workload).or_default();
        *most = (*most).max(before.saturating_add(1));
    }
    let removed = command.removals.iter().map(|removal| RemovedNode {
        node_pool: removal.node_pool.clone(),
        instance_type: removal.instance_type.clone(),
        capacity_type: removal.capacity_type.clone(),
        zone: removal.zone.clone(),
        price: removal.price,
    });
    let nodes = command.removals.iter().map(|removal| removal.node.clone()).collect();
    memory.moves.push(Move {
        at: now,
        removed: removed.collect(),
        nodes,
        undrained_at: None,
        drained_at: None,
        launched,
        workloads,
        move_counts,
    });
    forget_old_moves(memory, now);
}

/// Removes the move of the command that began then and was to remove these nodes: it was rolled back, and no pod has moved.
pub fn undo_moves(memory: &mut Memory, began: Timestamp, nodes: &[&str]) {
    memory.moves.retain(|earlier| earlier.at != began || !earlier.nodes.iter().any(|node| nodes.contains(&node.as_str())));
}

/// Takes nodes that are kept after all out of the move of the command that began then, which removes empty nodes. What is left of the move;
/// `None` if it is not remembered any more.
pub fn leave_out<'m>(memory: &'m mut Memory, began: Timestamp, kept: &[&str]) -> Option<&'m Move> {
    let is_kept = |node: &str| kept.contains(&node);
    let earlier = memory.moves.iter_mut().find(|earlier| earlier.at == began && earlier.nodes.iter().any(|node| is_kept(node)))?;
    let each = std::mem::take(&mut earlier.nodes).into_iter().zip(std::mem::take(&mut earlier.removed));
    let (nodes, removed): (Vec<String>, Vec<RemovedNode>) = each.filter(|(node, _)| !is_kept(node)).unzip();
    (earlier.nodes, earlier.removed) = (nodes, removed);
    Some(earlier)
}

/// Whether a method found nothing for the same input a short time ago.
pub(super) fn is_unchanged(seen: Option<&PassFingerprint>, fingerprint: u64, now: Timestamp) -> bool {
    seen.is_some_and(|seen| seen.fingerprint == fingerprint && now.duration_since(seen.at).abs() < FINGERPRINT_VALID_FOR)
}

/// The instance types that some of these nodes replaced recently, and when: they must not be launched again.
pub(super) fn types_replaced_by<'m>(
    memory: &'m Memory,
    nodes: &[&Candidate<'_>],
    now: Timestamp,
) -> Option<(Timestamp, BTreeSet<&'m str>)> {
    let recent = |earlier: &&Move| now.duration_since(earlier.at) < MOVE_WINDOW;
    let launched_one = |earlier: &&Move| nodes.iter().any(|node| earlier.launched.iter().any(|name| name == node.machine.claim_name()));
    let earlier: Vec<&Move> = memory.moves.iter().filter(recent).filter(launched_one).collect();
    let at = earlier.iter().map(|earlier| earlier.at).max()?;
    Some((at, earlier.iter().flat_map(|earlier| &earlier.removed).map(|node| node.instance_type.as_str()).collect()))
}

/// Rejects a command that would move pods of a workload too often.
pub(super) fn check_move_limit(memory: &Memory, view: &ClusterView<'_>, nodes: &[&Candidate<'_>]) -> Result<(), KeepReason> {
    if memory.moves.is_empty() {
        return Ok(());
    }
    for pod in nodes.iter().flat_map(|node| &node.pods) {
        let workload = workload_of(pod);
        if u64::from(times_moved(memory, pod, &workload, view.now())) >= MOVES_MAX {
            return Err(KeepReason::MovedTooOften { workload });
        }
    }
    let mut moved: BTreeMap<String, u64> = BTreeMap::new();
    for earlier in memory.moves.iter().filter(|earlier| view.now().duration_since(earlier.at) < MOVE_WINDOW) {
        for (workload, pods) in &earlier.workloads {
            *moved.entry(workload.clone()).or_default() += u64::from(*pods);
        }
    }
    let moving = count(nodes.iter().flat_map(|node| node.pods.iter().copied()), &moved);
    if moving.is_empty() {
        return Ok(());
    }
    for (workload, now) in &moving {
        let before = moved.get(workload).copied().unwrap_or(0);
        if before + now > MOVES_MAX * view.live_pods(workload) {
            return Err(KeepReason::MovedTooOften { workload: workload.clone() });
        }
    }
    Ok(())
}

/// Counts pods by workload, for the workloads in `known`.
fn count<'p, T>(pods: impl Iterator<Item = &'p Pod>, known: &BTreeMap<String, T>) -> BTreeMap<String, u64> {
    let mut counted = BTreeMap::new();
    for workload in pods.map(workload_of).filter(|workload| known.contains_key(workload)) {
        *counted.entry(workload).or_default() += 1;
    }
    counted
}

/// Changes with everything that can change the result of a consolidation search, except what only the five-minute limit
/// covers.
pub(super) fn fingerprint(view: &ClusterView<'_>, nodes: &[Candidate<'_>]) -> u64 {
    let mut hash = PassHash::default();
    for node in nodes {
        hash.text(node.name());
    }
    // Their order does not matter: in a list that was caught up new pods come last, and so each execution environment has another.
    let pods = view.input.cluster.objects.pods.iter();
    hash.number(pods.fold(0, |sum: u64, pod| sum.wrapping_add(pod_hash(pod))));
    for machine in &view.machines {
        hash.text(machine.name());
        let flags = [
            machine.is_deleting(),
            machine.is_initialized(),
            machine.nominated_until(view.now()).is_some(),
            accepts_moved_pods(view, machine),
            machine.facts.replacement_refused.is_some(),
        ];
        hash.number(flags.iter().fold(0, |bits, flag| bits * 2 + u64::from(*flag)));
    }
    // Recorded moves restrict commands until they are dropped.
    for earlier in &view.input.memory.moves {
        let recent = |at: Timestamp, span| view.now().duration_since(at) < span;
        let complete = earlier.drained_at.is_some_and(|drained_at| !recent(drained_at, MOVE_WINDOW));
        let flags = [recent(earlier.at, MOVE_WINDOW), recent(earlier.at, REMEMBERED_FOR), earlier.drained_at.is_some(), complete];
        hash.number(flags.iter().fold(1, |bits, flag| bits * 2 + u64::from(*flag)));
    }
    for pool in view.pools() {
        hash.text(&pool.metadata.name);
        hash.number(pool.metadata.generation.unwrap_or(0).unsigned_abs());
        hash.text(&pool.metadata.resource_version);
    }
    for types in view.input.cluster.catalog.values() {
        for offering in types.iter().flat_map(|instance_type| &instance_type.offerings) {
            hash.number(offering.price.nanos() << 1 | u64::from(offering.available));
        }
    }
    hash.0.finish()
}

fn pod_hash(pod: &Pod) -> u64 {
    let mut hash = PassHash::default();
    hash.text(&pod.metadata.uid);
    hash.text(&pod.metadata.name);
    hash.text(&pod.spec.node_name);
    hash.text(&pod.status.phase);
    hash.number(u64::from(pod.metadata.is_deleting()));
    hash.0.finish()
}

#[derive(Default)]
struct PassHash(Fnv1a);

impl PassHash {
    fn number(&mut self, number: u64) {
        self.0.mix(number);
    }
    fn text(&mut self, text: &str) {
        self.0.write(text.as_bytes());
        self.number(text.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_keep_a_bounded_number_of_names_and_the_newest_of_them() {
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        let mut memory = Memory::default();
        for number in 0..100 {
            let names: BTreeMap<String, u32> = (0..30).map(|one| (format!("default/workload-{number}-{one}"), 1)).collect();
            memory.moves.push(Move {
                at: at(number),
                removed: Vec::new(),
                nodes: vec![format!("node-{number}")],
                undrained_at: None,
                drained_at: None,
                launched: vec![format!("claim-{number}")],
                workloads: names.clone(),
                move_counts: names,
            });
            forget_old_moves(&mut memory, at(number));
        }
        assert_eq!(memory.moves.len(), NAMES_MAX / 30);
        assert_eq!(memory.moves.last().unwrap().at, at(99));
        assert!(serde_json::to_string(&memory).unwrap().len() < 100_000);
    }

    /// One item of the table has to hold the record, or no command of the cluster could be stored.
    #[test]
    fn names_as_long_as_they_may_be_leave_the_record_small_enough_to_be_stored() {
        let at = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
        let moved = |second: i64, names: BTreeMap<String, u32>| Move {
            at: at(second),
            removed: Vec::new(),
            nodes: vec![format!("node-{second}")],
            undrained_at: None,
            drained_at: None,
            launched: Vec::new(),
            workloads: names.keys().map(|name| (name.clone(), 1)).collect(),
            move_counts: names,
        };
        let long = |number: usize| format!("{number:0>300}");
        let all: BTreeMap<String, u32> = (0..2_000).map(|number| (long(number), if number == 1_999 { 2 } else { 1 })).collect();
        let mut memory = Memory { moves: vec![moved(0, [(long(9_999), 1)].into()), moved(1, all)], ..Memory::default() };
        forget_old_moves(&mut memory, at(2));
        let [newest] = memory.moves.as_slice() else { panic!("the newest is kept, and no room is left for another: {:?}", memory.moves) };
        assert_eq!((newest.at, newest.workloads.len(), newest.move_counts.len()), (at(1), 333, 333));
        assert_eq!(newest.move_counts.get(&long(1_999)), Some(&2), "it was moved most often");
        assert!(serde_json::to_string(&memory).unwrap().len() < 250_000);
        // Ordinary names of as many workloads are all kept.
        let ordinary = (0..1_500).map(|number| (format!("team/ReplicaSet/web-{number}-5d4f8c7b9"), 1)).collect();
        let mut memory = Memory { moves: vec![moved(1, ordinary)], ..Memory::default() };
        forget_old_moves(&mut memory, at(2));
        assert_eq!(memory.moves[0].workloads.len(), 1_500);
    }
}
