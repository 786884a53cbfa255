//! Volumes of StatefulSets' pods that no cluster has seen: their controller makes a claim for each template and pod, and a claim that is
//! there already keeps its pod where its volume is.

use super::documents::Document;
use super::ephemeral::default_class;
use super::error::ReadError;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::field::FieldPath;
use whittle_api::k8s::{ClaimSource, PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod, StorageClass, Volume};
use whittle_api::{ClusterObjects, ObjectMeta, words};

/// The claims that a StatefulSet makes for each of its pods; their names are those of the volumes.
///
/// # Errors
/// One that cannot be read.
pub(super) fn claim_templates(document: &Document) -> Result<Vec<PersistentVolumeClaim>, ReadError> {
    let templates = document.value.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array);
    let mut claims = Vec::new();
    for (at, template) in templates.into_iter().flatten().enumerate() {
        let read: Result<PersistentVolumeClaim, _> = serde_path_to_error::deserialize(template);
        claims.push(read.map_err(|error| {
            let field = FieldPath::of("spec.volumeClaimTemplates").index(at).join(&FieldPath::of_error(error.path()));
            document.fault(&field, words::plain(&error.inner().to_string()))
        })?);
    }
    claims.retain(|claim| !claim.metadata.name.is_empty());
    Ok(claims)
}

/// What volumes are made of: the claims and classes among the manifests.
#[derive(Debug, Default)]
pub(super) struct Storage {
    /// By namespace and name: whether it is known where the volume is, or may be. A dump of workloads and claims alone has neither volumes
    /// nor classes, and its claims would keep all of these pods without a place.
    claims: BTreeMap<String, bool>,
    /// Those whose volumes are made where the pod goes. The others' are made at once, in a zone that cannot be foreseen.
    classes: BTreeSet<String>,
    default_class: Option<String>,
    /// Claims that there were not.
    pub(super) made: Vec<PersistentVolumeClaim>,
}

impl Storage {
    pub(super) fn of(objects: &ClusterObjects) -> Self {
        let waits = |class: &&StorageClass| class.volume_binding_mode == "WaitForFirstConsumer";
        let is_known = |claim: &PersistentVolumeClaim| match (claim.spec.volume_name.as_str(), claim.spec.storage_class_name.as_deref()) {
            ("", None | Some("")) => true,
            ("", Some(_)) => !objects.storage_classes.is_empty(),
            _ => !objects.volumes.is_empty(),
        };
        Self {
            claims: objects.volume_claims.iter().map(|claim| (claim.metadata.key(), is_known(claim))).collect(),
            classes: objects.storage_classes.iter().filter(waits).map(|class| class.metadata.name.clone()).collect(),
            default_class: default_class(&objects.storage_classes),
            made: Vec::new(),
        }
    }

    /// Gives a pod the volumes that its StatefulSet claims for the pod of this name, which take the place of those of the same names.
    /// Returns whether it has all: where a volume would be is not known if neither its claim, with what that refers to, nor such a class
    /// is among the manifests.
    pub(super) fn give_volumes(&mut self, pod: &mut Pod, of: &str, templates: &[PersistentVolumeClaim]) -> bool {
        let mut has_all = true;
        for template in templates {
            let volume = &template.metadata.name;
            pod.spec.volumes.retain(|own| own.name != *volume);
            let claim_name = format!("{volume}-{of}");
            let metadata = ObjectMeta {
                uid: format!("{}-{volume}", pod.metadata.uid),
                creation_timestamp: pod.metadata.creation_timestamp,
                ..ObjectMeta::namespaced(pod.metadata.namespace.clone(), claim_name.clone())
            };
            let known = self.claims.get(&metadata.key()).copied();
            if known == Some(false) {
                has_all = false;
                continue;
            }
            if known.is_none() {
                let class = template.spec.storage_class_name.clone().or_else(|| self.default_class.clone());
                let Some(class) = class.filter(|class| self.classes.contains(class)) else {
                    has_all = false;
                    continue;
                };
                let spec = PersistentVolumeClaimSpec { storage_class_name: Some(class), ..template.spec.clone() };
                self.made.push(PersistentVolumeClaim { metadata, spec, ..PersistentVolumeClaim::default() });
            }
            let persistent_volume_claim = Some(ClaimSource { claim_name });
            pod.spec.volumes.push(Volume { name: volume.clone(), persistent_volume_claim, ..Volume::default() });
        }
        has_all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(name: &str, class: Option<&str>) -> PersistentVolumeClaim {
        let metadata = ObjectMeta::namespaced("team", name);
        let spec = PersistentVolumeClaimSpec { storage_class_name: class.map(str::to_owned), ..PersistentVolumeClaimSpec::default() };
        PersistentVolumeClaim { metadata, spec, ..PersistentVolumeClaim::default() }
    }

    fn class(name: &str, is_default: &str) -> StorageClass {
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": is_default});
        let class = json!({"metadata": {"name": name, "annotations": annotations}, "volumeBindingMode": "WaitForFirstConsumer"});
        serde_json::from_value(class).unwrap()
    }

    /// Checks the volumes of pod `db-0`, whose template has the volumes `data`, of another claim, and `tmp`; and the claims that are made.
    #[track_caller]
    fn check(
        objects: &ClusterObjects,
        templates: &[PersistentVolumeClaim],
        volumes: &[(&str, &str)],
        made: &[(&str, &str)],
        has_all: bool,
    ) {
        let of_template = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "tmp", "emptyDir": {}}]);
        let pod = json!({"metadata": {"name": "db-0", "namespace": "team"}, "spec": {"volumes": of_template}});
        let mut pod: Pod = serde_json::from_value(pod).unwrap();
        let mut storage = Storage::of(objects);
        assert_eq!(storage.give_volumes(&mut pod, "db-0", templates), has_all);
        let claimed = |volume: &Volume| volume.persistent_volume_claim.clone().unwrap_or_default().claim_name;
        let has: Vec<(String, String)> = pod.spec.volumes.iter().map(|volume| (volume.name.clone(), claimed(volume))).collect();
        let has: Vec<(&str, &str)> = has.iter().map(|(name, claim)| (name.as_str(), claim.as_str())).collect();
        assert_eq!(has, volumes);
        let class = |claim: &PersistentVolumeClaim| claim.spec.storage_class_name.clone().unwrap_or_default();
        let all: Vec<(String, String)> = storage.made.iter().map(|claim| (claim.metadata.key(), class(claim))).collect();
        let all: Vec<(&str, &str)> = all.iter().map(|(name, class)| (name.as_str(), class.as_str())).collect();
        assert_eq!(all, made);
    }

    #[test]
    fn a_claim_takes_the_place_of_the_volume_of_its_name_and_is_made_once() {
        let classes = vec![class("gp2", "false"), class("gp3", "true")];
        let objects = ClusterObjects { storage_classes: classes, ..ClusterObjects::default() };
        let claimed = [("tmp", ""), ("data", "data-db-0")];
        check(&objects, &[claim("data", Some("gp2"))], &claimed, &[("team/data-db-0", "gp2")], true);
        check(&objects, &[claim("data", None)], &claimed, &[("team/data-db-0", "gp3")], true);
        let there = ClusterObjects { volume_claims: vec![claim("data-db-0", Some("old"))].into(), ..objects };
        check(&there, &[claim("data", Some("gp2"))], &claimed, &[], true);
    }

    /// `kubectl get all,pvc` has neither volumes nor classes. Where it has some, and not that one, the cluster lacks it.
    #[test]
    fn a_claim_in_a_dump_without_its_volumes_is_left_out() {
        let bound = |volume: &str| {
            let mut bound = claim("data-db-0", Some("gp2"));
            bound.spec.volume_name = volume.to_owned();
            ClusterObjects { volume_claims: vec![bound].into(), ..ClusterObjects::default() }
        };
        let templates = [claim("data", Some("gp2"))];
        check(&bound("pv-1"), &templates, &[("tmp", "")], &[], false);
        check(&bound(""), &templates, &[("tmp", "")], &[], false);
        let (claimed, volumes) = ([("tmp", ""), ("data", "data-db-0")], vec![whittle_api::k8s::PersistentVolume::default()].into());
        check(&ClusterObjects { volumes, ..bound("pv-1") }, &templates, &claimed, &[], true);
        check(&ClusterObjects { storage_classes: vec![class("gp3", "true")], ..bound("") }, &templates, &claimed, &[], true);
    }

    #[test]
    fn a_claim_whose_volume_may_be_anywhere_is_left_out() {
        let at_once = StorageClass { volume_binding_mode: "Immediate".to_owned(), ..class("now", "false") };
        let objects = ClusterObjects { storage_classes: vec![class("gp2", "false"), at_once], ..ClusterObjects::default() };
        for wanted in [Some("gp3"), Some("now"), Some(""), None] {
            check(&objects, &[claim("data", wanted)], &[("tmp", "")], &[], false);
        }
        check(&objects, &[], &[("data", "data"), ("tmp", "")], &[], true);
    }
}
