//! Bottlerocket's settings (aws 12.6): the user's TOML, overridden by our keys.

mod settings;

use super::{Bootstrap, UserDataError, check_base64, kubelet_args};
use crate::kubelet::TextMap;
use settings::{Addresses, BootstrapCommand, Kubernetes, Mode, typed};
use std::collections::BTreeMap;
use toml::{Table, Value};

const KUBERNETES: &str = "settings.kubernetes";
const TAINTS: &str = "settings.kubernetes.node-taints";
const COMMANDS: &str = "settings.bootstrap-commands";
/// Name of the boot command that prepares local disks.
const MOUNT_COMMAND: &str = "000-mount-instance-storage";
/// Directories that releases before [`BINDS_BY_ITSELF`] need as arguments.
const DIRECTORIES: &[&str] = &["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"];
/// From this release on, `bind` knows the directories.
const BINDS_BY_ITSELF: (u64, u64) = (1, 46);

pub(super) fn render(bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    let no_toml = |problem: String| UserDataError::Toml { class: bootstrap.class_name(), problem };
    let refused = |(setting, problem)| UserDataError::Setting { class: bootstrap.class_name(), setting, problem };
    let custom = bootstrap.custom().unwrap_or_default();
    let mut root: Table = custom.parse().map_err(|error: toml::de::Error| no_toml(error.message().to_owned()))?;
    let mut settings: Table = typed("settings", taken(&mut root, "settings")).map_err(refused)?;
    let mut kubernetes: Kubernetes = typed(KUBERNETES, taken(&mut settings, "kubernetes")).map_err(refused)?;
    let mut commands: BTreeMap<String, BootstrapCommand> = typed(COMMANDS, taken(&mut settings, "bootstrap-commands")).map_err(refused)?;
    fill(&mut kubernetes, bootstrap);
    check_certificate(&kubernetes).map_err(refused)?;
    if bootstrap.uses_local_disks() {
        commands.insert(MOUNT_COMMAND.to_owned(), mount_command(version(bootstrap)));
    }
    insert(&mut settings, "kubernetes", &kubernetes).map_err(no_toml)?;
    if !commands.is_empty() {
        insert(&mut settings, "bootstrap-commands", &commands).map_err(no_toml)?;
    }
    toml::to_string(&Table::from_iter([("settings".to_owned(), settings.into())])).map_err(|error| no_toml(error.to_string()))
}

/// The paths of what a user's text says and no host is given, since it is none of the settings that we know; nothing of a text that is
/// refused. Taints are known: ours take their place.
pub(super) fn dropped(text: &str) -> Vec<String> {
    let Ok(mut root) = text.parse::<Table>() else { return Vec::new() };
    let settings = taken(&mut root, "settings");
    let mut paths: Vec<String> = root.keys().cloned().collect();
    if let Some(given) = settings.get("kubernetes")
        && let Ok(known) = typed::<Kubernetes>(KUBERNETES, given.clone())
        && let Ok(kept) = Value::try_from(&known)
    {
        missing(KUBERNETES, given, &kept, &mut paths);
    }
    paths
}

/// Adds the paths of the keys that are only in the first of two tables.
fn missing(path: &str, given: &Value, kept: &Value, paths: &mut Vec<String>) {
    let (Value::Table(given), Value::Table(kept)) = (given, kept) else { return };
    for (key, value) in given {
        let path = format!("{path}.{key}");
        match kept.get(key) {
            None => paths.push(path),
            Some(_) if path == TAINTS => {}
            Some(kept) => missing(&path, value, kept, paths),
        }
    }
}

/// The value of a key, which is taken out of the table; an empty table if there is none.
fn taken(table: &mut Table, key: &str) -> Value {
    table.remove(key).unwrap_or_else(|| Table::new().into())
}

fn insert(table: &mut Table, key: &str, value: &impl serde::Serialize) -> Result<(), String> {
    let value = Value::try_from(value).map_err(|error| error.to_string())?;
    table.insert(key.to_owned(), value);
    Ok(())
}

fn fill(settings: &mut Kubernetes, bootstrap: &Bootstrap<'_>) {
    let (cluster, kubelet, resolved) = (bootstrap.cluster, bootstrap.kubelet, bootstrap.resolved);
    let soft_grace: TextMap =
        kubelet.eviction_soft_grace_period.iter().map(|(signal, span)| (signal.clone(), span.canonical().to_string())).collect();
    settings.cluster_name = Some(cluster.name.clone());
    settings.api_server = Some(cluster.endpoint.clone());
    settings.max_pods = Some(i64::from(resolved.max_pods));
    overwrite(&mut settings.cluster_certificate, cluster.ca_bundle.clone());
    overwrite(&mut settings.cluster_dns_ip, bootstrap.dns_servers().first().map(|address| Addresses::One((*address).to_owned())));
    overwrite(&mut settings.system_reserved, texts(&resolved.system_reserved));
    overwrite(&mut settings.kube_reserved, texts(&resolved.kube_reserved));
    overwrite(&mut settings.eviction_hard, texts(&kubelet.eviction_hard));
    overwrite(&mut settings.eviction_soft, texts(&kubelet.eviction_soft));
    overwrite(&mut settings.eviction_soft_grace_period, texts(&soft_grace));
    overwrite(&mut settings.eviction_max_pod_grace_period, kubelet.eviction_max_pod_grace_period.map(i64::from));
    overwrite(&mut settings.image_gc_high_threshold_percent, kubelet.image_gc_high_threshold_percent.map(Into::into));
    overwrite(&mut settings.image_gc_low_threshold_percent, kubelet.image_gc_low_threshold_percent.map(Into::into));
    overwrite(&mut settings.cpu_cfs_quota_enforced, kubelet.cpu_cfs_quota);
    settings.node_labels.extend(bootstrap.labels.clone());
    for taint in &bootstrap.taints {
        let values = settings.node_taints.entry(taint.key.clone()).or_default();
        values.push(format!("{}:{}", taint.value, kubelet_args::effect(taint.effect)));
    }
}

/// Ours, if we have one, takes the place of the user's.
fn overwrite<T>(setting: &mut Option<T>, ours: Option<T>) {
    if ours.is_some() {
        *setting = ours;
    }
}

fn texts(map: &TextMap) -> Option<TextMap> {
    (!map.is_empty()).then(|| map.clone())
}

/// The user's own certificate is used while that of the cluster is not known.
fn check_certificate(settings: &Kubernetes) -> Result<(), (String, String)> {
    let Some(certificate) = &settings.cluster_certificate else { return Ok(()) };
    check_base64(certificate).map_err(|problem| (format!("{KUBERNETES}.cluster-certificate"), format!("it is not in base64: {problem}")))
}

fn mount_command(version: &str) -> BootstrapCommand {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let mut bind = vec!["apiclient", "ephemeral-storage", "bind"];
    if !binds_by_itself(version) {
        bind.extend(DIRECTORIES);
    }
    let commands = vec![words(&["apiclient", "ephemeral-storage", "init"]), words(&bind)];
    BootstrapCommand { commands: Some(commands), mode: Some(Mode::Always), essential: Some(true) }
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
