//! The kinds that are read of a cluster, in which list, and what an answer is worth without them.

use super::Purpose;
use std::collections::BTreeSet;

/// A kind of objects.
#[derive(Debug)]
pub(super) struct Kind {
    /// Its plural name and its group, as `kubectl api-resources -o name` prints it.
    pub(super) resource: &'static str,
    weight: Weight,
    /// What is not known without it.
    pub(super) without: &'static str,
}

/// How much an answer is worth without a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// Nothing at all.
    Always,
    /// Nothing if something is decided; shown, it lacks something.
    Decides,
    /// It may be less exact. Not read to be shown.
    Refines,
}

const fn kind(resource: &'static str, weight: Weight, without: &'static str) -> Kind {
    Kind { resource, weight, without }
}

const ALL: &str = "nothing can be said";
const SHOWN: &str = "what follows from them is not shown";
const OWNERS: &str = "pods of one workload may not be known as such, and --replicas does not know it";

/// Kinds that are listed together. Pods are most of a cluster, so that they are read alone.
pub(super) static GROUPS: [&[Kind]; 4] = [
    &[kind("pods", Weight::Always, ALL)],
    &[
        kind("nodes", Weight::Always, ALL),
        kind("nodepools.karpenter.sh", Weight::Decides, SHOWN),
        kind("nodeclaims.karpenter.sh", Weight::Decides, "the state of machines that join or go is not shown"),
        kind("ec2nodeclasses.karpenter.k8s.aws", Weight::Decides, SHOWN),
        kind("provisioners.karpenter.sh", Weight::Decides, SHOWN),
        kind("awsnodetemplates.karpenter.k8s.aws", Weight::Decides, SHOWN),
        kind("nodeoverlays.karpenter.sh", Weight::Refines, "prices and capacities that they change are taken as they were"),
        kind("capacitybuffers.autoscaling.x-k8s.io", Weight::Refines, "room that they hold free is taken for empty"),
    ],
    &[
        kind("daemonsets.apps", Weight::Decides, SHOWN),
        kind("deployments.apps", Weight::Refines, OWNERS),
        kind("replicasets.apps", Weight::Refines, OWNERS),
        kind("statefulsets.apps", Weight::Refines, OWNERS),
        kind("jobs.batch", Weight::Refines, OWNERS),
        kind("replicationcontrollers", Weight::Refines, OWNERS),
        kind("services", Weight::Refines, "the scheduler's default spreading of their pods is not known"),
        kind("podtemplates", Weight::Refines, "capacity buffers that refer to them stand for no pods"),
    ],
    &[
        kind("poddisruptionbudgets.policy", Weight::Decides, SHOWN),
        kind("persistentvolumeclaims", Weight::Decides, SHOWN),
        kind("persistentvolumes", Weight::Decides, SHOWN),
        kind("storageclasses.storage.k8s.io", Weight::Decides, SHOWN),
        kind("csinodes.storage.k8s.io", Weight::Refines, "how many volumes a node can take is not known"),
        kind("namespaces", Weight::Refines, "affinity that selects namespaces by labels finds none"),
        kind("limitranges", Weight::Refines, "pods of files lack the requests that these give to containers"),
        kind("priorityclasses.scheduling.k8s.io", Weight::Refines, "pods of files have the priority 0"),
        kind("runtimeclasses.node.k8s.io", Weight::Refines, "pods of files lack what their RuntimeClass adds"),
    ],
];

/// Kinds that users write and that can be checked.
const WRITTEN: [&str; 7] = [
    "nodepools.karpenter.sh",
    "ec2nodeclasses.karpenter.k8s.aws",
    "provisioners.karpenter.sh",
    "awsnodetemplates.karpenter.k8s.aws",
    "daemonsets.apps",
    "deployments.apps",
    "statefulsets.apps",
];

/// Kinds that machines are shown by, besides nodes and pods.
const OF_MACHINES: [&str; 2] = ["nodepools.karpenter.sh", "nodeclaims.karpenter.sh"];

impl Kind {
    /// Whether it is read for this purpose from a cluster that serves these kinds.
    pub(super) fn is_asked(&self, purpose: Purpose, served: &BTreeSet<String>) -> bool {
        let wanted = match purpose {
            Purpose::Decide => true,
            Purpose::Check => WRITTEN.contains(&self.resource),
            Purpose::Show => self.weight == Weight::Always || OF_MACHINES.contains(&self.resource),
        };
        wanted && served.contains(self.resource)
    }

    /// Whether there is no answer without it.
    pub(super) fn matters(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Decide => self.weight != Weight::Refines,
            Purpose::Show => self.weight == Weight::Always,
            Purpose::Check => true,
        }
    }

    /// Whether kubectl's words about a kind that may not be listed are about this one.
    pub(super) fn is_meant(&self, said: &str) -> bool {
        said.contains(&format!(": {} is forbidden", self.resource))
    }
}
