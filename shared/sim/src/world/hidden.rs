//! Objects that are there and cannot be read, and kinds that vanish from answers, each for some minutes.

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
/// Kinds that vanish as a whole.
const VANISHING: [&str; 3] = [NodePool::KIND, NodeClaim::KIND, Ec2NodeClass::KIND];

/// What readers do not get to see.
#[derive(Debug, Default)]
pub(crate) struct Hidden {
    /// By kind and key.
    objects: BTreeMap<(&'static str, String), How>,
    /// A kind, until when, and whether it is said not to be served.
    kind: Option<(&'static str, Timestamp, bool)>,
}

/// How an object is hidden.
#[derive(Clone, Copy, Debug)]
struct How {
    until: Timestamp,
    what: What,
    /// Whether faults go or come: a test asked for it.
    pinned: bool,
}

/// What is left of a hidden object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// All that plain metadata gives.
    Metadata,
    /// Not even the machine can be told.
    Name,
    /// Nothing: lists do not show it.
    Nothing,
}

impl World {
    /// Takes out of an answer what cannot be read now, and names it.
    pub(crate) fn hide(&mut self, seen: &mut ClusterObjects) {
        let (unreadable, vanished, now) = (self.faults.unreadable, self.faults.vanished, self.now());
        self.past.hidden.objects.retain(|_, how| now < how.until && (how.pinned || unreadable + vanished > 0));
        self.past.hidden.kind = self.past.hidden.kind.filter(|(_, until, _)| vanished > 0 && now < *until);
        if self.strikes(unreadable) {
            let kind = KINDS[self.below(KINDS.len())];
            let what = if self.below(3) == 0 { What::Name } else { What::Metadata };
            self.hide_one(kind, what);
        }
        if self.past.hidden.kind.is_none() && self.strikes(vanished) {
            self.vanish();
        }
        let hidden = &self.past.hidden;
        let mut odd = Vec::new();
        hidden.take(&mut seen.node_pools, &mut odd);
        hidden.take(&mut seen.node_claims, &mut odd);
        hidden.take(&mut seen.node_classes, &mut odd);
        hidden.take(&mut seen.nodes, &mut odd);
        hidden.take(&mut seen.pods, &mut odd);
        hidden.take(&mut seen.disruption_budgets, &mut odd);
        if let Some((kind, _, absent)) = hidden.kind {
            seen.node_pools.retain(|_| kind != NodePool::KIND);
            seen.node_claims.retain(|_| kind != NodeClaim::KIND);
            seen.node_classes.retain(|_| kind != Ec2NodeClass::KIND);
            odd.retain(|odd| odd.kind != kind);
            if absent {
                seen.absent_kinds.push(kind.to_owned());
            }
        }
        if !self.is(Mutant::UnreadableDropped) {
            seen.unreadable = odd;
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

    /// Lets a kind vanish from answers, or one of its objects.
    fn vanish(&mut self) {
        let kind = VANISHING[self.below(VANISHING.len())];
        match self.below(4) {
            0 => self.hide_one(kind, What::Nothing),
            // Of Nodes one alone: the same answers have its pods.
            1 => self.hide_one(Node::KIND, What::Nothing),
            how => self.past.hidden.kind = Some((kind, self.hidden_until(), how == 2)),
        }
    }

    /// Hides one object of a kind, if there is one.
    fn hide_one(&mut self, kind: &'static str, what: What) {
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
        let how = How { until: self.hidden_until(), what, pinned: false };
        self.past.hidden.objects.insert((kind, key), how);
    }

    /// From now on an object cannot be read, whatever goes wrong besides; `false` lets it be missing from lists instead.
    pub fn hide_always(&mut self, kind: &'static str, key: &str, named: bool) {
        let what = if named { What::Metadata } else { What::Nothing };
        self.past.hidden.objects.insert((kind, key.to_owned()), How { until: Timestamp::MAX, what, pinned: true });
    }

    /// All objects can be read again.
    pub fn show_all(&mut self) {
        self.past.hidden = Hidden::default();
    }
}

impl Hidden {
    /// Moves what cannot be read from a list to the others of its like.
    fn take<T: Kind + Serialize>(&self, list: &mut Vec<T>, into: &mut Vec<Unreadable>) {
        if !self.objects.keys().any(|(kind, _)| *kind == T::KIND) {
            return;
        }
        list.retain(|object| {
            let Some(How { what, .. }) = self.objects.get(&(T::KIND, key_of(object))) else { return true };
            let value = serde_json::to_value(object).unwrap_or_default();
            let mut odd = Unreadable::of::<T>(&value, "spec", "it is of tomorrow");
            if let Some(old @ ("Provisioner" | "AWSNodeTemplate")) = object.meta().annotation(labels::CONVERTED_FROM) {
                old.clone_into(&mut odd.kind);
            }
            if *what == What::Name && T::KIND == NodeClaim::KIND {
                odd.provider_id.clear();
                odd.node_name.clear();
            }
            if *what != What::Nothing {
                into.push(odd);
            }
            false
        });
    }
}
