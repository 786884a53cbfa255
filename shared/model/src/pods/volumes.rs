//! Persistent volume claims: whether they can be bound, where they restrict their pod to, and which driver attaches
//! them.

use super::is_active;
use super::static_volumes::{StaticVolumes, have_one_each};
use super::volume_place::{MAX_ALTERNATIVES, volume_terms};
use crate::requirements::{Allowed, Requirements, canonical_key};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{CsiNode, Kind, Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass};
use whittle_api::{ClusterObjects, labels};

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The node that kube-scheduler has chosen for an unbound claim. Until the provisioner has made the volume, or taken the annotation away,
/// kube-scheduler puts the claim's pods nowhere else.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The access mode of a claim that one pod at a time may use.
const ONE_POD: &str = "ReadWriteOncePod";
/// The driver of EBS volumes, on nodes that run one: how many it attaches is known of each instance type.
pub const EBS_DRIVER: &str = "ebs.csi.aws.com";

/// The driver of EBS volumes of EKS Auto Mode, which is on no other nodes, and what its nodes have for the label of their compute type.
const AUTO_MODE_DRIVER: &str = "ebs.csi.eks.amazonaws.com";
const AUTO_MODE: &str = "auto";

/// A claim of a pod and the driver that attaches its volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeUse {
    pub driver: String,
    /// `namespace/name` of the claim.
    pub claim: String,
}

impl VolumeUse {
    /// Whether it is an EBS volume.
    #[must_use]
    pub fn is_ebs(&self) -> bool {
        self.driver == EBS_DRIVER
    }
}

/// The storage objects of a cluster, by name.
#[derive(Clone, Debug)]
pub struct Volumes<'a> {
    claims: BTreeMap<(&'a str, &'a str), &'a PersistentVolumeClaim>,
    volumes: BTreeMap<&'a str, &'a PersistentVolume>,
    classes: BTreeMap<&'a str, &'a StorageClass>,
    csi_nodes: BTreeMap<&'a str, &'a CsiNode>,
    /// The claims that one pod at a time may use.
    of_one_pod: BTreeSet<(&'a str, &'a str)>,
    /// By such claim: the pod that uses it.
    users: BTreeMap<(&'a str, &'a str), &'a Pod>,
    made_beforehand: StaticVolumes<'a>,
    objects: &'a ClusterObjects,
}

impl<'a> Volumes<'a> {
    /// Indexes the storage objects.
    #[must_use]
    pub fn of(objects: &'a ClusterObjects) -> Self {
        let of_one_pod = of_one_pod(objects);
        Self {
            claims: objects.volume_claims.iter().map(|c| ((c.metadata.namespace.as_str(), c.metadata.name.as_str()), c)).collect(),
            volumes: objects.volumes.iter().map(|v| (v.metadata.name.as_str(), v)).collect(),
            classes: objects.storage_classes.iter().map(|c| (c.metadata.name.as_str(), c)).collect(),
            csi_nodes: objects.csi_nodes.iter().map(|c| (c.metadata.name.as_str(), c)).collect(),
            users: users(objects, &of_one_pod),
            of_one_pod,
            made_beforehand: StaticVolumes::of(objects),
            objects,
        }
    }

    /// How many volumes of each driver `node` can attach; drivers without a limit are absent.
    #[must_use]
    pub fn attach_limits(&self, node: &str) -> BTreeMap<String, usize> {
        let drivers = self.csi_nodes.get(node).map(|c| &c.spec.drivers[..]).unwrap_or_default();
        drivers.iter().filter_map(|d| Some((d.name.clone(), usize::try_from(d.allocatable.as_ref()?.count?).unwrap_or(0)))).collect()
    }

    /// Whether `driver` has registered on `node`: then its limit, or that it has none, is known.
    #[must_use]
    pub fn has_driver(&self, node: &str, driver: &str) -> bool {
        self.csi_nodes.get(node).is_some_and(|csi| csi.spec.drivers.iter().any(|known| known.name == driver))
    }

    /// The errors in the pod's claims; a pod with any is not scheduled.
    #[must_use]
    pub fn claim_errors(&self, pod: &Pod) -> Vec<String> {
        let namespace = pod.metadata.namespace.as_str();
        let mut out: Vec<String> = pod.volume_claim_names().filter_map(|name| self.claim_error(namespace, &name)).collect();
        // Kube-scheduler binds no second pod, wherever it would run; Karpenter launches a machine for it all the same.
        out.extend(shareable_claims(pod).filter_map(|name| {
            let user = self.users.get(&(namespace, name))?.metadata.key();
            Some(format!(
                "persistentvolumeclaim \"{name}\" is {ONE_POD} and used by {user}: no other pod can run before that one has ended"
            ))
        }));
        if out.is_empty() { self.too_few_volumes_error(pod).into_iter().collect() } else { out }
    }

    /// The pod's claims that one pod at a time may use, as `namespace/name`: kube-scheduler lets no second one use them, on whichever node.
    #[must_use]
    pub fn one_pod_claims(&self, pod: &Pod) -> Vec<String> {
        if self.of_one_pod.is_empty() {
            return Vec::new();
        }
        let namespace = pod.metadata.namespace.as_str();
        let own = shareable_claims(pod).filter(|name| self.of_one_pod.contains(&(namespace, *name)));
        let mut out: Vec<String> = own.map(|name| format!("{namespace}/{name}")).collect();
        out.sort();
        out.dedup();
        out
    }

    fn claim_error(&self, namespace: &str, name: &str) -> Option<String> {
        let Some(claim) = self.claims.get(&(namespace, name)) else {
            return Some(format!("getting persistent volume claim, persistentvolumeclaims \"{name}\" not found"));
        };
        if claim.metadata.is_deleting() {
            return Some(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        if claim.status.get("phase").and_then(|p| p.as_str()) == Some("Lost") {
            return Some(format!("persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{}\"", claim.spec.volume_name));
        }
        if !claim.spec.volume_name.is_empty() {
            let volume = &claim.spec.volume_name;
            return match self.volumes.get(volume.as_str()) {
                None => Some(format!("persistentvolume \"{volume}\" of persistentvolumeclaim \"{name}\" not found")),
                Some(v) if v.metadata.is_deleting() => Some(format!("persistentvolume \"{volume}\" is being deleted")),
                Some(_) if claim.metadata.annotation(BIND_COMPLETED).is_none() => {
                    Some(format!("persistentvolumeclaim \"{name}\" is not bound yet: it lacks the annotation {BIND_COMPLETED}"))
                }
                Some(_) => None,
            };
        }
        let class = claim.spec.storage_class_name.as_deref().unwrap_or_default();
        if class.is_empty() {
            return Some(format!("unbound persistentvolumeclaim \"{name}\" must define a storage class"));
        }
        match self.classes.get(class) {
            None => Some(format!("storageclass \"{class}\" of persistentvolumeclaim \"{name}\" not found")),
            Some(c) if c.volume_binding_mode.is_empty() || c.volume_binding_mode == "Immediate" => {
                Some(format!("unbound persistentvolumeclaim \"{name}\" with volumeBindingMode Immediate must be bound first"))
            }
            Some(class) => self.selected_node_error(claim, class).or_else(|| self.no_free_volume_error(claim, class)),
        }
    }

    /// That a class makes no volumes, and nobody has made one that is left: kube-scheduler binds the pod nowhere.
    fn no_free_volume_error(&self, claim: &PersistentVolumeClaim, class: &StorageClass) -> Option<String> {
        let volumes = self.made_beforehand.of_claim(claim)?;
        let (name, class, provisioner) = (&claim.metadata.name, &class.metadata.name, &class.provisioner);
        volumes.is_empty().then(|| {
            format!(
                "no persistentvolume of storageclass \"{class}\" is free for persistentvolumeclaim \"{name}\", and {provisioner} \
                 makes none: create one of its size, access modes and volumeMode that its selector selects, or free a released one \
                 by removing its spec.claimRef"
            )
        })
    }

    /// That no node reaches a free volume for each of the pod's claims.
    fn too_few_volumes_error(&self, pod: &Pod) -> Option<String> {
        let to_bind = self.to_bind(pod);
        if to_bind.len() < 2 {
            return None;
        }
        let places = self.alternatives(pod).unwrap_or_default();
        let is_enough_at = |place: &Requirements| have_one_each(place, &to_bind);
        let is_enough = if places.is_empty() { is_enough_at(&Requirements::new()) } else { places.iter().any(is_enough_at) };
        let count = to_bind.len();
        (!is_enough).then(|| {
            format!(
                "no node reaches a persistentvolume of its own for each of {count} persistentvolumeclaims whose storageclass makes none: \
                 create more where the others are"
            )
        })
    }

    /// The volumes that can be bound to each of the pod's claims that somebody has to make a volume for.
    fn to_bind(&self, pod: &Pod) -> Vec<Vec<&'a PersistentVolume>> {
        if self.made_beforehand.is_empty() {
            return Vec::new();
        }
        let names: BTreeSet<String> = pod.volume_claim_names().collect();
        let claims = names.iter().filter_map(|name| self.claims.get(&(pod.metadata.namespace.as_str(), name.as_str())));
        let unbound = claims.filter(|claim| claim.spec.volume_name.is_empty());
        unbound.filter_map(|claim| self.made_beforehand.of_claim(claim)).collect()
    }

    /// That a volume is to be made for a node that is gone: a provisioner that runs notices soon, and then any node will do.
    fn selected_node_error(&self, claim: &PersistentVolumeClaim, class: &StorageClass) -> Option<String> {
        let node = claim.metadata.annotation(SELECTED_NODE)?;
        // Objects that are read from files may be without Nodes.
        if self.objects.nodes.is_empty() || self.node(node).is_some() || self.objects.is_unreadable(Node::KIND, node) {
            return None;
        }
        let (name, provisioner) = (&claim.metadata.name, &class.provisioner);
        Some(format!(
            "the volume of persistentvolumeclaim \"{name}\" is to be made for node \"{node}\", which is gone: {provisioner} removes the \
             annotation {SELECTED_NODE} if it runs in the cluster, and kube-scheduler then chooses another node"
        ))
    }

    fn node(&self, name: &str) -> Option<&'a Node> {
        self.objects.nodes.iter().find(|node| node.metadata.name == name)
    }

    /// The only place of an unbound claim that a node has been selected for. One that is about to go is none.
    fn selected_place(&self, claim: &PersistentVolumeClaim) -> Option<Requirements> {
        let node = self.node(claim.metadata.annotation(SELECTED_NODE)?)?;
        if node.metadata.is_deleting() || node.has_disrupted_taint() {
            return None;
        }
        let hostname = node.metadata.label(labels::HOSTNAME).filter(|name| !name.is_empty()).unwrap_or(&node.metadata.name);
        Some([(labels::HOSTNAME.to_owned(), Allowed::one(hostname.to_owned()))].into_iter().collect())
    }

    /// Where the pod's volumes allow it to run: ordered alternatives, of which one must hold. Empty means anywhere.
    ///
    /// # Errors
    ///
    /// A claim, volume or class does not exist.
    pub fn alternatives(&self, pod: &Pod) -> Result<Vec<Requirements>, String> {
        let mut out: Vec<Requirements> = Vec::new();
        for name in pod.volume_claim_names() {
            let of_claim = self.alternatives_of(&pod.metadata.namespace, &name)?;
            if of_claim.is_empty() {
                continue;
            }
            out = if out.is_empty() { of_claim } else { combine(&out, &of_claim) };
            out.truncate(MAX_ALTERNATIVES);
        }
        let to_bind = self.to_bind(pod);
        if to_bind.len() > 1 && out.iter().any(|place| have_one_each(place, &to_bind)) {
            out.retain(|place| have_one_each(place, &to_bind));
        }
        Ok(out)
    }

    fn alternatives_of(&self, namespace: &str, name: &str) -> Result<Vec<Requirements>, String> {
        let claim = self
            .claims
            .get(&(namespace, name))
            .ok_or_else(|| format!("getting persistent volume claim, persistentvolumeclaims \"{name}\" not found"))?;
        let places = self.places_of(claim)?;
        Ok(if self.driver(claim) == Some(AUTO_MODE_DRIVER) { on_auto_mode(places) } else { places })
    }

    fn places_of(&self, claim: &PersistentVolumeClaim) -> Result<Vec<Requirements>, String> {
        if !claim.spec.volume_name.is_empty() {
            let volume = self
                .volumes
                .get(claim.spec.volume_name.as_str())
                .ok_or_else(|| format!("persistentvolume \"{}\" not found", claim.spec.volume_name))?;
            return Ok(volume_terms(volume));
        }
        let class = claim.spec.storage_class_name.as_deref().unwrap_or_default();
        let Some(class) = self.classes.get(class) else {
            return if class.is_empty() { Ok(Vec::new()) } else { Err(format!("storageclass \"{class}\" not found")) };
        };
        if let Some(places) = self.made_beforehand.places_of(claim) {
            return Ok(places);
        }
        if let Some(place) = self.selected_place(claim) {
            return Ok(vec![place]);
        }
        let term = |t: &whittle_api::k8s::TopologySelectorTerm| -> Requirements {
            t.match_label_expressions
                .iter()
                .map(|e| (canonical_key(&e.key).to_owned(), Allowed::one_of(e.values.iter().cloned())))
                .collect()
        };
        Ok(class.allowed_topologies.iter().filter(|t| !t.match_label_expressions.is_empty()).map(term).collect())
    }

    /// Two claims of the pod whose volumes no node reaches both, and where the first alternative of each is; `None` if there are none.
    #[must_use]
    pub fn apart(&self, pod: &Pod) -> Option<[(String, Requirements); 2]> {
        let placed = pod.volume_claim_names().filter_map(|name| {
            let alternatives = self.alternatives_of(&pod.metadata.namespace, &name).ok()?;
            (!alternatives.is_empty()).then_some((name, alternatives))
        });
        let placed: Vec<(String, Vec<Requirements>)> = placed.take(MAX_ALTERNATIVES).collect();
        let pairs = placed.iter().enumerate().flat_map(|(at, first)| placed[at + 1..].iter().map(move |second| (first, second)));
        let mut apart = pairs.filter(|((_, first), (_, second))| {
            let mut both = first.iter().flat_map(|one| second.iter().map(move |other| (one, other)));
            both.all(|(one, other)| one.intersects(other).is_err())
        });
        apart.next().map(|(first, second)| [first, second].map(|(name, places)| (name.clone(), places[0].clone())))
    }

    /// The pod's claims with their drivers, except claims without a known driver, which are not limited.
    #[must_use]
    pub fn uses(&self, pod: &Pod) -> Vec<VolumeUse> {
        let namespace = &pod.metadata.namespace;
        let with_driver = |name: String| {
            let driver = self.driver(self.claims.get(&(namespace.as_str(), name.as_str()))?)?.to_owned();
            Some(VolumeUse { driver, claim: format!("{namespace}/{name}") })
        };
        let mut out: Vec<VolumeUse> = pod.volume_claim_names().filter_map(with_driver).collect();
        out.sort();
        out.dedup();
        out
    }

    fn driver(&self, claim: &PersistentVolumeClaim) -> Option<&'a str> {
        if !claim.spec.volume_name.is_empty() {
            let volume: &'a PersistentVolume = self.volumes.get(claim.spec.volume_name.as_str()).copied()?;
            let of_csi = volume.spec.csi.as_ref().map(|csi| csi.driver.as_str());
            return of_csi.or_else(|| volume.spec.aws_elastic_block_store.as_ref().map(|_| EBS_DRIVER));
        }
        let class: &'a StorageClass = self.classes.get(claim.spec.storage_class_name.as_deref()?).copied()?;
        Some(csi_name(&class.provisioner))
    }
}

/// The same places, on nodes of EKS Auto Mode.
fn on_auto_mode(mut places: Vec<Requirements>) -> Vec<Requirements> {
    if places.is_empty() {
        places.push(Requirements::new());
    }
    for place in &mut places {
        place.add(labels::COMPUTE_TYPE.to_owned(), Allowed::one(AUTO_MODE.to_owned()));
    }
    places
}

/// The CSI driver that replaces an in-tree plugin.
fn csi_name(provisioner: &str) -> &str {
    match provisioner {
        "kubernetes.io/aws-ebs" => EBS_DRIVER,
        "kubernetes.io/gce-pd" => "pd.csi.storage.gke.io",
        "kubernetes.io/azure-disk" => "disk.csi.azure.com",
        "kubernetes.io/azure-file" => "file.csi.azure.com",
        "kubernetes.io/cinder" => "cinder.csi.openstack.org",
        "kubernetes.io/vsphere-volume" => "csi.vsphere.vmware.com",
        "kubernetes.io/portworx-volume" => "pxd.portworx.com",
        other => other,
    }
}

/// The names of a pod's claims that are not made for it alone.
fn shareable_claims(pod: &Pod) -> impl Iterator<Item = &str> {
    pod.spec.volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref()).map(|source| source.claim_name.as_str())
}

/// The fault of a pod that waits for `user` (`namespace/name`), which is to use `claim` (`namespace/name`) and has no node yet.
#[must_use]
pub fn planned_for_another(claim: &str, user: &str) -> String {
    let name = claim.rsplit_once('/').map_or(claim, |(_, name)| name);
    format!("persistentvolumeclaim \"{name}\" is {ONE_POD} and planned for {user}: no other pod can run before that one has ended")
}

/// The claims that one pod at a time may use.
fn of_one_pod(objects: &ClusterObjects) -> BTreeSet<(&str, &str)> {
    let claims = objects.volume_claims.iter().filter(|claim| claim.spec.access_modes.iter().any(|mode| mode == ONE_POD));
    claims.map(|claim| (claim.metadata.namespace.as_str(), claim.metadata.name.as_str())).collect()
}

/// By claim of `of_one_pod`: the pod that has a node and stays. The successor of one that ends gets its machine meanwhile.
fn users<'a>(objects: &'a ClusterObjects, of_one_pod: &BTreeSet<(&'a str, &'a str)>) -> BTreeMap<(&'a str, &'a str), &'a Pod> {
    if of_one_pod.is_empty() {
        return BTreeMap::new();
    }
    let running = objects.pods.iter().filter(|pod| pod.is_bound() && is_active(pod));
    let used = running.flat_map(|pod| shareable_claims(pod).map(move |claim| ((pod.metadata.namespace.as_str(), claim), pod)));
    used.filter(|(claim, _)| of_one_pod.contains(claim)).collect()
}

/// All compatible pairs, in order; all pairs if none is compatible, so that scheduling reports the conflict.
fn combine(first: &[Requirements], second: &[Requirements]) -> Vec<Requirements> {
    let pair = |a: &Requirements, b: &Requirements| {
        let mut both = a.clone();
        both.add_all(b);
        both
    };
    let pairs = || first.iter().flat_map(|a| second.iter().map(move |b| (a, b))).take(MAX_ALTERNATIVES * MAX_ALTERNATIVES);
    let fitting: Vec<Requirements> = pairs().filter(|(a, b)| a.intersects(b).is_ok()).map(|(a, b)| pair(a, b)).collect();
    if fitting.is_empty() { pairs().map(|(a, b)| pair(a, b)).collect() } else { fitting }
}
