//! Pods as the solver sees them: equal ones form a class, and each class has a ladder of ever less wishful forms.

use super::ids::{ClassId, GroupId, LabelsId, TolerationId};
use super::intern::{SetId, Vals};
use crate::pods::{HostPort, VolumeUse};
use crate::requirements::Operator;
use whittle_units::Resources;

/// One step of the ladder: the pod with some of its wishes dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Relaxation {
    /// Number of the form, over all classes.
    pub(crate) id: usize,
    /// What a node must satisfy, wishes included; without the host name.
    pub(crate) full: SetId,
    /// The same without wishes.
    pub(crate) strict: SetId,
    /// What the pod asks of the host name.
    pub(crate) host: Option<Vals>,
    pub(crate) labels: LabelsId,
    pub(crate) tolerations: TolerationId,
    /// Groups of the pod's own constraints.
    pub(crate) owned: Vec<GroupId>,
    /// Groups of others that repel the pod.
    pub(crate) repelled_by: Vec<GroupId>,
    /// Some group's answer depends on counts of a key other than the host name, or attracts to a host.
    pub(crate) volatile: bool,
}

/// A place where all volumes of the pod can be attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumePlace {
    pub(crate) set: SetId,
    pub(crate) host: Option<Vals>,
}

/// Pods that scheduling cannot tell apart.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    /// By resource dimension.
    pub(crate) requests: Vec<i64>,
    pub(crate) asks: Resources,
    /// From most to least wishful; never empty.
    pub(crate) relaxations: Vec<Relaxation>,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) volumes: Vec<VolumeUse>,
    /// Alternatives, in order; empty: anywhere.
    pub(crate) places: Vec<VolumePlace>,
    /// Groups that count this pod as a repelling one.
    pub(crate) repels: Vec<GroupId>,
    /// Groups that select the pod.
    pub(crate) counted_by: Vec<GroupId>,
    pub(crate) labels: LabelsId,
    /// How many pods of the pass are in the class.
    pub(crate) size: usize,
    /// Comes from a node that stays in a simulation only in thought: may not use nodes that rest.
    pub(crate) avoids_spared: bool,
    /// Asks for dynamic resources.
    pub(crate) resource_claims: bool,
}

/// One pod of the pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) class: ClassId,
    /// Position in the list of pods to place.
    pub(crate) pod: usize,
}

/// A new machine's host name is not known: it can be any, but no particular one.
pub(crate) fn allows_unnamed_host(wanted: Option<&Vals>) -> bool {
    wanted.is_none_or(|w| matches!(w.operator(), Operator::Exists | Operator::NotIn))
}
