//! Counts moves of pods, which are tracked through their replacements.

use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use whittle_sim::World;

/// The interval in which replacements are matched: shorter than the time between a decision and its first eviction.
pub(super) const OBSERVE_EVERY: SignedDuration = SignedDuration::from_secs(1);
/// How long after a pod's deletion a new pod counts as its replacement. A controller creates it at once, unless it scaled down:
/// later pods are no replacements.
const REPLACED_WITHIN: SignedDuration = SignedDuration::from_secs(10);

/// A pod at one observation.
#[derive(Clone, Debug, Default)]
struct ObservedPod {
    app: String,
    node: String,
    created: Timestamp,
}

/// One move of a pod by consolidation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    at: Timestamp,
    pod: String,
    created: Timestamp,
    node: String,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} left {} at {}", self.pod, self.created, self.node, self.at)
    }
}

/// Tracks pods through their replacements: a pod of a disrupted node passes its history to the next pod of its app that
/// is created.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// The workloads' write counter at the last observation.
    pub(super) seen: u64,
    before: BTreeMap<String, ObservedPod>,
    /// Per pod: when it or its predecessors were moved.
    history: BTreeMap<String, Vec<Move>>,
    /// Per app: histories that wait for a replacement, with a time at which their pod still existed.
    open: BTreeMap<String, VecDeque<(Timestamp, Vec<Move>)>>,
    pub(super) most: Vec<Move>,
}

impl Moves {
    pub(super) fn observe(&mut self, world: &World, disrupted_nodes: &BTreeSet<String>) {
        self.seen = world.cluster.objects.workloads();
        let pods = world.cluster.objects.pods.values().filter(|pod| !pod.metadata.is_deleting());
        let seen = pods.map(|pod| {
            let app = pod.metadata.labels.get("app").cloned().unwrap_or_default();
            let created = pod.metadata.creation_timestamp.unwrap_or_default();
            (pod.metadata.key(), ObservedPod { app, node: pod.spec.node_name.clone(), created })
        });
        self.record(world.now(), seen.collect(), disrupted_nodes);
    }

    fn record(&mut self, now: Timestamp, pods: BTreeMap<String, ObservedPod>, disrupted_nodes: &BTreeSet<String>) {
        let there_at = now.checked_sub(OBSERVE_EVERY).unwrap_or(now);
        for (pod, seen) in self.before.iter().filter(|(pod, _)| !pods.contains_key(*pod)) {
            let mut history = self.history.remove(pod).unwrap_or_default();
            if !disrupted_nodes.contains(&seen.node) {
                continue;
            }
            history.retain(|one| now.duration_since(one.at) < SignedDuration::from_hours(1));
            history.push(Move { at: now, pod: pod.clone(), created: seen.created, node: seen.node.clone() });
            if history.len() > self.most.len() {
                self.most.clone_from(&history);
            }
            self.open.entry(seen.app.clone()).or_default().push_back((there_at, history));
        }
        for (pod, seen) in pods.iter().filter(|(pod, _)| !self.before.contains_key(*pod)) {
            let Some(open) = self.open.get_mut(&seen.app) else { continue };
            open.retain(|(since, _)| now.duration_since(*since) <= REPLACED_WITHIN);
            let came_later = |(since, _): &&(Timestamp, Vec<Move>)| *since <= seen.created;
            if open.front().filter(came_later).is_some() {
                self.history.extend(open.pop_front().map(|(_, history)| (pod.clone(), history)));
            }
        }
        self.before = pods;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_are_passed_to_replacements_and_expire() {
        let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
        let pods = |name: &str, node: &str, created: i64| {
            BTreeMap::from([(name.to_owned(), ObservedPod { app: "web".to_owned(), node: node.to_owned(), created: at(created) })])
        };
        let mut moves = Moves::default();
        let disrupted_nodes: BTreeSet<String> = ["n1".to_owned(), "n2".to_owned(), "n4".to_owned()].into();
        moves.record(at(0), pods("a", "n1", 0), &disrupted_nodes);
        moves.record(at(1), pods("b", "n2", 1), &disrupted_nodes);
        assert_eq!(moves.most.len(), 1);
        moves.record(at(2), pods("c", "n3", 2), &disrupted_nodes);
        assert_eq!(moves.most.len(), 2, "b replaced a and was moved as well");
        moves.record(at(3), pods("d", "n4", 3), &disrupted_nodes);
        assert_eq!(moves.most.len(), 2, "n3 was not disrupted");
        moves.record(at(4), BTreeMap::new(), &disrupted_nodes);
        moves.record(at(6), pods("e", "n1", 6), &disrupted_nodes);
        moves.record(at(7), pods("f", "n2", 6), &disrupted_nodes);
        moves.record(at(8), pods("g", "n2", 8), &disrupted_nodes);
        assert_eq!(moves.most.len(), 2, "e was created minutes after d was deleted, and f before e was deleted");
    }
}
