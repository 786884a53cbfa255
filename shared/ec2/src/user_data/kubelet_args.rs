//! Kubelet settings as command line arguments (aws 12.3), for AL2 and Windows.

use super::Bootstrap;
use std::fmt::Display;
use whittle_api::k8s::{Taint, TaintEffect};

/// The arguments in a fixed order, separated by spaces.
pub(super) fn render(bootstrap: &Bootstrap<'_>) -> String {
    let (kubelet, resolved) = (bootstrap.kubelet, bootstrap.resolved);
    let grace = kubelet.eviction_soft_grace_period.iter().map(|(signal, span)| (signal, span.canonical()));
    let arguments: Vec<Option<String>> = vec![
        (!bootstrap.labels.is_empty()).then(|| node_labels(bootstrap)),
        Some(format!("--register-with-taints=\"{}\"", joined(bootstrap.taints.iter().map(taint)))),
        Some(format!("--max-pods={}", resolved.max_pods)),
        kubelet.pods_per_core.filter(|count| *count > 0).map(|count| format!("--pods-per-core={count}")),
        pairs("system-reserved", '=', &resolved.system_reserved),
        pairs("kube-reserved", '=', &resolved.kube_reserved),
        pairs("eviction-hard", '<', &kubelet.eviction_hard),
        pairs("eviction-soft", '<', &kubelet.eviction_soft),
        pairs("eviction-soft-grace-period", '=', grace),
        kubelet.eviction_max_pod_grace_period.map(|seconds| format!("--eviction-max-pod-grace-period={seconds}")),
        kubelet.image_gc_high_threshold_percent.map(|percent| format!("--image-gc-high-threshold={percent}")),
        kubelet.image_gc_low_threshold_percent.map(|percent| format!("--image-gc-low-threshold={percent}")),
        kubelet.cpu_cfs_quota.map(|on| format!("--cpu-cfs-quota={on}")),
    ];
    arguments.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// `--node-labels="k=v,…"`, keys sorted.
pub(super) fn node_labels(bootstrap: &Bootstrap<'_>) -> String {
    format!("--node-labels=\"{}\"", joined(bootstrap.labels.iter().map(|(key, value)| format!("{key}={value}"))))
}

fn pairs<'a, V: Display>(flag: &str, sign: char, entries: impl IntoIterator<Item = (&'a String, V)>) -> Option<String> {
    let text = joined(entries.into_iter().map(|(key, value)| format!("{key}{sign}{value}")));
    (!text.is_empty()).then(|| format!("--{flag}=\"{text}\""))
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

fn taint(taint: &Taint) -> String {
    let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
    format!("{}{value}:{}", taint.key, effect(taint.effect))
}

pub(super) const fn effect(effect: TaintEffect) -> &'static str {
    match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    }
}
