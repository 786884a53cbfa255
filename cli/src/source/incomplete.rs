//! Kinds that a dump was made without, though its pods depend on some: these have no place then, or new machines no room for daemons, and
//! the answer is not one about the cluster.

use super::remarks::Remark;
use crate::money::counted;
use std::collections::BTreeSet;
use whittle_api::k8s::{PersistentVolumeClaim, Pod};
use whittle_api::{ClusterObjects, ObjectMeta};
use whittle_model::pods;

/// A warning for each kind of which something refers to objects, and none of those is there. Where only some are missing, the reasons of
/// pods name them.
pub(super) fn remarks(objects: &ClusterObjects) -> Vec<Remark> {
    let unplaced = "pods that use them have no place here";
    let claims = &objects.volume_claims;
    let bound = claims.iter().map(|claim| claim.spec.volume_name.as_str()).filter(|name| !name.is_empty());
    let unbound = claims.iter().filter(|claim| claim.spec.volume_name.is_empty());
    let classes = unbound.filter_map(|claim| claim.spec.storage_class_name.as_deref()).filter(|name| !name.is_empty());
    let of_claims = |count: usize| counted(count, "PersistentVolumeClaim");
    [
        of_pods(objects),
        missing("PersistentVolumes", bound, &names(objects.volumes.iter().map(|volume| &volume.metadata)), of_claims)
            .map(|what| told(&what, unplaced, "pv")),
        missing("StorageClasses", classes, &names(objects.storage_classes.iter().map(|class| &class.metadata)), of_claims)
            .map(|what| told(&what, unplaced, "storageclasses")),
        of_daemons(objects),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn names<'o>(metadata: impl Iterator<Item = &'o ObjectMeta>) -> BTreeSet<&'o str> {
    metadata.map(|metadata| metadata.name.as_str()).collect()
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
        told(&what, "pods that use them have no place here", "pvc,pv,storageclasses")
    })
}

/// That the DaemonSets of pods are missing.
fn of_daemons(objects: &ClusterObjects) -> Option<Remark> {
    let known = names(objects.daemon_sets.iter().map(|set| &set.metadata));
    let owners = living(objects).filter(|pod| pods::is_daemon_owned(pod)).flat_map(|pod| &pod.metadata.owner_references);
    let sets = owners.filter(|owner| owner.kind == "DaemonSet").map(|owner| owner.name.as_str());
    let what = missing("DaemonSets", sets, &known, |count| counted(count, "pod"))?;
    Some(told(&what, "new machines are planned without their pods", "daemonsets"))
}

/// What is missing, if something refers to it and nothing of it is known.
fn missing<'o>(
    kinds: &str,
    references: impl Iterator<Item = &'o str>,
    known: &BTreeSet<&str>,
    of: impl Fn(usize) -> String,
) -> Option<String> {
    let references: Vec<&str> = references.collect();
    let is_missing = !references.is_empty() && !references.iter().any(|name| known.contains(name));
    is_missing.then(|| format!("{kinds} of {}", of(references.len())))
}

fn told(what: &str, so: &str, resources: &str) -> Remark {
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
}
