//! Pods as the solver sees them: equal ones form a class, and each class has a list of relaxations, with ever fewer
//! preferences.

use super::ids::{ClassId, DimId, GroupId, IdVec, LabelsId, PodId, RelaxationId, SetId, TolerationId};
use super::intern::Vals;
use std::collections::{BTreeMap, BTreeSet};
use whittle_model::pods::{HostPort, VolumeUse};
use whittle_model::requirements::Operator;
use whittle_units::Resources;

/// One relaxation step: the pod without some of its preferences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Relaxation {
    pub(crate) id: RelaxationId,
    /// What a node must satisfy, preferences included; without the hostname.
    pub(crate) full: SetId,
    /// The same without preferences.
    pub(crate) strict: SetId,
    /// The pod's requirement on the hostname.
    pub(crate) host: Option<Vals>,
    pub(crate) labels: LabelsId,
    pub(crate) tolerations: TolerationId,
    /// Groups of the pod's own constraints.
    pub(crate) owned: Vec<GroupId>,
    /// Those of them that are required pod affinity.
    pub(crate) near: Vec<GroupId>,
    /// Groups of other pods' anti-affinity that repel the pod.
    pub(crate) repelled_by: Vec<GroupId>,
    /// The domains that some group allows depend on counts by a key other than the hostname, or it attracts to a host.
    pub(crate) volatile: bool,
}

/// A topology in which all volumes of the pod can be attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumePlace {
    pub(crate) set: SetId,
    pub(crate) host: Option<Vals>,
}

/// Pods that scheduling cannot distinguish.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) requests: IdVec<DimId, i64>,
    pub(crate) resources: Resources,
    /// In the order in which they are tried, the one with all preferences first, one without any last; never empty.
    pub(crate) relaxations: Vec<Relaxation>,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) volumes: Vec<VolumeUse>,
    /// Its claims that one pod at a time may use.
    pub(crate) one_pod_claims: Vec<String>,
    /// Drivers of its volumes without which it cannot be moved to, or is not bound to, a node without a NodePool.
    pub(crate) missed_drivers: BTreeSet<String>,
    /// Alternatives, in order; empty: anywhere.
    pub(crate) places: Vec<VolumePlace>,
    /// DaemonSets that it must not share a node with, by their index among the future daemons; the value is whether the rule is the pod's
    /// own anti-affinity.
    pub(crate) avoids: BTreeMap<usize, bool>,
    /// Groups of the pod's own anti-affinity, which count it.
    pub(crate) repels: Vec<GroupId>,
    /// Groups that select the pod.
    pub(crate) counted_by: Vec<GroupId>,
    pub(crate) labels: LabelsId,
    /// The number of pods of the pass in the class.
    pub(crate) size: usize,
    /// Comes from a node that only a simulation removes: must not use spared machines.
    pub(crate) avoids_spared: bool,
    /// Needs dynamic resource allocation.
    pub(crate) resource_claims: bool,
    /// Some group of what it requires is left aside: it gets no place.
    pub(crate) left_aside: bool,
}

impl Class {
    /// How many EBS volumes a machine has with the pod that has those of the claims `attached` without it; zero if the pod adds none.
    pub(crate) fn ebs_volumes_with(&self, attached: &BTreeSet<String>) -> usize {
        match self.volumes.iter().filter(|volume| volume.is_ebs() && !attached.contains(&volume.claim)).count() {
            0 => 0,
            more => attached.len() + more,
        }
    }

    /// How many EBS volumes the pod has.
    pub(crate) fn ebs_volumes(&self) -> usize {
        self.volumes.iter().filter(|volume| volume.is_ebs()).count()
    }
}

/// One pod of the pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) class: ClassId,
    pub(crate) pod: PodId,
}

/// Whether the requirement allows a new machine, whose hostname is not known: any name will do, but no particular one.
pub(crate) fn allows_unnamed_host(wanted: Option<&Vals>) -> bool {
    wanted.is_none_or(|w| matches!(w.operator(), Operator::Exists | Operator::NotIn))
}
