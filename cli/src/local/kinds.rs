//! The kinds that the simulated cluster holds, under every name that kubectl knows for them.

use super::rows::{self, Listed};
use crate::similar::{nearest, nearest_name};
use jiff::Timestamp;
use whittle_api::ObjectMeta;
use whittle_api::k8s::{
    ConfigMap, CsiNode, DaemonSet, Deployment, Kind, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodDisruptionBudget,
    PriorityClass, ReplicaSet, Service, StatefulSet, StorageClass, StoredPodTemplate, VolumeAttachment,
};
use whittle_api::karpenter::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};
use whittle_sim::World;
use whittle_sim::cluster::{Cluster, NoSuchObject, Tabled};

/// Deletes one object by its key; without a time it only says whether there is one.
type Remove = fn(&mut Cluster, &str, Option<Timestamp>) -> Result<(), NoSuchObject>;

/// Changes the metadata of one object, which it finds by its key.
type Relabel = fn(&mut Cluster, &str, &dyn Fn(&mut ObjectMeta)) -> Result<(), NoSuchObject>;

/// How objects of a kind are changed without a manifest.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    pub(crate) remove: Remove,
    /// None of kinds that are kept in another form than they were applied in.
    pub(crate) relabel: Option<Relabel>,
}

/// Lists the objects of a kind.
type List = for<'a> fn(&'a World) -> Vec<Listed<'a>>;

/// A kind: its names, its columns, and how its objects are found.
pub(crate) struct KindEntry {
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) short: &'static [&'static str],
    pub(crate) namespaced: bool,
    /// Columns between the name and the age.
    pub(crate) columns: &'static [&'static str],
    /// Columns after the age, shown with `-o wide`.
    pub(crate) wide: &'static [&'static str],
    pub(crate) list: List,
    /// None of what nobody changes by itself.
    pub(crate) access: Option<Access>,
}

impl KindEntry {
    /// The name in front of the slash in `deployment/web`.
    pub(crate) fn singular(&self) -> String {
        self.kind.to_lowercase()
    }
    /// Whether an object of it stands for a machine, which goes with it.
    pub(crate) fn is_of_machines(&self) -> bool {
        [Node::KIND, NodeClaim::KIND].contains(&self.kind)
    }
    /// Whether a word of a command means this kind.
    fn is_called(&self, word: &str) -> bool {
        self.plural == word || self.short.contains(&word) || self.kind.eq_ignore_ascii_case(word)
    }
}

/// Kinds of real clusters that the simulation does not hold, and what to do instead.
const ABSENT: &[(&[&str], &str)] = &[
    (&["job", "jobs", "cronjob", "cronjobs", "cj"], "Jobs are not simulated: `whittle plan -f FILE` plans their pods"),
    (&["machine", "machines"], "Machines are NodeClaims now: `get nodeclaims`"),
    (&["secret", "secrets"], "Secrets are not simulated: nothing runs in the containers that could read them"),
    (&["serviceaccount", "serviceaccounts", "sa"], "ServiceAccounts are not simulated: the functions have all the rights of their roles"),
    (&["ingress", "ingresses", "ing", "endpoints", "ep"], "networks are not simulated: `get services` shows selectors alone"),
    (&["hpa", "horizontalpodautoscaler", "horizontalpodautoscalers"], "autoscaling of pods is not simulated: `scale` does its work"),
    (&["replicationcontroller", "replicationcontrollers", "rc"], "ReplicationControllers are not simulated: make a Deployment of it"),
    (&["crd", "crds", "customresourcedefinition", "customresourcedefinitions"], "CRDs are not simulated: all kinds of Karpenter are there"),
];

/// The kinds of `get all`, as with kubectl.
pub(crate) const ALL: [&str; 6] = ["pods", "services", "daemonsets", "deployments", "replicasets", "statefulsets"];

/// The kind that a word of a command means; `nodepools.karpenter.sh` is the same as `nodepools`.
pub(crate) fn find(word: &str) -> Result<&'static KindEntry, String> {
    let lower = word.to_lowercase();
    let bare = lower.split('.').next().unwrap_or(&lower);
    if let Some(entry) = KINDS.iter().find(|entry| entry.is_called(bare)) {
        return Ok(entry);
    }
    if let Some((_, remedy)) = ABSENT.iter().find(|(names, _)| names.contains(&bare)) {
        return Err((*remedy).to_owned());
    }
    let known = KINDS.iter().flat_map(|entry| std::iter::once(entry.plural.to_owned()).chain([entry.singular()]));
    match nearest(bare, known) {
        Some(near) => Err(format!("the simulation holds no {word:?}; did you mean {near}?")),
        None => {
            let plurals: Vec<&str> = KINDS.iter().map(|entry| entry.plural).collect();
            Err(format!("the simulation holds no {word:?}; it holds {}", plurals.join(", ")))
        }
    }
}

/// A hint at the object of a kind whose name a mistyped one is most similar to; empty if none is.
pub(crate) fn did_you_mean(world: &World, entry: &KindEntry, name: &str) -> String {
    let near = nearest_name(name, (entry.list)(world).into_iter().map(|row| row.name)).filter(|near| near != name);
    near.map(|near| format!("; did you mean {near}?")).unwrap_or_default()
}

fn remove<T: Tabled>(cluster: &mut Cluster, key: &str, now: Option<Timestamp>) -> Result<(), NoSuchObject> {
    match now {
        Some(now) => cluster.remove::<T>(key, now),
        None => cluster.known::<T>(key),
    }
}

fn relabel<T: Tabled>(cluster: &mut Cluster, key: &str, change: &dyn Fn(&mut ObjectMeta)) -> Result<(), NoSuchObject> {
    cluster.known::<T>(key)?;
    cluster.objects.change::<T>(key, |object| change(object.meta_mut()));
    Ok(())
}

/// The access to a kind that is stored as it is applied.
const fn stored<T: Tabled>() -> Option<Access> {
    Some(Access { remove: remove::<T>, relabel: Some(relabel::<T>) })
}

/// The access to a kind from before v1, which is stored as what it becomes.
const fn converted(remove: Remove) -> Option<Access> {
    Some(Access { remove, relabel: None })
}

/// Deletes a ReplicaSet. That of a Deployment is only in what its pods say: they go with it, and the Deployment makes both again.
fn remove_replica_set(cluster: &mut Cluster, key: &str, now: Option<Timestamp>) -> Result<(), NoSuchObject> {
    let is_its = |pod: &&Pod| {
        let owner = pod.metadata.controller().filter(|owner| owner.kind == ReplicaSet::KIND);
        owner.is_some_and(|owner| key == format!("{}/{}", pod.metadata.namespace, owner.name))
    };
    let pods: Vec<String> = cluster.objects.pods.values().filter(is_its).map(|pod| pod.metadata.key()).collect();
    if pods.is_empty() || cluster.objects.replica_sets.contains_key(key) {
        return remove::<ReplicaSet>(cluster, key, now);
    }
    if let Some(now) = now {
        pods.iter().for_each(|pod| cluster.delete_pod(pod, None, now));
    }
    Ok(())
}

/// Deletes what a Provisioner or an AWSNodeTemplate became.
fn remove_pool_of(cluster: &mut Cluster, name: &str, now: Option<Timestamp>) -> Result<(), NoSuchObject> {
    remove::<NodePool>(cluster, &format!("Provisioner/{name}"), now)
}

fn remove_class_of(cluster: &mut Cluster, name: &str, now: Option<Timestamp>) -> Result<(), NoSuchObject> {
    remove::<Ec2NodeClass>(cluster, &format!("AWSNodeTemplate/{name}"), now)
}

/// Labels have only those that are stored.
const REPLICA_SET: Option<Access> = Some(Access { remove: remove_replica_set, relabel: Some(relabel::<ReplicaSet>) });

/// Kind, plural and short names.
type Names = (&'static str, &'static str, &'static [&'static str]);

/// A kind whose objects are in no namespace, without columns of its own.
const fn cluster_scoped((kind, plural, short): Names, list: List, access: Option<Access>) -> KindEntry {
    KindEntry { kind, plural, short, namespaced: false, columns: &[], wide: &[], list, access }
}

/// A kind whose objects are in namespaces, without columns of its own.
const fn namespaced(names: Names, list: List, access: Option<Access>) -> KindEntry {
    KindEntry { namespaced: true, ..cluster_scoped(names, list, access) }
}

const POOL: &[&str] = &["NODECLASS", "NODES", "READY"];
const POOL_WIDE: &[&str] = &["WEIGHT", "CPU", "MEMORY", "LIMITS"];
const CLASS: &[&str] = &["READY", "AMIS", "SUBNETS", "GROUPS"];
const CLASS_WIDE: &[&str] = &["PROFILE", "ZONES"];

/// Every kind. What kubectl lists first comes first, so that completion offers it first.
pub(crate) const KINDS: &[KindEntry] = &[
    KindEntry {
        columns: &["STATUS", "POOL", "TYPE", "CAPACITY", "ZONE", "PODS", "PRICE"],
        wide: &["CPU", "MEMORY", "INSTANCE", "VERSION", "TAINTS"],
        ..cluster_scoped(("Node", "nodes", &["no"]), rows::nodes, stored::<Node>())
    },
    KindEntry {
        columns: &["STATUS", "NODE"],
        wide: &["CPU", "MEMORY", "REASON"],
        ..namespaced(("Pod", "pods", &["po"]), rows::pods, stored::<Pod>())
    },
    KindEntry {
        columns: &["READY", "UP-TO-DATE", "AVAILABLE"],
        wide: &["SELECTOR"],
        ..namespaced(("Deployment", "deployments", &["deploy"]), rows::deployments, stored::<Deployment>())
    },
    KindEntry {
        columns: POOL,
        wide: POOL_WIDE,
        ..cluster_scoped(("NodePool", "nodepools", &["np"]), rows::node_pools, stored::<NodePool>())
    },
    KindEntry {
        columns: &["PHASE", "POOL", "TYPE", "CAPACITY", "ZONE", "INSTANCE", "NODE"],
        wide: &["PRICE", "AMI"],
        ..cluster_scoped(("NodeClaim", "nodeclaims", &[]), rows::claims, stored::<NodeClaim>())
    },
    KindEntry {
        columns: CLASS,
        wide: CLASS_WIDE,
        ..cluster_scoped(("EC2NodeClass", "ec2nodeclasses", &["ec2nc", "ec2ncs"]), rows::node_classes, stored::<Ec2NodeClass>())
    },
    KindEntry {
        columns: POOL,
        wide: POOL_WIDE,
        ..cluster_scoped(("Provisioner", "provisioners", &[]), rows::provisioners, converted(remove_pool_of))
    },
    KindEntry {
        columns: CLASS,
        wide: CLASS_WIDE,
        ..cluster_scoped(("AWSNodeTemplate", "awsnodetemplates", &[]), rows::node_templates, converted(remove_class_of))
    },
    KindEntry {
        columns: &["READY"],
        ..cluster_scoped(("NodeOverlay", "nodeoverlays", &["overlays"]), rows::overlays, stored::<NodeOverlay>())
    },
    KindEntry {
        columns: &["REPLICAS", "READY"],
        ..namespaced(("CapacityBuffer", "capacitybuffers", &["cb"]), rows::buffers, stored::<CapacityBuffer>())
    },
    KindEntry { columns: &["OBJECT", "TYPE", "REASON", "MESSAGE"], ..namespaced(("Event", "events", &["ev"]), rows::events, None) },
    KindEntry {
        columns: &["CURRENT", "READY"],
        wide: &["SELECTOR"],
        ..namespaced(("DaemonSet", "daemonsets", &["ds"]), rows::daemon_sets, stored::<DaemonSet>())
    },
    KindEntry {
        columns: &["DESIRED", "CURRENT", "READY"],
        ..namespaced(("ReplicaSet", "replicasets", &["rs"]), rows::replica_sets, REPLICA_SET)
    },
    KindEntry {
        columns: &["READY"],
        ..namespaced(("StatefulSet", "statefulsets", &["sts"]), rows::stateful_sets, stored::<StatefulSet>())
    },
    KindEntry {
        columns: &["MIN-AVAILABLE", "MAX-UNAVAILABLE", "ALLOWED-DISRUPTIONS"],
        ..namespaced(("PodDisruptionBudget", "poddisruptionbudgets", &["pdb"]), rows::budgets, stored::<PodDisruptionBudget>())
    },
    KindEntry { columns: &["SELECTOR"], ..namespaced(("Service", "services", &["svc"]), rows::services, stored::<Service>()) },
    cluster_scoped(("Namespace", "namespaces", &["ns"]), rows::namespaces, None),
    KindEntry { columns: &["DATA"], ..namespaced(("ConfigMap", "configmaps", &["cm"]), rows::config_maps, stored::<ConfigMap>()) },
    KindEntry {
        columns: &["VALUE", "GLOBAL-DEFAULT"],
        ..cluster_scoped(("PriorityClass", "priorityclasses", &["pc"]), rows::priority_classes, stored::<PriorityClass>())
    },
    namespaced(("PersistentVolumeClaim", "persistentvolumeclaims", &["pvc"]), rows::volume_claims, stored::<PersistentVolumeClaim>()),
    cluster_scoped(("PersistentVolume", "persistentvolumes", &["pv"]), rows::volumes, stored::<PersistentVolume>()),
    cluster_scoped(("StorageClass", "storageclasses", &["sc"]), rows::storage_classes, stored::<StorageClass>()),
    namespaced(("PodTemplate", "podtemplates", &[]), rows::pod_templates, stored::<StoredPodTemplate>()),
    cluster_scoped(("CSINode", "csinodes", &[]), rows::csi_nodes, stored::<CsiNode>()),
    cluster_scoped(("VolumeAttachment", "volumeattachments", &[]), rows::volume_attachments, stored::<VolumeAttachment>()),
];

/// What a command is about: a kind, and one object of it unless all are meant.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) entry: &'static KindEntry,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
}

impl Target {
    fn of(entry: &'static KindEntry, name: &str) -> Self {
        match name.split_once('/') {
            Some((namespace, name)) if entry.namespaced => {
                Self { entry, namespace: Some(namespace.to_owned()), name: Some(name.to_owned()) }
            }
            _ => Self { entry, namespace: None, name: Some(name.to_owned()) },
        }
    }

    /// The key of the named object, `namespace/name` or the name alone.
    pub(crate) fn key(&self, name: &str, namespace: &str) -> String {
        if self.entry.namespaced { format!("{}/{name}", self.namespace.as_deref().unwrap_or(namespace)) } else { name.to_owned() }
    }
}

/// The targets of `KIND[,KIND] [NAME…]` or `KIND/NAME…`, where a name may have its namespace in front: `deploy/kube-system/coredns`.
pub(crate) fn targets(words: &[String]) -> Result<Vec<Target>, String> {
    let (first, names) = words.split_first().ok_or("name a kind, such as `pods`, and the objects that you mean")?;
    if first.contains('/') {
        let target = |word: &String| {
            let (kind, name) = word.split_once('/').ok_or_else(|| format!("{word:?} has no kind in front: write KIND/NAME"))?;
            Ok(Target::of(find(kind)?, name))
        };
        return words.iter().map(target).collect();
    }
    let mut targets = Vec::new();
    for kind in first.split(',').filter(|kind| !kind.is_empty()) {
        let entries = if kind == "all" { ALL.iter().map(|kind| find(kind)).collect() } else { find(kind).map(|entry| vec![entry]) };
        for entry in entries? {
            if names.is_empty() {
                targets.push(Target { entry, namespace: None, name: None });
            }
            targets.extend(names.iter().map(|name| Target::of(entry, name)));
        }
    }
    Ok(targets)
}
