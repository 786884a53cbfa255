//! AL2023's NodeConfig (aws 12.5).

use super::mime::{self, Part};
use super::shell::SHELL;
use super::{Bootstrap, UserDataError, kubelet_args};
use serde_json::{Map, Value, json};
use whittle_api::k8s::Taint;

const NODE_CONFIG: &str = "application/node.eks.aws";

/// A MIME archive: the user's parts first, our NodeConfig last, so that it takes precedence when nodeadm merges them.
pub(super) fn al2023(bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    let ours = generated(bootstrap)?;
    let mut parts = match bootstrap.custom() {
        None => Vec::new(),
        Some(text) if mime::looks_like(text) => {
            let given: Result<Vec<Part>, _> = mime::parse(text).and_then(|parts| parts.iter().map(users).collect());
            given.map_err(|problem| UserDataError::Mime { class: bootstrap.class_name(), problem })?
        }
        Some(text) if is_configuration(text) => vec![Part::new(NODE_CONFIG, text)],
        Some(text) => vec![Part::new(SHELL, text)],
    };
    if parts.iter().any(is_refused) {
        return Err(UserDataError::NodeConfig { class: bootstrap.class_name() });
    }
    parts.push(Part::new(NODE_CONFIG, ours));
    Ok(mime::render(&parts))
}

/// A part of the user's archive. A NodeConfig is decoded, because nodeadm, which reads it, does not know all encodings;
/// cloud-init decodes the others.
fn users(part: &Part) -> Result<Part, mime::Problem> {
    if is_for_nodeadm(part) { part.decoded() } else { Ok(part.with_needed_headers()) }
}

fn is_for_nodeadm(part: &Part) -> bool {
    let media_type = part.content_type().split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case(NODE_CONFIG)
}

/// The first YAML document; null if there is none. Later ones are ignored.
fn document(text: &str) -> Option<Value> {
    let mut bytes = text.as_bytes();
    let first: Option<Result<Value, _>> = serde_saphyr::read(&mut bytes).next();
    match first {
        None => Some(Value::Null),
        Some(document) => document.ok(),
    }
}

/// Whether the first YAML document is a mapping or empty. A script may look like one: `echo "a: b"` has a key and a value.
fn is_configuration(text: &str) -> bool {
    !text.starts_with("#!") && document(text).is_some_and(|document| document.is_object() || document.is_null())
}

/// Whether nodeadm would refuse a part, and start no node: it reads all that are of its type. What we cannot read may be a
/// configuration all the same.
fn is_refused(part: &Part) -> bool {
    let is_other = |found: Value| {
        let text = |key: &str| found.get(key).and_then(Value::as_str).unwrap_or_default();
        text("kind") != "NodeConfig" || !text("apiVersion").starts_with("node.eks.aws/")
    };
    is_for_nodeadm(part) && document(&part.body).is_some_and(is_other)
}

fn generated(bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    let cluster = bootstrap.cluster;
    let cidr = cluster.service_cidr.as_ref().ok_or_else(|| UserDataError::NoServiceCidr { class: bootstrap.class_name() })?;
    let mut access = json!({"name": cluster.name, "apiServerEndpoint": cluster.endpoint, "cidr": cidr});
    if let Some(bundle) = &cluster.ca_bundle {
        access["certificateAuthority"] = json!(bundle);
    }
    let storage = if bootstrap.uses_local_disks() { json!({"strategy": "RAID0"}) } else { json!({}) };
    let mut kubelet = json!({"config": config(bootstrap)});
    if !bootstrap.labels.is_empty() {
        kubelet["flags"] = json!([kubelet_args::node_labels(bootstrap)]);
    }
    let document = json!({
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {},
        "spec": {
            "cluster": access,
            "containerd": {},
            "instance": {"localStorage": storage},
            "kubelet": kubelet,
        },
    });
    let yaml = serde_saphyr::to_string(&document)
        .map_err(|error| UserDataError::Yaml { class: bootstrap.class_name(), problem: error.to_string() })?;
    Ok(format!("# Karpenter Generated NodeConfig\n{yaml}"))
}

/// The user's document, overridden by the resolved fields.
fn config(bootstrap: &Bootstrap<'_>) -> Map<String, Value> {
    let mut config = bootstrap.kubelet.raw.clone();
    config.insert("maxPods".to_owned(), json!(bootstrap.resolved.max_pods));
    for (key, resolved) in [("kubeReserved", &bootstrap.resolved.kube_reserved), ("systemReserved", &bootstrap.resolved.system_reserved)] {
        if resolved.is_empty() {
            config.remove(key);
        } else {
            config.insert(key.to_owned(), json!(resolved));
        }
    }
    let servers = bootstrap.dns_servers();
    if !servers.is_empty() {
        config.insert("clusterDNS".to_owned(), json!(servers));
    }
    config.insert("registerWithTaints".to_owned(), bootstrap.taints.iter().map(taint).collect());
    config
}

fn taint(taint: &Taint) -> Value {
    let mut entry = json!({"key": taint.key, "effect": kubelet_args::effect(taint.effect)});
    if !taint.value.is_empty() {
        entry["value"] = json!(taint.value);
    }
    entry
}
