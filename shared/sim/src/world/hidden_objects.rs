//! Objects that become unreadable, and kinds that are missing from answers, each for some minutes.

use super::World;
use crate::cluster::objects::key_of;
use crate::dice::Stream;
use crate::mutants::Mutant;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use std::collections::BTreeMap;
use whittle_api::k8s::{Kind, Node, Pod, PodDisruptionBudget};
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodePool};
use whittle_api::{ClusterObjects, Unreadable, labels};

/// How long something stays hidden, in milliseconds.
const HIDDEN_MS: (u64, u64) = (20_000, 300_000);
/// Kinds of which objects turn unreadable.
const KINDS: [&str; 6] = [NodePool::KIND, NodeClaim::KIND, Ec2NodeClass::KIND, Node::KIND, Pod::KIND, PodDisruptionBudget::KIND];
/// Kinds that may be missing as a whole.
const VANISHING: [&str; 3] = [NodePool::KIND, NodeClaim::KIND, Ec2NodeClass::KIND];

/// What is hidden from readers.
#[derive(Debug, Default)]
pub(crate) struct HiddenObjects {
    /// By kind and key.
    objects: BTreeMap<(&'static str, String), HiddenObject>,
    /// A kind, until when, and whether it is reported as not served.
    kind: Option<(&'static str, Timestamp, bool)>,
}

#[derive(Clone, Copy, Debug)]
struct HiddenObject {
    until: Timestamp,
    visibility: Visibility,
    /// Hidden by a test, regardless of faults.
    pinned: bool,
}

/// How much of a hidden object is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visibility {
    /// Everything that plain metadata contains.
    Metadata,
    /// Not even the machine can be identified.
    Name,
    /// Nothing: lists do not show it.
    Nothing,
}

impl World {
    /// Moves objects that are unreadable now to the list of unreadable ones.
    pub(crate) fn hide(&mut self, seen: &mut ClusterObjects) {
        let (unreadable, vanished, now) = (self.faults.unreadable, self.faults.vanished, self.now());
        self.history.hidden.objects.retain(|_, hidden| now < hidden.until && (hidden.pinned || unreadable + vanished > 0));
        self.history.hidden.kind = self.history.hidden.kind.filter(|(_, until, _)| vanished > 0 && now < *until);
        if self.fault_occurs(unreadable) {
            let kind = KINDS[self.below(KINDS.len())];
            let visibility = if self.below(3) == 0 { Visibility::Name } else { Visibility::Metadata };
            self.hide_one(kind, visibility);
        }
        if self.history.hidden.kind.is_none() && self.fault_occurs(vanished) {
            self.vanish();
        }
        let hidden = &self.history.hidden;
        let mut unreadable = Vec::new();
        hidden.take(&mut seen.node_pools, &mut unreadable);
        hidden.take(&mut seen.node_claims, &mut unreadable);
        hidden.take(&mut seen.node_classes, &mut unreadable);
        hidden.take(&mut seen.nodes, &mut unreadable);
        hidden.take(&mut seen.pods, &mut unreadable);
        hidden.take(&mut seen.disruption_budgets, &mut unreadable);
        if let Some((kind, _, absent)) = hidden.kind {
            seen.node_pools.retain(|_| kind != NodePool::KIND);
            seen.node_claims.retain(|_| kind != NodeClaim::KIND);
            seen.node_classes.retain(|_| kind != Ec2NodeClass::KIND);
            unreadable.retain(|unreadable| unreadable.kind != kind);
            if absent {
                seen.absent_kinds.push(kind.to_owned());
            }
        }
        if !self.is(Mutant::UnreadableDropped) {
            seen.unreadable = unreadable;
        }
    }

    fn below(&mut self, number: usize) -> usize {
        let drawn = self.dice.below(Stream::Faults, u64::try_from(number).unwrap_or(u64::MAX));
        usize::try_from(drawn).unwrap_or(0)
    }

    fn hidden_until(&mut self) -> Timestamp {
        let span = self.dice.between(Stream::Faults, HIDDEN_MS.0, HIDDEN_MS.1);
        let span = SignedDuration::from_millis(i64::try_from(span).unwrap_or(0));
        self.now().checked_add(span).unwrap_or(Timestamp::MAX)
    }

    /// Lets a kind, or one of its objects, be missing from answers.
    fn vanish(&mut self) {
        let kind = VANISHING[self.below(VANISHING.len())];
        match self.below(4) {
            0 => self.hide_one(kind, Visibility::Nothing),
            // Only single Nodes: the same answers contain their pods.
            1 => self.hide_one(Node::KIND, Visibility::Nothing),
            hidden => self.history.hidden.kind = Some((kind, self.hidden_until(), hidden == 2)),
        }
    }

    /// Hides one object of a kind, if there is one.
    fn hide_one(&mut self, kind: &'static str, visibility: Visibility) {
        let objects = &self.cluster.objects;
        let keys: Vec<String> = match kind {
            NodePool::KIND => objects.node_pools.keys().cloned().collect(),
            NodeClaim::KIND => objects.node_claims.keys().cloned().collect(),
            Ec2NodeClass::KIND => objects.node_classes.keys().cloned().collect(),
            Node::KIND => objects.nodes.keys().cloned().collect(),
            Pod::KIND => objects.pods.keys().cloned().collect(),
            _ => objects.budgets.keys().cloned().collect(),
        };
        if keys.is_empty() {
            return;
        }
        let key = keys[self.below(keys.len())].clone();
        let hidden = HiddenObject { until: self.hidden_until(), visibility, pinned: false };
        self.history.hidden.objects.insert((kind, key), hidden);
    }

    /// Makes an object unreadable from now on, independently of faults; with `named` false it is missing from lists instead.
    pub fn hide_always(&mut self, kind: &'static str, key: &str, named: bool) {
        let visibility = if named { Visibility::Metadata } else { Visibility::Nothing };
        self.history.hidden.objects.insert((kind, key.to_owned()), HiddenObject { until: Timestamp::MAX, visibility, pinned: true });
    }

    /// All objects can be read again.
    pub fn show_all(&mut self) {
        self.history.hidden = HiddenObjects::default();
    }
}

impl HiddenObjects {
    /// Moves unreadable objects from a list to the list of unreadable ones.
    fn take<T: Kind + Serialize>(&self, list: &mut Vec<T>, into: &mut Vec<Unreadable>) {
        if !self.objects.keys().any(|(kind, _)| *kind == T::KIND) {
            return;
        }
        list.retain(|object| {
            let Some(HiddenObject { visibility, .. }) = self.objects.get(&(T::KIND, key_of(object))) else { return true };
            let value = serde_json::to_value(object).unwrap_or_default();
            let mut unreadable = Unreadable::of::<T>(&value, "spec", "a newer version wrote it");
            if let Some(old @ ("Provisioner" | "AWSNodeTemplate")) = object.meta().annotation(labels::CONVERTED_FROM) {
                old.clone_into(&mut unreadable.kind);
            }
            if *visibility == Visibility::Name && T::KIND == NodeClaim::KIND {
                unreadable.provider_id.clear();
                unreadable.node_name.clear();
            }
            if *visibility != Visibility::Nothing {
                into.push(unreadable);
            }
            false
        });
    }
}
