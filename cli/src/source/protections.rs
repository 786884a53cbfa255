//! Pods whose annotation is meant to protect them from disruption, and does not (disruption 3.5).

use super::remarks::Remark;
use crate::listing::first_named;
use std::collections::BTreeMap;
use whittle_api::k8s::Pod;
use whittle_api::labels;
use whittle_disruption::Protection;
use whittle_units::Timestamp;

/// What is wrong with the annotation of a pod, if it protects nothing; `false` is not meant to.
pub(crate) fn fault(pod: &Pod, now: Timestamp) -> Option<String> {
    let Protection::Invalid(value) = whittle_disruption::protection(pod, now) else { return None };
    (value != "false").then(|| {
        format!(
            "metadata.annotations: {} with the value {value:?} protects nothing: write \"true\", or a positive duration such as 4h",
            labels::DO_NOT_DISRUPT
        )
    })
}

/// A warning for each value that protects nothing.
pub(super) fn remarks(pods: &[Pod], now: Timestamp) -> Vec<Remark> {
    let mut by_fault: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.is_terminal()) {
        if let Some(fault) = fault(pod, now) {
            by_fault.entry(fault).or_default().push(format!("{:?}", pod.metadata.key()));
        }
    }
    by_fault.into_iter().map(|(fault, pods)| Remark::warning(format!("Pod {}, {fault}", first_named(&pods, 1)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, value: Option<&str>) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = name.to_owned();
        pod.metadata.annotations.extend(value.map(|value| (labels::DO_NOT_DISRUPT.to_owned(), value.to_owned())));
        pod
    }

    #[test]
    fn pods_that_an_annotation_does_not_protect_are_told_once_for_each_value() {
        let pods = [pod("a", Some("True")), pod("b", Some("True")), pod("c", Some("5x"))];
        let told: Vec<String> = remarks(&pods, Timestamp::UNIX_EPOCH).iter().map(ToString::to_string).collect();
        let of = |pods: &str, value: &str| {
            format!(
                "warning: Pod {pods}, metadata.annotations: karpenter.sh/do-not-disrupt with the value {value:?} protects nothing: write \
                 \"true\", or a positive duration such as 4h"
            )
        };
        assert_eq!(told, [of("\"c\"", "5x"), of("\"a\" and 1 more", "True")]);
    }

    #[test]
    fn pods_that_are_protected_or_not_meant_to_be_are_not_told() {
        let mut ended = pod("ended", Some("True"));
        ended.status.phase = "Succeeded".to_owned();
        let pods = [pod("a", None), pod("b", Some("true")), pod("c", Some("4h")), pod("d", Some("false")), ended];
        assert!(remarks(&pods, Timestamp::UNIX_EPOCH).is_empty());
    }
}
