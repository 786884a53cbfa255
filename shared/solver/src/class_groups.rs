//! What topology groups mean for classes: which groups count a class, and which classes no selector distinguishes.

use super::groups::SelectingGroups;
use super::hash::{Hashed, Map};
use super::ids::{ClassId, GroupId, IdVec};
use super::pod::{Class, Relaxation};
use super::pod_classes::Classes;
use super::topology::{Group, GroupKind};
use std::hash::{Hash, Hasher};

/// Joins the classes with the groups that count or repel them, then merges those that are equal from here on.
pub(crate) fn join(classes: &mut Classes, groups: &IdVec<GroupId, Group>, selecting: &SelectingGroups) {
    set_groups(classes, groups, selecting);
    merge(classes);
}

/// Sets the groups that count each class and those that repel it.
fn set_groups(classes: &mut Classes, groups: &IdVec<GroupId, Group>, selecting: &SelectingGroups) {
    for class in &mut classes.list {
        if let Some(by) = selecting.by(class.labels) {
            class.counted_by.clone_from(&by.counting);
            class.relaxations.iter_mut().for_each(|relaxation| relaxation.repelled_by.clone_from(&by.repelling));
        }
        for relaxation in &mut class.relaxations {
            relaxation.volatile = relaxation.owned.iter().any(|g| {
                let group = &groups[*g];
                matches!((group.kind, group.by_host), (GroupKind::Spread { .. }, false) | (GroupKind::Affinity, _))
            });
        }
        let is_aside = |id: &GroupId| groups[*id].left_aside;
        // Preferences that are left aside are dropped: without them the pod may go wherever it may with them.
        let is_whole = |relaxation: &Relaxation| !relaxation.owned.iter().any(is_aside);
        if class.relaxations.iter().any(is_whole) {
            class.relaxations.retain(is_whole);
        }
        class.left_aside = class.relaxations.iter().flat_map(|relaxation| &relaxation.owned).chain(&class.repels).any(is_aside);
    }
}

/// Merges classes that differ only in labels, where no selector distinguishes them. Jobs and StatefulSets label each of
/// their pods differently.
fn merge(classes: &mut Classes) {
    let mut first_of: Map<Hashed<ClassIdentity<'_>>, ClassId> = Map::default();
    let first: IdVec<ClassId, ClassId> =
        classes.list.enumerate().map(|(id, class)| *first_of.entry(Hashed::of(ClassIdentity(class))).or_insert(id)).collect();
    if first_of.len() == classes.list.len() {
        return;
    }
    drop(first_of);
    let mut merged: IdVec<ClassId, ClassId> = IdVec::new();
    let mut list: IdVec<ClassId, Class> = IdVec::new();
    for (id, class) in std::mem::take(&mut classes.list).into_enumerate() {
        if first[id] == id {
            merged.push(list.push(class));
        } else {
            // The first of its kind came earlier.
            let kept = merged[first[id]];
            list[kept].size += class.size;
            merged.push(kept);
        }
    }
    for of in &mut classes.of {
        *of = merged[*of];
    }
    classes.list = list;
}

/// A class, compared by everything that placing its pods depends on. Its labels matter only through the groups that select
/// them.
struct ClassIdentity<'c>(&'c Class);

impl ClassIdentity<'_> {
    fn seen(&self) -> impl Hash + Eq + '_ {
        let Class { requests, resources, ports, volumes, missed_drivers, repels, counted_by, avoids_spared, resource_claims, .. } = self.0;
        let claims = (volumes, &self.0.one_pod_claims);
        (requests, resources, ports, claims, missed_drivers, repels, counted_by, avoids_spared, resource_claims, &self.0.avoids)
    }

    fn relaxations(&self) -> impl Iterator<Item = impl Hash + Eq + '_> + '_ {
        self.0.relaxations.iter().map(|f| (f.full, f.strict, &f.host, f.tolerations, &f.owned, &f.repelled_by))
    }

    fn places(&self) -> impl Iterator<Item = impl Hash + Eq + '_> + '_ {
        self.0.places.iter().map(|p| (p.set, &p.host))
    }
}

impl PartialEq for ClassIdentity<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.seen() == other.seen() && self.relaxations().eq(other.relaxations()) && self.places().eq(other.places())
    }
}

impl Eq for ClassIdentity<'_> {}

impl Hash for ClassIdentity<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.seen().hash(state);
        self.relaxations().for_each(|relaxation| relaxation.hash(state));
    }
}
