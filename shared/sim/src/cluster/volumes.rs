//! The attach-detach controller: volumes are attached for the pods that use them, and detached some time after these end.

use super::Cluster;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use whittle_api::ObjectMeta;
use whittle_api::k8s::{Pod, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};

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

    /// Persistent volumes of a pod, each with the pod's node.
    fn volumes_of(&self, pod: &Pod) -> Vec<(String, String)> {
        let names = pod.spec.volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
        let claims =
            names.filter_map(|source| self.objects.volume_claims.get(&format!("{}/{}", pod.metadata.namespace, source.claim_name)));
        let bound = claims.map(|claim| claim.spec.volume_name.clone()).filter(|name| !name.is_empty());
        bound.map(|name| (name, pod.spec.node_name.clone())).collect()
    }
}
