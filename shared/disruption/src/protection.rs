//! Which pods must not be evicted (disruption 3.4, 3.5).

use jiff::{SignedDuration, Timestamp};
use whittle_api::k8s::{Pod, Taint};
use whittle_api::labels;
use whittle_model::pods::{is_active, tolerates};

/// Annotations that protect a node, where their value is `true`: the deprecated ones are honoured as well. Nodes do not support durations.
pub const NODE_PROTECTIONS: [&str; 3] = [labels::DO_NOT_DISRUPT, labels::DO_NOT_CONSOLIDATE, labels::DO_NOT_EVICT];

/// Whether the pod is evicted through the API when its node is drained.
pub fn is_evictable(pod: &Pod, now: Timestamp) -> bool {
    is_active(pod) && !tolerates_disruption(pod) && !is_mirror(pod) && !protection(pod, now).is_active()
}

/// The mirror pod of a static pod, owned by its Node.
fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.owner_references.iter().any(|owner| owner.kind == "Node" && owner.api_version == "v1")
}

/// Whether the pod stays on a node with the disruption taint.
fn tolerates_disruption(pod: &Pod) -> bool {
    tolerates(&pod.spec.tolerations, &Taint::disrupted())
}

/// Protection by the pod's own annotations (disruption 3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protection {
    /// No annotation.
    None,
    /// As long as the annotation with this key exists.
    Always(&'static str),
    /// Until a time; `None` while the pod has not started.
    Until(Option<Timestamp>),
    /// The duration has elapsed.
    Elapsed,
    /// The value is neither `true` nor a positive duration.
    Invalid(String),
}

impl Protection {
    /// Whether the pod must not be disrupted now.
    pub fn is_active(&self) -> bool {
        matches!(self, Self::Always(_) | Self::Until(_))
    }
    /// Key of the annotation that protects the pod.
    pub fn key(&self) -> &'static str {
        if let Self::Always(key) = self { key } else { labels::DO_NOT_DISRUPT }
    }
}

/// The protection of a pod at `now`. The deprecated annotation is honoured as well.
pub fn protection(pod: &Pod, now: Timestamp) -> Protection {
    if pod.metadata.annotation(labels::DO_NOT_EVICT) == Some("true") {
        return Protection::Always(labels::DO_NOT_EVICT);
    }
    let Some(value) = pod.metadata.annotation(labels::DO_NOT_DISRUPT) else { return Protection::None };
    if value == "true" {
        return Protection::Always(labels::DO_NOT_DISRUPT);
    }
    match value.parse::<whittle_api::GoDuration>() {
        Ok(duration) if duration.span() > SignedDuration::ZERO => match pod.status.start_time {
            None => Protection::Until(None),
            Some(start) => match start.checked_add(duration.span()) {
                Ok(end) if end <= now => Protection::Elapsed,
                Ok(end) => Protection::Until(Some(end)),
                Err(_) => Protection::Until(None),
            },
        },
        _ => Protection::Invalid(value.to_owned()),
    }
}

/// The annotation that protects the pod at `now`; `None` where none does, and for pods that have ended or are being deleted.
pub fn protected_by(pod: &Pod, now: Timestamp) -> Option<&'static str> {
    let found = protection(pod, now);
    (is_active(pod) && found.is_active()).then(|| found.key())
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::OwnerReference;
    use whittle_api::k8s::Toleration;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).unwrap()
    }

    fn annotated(key: &str, value: &str, start: Option<i64>) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.annotations.insert(key.to_owned(), value.to_owned());
        pod.status.start_time = start.map(at);
        pod
    }

    #[track_caller]
    fn check_protection(value: &str, start: Option<i64>, now: i64, want: &Protection) {
        assert_eq!(protection(&annotated(labels::DO_NOT_DISRUPT, value, start), at(now)), *want, "value {value:?}");
    }

    #[test]
    fn a_pod_is_protected_by_true_or_a_running_duration() {
        check_protection("true", None, 0, &Protection::Always(labels::DO_NOT_DISRUPT));
        check_protection("1h", Some(0), 3599, &Protection::Until(Some(at(3600))));
        check_protection("1h", Some(0), 3600, &Protection::Elapsed);
        check_protection("+1h", Some(0), 3599, &Protection::Until(Some(at(3600))));
        check_protection("+1h", Some(0), 3600, &Protection::Elapsed);
        check_protection("1h30m", None, 9999, &Protection::Until(None));
        for odd in ["false", "True", "0s", "+0", "+", "-5m", "soon", ""] {
            check_protection(odd, Some(0), 1, &Protection::Invalid(odd.to_owned()));
        }
    }

    #[test]
    fn the_old_annotation_protects_as_well() {
        let pod = annotated(labels::DO_NOT_EVICT, "true", None);
        assert_eq!(protection(&pod, at(0)), Protection::Always(labels::DO_NOT_EVICT));
        assert!(!protection(&annotated(labels::DO_NOT_EVICT, "false", None), at(0)).is_active());
    }

    #[test]
    fn only_a_pod_that_runs_is_protected() {
        let key = labels::DO_NOT_DISRUPT;
        let runs = annotated(key, "true", None);
        assert_eq!(protected_by(&runs, at(0)), Some(key));
        assert_eq!(protected_by(&annotated(labels::DO_NOT_EVICT, "true", None), at(0)), Some(labels::DO_NOT_EVICT));
        assert_eq!(protected_by(&annotated(key, "1h", Some(0)), at(3599)), Some(key));
        assert_eq!(protected_by(&annotated(key, "1h", Some(0)), at(3600)), None);
        assert_eq!(protected_by(&annotated(key, "false", None), at(0)), None);
        let mut ending = runs.clone();
        ending.metadata.deletion_timestamp = Some(at(1));
        let mut ended = runs;
        "Succeeded".clone_into(&mut ended.status.phase);
        assert_eq!([protected_by(&ending, at(0)), protected_by(&ended, at(0))], [None, None]);
    }

    #[test]
    fn tolerating_or_protected_pods_are_not_evicted() {
        let plain = Pod::default();
        assert!(is_evictable(&plain, at(0)));
        assert!(!is_evictable(&annotated(labels::DO_NOT_DISRUPT, "true", None), at(0)));
        let mut tolerating = Pod::default();
        tolerating.spec.tolerations.push(Toleration { operator: "Exists".to_owned(), ..Toleration::default() });
        assert!(!is_evictable(&tolerating, at(0)));
        let mut mirror = Pod::default();
        let owner = OwnerReference { api_version: "v1".to_owned(), kind: "Node".to_owned(), ..OwnerReference::default() };
        mirror.metadata.owner_references.push(owner);
        assert!(!is_evictable(&mirror, at(0)));
    }
}
