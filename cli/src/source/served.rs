//! Kinds of Kubernetes itself, and which of them a misspelt one was meant to be.

/// Group and version, and their kinds. Those of features that come and go are left out: any version of theirs may be served.
const KINDS: &[(&str, &[&str])] = &[
    (
        "v1",
        &[
            "Binding",
            "ComponentStatus",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "List",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    ("apps/v1", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("batch/v1", &["CronJob", "Job"]),
    ("policy/v1", &["Eviction", "PodDisruptionBudget"]),
    ("autoscaling/v2", &["HorizontalPodAutoscaler"]),
    ("autoscaling/v1", &["HorizontalPodAutoscaler", "Scale"]),
    ("scheduling.k8s.io/v1", &["PriorityClass"]),
    ("node.k8s.io/v1", &["RuntimeClass"]),
    ("storage.k8s.io/v1", &["CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"]),
    ("networking.k8s.io/v1", &["IPAddress", "Ingress", "IngressClass", "NetworkPolicy", "ServiceCIDR"]),
    ("rbac.authorization.k8s.io/v1", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
];

/// The group of what Kustomize reads, and no server: kustomization.yaml mostly says version and kind.
const KUSTOMIZE: &str = "kustomize.config.k8s.io";

/// The most letters that a long word may differ in to be meant, and the letters of a long word.
const TYPING_ERRORS: usize = 2;
const LONG: usize = 6;

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Whether a word was meant to be another; short ones are too easily another word.
fn is_meant(word: &str, known: &str) -> bool {
    let most = if known.len() < LONG { 1 } else { TYPING_ERRORS };
    let is_as_long = word.chars().count().abs_diff(known.chars().count()) <= most;
    word == known || (!known.is_empty() && is_as_long && strsim::osa_distance(word, known) <= most)
}

/// What a kind that no server has was meant to be, as `apps/v1 Deployment`; none for kinds that may be of somebody else.
fn meant(api_version: &str, kind: &str) -> Option<String> {
    let known = |version: &str, kind: &str| KINDS.iter().any(|(of, kinds)| *of == version && kinds.contains(&kind));
    // Groups of others have a domain; those of Kubernetes have theirs, or none.
    let is_own = |group: &str| !group.contains('.') || group.ends_with(".k8s.io");
    if known(api_version, kind) || !is_own(group(api_version)) {
        return None;
    }
    let all = || KINDS.iter().flat_map(|(version, kinds)| kinds.iter().map(move |kind| (*version, *kind)));
    let same_kind = || {
        all().find(|(version, known)| *known == kind && (!api_version.contains(".k8s.io") || is_meant(group(api_version), group(version))))
    };
    let same_group = || {
        let near = all().filter(|(version, known)| is_meant(group(api_version), group(version)) && is_meant(kind, known));
        near.min_by_key(|(_, known)| strsim::osa_distance(kind, known))
    };
    same_kind().or_else(same_group).map(|(version, kind)| format!("{version} {kind}"))
}

/// The warning about an object of such a kind, or of one that other manifests are made by.
pub(crate) fn warning(api_version: &str, kind: &str, name: &str) -> Option<String> {
    if group(api_version) == KUSTOMIZE {
        return Some(format!(
            "{kind} of {KUSTOMIZE}: Kustomize makes manifests of it, and it is none: what stands beside it, such as patches, counts as it \
             is; give what `kubectl kustomize DIRECTORY` prints"
        ));
    }
    let meant = meant(api_version, kind)?;
    Some(format!("{kind} {name:?}: no server has {kind} of {api_version}, so that it has no effect; did you mean {meant}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_kinds_of_kubernetes_are_told_from_kinds_of_others() {
        for (version, kind, wanted) in [
            ("app/v1", "Deployment", "apps/v1 Deployment"),
            ("apps/v1", "Deploymnet", "apps/v1 Deployment"),
            ("apps/v1beta1", "Deployment", "apps/v1 Deployment"),
            ("extensions/v1beta1", "Ingress", "networking.k8s.io/v1 Ingress"),
            ("v1", "Deployment", "apps/v1 Deployment"),
            ("apps/v1", "Pod", "v1 Pod"),
            ("v1", "Pods", "v1 Pod"),
            ("policy/v1beta1", "PodDisruptionBudget", "policy/v1 PodDisruptionBudget"),
            ("storage.k8s.io/v1", "StorageClas", "storage.k8s.io/v1 StorageClass"),
        ] {
            assert_eq!(meant(version, kind).as_deref(), Some(wanted), "{version} {kind}");
        }
        for (version, kind) in [
            ("apps/v1", "Deployment"),
            ("autoscaling/v1", "HorizontalPodAutoscaler"),
            ("serving.knative.dev/v1", "Service"),
            ("metrics.k8s.io/v1beta1", "PodMetrics"),
            ("gateway.networking.k8s.io/v1", "Gateway"),
            ("resource.k8s.io/v1", "ResourceClaim"),
            ("snapshot.storage.k8s.io/v1", "VolumeSnapshot"),
            ("example.com/v1", "Pod"),
            ("v1", "List"),
        ] {
            assert_eq!(meant(version, kind), None, "{version} {kind}");
        }
    }

    #[test]
    fn what_kustomize_reads_is_told_how_to_become_manifests() {
        for kind in ["Kustomization", "Component"] {
            let told = warning("kustomize.config.k8s.io/v1beta1", kind, "").unwrap();
            assert!(told.starts_with(kind) && told.ends_with("give what `kubectl kustomize DIRECTORY` prints"), "{told}");
        }
        assert_eq!(warning("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "apps"), None, "Flux's is an object of the cluster");
    }
}
