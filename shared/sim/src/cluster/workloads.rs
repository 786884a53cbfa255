//! Workloads, as their readers see them.

use super::Cluster;
use whittle_api::LabelSelector;
use whittle_api::k8s::{PodSource, PodSourceKind, Workloads};

impl Cluster {
    /// Selectors of Services, of ReplicaSets and StatefulSets, and of the ReplicaSets that the Deployments' pods belong to.
    pub fn selectors(&self) -> Workloads {
        let services = self.objects.services.values().filter(|service| !service.spec.selector.is_empty());
        let services = services.map(|s| (s.metadata.namespace.clone(), s.metadata.name.clone(), s.spec.selector.clone())).collect();
        let mut out = Workloads { services, ..Workloads::default() };
        let sets = self.objects.replica_sets.values().map(|set| (&set.metadata.uid, &set.spec.selector));
        let sets = sets.chain(self.objects.stateful_sets.values().map(|set| (&set.metadata.uid, &set.spec.selector)));
        out.owners.extend(sets.map(|(uid, selector)| (uid.clone(), selector.clone())));
        for pod in self.objects.pods.values() {
            let Some((owner, deployment)) = pod.metadata.controller().zip(self.deployment_of(pod)) else { continue };
            out.owners.entry(owner.uid.clone()).or_insert_with(|| {
                // ReplicaSets themselves are not kept: theirs is the Deployment's selector, and the hash of the template.
                let mut selector: LabelSelector = deployment.spec.selector.clone();
                let hash = pod.metadata.labels.get(super::controllers::TEMPLATE_HASH);
                selector.match_labels.extend(hash.map(|hash| (super::controllers::TEMPLATE_HASH.to_owned(), hash.clone())));
                selector
            });
        }
        out
    }

    /// The pod template source of a capacity buffer.
    pub fn pod_source(&self, kind: PodSourceKind, key: &str) -> Option<PodSource> {
        let objects = &self.objects;
        match kind {
            PodSourceKind::PodTemplate => objects.pod_templates.get(key).cloned().map(PodSource::of_template),
            PodSourceKind::Deployment => objects.deployments.get(key).map(|o| PodSource::of_workload(&o.metadata, o.spec.clone())),
            PodSourceKind::ReplicaSet => objects.replica_sets.get(key).map(|o| PodSource::of_workload(&o.metadata, o.spec.clone())),
            PodSourceKind::StatefulSet => objects.stateful_sets.get(key).map(|o| PodSource::of_workload(&o.metadata, o.spec.clone())),
        }
    }
}
