//! What an API server refuses in objects of Kubernetes' own kinds, as far as it matters here: names, and numbers of replicas.
//! Karpenter's kinds are validated with their schemas.

use super::identity::name_fault;
use whittle_api::field::FieldPath;
use whittle_api::manifest::{Located, ManifestError, Object};

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

/// The errors of an object, of which `most` replicas can be followed.
pub(crate) fn faults(located: &Located<Object>, most: i32) -> Vec<ManifestError> {
    let object = &located.value;
    let (api_version, kind) = object.type_meta();
    let ours = api_version.starts_with("karpenter.") || matches!(object, Object::ClusterConfig(_) | Object::Unknown { .. });
    if ours {
        return Vec::new();
    }
    let key = object.key();
    let name = key.rsplit_once('/').map_or(key.as_str(), |(_, name)| name);
    let fault = |field: &[&str], message: String| ManifestError {
        file: located.file.clone(),
        document: located.document,
        mark: None,
        object: Some(format!("{kind} {name:?}")),
        field: field.iter().fold(FieldPath::root(), |path, part| path.key(part)),
        message,
    };
    let replicas = match object {
        Object::Deployment(object) => object.spec.replicas,
        Object::ReplicaSet(object) => object.spec.replicas,
        Object::StatefulSet(object) => object.spec.replicas,
        _ => None,
    };
    let replicas = replicas.and_then(|replicas| replicas_fault(replicas, most)).map(|message| fault(&["spec", "replicas"], message));
    name_fault(name).map(|message| fault(&["metadata", "name"], message)).into_iter().chain(replicas).collect()
}
