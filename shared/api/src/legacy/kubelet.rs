//! Moves kubelet settings from pools to classes: one class for each distinct block.

use super::{Kubelet, Purpose, Slot, Work};
use crate::duration::GoDuration;
use crate::k8s::IntOrString;
use crate::karpenter::Ec2NodeClass;
use crate::manifest::Object;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

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
    let mut references = References::of(&work.slots);
    note_missing_classes(work, &references);
    let classes: Vec<usize> = (0..work.slots.len()).filter(|at| matches!(work.slots[*at].object, Object::NodeClass(_))).collect();
    let mut derived: Vec<(usize, Ec2NodeClass)> = Vec::new();
    for class in classes {
        split_class(work, &mut references, class, &mut derived);
    }
    insert(&mut work.slots, derived);
}

/// Puts each derived class behind the one, by position, that it was made from; they are in the order of these.
fn insert(slots: &mut Vec<Slot>, derived: Vec<(usize, Ec2NodeClass)>) {
    let mut derived = derived.into_iter().peekable();
    for (position, slot) in std::mem::take(slots).into_iter().enumerate() {
        let origin = slot.origin;
        slots.push(slot);
        while let Some((_, class)) = derived.next_if(|(original, _)| *original == position) {
            slots.push(Slot { object: Object::NodeClass(Box::new(class)), origin, kubelet: None });
        }
    }
}

/// Which pools refer to which classes, by position: a dump may have thousands of both.
#[derive(Default)]
struct References {
    /// By name.
    classes: BTreeMap<String, FirstClasses>,
    /// Pools by the name of the class that they refer to.
    users: BTreeMap<String, BTreeSet<usize>>,
}

/// The first of the classes with one name, of either origin.
#[derive(Clone, Copy, Default)]
struct FirstClasses {
    template: Option<usize>,
    other: Option<usize>,
}

impl References {
    fn of(slots: &[Slot]) -> Self {
        let mut out = Self::default();
        for (position, slot) in slots.iter().enumerate() {
            match &slot.object {
                Object::NodeClass(class) => {
                    let first = out.classes.entry(class.metadata.name.clone()).or_default();
                    let first = if slot.origin == Some("AWSNodeTemplate") { &mut first.template } else { &mut first.other };
                    first.get_or_insert(position);
                }
                Object::NodePool(pool) => {
                    let name = pool.spec.template.spec.node_class_ref.name.clone();
                    out.users.entry(name).or_default().insert(position);
                }
                _ => {}
            }
        }
        out
    }

    /// The position of the class that a pool refers to. A pool converted from a Provisioner refers to a class converted from a template, if
    /// both kinds of class have the name.
    fn class_of(&self, user: &Slot) -> Option<usize> {
        let Object::NodePool(pool) = &user.object else { return None };
        let reference = &pool.spec.template.spec.node_class_ref;
        let named = self.classes.get(&reference.name).filter(|_| reference.kind == "EC2NodeClass")?;
        if user.origin == Some("Provisioner") { named.template.or(named.other) } else { named.other.or(named.template) }
    }

    /// The pools that refer to a class now, in their order.
    fn users_of(&self, slots: &[Slot], class: usize) -> Vec<usize> {
        let Object::NodeClass(named) = &slots[class].object else { return Vec::new() };
        let users = self.users.get(&named.metadata.name).into_iter().flatten().copied();
        users.filter(|user| self.class_of(&slots[*user]) == Some(class)).collect()
    }

    /// A pool refers to a class of another name from now on.
    fn rename(&mut self, user: usize, before: &str, after: &str) {
        if let Some(users) = self.users.get_mut(before) {
            users.remove(&user);
        }
        self.users.entry(after.to_owned()).or_default().insert(user);
    }
}

fn note_missing_classes(work: &mut Work<'_>, references: &References) {
    for slot in &work.slots {
        if let (Object::NodePool(pool), Some(_)) = (&slot.object, &slot.kubelet)
            && references.class_of(slot).is_none()
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

fn split_class(work: &mut Work<'_>, references: &mut References, class: usize, derived: &mut Vec<(usize, Ec2NodeClass)>) {
    let users = references.users_of(&work.slots, class);
    let blocks = blocks_of(&work.slots, &users);
    let kept = if let [(only, _)] = blocks.as_slice() { only.clone() } else { kept_block(work, &users) };
    let Object::NodeClass(original) = &mut work.slots[class].object else { return };
    // A v1 class may have settings of its own, for the pools that have none.
    let kept = kept.filter(|_| original.spec.kubelet.is_none());
    let plain = original.as_ref().clone();
    if kept.is_some() {
        original.spec.kubelet.clone_from(&kept);
    }
    for (block, users) in blocks.into_iter().filter(|(block, _)| *block != kept) {
        let copy = derive(work, references, &plain, (block.as_ref(), users.as_slice()));
        derived.push((class, copy));
    }
}

/// The distinct blocks of pools, each with those that have it, in the order of the pools.
fn blocks_of(slots: &[Slot], users: &[usize]) -> Vec<(Option<Value>, Vec<usize>)> {
    let mut blocks: Vec<(Option<Value>, Vec<usize>)> = Vec::new();
    let mut positions: BTreeMap<Option<String>, usize> = BTreeMap::new();
    for user in users {
        let block = &slots[*user].kubelet;
        let position = *positions.entry(block.as_ref().map(Value::to_string)).or_insert(blocks.len());
        if position == blocks.len() {
            blocks.push((block.clone(), Vec::new()));
        }
        blocks[position].1.push(*user);
    }
    blocks
}

/// Derives a class with another block, and makes its pools refer to it.
fn derive(
    work: &mut Work<'_>,
    references: &mut References,
    plain: &Ec2NodeClass,
    (block, users): (Option<&Value>, &[usize]),
) -> Ec2NodeClass {
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
        if let Object::NodePool(pool) = &mut work.slots[*user].object {
            pool.spec.template.spec.node_class_ref.name.clone_from(&name);
            pools.push(format!("{:?}", pool.metadata.name));
        }
        references.rename(*user, &plain.metadata.name, &name);
    }
    let text = format!("made from {:?} for the kubelet settings of NodePool {}", plain.metadata.name, pools.join(", "));
    work.note_in_output("EC2NodeClass", &name, text);
    copy
}

/// A short, stable name for a block.
fn fingerprint(block: Option<&Value>) -> u32 {
    block
        .map(Value::to_string)
        .unwrap_or_default()
        .bytes()
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
