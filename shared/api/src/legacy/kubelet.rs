//! Moves kubelet settings from pools to classes: one class for each distinct block.

use super::{Kubelet, Purpose, Slot, Work};
use crate::duration::GoDuration;
use crate::k8s::IntOrString;
use crate::karpenter::{Ec2NodeClass, NodePool};
use crate::manifest::Object;
use serde_json::Value;
use std::collections::BTreeMap;

impl Kubelet {
    fn canonical(&self) -> Self {
        let grace = self.eviction_soft_grace_period.iter().map(|(signal, time)| (signal.clone(), GoDuration::canonical(time))).collect();
        let amounts = |map: &BTreeMap<String, IntOrString>| map.iter().map(|(name, amount)| (name.clone(), as_text(amount))).collect();
        Self {
            eviction_soft_grace_period: grace,
            system_reserved: amounts(&self.system_reserved),
            kube_reserved: amounts(&self.kube_reserved),
            ..self.clone()
        }
    }
    /// The block in the form of the compatibility annotation.
    pub(super) fn to_annotation(&self) -> Option<String> {
        serde_json::to_string(&self.canonical()).ok()
    }
    /// The block as `spec.kubelet` of a class; `None` if it is empty.
    pub(super) fn to_document(&self) -> Option<Value> {
        let document = serde_json::to_value(self.canonical()).ok()?;
        document.as_object().is_some_and(|map| !map.is_empty()).then_some(document)
    }
}

/// Converts an amount that was written as a number: the kubelet's document has strings only.
fn as_text(amount: &IntOrString) -> IntOrString {
    match amount {
        IntOrString::Int(number) => IntOrString::Text(number.to_string()),
        IntOrString::Text(text) => IntOrString::Text(text.clone()),
    }
}

/// Gives each class the block of its pools. If they differ, the class keeps one (see [`kept_block`]) and each other block
/// gets a derived class, named after the class and the block.
pub(super) fn move_to_classes(work: &mut Work<'_>) {
    note_missing_classes(work);
    let classes: Vec<usize> = (0..work.slots.len()).filter(|at| matches!(work.slots[*at].object, Object::NodeClass(_))).collect();
    let mut derived: Vec<(usize, Ec2NodeClass)> = Vec::new();
    for class in classes {
        split_class(work, class, &mut derived);
    }
    for (after, class) in derived.into_iter().rev() {
        let origin = work.slots[after].origin;
        work.slots.insert(after + 1, Slot { object: Object::NodeClass(Box::new(class)), origin, kubelet: None });
    }
}

fn note_missing_classes(work: &mut Work<'_>) {
    for slot in &work.slots {
        if let (Object::NodePool(pool), Some(_)) = (&slot.object, &slot.kubelet)
            && class_of(&work.slots, slot).is_none()
        {
            let text = format!(
                "its kubelet settings belong into EC2NodeClass {:?}, which is not among the files: copy them from the annotation {} there",
                pool.spec.template.spec.node_class_ref.name,
                super::KUBELET_ANNOTATION
            );
            work.out.warnings.push(super::Note { object: format!("NodePool {:?}", pool.metadata.name), text, in_output: true });
        }
    }
}

/// The block that the class itself keeps when its pools have several. In printed manifests it is none, so that each class
/// names its block; on read it is the oldest pool's, so that a pool that is added later changes the class of no other.
fn kept_block(work: &Work<'_>, users: &[usize]) -> Option<Value> {
    if work.options.purpose == Purpose::Output {
        return None;
    }
    let age = |user: &&usize| match &work.slots[**user].object {
        Object::NodePool(pool) => (pool.metadata.creation_timestamp, pool.metadata.name.clone()),
        _ => (None, String::new()),
    };
    users.iter().min_by_key(age).and_then(|user| work.slots[*user].kubelet.clone())
}

fn split_class(work: &mut Work<'_>, class: usize, derived: &mut Vec<(usize, Ec2NodeClass)>) {
    let users: Vec<usize> = (0..work.slots.len()).filter(|at| class_of(&work.slots, &work.slots[*at]) == Some(class)).collect();
    let mut blocks: Vec<Option<Value>> = Vec::new();
    for user in &users {
        let block = &work.slots[*user].kubelet;
        if !blocks.contains(block) {
            blocks.push(block.clone());
        }
    }
    let kept = if let [only] = blocks.as_slice() { only.clone() } else { kept_block(work, &users) };
    let Object::NodeClass(original) = &mut work.slots[class].object else { return };
    // A v1 class may have settings of its own, for the pools that have none.
    let kept = kept.filter(|_| original.spec.kubelet.is_none());
    let plain = original.as_ref().clone();
    if kept.is_some() {
        original.spec.kubelet.clone_from(&kept);
    }
    for block in blocks.into_iter().filter(|block| *block != kept) {
        let copy = derive(work, &plain, block.as_ref(), &users);
        derived.push((class, copy));
    }
}

/// Derives a class with another block, and makes its pools refer to it.
fn derive(work: &mut Work<'_>, plain: &Ec2NodeClass, block: Option<&Value>, users: &[usize]) -> Ec2NodeClass {
    let mut copy = plain.clone();
    let name = format!("{}-{:08x}", plain.metadata.name, fingerprint(block));
    copy.metadata.name.clone_from(&name);
    // The derived class does not exist in the cluster.
    copy.metadata.uid.clear();
    copy.metadata.resource_version.clear();
    if block.is_some() {
        copy.spec.kubelet = block.cloned();
    }
    let mut pools = Vec::new();
    for user in users {
        let slot = &mut work.slots[*user];
        if slot.kubelet.as_ref() == block
            && let Object::NodePool(pool) = &mut slot.object
        {
            pool.spec.template.spec.node_class_ref.name.clone_from(&name);
            pools.push(format!("{:?}", pool.metadata.name));
        }
    }
    let text = format!("made from {:?} for the kubelet settings of NodePool {}", plain.metadata.name, pools.join(", "));
    work.note_in_output("EC2NodeClass", &name, text);
    copy
}

/// The position of the class that a pool refers to. A pool converted from a Provisioner refers to a class converted from a template, if
/// both kinds of class have the name.
fn class_of(slots: &[Slot], user: &Slot) -> Option<usize> {
    let Object::NodePool(pool) = &user.object else { return None };
    let named = |slot: &Slot| matches!(&slot.object, Object::NodeClass(class) if names(pool, class));
    let same_age = |slot: &&Slot| (slot.origin == Some("AWSNodeTemplate")) == (user.origin == Some("Provisioner"));
    let position = |wanted: &Slot| slots.iter().position(|slot| std::ptr::eq(slot, wanted));
    let mut candidates = slots.iter().filter(|slot| named(slot));
    candidates.clone().find(same_age).or_else(|| candidates.next()).and_then(position)
}

fn names(pool: &NodePool, class: &Ec2NodeClass) -> bool {
    let reference = &pool.spec.template.spec.node_class_ref;
    reference.kind == "EC2NodeClass" && reference.name == class.metadata.name
}

/// A short, stable name for a block.
fn fingerprint(block: Option<&Value>) -> u32 {
    block
        .map(Value::to_string)
        .unwrap_or_default()
        .bytes()
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
