//! Kinds that a dump lacks although its pods depend on them. Without them pods have no place, or new machines no room for daemons, and the
//! answer is wrong for the cluster.

use super::remarks::Remark;
use crate::money::counted;
use std::collections::BTreeSet;
use whittle_api::ClusterObjects;
use whittle_api::k8s::{PersistentVolumeClaim, Pod};
use whittle_model::pods;

/// A warning for each kind of which something that counts refers to objects, and none of those is there. Where only some are missing, the
/// reasons of pods name them.
pub(super) fn remarks(objects: &ClusterObjects) -> Vec<Remark> {
    let (used, unplaced) = (used_claims(objects), "pods that use them have no place here");
    let of_claims = |count: usize| counted(count, "PersistentVolumeClaim");
    // These two kinds have no namespace: where some are there, all of them are, and what is missing is missing in the cluster.
    let bound = used.iter().filter(|claim| !claim.spec.volume_name.is_empty()).count();
    let volumes = (0 < bound && objects.volumes.is_empty()).then(|| format!("PersistentVolumes of {}", of_claims(bound)));
    let waits = |claim: &&&PersistentVolumeClaim| {
        claim.spec.volume_name.is_empty() && claim.spec.storage_class_name.as_deref().is_some_and(|name| !name.is_empty())
    };
    let unbound = used.iter().filter(waits).count();
    let classes = (0 < unbound && objects.storage_classes.is_empty()).then(|| format!("StorageClasses of {}", of_claims(unbound)));
    [
        of_pods(objects),
        volumes.map(|what| remark(&what, unplaced, "pv")),
        classes.map(|what| remark(&what, unplaced, "storageclasses")),
        of_daemons(objects),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The claims that pods use. Others, such as those of a StatefulSet without replicas, keep nothing from its place.
fn used_claims(objects: &ClusterObjects) -> Vec<&PersistentVolumeClaim> {
    let keys = |pod: &Pod| pod.volume_claim_names().map(|name| format!("{}/{name}", pod.metadata.namespace)).collect::<Vec<_>>();
    let used: BTreeSet<String> = living(objects).flat_map(keys).collect();
    objects.volume_claims.iter().filter(|claim| used.contains(&claim.metadata.key())).collect()
}

/// The pods that count.
fn living(objects: &ClusterObjects) -> impl Iterator<Item = &Pod> {
    objects.pods.iter().filter(|pod| !pod.is_terminal())
}

/// That the claims of pods are missing.
fn of_pods(objects: &ClusterObjects) -> Option<Remark> {
    let key = |claim: &PersistentVolumeClaim| claim.metadata.key();
    let known: BTreeSet<String> = objects.volume_claims.iter().map(key).collect();
    let of_pod = |pod: &Pod| -> Vec<String> {
        let claims = pod.spec.volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
        claims.map(|claim| format!("{}/{}", pod.metadata.namespace, claim.claim_name)).collect()
    };
    let referring: Vec<Vec<String>> = living(objects).map(of_pod).filter(|claims| !claims.is_empty()).collect();
    let is_known = |claim: &String| known.contains(claim);
    (!referring.is_empty() && !referring.iter().flatten().any(is_known)).then(|| {
        let what = format!("PersistentVolumeClaims of {}", counted(referring.len(), "pod"));
        remark(&what, "pods that use them have no place here", "pvc,pv,storageclasses")
    })
}

/// That the DaemonSets of pods are missing.
fn of_daemons(objects: &ClusterObjects) -> Option<Remark> {
    let known: BTreeSet<&str> = objects.daemon_sets.iter().map(|set| set.metadata.name.as_str()).collect();
    let owners = living(objects).filter(|pod| pods::is_daemon_owned(pod)).flat_map(|pod| &pod.metadata.owner_references);
    let sets: Vec<&str> = owners.filter(|owner| owner.kind == "DaemonSet").map(|owner| owner.name.as_str()).collect();
    let is_missing = !sets.is_empty() && !sets.iter().any(|name| known.contains(name));
    let what = is_missing.then(|| format!("DaemonSets of {}", counted(sets.len(), "pod")))?;
    Some(remark(&what, "new machines are planned without their pods", "daemonsets"))
}

fn remark(what: &str, so: &str, resources: &str) -> Remark {
    Remark::warning(format!(
        "none of the {what} is among the objects, so that {so}: add those of the cluster (`kubectl get -A -o yaml {resources}`)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::read_text;

    const POD: &str = "---\n{apiVersion: v1, kind: Pod, metadata: {name: db}, spec: {containers: [{name: c}], volumes: [{name: v, \
                       persistentVolumeClaim: {claimName: data}}]}}\n";
    const DAEMON: &str = "---\n{apiVersion: v1, kind: Pod, metadata: {name: agent-1, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, \
                          name: agent, uid: u, controller: true}]}, spec: {nodeName: node-1, containers: [{name: c}]}}\n";

    #[track_caller]
    fn check(text: &str, wanted: &[&str]) {
        let told = remarks(&read_text("dump.yaml", text).unwrap().objects);
        let told: Vec<String> = told.iter().map(ToString::to_string).collect();
        let has = |(told, wanted): (&String, &&str)| told.starts_with(&format!("warning: none of the {wanted} is among the objects, so"));
        assert!(told.len() == wanted.len() && told.iter().zip(wanted).all(has), "{told:?}");
    }

    fn claim(spec: &str) -> String {
        format!(
            "---\n{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: data}}, spec: {{accessModes: [ReadWriteOnce], \
             resources: {{requests: {{storage: 1Gi}}}}, {spec}}}}}\n"
        )
    }

    /// Without these a cluster with volumes had `nothing to do`, and nothing to save.
    #[test]
    fn kinds_that_a_dump_was_made_without_are_told() {
        check(POD, &["PersistentVolumeClaims of 1 pod"]);
        check(&format!("{POD}{}", POD.replace("name: db", "name: db-2")), &["PersistentVolumeClaims of 2 pods"]);
        check(&format!("{POD}{}", claim("volumeName: pv-1")), &["PersistentVolumes of 1 PersistentVolumeClaim"]);
        check(&format!("{POD}{}", claim("storageClassName: gp3")), &["StorageClasses of 1 PersistentVolumeClaim"]);
        check(&format!("{POD}{DAEMON}"), &["PersistentVolumeClaims of 1 pod", "DaemonSets of 1 pod"]);
    }

    #[test]
    fn a_dump_with_some_of_a_kind_and_one_that_needs_none_are_left_alone() {
        let volume = "---\n{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv-1}, spec: {capacity: {storage: 1Gi}, \
                      accessModes: [ReadWriteOnce], csi: {driver: ebs.csi.aws.com, volumeHandle: vol-1}}}\n";
        let other = POD.replace("name: db", "name: db-2").replace("claimName: data", "claimName: gone");
        check(&format!("{POD}{other}{}{volume}", claim("volumeName: pv-1")), &[]);
        let class = "---\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: gp3}, provisioner: ebs.csi.aws.com}\n";
        check(&format!("{POD}{}{class}", claim("storageClassName: gp3")), &[]);
        let set = "---\n{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent}, spec: {selector: {matchLabels: {a: b}}, template: \
                   {metadata: {labels: {a: b}}, spec: {containers: [{name: c}]}}}}\n";
        check(&format!("{DAEMON}{set}"), &[]);
        check("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}\n", &[]);
        let ended = format!("{}, status: {{phase: Succeeded}}}}\n", POD.trim_end().strip_suffix('}').unwrap());
        check(&ended, &[]);
    }

    /// The claims of a StatefulSet outlive its pods.
    #[test]
    fn what_no_pod_uses_needs_no_volume_and_no_class() {
        check(&claim("volumeName: pv-1"), &[]);
        check(&claim("storageClassName: gp3"), &[]);
        let others = POD.replace("name: db", "name: db-2").replace("claimName: data", "claimName: other");
        let other = claim("volumeName: pv-2").replace("name: data", "name: other");
        check(&format!("{}{others}{other}", claim("volumeName: pv-1")), &["PersistentVolumes of 1 PersistentVolumeClaim"]);
    }

    /// A class may be missing in the cluster itself, as for volumes that somebody makes by hand.
    #[test]
    fn a_dump_with_other_volumes_or_classes_was_made_with_them() {
        let class = "---\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: gp3}, provisioner: ebs.csi.aws.com}\n";
        check(&format!("{POD}{}{class}", claim("storageClassName: manual")), &[]);
    }
}
