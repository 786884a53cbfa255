//! Which changes of pods, nodes, NodeClaims, NodePools and node classes ring.
//!
//! A watch reports every change of an object, and a list all objects again. What rings is what somebody has to look at: a pod that has
//! become unschedulable or waits for another reason than before, a node that has joined, has changed before it was ready for pods, is being
//! deleted, or is gone, a NodeClaim that somebody deletes, a NodePool or node class that somebody makes, edits or deletes.

use crate::objects::{Definition, Node, NodeClaim, NodeState, Pod, PodState};
use std::collections::{BTreeMap, BTreeSet};
use whittle_claims::PostKind;

/// A message of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// All objects are listed from the start.
    ListBegins,
    /// An object of a list, or one that was created or changed.
    Present(T),
    /// An object that does not exist any more, or that the watch does not select any more.
    Gone(T),
    /// The list is complete: what it lacks is gone.
    ListEnds,
}

/// The objects of a kind as they were last seen: a few bytes for each.
#[derive(Debug)]
struct Seen<S> {
    known: BTreeMap<String, S>,
    /// Those of the list that is being read.
    listed: Option<BTreeSet<String>>,
}

impl<S> Default for Seen<S> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), listed: None }
    }
}

impl<S> Seen<S> {
    /// The state before, if it was known.
    fn replace(&mut self, uid: String, state: S) -> Option<S> {
        if let Some(listed) = &mut self.listed {
            listed.insert(uid.clone());
        }
        self.known.insert(uid, state)
    }

    /// The state in which it was known last.
    fn forget(&mut self, uid: &str) -> Option<S> {
        if let Some(listed) = &mut self.listed {
            listed.remove(uid);
        }
        self.known.remove(uid)
    }

    fn begin_list(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    /// The objects that the list lacks, which are forgotten.
    fn end_list(&mut self) -> Vec<S> {
        let Some(listed) = self.listed.take() else { return Vec::new() };
        self.known.extract_if(.., |uid, _| !listed.contains(uid)).map(|(_, state)| state).collect()
    }
}

/// Pods that are bound to no node.
#[derive(Debug, Default)]
pub struct PodChanges {
    seen: Seen<PodState>,
    newest: Option<String>,
}

impl PodChanges {
    /// The version of the newest pod that has rung. Every watcher of a cluster sees its changes in the same order.
    pub fn newest(&self) -> Option<&str> {
        self.newest.as_deref()
    }

    fn is_newer(&self, version: &str) -> bool {
        // Versions are decimal numbers without leading zeros; a list is in the order of names.
        self.newest.as_deref().is_none_or(|newest| (version.len(), version) > (newest.len(), newest))
    }

    /// What a change of a pod rings. A pod rings when it becomes unschedulable, and again when its spec changes or the scheduler says
    /// something else of it: it tried the pod on the nodes that have come, and others have taken the place that was planned for it. What
    /// changes within a second is one post.
    pub fn take(&mut self, change: Change<Pod>) -> Option<PostKind> {
        match change {
            Change::ListBegins => self.seen.begin_list(),
            Change::Present(pod) => {
                let state = pod.state();
                let before = self.seen.replace(pod.uid, state);
                if state.is_unschedulable && before != Some(state) {
                    if self.is_newer(&pod.version) {
                        self.newest = Some(pod.version);
                    }
                    return Some(PostKind::Pods);
                }
            }
            Change::Gone(pod) => _ = self.seen.forget(&pod.uid),
            Change::ListEnds => _ = self.seen.end_list(),
        }
        None
    }
}

/// All nodes.
#[derive(Debug, Default)]
pub struct NodeChanges(Seen<NodeState>);

impl NodeChanges {
    /// What a change of a node rings. Changes of a node that takes pods already, such as its reports of every five minutes, ring
    /// nothing.
    pub fn take(&mut self, change: Change<Node>) -> Option<PostKind> {
        match change {
            Change::ListBegins => {
                self.0.begin_list();
                None
            }
            Change::Present(node) => {
                let now = node.state();
                let before = self.0.replace(node.uid, now);
                rings(before, now)
            }
            Change::Gone(node) => {
                self.0.forget(&node.uid);
                Some(PostKind::Deletions)
            }
            Change::ListEnds => (!self.0.end_list().is_empty()).then_some(PostKind::Deletions),
        }
    }
}

/// All NodeClaims, and of each whether it is being deleted.
#[derive(Debug, Default)]
pub struct NodeClaimChanges(Seen<bool>);

impl NodeClaimChanges {
    /// What a change of a NodeClaim rings: its deletion, once. Its machine is then to be ended.
    pub fn take(&mut self, change: Change<NodeClaim>) -> Option<PostKind> {
        let is_deleted = match change {
            Change::ListBegins => {
                self.0.begin_list();
                false
            }
            Change::Present(claim) => self.0.replace(claim.uid, claim.is_deleting) != Some(true) && claim.is_deleting,
            Change::Gone(claim) => self.0.forget(&claim.uid) == Some(false),
            Change::ListEnds => self.0.end_list().contains(&false),
        };
        is_deleted.then_some(PostKind::Deletions)
    }
}

/// All NodePools, or all node classes, and the generation of each.
#[derive(Debug, Default)]
pub struct DefinitionChanges(Seen<i64>);

impl DefinitionChanges {
    /// What a change of a definition rings. What is written to its status or metadata rings nothing.
    pub fn take(&mut self, change: Change<Definition>) -> Option<PostKind> {
        let is_edited = match change {
            Change::ListBegins => {
                self.0.begin_list();
                false
            }
            Change::Present(definition) => self.0.replace(definition.uid, definition.generation) != Some(definition.generation),
            Change::Gone(definition) => {
                self.0.forget(&definition.uid);
                false
            }
            Change::ListEnds => {
                self.0.end_list();
                false
            }
        };
        is_edited.then_some(PostKind::Pools)
    }
}

fn rings(before: Option<NodeState>, now: NodeState) -> Option<PostKind> {
    let was_deleting = before.is_some_and(|before| before.is_deleting);
    if now.is_deleting {
        return (!was_deleting).then_some(PostKind::Deletions);
    }
    match before {
        None => Some(PostKind::Nodes),
        // A node that takes pods has nothing more to be registered.
        Some(_) if now.is_initialized => None,
        Some(before) => (before.progress != now.progress || before.is_initialized).then_some(PostKind::Nodes),
    }
}

#[cfg(test)]
mod tests;
