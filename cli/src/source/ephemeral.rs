//! Claims for the ephemeral volumes of pods that no cluster has seen, as its controller makes them.

use std::collections::BTreeSet;
use whittle_api::k8s::{PersistentVolumeClaim, Pod, StorageClass};
use whittle_api::{ClusterObjects, ObjectMeta};

/// Annotations of the class that a claim gets if it names none.
const DEFAULT_CLASS: [&str; 2] = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// Adds a claim for each ephemeral volume of the pods that wait, but for those of a cluster, by namespace and name: a claim that it
/// lacks is still to come, or cannot be made.
pub(super) fn claim(objects: &mut ClusterObjects, of_cluster: &BTreeSet<String>) {
    let known: BTreeSet<String> = objects.volume_claims.iter().map(|claim| claim.metadata.key()).collect();
    let is_new = |pod: &&Pod| !pod.is_bound() && !pod.is_terminal() && !of_cluster.contains(&pod.metadata.key());
    let made: Vec<PersistentVolumeClaim> = objects.pods.iter().filter(is_new).flat_map(claims_of).collect();
    let default_class = default_class(&objects.storage_classes);
    let complete = |mut claim: PersistentVolumeClaim| {
        claim.spec.storage_class_name = claim.spec.storage_class_name.or_else(|| default_class.clone());
        claim
    };
    objects.volume_claims.extend(made.into_iter().filter(|claim| !known.contains(&claim.metadata.key())).map(complete));
}

fn claims_of(pod: &Pod) -> impl Iterator<Item = PersistentVolumeClaim> {
    let volumes = pod.spec.volumes.iter().filter(|volume| volume.persistent_volume_claim.is_none());
    volumes.filter_map(|volume| {
        let spec = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?.spec.clone();
        let name = format!("{}-{}", pod.metadata.name, volume.name);
        let metadata = ObjectMeta {
            uid: format!("{}-{}", pod.metadata.uid, volume.name),
            creation_timestamp: pod.metadata.creation_timestamp,
            ..ObjectMeta::namespaced(pod.metadata.namespace.clone(), name)
        };
        Some(PersistentVolumeClaim { metadata, spec, ..PersistentVolumeClaim::default() })
    })
}

/// The newest of the default classes, as the API server chooses.
pub(super) fn default_class(classes: &[StorageClass]) -> Option<String> {
    let is_default = |class: &&StorageClass| DEFAULT_CLASS.iter().any(|key| class.metadata.annotation(key) == Some("true"));
    let newest = |a: &&StorageClass, b: &&StorageClass| {
        let (a, b) = (&a.metadata, &b.metadata);
        b.creation_timestamp.cmp(&a.creation_timestamp).then_with(|| a.name.cmp(&b.name))
    };
    classes.iter().filter(is_default).min_by(newest).map(|class| class.metadata.name.clone())
}

#[cfg(test)]
mod tests {
    use crate::source::{read_stored, read_text};
    use serde_json::{Value, json};

    /// A pod that waits, with an ephemeral volume of this spec.
    fn pod(spec: &Value) -> Value {
        let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}, {"name": "none", "emptyDir": {}}]);
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team"},
            "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}})
    }

    fn class(name: &str, is_default: &str, created: &str) -> Value {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "ebs.csi.aws.com",
            "volumeBindingMode": "WaitForFirstConsumer", "metadata": {"name": name, "creationTimestamp": created,
            "annotations": {"storageclass.kubernetes.io/is-default-class": is_default}}})
    }

    fn text(objects: &[Value]) -> String {
        objects.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n")
    }

    /// The claims among these objects, each with its class.
    #[track_caller]
    fn check(objects: &[Value], expected: &[(&str, Option<&str>)]) {
        let read = read_text("in.yaml", &text(objects)).unwrap();
        let claims: Vec<(String, Option<&str>)> =
            read.objects.volume_claims.iter().map(|claim| (claim.metadata.key(), claim.spec.storage_class_name.as_deref())).collect();
        let claims: Vec<(&str, Option<&str>)> = claims.iter().map(|(key, class)| (key.as_str(), *class)).collect();
        assert_eq!(claims, expected);
    }

    #[test]
    fn each_ephemeral_volume_of_a_new_pod_has_a_claim() {
        let access = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let with_class = |name: &str| {
            let mut spec = access.clone();
            spec["storageClassName"] = json!(name);
            pod(&spec)
        };
        check(&[with_class("gp3")], &[("team/p-scratch", Some("gp3"))]);
        check(&[pod(&access)], &[("team/p-scratch", None)]);
        let classes = [
            class("old", "true", "2025-01-01T00:00:00Z"),
            class("new", "true", "2025-02-01T00:00:00Z"),
            class("other", "false", "2025-03-01T00:00:00Z"),
        ];
        let with_classes = |pod: Value| [&classes[..], &[pod]].concat();
        check(&with_classes(pod(&access)), &[("team/p-scratch", Some("new"))]);
        check(&with_classes(with_class("old")), &[("team/p-scratch", Some("old"))]);
        check(&with_classes(with_class("")), &[("team/p-scratch", Some(""))]);
    }

    #[test]
    fn there_is_no_claim_for_a_pod_that_has_one_or_runs() {
        let wanted = pod(&json!({"storageClassName": "gp3"}));
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "p-scratch", "namespace": "team"},
            "spec": {"storageClassName": "own"}});
        check(&[wanted.clone(), claim], &[("team/p-scratch", Some("own"))]);
        let mut bound = wanted;
        bound["spec"]["nodeName"] = json!("n");
        check(&[bound], &[]);
    }

    #[test]
    fn what_a_cluster_lacks_for_its_own_pods_is_not_made_up() {
        let read = read_stored(&text(&[pod(&json!({"storageClassName": "gp3"}))])).unwrap();
        assert_eq!((read.objects.pods.len(), read.objects.volume_claims.len()), (1, 0));
    }
}
