//! What the execution environment of a function keeps of its last look at the cluster.

use super::World;
use crate::Function;
use std::collections::BTreeMap;
use whittle_api::k8s::{Kind, Node};
use whittle_api::{ClusterObjects, ObjectMeta, Unreadable};
use whittle_ports::{Scope, confirmed_for, kept_for};
use whittle_units::Timestamp;

/// A look at everything, or at Nodes.
#[derive(Debug)]
pub(crate) struct KeptLook {
    at: Timestamp,
    confirmed_at: Timestamp,
    objects: ClusterObjects,
}

fn unreadable_nodes(objects: &ClusterObjects) -> impl Iterator<Item = &Unreadable> {
    objects.unreadable_of(Node::KIND)
}

fn count_nodes(objects: &ClusterObjects) -> usize {
    objects.nodes.len() + unreadable_nodes(objects).count()
}

/// Whether the metadata of all Nodes are the same.
fn has_metadata(kept: &ClusterObjects, seen: &ClusterObjects) -> bool {
    let of = |objects: &ClusterObjects| -> BTreeMap<String, ObjectMeta> {
        let all = objects.nodes.iter().map(|node| &node.metadata).chain(unreadable_nodes(objects).map(|odd| &odd.metadata));
        all.map(|meta| (meta.name.clone(), ObjectMeta { resource_version: String::new(), ..meta.clone() })).collect()
    };
    of(kept) == of(seen)
}

impl World {
    /// Keeps a look of one of the functions that look at quiet clusters, or of a caller outside of any.
    pub(crate) fn keep_look(&mut self, caller: Option<Function>, scope: Scope, seen: &ClusterObjects) {
        let now = self.now();
        if !matches!((caller, scope), (None | Some(Function::Consolidate), Scope::All) | (None | Some(Function::Sweep), Scope::Nodes)) {
            return;
        }
        self.history.looks.insert((caller, scope), KeptLook { at: now, confirmed_at: now, objects: seen.clone() });
    }

    /// Whether a look is kept that is not too old.
    pub(crate) fn keeps_look(&self, caller: Option<Function>, scope: Scope) -> bool {
        let is_quiet = |kept: &&KeptLook| kept.objects.unreadable.is_empty() && kept.objects.nodes.iter().all(Node::serves);
        let kept = self.history.looks.get(&(caller, scope)).filter(is_quiet);
        kept.is_some_and(|kept| self.now().duration_since(kept.at) < kept_for(self.nodes_that_count(kept)))
    }

    /// The number of Nodes by which it counts how long they are kept.
    fn nodes_that_count(&self, kept: &KeptLook) -> usize {
        if self.faults.old_nodes { usize::MAX } else { count_nodes(&kept.objects) }
    }

    /// What is seen now with the Nodes, and what else seldom changes, of the look that is kept, if that will do.
    pub(crate) fn with_kept_look(&mut self, caller: Option<Function>, scope: Scope, seen: ClusterObjects) -> Option<ClusterObjects> {
        let now = self.now();
        let kept = self.history.looks.get(&(caller, scope))?;
        let nodes = self.nodes_that_count(kept);
        let is_same = seen.pods == kept.objects.pods && seen.disruption_budgets == kept.objects.disruption_budgets;
        if !self.keeps_look(caller, scope) || !is_same || count_nodes(&seen) != count_nodes(&kept.objects) {
            return None;
        }
        let kept = self.history.looks.get_mut(&(caller, scope))?;
        if now.duration_since(kept.confirmed_at) >= confirmed_for(nodes) {
            if !has_metadata(&kept.objects, &seen) {
                return None;
            }
            kept.confirmed_at = now;
        }
        let old = &kept.objects;
        let mut unreadable: Vec<Unreadable> = unreadable_nodes(old).cloned().collect();
        unreadable.extend(seen.unreadable.into_iter().filter(|odd| odd.kind != Node::KIND));
        Some(ClusterObjects {
            nodes: old.nodes.clone(),
            daemon_sets: old.daemon_sets.clone(),
            namespaces: old.namespaces.clone(),
            priority_classes: old.priority_classes.clone(),
            volume_claims: old.volume_claims.clone(),
            volumes: old.volumes.clone(),
            storage_classes: old.storage_classes.clone(),
            csi_nodes: old.csi_nodes.clone(),
            unreadable,
            ..seen
        })
    }
}
