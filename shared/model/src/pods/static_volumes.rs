//! Volumes of StorageClasses that make none (`kubernetes.io/no-provisioner`): somebody makes them beforehand, and kube-scheduler binds a
//! free one that a pod's node reaches (scheduling 8.3).

use super::volume_place::volume_terms;
use crate::requirements::Requirements;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{PersistentVolume, PersistentVolumeClaim};
use whittle_api::{ClusterObjects, labels};

/// The provisioner of classes that make no volumes.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The volumes of classes that make none, and the claims that wait for one of them, both by class.
#[derive(Clone, Debug, Default)]
pub(super) struct StaticVolumes<'a> {
    volumes: BTreeMap<&'a str, Vec<&'a PersistentVolume>>,
    /// Namespace and name, sorted.
    waiting: BTreeMap<&'a str, Vec<(&'a str, &'a str)>>,
}

impl<'a> StaticVolumes<'a> {
    pub(super) fn of(objects: &'a ClusterObjects) -> Self {
        let makes_none = objects.storage_classes.iter().filter(|class| class.provisioner == NO_PROVISIONER);
        let mut volumes: BTreeMap<&str, Vec<&PersistentVolume>> =
            makes_none.map(|class| (class.metadata.name.as_str(), Vec::new())).collect();
        if volumes.is_empty() {
            return Self::default();
        }
        for volume in &objects.volumes {
            if let Some(of_class) = volumes.get_mut(volume.spec.storage_class_name.as_str()) {
                of_class.push(volume);
            }
        }
        // A new machine brings more of the volumes that are on disks of its own, once it has started.
        volumes.retain(|_, of_class| !of_class.is_empty() && !of_class.iter().any(|volume| is_of_host(volume)));
        volumes.values_mut().for_each(|of_class| of_class.sort_by_cached_key(|volume| volume.metadata.name.clone()));
        let mut waiting: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for claim in objects.volume_claims.iter().filter(|claim| claim.spec.volume_name.is_empty()) {
            let class = claim.spec.storage_class_name.as_deref().unwrap_or_default();
            if volumes.contains_key(class) {
                waiting.entry(class).or_default().push((claim.metadata.namespace.as_str(), claim.metadata.name.as_str()));
            }
        }
        waiting.values_mut().for_each(|claims| claims.sort_unstable());
        Self { volumes, waiting }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.volumes.is_empty()
    }

    /// The volumes of which one can be bound to an unbound claim, perhaps none. `None` where the class makes volumes, or new machines may
    /// bring some. Claims begin with different ones, so that pods which are planned together are not all sent to one volume.
    pub(super) fn of_claim(&self, claim: &PersistentVolumeClaim) -> Option<Vec<&'a PersistentVolume>> {
        let class = claim.spec.storage_class_name.as_deref()?;
        let mut suitable: Vec<&'a PersistentVolume> =
            self.volumes.get(class)?.iter().copied().filter(|volume| suits(volume, claim)).collect();
        if let Some(kept) = suitable.iter().find(|volume| volume.spec.claim_ref.is_some()) {
            return Some(vec![*kept]);
        }
        let key = (claim.metadata.namespace.as_str(), claim.metadata.name.as_str());
        let before = self.waiting.get(class).and_then(|claims| claims.binary_search(&key).ok()).unwrap_or(0);
        if !suitable.is_empty() {
            let first = before % suitable.len();
            suitable.rotate_left(first);
        }
        Some(suitable)
    }
}

/// Whether each of several claims can have a volume of its own at a place, of those that suit it.
pub(super) fn have_one_each(place: &Requirements, suitable: &[Vec<&PersistentVolume>]) -> bool {
    let reaches = |volume: &PersistentVolume| {
        let terms = volume_terms(volume);
        terms.is_empty() || terms.iter().any(|term| term.intersects(place).is_ok())
    };
    let there = |volumes: &Vec<&PersistentVolume>| -> Vec<String> {
        volumes.iter().filter(|volume| reaches(volume)).map(|volume| volume.metadata.name.clone()).collect()
    };
    let choices: Vec<Vec<String>> = suitable.iter().map(there).collect();
    let mut holders = BTreeMap::new();
    (0..choices.len()).all(|claim| takes_one(claim, &choices, &mut holders, &mut BTreeSet::new()))
}

/// Gives a claim a volume, for which others may have to take another of theirs.
fn takes_one<'v>(claim: usize, choices: &'v [Vec<String>], holders: &mut BTreeMap<&'v str, usize>, tried: &mut BTreeSet<&'v str>) -> bool {
    for volume in choices[claim].iter().map(String::as_str) {
        if !tried.insert(volume) {
            continue;
        }
        let holder = holders.get(volume).copied();
        if holder.is_none_or(|holder| takes_one(holder, choices, holders, tried)) {
            holders.insert(volume, claim);
            return true;
        }
    }
    false
}

/// Whether kube-scheduler would bind a volume to a claim, as far as that does not depend on the node. One that names the claim need not
/// have the labels and access modes that the claim asks for.
fn suits(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (has, wants) = (&volume.spec, &claim.spec);
    let is_too_small = has.capacity.get("storage") < wants.resources.requests.get("storage");
    if volume.metadata.is_deleting() || is_too_small || mode(has.volume_mode.as_deref()) != mode(wants.volume_mode.as_deref()) {
        return false;
    }
    if let Some(kept) = &has.claim_ref {
        let is_uid = kept.uid.is_empty() || kept.uid == claim.metadata.uid;
        return is_uid && kept.name == claim.metadata.name && kept.namespace == claim.metadata.namespace;
    }
    // Manifests have no phase.
    matches!(volume.status.phase.as_str(), "" | "Available")
        && wants.selector.as_ref().is_none_or(|selector| selector.matches(&volume.metadata.labels))
        && wants.access_modes.iter().all(|mode| has.access_modes.contains(mode))
}

fn mode(mode: Option<&str>) -> &str {
    mode.filter(|mode| !mode.is_empty()).unwrap_or("Filesystem")
}

/// Whether only one machine has a volume.
fn is_of_host(volume: &PersistentVolume) -> bool {
    let spec = &volume.spec;
    let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    let mut expressions = required.iter().flat_map(|required| &required.node_selector_terms).flat_map(|term| &term.match_expressions);
    spec.local.is_some() || spec.host_path.is_some() || expressions.any(|expression| expression.key == labels::HOSTNAME)
}
