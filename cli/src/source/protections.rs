//! Pods whose annotation is meant to protect them from disruption, and does not (disruption 3.5).

use super::remarks::Remark;
use std::collections::BTreeMap;
use whittle_api::k8s::Pod;
use whittle_api::labels;
use whittle_disruption::Protection;
use whittle_units::Timestamp;

/// A warning for each value that protects nothing. `false` is meant to.
pub(super) fn remarks(pods: &[Pod], now: Timestamp) -> Vec<Remark> {
    let mut by_value: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.is_terminal()) {
        if let Protection::Invalid(value) = whittle_disruption::protection(pod, now)
            && value != "false"
        {
            by_value.entry(value).or_default().push(pod.metadata.key());
        }
    }
    let told = |(value, pods): (String, Vec<String>)| {
        let (first, others) = (pods.first().map_or("", String::as_str), pods.len().saturating_sub(1));
        let others = if others == 0 { String::new() } else { format!(" and {others} more") };
        Remark::warning(format!(
            "Pod {first:?}{others}, metadata.annotations: {} with the value {value:?} protects nothing: write \"true\", or a positive \
             duration such as 4h",
            labels::DO_NOT_DISRUPT
        ))
    };
    by_value.into_iter().map(told).collect()
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
