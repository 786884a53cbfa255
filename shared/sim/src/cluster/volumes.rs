//! The attach-detach controller: volumes are attached for the pods that use them, and detached some time after these end.

use super::Cluster;
use super::scheduler::term_holds;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use whittle_api::k8s::{
    Node, PersistentVolumeClaim, Pod, TopologySelectorRequirement, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec,
};
use whittle_api::{ObjectMeta, labels};

/// The time between the end of a volume's last pod and its detachment.
const DETACHING: SignedDuration = SignedDuration::from_secs(20);
/// The name prefix of this controller's objects; others are created by users.
const PREFIX: &str = "csi-";

impl Cluster {
    /// Volumes of pods that are bound are attached; those that no pod of the node uses any more are detached.
    pub(super) fn step_volumes(&mut self, now: Timestamp) {
        if self.objects.volume_claims.is_empty() {
            return;
        }
        let used: BTreeSet<(String, String)> =
            self.objects.pods.values().filter(|pod| pod.is_bound() && !pod.is_terminal()).flat_map(|pod| self.volumes_of(pod)).collect();
        for (volume, node) in &used {
            let name = format!("{PREFIX}{volume}-{node}");
            self.detached_at.remove(&name);
            let source = VolumeAttachmentSource { persistent_volume_name: volume.clone() };
            let spec = VolumeAttachmentSpec { attacher: "ebs.csi.aws.com".to_owned(), node_name: node.clone(), source };
            self.objects.create(VolumeAttachment { metadata: ObjectMeta::named(&name), spec }, now);
        }
        let own = self.objects.volume_attachments.values().filter(|one| one.metadata.name.starts_with(PREFIX));
        let is_used =
            |one: &&VolumeAttachment| used.contains(&(one.spec.source.persistent_volume_name.clone(), one.spec.node_name.clone()));
        let unused: Vec<String> = own.filter(|one| !is_used(one)).map(|one| one.metadata.name.clone()).collect();
        for name in unused {
            let at = *self.detached_at.entry(name.clone()).or_insert(now + DETACHING);
            if at <= now {
                self.detached_at.remove(&name);
                self.objects.delete::<VolumeAttachment>(&name, now);
            } else {
                self.retry(at);
            }
        }
    }

    /// What the scheduler says of a pod whose claims keep it from all nodes: one is not there, or waits for its volume first.
    pub(super) fn unusable_claim(&self, pod: &Pod) -> Option<String> {
        let mut names = pod.spec.volumes.iter().filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()));
        let key = |name: &str| format!("{}/{name}", pod.metadata.namespace);
        let missing = names.find(|name| !self.objects.volume_claims.contains_key(&key(name)));
        let missing = missing.map(|name| format!("persistentvolumeclaim {name:?} not found"));
        missing.or_else(|| {
            let unbound = self.claims_of(pod).filter(|claim| claim.spec.volume_name.is_empty());
            let mut classes = unbound.filter_map(|claim| self.objects.storage_classes.get(claim.spec.storage_class_name.as_deref()?));
            // Nothing makes volumes here: who applies such a claim applies its volume as well.
            let immediate = classes.any(|class| class.volume_binding_mode != "WaitForFirstConsumer");
            immediate.then(|| "pod has unbound immediate PersistentVolumeClaims".to_owned())
        })
    }

    /// Whether a node is where the volumes of a pod are, or may be made.
    pub(super) fn volumes_reach(&self, pod: &Pod, node: &Node) -> bool {
        self.bound_volumes_reach(pod, node) && self.classes_reach(pod, node)
    }

    /// Whether a node is where the classes of a pod's volumes that are still to be made allow them.
    fn classes_reach(&self, pod: &Pod, node: &Node) -> bool {
        let unbound = self.claims_of(pod).filter(|claim| claim.spec.volume_name.is_empty());
        let mut classes = unbound.filter_map(|claim| self.objects.storage_classes.get(claim.spec.storage_class_name.as_deref()?));
        let is_there = |one: &TopologySelectorRequirement| {
            node.metadata.label(labels::normalized(&one.key)).is_some_and(|value| one.values.iter().any(|allowed| allowed == value))
        };
        classes.all(|class| {
            let terms = &class.allowed_topologies;
            terms.is_empty() || terms.iter().any(|term| term.match_label_expressions.iter().all(is_there))
        })
    }

    fn claims_of<'c>(&'c self, pod: &'c Pod) -> impl Iterator<Item = &'c PersistentVolumeClaim> {
        let names = pod.spec.volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
        names.filter_map(|source| self.objects.volume_claims.get(&format!("{}/{}", pod.metadata.namespace, source.claim_name)))
    }

    fn bound_volumes_reach(&self, pod: &Pod, node: &Node) -> bool {
        let volumes = self.volumes_of(pod).into_iter().filter_map(|(name, _)| self.objects.volumes.get(&name));
        let required = volumes.filter_map(|volume| volume.spec.node_affinity.as_ref()?.required.as_ref());
        required.into_iter().all(|required| required.node_selector_terms.iter().any(|term| term_holds(term, node)))
    }

    /// Persistent volumes of a pod, each with the pod's node.
    fn volumes_of(&self, pod: &Pod) -> Vec<(String, String)> {
        let bound = self.claims_of(pod).map(|claim| claim.spec.volume_name.clone()).filter(|name| !name.is_empty());
        bound.map(|name| (name, pod.spec.node_name.clone())).collect()
    }
}
