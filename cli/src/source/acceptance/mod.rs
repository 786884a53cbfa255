//! What an API server refuses in objects of Kubernetes' own kinds, in the fields that decisions read: one judge for all commands.
//! Karpenter's kinds are validated with their schemas.
//!
//! What a cluster has was accepted once, and versions of Kubernetes differ in what they accept: a rule that newer ones relaxed, or added
//! for new objects only, is none here.

mod judged;
mod pod;
mod resources;
mod selectors;
mod spread;
#[cfg(test)]
mod tests;

pub(crate) use judged::Judged;

use whittle_api::ObjectMeta;
use whittle_api::field::{FieldError, FieldPath};
use whittle_api::k8s::{IntOrString, Job, Kind, PdbSpec};
use whittle_api::manifest::{ClusterConfig, ClusterConfigMeta, Located, ManifestError, Object};

/// The largest number of replicas that is planned. An API server has no such limit, but every pod takes memory and time.
pub(crate) const REPLICAS_MAX: i32 = 100_000;

/// The same for a cluster whose every second is simulated.
pub(crate) const SIMULATED_MAX: i32 = 10_000;

/// What is wrong with a number of replicas, and what to do about it.
pub(crate) fn replicas_fault(replicas: i32, most: i32) -> Option<String> {
    if replicas < 0 {
        return Some(format!("{replicas} replicas cannot be: write 0 or more"));
    }
    (most < replicas).then(|| format!("{replicas} replicas are too many to follow: write at most {most}"))
}

/// What is wrong with a PodDisruptionBudget: the field of its `spec`, and what to do about it. An API server has none such.
pub(crate) fn budget_fault(spec: &PdbSpec) -> Option<(&'static str, String)> {
    if spec.min_available.is_some() && spec.max_unavailable.is_some() {
        return Some(("maxUnavailable", "a budget has either minAvailable or maxUnavailable: leave one of them out".to_owned()));
    }
    let policy = &spec.unhealthy_pod_eviction_policy;
    if !["", "IfHealthyBudget", "AlwaysAllow"].contains(&policy.as_str()) {
        return Some(("unhealthyPodEvictionPolicy", format!("{policy:?} is no policy: write IfHealthyBudget or AlwaysAllow")));
    }
    let wrong = |value: &Option<IntOrString>| match value.as_ref()? {
        IntOrString::Int(count) => {
            u32::try_from(*count).ok().filter(|count| i32::try_from(*count).is_ok()).is_none().then(|| count.to_string())
        }
        IntOrString::Text(text) => {
            let digits = text.strip_suffix('%').filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
            let percent = digits.and_then(|digits| digits.parse::<u32>().ok());
            percent.is_none_or(|percent| 100 < percent).then(|| format!("{text:?}"))
        }
    };
    let values = [("minAvailable", &spec.min_available), ("maxUnavailable", &spec.max_unavailable)];
    let (field, value) = values.into_iter().find_map(|(field, value)| Some((field, wrong(value)?)))?;
    Some((field, format!("{value} is no number of pods: write a whole number from 0 to 2147483647, or a percentage from 0% to 100%")))
}

/// The errors of an object, of which `most` replicas can be followed.
pub(crate) fn faults(located: &Located<Object>, most: i32) -> Vec<ManifestError> {
    let (name, faults) = match (judged(&located.value, most), &located.value) {
        (Some((metadata, faults)), _) => (metadata.name.as_str(), faults),
        (None, Object::ClusterConfig(config)) => (config.metadata.name.as_str(), faults_of_cluster(config)),
        (None, _) => return Vec::new(),
    };
    let fault = |error: FieldError| ManifestError {
        file: located.file.clone(),
        document: located.document,
        mark: None,
        object: Some(format!("{} {name:?}", located.value.type_meta().1)),
        field: error.path,
        message: error.message,
    };
    faults.into_iter().map(fault).collect()
}

/// What eksctl refuses of a description of a cluster.
fn faults_of_cluster(config: &ClusterConfig) -> Vec<FieldError> {
    let ClusterConfigMeta { name, region, .. } = &config.metadata;
    let missing = [("metadata.name", name), ("metadata.region", region)].into_iter().filter(|(_, text)| text.is_empty());
    missing.map(|(field, _)| FieldError::new(FieldPath::of(field), "missing: eksctl needs it, indented below metadata")).collect()
}

/// What is wrong with an object, of which `most` replicas can be followed.
pub(crate) fn faults_of<T: Judged>(object: &T, most: i32) -> Vec<FieldError> {
    too_many(object, most).into_iter().chain(object.faults()).collect()
}

/// What is wrong with the number of pods that an object asks for. Too many are so in a cluster, too.
pub(crate) fn too_many<T: Judged>(object: &T, most: i32) -> Option<FieldError> {
    let (field, replicas) = object.replicas()?;
    let fault = replicas_fault(replicas, most)?;
    let fault = if T::KIND == Job::KIND { fault.replace("replicas", "pods at a time") } else { fault };
    Some(FieldError::new(FieldPath::of(field), fault))
}

/// The metadata of an object, and what is wrong with it. Karpenter's kinds are validated with their schemas.
fn judged(object: &Object, most: i32) -> Option<(&ObjectMeta, Vec<FieldError>)> {
    fn of<T: Judged>(object: &T, most: i32) -> Option<(&ObjectMeta, Vec<FieldError>)> {
        Some((object.meta(), faults_of(object, most)))
    }
    match object {
        Object::Pod(object) => of(&**object, most),
        Object::Deployment(object) => of(&**object, most),
        Object::ReplicaSet(object) => of(&**object, most),
        Object::StatefulSet(object) => of(&**object, most),
        Object::DaemonSet(object) => of(&**object, most),
        Object::ReplicationController(object) => of(&**object, most),
        Object::Job(object) => of(&**object, most),
        Object::PodTemplate(object) => of(&**object, most),
        Object::Service(object) => of(&**object, most),
        Object::ConfigMap(object) => of(&**object, most),
        Object::Namespace(object) => of(&**object, most),
        Object::Node(object) => of(&**object, most),
        Object::PodDisruptionBudget(object) => of(&**object, most),
        Object::PriorityClass(object) => of(&**object, most),
        Object::PersistentVolumeClaim(object) => of(&**object, most),
        Object::PersistentVolume(object) => of(&**object, most),
        Object::StorageClass(object) => of(&**object, most),
        Object::CsiNode(object) => of(&**object, most),
        Object::VolumeAttachment(object) => of(&**object, most),
        Object::NodePool(_) | Object::NodeClaim(_) | Object::NodeOverlay(_) | Object::NodeClass(_) | Object::CapacityBuffer(_) => None,
        Object::Legacy(_) | Object::ClusterConfig(_) | Object::Unknown { .. } => None,
    }
}
