//! Bottlerocket's settings (aws 12.6): the user's TOML, overridden by our keys.

use super::{Bootstrap, UserDataError, kubelet_args};
use crate::kubelet::TextMap;
use toml::{Table, Value};

/// The keys of `settings.kubernetes`; with any other key the host would reject all of it.
const KNOWN: &str = "allowed-unsafe-sysctls api-server cloud-provider cluster-certificate cluster-dns-ip cluster-domain \
    cluster-name container-log-max-files container-log-max-size container-log-max-workers container-log-monitor-interval \
    cpu-cfs-quota-enforced cpu-manager-policy cpu-manager-policy-options cpu-manager-reconcile-period credential-providers \
    device-ownership-from-security-context event-burst event-qps eviction-hard eviction-max-pod-grace-period eviction-soft \
    eviction-soft-grace-period hostname-override-source ids-per-pod image-gc-high-threshold-percent \
    image-gc-low-threshold-percent kube-api-burst kube-api-qps kube-reserved log-level max-pods memory-manager-policy \
    memory-manager-reserved-memory node-labels node-taints pod-pids-limit registry-burst registry-qps seccomp-default \
    server-tls-bootstrap shutdown-grace-period shutdown-grace-period-for-critical-pods single-process-oom-kill static-pods \
    system-reserved topology-manager-policy topology-manager-policy-options topology-manager-scope";

/// Name of the boot command that prepares local disks.
const MOUNT_COMMAND: &str = "000-mount-instance-storage";
/// Directories that releases before [`BINDS_BY_ITSELF`] need as arguments.
const DIRECTORIES: &[&str] = &["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"];
/// From this release on, `bind` knows the directories.
const BINDS_BY_ITSELF: (u64, u64) = (1, 46);

pub(super) fn render(bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    let fail = |problem: String| UserDataError::Toml { class: bootstrap.class_name(), problem };
    let custom = bootstrap.custom().unwrap_or_default();
    let mut root: Table = custom.parse().map_err(|error: toml::de::Error| fail(error.message().to_owned()))?;
    let settings = table(&mut root, "settings").map_err(fail)?;
    let kubernetes = table(settings, "kubernetes").map_err(fail)?;
    kubernetes.retain(|key, _| KNOWN.split_whitespace().any(|known| known == key));
    fill(kubernetes, bootstrap).map_err(fail)?;
    if bootstrap.uses_local_disks() {
        let commands = table(settings, "bootstrap-commands").map_err(fail)?;
        commands.insert(MOUNT_COMMAND.to_owned(), mount_command(version(bootstrap)).into());
    }
    root.retain(|key, _| key == "settings");
    toml::to_string(&root).map_err(|error| fail(error.to_string()))
}

/// The table under a key, created if absent.
fn table<'a>(parent: &'a mut Table, key: &str) -> Result<&'a mut Table, String> {
    let entry = parent.entry(key).or_insert_with(|| Table::new().into());
    entry.as_table_mut().ok_or_else(|| format!("{key:?} must be a table"))
}

fn fill(kubernetes: &mut Table, bootstrap: &Bootstrap<'_>) -> Result<(), String> {
    let (cluster, kubelet, resolved) = (bootstrap.cluster, bootstrap.kubelet, bootstrap.resolved);
    let text = |text: &str| Value::from(text);
    let grace: TextMap =
        kubelet.eviction_soft_grace_period.iter().map(|(signal, span)| (signal.clone(), span.canonical().to_string())).collect();
    // The host expects these percentages as strings.
    let percent = |percent: Option<i32>| percent.map(|percent| Value::from(percent.to_string()));
    let ours = [
        ("cluster-name", Some(text(&cluster.name))),
        ("api-server", Some(text(&cluster.endpoint))),
        ("cluster-certificate", cluster.ca_bundle.as_deref().map(text)),
        ("cluster-dns-ip", bootstrap.dns_servers().first().map(|address| text(address))),
        ("max-pods", Some(Value::from(i64::from(resolved.max_pods)))),
        ("system-reserved", texts(&resolved.system_reserved)),
        ("kube-reserved", texts(&resolved.kube_reserved)),
        ("eviction-hard", texts(&kubelet.eviction_hard)),
        ("eviction-soft", texts(&kubelet.eviction_soft)),
        ("eviction-soft-grace-period", texts(&grace)),
        ("eviction-max-pod-grace-period", kubelet.eviction_max_pod_grace_period.map(|seconds| Value::from(i64::from(seconds)))),
        ("image-gc-high-threshold-percent", percent(kubelet.image_gc_high_threshold_percent)),
        ("image-gc-low-threshold-percent", percent(kubelet.image_gc_low_threshold_percent)),
        ("cpu-cfs-quota-enforced", kubelet.cpu_cfs_quota.map(Value::from)),
    ];
    kubernetes.extend(ours.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    let labels = table(kubernetes, "node-labels")?;
    labels.extend(bootstrap.labels.iter().map(|(key, value)| (key.clone(), text(value))));
    let mut taints = Table::new();
    for taint in &bootstrap.taints {
        let entry = taints.entry(taint.key.clone()).or_insert_with(|| Value::Array(Vec::new()));
        if let Some(list) = entry.as_array_mut() {
            list.push(Value::from(format!("{}:{}", taint.value, kubelet_args::effect(taint.effect))));
        }
    }
    kubernetes.insert("node-taints".to_owned(), taints.into());
    Ok(())
}

fn texts(map: &TextMap) -> Option<Value> {
    (!map.is_empty()).then(|| map.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect::<Table>().into())
}

fn mount_command(version: &str) -> Table {
    let words = |words: &[&str]| Value::Array(words.iter().map(|word| Value::from(*word)).collect());
    let mut bind = vec!["apiclient", "ephemeral-storage", "bind"];
    if !binds_by_itself(version) {
        bind.extend(DIRECTORIES);
    }
    Table::from_iter([
        ("commands".to_owned(), Value::Array(vec![words(&["apiclient", "ephemeral-storage", "init"]), words(&bind)])),
        ("mode".to_owned(), Value::from("always")),
        ("essential".to_owned(), Value::from(true)),
    ])
}

/// The release of the class's machines; empty if unknown.
fn version<'a>(bootstrap: &Bootstrap<'a>) -> &'a str {
    let (spec, amis) = (&bootstrap.class.spec, &bootstrap.class.status.amis);
    if let Some((_, version)) = spec.alias() {
        return version;
    }
    let named = spec.ami_selector_terms.iter().filter_map(|term| term.name.as_deref());
    let by_id = amis.iter().filter(|ami| spec.ami_selector_terms.iter().any(|term| term.id.as_ref() == Some(&ami.id)));
    let mut names = named.chain(by_id.map(|ami| ami.name.as_str())).chain(amis.iter().map(|ami| ami.name.as_str()));
    names.find_map(version_in).unwrap_or_default()
}

/// The first `1.2.3`, with or without a leading v, in an image name. The 1.33 of `aws-k8s-1.33` is no release.
fn version_in(name: &str) -> Option<&str> {
    name.split('-').find(|word| release(word).is_some())
}

/// Major and minor number of a release of at least three parts.
fn release(word: &str) -> Option<(u64, u64)> {
    let mut parts = word.trim_start_matches('v').split('.');
    let release = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().map(|_| release)
}

fn binds_by_itself(version: &str) -> bool {
    version == "latest" || release(version).is_some_and(|release| release >= BINDS_BY_ITSELF)
}
