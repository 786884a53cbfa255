//! Volumes of StorageClasses that make none (`kubernetes.io/no-provisioner`): somebody makes them beforehand, and kube-scheduler binds a
//! free one that a pod's node reaches (scheduling 8.3).

use super::volume_place::{MAX_ALTERNATIVES, volume_terms};
use crate::requirements::Requirements;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec};
use whittle_api::{ClusterObjects, labels};

/// The provisioner of classes that make no volumes.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Volumes in the lists of all claims together: where claims differ in what they ask for, the lists of the others are made when asked for.
const LISTED_MAX: usize = 500_000;

/// A volume, and which of the places it is at.
#[derive(Clone, Copy, Debug)]
struct Made<'a> {
    volume: &'a PersistentVolume,
    place: usize,
}

/// The volumes of classes that make none, and the claims that wait for one of them, both by class. Each of many pods asks for its claims
/// several times, and looks at no volume that says nothing new.
#[derive(Clone, Debug, Default)]
pub(super) struct StaticVolumes<'a> {
    /// Those that name no claim.
    free: BTreeMap<&'a str, Vec<Made<'a>>>,
    /// By class, and namespace and name of the claim that they name.
    kept: BTreeMap<(&'a str, &'a str, &'a str), Vec<Made<'a>>>,
    /// Those of `free` that suit claims, by what these ask for: most have it in common with others.
    suitable: BTreeMap<&'a PersistentVolumeClaimSpec, Vec<Made<'a>>>,
    /// Where volumes are, each place once: ordered alternatives.
    places: Vec<Vec<Requirements>>,
    /// Namespace and name, sorted.
    waiting: BTreeMap<&'a str, Vec<(&'a str, &'a str)>>,
}

impl<'a> StaticVolumes<'a> {
    pub(super) fn of(objects: &'a ClusterObjects) -> Self {
        let makes_none = objects.storage_classes.iter().filter(|class| class.provisioner == NO_PROVISIONER);
        let mut volumes: BTreeMap<&str, Vec<&PersistentVolume>> =
            makes_none.map(|class| (class.metadata.name.as_str(), Vec::new())).collect();
        let mut out = Self::default();
        if volumes.is_empty() {
            return out;
        }
        for volume in &objects.volumes {
            if let Some(of_class) = volumes.get_mut(volume.spec.storage_class_name.as_str()) {
                of_class.push(volume);
            }
        }
        // A new machine brings more of the volumes that are on disks of its own, once it has started.
        volumes.retain(|_, of_class| !of_class.is_empty() && !of_class.iter().any(|volume| is_of_host(volume)));
        for (class, mut of_class) in volumes {
            of_class.sort_by_cached_key(|volume| volume.metadata.name.clone());
            out.add_class(class, &of_class);
        }
        out.add_claims(objects, LISTED_MAX);
        out
    }

    fn add_class(&mut self, class: &'a str, volumes: &[&'a PersistentVolume]) {
        let mut free = Vec::new();
        for &volume in volumes {
            let made = Made { volume, place: self.place_of(volume) };
            match &volume.spec.claim_ref {
                Some(claim) => self.kept.entry((class, claim.namespace.as_str(), claim.name.as_str())).or_default().push(made),
                None => free.push(made),
            }
        }
        self.free.insert(class, free);
    }

    fn place_of(&mut self, volume: &PersistentVolume) -> usize {
        let terms = volume_terms(volume);
        self.places.iter().position(|known| *known == terms).unwrap_or_else(|| {
            self.places.push(terms);
            self.places.len() - 1
        })
    }

    /// Adds the claims that wait for a volume, and lists those that suit them, as long as there is room for these lists.
    fn add_claims(&mut self, objects: &'a ClusterObjects, mut room: usize) {
        for claim in objects.volume_claims.iter().filter(|claim| claim.spec.volume_name.is_empty()) {
            let class = claim.spec.storage_class_name.as_deref().unwrap_or_default();
            let Some(free) = self.free.get(class) else { continue };
            self.waiting.entry(class).or_default().push((claim.metadata.namespace.as_str(), claim.metadata.name.as_str()));
            if room < free.len() || self.suitable.contains_key(&claim.spec) {
                continue;
            }
            let suitable = those_that_suit(free, claim);
            room -= suitable.len();
            self.suitable.insert(&claim.spec, suitable);
        }
        self.waiting.values_mut().for_each(|claims| claims.sort_unstable());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// The volumes of which one can be bound to an unbound claim, perhaps none. `None` where the class makes volumes, or new machines may
    /// bring some. Claims begin with different ones, so that pods which are planned together are not all sent to one volume.
    pub(super) fn of_claim(&self, claim: &PersistentVolumeClaim) -> Option<Vec<&'a PersistentVolume>> {
        Some(self.made_for(claim)?.into_iter().map(|made| made.volume).collect())
    }

    /// Where the first of these volumes are: ordered alternatives. Empty means anywhere.
    pub(super) fn places_of(&self, claim: &PersistentVolumeClaim) -> Option<Vec<Requirements>> {
        let mut is_seen = vec![false; self.places.len()];
        let mut out: Vec<Requirements> = Vec::new();
        for made in self.made_for(claim)? {
            if std::mem::replace(&mut is_seen[made.place], true) {
                continue;
            }
            let terms = &self.places[made.place];
            if terms.is_empty() {
                return Some(Vec::new());
            }
            for term in terms {
                if !out.contains(term) {
                    out.push(term.clone());
                }
            }
        }
        out.truncate(MAX_ALTERNATIVES);
        Some(out)
    }

    fn made_for(&self, claim: &PersistentVolumeClaim) -> Option<Vec<Made<'a>>> {
        let class = claim.spec.storage_class_name.as_deref()?;
        let free = self.free.get(class)?;
        let (namespace, name) = (claim.metadata.namespace.as_str(), claim.metadata.name.as_str());
        let mut kept = self.kept.get(&(class, namespace, name)).into_iter().flatten();
        if let Some(kept) = kept.find(|made| suits(made.volume, claim)) {
            return Some(vec![*kept]);
        }
        let mut suitable = self.suitable.get(&claim.spec).cloned().unwrap_or_else(|| those_that_suit(free, claim));
        let before = self.waiting.get(class).and_then(|claims| claims.binary_search(&(namespace, name)).ok()).unwrap_or(0);
        if !suitable.is_empty() {
            let first = before % suitable.len();
            suitable.rotate_left(first);
        }
        Some(suitable)
    }
}

fn those_that_suit<'a>(free: &[Made<'a>], claim: &PersistentVolumeClaim) -> Vec<Made<'a>> {
    free.iter().filter(|made| suits(made.volume, claim)).copied().collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::ObjectMeta;
    use whittle_api::k8s::{ClaimReference, PersistentVolumeSpec, StorageClass, VolumeResources};
    use whittle_units::Quantity;

    fn gibibytes(count: usize) -> whittle_units::Resources {
        [("storage", Quantity::from_units(i64::try_from(count).unwrap() << 30))].into()
    }

    /// A volume of one to four gibibytes, in one of three zones; for a claim if this is named.
    fn volume(number: usize, kept_for: Option<&str>) -> PersistentVolume {
        let claim = |name: &str| ClaimReference { namespace: "default".into(), name: name.into(), uid: String::new() };
        let spec = PersistentVolumeSpec {
            storage_class_name: "manual".into(),
            access_modes: vec!["ReadWriteOnce".into()],
            capacity: gibibytes(1 + number % 4),
            claim_ref: kept_for.map(claim),
            ..PersistentVolumeSpec::default()
        };
        let mut volume = PersistentVolume { metadata: ObjectMeta::named(format!("v{number:02}")), spec, ..PersistentVolume::default() };
        volume.metadata.labels.insert(labels::ZONE.into(), format!("z{}", number % 3));
        volume
    }

    /// A claim for one to five gibibytes.
    fn claim(number: usize) -> PersistentVolumeClaim {
        let spec = PersistentVolumeClaimSpec {
            storage_class_name: Some("manual".into()),
            access_modes: vec!["ReadWriteOnce".into()],
            resources: VolumeResources { requests: gibibytes(1 + number % 5) },
            ..PersistentVolumeClaimSpec::default()
        };
        let metadata = ObjectMeta::namespaced("default", format!("c{number:02}"));
        PersistentVolumeClaim { metadata, spec, ..PersistentVolumeClaim::default() }
    }

    /// Free volumes, one for the first claim, and one for a claim that is not there.
    fn objects() -> ClusterObjects {
        let class = StorageClass { metadata: ObjectMeta::named("manual"), provisioner: NO_PROVISIONER.into(), ..StorageClass::default() };
        let mut volumes: Vec<PersistentVolume> = (0..24).map(|number| volume(number, None)).collect();
        volumes.extend([volume(40, Some("c00")), volume(41, Some("other"))]);
        let (storage_classes, volume_claims) = (vec![class], (0..20).map(claim).collect());
        ClusterObjects { storage_classes, volumes: volumes.into(), volume_claims, ..ClusterObjects::default() }
    }

    fn names(volumes: &[&PersistentVolume]) -> Vec<String> {
        volumes.iter().map(|volume| volume.metadata.name.clone()).collect()
    }

    #[test]
    fn claims_find_the_same_volumes_with_lists_and_without() {
        let objects = objects();
        let listed = StaticVolumes::of(&objects);
        let mut unlisted = listed.clone();
        unlisted.suitable.clear();
        for (at, claim) in objects.volume_claims.iter().enumerate() {
            let found = listed.of_claim(claim).unwrap();
            assert_eq!(names(&found), names(&unlisted.of_claim(claim).unwrap()));
            assert_eq!(listed.places_of(claim), unlisted.places_of(claim));
            let mut expected: Vec<&PersistentVolume> = objects.volumes.iter().filter(|volume| suits(volume, claim)).collect();
            if at == 0 {
                assert_eq!(names(&found), ["v40"], "its own");
            } else {
                let first = if expected.is_empty() { 0 } else { at % expected.len() };
                expected.rotate_left(first);
                assert_eq!(names(&found), names(&expected), "{at}");
                assert_eq!(listed.places_of(claim).unwrap().len(), if expected.is_empty() { 0 } else { 3 });
            }
        }
        let mut stranger = objects.volume_claims[1].clone();
        stranger.spec.access_modes.clear();
        assert_eq!(listed.of_claim(&stranger).unwrap().len(), 18, "a claim that nobody has listed");
        stranger.spec.storage_class_name = Some("gp3".into());
        assert!(listed.of_claim(&stranger).is_none() && listed.places_of(&stranger).is_none(), "its class makes volumes");
    }

    #[test]
    fn equal_claims_share_a_list_and_lists_have_a_bound() {
        let objects = objects();
        let listed = StaticVolumes::of(&objects);
        assert_eq!((listed.suitable.len(), listed.waiting["manual"].len(), listed.places.len()), (5, 20, 3));
        let mut bounded = StaticVolumes { suitable: BTreeMap::new(), ..listed };
        bounded.waiting.clear();
        bounded.add_claims(&objects, 50);
        let volumes: usize = bounded.suitable.values().map(Vec::len).sum();
        assert!(volumes <= 50 && !bounded.suitable.is_empty() && bounded.waiting["manual"].len() == 20, "{volumes}");
    }
}
