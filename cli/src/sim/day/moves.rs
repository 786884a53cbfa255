//! How often pods were moved: pods are followed through their replacements.

use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use whittle_sim::World;

/// How often replacements are matched: less than the time between a decision and its first eviction.
pub(super) const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(1);
/// How long after a pod's end a new pod counts as its replacement. A controller creates it at once, unless it scaled down:
/// later pods are no replacements.
const TAKEN_WITHIN: SignedDuration = SignedDuration::from_secs(10);

/// A pod at one step.
#[derive(Clone, Debug, Default)]
struct Seen {
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

/// Follows pods through their replacements: a pod that left a disrupted node passes its history to the next pod of its app that
/// is created.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// The workloads' write counter at the last step.
    pub(super) seen: u64,
    before: BTreeMap<String, Seen>,
    /// Per pod: when it or its predecessors were moved.
    history: BTreeMap<String, Vec<Move>>,
    /// Per app: histories that wait for a replacement, with a time at which their pod still existed.
    open: BTreeMap<String, VecDeque<(Timestamp, Vec<Move>)>>,
    pub(super) most: Vec<Move>,
}

impl Moves {
    pub(super) fn look(&mut self, world: &World, gone: &BTreeSet<String>) {
        self.seen = world.cluster.objects.workloads();
        let pods = world.cluster.objects.pods.values().filter(|pod| !pod.metadata.is_deleting());
        let seen = pods.map(|pod| {
            let app = pod.metadata.labels.get("app").cloned().unwrap_or_default();
            let created = pod.metadata.creation_timestamp.unwrap_or_default();
            (pod.metadata.key(), Seen { app, node: pod.spec.node_name.clone(), created })
        });
        self.note(world.now(), seen.collect(), gone);
    }

    fn note(&mut self, now: Timestamp, pods: BTreeMap<String, Seen>, gone: &BTreeSet<String>) {
        let there_at = now.checked_sub(LOOK_EVERY).unwrap_or(now);
        for (pod, seen) in self.before.iter().filter(|(pod, _)| !pods.contains_key(*pod)) {
            let mut history = self.history.remove(pod).unwrap_or_default();
            if !gone.contains(&seen.node) {
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
            open.retain(|(since, _)| now.duration_since(*since) <= TAKEN_WITHIN);
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
    fn histories_pass_on_to_successors_and_fade() {
        let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
        let pods = |name: &str, node: &str, created: i64| {
            BTreeMap::from([(name.to_owned(), Seen { app: "web".to_owned(), node: node.to_owned(), created: at(created) })])
        };
        let mut moves = Moves::default();
        let gone: BTreeSet<String> = ["n1".to_owned(), "n2".to_owned(), "n4".to_owned()].into();
        moves.note(at(0), pods("a", "n1", 0), &gone);
        moves.note(at(1), pods("b", "n2", 1), &gone);
        assert_eq!(moves.most.len(), 1);
        moves.note(at(2), pods("c", "n3", 2), &gone);
        assert_eq!(moves.most.len(), 2, "b took a's place and had to go too");
        moves.note(at(3), pods("d", "n4", 3), &gone);
        assert_eq!(moves.most.len(), 2, "n3 was not disrupted");
        moves.note(at(4), BTreeMap::new(), &gone);
        moves.note(at(6), pods("e", "n1", 6), &gone);
        moves.note(at(7), pods("f", "n2", 6), &gone);
        moves.note(at(8), pods("g", "n2", 8), &gone);
        assert_eq!(moves.most.len(), 2, "e came minutes after d had gone, and f was there before e went");
    }
}
